"""Brokers come and go: who is taken in, with which topics, and when they are dropped."""

import pytest

from cometmq.model.route import QueueData
from cometmq.model.topic import DataVersion
from cometmq.nameserver.registration import (
    DEFAULT_TIMEOUT_MS,
    DroppedBroker,
    MinBrokerIdChange,
    Verdict,
)
from cometmq.nameserver.route_table import RouteRules, RouteTable
from tests.unit.nameserver.builders import (
    NOW,
    addresses_of,
    broker,
    perm_of,
    queues_of,
    topics,
)


@pytest.fixture
def table() -> RouteTable:
    return RouteTable()


class TestAcceptance:
    def test_a_master_brings_its_topics(self, table: RouteTable) -> None:
        result = table.register(broker(topics=topics("T", perm=6, flag=2) | topics("U")), NOW)

        assert result.verdict is Verdict.ACCEPTED
        assert result.is_accepted
        assert result.is_new_broker
        assert result.reason == ""
        assert queues_of(table, "T") == {"broker-a": QueueData("broker-a", 8, 8, 6, 2)}
        assert table.broker_count == 1
        assert table.topic_count == 2

    def test_a_master_is_told_no_master(self, table: RouteTable) -> None:
        table.register(broker(broker_id=1), NOW)

        result = table.register(broker(), NOW)

        assert (result.master_address, result.ha_server_address) == (None, None)

    def test_a_slave_is_told_its_master_once_there_is_one(self, table: RouteTable) -> None:
        alone = table.register(broker(broker_id=1), NOW)
        table.register(broker(), NOW)

        followed = table.register(broker(broker_id=1), NOW)

        assert (alone.master_address, alone.ha_server_address) == (None, None)
        assert followed.master_address == "broker-a-0:1"
        assert followed.ha_server_address == "ha.broker-a-0:1"
        assert not followed.is_new_broker

    def test_topics_of_a_slave_do_not_count(self, table: RouteTable) -> None:
        table.register(broker(topics=topics("TU")), NOW)

        table.register(broker(broker_id=1, topics=topics("XY")), NOW)

        assert table.topics().topic_list == ("T", "U")

    def test_topics_of_the_lowest_slave_count_in_5x(self, table: RouteTable) -> None:
        table.register(broker(broker_id=2, topics=topics("TU")), NOW)
        table.register(broker(broker_id=1, topics=topics("VW")), NOW)
        table.register(broker(broker_id=3, topics=topics("XY")), NOW)

        assert set(table.topics().topic_list) == {"T", "U", "V", "W"}
        assert perm_of(table, "T") == 6

    def test_topics_of_a_4x_slave_never_count(self, table: RouteTable) -> None:
        table.register(broker(broker_id=1, acting=None), NOW)

        assert table.topics().topic_list == ()

    def test_a_slave_that_may_act_as_master_brings_topics_nobody_may_write(
        self, table: RouteTable
    ) -> None:
        table.register(broker(broker_id=1, acting=True, topics=topics("TU", perm=7)), NOW)

        assert perm_of(table, "T") == 5

    def test_one_topic_from_an_unknown_broker_is_refused_without_a_trace(
        self, table: RouteTable
    ) -> None:
        result = table.register(broker(topics=topics("T")), NOW)

        assert result.verdict is Verdict.REFUSED
        assert "single topic" in result.reason
        assert table.cluster_info().broker_addr_table == {}
        assert table.cluster_info().cluster_addr_table == {}

    def test_one_topic_from_an_id_that_is_new_to_a_known_group_is_refused_too(
        self, table: RouteTable
    ) -> None:
        table.register(broker(), NOW)

        result = table.register(broker(broker_id=1, topics=topics("T")), NOW)

        assert result.verdict is Verdict.REFUSED
        assert addresses_of(table) == {0: "broker-a-0:1"}

    def test_a_slave_that_becomes_master_with_one_topic_stays_what_it_was(
        self, table: RouteTable
    ) -> None:
        table.register(broker(broker_id=1, address="b:1"), NOW)

        table.register(broker(broker_id=0, address="b:1", topics=topics("T")), NOW)

        assert addresses_of(table) == {1: "b:1"}

    def test_no_topic_at_all_is_fine(self, table: RouteTable) -> None:
        assert table.register(broker(topics={}), NOW).is_accepted
        assert addresses_of(table) == {0: "broker-a-0:1"}


class TestTopicsOfARegistration:
    def test_a_single_topic_is_added_to_those_known(self, table: RouteTable) -> None:
        table.register(broker(), NOW)

        table.register(broker(topics=topics("X"), version=2), NOW)

        assert table.topics().topic_list == ("T", "U", "X")

    def test_a_changed_version_replaces_queues(self, table: RouteTable) -> None:
        table.register(broker(), NOW)

        table.register(broker(topics=topics("TU", read=4), version=2), NOW)

        assert queues_of(table, "T")["broker-a"].read_queue_nums == 4

    def test_the_same_version_adds_only_topics_that_are_unknown(self, table: RouteTable) -> None:
        table.register(broker(), NOW)

        table.register(broker(topics=topics("TUX", read=4)), NOW)

        assert queues_of(table, "T")["broker-a"].read_queue_nums == 8
        assert queues_of(table, "X")["broker-a"].read_queue_nums == 4

    def test_a_4x_version_equals_that_of_5x_with_state_0(self, table: RouteTable) -> None:
        table.register(broker(state=None), NOW)

        table.register(broker(state=0, topics=topics("TU", read=4)), NOW)

        assert queues_of(table, "T")["broker-a"].read_queue_nums == 8

    def test_a_role_switch_applies_topics_whatever_the_version(self, table: RouteTable) -> None:
        table.register(broker(broker_id=1, address="b:1", acting=True), NOW)

        table.register(broker(broker_id=0, address="b:1", acting=True), NOW)

        assert addresses_of(table) == {0: "b:1"}
        assert perm_of(table, "T") == 6

    def test_a_deleted_topic_comes_back_with_the_next_registration(self, table: RouteTable) -> None:
        table.register(broker(), NOW)
        table.delete_topic("T")

        table.register(broker(), NOW)

        assert table.route("T") is not None

    def test_topics_left_out_are_kept(self, table: RouteTable) -> None:
        table.register(broker(), NOW)

        table.register(broker(topics={}, version=2), NOW)

        assert table.topics().topic_list == ("T", "U")

    def test_topics_left_out_go_when_the_rules_say_so(self) -> None:
        table = RouteTable(RouteRules(delete_absent_topics=True))
        table.register(broker("broker-b"), NOW)
        table.register(broker(), NOW)

        table.register(broker(topics=topics("UV")), NOW)

        assert set(queues_of(table, "T")) == {"broker-b"}
        assert set(queues_of(table, "U")) == {"broker-a", "broker-b"}
        assert set(queues_of(table, "V")) == {"broker-a"}

    def test_with_static_topics_nothing_goes(self) -> None:
        table = RouteTable(RouteRules(delete_absent_topics=True))
        table.register(broker(), NOW)

        table.register(broker(topics={}, has_static_topics=True), NOW)

        assert table.topics().topic_list == ("T", "U")


class TestConflicts:
    def test_an_older_state_is_ignored(self, table: RouteTable) -> None:
        table.register(broker(address="new:1", state=2), NOW)

        result = table.register(broker(address="old:1", state=1, topics=topics("XY")), NOW)

        assert result.verdict is Verdict.IGNORED
        assert "newer state" in result.reason
        assert addresses_of(table) == {0: "new:1"}
        assert table.route("X") is None

    def test_who_is_ignored_loses_the_id_it_had(self, table: RouteTable) -> None:
        table.register(broker(address="new:1", state=2), NOW)
        table.register(broker(broker_id=1, address="old:1", state=1), NOW)

        result = table.register(broker(broker_id=0, address="old:1", state=1), NOW)

        assert [gone.address for gone in result.displaced] == ["old:1"]
        assert addresses_of(table) == {0: "new:1"}
        assert not table.touch("c", "old:1", NOW)

    @pytest.mark.parametrize("state", [1, 2])
    def test_an_equal_or_newer_state_takes_the_id(self, table: RouteTable, state: int) -> None:
        table.register(broker(address="old:1", state=1, connection="old"), NOW)

        result = table.register(broker(address="new:1", state=state), NOW)

        assert result.is_accepted
        assert addresses_of(table) == {0: "new:1"}
        assert [(gone.address, gone.connection) for gone in result.displaced] == [("old:1", "old")]
        assert not result.displaced[0].is_group_gone

    def test_who_was_displaced_is_dropped_no_second_time(self, table: RouteTable) -> None:
        table.register(broker(address="old:1", connection="old"), NOW)
        table.register(broker(address="new:1", connection="new"), NOW)

        assert table.on_connection_closed("old") == []
        assert table.unregister("c", "old:1", "broker-a") is None
        assert addresses_of(table) == {0: "new:1"}

    def test_an_address_under_another_name_leaves_its_former_group(self, table: RouteTable) -> None:
        table.register(broker("broker-a", address="x:1", topics=topics("TU")), NOW)

        result = table.register(broker("broker-b", address="x:1", topics=topics("UV")), NOW)

        assert [gone.broker_name for gone in result.displaced] == ["broker-a"]
        assert result.is_new_broker
        assert table.route("T") is None
        assert set(queues_of(table, "U")) == {"broker-b"}
        assert table.broker_count == 1


class TestLeaving:
    def test_the_last_of_a_name_takes_its_queues_along(self, table: RouteTable) -> None:
        table.register(broker("broker-a", topics=topics("TU")), NOW)
        table.register(broker("broker-b", topics=topics("UV")), NOW)

        gone = table.unregister("c", "broker-a-0:1", "broker-a")

        assert gone == DroppedBroker(
            "c", "broker-a", 0, "broker-a-0:1", "broker-a-0:1", DEFAULT_TIMEOUT_MS, True
        )
        assert table.route("T") is None
        assert set(queues_of(table, "U")) == {"broker-b"}
        assert list(table.cluster_info().broker_addr_table) == ["broker-b"]

    def test_queues_stay_while_a_slave_is_left(self, table: RouteTable) -> None:
        table.register(broker(), NOW)
        table.register(broker(broker_id=1), NOW)

        gone = table.unregister("c", "broker-a-0:1", "broker-a")

        assert gone is not None
        assert not gone.is_group_gone
        assert perm_of(table, "T") == 6
        assert addresses_of(table) == {1: "broker-a-1:1"}

    def test_without_master_a_group_with_acting_master_is_not_writable(
        self, table: RouteTable
    ) -> None:
        table.register(broker(acting=True), NOW)
        table.register(broker(broker_id=1, acting=True), NOW)

        table.unregister("c", "broker-a-0:1", "broker-a")
        wiped = perm_of(table, "T")
        table.register(broker(acting=True), NOW)

        assert wiped == 4
        assert perm_of(table, "T") == 6

    def test_nothing_happens_when_somebody_unknown_leaves(self, table: RouteTable) -> None:
        table.register(broker(), NOW)

        assert table.unregister("c", "nobody:1", "broker-a") is None
        assert table.unregister("other", "broker-a-0:1", "broker-a") is None
        assert table.unregister("c", "broker-a-0:1", "broker-b") is None
        assert table.broker_count == 1

    def test_a_closed_connection_takes_all_its_brokers_along(self, table: RouteTable) -> None:
        table.register(broker("broker-a", connection="one"), NOW)
        table.register(broker("broker-b", connection="one"), NOW)
        table.register(broker("broker-c", connection="two"), NOW)

        gone = table.on_connection_closed("one")

        assert {broker.broker_name for broker in gone} == {"broker-a", "broker-b"}
        assert set(queues_of(table, "T")) == {"broker-c"}

    def test_the_old_connection_of_a_broker_does_not_matter(self, table: RouteTable) -> None:
        table.register(broker(connection="old"), NOW)
        table.register(broker(connection="new"), NOW)

        assert table.on_connection_closed("old") == []
        assert [gone.address for gone in table.on_connection_closed("new")] == ["broker-a-0:1"]

    def test_a_clients_connection_does_not_matter(self, table: RouteTable) -> None:
        table.register(broker(), NOW)

        assert table.on_connection_closed("client") == []
        assert table.broker_count == 1


class TestSilence:
    def test_a_broker_may_be_silent_for_two_minutes(self, table: RouteTable) -> None:
        table.register(broker(), NOW)

        assert table.scan(NOW + 120) == []
        gone = table.scan(NOW + 120.25)

        assert [(g.address, g.timeout_ms) for g in gone] == [("broker-a-0:1", 120_000)]
        assert table.route("T") is None
        assert table.scan(NOW + 1000) == []

    def test_a_broker_may_choose_its_own_timeout(self, table: RouteTable) -> None:
        table.register(broker("broker-a", timeout_ms=500), NOW)
        table.register(broker("broker-b", timeout_ms=500_000), NOW)

        assert [gone.broker_name for gone in table.scan(NOW + 121)] == ["broker-a"]

    def test_every_sign_of_life_counts(self, table: RouteTable) -> None:
        for name in ("registered", "touched", "asked", "silent"):
            table.register(broker(name), NOW)
        table.register(broker("registered"), NOW + 100)
        assert table.touch("c", "touched-0:1", NOW + 100)
        table.query_data_version("c", "asked-0:1", None, NOW + 100)

        gone = table.scan(NOW + 200)

        assert [broker.broker_name for broker in gone] == ["silent"]

    def test_a_sign_of_life_of_somebody_unknown_counts_for_nothing(self, table: RouteTable) -> None:
        assert not table.touch("c", "nobody:1", NOW)
        assert table.broker_count == 0


class TestDataVersion:
    def test_an_unknown_broker_has_to_register(self, table: RouteTable) -> None:
        answer = table.query_data_version("c", "nobody:1", DataVersion(), NOW)

        assert answer.is_changed
        assert answer.known is None

    @pytest.mark.parametrize(
        ("asked", "is_changed"),
        [
            (DataVersion(1, 0, 0), False),
            (DataVersion(1, None, 0), False),
            (DataVersion(2, 0, 0), True),
            (DataVersion(1, 1, 0), True),
            (DataVersion(1, 0, 1), True),
            (None, True),
        ],
    )
    def test_a_known_one_only_when_its_version_differs(
        self, table: RouteTable, asked: DataVersion | None, is_changed: bool
    ) -> None:
        table.register(broker(version=1, state=0), NOW)

        answer = table.query_data_version("c", "broker-a-0:1", asked, NOW)

        assert answer.is_changed == is_changed
        assert answer.known == DataVersion(1, 0, 0)


class TestLowestId:
    def test_a_lower_id_that_comes_is_told_to_the_others(self, table: RouteTable) -> None:
        first = table.register(broker(broker_id=2), NOW)
        higher = table.register(broker(broker_id=3), NOW)

        lower = table.register(broker(broker_id=1), NOW)

        assert first.min_broker_id_change is None
        assert higher.min_broker_id_change is None
        assert lower.min_broker_id_change == MinBrokerIdChange(
            "broker-a",
            1,
            "broker-a-1:1",
            ("broker-a-2:1", "broker-a-3:1"),
            ha_address="ha.broker-a-1:1",
        )

    def test_a_slave_that_becomes_master_alone_is_told_itself(self, table: RouteTable) -> None:
        table.register(broker(broker_id=1, address="b:1"), NOW)

        result = table.register(broker(broker_id=0, address="b:1"), NOW)

        assert result.min_broker_id_change is not None
        assert result.min_broker_id_change.notify == ("b:1",)

    def test_the_lowest_id_that_goes_is_told_to_who_is_left(self, table: RouteTable) -> None:
        for broker_id in (0, 1, 2):
            table.register(broker(broker_id=broker_id, acting=True), NOW)

        higher = table.unregister("c", "broker-a-2:1", "broker-a")
        lowest = table.unregister("c", "broker-a-0:1", "broker-a")

        assert higher is not None
        assert higher.min_broker_id_change is None
        assert lowest is not None
        assert lowest.min_broker_id_change == MinBrokerIdChange(
            "broker-a", 1, "broker-a-1:1", ("broker-a-1:1",), offline_address="broker-a-0:1"
        )

    def test_groups_without_acting_master_are_not_told(self, table: RouteTable) -> None:
        table.register(broker(), NOW)
        table.register(broker(broker_id=1), NOW)

        gone = table.unregister("c", "broker-a-0:1", "broker-a")

        assert gone is not None
        assert gone.min_broker_id_change is None
