"""The routes of a name server: which brokers there are and where each topic's queues lie.

Everything is values in, values out; time (monotonic seconds) is an argument. The rules are those of
Apache's 5.5.0 name server, except that nothing stays behind where that one leaves something:

- a refused registration changes nothing;
- who loses its id to another broker is forgotten at once, not kept as alive for ever;
- an address that registers under another name leaves its former group;
- when a connection that several brokers share is closed, all of them go.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence

import msgspec

from cometmq.codec.bodies.nameserver import BrokerMemberGroup, ClusterInfo, TopicList
from cometmq.model.route import MASTER_ID, QueueData, TopicRoute
from cometmq.model.topic import DataVersion
from cometmq.nameserver import route_encoding, routes
from cometmq.nameserver.brokers import Brokers, Enrolment, LiveBroker, dropped
from cometmq.nameserver.registration import (
    DroppedBroker,
    Registration,
    RegistrationProgress,
    RegistrationResult,
    Verdict,
    VersionAnswer,
)
from cometmq.nameserver.route_cache import ROUTE_CACHE_BYTES_MAX, RouteCache, RouteDialect
from cometmq.nameserver.topics import (
    READ_WRITE,
    UNIT_FLAG,
    UNIT_SUBSCRIPTION_FLAG,
    TopicQueues,
    without_write,
)

_REASONS = {
    Verdict.IGNORED: "another broker holds this id with a newer state version",
    Verdict.REFUSED: "a single topic from a broker that has not sent its whole table yet",
}


class RouteRules(msgspec.Struct, frozen=True, gc=False):
    """What a name server may be told to do differently.

    ``support_acting_master``: the lowest id of a group without master is shown as the master.
    ``delete_absent_topics``: a broker's topics that its registration does not mention are removed.
    """

    support_acting_master: bool = False
    delete_absent_topics: bool = False


class RouteTable:
    """All tables of a name server and the encoded answers made of them; one loop owns it."""

    def __init__(
        self, rules: RouteRules | None = None, *, cache_bytes_max: int = ROUTE_CACHE_BYTES_MAX
    ) -> None:
        self._rules = rules or RouteRules()
        self._cache = RouteCache(cache_bytes_max)
        self._brokers = Brokers()
        self._topics = TopicQueues(on_change=self._cache.discard)

    @property
    def rules(self) -> RouteRules:
        """May be replaced at any time; registrations under way go on as they began."""
        return self._rules

    @rules.setter
    def rules(self, rules: RouteRules) -> None:
        self._rules = rules
        self._cache.clear()

    @property
    def broker_count(self) -> int:
        return len(self._brokers)

    @property
    def topic_count(self) -> int:
        return len(self._topics)

    # Brokers come and go

    def register(self, registration: Registration, now: float) -> RegistrationResult:
        """Take a broker and all its topics in at once."""
        progress = self.begin_registration(registration, now)
        progress.finish()
        return progress.result

    def begin_registration(self, registration: Registration, now: float) -> RegistrationProgress:
        """Take a broker in at once and leave its topics to the caller's steps.

        The caller may pause between steps as long as it likes: whatever else changes queues of
        that group meanwhile applies what is left first.
        """
        verdict = self._brokers.judge(registration)
        former = self._brokers.find(registration.cluster, registration.address)
        if verdict is not Verdict.ACCEPTED:
            return self._decline(verdict, former)
        moved: tuple[DroppedBroker, ...] = ()
        if former is not None and former.broker_name != registration.broker_name:
            moved, former = (self._drop(former),), None
        enrolment = self._brokers.enrol(registration, now)
        if enrolment.is_route_changed:
            self._forget_answers(registration.broker_name)
        master = None if registration.broker_id == MASTER_ID else enrolment.group.master
        result = RegistrationResult(
            verdict=verdict,
            ha_server_address=None if master is None else master.ha_server_address,
            master_address=None if master is None else master.address,
            is_new_broker=former is None,
            displaced=(*moved, *map(dropped, enrolment.displaced)),
            min_broker_id_change=enrolment.min_broker_id_change,
        )
        return self._progress(result, registration, enrolment)

    def unregister(self, cluster: str, address: str, broker_name: str) -> DroppedBroker | None:
        """A broker leaves; None when no such broker is known."""
        broker = self._brokers.find(cluster, address)
        if broker is None or broker.broker_name != broker_name:
            return None
        return self._drop(broker)

    def on_connection_closed(self, connection: Hashable) -> list[DroppedBroker]:
        """Drop the brokers whose latest registration came over that connection."""
        return [self._drop(broker) for broker in self._brokers.of_connection(connection)]

    def scan(self, now: float) -> list[DroppedBroker]:
        """Drop the brokers that were silent too long; the caller closes their connections."""
        return [self._drop(broker) for broker in self._brokers.silent(now)]

    def touch(self, cluster: str, address: str, now: float) -> bool:
        """A broker is alive; False when it is unknown."""
        broker = self._brokers.find(cluster, address)
        if broker is not None:
            broker.seen_at = now
        return broker is not None

    def query_data_version(
        self, cluster: str, address: str, data_version: DataVersion | None, now: float
    ) -> VersionAnswer:
        """Compare a broker's version of its topics with ours; it is alive, too."""
        broker = self._brokers.find(cluster, address)
        if broker is None:
            return VersionAnswer(is_changed=True, known=None)
        broker.seen_at = now
        is_same = data_version is not None and broker.data_version.matches(data_version)
        return VersionAnswer(is_changed=not is_same, known=broker.data_version)

    # What administrators change

    def wipe_write_permission(self, broker_name: str) -> int:
        """Let nobody write to a broker group; the number of its topics.

        It lasts until the broker registers a changed table.
        """
        return self._change_permission(broker_name, without_write)

    def add_write_permission(self, broker_name: str) -> int:
        """Make all topics of a broker group readable and writable; their number."""
        return self._change_permission(broker_name, lambda _: READ_WRITE)

    def delete_topic(self, topic: str, cluster: str | None = None) -> int:
        """Forget a topic, everywhere or in one cluster; at how many broker groups it was."""
        names = self._brokers.names_in(cluster) if cluster else list(self._brokers.groups)
        self._settle(names)
        return sum(self._topics.remove(topic, name) for name in names)

    def register_topic(self, topic: str, queues: Sequence[QueueData]) -> bool:
        """Set queues of a topic by hand; False, and no change, unless all brokers are known."""
        names = [data.broker_name for data in queues]
        if not all(name in self._brokers.groups for name in names):
            return False
        self._settle(names)
        for data in queues:
            self._topics.put(topic, data)
        return True

    # Questions

    def encoded_route(
        self, topic: str, dialect: RouteDialect, order_topic_conf: str | None = None
    ) -> bytes | None:
        """The body of a route answer, None without a route; the same object while it is cached."""
        body = self._cache.get(topic, dialect, order_topic_conf)
        if body is None:
            route = self.route(topic, order_topic_conf)
            if route is not None:
                body = route_encoding.encode(route, dialect)
                self._cache.put(topic, dialect, order_topic_conf, body)
        return body

    def route(self, topic: str, order_topic_conf: str | None = None) -> TopicRoute | None:
        """Where a topic's queues are; None when nobody has any."""
        queues = self._topics.of_topic(topic)
        if not queues:
            return None
        is_for_members = topic.startswith(routes.MEMBER_TOPIC_PREFIX)
        return routes.assemble(
            queues,
            self._brokers.groups,
            order_topic_conf=order_topic_conf,
            shows_acting_master=self._rules.support_acting_master and not is_for_members,
        )

    def cluster_info(self) -> ClusterInfo:
        """All broker groups and clusters."""
        return self._brokers.cluster_info()

    def member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """The members of a broker group; an empty one when it is unknown."""
        return self._brokers.member_group(cluster, broker_name)

    def topics(self) -> TopicList:
        """All topics."""
        return TopicList(tuple(self._topics))

    def topics_of_cluster(self, cluster: str) -> TopicList:
        """Topics with queues in that cluster; none when it is unknown."""
        names = self._brokers.names_in(cluster)
        found = (topic for name in names for topic in self._topics.of_broker(name))
        return TopicList(tuple(dict.fromkeys(found)))

    def system_topics(self) -> TopicList:
        """The topics named after clusters and brokers, and the address of any broker."""
        info = self._brokers.cluster_info()
        names = dict.fromkeys((*info.cluster_addr_table, *info.broker_addr_table))
        return TopicList(tuple(names), self._brokers.any_address)

    def unit_topics(self) -> TopicList:
        """Topics of a unit."""
        return TopicList(self._topics.flagged(UNIT_FLAG, UNIT_FLAG))

    def unit_subscription_topics(self) -> TopicList:
        """Topics that a unit subscribes to."""
        return TopicList(self._topics.flagged(UNIT_SUBSCRIPTION_FLAG, UNIT_SUBSCRIPTION_FLAG))

    def unit_subscription_only_topics(self) -> TopicList:
        """Topics that a unit subscribes to and that are not of a unit."""
        both = UNIT_FLAG | UNIT_SUBSCRIPTION_FLAG
        return TopicList(self._topics.flagged(both, UNIT_SUBSCRIPTION_FLAG))

    # How it is done

    def _decline(self, verdict: Verdict, former: LiveBroker | None) -> RegistrationProgress:
        # Who claims an id that a newer broker holds does not keep the id it had before either.
        displaced: tuple[DroppedBroker, ...] = ()
        if verdict is Verdict.IGNORED and former is not None:
            displaced = (self._drop(former),)
        return RegistrationProgress(
            RegistrationResult(verdict=verdict, reason=_REASONS[verdict], displaced=displaced)
        )

    def _progress(
        self, result: RegistrationResult, registration: Registration, enrolment: Enrolment
    ) -> RegistrationProgress:
        """Only the master's topics count, or those of the lowest slave of a 5.x group."""
        group, is_master = enrolment.group, registration.broker_id == MASTER_ID
        is_5x = registration.enable_acting_master is not None
        is_prime_slave = is_5x and not is_master and registration.broker_id == group.lowest_id
        if not is_master and not is_prime_slave:
            return RegistrationProgress(result)
        changes = self._topics.apply(
            registration,
            applies_known=enrolment.is_first or enrolment.has_new_version,
            is_read_only=is_prime_slave and group.enable_acting_master,
            removes_absent=self._rules.delete_absent_topics and not registration.has_static_topics,
        )
        return RegistrationProgress(result, changes, group.pending)

    def _drop(self, broker: LiveBroker) -> DroppedBroker:
        group = self._brokers.groups[broker.broker_name]
        if len(group.members) > 1:
            group.finish_pending()
        else:
            group.abandon_pending()
        gone = self._brokers.remove(broker)
        if gone.is_group_gone:
            self._topics.remove_broker(group.name)
            return gone
        self._forget_answers(group.name)
        if group.enable_acting_master and group.is_without_master:
            self._topics.change_permission(group.name, without_write)
        return gone

    def _change_permission(self, broker_name: str, change: Callable[[int], int]) -> int:
        if broker_name in self._brokers.groups:
            self._settle([broker_name])
        return self._topics.change_permission(broker_name, change)

    def _settle(self, names: Iterable[str]) -> None:
        for name in names:
            self._brokers.groups[name].finish_pending()

    def _forget_answers(self, broker_name: str) -> None:
        for topic in self._topics.of_broker(broker_name):
            self._cache.discard(topic)
