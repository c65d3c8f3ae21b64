"""Reading several queues side by side, so that messages come in the order they were stored.

Of each queue one page is in memory; the queue whose next message is the oldest goes first.
"""

import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from cometmq.admin.message import Message
from cometmq.admin.positions import Bounds, Position, Time, offset_at, search
from cometmq.admin.servers import BrokerAddress, Servers, all_of
from cometmq.admin.topics import QueueStats


class Batch(Protocol):
    """What a read gives."""

    @property
    def messages(self) -> tuple[Message, ...]: ...

    @property
    def next_offset(self) -> int: ...


Read = Callable[[BrokerAddress, int, int], Awaitable[Batch]]
"""Reads a queue of a broker from an offset on."""


async def browse(
    servers: Servers,
    topic: str,
    queues: Sequence[tuple[BrokerAddress, QueueStats]],
    begin: Position,
    end: Position | None,
    read: Read,
) -> AsyncIterator[Message]:
    """The messages of these queues between two positions; ``end`` None is where each ends now."""
    cursors = await all_of(
        _cursor(servers, topic, place, queue, begin, end, read) for place, queue in queues
    )
    heads = await all_of(cursor.next() for cursor in cursors)
    waiting = [_ranked(head, n) for n, head in enumerate(heads) if head is not None]
    heapq.heapify(waiting)
    while waiting:
        _, number, message = waiting[0]
        yield message
        following = await cursors[number].next()
        if following is None:
            heapq.heappop(waiting)
        else:
            heapq.heapreplace(waiting, _ranked(following, number))


def _ranked(message: Message, number: int) -> tuple[tuple[int, str, int], int, Message]:
    """A message behind what it is sorted by: the log of a broker knows more than milliseconds."""
    return (message.stored_ms, message.broker_name, message.physical_offset), number, message


class _Cursor:
    """Goes through one queue, page by page."""

    def __init__(
        self, place: BrokerAddress, queue_id: int, offset: int, end: int, since_ms: int, read: Read
    ) -> None:
        self._place = place
        self._queue_id = queue_id
        self._offset = offset  # of the next page
        self._end = end
        self._since_ms = since_ms  # 4.9 finds the offset of a time only about right
        self._read = read
        self._page: list[Message] = []  # backwards

    async def next(self) -> Message | None:
        while not self._page:
            if self._offset >= self._end:
                return None
            batch = await self._read(self._place, self._queue_id, self._offset)
            if batch.next_offset <= self._offset:
                return None  # nothing there although there should be: it was deleted meanwhile
            self._offset = batch.next_offset
            fresh = [m for m in batch.messages if m.stored_ms >= self._since_ms]
            self._page = fresh[::-1]
        message = self._page.pop()
        return message if message.queue_offset < self._end else None


async def _cursor(
    servers: Servers,
    topic: str,
    place: BrokerAddress,
    queue: QueueStats,
    begin: Position,
    end: Position | None,
    read: Read,
) -> _Cursor:
    bounds = Bounds(queue.min_offset, queue.max_offset, None)

    async def offset_of(position: Position) -> int:
        found = None
        if isinstance(position, Time):
            found = await search(servers, place, topic, queue.queue_id, position.ms)
        return offset_at(position, bounds, found)

    last = queue.max_offset if end is None else await offset_of(end)
    since_ms = begin.ms if isinstance(begin, Time) else 0
    return _Cursor(place, queue.queue_id, await offset_of(begin), last, since_ms, read)
