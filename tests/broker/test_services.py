"""Queries, replies and resets through a whole broker, as clients of several kinds see them."""

import itertools
import json
import time
from collections.abc import Iterator

import pytest

from cometmq.codec import bodies, core, record
from cometmq.codec.bodies.offsets import ConsumerStatusBody, ResetOffsetBody
from cometmq.codec.codes import LanguageCode, RequestCode, ResponseCode, version_ordinal
from cometmq.codec.command import Command, CommandFlag, encode
from cometmq.codec.headers.pull import PullMessageResponse
from cometmq.codec.headers.send import SendMessageResponse
from cometmq.codec.message_id import decode_offset_id
from cometmq.codec.properties import decode as properties_of
from cometmq.model.offsets import MessageQueue
from cometmq.testing import FakeClock
from cometmq.testing.local_cluster import BlockingCluster, LocalCluster
from tests.broker.kit import Peer, bodies_of, connected, pull_ext, send_ext, stored_at

OLD, NEW = version_ordinal("4.9.8"), version_ordinal("5.5.0")
_numbers = itertools.count()


@pytest.fixture
def group() -> str:
    return f"services-{next(_numbers)}"


@pytest.fixture
def other(cluster: BlockingCluster) -> Iterator[Peer]:
    with connected(cluster.broker.address) as found:
        yield found


def beat(
    peer: Peer, client_id: str, *, version: int = NEW, group: str = "", topic: str = ""
) -> None:
    """A heartbeat: of a consumer if there is a group, else of a producer."""
    wanted = [{"topic": topic, "subString": "*", "subVersion": 1}]
    body = {
        "clientID": client_id,
        "producerDataSet": [] if group else [{"groupName": "producers"}],
        "consumerDataSet": [{"groupName": group, "subscriptionDataSet": wanted}] if group else [],
    }
    command = Command(
        RequestCode.HEART_BEAT,
        LanguageCode.JAVA,
        version,
        opaque=7777,
        body=json.dumps(body).encode(),
    )
    peer.say(encode(command))
    while not (answer := peer.next_command()).is_response:
        pass  # it is told that the group has a new member
    assert (answer.opaque, answer.code) == (7777, ResponseCode.SUCCESS)


def asked(peer: Peer, code: int) -> Command:
    """The next request of that code from the broker."""
    while (command := peer.next_command()).code != code or command.is_response:
        assert not command.is_response, "an answer to nothing"
    return command


def answer(peer: Peer, command: Command, body: bytes = b"") -> None:
    said = Command(0, opaque=command.opaque, flag=CommandFlag.RESPONSE, body=body)
    peer.say(encode(said))


# --- queries


def test_a_message_is_found_in_every_way_there_is(peer: Peer, topic: str) -> None:
    properties = "KEYS\x01order-7\x02UNIQ_KEY\x01ID7\x02TAGS\x01red\x02"
    sent = core.read(peer.send(topic, b"seven", i=properties), SendMessageResponse)
    times = {"beginTimestamp": "0", "endTimestamp": str(2**63 - 1), "maxNum": "32"}

    by_key = peer.ask(12, {"topic": topic, "key": "order-7", **times})
    unique = {"topic": topic, "key": "ID7", "_UNIQUE_KEY_QUERY": "true", "indexType": "U"}
    by_unique_key = peer.ask(12, {**unique, **times})
    by_tag = peer.ask(12, {"topic": topic, "key": "red", "indexType": "T", **times})
    offset = decode_offset_id(sent.msg_id).physical_offset
    by_id = peer.ask(33, {"offset": str(offset)}, binary=True)
    entries = peer.ask(321, {"topic": topic, "queueId": "0", "index": "0", "count": "5"})

    for found in (by_key, by_unique_key, by_tag, by_id):
        assert (found.code, bodies_of(found)) == (ResponseCode.SUCCESS, [b"seven"])
    (entry,) = json.loads(entries.body)["queueData"]
    assert entry["physicOffset"] == offset


def test_what_nobody_sent_is_not_found(peer: Peer, topic: str) -> None:
    ext = {"topic": topic, "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "9"}

    found = peer.ask(12, ext)

    assert found.code == ResponseCode.QUERY_NOT_FOUND
    assert found.remark == "can not find message, maybe time range not correct"


# --- replies


def test_a_reply_travels_to_the_requester(peer: Peer, other: Peer) -> None:
    beat(peer, "requester-1")
    properties = "MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01requester-1\x02CORRELATION_ID\x01c1\x02"
    ext = send_ext("DefaultCluster_REPLY_TOPIC", i=properties)

    other.tell(RequestCode.SEND_REPLY_MESSAGE_V2, ext, b"the reply", flag=0)
    pushed = asked(peer, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
    answer(peer, pushed)
    confirmed = other.next_command()

    assert pushed.body == b"the reply"
    assert pushed.ext_fields["bornHost"] == f"127.0.0.1:{other.port}"
    assert properties_of(pushed.ext_fields["properties"])["CORRELATION_ID"] == "c1"
    assert confirmed.code == ResponseCode.SUCCESS
    sent = core.read(confirmed, SendMessageResponse)
    offset = decode_offset_id(sent.msg_id).physical_offset
    stored = peer.ask(33, {"offset": str(offset)})
    assert bodies_of(stored) == [b"the reply"]


# --- resets


def reset(peer: Peer, topic: str, group: str, **changes: str) -> Command:
    ext = {"topic": topic, "group": group, "timestamp": "0", "isForce": "true", **changes}
    return peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)


def test_a_consumer_is_sent_back_once(peer: Peer, other: Peer, topic: str, group: str) -> None:
    for _ in range(3):
        stored_at(peer.send(topic))
    beat(other, "reader", group=group, topic=topic)
    place = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    commit = {**place, "commitOffset": "3"}
    assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == ResponseCode.SUCCESS

    done = reset(peer, topic, group)

    assert len(bodies.decode(ResetOffsetBody, done.body).offset_table) == 4
    late = peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    assert (late.code, late.remark) == (0, "Offset has been previously reset")
    told = other.pull(topic, consumerGroup=group, queueOffset="3", commitOffset="3", sysFlag="5")
    assert (told.code, told.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert core.read(told, PullMessageResponse).next_begin_offset == 0
    assert peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, place).ext_fields["offset"] == "0"
    again = other.pull(topic, consumerGroup=group)
    assert (again.code, len(list(record.parse_all(again.body)))) == (0, 3)


def test_a_consumer_that_asks_where_to_begin_gets_messages_at_once(
    peer: Peer, topic: str, group: str
) -> None:
    for _ in range(3):
        stored_at(peer.send(topic))
    beat(peer, "late reader", group=group, topic=topic)
    place = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    reset(peer, topic, group, queueId="0", offset="1")

    begin = peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, place).ext_fields["offset"]
    found = peer.pull(topic, consumerGroup=group, queueOffset=begin)

    assert (begin, found.code, len(bodies_of(found))) == ("1", 0, 2)


def test_a_consumer_that_waits_for_messages_is_sent_back_at_once(
    peer: Peer, other: Peer, topic: str, group: str
) -> None:
    for _ in range(3):
        stored_at(peer.send(topic))
    beat(other, "patient reader", group=group, topic=topic)
    waiting = pull_ext(
        topic, consumerGroup=group, queueOffset="3", sysFlag="6", suspendTimeoutMillis="20000"
    )
    other.tell(RequestCode.PULL_MESSAGE, waiting, flag=0)

    reset(peer, topic, group, queueId="0", offset="1")

    told = other.next_command()
    assert (told.code, told.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert core.read(told, PullMessageResponse).next_begin_offset == 1


@pytest.mark.slow
def test_a_member_that_is_busy_for_long_is_sent_back_all_the_same() -> None:
    """It goes on telling of its progress meanwhile, and does not pull."""
    clock = FakeClock()
    often = {"clientScanIntervalMs": "10"}
    with LocalCluster(clock=clock, settings=often) as running:
        for topic in ("orders", "unread"):
            running.create_topic(topic)
        with connected(running.broker.address) as reader:
            for _ in range(3):
                stored_at(reader.send("orders"))
            beat(reader, "busy", group="billing", topic="orders")
            place = {"consumerGroup": "billing", "queueId": "0"}
            for topic in ("orders", "unread"):
                reset(reader, topic, "billing", queueId="0", offset="0")
            for _ in range(7):
                clock.advance(100)
                beat(reader, "busy", group="billing", topic="orders")

            def commit(topic: str) -> str | None:
                ext = {**place, "topic": topic, "commitOffset": "0"}
                return reader.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext).remark

            deadline = time.monotonic() + 10
            while commit("unread") is not None:  # what nobody reads is not kept for him
                assert time.monotonic() < deadline

            assert commit("orders") == "Offset has been previously reset"
            told = reader.pull("orders", consumerGroup="billing", queueOffset="3")
            assert (told.code, told.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
            assert core.read(told, PullMessageResponse).next_begin_offset == 0


def test_only_old_clients_are_told_of_a_reset(
    peer: Peer, other: Peer, topic: str, group: str
) -> None:
    beat(peer, "old", version=OLD, group=group, topic=topic)
    beat(other, "new", version=NEW, group=group, topic=topic)

    with_answer = reset(other, topic, group, timestamp="-1")

    told = asked(peer, RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
    assert told.is_oneway
    assert told.body == with_answer.body
    assert other.is_served()


def test_a_reset_without_a_group_or_topic_is_refused(peer: Peer, topic: str) -> None:
    assert reset(peer, topic, "nobody-here").code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert reset(peer, "nowhere", "nobody-here").code == ResponseCode.TOPIC_NOT_EXIST


def test_consumers_are_asked_for_their_offsets(
    peer: Peer, other: Peer, topic: str, group: str
) -> None:
    beat(peer, "reader", group=group, topic=topic)
    queue = MessageQueue(topic, "broker-0", 2)

    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    other.tell(code, {"topic": topic, "group": group}, flag=0)
    question = asked(peer, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
    answer(peer, question, bodies.encode(ConsumerStatusBody({queue: 5})))
    said = other.next_command()

    assert question.ext_fields["group"] == group
    assert bodies.decode(ConsumerStatusBody, said.body).consumer_table == {"reader": {queue: 5}}


def test_offsets_are_cloned_and_listed(peer: Peer, topic: str, group: str) -> None:
    beat(peer, "reader", group=group, topic=topic)
    for _ in range(4):
        stored_at(peer.send(topic, e="1"))
    commit = {"consumerGroup": group, "topic": topic, "queueId": "1", "commitOffset": "4"}
    peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)

    copy = f"{group}-copy"
    cloned = peer.ask(RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": group, "destGroup": copy})

    assert cloned.code == ResponseCode.SUCCESS
    listed = peer.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body
    assert b'"%s@%s":{1:4}' % (topic.encode(), copy.encode()) in listed
    spans = peer.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": topic, "group": copy})
    assert len(json.loads(spans.body)["consumeTimeSpanSet"]) == 4
