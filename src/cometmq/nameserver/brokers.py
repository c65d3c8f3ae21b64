"""The brokers that are alive: their groups, clusters and connections.

A broker is one process at one address; brokers of one name (a master and its slaves, by broker id)
are a group. Every broker here has exactly one id in exactly one group, and a group without brokers
does not exist; which groups a cluster has follows from that.
"""

from collections import deque
from collections.abc import Hashable, Iterable

import msgspec

from cometmq.codec.bodies.nameserver import BrokerMemberGroup, ClusterInfo
from cometmq.model.route import MASTER_ID, BrokerData
from cometmq.model.topic import DataVersion
from cometmq.nameserver.registration import (
    DroppedBroker,
    MinBrokerIdChange,
    Registration,
    RegistrationProgress,
    Verdict,
)


class LiveBroker(msgspec.Struct, eq=False, kw_only=True):
    """One broker and when it was last heard of (``seen_at``, monotonic seconds)."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_server_address: str
    connection: Hashable
    data_version: DataVersion
    filter_servers: tuple[str, ...]
    timeout_ms: int
    seen_at: float

    def is_silent(self, now: float) -> bool:
        """Whether it was not heard of for longer than it may be."""
        return now > self.seen_at + self.timeout_ms / 1000


class BrokerGroup:
    """The brokers of one name by id; ``data`` is the group as routes and lists show it."""

    __slots__ = ("data", "enable_acting_master", "members", "name", "pending", "zone_name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[int, LiveBroker] = {}
        self.enable_acting_master = False
        self.zone_name: str | None = None
        self.data = BrokerData(name)
        self.pending: deque[RegistrationProgress] = deque()

    @property
    def lowest_id(self) -> int:
        return min(self.members)

    @property
    def master(self) -> LiveBroker | None:
        return self.members.get(MASTER_ID)

    @property
    def is_without_master(self) -> bool:
        return self.lowest_id > MASTER_ID

    def filter_servers(self) -> dict[str, list[str]]:
        """Filter servers by broker address, of those that have any, in the order of their ids."""
        members = [self.members[broker_id] for broker_id in sorted(self.members)]
        return {m.address: list(m.filter_servers) for m in members if m.filter_servers}

    def finish_pending(self) -> None:
        """Apply what is left of registrations under way."""
        while self.pending:
            self.pending[0].finish()

    def abandon_pending(self) -> None:
        """Forget what is left of them: the group goes."""
        while self.pending:
            self.pending.popleft().abandon()

    def refresh(self) -> None:
        """Bring ``data`` in line with the members."""
        self.data = BrokerData(
            self.name,
            {broker_id: self.members[broker_id].address for broker_id in sorted(self.members)},
            self.members[self.lowest_id].cluster,
            self.enable_acting_master,
            self.zone_name,
        )


class Enrolment(msgspec.Struct, frozen=True):
    """What taking a broker in has changed.

    ``is_first``: its id was free. ``has_new_version``: its table is not the one we know.
    ``displaced`` had the id before.
    """

    group: BrokerGroup
    broker: LiveBroker
    is_first: bool
    has_new_version: bool
    is_route_changed: bool
    displaced: tuple[LiveBroker, ...]
    min_broker_id_change: MinBrokerIdChange | None


class Brokers:
    """Every live broker, by group, by cluster and address, and by connection."""

    def __init__(self) -> None:
        self.groups: dict[str, BrokerGroup] = {}
        self._live: dict[tuple[str, str], LiveBroker] = {}
        self._by_connection: dict[Hashable, set[LiveBroker]] = {}

    def __len__(self) -> int:
        return len(self._live)

    @property
    def any_address(self) -> str | None:
        """Where some broker listens; None when there is none."""
        return next((broker.address for broker in self._live.values()), None)

    def find(self, cluster: str, address: str) -> LiveBroker | None:
        return self._live.get((cluster, address))

    def of_connection(self, connection: Hashable) -> list[LiveBroker]:
        """Who registered over that connection: a process may hold several brokers."""
        return list(self._by_connection.get(connection, ()))

    def silent(self, now: float) -> list[LiveBroker]:
        """Who has not been heard of for too long."""
        return [broker for broker in self._live.values() if broker.is_silent(now)]

    def judge(self, registration: Registration) -> Verdict:
        """Whether a registration may come in; changes nothing."""
        group = self.groups.get(registration.broker_name)
        holder = None if group is None else group.members.get(registration.broker_id)
        if holder is None:
            is_partial = len(registration.topics) == 1
            return Verdict.REFUSED if is_partial else Verdict.ACCEPTED
        if holder.address != registration.address and _state_version(
            holder.data_version
        ) > _state_version(registration.data_version):
            return Verdict.IGNORED
        return Verdict.ACCEPTED

    def enrol(self, registration: Registration, now: float) -> Enrolment:
        """Take a broker in; whoever has its id or its address in that group makes room."""
        group = self.groups.setdefault(
            registration.broker_name, BrokerGroup(registration.broker_name)
        )
        shown_before = group.data, group.filter_servers()
        lowest_before = min(group.members, default=MASTER_ID)
        known = self.find(registration.cluster, registration.address)
        makes_room = _in_the_way(group, registration)
        for broker in makes_room:
            self._forget(broker)
            del group.members[broker.broker_id]
        broker = self._remember(_live(registration, now), group)
        group.enable_acting_master = bool(registration.enable_acting_master)
        group.zone_name = registration.zone_name
        group.refresh()
        return Enrolment(
            group,
            broker,
            is_first=all(former.broker_id != broker.broker_id for former in makes_room),
            has_new_version=known is None or not known.data_version.matches(broker.data_version),
            is_route_changed=shown_before != (group.data, group.filter_servers()),
            displaced=tuple(m for m in makes_room if m.address != broker.address),
            min_broker_id_change=_newcomer(group, broker, lowest_before),
        )

    def remove(self, broker: LiveBroker) -> DroppedBroker:
        """Forget a broker, and its group when it was the last."""
        group = self.groups[broker.broker_name]
        was_lowest = broker.broker_id == group.lowest_id
        self._forget(broker)
        del group.members[broker.broker_id]
        change = None
        if group.members:
            group.refresh()
            if was_lowest and group.enable_acting_master:
                change = _min_broker_id_change(group, offline_address=broker.address)
        else:
            del self.groups[group.name]
        return dropped(broker, is_group_gone=not group.members, change=change)

    def names_in(self, cluster: str) -> list[str]:
        """The names of the groups with a broker in that cluster."""
        return [name for name, group in self.groups.items() if cluster in _clusters_of(group)]

    def cluster_info(self) -> ClusterInfo:
        """All groups, and the names of each cluster's."""
        clusters: dict[str, tuple[str, ...]] = {}
        for group in self.groups.values():
            for cluster in _clusters_of(group):
                clusters[cluster] = (*clusters.get(cluster, ()), group.name)
        return ClusterInfo({name: group.data for name, group in self.groups.items()}, clusters)

    def member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """The addresses of a group by id; none when it is unknown."""
        group = self.groups.get(broker_name)
        addresses = {} if group is None else group.data.broker_addrs
        return BrokerMemberGroup(cluster, broker_name, addresses)

    def _remember(self, broker: LiveBroker, group: BrokerGroup) -> LiveBroker:
        group.members[broker.broker_id] = broker
        self._live[broker.cluster, broker.address] = broker
        self._by_connection.setdefault(broker.connection, set()).add(broker)
        return broker

    def _forget(self, broker: LiveBroker) -> None:
        del self._live[broker.cluster, broker.address]
        sharing = self._by_connection[broker.connection]
        sharing.remove(broker)
        if not sharing:
            del self._by_connection[broker.connection]


def dropped(
    broker: LiveBroker, *, is_group_gone: bool = False, change: MinBrokerIdChange | None = None
) -> DroppedBroker:
    """A broker as callers are told of it when it has gone."""
    return DroppedBroker(
        broker.cluster,
        broker.broker_name,
        broker.broker_id,
        broker.address,
        broker.connection,
        broker.timeout_ms,
        is_group_gone,
        change,
    )


def _live(registration: Registration, now: float) -> LiveBroker:
    return LiveBroker(
        cluster=registration.cluster,
        broker_name=registration.broker_name,
        broker_id=registration.broker_id,
        address=registration.address,
        ha_server_address=registration.ha_server_address,
        connection=registration.connection,
        data_version=registration.data_version,
        filter_servers=registration.filter_servers,
        timeout_ms=registration.silence_ms_max,
        seen_at=now,
    )


def _in_the_way(group: BrokerGroup, registration: Registration) -> list[LiveBroker]:
    """An address has one id (a slave that became the master gives up its old one), an id one."""
    return [
        broker
        for broker in group.members.values()
        if broker.address == registration.address or broker.broker_id == registration.broker_id
    ]


def _newcomer(group: BrokerGroup, broker: LiveBroker, before: int) -> MinBrokerIdChange | None:
    if broker.broker_id >= before:
        return None
    return _min_broker_id_change(group, ha_address=broker.ha_server_address)


def _min_broker_id_change(
    group: BrokerGroup, *, offline_address: str | None = None, ha_address: str | None = None
) -> MinBrokerIdChange:
    lowest = group.members[group.lowest_id]
    # A newcomer knows its own id; only when it is alone there is nobody else to tell.
    is_everyone_told = offline_address is not None or len(group.members) == 1
    told: Iterable[LiveBroker] = group.members.values()
    return MinBrokerIdChange(
        group.name,
        lowest.broker_id,
        lowest.address,
        tuple(m.address for m in told if is_everyone_told or m is not lowest),
        offline_address,
        ha_address,
    )


def _clusters_of(group: BrokerGroup) -> dict[str, None]:
    return dict.fromkeys(broker.cluster for broker in group.members.values())


def _state_version(data_version: DataVersion) -> int:
    return data_version.state_version or 0
