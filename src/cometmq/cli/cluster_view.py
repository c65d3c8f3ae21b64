"""A cluster at one moment: rates, lags, clients and disks; what ``cometmq top`` shows.

Numbers come from what brokers tell about themselves, ours and Apache's alike. What a release does
not tell is None.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.admin.brokers import BrokerState, GroupBacklog, NameServerState
from cometmq.admin.kinds import is_system_group
from cometmq.errors import CometError
from cometmq.model.system_names import INNER_PRODUCER_GROUP
from cometmq.model.topic import RETRY_PREFIX

if TYPE_CHECKING:
    from cometmq.admin import Admin

GROUPS_MAX: Final = 50
"""Groups that are asked for members and rates: those that are furthest behind."""

_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
_BUCKET = re.compile(r"\[(?:<=|\d+~|\d+ms~|\d+s~)?(\d+)?(ms|s)?~?\]:(\d+)")


class BrokerView(msgspec.Struct, frozen=True, kw_only=True):
    """A broker; rates are per second, ``put_p99_ms`` is within which 99 % of sends were stored.

    Flushes of the log to disk are those of the last minute. Apache's brokers do not tell of them.
    ``put_total`` and ``get_total`` only grow as long as it runs.
    """

    broker_name: str
    address: str
    cluster: str
    is_master: bool
    problem: str | None = None
    version: str | None = None
    in_tps: float | None = None
    out_tps: float | None = None
    in_today: int | None = None
    out_today: int | None = None
    put_p99_ms: float | None = None
    put_max_ms: float | None = None
    flush_p99_ms: float | None = None
    flush_max_ms: float | None = None
    unflushed_bytes: int | None = None
    dispatch_behind_bytes: int | None = None
    disk_ratio: float | None = None
    booted_ms: int | None = None
    put_total: int | None = None
    get_total: int | None = None


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """A group; ``lag_change_tps`` is None as long as there is nothing to compare with."""

    group: str
    lag: int
    lag_change_tps: float | None = None
    out_tps: float | None = None
    members: int | None = None
    topics: tuple[str, ...] = ()


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """All brokers and groups together."""

    in_tps: float
    out_tps: float
    lag: int
    producers: int | None
    consumers: int | None


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """All of it; ``time_ms`` is when we looked."""

    time_ms: int
    name_servers: tuple[NameServerState, ...]
    brokers: tuple[BrokerView, ...]
    groups: tuple[GroupView, ...]
    totals: Totals


async def look(admin: "Admin", now_ms: int, *, has_system: bool = False) -> ClusterView:
    """Ask everybody. Raises Unreachable when no name server answers."""
    cluster = await admin.cluster()
    masters = [state for state in cluster.brokers if state.is_master and not state.problem]
    backlogs = await asyncio.gather(*(_backlog(admin, state.address) for state in masters))
    groups = merged_groups(backlogs, has_system=has_system)
    asked = groups[:GROUPS_MAX]
    details = await asyncio.gather(*(_detailed(admin, group) for group in asked))
    told = (*(group for group, _ in details), *groups[GROUPS_MAX:])
    clients = {client for _, clients in details for client in clients}
    brokers = tuple(map(broker_view, cluster.brokers))
    return ClusterView(
        time_ms=now_ms,
        name_servers=cluster.name_servers,
        brokers=brokers,
        groups=told,
        totals=Totals(
            in_tps=sum(broker.in_tps or 0.0 for broker in brokers),
            out_tps=sum(broker.out_tps or 0.0 for broker in brokers),
            lag=sum(group.lag for group in told),
            producers=await _producers(admin),
            consumers=len(clients) if len(groups) <= GROUPS_MAX else None,
        ),
    )


async def _backlog(admin: "Admin", broker: str) -> tuple[GroupBacklog, ...]:
    try:
        return await admin.brokers.backlog(broker)
    except CometError:  # it went away just now; its own row will say so next time
        return ()


async def _detailed(admin: "Admin", group: GroupView) -> tuple[GroupView, frozenset[str]]:
    """With its members and its rate; without them when nobody tells."""
    try:
        membership, lag = await asyncio.gather(
            admin.groups.members(group.group), admin.groups.lag(group.group)
        )
    except CometError:
        return group, frozenset()
    clients = frozenset(member.client_id for member in membership.members)
    changes = {"members": len(clients), "out_tps": lag.consume_tps}
    return msgspec.structs.replace(group, **changes), clients


async def _producers(admin: "Admin") -> int | None:
    try:
        by_group = await admin.clients.all_producers()
    except CometError:  # 4.9.2 and older do not tell
        return None
    # Every client has one more producer, for what its consumers hand back.
    own = (clients for group, clients in by_group.items() if group != INNER_PRODUCER_GROUP)
    return len({client.client_id for clients in own for client in clients})


def merged_groups(
    backlogs: Iterable[Sequence[GroupBacklog]], *, has_system: bool = False
) -> tuple[GroupView, ...]:
    """What brokers tell of groups, each group once, the one that is furthest behind first."""
    lags: dict[str, int] = {}
    topics: dict[str, set[str]] = {}
    for backlog in backlogs:
        for one in backlog:
            if has_system or not is_system_group(one.group):
                lags[one.group] = lags.get(one.group, 0) + one.lag
                own = {topic for topic in one.topics if not topic.startswith(RETRY_PREFIX)}
                topics.setdefault(one.group, set()).update(own)
    ordered = sorted(lags, key=lambda group: (-lags[group], group))
    return tuple(
        GroupView(group=group, lag=lags[group], topics=tuple(sorted(topics[group])))
        for group in ordered
    )


def broker_view(state: BrokerState) -> BrokerView:
    """A broker as it tells about itself."""
    values = state.values
    return BrokerView(
        broker_name=state.broker_name,
        address=state.address,
        cluster=state.cluster,
        is_master=state.is_master,
        problem=state.problem or None,
        version=state.version or None,
        in_tps=state.put_tps,
        out_tps=state.get_tps,
        in_today=state.put_today_count,
        out_today=state.get_today_count,
        put_p99_ms=_p99(values),
        put_max_ms=_longest(values),
        flush_p99_ms=_number(values.get("flushLatency99")),
        flush_max_ms=_number(values.get("flushLatencyMax")),
        unflushed_bytes=bytes_in(values.get("remainHowManyDataToFlush", "")),
        dispatch_behind_bytes=state.dispatch_behind_bytes,
        disk_ratio=state.disk_ratio,
        booted_ms=state.booted_ms,
        put_total=_whole(values.get("msgPutTotalTodayNow")),
        get_total=_whole(values.get("msgGetTotalTodayNow")),
    )


def since(before: ClusterView, now: ClusterView) -> ClusterView:
    """``now`` with rates of the time between the two, which is less than brokers look back."""
    seconds = (now.time_ms - before.time_ms) / 1000
    if seconds <= 0:
        return now
    known = {broker.address: broker for broker in before.brokers}
    brokers = tuple(_rated(broker, known.get(broker.address), seconds) for broker in now.brokers)
    lags = {group.group: group.lag for group in before.groups}
    groups = tuple(
        msgspec.structs.replace(
            group,
            lag_change_tps=(group.lag - lags[group.group]) / seconds
            if group.group in lags
            else None,
        )
        for group in now.groups
    )
    totals = msgspec.structs.replace(
        now.totals,
        in_tps=sum(broker.in_tps or 0.0 for broker in brokers),
        out_tps=sum(broker.out_tps or 0.0 for broker in brokers),
    )
    return msgspec.structs.replace(now, brokers=brokers, groups=groups, totals=totals)


def _rated(now: BrokerView, before: BrokerView | None, seconds: float) -> BrokerView:
    if before is None or now.booted_ms != before.booted_ms:
        return now
    return msgspec.structs.replace(
        now,
        in_tps=_rate(before.put_total, now.put_total, seconds, now.in_tps),
        out_tps=_rate(before.get_total, now.get_total, seconds, now.out_tps),
    )


def _rate(
    before: int | None, now: int | None, seconds: float, otherwise: float | None
) -> float | None:
    if before is None or now is None or now < before:
        return otherwise
    return (now - before) / seconds


def bytes_in(text: str) -> int | None:
    """``249 B`` and ``1.5 KiB`` as bytes, None for anything else."""
    number, _, unit = text.partition(" ")
    count = _number(number)
    return None if count is None or unit not in _UNITS else round(count * _UNITS[unit])


def _longest(values: Mapping[str, str]) -> float | None:
    """In parts of a millisecond where a broker tells them, as it does for the 99 %."""
    told = _number(values.get("putLatencyMax"))
    return told if told is not None else _number(values.get("putMessageEntireTimeMax"))


def _p99(values: Mapping[str, str]) -> float | None:
    told = _number(values.get("putLatency99"))
    if told is not None:
        return told
    bound, longest = p99_of(values.get("putMessageDistributeTime", "")), _longest(values)
    return bound if bound is None or longest is None else min(bound, longest)


def p99_of(distribution: str) -> float | None:
    """From ``[<=0ms]:7 [0~10ms]:3 …``, which 4.9 tells instead: the bound of the bucket."""
    buckets = [
        (float(bound) * (1000 if unit == "s" else 1) if bound else None, int(count))
        for bound, unit, count in _BUCKET.findall(distribution)
    ]
    wanted = 0.99 * sum(count for _, count in buckets)
    reached = 0
    for bound, count in buckets:
        reached += count
        if wanted and reached >= wanted:
            return bound
    return None


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _whole(text: str | None) -> int | None:
    number = _number(text)
    return None if number is None else int(number)
