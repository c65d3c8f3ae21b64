"""Checks of a cluster from here: do name servers agree, can brokers be reached, what time is it."""

import asyncio
import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cometmq.cli.check import Check, Status
from cometmq.cli.connection import explained
from cometmq.cli.local_checks import DISK_FULL, DISK_HIGH
from cometmq.cli.times import brief_duration
from cometmq.errors import CometError, Unreachable
from cometmq.remoting.addresses import name_servers_in, split_address

if TYPE_CHECKING:
    from cometmq.cli.connection import Target

SKEW_MS_NOTED: Final = 3_000
"""Brokers tell their time to the second."""
SKEW_MS_WRONG: Final = 60_000

_RUNTIME = re.compile(r"(\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds")


@dataclass(frozen=True, slots=True)
class NameServerFacts:
    """What one name server knows: brokers by name and id; ``fault`` says why it was not asked."""

    address: str
    brokers: Mapping[str, str]
    fault: str = ""


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A broker as clients are told of it; ``clock_ahead_ms`` is by how much its clock is ahead."""

    name: str
    address: str
    fault: str = ""
    clock_ahead_ms: int | None = None
    disk_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What was found out; ``fault`` says why nothing was."""

    where: str
    source: str
    name_servers: tuple[NameServerFacts, ...] = ()
    brokers: tuple[BrokerFacts, ...] = ()
    fault: str = ""


# --- looking


async def cluster_facts(target: "Target", now_ms: "Callable[[], int]") -> ClusterFacts:
    """Ask every name server by itself, then every broker that is known to one of them."""
    addresses = name_servers_in(target.namesrv, "write host:port;host2:port")
    name_servers = await asyncio.gather(*(_name_server(target, one) for one in addresses))
    faults = [f"{one.address}: {one.fault}" for one in name_servers if one.fault]
    if len(faults) == len(name_servers):
        return ClusterFacts(
            target.namesrv, target.source, tuple(name_servers), fault="; ".join(faults)
        )
    try:
        brokers = await _brokers(target, now_ms)
    except CometError as error:
        return ClusterFacts(target.namesrv, target.source, tuple(name_servers), fault=error.fact)
    return ClusterFacts(target.namesrv, target.source, tuple(name_servers), brokers)


async def _name_server(target: "Target", address: str) -> NameServerFacts:
    alone = replace(target, namesrv=address)
    try:
        with explained(alone):
            async with alone.admin() as admin:
                brokers = await admin.brokers.list()
    except CometError as error:
        reason = error.reason if isinstance(error, Unreachable) else error.fact
        return NameServerFacts(address, {}, reason)
    return NameServerFacts(
        address, {f"{one.broker_name}:{one.broker_id}": one.address for one in brokers}
    )


async def _brokers(target: "Target", now_ms: "Callable[[], int]") -> tuple[BrokerFacts, ...]:
    async with target.admin() as admin:
        begin = now_ms()
        states = await admin.brokers.states()
        middle = (begin + now_ms()) // 2
    return tuple(
        BrokerFacts(
            state.broker_name,
            state.address,
            state.problem,
            clock_ahead(state.booted_ms, state.values.get("runtime", ""), middle),
            state.disk_ratio,
        )
        for state in states
    )


def clock_ahead(booted_ms: int | None, runtime: str, now_ms: int) -> int | None:
    """By how much a broker's clock is ahead of ours: it tells when it started and since when."""
    found = _RUNTIME.search(runtime)
    if booted_ms is None or found is None:
        return None
    days, hours, minutes, seconds = map(int, found.groups())
    ran_ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    # It leaves out what is less than a second: half of one is the best guess.
    return booted_ms + ran_ms + 500 - now_ms


# --- judging


def check_cluster(facts: ClusterFacts) -> list[Check]:
    """All checks of a cluster; one that nobody has named need not be there."""
    if facts.fault:
        return [_unreachable(facts)]
    return [
        check_agreement(facts.name_servers),
        check_addresses(facts),
        check_clocks(facts.brokers),
        check_broker_disks(facts.brokers),
    ]


def _unreachable(facts: ClusterFacts) -> Check:
    advice = "start one with 'cometmq up', or name yours with --namesrv"
    if facts.source == "the default":
        detail = f"none at {facts.where}, so nothing to check there"
        return Check("cluster", Status.SKIP, detail, advice)
    advice = f"the address comes from {facts.source}: is it right, and do they run?"
    return Check("cluster", Status.FAIL, f"cannot be asked: {facts.fault}", advice)


def check_agreement(servers: Sequence[NameServerFacts]) -> Check:
    """Brokers register with each name server by themselves, so that they may disagree."""
    name = "name servers"
    down = [f"{one.address} ({one.fault})" for one in servers if one.fault]
    if down:
        advice = "start it, or take it out of the list: clients lose time with it"
        return Check(name, Status.FAIL, f"not there: {', '.join(down)}", advice)
    everything = {key for one in servers for key in one.brokers}
    missing = [
        f"{one.address} does not know {', '.join(sorted(everything.difference(one.brokers)))}"
        for one in servers
        if everything.difference(one.brokers)
    ]
    if missing:
        advice = "list all name servers in namesrvAddr of every broker"
        return Check(name, Status.FAIL, "; ".join(missing), advice)
    moved = sorted(key for key in everything if len({one.brokers[key] for one in servers}) > 1)
    if moved:
        advice = "one of them has an old address: restart the broker, or wait two minutes"
        detail = f"they have different addresses of {', '.join(moved)}"
        return Check(name, Status.FAIL, detail, advice)
    if not everything:
        advice = "start a broker that has them in its namesrvAddr"
        return Check(name, Status.WARN, "no broker is registered", advice)
    noun = "broker" if len(everything) == 1 else "brokers"
    detail = f"{len(servers)} there, {'all with' if len(servers) > 1 else 'with'}"
    return Check(name, Status.OK, f"{detail} {len(everything)} {noun}")


def check_addresses(facts: ClusterFacts) -> Check:
    """Clients connect to what brokers have told name servers, and not to where those are."""
    name = "addresses"
    lost = [f"{one.name} as {one.address} ({one.fault})" for one in facts.brokers if one.fault]
    if lost:
        advice = "is it running? clients use this address: brokerIP1 of the broker sets it"
        return Check(name, Status.FAIL, f"cannot reach {', '.join(lost)}", advice)
    hosts = [split_address(one.address)[0] for one in facts.name_servers]
    is_remote = not all(map(_is_loopback, hosts))
    here_only = [
        f"{one.name} as {one.address}"
        for one in facts.brokers
        if _is_loopback(split_address(one.address)[0])
    ]
    if is_remote and here_only:
        advice = "set brokerIP1 of the broker to an address that clients can reach"
        detail = f"clients on other machines are told {', '.join(here_only)}"
        return Check(name, Status.FAIL, detail, advice)
    told = ", ".join(f"{one.name} as {one.address}" for one in facts.brokers)
    return Check(name, Status.OK, f"reached {told}" if told else "no brokers")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_clocks(brokers: Sequence[BrokerFacts]) -> Check:
    """Delays, retention and searches by time go by the brokers' clocks."""
    told = {one.name: one.clock_ahead_ms for one in brokers if one.clock_ahead_ms is not None}
    if not told:
        return Check("clock", Status.SKIP, "no broker tells its time")
    worst = max(told, key=lambda broker: abs(told[broker]))
    ahead = told[worst]
    if abs(ahead) < SKEW_MS_NOTED:
        return Check("clock", Status.OK, "as on the brokers")
    side = "ahead of" if ahead > 0 else "behind"
    detail = f"{worst} is {brief_duration(abs(ahead))} {side} this machine"
    advice = "let both follow one time server (chrony, systemd-timesyncd)"
    is_wrong = abs(ahead) >= SKEW_MS_WRONG
    return Check("clock", Status.FAIL if is_wrong else Status.WARN, detail, advice)


def check_broker_disks(brokers: Sequence[BrokerFacts]) -> Check:
    name = "broker disks"
    told = {one.name: one.disk_ratio for one in brokers if one.disk_ratio is not None}
    if not told:
        return Check(name, Status.SKIP, "no broker tells")
    fullest = max(told, key=lambda broker: told[broker])
    detail = f"{fullest} has used {told[fullest]:.0%}"
    if told[fullest] < DISK_HIGH:
        return Check(name, Status.OK, detail)
    status = Status.FAIL if told[fullest] >= DISK_FULL else Status.WARN
    return Check(name, status, detail, "make room there, or shorten fileReservedTime")
