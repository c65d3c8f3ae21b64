"""Administrators make and change topics and groups: what they may, and what they are told."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.groups import GroupTable
from cometmq.broker.handlers.groups import GroupHandlers
from cometmq.broker.handlers.topics import TopicHandlers, altered
from cometmq.broker.topics import QUEUES_MAX, TopicTable
from cometmq.codec import bodies
from cometmq.codec.bodies.groups import SubscriptionGroupList
from cometmq.codec.bodies.topics import TopicConfigList
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.topics import UpdateAndCreateTopic
from cometmq.errors import BrokerError
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.model.topic import TopicConfig, TopicFilterType
from cometmq.remoting.routes import Routes
from tests.unit.broker.fake_channel import FakeChannel, Reply, request
from tests.unit.broker.tables import add_topic, group_table, recorded_requests, topic_table


class Desk:
    """Tables and their handlers, asked as an administrator asks; counts what was settled."""

    def __init__(self, folder: Path) -> None:
        self.topics: TopicTable = topic_table(folder)
        self.groups: GroupTable = group_table(folder)
        self.settled = 0
        self._routes = Routes()
        TopicHandlers(self.topics, self._settle).add_to(self._routes)
        GroupHandlers(self.groups, self._settle).add_to(self._routes)

    def ask(self, command: Command) -> Reply:
        return asyncio.run(self._ask(command))

    def update_topic(self, topic: str = "orders", **fields: Any) -> Reply:
        values = {
            "default_topic": "TBW102",
            "read_queue_nums": 4,
            "write_queue_nums": 4,
            "perm": 6,
            "topic_filter_type": "SINGLE_TAG",
            **fields,
        }
        header = UpdateAndCreateTopic(topic, **values)
        return self.ask(request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))

    def update_group(self, body: bytes | str) -> Reply:
        data = body.encode() if isinstance(body, str) else body
        return self.ask(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=data))

    def update_topics(self, *configs: TopicConfig) -> Reply:
        body = bodies.encode(TopicConfigList(configs))
        return self.ask(request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body))

    def update_groups(self, *configs: SubscriptionGroupConfig) -> Reply:
        body = bodies.encode(SubscriptionGroupList(configs))
        return self.ask(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body))

    async def _settle(self) -> None:
        self.settled += 1

    async def _ask(self, command: Command) -> Reply:
        channel = FakeChannel()
        channel.ask(self._routes, command)
        await channel.finish()
        (reply,) = channel.replies
        return reply


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


class TestTopics:
    def test_a_topic_is_made_as_it_was_wanted(self, desk: Desk) -> None:
        reply = desk.update_topic(
            read_queue_nums=8,
            write_queue_nums=3,
            perm=4,
            topic_filter_type="MULTI_TAG",
            topic_sys_flag=2,
            order=True,
            attributes="+message.type=FIFO",
        )

        assert reply.code == ResponseCode.SUCCESS
        assert desk.topics.by_name["orders"].config == TopicConfig(
            "orders", 8, 3, 4, TopicFilterType.MULTI_TAG, 2, True, {"message.type": "FIFO"}
        )
        assert desk.settled == 1

    def test_what_some_clients_leave_out_is_0_and_false(self, desk: Desk) -> None:
        desk.update_topic(topic_filter_type="0")

        assert desk.topics.by_name["orders"].config == TopicConfig("orders", 4, 4, 6, attributes={})

    def test_a_topic_is_changed(self, desk: Desk) -> None:
        topic = add_topic(desk.topics, "orders", 8)

        reply = desk.update_topic(write_queue_nums=0, read_queue_nums=8)

        assert reply.code == ResponseCode.SUCCESS
        assert (topic.write_queue_count, topic.read_queue_count) == (0, 8)

    def test_what_changes_nothing_is_no_change(self, desk: Desk) -> None:
        add_topic(desk.topics, "orders", 4)
        version = desk.topics.data_version

        reply = desk.update_topic()

        assert reply.code == ResponseCode.SUCCESS
        assert desk.topics.data_version == version
        assert desk.settled == 0

    @pytest.mark.parametrize(
        ("fields", "remark"),
        [
            ({"topic": " "}, "The specified topic is blank."),
            ({"topic": "a/b"}, "The specified topic: a/b, contains illegal characters"),
            ({"topic": "x" * 128}, "is longer than topic max length: 127"),
            ({"topic": "TBW102"}, "The topic[TBW102] is conflict with system topic."),
            ({"topic": "broker-a"}, "The topic[broker-a] is conflict with system topic."),
            ({"topic": "rmq_sys_x"}, "The topic[rmq_sys_x] is conflict with system topic."),
            ({"read_queue_nums": -1}, "readQueueNums = [-1] value invalid"),
            ({"write_queue_nums": QUEUES_MAX + 1}, "writeQueueNums = [16385] value invalid"),
            ({"perm": 8}, "perm = [8] value invalid"),
            ({"topic_filter_type": "TAG"}, "topicFilterType = [TAG] value invalid"),
        ],
    )
    def test_what_cannot_be_is_refused(
        self, desk: Desk, fields: dict[str, Any], remark: str
    ) -> None:
        before = desk.topics.table()

        reply = desk.update_topic(**fields)

        assert reply.code == ResponseCode.INVALID_PARAMETER
        assert reply.remark is not None
        assert remark in reply.remark
        assert desk.topics.table() == before

    def test_a_missing_field_is_named(self, desk: Desk) -> None:
        command = request(RequestCode.UPDATE_AND_CREATE_TOPIC)

        reply = desk.ask(command)

        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert reply.remark is not None
        assert "topic" in reply.remark

    @pytest.mark.slow  # reads all recordings
    def test_what_was_recorded_is_understood(self, desk: Desk) -> None:
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        recorded = recorded_requests(code)

        replies = [desk.ask(command) for command in recorded]

        assert recorded
        assert {reply.code for reply in replies} == {ResponseCode.SUCCESS}
        assert desk.topics.by_name["AdmTopic"].queue_count == 4


class TestListsOfTopics:
    def test_all_are_made_or_changed_and_settled_once(self, desk: Desk) -> None:
        known = add_topic(desk.topics, "bills", 8)
        add_topic(desk.topics, "same", 4)

        reply = desk.update_topics(
            TopicConfig("orders", 4, 2, attributes={"+message.type": "FIFO"}),
            TopicConfig("same", 4, 4),
            TopicConfig("bills", 8, 1),
        )

        assert reply.code == ResponseCode.SUCCESS
        made = desk.topics.by_name["orders"].config
        assert made == TopicConfig("orders", 4, 2, attributes={"message.type": "FIFO"})
        assert (known.read_queue_count, known.write_queue_count) == (8, 1)
        assert desk.settled == 1

    def test_attributes_can_be_deleted(self, desk: Desk) -> None:
        config = TopicConfig("orders", 4, 4, attributes={"message.type": "FIFO"})
        topic = desk.topics.put(config)

        desk.update_topics(TopicConfig("orders", 4, 4, attributes={"-message.type": ""}))

        assert topic.config.attributes == {}

    @pytest.mark.parametrize(
        "wrong",
        [
            TopicConfig("a/b"),
            TopicConfig("TBW102"),
            TopicConfig("x", -1),
            TopicConfig("x", attributes={"+colour": "red"}),
        ],
    )
    def test_none_is_made_if_one_cannot_be(self, desk: Desk, wrong: TopicConfig) -> None:
        before = desk.topics.table()

        reply = desk.update_topics(TopicConfig("orders"), wrong)

        assert reply.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR)
        assert desk.topics.table() == before
        assert desk.settled == 0

    def test_a_long_list_is_read_and_nothing_is_lost(self, desk: Desk) -> None:
        configs = [TopicConfig(f"T{number}") for number in range(300)]

        assert desk.update_topics(*configs).code == ResponseCode.SUCCESS

        assert {config.topic_name for config in configs} <= desk.topics.by_name.keys()
        assert desk.settled == 1


class TestAttributes:
    def test_they_are_added_changed_and_deleted(self) -> None:
        made = altered(None, "+message.type=FIFO,+queue.type=SimpleCQ")
        assert made == {"message.type": "FIFO", "queue.type": "SimpleCQ"}

        assert altered(made, "+message.type=DELAY")["message.type"] == "DELAY"
        assert altered(made, "-message.type") == {"queue.type": "SimpleCQ"}
        assert altered(made, "") == made

    @pytest.mark.parametrize(
        ("before", "changes", "remark"),
        [
            (None, "message.type=FIFO", "add/alter attribute format is wrong: message.type"),
            (None, "message.type", "delete attribute format is wrong: message.type"),
            (None, "+=x", "kv string format wrong."),
            (None, "+message.type=NORMAL,+message.type=FIFO", "alter duplication key. key: "),
            (None, "-message.type", "only add attribute is supported while creating topic. key: "),
            (None, "+colour=red", "unsupported key: colour"),
            (None, "+reserve.time=1", "unsupported key: reserve.time"),
            (None, "+message.type=ODD", "value is not in set: "),
            (None, "+queue.type=BatchCQ", "value is not in set: [SimpleCQ]"),
            (None, "+cleanup.policy=COMPACTION", "value is not in set: [DELETE]"),
            ({}, "-message.type", "attempt to delete a nonexistent key: message.type"),
            ({}, "+queue.type=SimpleCQ", "attempt to update an unchangeable attribute. key: "),
            ({}, ",", "delete attribute format is wrong: "),
        ],
    )
    def test_what_cannot_be_is_refused(
        self, before: dict[str, str] | None, changes: str, remark: str
    ) -> None:
        with pytest.raises(BrokerError) as refusal:
            altered(before, changes)

        assert refusal.value.response_code == ResponseCode.SYSTEM_ERROR
        assert refusal.value.remark.startswith(remark)


class TestGroups:
    def test_a_group_is_made_as_it_was_wanted(self, desk: Desk) -> None:
        config = SubscriptionGroupConfig("readers", retry_max_times=3, consume_enable=False)

        reply = desk.update_group(bodies.encode(config))

        assert reply.code == ResponseCode.SUCCESS
        made = desk.groups.by_name["readers"].config
        assert (made.retry_max_times, made.consume_enable) == (3, False)
        assert desk.settled == 1

    def test_what_only_5_x_knows_is_filled_in(self, desk: Desk) -> None:
        desk.update_group('{"groupName":"readers"}')

        assert desk.groups.by_name["readers"].config == SubscriptionGroupConfig.with_defaults(
            "readers"
        )

    def test_what_changes_nothing_is_no_change(self, desk: Desk) -> None:
        desk.groups.obtain("readers")
        version = desk.groups.data_version

        reply = desk.update_group('{"groupName":"readers"}')

        assert reply.code == ResponseCode.SUCCESS
        assert desk.groups.data_version == version

    def test_a_group_is_changed(self, desk: Desk) -> None:
        group = desk.groups.obtain("readers")

        desk.update_group('{"groupName":"readers","consumeBroadcastEnable":false}')

        assert group is not None
        assert not group.config.consume_broadcast_enable

    @pytest.mark.parametrize(
        ("body", "code", "remark"),
        [
            ("", 29, "body of 0 bytes"),
            ('{"groupName":"' + "x" * 40_000 + '"}', 29, "body of 40016 bytes"),
            ('{"groupName":" "}', 29, "The specified group is blank."),
            ('{"groupName":"a b"}', 29, "The specified group: a b, contains illegal characters"),
            ('{"groupName":"g","retryQueueNums":20000}', 29, "retryQueueNums = [20000]"),
            ('{"groupName":"g","attributes":{"+lite":"x"}}', 1, "unsupported key: lite"),
            ("{}", 1, "groupName"),
            ("[1]", 1, ""),
            ('{"groupName":', 1, ""),
        ],
    )
    def test_what_cannot_be_is_refused(self, desk: Desk, body: str, code: int, remark: str) -> None:
        before = desk.groups.table()

        reply = desk.update_group(body)

        assert reply.code == code, reply
        assert reply.remark
        assert remark in reply.remark
        assert desk.groups.table() == before

    @pytest.mark.slow  # reads all recordings
    def test_what_was_recorded_is_understood(self, desk: Desk) -> None:
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        recorded = recorded_requests(code)

        replies = [desk.ask(command) for command in recorded]

        assert recorded
        assert {reply.code for reply in replies} == {ResponseCode.SUCCESS}
        assert not desk.groups.by_name["GID_adm"].config.consume_from_min_enable


class TestListsOfGroups:
    def test_all_are_made_or_changed_and_settled_once(self, desk: Desk) -> None:
        known = desk.groups.obtain("readers")
        assert known is not None

        reply = desk.update_groups(
            SubscriptionGroupConfig("writers", retry_max_times=2),
            SubscriptionGroupConfig("readers", retry_max_times=3),
        )

        assert reply.code == ResponseCode.SUCCESS
        assert desk.groups.by_name["writers"].config.retry_max_times == 2
        assert known.config.retry_max_times == 3
        assert desk.settled == 1

    @pytest.mark.parametrize("wrong", ["", "a b"])
    def test_none_is_made_if_one_cannot_be(self, desk: Desk, wrong: str) -> None:
        before = desk.groups.table()

        reply = desk.update_groups(
            SubscriptionGroupConfig("writers"), SubscriptionGroupConfig(wrong)
        )

        assert reply.code == ResponseCode.INVALID_PARAMETER
        assert desk.groups.table() == before
        assert desk.settled == 0
