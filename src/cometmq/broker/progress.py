"""How far groups are behind the ends of their queues.

There may be many queues, so all of it goes in slices, and what is told was true at some moment of
the time it took. And there may be more of them than fit into an answer, or into memory while many
ask: so they are counted before anything is made of them.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from cometmq.broker.clients import Clients
from cometmq.broker.offsets import ConsumerOffsets
from cometmq.broker.topics import Topic, TopicTable
from cometmq.codec.bodies.offsets import ConsumeStats, OffsetWrapper
from cometmq.codec.codes import ResponseCode
from cometmq.codec.digest import store_timestamp
from cometmq.errors import BrokerError
from cometmq.model.offsets import MessageQueue
from cometmq.model.topic import DLQ_PREFIX
from cometmq.store import GetLimits, GetStatus, MessageStore

QUEUES_AT_ONCE: Final = 256
"""Queues looked at in one turn of the loop: a few milliseconds."""

ENTRIES_MAX: Final = 100_000
"""Queues that one answer may tell of, and all answers of a kind under way: 12 to 25 MB of JSON.

A frame takes 16 MiB of it; what is still too long is refused when it is written.
"""

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


class EntryRoom:
    """How many entries the answers under way may have together."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._taken = 0

    @contextmanager
    def take(self, count: int, advice: str) -> Iterator[None]:
        """Room for an answer while it is made.

        Raises BrokerError when the answer is too long, with ``advice`` for whoever asked, or when
        others take the room at the moment.
        """
        if count > self._entries_max:
            remark = (
                f"the answer would have {count} queues, more than the {self._entries_max} that"
                f" fit into one: {advice}"
            )
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
        if self._taken + count > self._entries_max:
            remark = f"[REJECTREQUEST]answers with {self._taken} queues are being made, try later"
            raise BrokerError(ResponseCode.SYSTEM_BUSY, remark)
        self._taken += count
        try:
            yield
        finally:
            self._taken -= count


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

    def existing(self, names: Iterable[str], *, is_order: bool = False) -> list[Topic]:
        """Those of these topics that exist; with ``is_order`` ordered ones only."""
        found = (self._topics.get(name) for name in names)
        return [topic for topic in found if topic is not None and (topic.is_order or not is_order)]

    async def of(
        self, group: str, topics: Iterable[Topic], pace: Pace | None = None
    ) -> ConsumeStats:
        """A group's progress on these topics, with as many entries as ``entry_count`` says."""
        pace = pace or Pace()
        table: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0
        for topic in topics:
            await self._add(table, group, topic, pace)
            tps += self._tps(GROUP_GET_NUMS, f"{topic.name}@{group}")
        return ConsumeStats(table, tps)

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


class Consumption:
    """Who consumes what: groups that have offsets, and groups online that have none yet.

    How far their dead letters are dealt with is kept as offsets, too, but nobody consumes them.
    """

    def __init__(self, topics: TopicTable, offsets: ConsumerOffsets, clients: Clients) -> None:
        self._topics = topics
        self._offsets = offsets
        self._clients = clients

    def groups(self) -> list[str]:
        """All of them, each once."""
        return list(dict.fromkeys([*self._offsets.groups(), *self._clients.consumer_groups]))

    def topics_of(self, group: str) -> list[tuple[str, int]]:
        """The topics of a group, each with how many queues can be read.

        Of a group online those that it subscribes to; of one that broadcasts, whose members keep
        their offsets themselves, only those that it has offsets of all the same.
        """
        names = self._offsets.topics_of(group)
        online = self._clients.consumer_groups.get(group)
        if online is not None and online.subscriptions:
            names = [name for name in names if name in online.subscriptions]
            if not online.is_broadcasting:
                names = list(dict.fromkeys([*names, *online.subscriptions]))
        found = ((name, self._topics.get(name)) for name in names if name != DLQ_PREFIX + group)
        return [(name, topic.read_queue_count) for name, topic in found if topic is not None]

    def offsets_of(self, group: str, topic: str) -> Mapping[int, int]:
        """Where a group goes on, by queue; those it never said anything of are not there."""
        return self._offsets.of(group, topic)


def entry_count(topics: Iterable[Topic]) -> int:
    """How many queues the progress on these topics tells of."""
    return sum(topic.read_queue_count for topic in topics)
