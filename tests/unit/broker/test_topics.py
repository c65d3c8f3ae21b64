"""The topics of a broker: which there are at start, who may make more, and what is saved."""

from pathlib import Path

import msgspec
import pytest

from cometmq.broker.topics import (
    QUEUES_MAX,
    UNIT,
    UNIT_SUBSCRIPTION,
    Topic,
    TopicTable,
    problem_of,
)
from cometmq.errors import BrokerError
from cometmq.model.system_names import NOT_SENDABLE
from cometmq.model.topic import DataVersion, TopicConfig, TopicFilterType
from cometmq.testing import FakeClock
from tests.golden import store_data
from tests.unit.broker.tables import add_topic, save, topic_table

SYSTEM_TOPICS = 13
"""How many there are without any setting."""


def sent_to(table: TopicTable, name: str, queues: int = 4, **changes: object) -> Topic | None:
    """The topic a client gets that sends to ``name``."""
    wanted = {"default_topic": "TBW102", "queue_nums": queues, "is_unit": False, **changes}
    return table.create_for_send(name, **wanted)  # type: ignore[arg-type]


def shapes(table: TopicTable) -> dict[str, tuple[int, int, int]]:
    return {
        name: (topic.read_queue_count, topic.write_queue_count, topic.config.perm)
        for name, topic in table.by_name.items()
    }


class TestNames:
    @pytest.mark.parametrize("name", ["orders", "a", "%RETRY%group", "n%t", "a|b_c-9", "x" * 127])
    def test_these_are_possible(self, name: str) -> None:
        assert problem_of(name) == ""

    @pytest.mark.parametrize("name", ["", " ", "\t\n"])
    def test_a_name_is_not_blank(self, name: str) -> None:
        assert problem_of(name) == "The specified topic is blank."

    @pytest.mark.parametrize("name", ["a b", "a.b", "a/b", "..", "ä", "a\n", "a@b", "a\0"])
    def test_a_name_has_only_some_characters(self, name: str) -> None:
        rule = "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        assert problem_of(name) == f"The specified topic: {name}, {rule}"

    def test_a_name_fits_into_a_record(self) -> None:
        name = "x" * 128
        words = "is longer than topic max length: 127"
        assert problem_of(name) == f"The specified topic: {name}, {words}"

    def test_the_name_of_a_retry_topic_may_be_longer(self) -> None:
        assert problem_of("%RETRY%" + "x" * 248) == ""
        assert problem_of("%RETRY%" + "x" * 249).endswith("is longer than topic max length: 255")
        assert problem_of("%DLQ%" + "x" * 123).endswith("is longer than topic max length: 127")

    def test_what_nobody_reads_is_not_sent_back(self) -> None:
        assert len(problem_of("ä" * 1_000_000)) < 1000


class TestStart:
    def test_the_system_topics_are_there_from_the_start(self, tmp_path: Path) -> None:
        assert shapes(topic_table(tmp_path)) == {
            "SELF_TEST_TOPIC": (1, 1, 6),
            "TBW102": (8, 8, 7),
            "BenchmarkTest": (1024, 1024, 6),
            "DefaultCluster": (16, 16, 7),
            "broker-a": (1, 1, 7),
            "OFFSET_MOVED_EVENT": (1, 1, 6),
            "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
            "DefaultCluster_REPLY_TOPIC": (1, 1, 6),
            "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 8, 6),
            "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1, 1),
            "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6),
            "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 1, 6),
            "rmq_sys_wheel_timer": (1, 1, 6),
        }

    def test_settings_decide_about_some_of_them(self, tmp_path: Path) -> None:
        found = shapes(
            topic_table(
                tmp_path,
                auto_create_topic_enable=False,
                cluster_topic_enable=False,
                broker_topic_enable=False,
                trace_topic_enable=True,
                trace_topic_name="traces",
            )
        )

        assert "TBW102" not in found
        assert found["DefaultCluster"] == (16, 16, 1)
        assert found["broker-a"] == (1, 1, 1)
        assert found["traces"] == (1, 1, 6)

    def test_all_of_them_are_system_topics_and_no_other_is(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path)
        ordinary = add_topic(table, "orders")

        assert [topic for topic in table.by_name.values() if not topic.is_system] == [ordinary]
        assert table.is_system("rmq_sys_anything")
        assert table.is_system("TRANS_CHECK_MAX_TIME_TOPIC")

    def test_clients_may_send_to_all_but_the_brokers_own(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path)

        closed = {name for name, topic in table.by_name.items() if not topic.can_send}

        assert closed == NOT_SENDABLE & table.by_name.keys()
        assert {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC"} < closed

    def test_what_was_saved_is_there_again(self, tmp_path: Path) -> None:
        before = topic_table(tmp_path)
        add_topic(before, "orders", 3, perm=4, order=True)
        save(tmp_path, before)

        after = topic_table(tmp_path)

        assert after.table() == before.table()
        assert after.by_name["orders"].is_order

    def test_the_file_wins_over_the_defaults_of_system_topics(self, tmp_path: Path) -> None:
        before = topic_table(tmp_path, default_topic_queue_nums=2)
        save(tmp_path, before)

        after = topic_table(tmp_path, default_topic_queue_nums=5)

        assert after.by_name["TBW102"].write_queue_count == 2
        assert after.data_version == before.data_version

    def test_a_topic_goes_by_the_name_it_is_listed_under(self, tmp_path: Path) -> None:
        (tmp_path / "config").mkdir()
        text = '{"topicConfigTable":{"orders":{"topicName":"bills","readQueueNums":3}}}'
        (tmp_path / "config" / "topics.json").write_text(text)

        table = topic_table(tmp_path)

        assert table.by_name["orders"].config.topic_name == "orders"
        assert "bills" not in table.by_name

    @pytest.mark.slow  # unpacks the recordings
    @pytest.mark.parametrize("store", store_data.STORES)
    def test_topics_that_apache_saved_stay_as_they_are(self, store: str, tmp_path: Path) -> None:
        recorded = store_data.load(store)
        (tmp_path / "config").mkdir()
        (tmp_path / "config" / "topics.json").write_bytes(recorded.files["config/topics.json"])

        table = topic_table(tmp_path)

        told = recorded.manifest["topics"]
        found = {
            name: (topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.order)
            for name, topic in table.table().topic_config_table.items()
            if name in told
        }
        assert found == {
            name: (topic["readQueueNums"], topic["writeQueueNums"], topic["perm"], topic["order"])
            for name, topic in told.items()
        }
        added = table.by_name.keys() - told.keys()
        assert bool(added) == recorded.is_4x, added

    @pytest.mark.slow  # unpacks the recordings
    def test_a_table_of_5_5_is_saved_byte_for_byte(self, tmp_path: Path) -> None:
        content = store_data.load("5.5.0-clean").files["config/topics.json"]
        path = tmp_path / "config" / "topics.json"
        path.parent.mkdir()
        path.write_bytes(content)

        save(tmp_path, topic_table(tmp_path))

        assert path.read_bytes() == content


class TestSending:
    def test_a_topic_is_made_after_the_default_one(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path)

        made = sent_to(table, "orders", 4)

        assert made is table.by_name["orders"]
        assert made.config == TopicConfig("orders", 4, 4, 6, attributes={})
        assert made.can_send
        assert made.is_readable
        assert not made.is_system

    def test_it_has_no_more_queues_than_the_default_one(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path, default_topic_queue_nums=3)

        made = sent_to(table, "orders", 16)

        assert made is not None
        assert made.queue_count == 3

    @pytest.mark.parametrize("queues", [0, -1])
    def test_it_has_at_least_one_queue(self, tmp_path: Path, queues: int) -> None:
        made = sent_to(topic_table(tmp_path), "orders", queues)

        assert made is not None
        assert made.queue_count == 1

    def test_it_inherits_permission_and_filter_type(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path)
        table.put(TopicConfig("model", 2, 2, 5, TopicFilterType.MULTI_TAG, attributes={}))

        made = sent_to(table, "orders", default_topic="model")

        assert made is not None
        assert made.config.perm == 4
        assert made.config.topic_filter_type is TopicFilterType.MULTI_TAG

    def test_a_topic_that_exists_is_left_alone(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path)
        known = add_topic(table, "orders", 2)
        version = table.data_version

        assert sent_to(table, "orders", 8) is known
        assert known.queue_count == 2
        assert table.data_version == version

    @pytest.mark.parametrize("default", ["unknown", "BenchmarkTest", ""])
    def test_none_is_made_after_a_topic_that_cannot_be_inherited(
        self, tmp_path: Path, default: str
    ) -> None:
        assert sent_to(topic_table(tmp_path), "orders", default_topic=default) is None

    def test_none_is_made_where_that_is_switched_off(self, tmp_path: Path) -> None:
        save(tmp_path, topic_table(tmp_path))  # with TBW102, from a time when it was on

        table = topic_table(tmp_path, auto_create_topic_enable=False)

        assert sent_to(table, "orders") is None
        assert sent_to(table, "orders", default_topic="DefaultCluster") is not None

    @pytest.mark.parametrize("name", ["a b", "", "x" * 128, "TRANS_CHECK_MAX_TIME_TOPIC"])
    def test_none_is_made_with_a_name_it_must_not_have(self, tmp_path: Path, name: str) -> None:
        assert sent_to(topic_table(tmp_path), name) is None

    def test_a_retry_topic_needs_no_default_one(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path, auto_create_topic_enable=False)

        made = sent_to(table, "%RETRY%group", 4)

        assert made is not None
        assert made.config == TopicConfig("%RETRY%group", 1, 1, 6, attributes={})

    def test_unit_mode_shows_in_the_flag(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path)

        ordinary = sent_to(table, "orders", is_unit=True)
        retry = sent_to(table, "%RETRY%group", is_unit=True)

        assert ordinary is not None
        assert ordinary.config.topic_sys_flag == UNIT
        assert retry is not None
        assert retry.config.topic_sys_flag == UNIT_SUBSCRIPTION

    def test_senders_cannot_make_topics_without_end(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = topic_table(tmp_path, topics_max=SYSTEM_TOPICS + 2)

        made = [sent_to(table, f"t{number}") for number in range(5)]

        assert [topic is not None for topic in made] == [True, True, False, False, False]
        warnings = [record for record in caplog.records if record.levelname == "WARNING"]
        assert len(warnings) == 1
        assert "topic=t2" in warnings[0].getMessage()
        assert sent_to(table, "t0") is made[0]
        assert table.create_retry("group", 1, is_unit=False).name == "%RETRY%group"


class TestGroups:
    def test_a_group_has_a_retry_topic(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path)

        made = table.create_retry("group", 3, is_unit=True, is_order=True)

        flag = UNIT_SUBSCRIPTION
        wanted = TopicConfig(
            "%RETRY%group", 3, 3, 6, topic_sys_flag=flag, order=True, attributes={}
        )
        assert made.config == wanted
        assert table.create_retry("group", 9, is_unit=False) is made
        assert made.config == wanted

    def test_its_order_follows_the_subscriptions(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path)
        made = table.create_retry("group", 1, is_unit=False)

        table.create_retry("group", 1, is_unit=False, is_order=True)

        assert made.is_order
        assert made.config.order

    def test_its_queues_are_limited(self, tmp_path: Path) -> None:
        made = topic_table(tmp_path).create_retry("group", 2**31 - 1, is_unit=False)

        assert made.queue_count == QUEUES_MAX

    def test_a_group_has_a_topic_of_dead_letters_that_can_be_read(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path)

        made = table.create_dead_letter("group")

        assert made.config == TopicConfig("%DLQ%group", 1, 1, 6, attributes={})
        assert table.create_dead_letter("group") is made


class TestAdministration:
    def test_a_topic_stays_the_same_object_whatever_changes(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path)
        topic = add_topic(table, "orders", 4)
        topic.put_count = 7

        changed = table.put(TopicConfig("orders", 8, 2, 2, order=True, attributes={}))

        assert changed is topic
        assert (topic.read_queue_count, topic.write_queue_count, topic.queue_count) == (8, 2, 8)
        assert topic.is_order
        assert not topic.is_readable
        assert topic.put_count == 7

    def test_administrators_cannot_make_topics_without_end_either(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path, topics_max=SYSTEM_TOPICS + 1)
        add_topic(table, "orders")

        add_topic(table, "orders", 8)
        with pytest.raises(BrokerError, match="no more are made"):
            add_topic(table, "bills")

    def test_a_deleted_topic_is_gone(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path)
        add_topic(table, "orders")
        version = table.data_version
        gone: list[str] = []
        table.on_delete.append(gone.append)

        assert table.delete("orders")
        assert not table.delete("orders")

        assert table.get("orders") is None
        assert gone == ["orders"]
        assert table.data_version.counter == version.counter + 1

    def test_listeners_are_told_what_was_made_or_changed(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path)
        told: list[list[Topic]] = []
        table.on_change.append(lambda topics: told.append(list(topics)))

        made = sent_to(table, "orders")
        table.apply_order(["orders", "unknown"])
        table.apply_order(["orders"])

        assert told == [[made], [made]]

    def test_order_comes_from_the_name_servers_and_stays(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path)
        ours, theirs = add_topic(table, "ours", order=True), add_topic(table, "theirs")

        table.apply_order(["theirs"])
        table.apply_order([])

        assert ours.is_order
        assert theirs.is_order
        assert theirs.config.order

    def test_each_change_has_a_stamp_of_its_own(self, tmp_path: Path) -> None:
        clock = FakeClock()
        table = topic_table(tmp_path, clock)
        before = table.data_version

        clock.advance(1)
        add_topic(table, "orders")

        assert table.data_version == DataVersion(before.counter + 1, 0, clock.now_ms())

    def test_a_table_for_saving_does_not_change_any_more(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path)
        before = table.table()
        names = set(before.topic_config_table)

        add_topic(table, "orders")

        assert set(before.topic_config_table) == names


class TestAdoption:
    def test_queues_whose_topic_was_not_saved_before_a_kill_get_one(self, tmp_path: Path) -> None:
        table = topic_table(tmp_path)
        add_topic(table, "known", 1)

        made = table.adopt([("known", 7), ("lost", 0), ("lost", 2), ("not legal", 0)])

        assert [topic.config for topic in made] == [TopicConfig("lost", 3, 3, 6, attributes={})]
        assert table.by_name["known"].queue_count == 1
        assert table.adopt([("lost", 5)]) == []


def test_a_topic_shows_what_it_is(tmp_path: Path) -> None:
    topic = add_topic(topic_table(tmp_path), "orders", 4)
    topic.replace(msgspec.structs.replace(topic.config, write_queue_nums=2))

    assert repr(topic) == "<Topic orders read=4 write=2>"
