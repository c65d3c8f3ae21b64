"""Messages looked up by key, by their place in the log and by their place in a queue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from cometmq.broker.topics import shown
from cometmq.codec import bodies, core, queue_extension
from cometmq.codec.bodies.stats import ConsumeQueueData, QueryConsumeQueueAnswer
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.query import (
    QueryConsumeQueue,
    QueryMessage,
    QueryMessageResponse,
    ViewMessageById,
)
from cometmq.errors import BrokerError
from cometmq.remoting.routes import Answer
from cometmq.store.key_index import KeyKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.broker.clients import Clients
    from cometmq.broker.subscriptions import Subscription
    from cometmq.codec.command import Command
    from cometmq.remoting.channel import Channel
    from cometmq.remoting.routes import Routes
    from cometmq.store import MessageStore
    from cometmq.store.consume_queue import ConsumeQueue

UNIQUE_KEY_COUNT: Final = 32
"""How many messages a search for a unique key returns, whatever was asked for."""

FOUND_BYTES_MAX: Final = 12 * 1024 * 1024
"""Of all messages that one search returns; the newest whatever its size. A frame has 16 MiB."""

ENTRIES_MAX: Final = 2048
"""Queue entries that are shown at a time."""

SEARCHES_MAX: Final = 2
"""Searches by key at a time. Others wait: each may have to look at millions of index entries, on
one of the few threads that also save the broker's tables."""

_NOT_FOUND: Final = "can not find message, maybe time range not correct"
_NO_FILTER_DATA: Final = "null"


class QueryHandlers:
    """Requests 12, 33 and 321."""

    def __init__(self, store: MessageStore, clients: Clients) -> None:
        self._store = store
        self._clients = clients
        self._searches = asyncio.Semaphore(SEARCHES_MAX)

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.QUERY_MESSAGE, self.query)
        routes.add(RequestCode.VIEW_MESSAGE_BY_ID, self.view)
        routes.add(RequestCode.QUERY_CONSUME_QUEUE, self.queue_entries)

    async def query(self, channel: Channel, command: Command) -> Answer | None:
        """Messages that may have the key, the oldest first; whoever asked looks which really do."""
        asked = core.read(command, QueryMessage)
        async with self._searches:
            offsets = await asyncio.to_thread(self._search, asked)
        views = self._records(offsets)
        if not views:
            nothing = QueryMessageResponse(0, 0)
            return Answer(ResponseCode.QUERY_NOT_FOUND, nothing, remark=_NOT_FOUND)
        end, timestamp = self._store.index_end
        header = QueryMessageResponse(timestamp, end)
        # The slices are let go when the last of them is written: nobody else keeps them.
        channel.reply_parts(command, ResponseCode.SUCCESS, None, header, views)
        return None

    def view(self, channel: Channel, command: Command) -> Answer | None:
        asked = core.read(command, ViewMessageById)
        record = self._store.record_at(asked.offset)
        if record is None:
            remark = f"can not find message by the offset, {asked.offset}"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        channel.reply_parts(command, ResponseCode.SUCCESS, None, None, [record])
        return None

    def queue_entries(self, channel: Channel, command: Command) -> Answer:
        """Entries as they lie in a queue; a group's filter judges those with an extension.

        Only those, as Apache does: of the others the tag's code says as much.
        """
        asked = core.read(command, QueryConsumeQueue)
        topic, queue_id, index = asked.topic or "", asked.queue_id or 0, asked.index or 0
        queue = self._store.queue(topic, queue_id)
        if queue is None:
            remark = f"{queue_id}@{shown(topic)} is not exist!"
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
        if not queue.min_offset <= index < queue.max_offset:
            return Answer(remark=f"Index {index} of {queue_id}@{topic} is not exist!")
        wanted, filter_data = self._wanted(asked.consumer_group, topic)
        count = min(asked.count or 0, ENTRIES_MAX)
        answer = QueryConsumeQueueAnswer(
            tuple(_entries(queue, index, count, wanted)),
            queue.max_offset,
            queue.min_offset,
            None if wanted is None else wanted.data,
            filter_data,
        )
        return Answer(body=bodies.encode(answer))

    def _search(self, asked: QueryMessage) -> list[int]:
        """Log positions that the index has for a key; on a thread, while the index may grow.

        Looking changes nothing, as long as the store has a loop to dispatch on.
        """
        is_unique = bool(asked.unique_key_query)
        kind = KeyKind.TAG if asked.index_type == KeyKind.TAG.value else KeyKind.KEY
        for _ in range(2):
            try:
                return self._store.query(
                    asked.topic,
                    asked.key,
                    limit=UNIQUE_KEY_COUNT if is_unique else asked.max_num,
                    begin_ms=asked.begin_timestamp,
                    end_ms=asked.end_timestamp,
                    kind=KeyKind.UNIQUE if is_unique else kind,
                )
            except ValueError:
                continue  # a file was unmapped meanwhile: it was expired, or is mapped anew
        return []

    def _records(self, offsets: list[int]) -> list[memoryview]:
        """The messages at these places as far as they are there, not more than fit in an answer."""
        views: list[memoryview] = []
        room = FOUND_BYTES_MAX
        for offset in reversed(offsets):
            view = self._store.record_at(offset)
            if view is None:
                continue
            room -= len(view)
            if room < 0 and views:
                break
            views.append(view)
        return views[::-1]

    def _wanted(self, group: str | None, topic: str) -> tuple[Subscription | None, str | None]:
        """What a group wants of a topic now, and the words about how it filters."""
        if group is None:
            return None, None
        online = self._clients.consumer_groups.get(group)
        wanted = None if online is None else online.subscriptions.get(topic)
        if wanted is None:
            return None, f"{shown(group)}@{topic} is not online!"
        return wanted, _NO_FILTER_DATA


def _entries(
    queue: ConsumeQueue, index: int, count: int, wanted: Subscription | None
) -> Iterator[ConsumeQueueData]:
    for offset in range(index, min(index + count, queue.max_offset)):
        physical_offset, size, tags_code = queue.entry(offset)
        if not queue_extension.is_address(tags_code):
            yield ConsumeQueueData(physical_offset, size, tags_code)
            continue
        extended = None if queue.extension is None else queue.extension.tags_code(tags_code)
        if extended is None:
            message = f"Cq extend not exist!addr: {tags_code}"
            yield ConsumeQueueData(physical_offset, size, tags_code, msg=message)
        else:
            is_wanted = wanted is not None and (wanted.tags is None or extended in wanted.tags)
            yield ConsumeQueueData(physical_offset, size, tags_code, eval=is_wanted)
