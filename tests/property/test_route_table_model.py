"""Any sequence of events leaves the route table equal to its model."""

from collections import defaultdict

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from cometmq.codec import route_json
from cometmq.codec.bodies.nameserver import ClusterInfo
from cometmq.model.route import QueueData
from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.nameserver.registration import (
    DroppedBroker,
    MinBrokerIdChange,
    Registration,
    RegistrationProgress,
    RegistrationResult,
)
from cometmq.nameserver.route_cache import RouteDialect
from cometmq.nameserver.route_table import RouteRules, RouteTable
from tests.property.route_model import Outcome, RouteModel, version_of

TOPICS = ("T", "U", "V", "rmq_sys_W")
NAMES = ("broker-a", "broker-b")

brokers = st.sampled_from(NAMES)
clusters = st.sampled_from(("c", "d"))
addresses = st.sampled_from(("p:1", "q:1", "r:1", "s:1"))
connections = st.sampled_from(("k", "l", "m"))
ids = st.sampled_from((0, 1, 2))
counts = st.sampled_from((1, 2))
versions = st.builds(
    DataVersion, st.sampled_from((1, 2)), st.sampled_from((None, 0, 1)), st.just(0)
)
perms = st.sampled_from((7, 6, 4))


@st.composite
def registrations(draw: st.DrawFn) -> Registration:
    names = draw(st.sets(st.sampled_from(TOPICS)) | st.just(set(TOPICS)))
    return Registration(
        # Mostly one cluster, as in life: a broker name in two of them is a mistake to survive.
        cluster=draw(st.just("c") | clusters),
        broker_name=draw(brokers),
        broker_id=draw(ids),
        address=(address := draw(addresses)),
        ha_server_address=f"ha.{address}",
        connection=draw(connections),
        zone_name=draw(st.sampled_from((None, "z"))),
        timeout_ms=draw(st.sampled_from((None, 30_000))),
        enable_acting_master=draw(st.sampled_from((None, False, True))),
        topics={n: TopicConfig(n, draw(counts), 1, perm=draw(perms)) for n in sorted(names)},
        data_version=draw(versions),
        filter_servers=draw(st.sampled_from(((), ("f:1",)))),
    )


def ordered(change: MinBrokerIdChange | None) -> MinBrokerIdChange | None:
    if change is None:
        return None
    return msgspec.structs.replace(change, notify=tuple(sorted(change.notify)))


class RouteTableMachine(RuleBasedStateMachine):
    """Registrations may be left half applied; then each topic is as it was or as it will be."""

    @initialize(acting=st.booleans(), deletes=st.booleans(), room=st.sampled_from((1000, 100_000)))
    def start(self, acting: bool, deletes: bool, room: int) -> None:
        rules = RouteRules(support_acting_master=acting, delete_absent_topics=deletes)
        self.table, self.model = RouteTable(rules, cache_bytes_max=room), RouteModel(rules)
        self.now = 1000.0
        self.under_way: list[RegistrationProgress] = []
        self.seen: defaultdict[tuple[str, str], set[QueueData | None]] = defaultdict(set)

    @rule(said=registrations())
    def register(self, said: Registration) -> None:
        self.same(self.table.register(said, self.now), self.model.register(said, self.now))

    @rule(said=registrations())
    def begin_registration(self, said: Registration) -> None:
        self.remember()
        progress = self.table.begin_registration(said, self.now)
        self.under_way.append(progress)
        self.same(progress.result, self.model.register(said, self.now))

    @precondition(lambda self: self.under_way)
    @rule(number=st.integers(0, 9), count=st.integers(1, 3))
    def step(self, number: int, count: int) -> None:
        self.under_way[number % len(self.under_way)].step(count)

    @precondition(lambda self: self.under_way)
    @rule()
    def finish(self) -> None:
        for progress in reversed(self.under_way):
            progress.finish()

    @rule(cluster=clusters, address=addresses, name=brokers)
    def unregister(self, cluster: str, address: str, name: str) -> None:
        member = self.model.at(cluster, address)
        gone = self.table.unregister(cluster, address, name)
        if member is None or member.said.broker_name != name:
            assert gone is None
            return
        was_lowest = member.said.broker_id == min(self.model.group(name))
        self.model.drop([member])
        is_told = was_lowest and self.model.flags[name][0] and self.model.group(name)
        assert gone is not None
        assert gone.is_group_gone == (not self.model.group(name))
        assert gone.connection == member.said.connection
        assert ordered(gone.min_broker_id_change) == (
            self.model.change(name, goes=address) if is_told else None
        )

    @rule(connection=connections)
    def close(self, connection: str) -> None:
        members = self.model.members.values()
        expected = [member for member in members if member.said.connection == connection]
        self.same_drops(self.table.on_connection_closed(connection), self.model.drop(expected))

    @rule(seconds=st.sampled_from((10.0, 31.0, 90.0)))
    def wait_and_scan(self, seconds: float) -> None:
        self.now += seconds
        expected = self.model.silent(self.now)
        self.same_drops(self.table.scan(self.now), self.model.drop(expected))

    @rule(cluster=clusters, address=addresses)
    def touch(self, cluster: str, address: str) -> None:
        member = self.model.at(cluster, address)
        assert self.table.touch(cluster, address, self.now) == (member is not None)
        if member is not None:
            member.seen_at = self.now

    @rule(cluster=clusters, address=addresses, version=versions)
    def query_data_version(self, cluster: str, address: str, version: DataVersion) -> None:
        member = self.model.at(cluster, address)
        known = version_of(member)
        answer = self.table.query_data_version(cluster, address, version, self.now)
        assert answer.known == known
        assert answer.is_changed == (known is None or not known.matches(version))
        if member is not None:
            member.seen_at = self.now

    @rule(name=brokers)
    def wipe(self, name: str) -> None:
        expected = self.model.set_perm(name, lambda perm: perm & ~2)
        assert self.table.wipe_write_permission(name) == expected

    @rule(name=brokers)
    def add(self, name: str) -> None:
        assert self.table.add_write_permission(name) == self.model.set_perm(name, lambda _: 6)

    @rule(topic=st.sampled_from(TOPICS), cluster=st.none() | clusters)
    def delete(self, topic: str, cluster: str | None) -> None:
        assert self.table.delete_topic(topic, cluster) == self.model.delete(topic, cluster)

    @rule(topic=st.sampled_from(TOPICS), name=brokers, count=counts)
    def register_topic(self, topic: str, name: str, count: int) -> None:
        queues = QueueData(name, count, count, 6)
        is_known = bool(self.model.group(name))
        assert self.table.register_topic(topic, [queues]) == is_known
        if is_known:
            self.model.queues[topic, name] = queues

    @invariant()
    def an_answer_is_never_stale(self) -> None:
        for topic in TOPICS:
            route = self.table.route(topic)
            for dialect, version in ((RouteDialect.FASTJSON, 0), (RouteDialect.STANDARD, 401)):
                body = self.table.encoded_route(topic, dialect)
                assert body == (None if route is None else route_json.encode(route, version))

    @invariant()
    def brokers_are_those_of_the_model(self) -> None:
        info = self.table.cluster_info()
        names = {c: tuple(sorted(found)) for c, found in info.cluster_addr_table.items()}
        assert ClusterInfo(info.broker_addr_table, names) == self.model.cluster_info()
        assert self.table.broker_count == len(self.model.members)

    @invariant()
    def topics_are_those_of_the_model(self) -> None:
        if any(not progress.is_done for progress in self.under_way):
            self.remember()
            assert all(
                self.queues_in_table(topic).get(name) in self.seen[topic, name]
                for topic in TOPICS
                for name in NAMES
            )
            return
        self.under_way.clear()
        self.seen.clear()
        assert {t: self.table.route(t) for t in TOPICS} == {t: self.model.route(t) for t in TOPICS}
        assert set(self.table.topics().topic_list) == {topic for topic, _ in self.model.queues}
        for cluster in ("c", "d"):
            names = self.model.names_in(cluster)
            assert set(self.table.topics_of_cluster(cluster).topic_list) == {
                topic for topic, name in self.model.queues if name in names
            }

    def remember(self) -> None:
        """What a topic is in the model now, it may be in the table while slices are pending."""
        for topic in TOPICS:
            for name in NAMES:
                self.seen[topic, name].add(self.model.queues.get((topic, name)))

    def queues_in_table(self, topic: str) -> dict[str, QueueData]:
        route = self.table.route(topic)
        return {} if route is None else {queues.broker_name: queues for queues in route.queue_datas}

    def same(self, result: RegistrationResult, expected: Outcome) -> None:
        assert result.verdict is expected.verdict
        assert (result.master_address, result.ha_server_address) == expected.master
        assert result.is_new_broker == expected.is_new
        assert {gone.address for gone in result.displaced} == expected.displaced
        assert ordered(result.min_broker_id_change) == expected.change

    def same_drops(self, gone: list[DroppedBroker], expected: set[str]) -> None:
        assert {broker.address for broker in gone} == expected


TestRouteTable = RouteTableMachine.TestCase
