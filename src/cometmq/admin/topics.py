"""Topics: where they are, how full their queues are, and making, changing and deleting them."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cometmq.admin.kinds import TopicKind, topic_kind
from cometmq.admin.name_servers import ORDER_NAMESPACE, NameServers
from cometmq.admin.ordering import begin_order, end_order
from cometmq.admin.positions import queue_bounds
from cometmq.admin.servers import (
    ANY_TOPIC,
    UNCHANGED,
    BrokerAddress,
    Outage,
    Servers,
    Survey,
    brokers_of,
    merged,
    require_masters,
)
from cometmq.codec import bodies
from cometmq.codec.bodies.groups import GroupList
from cometmq.codec.bodies.nameserver import TopicList
from cometmq.codec.bodies.topics import (
    TopicConfigAndMapping,
    TopicConfigTable,
    TopicOffset,
    TopicStatsTable,
)
from cometmq.codec.codes import V5_0_0, RequestCode
from cometmq.codec.headers.nameserver import DeleteTopicInNamesrv, GetTopicsByCluster
from cometmq.codec.headers.topics import (
    DeleteTopicInBroker,
    GetTopicConfig,
    GetTopicStatsInfo,
    QueryTopicConsumeByWho,
    UpdateAndCreateTopic,
)
from cometmq.errors import AlreadyExists, NotFound, Unsupported
from cometmq.model.offsets import MessageQueue
from cometmq.model.route import TopicRoute
from cometmq.model.topic import Permission, TopicConfig, TopicFilterType

QUEUES_DEFAULT = 8
"""Queues of a new topic on each broker, as mqadmin has it."""

READ_WRITE = int(Permission.READ | Permission.WRITE)

_KNOWN_SECONDS_MAX = 10.0
_KNOWN_POLL_SECONDS = 0.02


class TopicName(msgspec.Struct, frozen=True, order=True):
    """A topic in a list."""

    name: str
    kind: TopicKind


class TopicRouteEntry(msgspec.Struct, frozen=True):
    """What clients are told of a topic on one broker group; addresses by broker id."""

    cluster: str
    broker_name: str
    addresses: dict[int, str]
    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int


class Route(msgspec.Struct, frozen=True):
    """What name servers tell clients of a topic."""

    topic: str
    order_config: str | None
    brokers: tuple[TopicRouteEntry, ...]


class TopicOnBroker(msgspec.Struct, frozen=True):
    """The settings of a topic on one broker; ``attributes`` is None before 5.0."""

    broker_name: str
    address: str
    read_queues: int
    write_queues: int
    perm: int
    is_ordered: bool
    filter_type: str
    sys_flag: int
    attributes: dict[str, str] | None


class QueueStats(msgspec.Struct, frozen=True):
    """The bounds of a queue: offsets from ``min_offset`` to below ``max_offset`` are there."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    message_count: int
    last_update_ms: int
    """When it last got a message; 0 when that is not known."""


class TopicStats(msgspec.Struct, frozen=True):
    """All queues of a topic; only 5.x brokers tell the rate of sends."""

    topic: str
    queues: tuple[QueueStats, ...]
    message_count: int
    put_tps: float | None
    outages: tuple[Outage, ...] = ()


class Topic(msgspec.Struct, frozen=True):
    """All there is to know of a topic."""

    name: str
    kind: TopicKind
    route: Route
    brokers: tuple[TopicOnBroker, ...]
    stats: TopicStats
    groups: tuple[str, ...]
    outages: tuple[Outage, ...] = ()


class Topics:
    """``admin.topics``."""

    def __init__(self, servers: Servers, name_servers: NameServers) -> None:
        self._servers = servers
        self._name_servers = name_servers

    # --- looking

    async def list(self, *, cluster: str | None = None) -> tuple[TopicName, ...]:
        """All topics, or those of one cluster."""
        fleet = await self._servers.fleet()
        if cluster is None:
            code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            answer = await self._servers.ask_name_server(code)
        else:
            fleet.within(cluster)
            answer = await self._servers.ask_name_server(
                RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByCluster(cluster)
            )
        names = bodies.decode(TopicList, answer.body or b"{}").topic_list
        known = fleet.server_names
        return tuple(sorted(TopicName(name, topic_kind(name, known)) for name in set(names)))

    async def describe(self, topic: str) -> Topic:
        """Route, settings, queues and groups of a topic. Raises NotFound."""
        fleet, route = await self._servers.fleet(), await self._servers.route(topic)
        brokers = brokers_of(route)
        configs, stats, groups = await asyncio.gather(
            self._configs(brokers, topic),
            self._stats(topic, route),
            self.groups_on(brokers, topic),
        )
        return Topic(
            name=topic,
            kind=topic_kind(topic, fleet.server_names),
            route=_route(topic, route),
            brokers=tuple(_on_broker(broker, config) for broker, config in configs.answers),
            stats=stats,
            groups=_names(groups.answers),
            outages=merged(configs.outages, stats.outages, groups.outages),
        )

    async def route(self, topic: str) -> Route:
        """What clients are told. Raises NotFound."""
        return _route(topic, await self._servers.route(topic))

    async def stats(self, topic: str) -> TopicStats:
        """The queues of a topic. Raises NotFound."""
        return await self._stats(topic, await self._servers.route(topic))

    async def groups(self, topic: str) -> tuple[str, ...]:
        """Groups that consume it now or have offsets for it.

        Raises NotFound, and Unreachable when one of its brokers does not answer.
        """
        brokers = brokers_of(await self._servers.route(topic))
        return _names((await self.groups_on(brokers, topic)).whole())

    async def groups_on(
        self, brokers: Iterable[BrokerAddress], topic: str
    ) -> Survey[tuple[str, ...]]:
        """The same as each of some brokers sees it."""
        header = QueryTopicConsumeByWho(topic)
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO

        async def ask(broker: BrokerAddress) -> tuple[str, ...]:
            found = await self._servers.ask_for(GroupList, broker.address, code, header)
            return tuple(found.group_list)

        return await self._servers.survey(brokers, ask)

    async def configs(self, topic: str) -> tuple[TopicOnBroker, ...]:
        """The settings of a topic on each broker that has it.

        Raises NotFound, and Unreachable when one of them does not answer.
        """
        survey = await self._configs(brokers_of(await self._servers.route(topic)), topic)
        return tuple(_on_broker(broker, config) for broker, config in survey.whole())

    # --- changing

    async def create(
        self,
        topic: str,
        *,
        queues: int = QUEUES_DEFAULT,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int = READ_WRITE,
        is_ordered: bool = False,
        filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG,
        sys_flag: int = 0,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
        is_new: bool = True,
        is_dry_run: bool = False,
    ) -> tuple[TopicOnBroker, ...]:
        """Make a topic on all masters of a cluster, or on one broker; clients find it at once.

        ``is_new=False`` also takes a topic that is there and gives it these settings. With
        ``is_dry_run`` nothing is changed and what would be there is returned. Raises
        AlreadyExists, Refused (a bad name, say), PartlyDone, and Unreachable, before anything is
        changed, when a broker does not answer.
        """
        targets = await self._servers.targets(cluster=cluster, broker=broker)
        route = await self._servers.find_route(topic)
        known = set() if route is None else {data.broker_name for data in route.queue_datas}
        if is_new and known.intersection(target.broker_name for target in targets):
            raise AlreadyExists("topic", topic, "change its settings instead")
        if broker is None:
            await self._servers.require_there(targets)
        await self._require_attributes(targets, attributes)
        config = TopicConfig(
            topic,
            queues if read_queues is None else read_queues,
            queues if write_queues is None else write_queues,
            perm,
            filter_type,
            sys_flag,
            is_ordered,
            dict(attributes or {}),
        )
        wanted = [(target, config) for target in targets]
        return await self._put(wanted, attributes or {}, is_dry_run=is_dry_run)

    async def update(
        self,
        topic: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        is_ordered: bool | None = None,
        filter_type: TopicFilterType | None = None,
        sys_flag: int | None = None,
        attributes: Mapping[str, str | None] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
        is_dry_run: bool = False,
    ) -> tuple[TopicOnBroker, ...]:
        """Change what is named here and nothing else, on all its brokers or some.

        An attribute that is None is removed. A topic that is not to be ordered any more stays so
        on brokers for as long as it is ordered on others. With ``is_dry_run`` nothing is changed
        and what would be there is returned, attributes as they are. Raises NotFound, Refused,
        PartlyDone, and Unreachable, before anything is changed, when one of the brokers does not
        answer.
        """
        asked: dict[str, object] = {
            "read_queue_nums": read_queues,
            "write_queue_nums": write_queues,
            "perm": perm,
            "order": is_ordered,
            "topic_filter_type": filter_type,
            "topic_sys_flag": sys_flag,
        }
        changes = {name: value for name, value in asked.items() if value is not None}
        places = [
            place
            for place in brokers_of(await self._servers.route(topic))
            if cluster in (None, place.cluster)
            and broker in (None, place.broker_name, place.address)
        ]
        require_masters(places)
        survey = await self._configs(places, topic)
        chosen = [
            (place, msgspec.structs.replace(config, **changes))
            for place, config in survey.whole(UNCHANGED)
        ]
        if not chosen:
            raise NotFound("topic", topic, f"it is not on {broker or cluster}")
        await self._require_attributes([place for place, _ in chosen], attributes)
        if is_ordered is False and not is_dry_run:
            # First, or brokers would take it from the name servers when they tell of the change.
            names = {place.broker_name for place, _ in chosen}
            is_everywhere = cluster is None and broker is None
            await end_order(self._name_servers, topic, None if is_everywhere else names)
        return await self._put(chosen, attributes or {}, is_dry_run=is_dry_run)

    async def delete(
        self, topic: str, *, cluster: str | None = None, is_dry_run: bool = False
    ) -> tuple[str, ...]:
        """Delete a topic with its messages, on all its brokers or in one cluster.

        Returns the brokers that had it; with ``is_dry_run`` they still have. What was partly done
        can be done again. Raises NotFound, PartlyDone, and Unreachable, before anything is
        changed, when one of its brokers does not answer.
        """
        fleet = await self._servers.fleet()
        names = await self._servers.holders(topic)
        masters = [b for b in fleet.readers(cluster) if b.broker_name in names]
        if not masters:
            where = f"no broker of {cluster or 'any cluster'} has it"
            raise NotFound("topic", topic, where if names else "")
        await self._servers.require_there(masters)
        if not is_dry_run:
            await self.remove(topic, masters, cluster=cluster)
        return tuple(broker.broker_name for broker in masters)

    async def remove(
        self, topic: str, masters: Sequence[BrokerAddress], *, cluster: str | None = None
    ) -> None:
        """Delete a topic from these brokers and from the name servers, whether it is there or not.

        Brokers first: one that still has the topic would register it again. Name servers forget
        the topic last, because who deletes it again, after a failure, finds it by that.
        """
        header = DeleteTopicInBroker(topic)
        code = RequestCode.DELETE_TOPIC_IN_BROKER
        what = f"deleting topic '{topic}'"
        await self._servers.change(
            what, masters, lambda broker: self._servers.ask(broker.address, code, header)
        )
        names = {broker.broker_name for broker in masters}
        if cluster is None or await self._servers.holders(topic) <= names:
            await self._name_servers.delete_value(ORDER_NAMESPACE, topic)
        await self._servers.ask_name_servers(
            what, RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicInNamesrv(topic, cluster)
        )

    # --- the inside

    async def _config(self, broker: BrokerAddress, topic: str) -> TopicConfig | None:
        """The settings on one broker, or None when it does not have the topic."""
        try:
            return await self._servers.ask_for(
                TopicConfigAndMapping,
                broker.address,
                RequestCode.GET_TOPIC_CONFIG,
                GetTopicConfig(topic),
            )
        except NotFound:
            return None
        except Unsupported:  # 4.x: only all topics at once
            table = await self._servers.ask_for(
                TopicConfigTable, broker.address, RequestCode.GET_ALL_TOPIC_CONFIG
            )
            return table.topic_config_table.get(topic)

    async def _configs(self, brokers: Iterable[BrokerAddress], topic: str) -> Survey[TopicConfig]:
        """The settings on those of the brokers that have some."""
        survey = await self._servers.survey(brokers, lambda broker: self._config(broker, topic))
        found = [(broker, config) for broker, config in survey.answers if config is not None]
        return Survey(tuple(found), survey.outages)

    async def _stats(self, topic: str, route: TopicRoute) -> TopicStats:
        header = GetTopicStatsInfo(topic)
        counts = {
            data.broker_name: max(data.read_queue_nums, data.write_queue_nums)
            for data in route.queue_datas
        }

        async def ask(broker: BrokerAddress) -> TopicStatsTable:
            code = RequestCode.GET_TOPIC_STATS_INFO
            try:
                table = await self._servers.ask_for(TopicStatsTable, broker.address, code, header)
            except NotFound:  # name servers have not heard yet that it is gone
                return TopicStatsTable()
            return await self._completed(broker, topic, counts.get(broker.broker_name, 0), table)

        return _stats(topic, await self._servers.survey(brokers_of(route), ask))

    async def _completed(
        self, broker: BrokerAddress, topic: str, queue_count: int, table: TopicStatsTable
    ) -> TopicStatsTable:
        """With the queues that 4.9 leaves out: those that can be read and no longer be written."""
        offsets = dict(table.offset_table)
        known = {queue.queue_id for queue in offsets}
        for queue_id in sorted(set(range(queue_count)).difference(known)):
            low, high = await queue_bounds(self._servers, broker, topic, queue_id)
            offsets[MessageQueue(topic, broker.broker_name, queue_id)] = TopicOffset(low, high)
        return TopicStatsTable(offsets, table.topic_put_tps)

    async def _put(
        self,
        wanted: Sequence[tuple[BrokerAddress, TopicConfig]],
        attributes: Mapping[str, str | None],
        *,
        is_dry_run: bool,
    ) -> tuple[TopicOnBroker, ...]:
        topic = wanted[0][1].topic_name
        configs = {place.address: config for place, config in wanted}
        places = [place for place, _ in wanted]
        if is_dry_run:
            return tuple(_on_broker(place, config) for place, config in wanted)

        async def put(broker: BrokerAddress) -> None:
            header = _header(configs[broker.address], attributes)
            await self._servers.ask(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

        await self._servers.change(f"changing topic '{topic}'", places, put)
        await self._until_known(topic, places)
        if any(config.order for config in configs.values()):
            queues = {place.broker_name: config.write_queue_nums for place, config in wanted}
            await begin_order(self._name_servers, topic, queues)
        stored = (await self._configs(places, topic)).whole("the change itself was made")
        return tuple(_on_broker(place, config) for place, config in stored)

    async def _require_attributes(
        self, brokers: Iterable[BrokerAddress], attributes: Mapping[str, str | None] | None
    ) -> None:
        for broker in brokers if attributes else ():
            release = await self._servers.release(broker.address)
            if release.version < V5_0_0:
                advice = "attributes came with release 5.0"
                raise Unsupported("attributes of topics", broker.address, release.name, advice)

    async def _until_known(self, topic: str, brokers: Iterable[BrokerAddress]) -> None:
        """Return once the name server has heard of it; brokers tell it in a moment."""
        wanted = {broker.broker_name for broker in brokers} - {""}
        deadline = self._servers.clock.monotonic() + _KNOWN_SECONDS_MAX
        while True:
            route = await self._servers.find_route(topic)
            known = set() if route is None else {data.broker_name for data in route.queue_datas}
            if wanted <= known or self._servers.clock.monotonic() >= deadline:
                return
            await asyncio.sleep(_KNOWN_POLL_SECONDS)


def _names(answers: Iterable[tuple[BrokerAddress, tuple[str, ...]]]) -> tuple[str, ...]:
    return tuple(sorted({name for _, names in answers for name in names}))


def _header(config: TopicConfig, attributes: Mapping[str, str | None]) -> UpdateAndCreateTopic:
    changes = [f"-{k}" if v is None else f"+{k}={v}" for k, v in attributes.items()]
    return UpdateAndCreateTopic(
        config.topic_name,
        ANY_TOPIC,
        config.read_queue_nums,
        config.write_queue_nums,
        config.perm,
        config.topic_filter_type.value,
        config.topic_sys_flag,
        config.order,
        ",".join(changes) or None,
    )


def _on_broker(broker: BrokerAddress, config: TopicConfig) -> TopicOnBroker:
    return TopicOnBroker(
        broker.broker_name,
        broker.address,
        config.read_queue_nums,
        config.write_queue_nums,
        config.perm,
        config.order,
        config.topic_filter_type.value,
        config.topic_sys_flag,
        config.attributes,
    )


def _route(topic: str, route: TopicRoute) -> Route:
    groups = {data.broker_name: data for data in route.broker_datas}
    entries = []
    for queue in sorted(route.queue_datas, key=lambda data: data.broker_name):
        group = groups.get(queue.broker_name)
        entries.append(
            TopicRouteEntry(
                (group and group.cluster) or "",
                queue.broker_name,
                dict(sorted(group.broker_addrs.items())) if group else {},
                queue.read_queue_nums,
                queue.write_queue_nums,
                queue.perm,
                queue.topic_sys_flag,
            )
        )
    return Route(topic, route.order_topic_conf or None, tuple(entries))


def _stats(topic: str, survey: Survey[TopicStatsTable]) -> TopicStats:
    queues = [
        QueueStats(
            queue.broker_name,
            queue.queue_id,
            bounds.min_offset,
            bounds.max_offset,
            bounds.max_offset - bounds.min_offset,
            max(0, bounds.last_update_timestamp),
        )
        for _, table in survey.answers
        for queue, bounds in table.offset_table.items()
    ]
    queues.sort(key=lambda queue: (queue.broker_name, queue.queue_id))
    rates = [table.topic_put_tps for _, table in survey.answers if table.topic_put_tps is not None]
    count = sum(queue.message_count for queue in queues)
    tps = sum(rates) if rates else None
    return TopicStats(topic, tuple(queues), count, tps, survey.outages)
