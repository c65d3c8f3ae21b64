"""Brokers: who there is, how they are doing, their settings, and tidying up."""

from collections.abc import Mapping, Sequence

import msgspec

from cometmq.admin.kinds import is_of_dead_letters
from cometmq.admin.name_servers import ServerConfig
from cometmq.admin.servers import (
    OUTAGES,
    BrokerAddress,
    Servers,
    all_of,
    reason_of,
    release_of,
)
from cometmq.codec import bodies, java_properties
from cometmq.codec.bodies.nameserver import KVTable
from cometmq.codec.bodies.offsets import ConsumeStatsList
from cometmq.codec.bodies.stats import (
    BrokerStatsData,
    BrokerStatsItem,
    HARuntimeInfo,
    TimerMetrics,
)
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.groups import GetBrokerConsumeStats
from cometmq.codec.headers.runtime import ViewBrokerStatsData
from cometmq.errors import NotFound, Refused, Unsupported

STATS_TIMEOUT_MS = 15_000
_TIMERS_KEY = "timerCongestNum"


class BrokerState(msgspec.Struct, frozen=True):
    """A broker and how it is doing; ``problem`` says why nothing is known of it.

    Rates are per second over the last ten seconds. ``values`` is all the broker told, by
    RocketMQ's keys.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    is_master: bool
    problem: str = ""
    version: str = ""
    is_active: bool | None = None
    booted_ms: int | None = None
    put_tps: float | None = None
    get_tps: float | None = None
    put_today_count: int | None = None
    get_today_count: int | None = None
    put_yesterday_count: int | None = None
    get_yesterday_count: int | None = None
    disk_ratio: float | None = None
    log_min_offset: int | None = None
    log_max_offset: int | None = None
    dispatch_behind_bytes: int | None = None
    unflushed_bytes: int | None = None
    page_cache_lock_ms: int | None = None
    earliest_message_ms: int | None = None
    values: dict[str, str] = {}


class NameServerState(msgspec.Struct, frozen=True):
    """A name server and how many brokers it knows; ``problem`` says why it was not asked."""

    address: str
    broker_count: int | None
    problem: str = ""


class Cluster(msgspec.Struct, frozen=True):
    """All servers: name servers as they were given, and the brokers they know."""

    name_servers: tuple[NameServerState, ...]
    brokers: tuple[BrokerState, ...]
    clusters: tuple[str, ...]


class Figure(msgspec.Struct, frozen=True):
    """A sum over some time, per second, and per call."""

    sum: int
    tps: float
    average: float


class Statistic(msgspec.Struct, frozen=True):
    """One item of a broker's statistics over the last minute, hour and day."""

    broker_name: str
    address: str
    item: str
    key: str
    minute: Figure
    hour: Figure
    day: Figure


class GroupBacklog(msgspec.Struct, frozen=True):
    """How far one group is behind on one broker."""

    group: str
    topics: tuple[str, ...]
    lag: int


class Slave(msgspec.Struct, frozen=True):
    """A slave as its master sees it."""

    address: str
    acknowledged_offset: int
    behind_bytes: int
    is_in_sync: bool


class Replication(msgspec.Struct, frozen=True):
    """How replication of one broker is doing."""

    broker_name: str
    address: str
    is_master: bool
    log_max_offset: int
    in_sync_count: int
    slaves: tuple[Slave, ...]


class ConfigChange(msgspec.Struct, frozen=True):
    """A broker that took changes of its settings; ``remark`` is what it said about them.

    Ours says there what waits for a restart or will be forgotten with one; Apache's say nothing.
    """

    broker_name: str
    address: str
    remark: str = ""


class Brokers:
    """``admin.brokers``; a broker is given by its name (meaning its master) or its address."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    # --- looking

    async def list(self, *, cluster: str | None = None) -> tuple[BrokerAddress, ...]:
        """All brokers that the name server knows, slaves too."""
        return (await self._servers.fleet()).within(cluster)

    async def states(self, *, cluster: str | None = None) -> tuple[BrokerState, ...]:
        """The same with what each says about itself; one that does not tell has a problem."""
        brokers = (await self._servers.fleet()).within(cluster)
        return tuple(await all_of(self._state(broker) for broker in brokers))

    async def state(self, broker: str) -> BrokerState:
        """How one broker is doing. Raises Unreachable."""
        place = await self._servers.broker(broker)
        return _state(place, await self._runtime(place))

    async def cluster(self) -> Cluster:
        """All name servers and brokers. Raises Unreachable when no name server answers."""
        fleet = await self._servers.fleet()
        name_servers = await all_of(map(self._name_server, self._servers.name_servers))
        brokers = await all_of(self._state(broker) for broker in fleet.brokers)
        return Cluster(tuple(name_servers), tuple(brokers), fleet.clusters)

    async def statistic(self, item: str, key: str, broker: str) -> Statistic:
        """One item such as ``TOPIC_PUT_NUMS`` of a topic. Raises NotFound when it has none yet."""
        return await self._statistic(await self._servers.broker(broker), item, key)

    async def statistics(self, item: str, key: str) -> tuple[Statistic, ...]:
        """One item on every broker that has it."""
        found = []
        for broker in (await self._servers.fleet()).readers():
            try:
                found.append(await self._statistic(broker, item, key))
            except NotFound:
                continue
        return tuple(found)

    async def backlog(self, broker: str, *, is_ordered: bool = False) -> tuple[GroupBacklog, ...]:
        """How far all groups are behind on one broker, the furthest first; not on dead letters."""
        place = await self._servers.broker(broker)
        found = await self._servers.ask_for(
            ConsumeStatsList,
            place.address,
            RequestCode.GET_BROKER_CONSUME_STATS,
            GetBrokerConsumeStats(is_ordered),
            timeout_ms=STATS_TIMEOUT_MS,
        )
        return _backlog(found)

    async def replication(self, broker: str) -> Replication:
        """How replication is doing. Raises Unsupported before 5.0."""
        place = await self._servers.broker(broker)
        info = await self._servers.ask_for(
            HARuntimeInfo, place.address, RequestCode.GET_BROKER_HA_STATUS
        )
        slaves = (
            Slave(one.addr or "?", one.slave_ack_offset, one.diff, one.in_sync)
            for one in info.ha_connection_info
        )
        return Replication(
            place.broker_name,
            place.address,
            info.master,
            info.master_commit_log_max_offset,
            info.in_sync_slave_nums,
            tuple(slaves),
        )

    async def pending_timers(self, broker: str) -> dict[str, int]:
        """How many messages wait for their time, by topic.

        Raises Unsupported before 5.0, and with ours, which counts them all together.
        """
        place = await self._servers.broker(broker)
        answer = await self._servers.ask(place.address, RequestCode.GET_TIMER_METRICS)
        release = release_of(answer)
        if release.is_ours:
            count = (await self._runtime(place)).get(_TIMERS_KEY, "?")
            advice = f"{count} wait in all ({_TIMERS_KEY} of its runtime info)"
            feature = "counts of pending timers by topic"
            raise Unsupported(feature, place.address, release.name, advice)
        metrics = bodies.decode(TimerMetrics, answer.body or b"{}")
        return {topic: one.count for topic, one in sorted(metrics.timing_count.items())}

    # --- settings

    async def config(self, broker: str) -> ServerConfig:
        """All settings of a broker."""
        place = await self._servers.broker(broker)
        answer = await self._servers.ask(place.address, RequestCode.GET_BROKER_CONFIG)
        return ServerConfig(place.address, dict(sorted(java_properties.loads(answer.body).items())))

    async def set_config(
        self,
        changes: Mapping[str, str],
        *,
        broker: str | None = None,
        cluster: str | None = None,
        is_dry_run: bool = False,
    ) -> tuple[ConfigChange, ...]:
        """Change settings of one broker or of all masters of a cluster; returns who took them.

        With ``is_dry_run`` nothing is changed, and who would be asked is returned. Apache's
        brokers accept keys that they do not have, and do nothing. Raises Refused, PartlyDone.
        """
        body = java_properties.dumps(changes)
        targets = await self._servers.targets(cluster=cluster, broker=broker)
        if is_dry_run:
            return tuple(ConfigChange(place.broker_name, place.address, "") for place in targets)
        code = RequestCode.UPDATE_BROKER_CONFIG
        done = await self._servers.change(
            f"changing {', '.join(changes)}",
            targets,
            lambda place: self._servers.ask(place.address, code, body=body),
        )
        return tuple(
            ConfigChange(place.broker_name, place.address, (answer.remark or "").strip())
            for place, answer in done
        )

    # --- tidying up

    async def clean_expired_queues(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> tuple[str, ...]:
        """Delete queue files whose messages are gone; returns the brokers that were told."""
        return await self._tidy(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, broker, cluster)

    async def clean_unused_topics(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> tuple[str, ...]:
        """Delete the queues of topics that were deleted."""
        return await self._tidy(RequestCode.CLEAN_UNUSED_TOPIC, broker, cluster)

    async def delete_expired_log(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> tuple[str, ...]:
        """Delete log files that are past their time now, not at the usual hour."""
        return await self._tidy(RequestCode.DELETE_EXPIRED_COMMITLOG, broker, cluster)

    # --- the inside

    async def _tidy(
        self, code: RequestCode, broker: str | None, cluster: str | None
    ) -> tuple[str, ...]:
        targets = await self._servers.targets(cluster=cluster, broker=broker)
        done = await self._servers.change(
            code.name, targets, lambda place: self._servers.ask(place.address, code)
        )
        return tuple(place.address for place, _ in done)

    async def _runtime(self, broker: BrokerAddress) -> Mapping[str, str]:
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        return (await self._servers.ask_for(KVTable, broker.address, code)).table

    async def _state(self, broker: BrokerAddress) -> BrokerState:
        try:
            return _state(broker, await self._runtime(broker))
        except (*OUTAGES, Refused) as error:  # 4.9 refuses in its first second
            return _state(broker, {}, reason_of(error))

    async def _name_server(self, address: str) -> NameServerState:
        try:
            fleet = await self._servers.fleet_of(address)
        except OUTAGES as error:
            return NameServerState(address, None, reason_of(error))
        return NameServerState(address, len(fleet.brokers))

    async def _statistic(self, broker: BrokerAddress, item: str, key: str) -> Statistic:
        header = ViewBrokerStatsData(item, key)
        code = RequestCode.VIEW_BROKER_STATS_DATA
        try:
            data = await self._servers.ask_for(BrokerStatsData, broker.address, code, header)
        except Refused as error:
            if "not exist" not in error.remark:
                raise
            raise NotFound("statistic", f"{item} of {key}", "has anything happened yet?") from error
        figures = map(_figure, (data.stats_minute, data.stats_hour, data.stats_day))
        return Statistic(broker.broker_name, broker.address, item, key, *figures)


def _figure(item: BrokerStatsItem | None) -> Figure:
    return Figure(0, 0.0, 0.0) if item is None else Figure(item.sum, item.tps, item.avgpt)


def _backlog(found: ConsumeStatsList) -> tuple[GroupBacklog, ...]:
    backlogs = []
    for table in found.consume_stats_list:
        for group, parts in table.items():
            queues = {
                queue: own
                for part in parts
                for queue, own in part.offset_table.items()
                if not is_of_dead_letters(group, queue.topic)
            }
            lag = sum(own.broker_offset - own.consumer_offset for own in queues.values())
            topics = tuple(sorted({queue.topic for queue in queues}))
            backlogs.append(GroupBacklog(group, topics, lag))
    return tuple(sorted(backlogs, key=lambda one: (-one.lag, one.group)))


def _state(broker: BrokerAddress, values: Mapping[str, str], problem: str = "") -> BrokerState:
    told = _Told(values)
    put, get = told.whole("msgPutTotalTodayNow"), told.whole("msgGetTotalTodayNow")
    put_morning = told.whole("msgPutTotalTodayMorning")
    get_morning = told.whole("msgGetTotalTodayMorning")
    return BrokerState(
        broker.cluster,
        broker.broker_name,
        broker.broker_id,
        broker.address,
        broker.is_master,
        problem,
        values.get("brokerVersionDesc", "").removeprefix("V").replace("_", "."),
        {"true": True, "false": False}.get(values.get("brokerActive", "")),
        told.whole("bootTimestamp"),
        told.first("putTps"),
        told.first("getTransferredTps", "getTransferedTps"),
        _difference(put, put_morning),
        _difference(get, get_morning),
        _difference(put_morning, told.whole("msgPutTotalYesterdayMorning")),
        _difference(get_morning, told.whole("msgGetTotalYesterdayMorning")),
        told.first("commitLogDiskRatio"),
        told.whole("commitLogMinOffset"),
        told.whole("commitLogMaxOffset"),
        told.whole("dispatchBehindBytes"),
        told.whole("remainHowManyDataToFlush"),
        told.whole("pageCacheLockTimeMills"),
        told.whole("earliestMessageTimeStamp"),
        dict(sorted(values.items())),
    )


def _difference(later: int | None, earlier: int | None) -> int | None:
    return None if later is None or earlier is None else later - earlier


class _Told:
    """What a broker told, as numbers; None for what is missing or no number."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def whole(self, key: str) -> int | None:
        number = self.first(key)
        return None if number is None else int(number)

    def first(self, *keys: str) -> float | None:
        """The first of the numbers in the text, under the first of the keys that is there."""
        texts: Sequence[str] = [self._values[key] for key in keys if key in self._values]
        try:
            return float(texts[0].split()[0])
        except (IndexError, ValueError):
            return None
