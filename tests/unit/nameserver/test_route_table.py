"""What a name server answers: routes, lists, and what administrators change of them."""

import json

import pytest

from cometmq.codec import bodies, registration
from cometmq.codec.bodies.nameserver import BrokerMemberGroup, BrokerMemberGroupAnswer, ClusterInfo
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.model.topic import DataVersion
from cometmq.nameserver.registration import Registration
from cometmq.nameserver.route_cache import RouteDialect
from cometmq.nameserver.route_table import RouteRules, RouteTable
from tests.golden.wire_frames import RecordedFrame, frames
from tests.unit.nameserver.builders import NOW, broker, perm_of, queues_of, topics


@pytest.fixture
def table() -> RouteTable:
    return RouteTable()


class TestRoutes:
    def test_a_route_has_the_queues_and_brokers_of_a_topic(self, table: RouteTable) -> None:
        table.register(broker("broker-b", topics=topics("TX"), cluster="d"), NOW)
        table.register(broker("broker-a", topics=topics("TY"), zone="z"), NOW)
        table.register(broker("broker-c", topics=topics("YZ")), NOW)

        assert table.route("T") == TopicRoute(
            (
                BrokerData("broker-a", {0: "broker-a-0:1"}, "c", False, "z"),
                BrokerData("broker-b", {0: "broker-b-0:1"}, "d", False),
            ),
            (QueueData("broker-a", 8, 8, 6), QueueData("broker-b", 8, 8, 6)),
        )

    def test_an_unknown_topic_has_no_route(self, table: RouteTable) -> None:
        table.register(broker(), NOW)

        assert table.route("X") is None
        assert table.encoded_route("X", RouteDialect.STANDARD) is None

    def test_slaves_are_part_of_it_in_the_order_of_their_ids(self, table: RouteTable) -> None:
        for broker_id in (2, 0, 1):
            table.register(broker(broker_id=broker_id), NOW)

        route = table.route("T")

        assert route is not None
        assert list(route.broker_datas[0].broker_addrs) == [0, 1, 2]

    def test_filter_servers_are_listed_in_the_order_of_broker_ids(self, table: RouteTable) -> None:
        """Not as they came: an answer that is remembered must not differ from a new one."""
        for broker_id, address in ((1, "s:1"), (0, "m:1")):
            said = broker("broker-a", broker_id=broker_id, address=address, filter_servers=("f:1",))
            table.register(said, NOW)

        route = table.route("T")

        assert route is not None
        assert list(route.filter_server_table) == ["m:1", "s:1"]

    def test_filter_servers_are_listed_by_broker_address(self, table: RouteTable) -> None:
        table.register(broker("broker-a", filter_servers=("f:1", "f:2")), NOW)
        table.register(broker("broker-b"), NOW)

        listed = table.route("T")
        table.register(broker("broker-a"), NOW)
        unlisted = table.route("T")

        assert listed is not None
        assert listed.filter_server_table == {"broker-a-0:1": ["f:1", "f:2"]}
        assert unlisted is not None
        assert unlisted.filter_server_table == {}

    def test_the_order_configuration_is_passed_on(self, table: RouteTable) -> None:
        table.register(broker(), NOW)

        route = table.route("T", "broker-a:4")
        body = table.encoded_route("T", RouteDialect.STANDARD, "broker-a:4")

        assert route is not None
        assert route.order_topic_conf == "broker-a:4"
        assert body is not None
        assert b'"orderTopicConf":"broker-a:4"' in body


class TestActingMaster:
    SUPPORTED = RouteRules(support_acting_master=True)

    def without_master(self, rules: RouteRules, *, acting: bool = True) -> RouteTable:
        """A group of slaves 1 and 2 whose master has left."""
        table = RouteTable(rules)
        for broker_id in (0, 1, 2):
            names = ("T", "rmq_sys_SYNC_BROKER_MEMBER_broker-a")
            table.register(broker(broker_id=broker_id, acting=acting, topics=topics(names)), NOW)
        table.unregister("c", "broker-a-0:1", "broker-a")
        return table

    def shown(self, table: RouteTable, topic: str = "T") -> dict[int, str]:
        route = table.route(topic)
        assert route is not None
        return route.broker_datas[0].broker_addrs

    def test_the_lowest_slave_is_shown_as_master(self) -> None:
        table = self.without_master(self.SUPPORTED)

        assert self.shown(table) == {0: "broker-a-1:1", 2: "broker-a-2:1"}
        assert table.member_group("c", "broker-a").broker_addrs == {
            1: "broker-a-1:1",
            2: "broker-a-2:1",
        }

    def test_not_unless_the_name_server_supports_it(self) -> None:
        table = self.without_master(RouteRules())

        assert self.shown(table) == {1: "broker-a-1:1", 2: "broker-a-2:1"}

    def test_not_unless_the_group_agreed(self) -> None:
        table = self.without_master(self.SUPPORTED, acting=False)

        table.wipe_write_permission("broker-a")

        assert self.shown(table) == {1: "broker-a-1:1", 2: "broker-a-2:1"}

    def test_not_while_the_topic_is_writable(self) -> None:
        table = self.without_master(self.SUPPORTED)

        table.add_write_permission("broker-a")

        assert self.shown(table) == {1: "broker-a-1:1", 2: "broker-a-2:1"}

    def test_not_to_the_members_of_the_group(self) -> None:
        table = self.without_master(self.SUPPORTED)

        assert 0 not in self.shown(table, "rmq_sys_SYNC_BROKER_MEMBER_broker-a")

    def test_not_when_the_master_is_there(self) -> None:
        table = self.without_master(self.SUPPORTED)

        table.register(broker(acting=True), NOW)
        table.wipe_write_permission("broker-a")

        assert self.shown(table)[0] == "broker-a-0:1"

    def test_a_change_of_the_rules_is_seen_at_once(self) -> None:
        table = self.without_master(RouteRules())
        before = table.encoded_route("T", RouteDialect.STANDARD)

        table.rules = self.SUPPORTED

        assert table.rules == self.SUPPORTED
        assert before != table.encoded_route("T", RouteDialect.STANDARD)


class TestPermission:
    def test_wiping_takes_the_right_to_write_and_nothing_else(self, table: RouteTable) -> None:
        table.register(broker("broker-a", topics=topics("T", perm=7) | topics("U", perm=4)), NOW)
        table.register(broker("broker-b"), NOW)

        assert table.wipe_write_permission("broker-a") == 2

        assert perm_of(table, "T") == 5
        assert perm_of(table, "U") == 4
        assert perm_of(table, "T", "broker-b") == 6

    def test_adding_makes_readable_and_writable_whatever_it_was(self, table: RouteTable) -> None:
        table.register(broker(topics=topics("T", perm=7) | topics("U", perm=0)), NOW)

        assert table.add_write_permission("broker-a") == 2

        assert perm_of(table, "T") == 6
        assert perm_of(table, "U") == 6

    def test_it_lasts_until_the_broker_registers_a_changed_table(self, table: RouteTable) -> None:
        table.register(broker(), NOW)
        table.wipe_write_permission("broker-a")

        table.register(broker(), NOW)
        unchanged = perm_of(table, "T")
        table.register(broker(version=2), NOW)

        assert unchanged == 4
        assert perm_of(table, "T") == 6

    def test_an_unknown_broker_has_no_topics(self, table: RouteTable) -> None:
        assert table.wipe_write_permission("nobody") == 0
        assert table.add_write_permission("nobody") == 0


class TestTopics:
    def test_a_topic_is_deleted_everywhere(self, table: RouteTable) -> None:
        table.register(broker("broker-a"), NOW)
        table.register(broker("broker-b"), NOW)

        assert table.delete_topic("T") == 2

        assert table.route("T") is None
        assert table.topics().topic_list == ("U",)

    @pytest.mark.parametrize("cluster", [None, ""])
    def test_no_cluster_means_all(self, table: RouteTable, cluster: str | None) -> None:
        table.register(broker("broker-a", cluster="c"), NOW)
        table.register(broker("broker-b", cluster="d"), NOW)

        assert table.delete_topic("T", cluster) == 2

    def test_a_topic_is_deleted_in_one_cluster(self, table: RouteTable) -> None:
        table.register(broker("broker-a", cluster="c"), NOW)
        table.register(broker("broker-b", cluster="d"), NOW)

        assert table.delete_topic("T", "c") == 1

        assert set(queues_of(table, "T")) == {"broker-b"}

    def test_what_is_not_there_is_deleted_without_complaint(self, table: RouteTable) -> None:
        table.register(broker(), NOW)

        assert table.delete_topic("X") == 0
        assert table.delete_topic("T", "nowhere") == 0
        assert table.route("T") is not None

    def test_queues_set_by_hand_are_added(self, table: RouteTable) -> None:
        table.register(broker("broker-a"), NOW)
        table.register(broker("broker-b"), NOW)

        assert table.register_topic("X", [QueueData("broker-b", 1, 1, 6)])
        assert table.register_topic("T", [QueueData("broker-b", 2, 2, 6)])

        assert queues_of(table, "X") == {"broker-b": QueueData("broker-b", 1, 1, 6)}
        assert queues_of(table, "T")["broker-a"].read_queue_nums == 8
        assert queues_of(table, "T")["broker-b"].read_queue_nums == 2

    def test_queues_at_unknown_brokers_are_not(self, table: RouteTable) -> None:
        table.register(broker(), NOW)
        mixed = [QueueData("broker-a", 1, 1, 6), QueueData("nobody", 1, 1, 6)]

        assert not table.register_topic("X", mixed)
        assert table.route("X") is None


class TestLists:
    def test_an_empty_name_server_has_empty_lists(self, table: RouteTable) -> None:
        assert bodies.encode(table.cluster_info()) == (
            b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
        )
        assert bodies.encode(table.topics()) == b'{"topicList":[]}'
        assert bodies.encode(table.system_topics()) == b'{"topicList":[]}'

    def test_clusters_list_the_names_of_their_groups(self, table: RouteTable) -> None:
        table.register(broker("broker-a", cluster="c"), NOW)
        table.register(broker("broker-a", 1, cluster="c"), NOW)
        table.register(broker("broker-b", cluster="d"), NOW)
        table.register(broker("broker-c", cluster="c"), NOW)

        info = table.cluster_info()

        assert info.cluster_addr_table == {"c": ("broker-a", "broker-c"), "d": ("broker-b",)}
        assert info.broker_addr_table["broker-a"] == BrokerData(
            "broker-a", {0: "broker-a-0:1", 1: "broker-a-1:1"}, "c", False
        )

    def test_a_cluster_goes_with_its_last_broker(self, table: RouteTable) -> None:
        table.register(broker(), NOW)

        table.unregister("c", "broker-a-0:1", "broker-a")

        assert table.cluster_info() == ClusterInfo()

    def test_topics_are_listed_by_cluster_and_each_once(self, table: RouteTable) -> None:
        table.register(broker("broker-a", topics=topics("TU")), NOW)
        table.register(broker("broker-b", topics=topics("UV")), NOW)
        table.register(broker("broker-c", topics=topics("WX"), cluster="d"), NOW)

        assert sorted(table.topics_of_cluster("c").topic_list) == ["T", "U", "V"]
        assert table.topics_of_cluster("nowhere").topic_list == ()

    def test_system_topics_are_named_after_clusters_and_brokers(self, table: RouteTable) -> None:
        table.register(broker("broker-a", cluster="c"), NOW)
        table.register(broker("c", cluster="c"), NOW)

        listed = table.system_topics()

        assert sorted(listed.topic_list) == ["broker-a", "c"]
        assert listed.broker_addr == "broker-a-0:1"

    def test_unit_topics_are_known_by_their_flags(self, table: RouteTable) -> None:
        flags = {"none": 0, "unit": 1, "sub": 2, "both": 3}
        table.register(
            broker(topics={k: v for n, f in flags.items() for k, v in topics([n], flag=f).items()}),
            NOW,
        )

        assert table.unit_topics().topic_list == ("unit", "both")
        assert table.unit_subscription_topics().topic_list == ("sub", "both")
        assert table.unit_subscription_only_topics().topic_list == ("sub",)

    def test_an_unknown_group_has_no_members(self, table: RouteTable) -> None:
        group = table.member_group("c", "nobody")

        assert group == BrokerMemberGroup("c", "nobody", {})
        assert bodies.encode(BrokerMemberGroupAnswer(group)) == (
            b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"nobody","cluster":"c"}}'
        )


class TestRecordings:
    def recorded(self, source: str, code: int, what: str) -> RecordedFrame:
        """The answer of Apache's 5.5.0 name server whose description contains ``what``."""
        return next(
            frame
            for frame in frames(source)
            if (frame.server, frame.version, frame.request_code) == ("namesrv", "5.5.0", code)
            and what in frame.what
        )

    def replay_registrations(self) -> RouteTable:
        """A table with what the 5.5.0 broker registered at that name server."""
        table = RouteTable()
        for frame in frames("broker"):
            if frame.version == "5.5.0" and frame.code == 103 and frame.conn == "5-3":
                assert table.register(registration_of(frame), NOW).is_accepted
        return table

    def test_a_route_is_what_apache_answered(self) -> None:
        table = self.replay_registrations()

        answer = self.recorded("mqadmin-5.5.0", 105, "topicRoute -n 127.0.0.1:9977 -t Wire")

        assert table.encoded_route("Wire", RouteDialect.STANDARD) == answer.body

    def test_the_cluster_is_what_apache_answered(self) -> None:
        table = self.replay_registrations()

        answer = self.recorded("mqadmin-5.5.0", 106, "clusterList")

        assert bodies.encode(table.cluster_info()) == answer.body


def registration_of(frame: RecordedFrame) -> Registration:
    header = json.loads(frame.header)
    said = header["extFields"]
    body = registration.decode(frame.body, header["version"])
    table = body.topic_config_serialize_wrapper
    return Registration(
        cluster=said["clusterName"],
        broker_name=said["brokerName"],
        broker_id=int(said["brokerId"]),
        address=said["brokerAddr"],
        ha_server_address=said["haServerAddr"],
        connection=frame.conn,
        enable_acting_master=said.get("enableActingMaster") == "true",
        topics=table.topic_config_table,
        data_version=table.data_version or DataVersion(),
        filter_servers=body.filter_server_list,
    )
