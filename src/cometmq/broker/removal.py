"""Taking topics away with everything that is kept for them.

A topic may have thousands of queues, each with files, so they go in slices between which the others
are served. Until the last one is gone nobody can make a topic of that name: its first messages
would go with the rest.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from cometmq import logs
from cometmq.broker.finishing import Finishing
from cometmq.broker.offsets import ConsumerOffsets
from cometmq.broker.topics import TopicTable, shown
from cometmq.model.topic import DLQ_PREFIX, RETRY_PREFIX
from cometmq.store import MessageStore

QUEUES_AT_ONCE: Final = 32
"""Queues deleted in one turn of the loop: some 10 ms on a slow disk."""

_log = logs.get_logger("cometmq.broker")


class TopicRemoval:
    """Deletes topics, one after the other. What was begun is finished, whoever still waits for it.

    ``close`` ends it between two slices; what is left then is a topic again after the next start.
    """

    def __init__(self, store: MessageStore, topics: TopicTable, offsets: ConsumerOffsets) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._turn = asyncio.Lock()
        self._finishing = Finishing()
        self._is_closed = False

    def close(self) -> None:
        """The store is about to be closed."""
        self._is_closed = True

    async def remove(self, name: str) -> None:
        """Delete a topic, its queues and what groups have consumed of it; none is fine, too.

        So are topics in which pop consumers retry messages of it: nobody else would delete them.
        Messages stay in the log, where only their ids lead to them, until they expire.
        """
        await self._finishing.run(self._remove_with_retries(name))

    async def remove_unused(self) -> int:
        """Delete the queues that no topic has; how many topics they were of."""
        return await self._finishing.run(self._remove_unused())

    async def _remove_with_retries(self, name: str) -> int:
        async with self._turn:
            return await self._remove_all([name, *self._pop_retry_topics(name)])

    async def _remove_unused(self) -> int:
        async with self._turn:
            stored = {topic for topic, _ in self._store.queues()}
            unused = sorted(
                topic
                for topic in stored - self._topics.by_name.keys()
                if not self._topics.is_system(topic)
            )
            return await self._remove_all(unused)

    async def _remove_all(self, names: Sequence[str]) -> int:
        are_known = [name in self._topics.by_name for name in names]
        counts = [await self._remove(name) for name in names]
        if (any(counts) or any(are_known)) and not self._is_closed:
            # Or a kill would bring them back, with whatever was stored last.
            await asyncio.to_thread(self._store.vouch)
        return len(names)

    async def _remove(self, name: str) -> int:
        """How many queues it had."""
        with self._topics.reserved(name):
            is_known = self._topics.delete(name)
            offset_count = self._offsets.delete_topic(name)
            queue_count = await self._remove_queues(name)
        if is_known or queue_count:
            _log.info(
                "topic=%s deleted: queues=%d offsets=%d", shown(name), queue_count, offset_count
            )
        return queue_count

    async def _remove_queues(self, name: str) -> int:
        if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            # What groups need may be made again at any time, so it has to go at once.
            return self._store.delete_topic(name)
        total = 0
        while not self._is_closed:
            count = self._store.delete_topic(name, queues_max=QUEUES_AT_ONCE)
            total += count
            # Less than a slice was the last one: messages that were delayed may still come.
            if count < QUEUES_AT_ONCE:
                break
            await asyncio.sleep(0)
        return total

    def _pop_retry_topics(self, name: str) -> list[str]:
        """Names that 5.x gives them, an older and a newer one."""
        return [
            retry
            for group in self._offsets.groups_of(name)
            for retry in (f"{RETRY_PREFIX}{group}_{name}", f"{RETRY_PREFIX}{group}+{name}")
            if self._topics.get(retry) is not None
        ]
