"""Consumer groups: their settings, how far they are behind, and making, changing, deleting them."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

import msgspec

from cometmq.admin.clients import Clients, Membership
from cometmq.admin.kinds import is_of_dead_letters, is_system_group
from cometmq.admin.servers import (
    UNCHANGED,
    BrokerAddress,
    Outage,
    Servers,
    Survey,
    brokers_of,
    merged,
    require_masters,
    require_none,
)
from cometmq.admin.topics import Topics
from cometmq.codec import bodies
from cometmq.codec.bodies.groups import SubscriptionGroupTable
from cometmq.codec.bodies.offsets import ConsumeStats, ConsumeTimeSpans
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.groups import (
    DeleteSubscriptionGroup,
    GetConsumeStats,
)
from cometmq.codec.headers.topics import QueryConsumeTimeSpan
from cometmq.errors import AlreadyExists, NotFound
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.model.topic import DLQ_PREFIX, RETRY_PREFIX

STATS_TIMEOUT_MS = 15_000
"""For how far a group is: a broker looks into every queue for that."""


class GroupName(msgspec.Struct, frozen=True, order=True):
    """A group in a list."""

    name: str
    is_system: bool
    brokers: tuple[str, ...]


class GroupList(msgspec.Struct, frozen=True):
    """All groups that the brokers know."""

    groups: tuple[GroupName, ...]
    outages: tuple[Outage, ...] = ()


class GroupOnBroker(msgspec.Struct, frozen=True):
    """The settings of a group on one broker; those that are None came with 5.0."""

    broker_name: str
    address: str
    is_consume_enabled: bool
    is_consume_from_min_enabled: bool
    is_broadcast_enabled: bool
    is_orderly: bool | None
    retry_queues: int
    retry_max: int
    consume_timeout_minutes: int | None
    is_notified_of_changes: bool
    slow_broker_id: int
    """From whom members read what is no longer in memory."""
    attributes: dict[str, str] | None


class GroupSettings(TypedDict, total=False):
    """What can be set of a group: the fields of ``GroupOnBroker``."""

    is_consume_enabled: bool
    is_consume_from_min_enabled: bool
    is_broadcast_enabled: bool
    is_orderly: bool
    retry_queues: int
    retry_max: int
    consume_timeout_minutes: int
    is_notified_of_changes: bool
    slow_broker_id: int


class QueueLag(msgspec.Struct, frozen=True):
    """How far a group is with a queue; ``lag`` messages are still to be consumed."""

    topic: str
    broker_name: str
    queue_id: int
    max_offset: int
    offset: int
    """The next message that counts as not consumed."""
    lag: int
    in_flight: int | None
    """Fetched by members and not consumed yet; None before 5.0."""
    last_consumed_ms: int
    """When the last consumed message was stored; 0 when that is not known."""


class GroupLag(msgspec.Struct, frozen=True):
    """How far a group is, queue by queue."""

    group: str
    lag: int
    consume_tps: float
    queues: tuple[QueueLag, ...]
    outages: tuple[Outage, ...] = ()


class QueueDelay(msgspec.Struct, frozen=True):
    """How far behind a group is with a queue, in time."""

    topic: str
    broker_name: str
    queue_id: int
    first_ms: int
    last_ms: int
    next_ms: int
    """When the next message to be consumed was stored."""
    delay_ms: int


class Group(msgspec.Struct, frozen=True):
    """All there is to know of a group."""

    name: str
    is_system: bool
    brokers: tuple[GroupOnBroker, ...]
    membership: Membership
    lag: GroupLag
    outages: tuple[Outage, ...] = ()


class Groups:
    """``admin.groups``."""

    def __init__(self, servers: Servers, clients: Clients, topics: Topics) -> None:
        self._servers = servers
        self._clients = clients
        self._topics = topics

    # --- looking

    async def list(self, *, cluster: str | None = None) -> GroupList:
        """All groups that some broker has settings of."""
        fleet = await self._servers.fleet()
        survey = await self._servers.survey(fleet.readers(cluster), self._table)
        brokers: dict[str, set[str]] = {}
        for broker, table in survey.answers:
            for name in table:
                brokers.setdefault(name, set()).add(broker.broker_name)
        groups = (
            GroupName(name, is_system_group(name), tuple(sorted(where)))
            for name, where in sorted(brokers.items())
        )
        return GroupList(tuple(groups), survey.outages)

    async def describe(self, group: str) -> Group:
        """Settings, members and lag of a group.

        Raises NotFound, or Unreachable when a broker that might know it does not answer.
        """
        configs, membership, lag = await asyncio.gather(
            self._configs(group), self._clients.consumers(group), self.lag(group)
        )
        outages = merged(configs.outages, membership.outages, lag.outages)
        if not configs.answers and not membership.members and not lag.queues:
            require_none(outages)
            raise NotFound("group", group)
        return Group(
            group,
            is_system_group(group),
            tuple(_on_broker(broker, config) for broker, config in configs.answers),
            membership,
            lag,
            outages,
        )

    async def lag(self, group: str, topic: str | None = None) -> GroupLag:
        """How far a group is, on all its topics or on one; no queues when it has no offsets.

        Its offset on its own dead letters says which of them are dealt with, and nobody consumes
        them: it counts only when ``topic`` names them.
        """
        return await self.lag_on((await self._servers.fleet()).readers(), group, topic)

    async def lag_on(
        self, brokers: Iterable[BrokerAddress], group: str, topic: str | None = None
    ) -> GroupLag:
        """As ``lag``, of some brokers only."""
        header = GetConsumeStats(group, topic)
        code = RequestCode.GET_CONSUME_STATS

        async def ask(broker: BrokerAddress) -> ConsumeStats:
            try:
                return await self._servers.ask_for(
                    ConsumeStats, broker.address, code, header, timeout_ms=STATS_TIMEOUT_MS
                )
            except NotFound:
                return ConsumeStats()

        return _lag(group, topic, await self._servers.survey(brokers, ask))

    async def members(self, group: str) -> Membership:
        """Who consumes with a group now; nobody may be connected."""
        return await self._clients.consumers(group)

    async def inconsistencies(self, group: str) -> tuple[str, ...]:
        """Where members contradict each other, in sentences; each connected member is asked."""
        return await self._clients.inconsistencies(group)

    async def delay(self, group: str, topic: str) -> tuple[QueueDelay, ...]:
        """How far behind a group is, in time.

        Raises NotFound for a topic that is not there, Unreachable when one of its brokers is not.
        """
        header = QueryConsumeTimeSpan(topic, group)
        code = RequestCode.QUERY_CONSUME_TIME_SPAN
        survey = await self._servers.survey(
            brokers_of(await self._servers.route(topic)),
            lambda broker: self._servers.ask_for(
                ConsumeTimeSpans, broker.address, code, header, timeout_ms=STATS_TIMEOUT_MS
            ),
        )
        spans = [span for _, found in survey.whole() for span in found.consume_time_span_set]
        return tuple(
            QueueDelay(
                span.message_queue.topic,
                span.message_queue.broker_name,
                span.message_queue.queue_id,
                span.min_time_stamp,
                span.max_time_stamp,
                span.consume_time_stamp,
                span.delay_time,
            )
            for span in sorted(spans, key=lambda span: span.message_queue)
        )

    async def configs(self, group: str) -> tuple[GroupOnBroker, ...]:
        """The settings of a group on each broker that has some.

        Raises NotFound, and Unreachable when a broker does not answer.
        """
        answers = (await self._configs(group)).whole()
        if not answers:
            raise NotFound("group", group)
        return tuple(_on_broker(broker, config) for broker, config in answers)

    # --- changing

    async def create(
        self,
        group: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        is_new: bool = True,
        **settings: Unpack[GroupSettings],
    ) -> tuple[GroupOnBroker, ...]:
        """Make a group on all masters of a cluster, or on one broker.

        With ``is_new=False`` a group that is there gets these settings, and keeps what is not
        named. Raises AlreadyExists, Refused, PartlyDone, and Unreachable, before anything is
        changed, when a broker does not answer.
        """
        targets = await self._servers.targets(cluster=cluster, broker=broker)
        survey = await self._survey(group, targets)
        if is_new and survey.answers:
            raise AlreadyExists("group", group, "change its settings instead")
        require_none(survey.outages, UNCHANGED)
        return await self._put(group, targets, settings)

    async def update(
        self,
        group: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        **settings: Unpack[GroupSettings],
    ) -> tuple[GroupOnBroker, ...]:
        """Change what is named and nothing else, where the group has settings.

        Raises NotFound, Refused, PartlyDone, and Unreachable, before anything is changed, when a
        broker that might have the group does not answer.
        """
        targets = await self._targets(cluster, broker)
        answers = (await self._survey(group, targets)).whole(UNCHANGED)
        if not answers:
            raise NotFound("group", group, "make it first")
        return await self._put(group, [broker for broker, _ in answers], settings)

    async def delete(
        self,
        group: str,
        *,
        cluster: str | None = None,
        keep_offsets: bool = False,
        keep_topics: bool = False,
        is_dry_run: bool = False,
    ) -> tuple[str, ...]:
        """Delete a group with its offsets and its topics for retries and dead letters.

        Returns the brokers that had something of it, so what was partly done can be done again;
        with ``is_dry_run`` they still have it. Raises NotFound, PartlyDone, and Unreachable, before
        anything is changed, when a broker that might have the group does not answer.
        """
        masters = await self._targets(cluster, None)
        survey = await self._survey(group, masters)
        holders = [broker for broker, _ in survey.whole(UNCHANGED)]
        topics = () if keep_topics else (RETRY_PREFIX + group, DLQ_PREFIX + group)
        names = {broker.broker_name for broker in holders}
        for topic in topics:
            names |= await self._servers.holders(topic)
        had = [master.broker_name for master in masters if master.broker_name in names]
        if not had:
            raise NotFound("group", group)
        if is_dry_run:
            return tuple(had)
        await self._delete(group, holders, keep_offsets=keep_offsets)
        for topic in topics:
            await self._topics.remove(topic, masters, cluster=cluster)
        return tuple(had)

    # --- the inside

    async def _targets(self, cluster: str | None, broker: str | None) -> Sequence[BrokerAddress]:
        """Whom to change a group on. Raises Unreachable when a broker is there as slave only."""
        targets = await self._servers.targets(cluster=cluster, broker=broker)
        if broker is None:
            require_masters((await self._servers.fleet()).readers(cluster))
        return targets

    async def _delete(
        self, group: str, holders: Sequence[BrokerAddress], *, keep_offsets: bool
    ) -> None:
        # Releases disagree on the name of the field and ignore the one they do not know.
        header = DeleteSubscriptionGroup(group, not keep_offsets, not keep_offsets)
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        await self._servers.change(
            f"deleting group '{group}'",
            holders,
            lambda broker: self._servers.ask(broker.address, code, header),
        )

    async def _table(self, broker: BrokerAddress) -> Mapping[str, SubscriptionGroupConfig]:
        table = await self._servers.ask_for(
            SubscriptionGroupTable,
            broker.address,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        )
        return table.subscription_group_table

    async def _configs(self, group: str) -> Survey[SubscriptionGroupConfig]:
        return await self._survey(group, (await self._servers.fleet()).readers())

    async def _survey(
        self, group: str, brokers: Iterable[BrokerAddress]
    ) -> Survey[SubscriptionGroupConfig]:
        """The settings on those of the brokers that have some."""
        survey = await self._servers.survey(brokers, lambda broker: self._config(broker, group))
        found = [(broker, config) for broker, config in survey.answers if config is not None]
        return Survey(tuple(found), survey.outages)

    async def _config(self, broker: BrokerAddress, group: str) -> SubscriptionGroupConfig | None:
        # Not with GET_SUBSCRIPTIONGROUP_CONFIG: where groups make themselves, 5.x makes the one it
        # is asked about.
        return (await self._table(broker)).get(group)

    async def _put(
        self, group: str, brokers: Iterable[BrokerAddress], settings: GroupSettings
    ) -> tuple[GroupOnBroker, ...]:
        changes = _changes(settings)

        async def put(broker: BrokerAddress) -> SubscriptionGroupConfig:
            before = await self._config(broker, group) or SubscriptionGroupConfig(group)
            config = msgspec.structs.replace(before, **changes)
            await self._servers.ask(
                broker.address,
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                body=bodies.encode(config),
            )
            return await self._config(broker, group) or config

        done = await self._servers.change(f"changing group '{group}'", brokers, put)
        return tuple(_on_broker(broker, config) for broker, config in done)


_WIRE_NAMES = {
    "is_consume_enabled": "consume_enable",
    "is_consume_from_min_enabled": "consume_from_min_enable",
    "is_broadcast_enabled": "consume_broadcast_enable",
    "is_orderly": "consume_message_orderly",
    "retry_queues": "retry_queue_nums",
    "retry_max": "retry_max_times",
    "consume_timeout_minutes": "consume_timeout_minute",
    "is_notified_of_changes": "notify_consumer_ids_changed_enable",
    "slow_broker_id": "which_broker_when_consume_slowly",
}
"""Our names of a group's settings and RocketMQ's."""


def _changes(settings: GroupSettings) -> dict[str, Any]:
    unknown = sorted(set(settings).difference(_WIRE_NAMES))
    if unknown:
        raise TypeError(
            f"a group has no setting {unknown[0]!r}; there are {', '.join(_WIRE_NAMES)}"
        )
    return {_WIRE_NAMES[name]: value for name, value in settings.items()}


def _on_broker(broker: BrokerAddress, config: SubscriptionGroupConfig) -> GroupOnBroker:
    values = {ours: getattr(config, theirs) for ours, theirs in _WIRE_NAMES.items()}
    return GroupOnBroker(
        broker_name=broker.broker_name,
        address=broker.address,
        attributes=config.attributes,
        **values,
    )


def _lag(group: str, topic: str | None, survey: Survey[ConsumeStats]) -> GroupLag:
    queues = [
        QueueLag(
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            own.broker_offset,
            own.consumer_offset,
            own.broker_offset - own.consumer_offset,
            None if own.pull_offset is None else max(0, own.pull_offset - own.consumer_offset),
            max(0, own.last_timestamp),
        )
        for _, stats in survey.answers
        for queue, own in sorted(stats.offset_table.items())
        if topic is not None or not is_of_dead_letters(group, queue.topic)
    ]
    queues.sort(key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
    return GroupLag(
        group,
        sum(queue.lag for queue in queues),
        sum(stats.consume_tps for _, stats in survey.answers),
        tuple(queues),
        survey.outages,
    )
