"""How far groups are behind the ends of their queues.

There may be many queues, so all of it goes in slices, and what is told was true at some moment of
the time it took.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from cometmq.broker.clients import Clients
from cometmq.broker.offsets import ConsumerOffsets
from cometmq.broker.topics import Topic, TopicTable
from cometmq.codec.bodies.offsets import ConsumeStats, OffsetWrapper
from cometmq.codec.digest import store_timestamp
from cometmq.model.offsets import MessageQueue
from cometmq.store import GetLimits, GetStatus, MessageStore

QUEUES_AT_ONCE: Final = 256
"""Queues looked at in one turn of the loop: a few milliseconds."""

GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"
"""The statistic of messages handed out, by ``topic@group``."""

NO_TIME: Final = 0

_ONE: Final = GetLimits(count=1)

Tps = Callable[[str, str], float]
"""Something per second, by the name of a statistic and its key."""


def no_tps(*_: str) -> float:
    """What is known where nothing is counted."""
    return 0.0


def stored_at(store: MessageStore, topic: str, queue_id: int, offset: int) -> int:
    """When a message of a queue was stored; 0 when it is gone or was never there."""
    if offset < 0:
        return NO_TIME
    with store.get(topic, queue_id, offset, _ONE) as result:
        if result.status is not GetStatus.FOUND:
            return NO_TIME
        return store_timestamp(result.slices[0], 0)


class Pace:
    """Lets others have their turn after every so many steps."""

    def __init__(self, steps: int = QUEUES_AT_ONCE) -> None:
        self._steps = steps
        self._left = steps

    async def step(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self._left = self._steps
            await asyncio.sleep(0)


class Progress:
    """What groups have consumed, beside what there is."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        clients: Clients,
        *,
        broker_name: str,
        tps: Tps = no_tps,
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._clients = clients
        self._broker_name = broker_name
        self._tps = tps

    async def of(self, group: str, topics: Iterable[str], pace: Pace | None = None) -> ConsumeStats:
        """A group's progress on these topics; those that do not exist are passed over."""
        pace = pace or Pace()
        table: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0
        for name in topics:
            topic = self._topics.get(name)
            if topic is not None:
                await self._add(table, group, topic, pace)
                tps += self._tps(GROUP_GET_NUMS, f"{name}@{group}")
        return ConsumeStats(table, tps)

    async def by_topic(
        self, group: str, topics: Iterable[str], pace: Pace, *, is_order: bool
    ) -> list[ConsumeStats]:
        """A group's progress, topic by topic; with ``is_order`` on ordered ones only."""
        found = [
            topic
            for name in self.wanted(group, topics)
            if (topic := self._topics.get(name)) is not None and (topic.is_order or not is_order)
        ]
        return [await self.of(group, (topic.name,), pace) for topic in found]

    def topics_of(self, group: str) -> list[str]:
        """Topics that a group consumes: it has offsets of them and still wants them."""
        return self.wanted(group, self._offsets.topics_of(group))

    def wanted(self, group: str, topics: Iterable[str]) -> list[str]:
        """Of these topics those that the members of a group subscribe to; all if it has none."""
        online = self._clients.consumer_groups.get(group)
        if online is None or not online.subscriptions:
            return list(topics)
        return [topic for topic in topics if topic in online.subscriptions]

    async def _add(
        self, table: dict[MessageQueue, OffsetWrapper], group: str, topic: Topic, pace: Pace
    ) -> None:
        name = topic.name
        for queue_id in range(topic.read_queue_count):
            await pace.step()
            offset = max(self._offsets.get(group, name, queue_id), 0)
            pulled = self._offsets.pulled_to(group, name, queue_id)
            table[MessageQueue(name, self._broker_name, queue_id)] = OffsetWrapper(
                self._store.max_offset(name, queue_id),
                offset,
                stored_at(self._store, name, queue_id, offset - 1),
                # A member that begins elsewhere may have committed more than it was handed since.
                max(pulled, offset),
            )
