"""A name server's tables in the plainest form: two dictionaries, every question a search.

It knows no slices, no indexes and no cache; it is what ``RouteTable`` must be equal to.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from cometmq.codec.bodies.nameserver import ClusterInfo
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.model.topic import DataVersion
from cometmq.nameserver.registration import MinBrokerIdChange, Registration, Verdict
from cometmq.nameserver.route_table import RouteRules


@dataclass
class Member:
    """A live broker, as it registered last, and when it was heard of."""

    said: Registration
    seen_at: float


@dataclass
class Outcome:
    """What a registration came to."""

    verdict: Verdict
    master: tuple[str | None, str | None] = (None, None)
    is_new: bool = False
    displaced: set[str] = field(default_factory=set)
    change: MinBrokerIdChange | None = None


class RouteModel:
    """Members by (broker name, broker id) and queues by (topic, broker name)."""

    def __init__(self, rules: RouteRules) -> None:
        self.rules = rules
        self.members: dict[tuple[str, int], Member] = {}
        self.queues: dict[tuple[str, str], QueueData] = {}
        self.flags: dict[str, tuple[bool, str | None]] = {}

    def group(self, name: str) -> dict[int, Member]:
        return {i: m for (n, i), m in sorted(self.members.items()) if n == name}

    def at(self, cluster: str, address: str) -> Member | None:
        place = cluster, address
        return next((m for m in self.members.values() if place_of(m.said) == place), None)

    def register(self, said: Registration, now: float) -> Outcome:
        name, broker_id = said.broker_name, said.broker_id
        holder, before = self.members.get((name, broker_id)), self.at(*place_of(said))
        if holder is None and len(said.topics) == 1:
            return Outcome(Verdict.REFUSED)
        if holder and holder.said.address != said.address and state(holder.said) > state(said):
            return Outcome(Verdict.IGNORED, displaced=self.drop([before] if before else []))
        displaced = set()
        if before is not None and before.said.broker_name != name:
            displaced, before = self.drop([before]), None
        lowest = min(self.group(name), default=0)
        for i, member in self.group(name).items():
            if i == broker_id or member.said.address == said.address:
                del self.members[name, i]
                displaced |= {member.said.address} - {said.address}
        self.members[name, broker_id] = Member(said, now)
        self.flags[name] = bool(said.enable_acting_master), said.zone_name
        is_known = before is not None and before.said.data_version.matches(said.data_version)
        self.take_topics(said, applies_known=holder is None or not is_known)
        master = self.group(name)[0].said if broker_id and 0 in self.group(name) else None
        return Outcome(
            Verdict.ACCEPTED,
            (master.address, master.ha_server_address) if master else (None, None),
            before is None,
            displaced,
            self.change(name, comes=said) if broker_id < lowest else None,
        )

    def take_topics(self, said: Registration, *, applies_known: bool) -> None:
        name = said.broker_name
        is_lowest = said.broker_id == min(self.group(name))
        if said.broker_id != 0 and (said.enable_acting_master is None or not is_lowest):
            return
        if self.rules.delete_absent_topics:
            absent = {t for t, n in self.queues if n == name} - said.topics.keys()
            for topic in absent:
                del self.queues[topic, name]
        keeps_write = said.broker_id == 0 or not said.enable_acting_master
        for topic, config in said.topics.items():
            if applies_known or (topic, name) not in self.queues:
                numbers = config.read_queue_nums, config.write_queue_nums
                perm = config.perm if keeps_write else config.perm & ~2
                self.queues[topic, name] = QueueData(name, *numbers, perm, config.topic_sys_flag)

    def drop(self, gone: list[Member]) -> set[str]:
        for member in gone:
            name = member.said.broker_name
            del self.members[name, member.said.broker_id]
            if not self.group(name):
                self.queues = {key: q for key, q in self.queues.items() if key[1] != name}
            elif self.flags[name][0] and 0 not in self.group(name):
                self.set_perm(name, lambda perm: perm & ~2)
        return {member.said.address for member in gone}

    def set_perm(self, name: str, change: Callable[[int], int]) -> int:
        there = {key: q for key, q in self.queues.items() if key[1] == name}
        for key, q in there.items():
            numbers = q.read_queue_nums, q.write_queue_nums
            self.queues[key] = QueueData(name, *numbers, change(q.perm), q.topic_sys_flag)
        return len(there)

    def delete(self, topic: str, cluster: str | None) -> int:
        gone = [
            (t, name)
            for t, name in self.queues
            if t == topic and (cluster is None or name in self.names_in(cluster))
        ]
        for key in gone:
            del self.queues[key]
        return len(gone)

    def names_in(self, cluster: str) -> set[str]:
        return {name for (name, _), m in self.members.items() if m.said.cluster == cluster}

    def silent(self, now: float) -> list[Member]:
        return [m for m in self.members.values() if now > m.seen_at + m.said.silence_ms_max / 1000]

    def change(
        self, name: str, *, comes: Registration | None = None, goes: str | None = None
    ) -> MinBrokerIdChange:
        group = {i: m.said.address for i, m in self.group(name).items()}
        lowest = min(group)
        told = {a for i, a in group.items() if i != lowest or goes or len(group) == 1}
        ha = comes.ha_server_address if comes else None
        return MinBrokerIdChange(name, lowest, group[lowest], tuple(sorted(told)), goes, ha)

    def route(self, topic: str, order: str | None = None) -> TopicRoute | None:
        names = sorted(name for t, name in self.queues if t == topic)
        if not names:
            return None
        filters = {
            m.said.address: list(m.said.filter_servers)
            for name in names
            for m in self.group(name).values()
            if m.said.filter_servers
        }
        queues = [self.queues[topic, name] for name in names]
        brokers = [self.shown(q.broker_name, q.perm) for q in queues]
        return TopicRoute(tuple(brokers), tuple(queues), filters, order)

    def shown(self, name: str, perm: int | None = None) -> BrokerData:
        group = {i: m.said for i, m in self.group(name).items()}
        addresses = {i: said.address for i, said in group.items()}
        acting, zone = self.flags[name]
        is_wiped = perm is not None and not perm & 2
        if self.rules.support_acting_master and acting and is_wiped and 0 not in addresses:
            addresses = {0: addresses.pop(min(addresses)), **addresses}
        return BrokerData(name, addresses, group[min(group)].cluster, acting, zone)

    def cluster_info(self) -> ClusterInfo:
        names = {name for name, _ in self.members}
        clusters = {m.said.cluster for m in self.members.values()}
        return ClusterInfo(
            {name: self.shown(name) for name in names},
            {cluster: tuple(sorted(self.names_in(cluster))) for cluster in clusters},
        )


def place_of(said: Registration) -> tuple[str, str]:
    return said.cluster, said.address


def state(said: Registration) -> int:
    return said.data_version.state_version or 0


def version_of(member: Member | None) -> DataVersion | None:
    return None if member is None else member.said.data_version
