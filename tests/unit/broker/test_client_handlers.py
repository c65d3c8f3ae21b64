"""Requests of clients about themselves and each other, as recorded and as made up."""

import asyncio
import json
from collections.abc import Sequence

import pytest

from cometmq.broker.handlers.reading import BODY_BYTES_MAX, QUICK_BODY_BYTES
from cometmq.codec import bodies, core
from cometmq.codec.bodies.clients import CheckClientBody, HeartbeatData
from cometmq.codec.bodies.queues import (
    MessageRequestMode,
    MessageRequestModeBody,
    QueryAssignmentBody,
)
from cometmq.codec.codes import LanguageCode, RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.clients import GetConsumerListByGroup, UnregisterClient
from cometmq.model.group import MessageModel, SubscriptionData
from cometmq.model.topic import TopicConfig
from tests.golden.wire_frames import RecordedFrame, frames
from tests.unit.broker.client_kit import BROKER, Place, changes_told, consuming, producing
from tests.unit.broker.fake_channel import FakeChannel, Reply, request


@pytest.fixture
def place() -> Place:
    return Place()


def ask(place: Place, command: Command, channel: FakeChannel | None = None) -> Reply:
    [reply] = (channel or FakeChannel()).ask(place.routes, command)
    return reply


def heartbeat(data: HeartbeatData, *, is_oneway: bool = False) -> Command:
    return request(RequestCode.HEART_BEAT, body=bodies.encode(data), is_oneway=is_oneway)


# --- heartbeats


def test_a_heartbeat_is_answered_as_5x_does(place: Place) -> None:
    reply = ask(place, heartbeat(consuming()))

    assert (reply.code, reply.body) == (ResponseCode.SUCCESS, b"")
    assert reply.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}


def test_the_answer_says_when_subscriptions_may_be_left_out(place: Place) -> None:
    reply = ask(place, heartbeat(consuming(fingerprint=-7)))

    assert reply.ext["IS_SUB_CHANGE"] == "false"


def test_a_one_way_heartbeat_counts_and_is_not_answered(place: Place) -> None:
    channel = FakeChannel()

    assert channel.ask(place.routes, heartbeat(consuming(), is_oneway=True)) == []

    assert channel in place.clients.consumer_groups["G"].members


def test_the_notice_comes_before_the_answer(place: Place) -> None:
    channel = FakeChannel()

    ask(place, heartbeat(consuming()), channel)

    assert changes_told(channel) == ["G"]


@pytest.mark.parametrize(
    "body", [b"", b"no json", b"[]", b"{}", b'{"clientID":"c","consumerDataSet":[{}]}']
)
def test_a_body_that_is_no_heartbeat_is_refused(place: Place, body: bytes) -> None:
    reply = ask(place, request(RequestCode.HEART_BEAT, body=body))

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark


def test_a_body_of_absurd_size_is_refused_unread(place: Place) -> None:
    reply = ask(place, request(RequestCode.HEART_BEAT, body=b"x" * (BODY_BYTES_MAX + 1)))

    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert reply.remark == "body of 262145 bytes: more than 262144 make no sense"


def test_more_groups_than_makes_sense_are_refused(place: Place) -> None:
    data = producing("p1", *(f"P{number}" for number in range(1025)))

    reply = ask(place, heartbeat(data))

    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert reply.remark == "1025 groups of one client: at most 1024"


def large(client_id: str = "c1") -> Command:
    topics = dict.fromkeys((f"topic-{number:03}" for number in range(400)), "*")
    command = heartbeat(consuming(client_id, topics=topics))
    assert len(command.body) > QUICK_BODY_BYTES
    return command


def run_later(place: Place, channel: FakeChannel, command: Command) -> list[Reply]:
    async def scenario() -> None:
        place.routes.dispatch(channel, [command])
        await channel.finish()

    asyncio.run(scenario())
    return channel.replies


def test_a_large_heartbeat_is_read_aside_and_counts_all_the_same(place: Place) -> None:
    channel = FakeChannel()

    [reply] = run_later(place, channel, large())

    assert reply.code == ResponseCode.SUCCESS
    assert len(place.clients.consumer_groups["G"].subscriptions) == 400


def test_who_is_gone_before_its_large_heartbeat_was_read_is_not_noted(place: Place) -> None:
    channel = FakeChannel()
    channel.close()

    run_later(place, channel, large())

    assert place.clients.consumer_groups == {}


# --- recorded traffic


def recorded(code: int, source: str | None = None) -> list[RecordedFrame]:
    return [
        frame
        for frame in frames(source)
        if frame.code == code and frame.kind == "request" and frame.sender == "client"
    ]


def command_of(frame: RecordedFrame) -> Command:
    [command], _ = core.decode_frames(frame.raw)
    return command


def sources_with_heartbeats() -> Sequence[str]:
    return ["cpp-0.4.4", "go-v2", "java-4.9.7", "java-5.5.0", "mqadmin-5.5.0", "node-ali-ons"]


@pytest.mark.parametrize("source", sources_with_heartbeats())
def test_heartbeats_of_every_recorded_client_are_understood(place: Place, source: str) -> None:
    found = recorded(34, source)
    assert found
    for frame in found:
        channel = FakeChannel()
        said = json.loads(frame.body)

        reply = ask(place, command_of(frame), channel)

        assert reply.code == ResponseCode.SUCCESS, frame.label
        for consumer in said.get("consumerDataSet", ()):
            group = place.clients.consumer_groups[consumer["groupName"]]
            assert group.members[channel].client_id == said["clientID"], frame.label
            topics = {wanted["topic"] for wanted in consumer["subscriptionDataSet"]}
            assert group.subscriptions.keys() == topics, frame.label
            assert place.topics.get("%RETRY%" + group.name) is not None
        for producer in said.get("producerDataSet", ()):
            assert channel in place.clients.producer_groups[producer["groupName"]].members
        place.clients.on_closed(channel)
        assert (place.clients.consumer_groups, place.clients.producer_groups) == ({}, {})


def test_integers_for_names_and_text_for_numbers_are_understood_as_cpp_means_them(
    place: Place,
) -> None:
    frame = next(f for f in recorded(34, "cpp-0.4.4") if b"GID_cpp" in f.body)

    ask(place, command_of(frame))

    group = place.clients.consumer_groups["GID_cpp"]
    assert group.message_model is MessageModel.CLUSTERING
    wanted = group.subscriptions["Wire"]
    assert wanted.version == 1794780426362
    assert wanted.tags == frozenset({2598919})  # the client says 0
    [member] = group.members.values()
    assert (member.language, member.version) == (LanguageCode.CPP, 63)


def test_versions_of_go_keep_all_their_digits(place: Place) -> None:
    frame = next(f for f in recorded(34, "go-v2") if b"TagA || TagB" in f.body)

    ask(place, command_of(frame))

    wanted = place.clients.consumer_groups["GID_go"].subscriptions["GoTopic"]
    assert str(wanted.version).encode() in frame.body
    assert wanted.version > 2**60
    assert wanted.tags == frozenset({2598919, 2598920})


def test_recorded_good_byes_are_answered_whether_the_client_is_known_or_not(place: Place) -> None:
    found = recorded(35)
    assert found
    for frame in found:
        assert ask(place, command_of(frame)).code == ResponseCode.SUCCESS, frame.label


def test_recorded_sql_subscriptions_are_refused_when_checked(place: Place) -> None:
    found = recorded(46)
    assert found
    for frame in found:
        reply = ask(place, command_of(frame))

        assert reply.code == ResponseCode.SYSTEM_ERROR, frame.label
        assert reply.remark == (
            "The broker does not support consumer to filter message by SQL92"
        ), frame.label


def test_recorded_questions_for_queues_get_the_recorded_answer(place: Place) -> None:
    channel = place.join("10.0.0.5@popc", group="GID_pop")
    [answer, *_] = [f for f in frames("java-5.5.0") if f.request_code == 400]

    for frame in recorded(400):
        reply = ask(place, command_of(frame), channel)

        assert json.loads(reply.body) == json.loads(answer.body), frame.label


# --- leaving


def good_bye(producer_group: str | None, consumer_group: str | None) -> Command:
    header = UnregisterClient("c1", producer_group, consumer_group)
    return request(RequestCode.UNREGISTER_CLIENT, header)


@pytest.mark.parametrize("other", ["", None])
def test_a_client_leaves_the_group_that_is_named(place: Place, other: str | None) -> None:
    channel = place.join("c1")
    place.beat(channel, producing("c1", "P"))

    assert ask(place, good_bye(other, "G"), channel).code == ResponseCode.SUCCESS
    assert place.clients.consumer_groups == {}
    assert list(place.clients.producer_groups) == ["P"]

    assert ask(place, good_bye("P", other), channel).code == ResponseCode.SUCCESS
    assert place.clients.producer_groups == {}


def test_a_good_bye_without_a_client_id_is_refused(place: Place) -> None:
    reply = ask(place, request(RequestCode.UNREGISTER_CLIENT))

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark == "UNREGISTER_CLIENT: field 'clientID' is missing"


# --- who is there


def test_the_members_of_a_group_are_listed(place: Place) -> None:
    place.join("c2")
    place.join("c1")

    reply = ask(place, request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroup("G")))

    assert reply.body == b'{"consumerIdList":["c1","c2"]}'


def test_a_group_without_members_has_no_list(place: Place) -> None:
    reply = ask(place, request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroup("G")))

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark == "no consumer for this group, G"


def test_a_remark_does_not_repeat_what_nobody_would_read(place: Place) -> None:
    header = GetConsumerListByGroup("G" * 100_000)

    reply = ask(place, request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header))

    assert reply.remark is not None
    assert len(reply.remark) < 1000


# --- checks


def check(place: Place, subscription: SubscriptionData | None) -> Reply:
    body = bodies.encode(CheckClientBody("c1", "G", subscription))
    return ask(place, request(RequestCode.CHECK_CLIENT_CONFIG, body=body))


@pytest.mark.parametrize(
    "subscription",
    [None, SubscriptionData("T", "a || b"), SubscriptionData("T", expression_type="")],
)
def test_subscriptions_by_tags_pass_the_check(
    place: Place, subscription: SubscriptionData | None
) -> None:
    assert check(place, subscription).code == ResponseCode.SUCCESS


def test_other_kinds_of_subscriptions_do_not(place: Place) -> None:
    reply = check(place, SubscriptionData("T", "x", expression_type="JAVASCRIPT"))

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark == "The broker does not support consumer to filter message by JAVASCRIPT"


def test_sql_is_accepted_in_heartbeats_all_the_same(place: Place) -> None:
    data = SubscriptionData("T", "a > 1", expression_type="SQL92")
    body = (
        b'{"clientID":"c1","consumerDataSet":[{"groupName":"G","subscriptionDataSet":['
        + bodies.encode(data)
        + b"]}]}"
    )

    reply = ask(place, request(RequestCode.HEART_BEAT, body=body))

    assert reply.code == ResponseCode.SUCCESS
    assert place.clients.consumer_groups["G"].subscriptions["T"].kind == "SQL92"


# --- division by the broker


def assigned(place: Place, client_id: str, **more: object) -> list[int]:
    asked = QueryAssignmentBody(
        more.get("topic", "T"),  # type: ignore[arg-type]
        "G",
        client_id,
        more.get("strategy", "AVG"),  # type: ignore[arg-type]
        more.get("model", MessageModel.CLUSTERING),  # type: ignore[arg-type]
    )
    reply = ask(place, request(RequestCode.QUERY_ASSIGNMENT, body=bodies.encode(asked)))
    assert reply.code == ResponseCode.SUCCESS
    found = json.loads(reply.body)["messageQueueAssignments"]
    assert all(one["mode"] == "PULL" for one in found)
    assert all(one["messageQueue"]["brokerName"] == BROKER for one in found)
    return [one["messageQueue"]["queueId"] for one in found]


def test_members_get_their_shares_of_the_queues_to_pull(place: Place) -> None:
    place.topics.put(TopicConfig("T", 5, 8))
    place.join("c1")
    place.join("c2")

    assert assigned(place, "c1") == [0, 1, 2]
    assert assigned(place, "c2", strategy=None) == [3, 4]
    assert assigned(place, "c2", strategy="AVG_BY_CIRCLE") == [1, 3]


def test_broadcasting_members_get_all_queues(place: Place) -> None:
    place.topics.put(TopicConfig("T", 3, 3))

    assert assigned(place, "c1", model=MessageModel.BROADCASTING) == [0, 1, 2]


def test_strangers_and_topics_that_cannot_be_read_get_nothing(place: Place) -> None:
    place.topics.put(TopicConfig("T", 4, 4))
    place.topics.put(TopicConfig("hidden", 4, 4, perm=2))
    place.join("c1")

    assert assigned(place, "c2") == []
    assert assigned(place, "c1", topic="hidden") == []
    assert assigned(place, "c1", topic="unknown") == []


def test_a_strategy_of_clients_only_is_refused(place: Place) -> None:
    body = bodies.encode(QueryAssignmentBody("T", "G", "c1", "CONSISTENT_HASH"))

    reply = ask(place, request(RequestCode.QUERY_ASSIGNMENT, body=body))

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark is not None
    assert "CONSISTENT_HASH" in reply.remark


# --- pull or pop


def set_mode(place: Place, mode: MessageRequestMode, topic: str = "T", group: str = "G") -> Reply:
    body = bodies.encode(MessageRequestModeBody(topic, group, mode))
    return ask(place, request(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body))


def test_pulling_may_be_set(place: Place) -> None:
    place.topics.put(TopicConfig("T"))

    assert set_mode(place, MessageRequestMode.PULL).code == ResponseCode.SUCCESS


def test_popping_may_not(place: Place) -> None:
    place.topics.put(TopicConfig("T"))

    reply = set_mode(place, MessageRequestMode.POP)

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark == "this broker cannot serve pop consumers: set mode PULL"


def test_the_mode_of_what_does_not_exist_cannot_be_set() -> None:
    place = Place(auto_create_subscription_group=False)
    place.topics.put(TopicConfig("T"))
    mode = MessageRequestMode.PULL

    unknown_group = set_mode(place, mode)
    unknown_topic = set_mode(place, mode, topic="U")
    retries = set_mode(place, mode, topic="%RETRY%G")

    assert unknown_group.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert unknown_group.remark == "subscription group [G] does not exist"
    assert (unknown_topic.code, unknown_topic.remark) == (
        ResponseCode.TOPIC_NOT_EXIST,
        "topic[U] not exist",
    )
    assert (retries.code, retries.remark) == (
        ResponseCode.NO_PERMISSION,
        "topic[%RETRY%G] holds retries: its mode cannot be set",
    )
