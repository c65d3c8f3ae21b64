"""Reading several queues side by side, so that messages come in the order they were stored.

Of each queue one page is in memory; the queue whose next message is the oldest goes first.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from cometmq.admin.message import Message
from cometmq.admin.positions import Bounds, Position, Time, offset_at, search
from cometmq.admin.servers import BrokerAddress, Servers, all_of
from cometmq.admin.topics import QueueStats
from cometmq.client.core.merging import Merge


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
    merge: Merge[Message] = Merge()
    for number, page in enumerate(await all_of(cursor.page() for cursor in cursors)):
        merge.put(number, page)
    while merge:
        number, message = merge.take()
        yield message
        if merge.is_dry(number):
            merge.put(number, await cursors[number].page())


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

    async def page(self) -> list[Message]:
        """The next messages; none when there are no more."""
        while self._offset < self._end:
            batch = await self._read(self._place, self._queue_id, self._offset)
            if batch.next_offset <= self._offset:
                break  # nothing there although there should be: it was deleted meanwhile
            self._offset = batch.next_offset
            page = [
                message
                for message in batch.messages
                if message.stored_ms >= self._since_ms and message.queue_offset < self._end
            ]
            if page:
                return page
        return []


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
