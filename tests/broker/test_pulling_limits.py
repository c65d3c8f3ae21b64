"""What a consumer may not ask for is refused with the code and the words that clients know."""

import json
import time

import pytest

from cometmq.codec import core
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.pull import PullMessageResponse
from cometmq.testing.local_cluster import BlockingCluster
from tests.broker.kit import (
    CLASS_FILTER,
    SUBSCRIPTION,
    SUSPEND,
    Peer,
    bodies_of,
    complaints,
    connected,
    frame,
    pull_ext,
    stored_at,
)

MOST_64 = "9223372036854775807"
LEAST_64 = "-9223372036854775808"
MOST_32 = "2147483647"
LEAST_32 = "-2147483648"


def fill(peer: Peer, topic: str, count: int) -> list[bytes]:
    bodies = [f"body-{number}".encode() for number in range(count)]
    assert [stored_at(peer.send(topic, body)) for body in bodies] == list(range(count))
    return bodies


def heartbeat(group: str, topic: str, **subscription: object) -> bytes:
    """A consumer that tells what it wants of one topic."""
    wanted = {"topic": topic, "subString": "*", "subVersion": 1, **subscription}
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [wanted],
    }
    data = {"clientID": f"client-of-{group}", "consumerDataSet": [consumer]}
    return json.dumps(data).encode()


@pytest.mark.parametrize("code", [11, 361])
@pytest.mark.parametrize("queue_id", ["-1", "4", MOST_32, LEAST_32])
def test_a_queue_that_the_topic_does_not_have_is_refused(
    peer: Peer, topic: str, code: int, queue_id: str
) -> None:
    answer = peer.ask(code, pull_ext(topic, queueId=queue_id))

    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark == (
        f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[4]"
        f" consumer:[127.0.0.1:{peer.port}]"
    )


def test_a_topic_that_does_not_exist_is_said_to_be_unknown(peer: Peer) -> None:
    answer = peer.pull("nobody-made-this")

    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert (answer.remark or "").startswith(
        "topic[nobody-made-this] not exist, apply first please!"
    )


@pytest.mark.parametrize("group", ["", "no blanks", "ä", "a" * 300])
def test_a_group_with_an_impossible_name_is_not_made(peer: Peer, topic: str, group: str) -> None:
    answer = peer.pull(topic, consumerGroup=group)

    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert (answer.remark or "").startswith("subscription group [")


@pytest.mark.parametrize(
    ("offset", "code", "next_offset"),
    [
        ("-1", ResponseCode.PULL_OFFSET_MOVED, 0),
        (LEAST_64, ResponseCode.PULL_OFFSET_MOVED, 0),
        ("3", ResponseCode.PULL_NOT_FOUND, 3),
        ("4", ResponseCode.PULL_OFFSET_MOVED, 3),
        (MOST_64, ResponseCode.PULL_OFFSET_MOVED, 3),
    ],
)
def test_an_offset_outside_the_queue_is_answered_with_where_to_go(
    peer: Peer, topic: str, offset: str, code: int, next_offset: int
) -> None:
    fill(peer, topic, 3)

    answer = peer.pull(topic, queueOffset=offset)

    assert answer.code == code
    header = core.read(answer, PullMessageResponse)
    assert (header.next_begin_offset, header.min_offset, header.max_offset) == (next_offset, 0, 3)
    assert answer.body == b""


@pytest.mark.parametrize("offset", ["-1", "1", MOST_64])
def test_an_offset_in_an_empty_queue_is_answered_with_its_begin(
    peer: Peer, topic: str, offset: str
) -> None:
    answer = peer.pull(topic, queueOffset=offset)

    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert core.read(answer, PullMessageResponse).next_begin_offset == 0


@pytest.mark.parametrize("count", ["0", "-1", LEAST_32])
def test_who_asks_for_no_message_gets_one_all_the_same(peer: Peer, topic: str, count: str) -> None:
    """Otherwise such a client would ask at full speed without ever getting on."""
    first, *_ = fill(peer, topic, 3)

    assert bodies_of(peer.pull(topic, maxMsgNums=count)) == [first]


@pytest.mark.parametrize("count", ["1024", MOST_32])
def test_who_asks_for_very_many_gets_what_the_broker_gives(
    peer: Peer, topic: str, count: str
) -> None:
    bodies = fill(peer, topic, 40)

    assert bodies_of(peer.pull(topic, maxMsgNums=count)) == bodies[:32]


@pytest.mark.parametrize("bytes_max", ["-1", "0", "1", LEAST_32])
def test_a_limit_of_bytes_never_keeps_the_first_message_back(
    peer: Peer, topic: str, bytes_max: str
) -> None:
    first, *_ = fill(peer, topic, 3)

    assert bodies_of(peer.pull(topic, maxMsgBytes=bytes_max))[:1] == [first]


@pytest.mark.parametrize("suspend", ["-1", "0", LEAST_64])
def test_a_pull_that_may_wait_for_no_time_is_answered_at_once(
    peer: Peer, topic: str, suspend: str
) -> None:
    answer = peer.pull(topic, sysFlag=str(SUBSCRIPTION | SUSPEND), suspendTimeoutMillis=suspend)

    assert answer.code == ResponseCode.PULL_NOT_FOUND


def test_a_pull_that_may_wait_for_ever_is_answered_when_a_message_comes(
    peer: Peer, cluster: BlockingCluster, topic: str
) -> None:
    flags = str(SUBSCRIPTION | SUSPEND)
    peer.tell(11, pull_ext(topic, sysFlag=flags, suspendTimeoutMillis=MOST_64), flag=0)
    with connected(cluster.broker.address) as producer:
        assert stored_at(producer.send(topic, b"at last")) == 0

    assert bodies_of(peer.next_command()) == [b"at last"]


@pytest.mark.parametrize("flags", ["-1", MOST_32, "0", str(0x10), str(0x20)])
def test_flags_nobody_knows_do_no_harm(
    peer: Peer, topic: str, flags: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(peer, topic, 1)

    answer = peer.pull(topic, sysFlag=flags, consumerGroup="without-heartbeat")

    assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_NOT_EXIST)
    assert complaints(caplog) == []


@pytest.mark.parametrize("offset", ["-1", LEAST_64])
def test_a_negative_offset_is_not_committed(peer: Peer, topic: str, offset: str) -> None:
    flags = str(SUBSCRIPTION | 0x1)
    group = {"consumerGroup": "committer", "topic": topic, "queueId": "0"}
    fill(peer, topic, 1)
    assert peer.pull(topic, consumerGroup="committer").code == ResponseCode.SUCCESS

    peer.pull(topic, consumerGroup="committer", sysFlag=flags, commitOffset=offset)
    peer.ask(15, {**group, "commitOffset": offset})

    asked = peer.ask(14, {**group, "setZeroIfNotFound": "false"})
    assert asked.code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize("expression", ["a || ", "||", " || a", "a | b", "a" * 100_000, "|| ||"])
def test_an_odd_expression_is_answered_and_remembered_by_nobody(
    peer: Peer, topic: str, expression: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(peer, topic, 1)

    answer = peer.pull(topic, subscription=expression)

    assert answer.code in (
        ResponseCode.SUCCESS,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    )
    assert len(answer.remark or "") < 2_000
    assert complaints(caplog) == []


def test_a_group_that_nobody_knows_of_has_no_subscription(peer: Peer, topic: str) -> None:
    answer = peer.pull(topic, sysFlag="0", consumerGroup="never-seen")

    remark = "the consumer's group info not exist"
    assert (answer.code, answer.remark) == (ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)


def test_a_topic_that_the_group_did_not_subscribe_to_has_no_subscription(
    peer: Peer, topic: str
) -> None:
    assert peer.ask(34, {}, heartbeat("elsewhere", "another-topic")).code == ResponseCode.SUCCESS

    answer = peer.pull(topic, sysFlag="0", consumerGroup="elsewhere")

    remark = "the consumer's subscription not exist"
    assert (answer.code, answer.remark) == (ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)


def test_a_subscription_newer_than_the_heartbeat_is_not_known_yet(peer: Peer, topic: str) -> None:
    """Versions of Go are nanoseconds, which no float holds."""
    version = 1_700_000_000_123_456_789
    beat = heartbeat("versioned", topic, subVersion=version)
    assert peer.ask(34, {}, beat).code == ResponseCode.SUCCESS

    same = peer.pull(topic, sysFlag="0", consumerGroup="versioned", subVersion=str(version))
    newer = peer.pull(topic, sysFlag="0", consumerGroup="versioned", subVersion=str(version + 1))

    assert same.code == ResponseCode.PULL_NOT_FOUND
    remark = "the consumer's subscription not latest"
    assert (newer.code, newer.remark) == (ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)


@pytest.mark.parametrize("kind", ["SQL92", "sql", "x" * 5_000])
def test_a_filter_other_than_tags_is_refused_wherever_it_comes_from(
    peer: Peer, topic: str, kind: str
) -> None:
    group = f"filters-by-{kind[:5]}"
    data = {"topic": topic, "subString": "a > 1", "expressionType": kind, "subVersion": 1}
    check = json.dumps({"clientId": "c", "group": group, "subscriptionData": data}).encode()
    beat = heartbeat(group, topic, subString="a > 1", expressionType=kind)
    assert peer.ask(34, {}, beat).code == ResponseCode.SUCCESS

    for answer in (
        peer.pull(topic, expressionType=kind, subscription="a > 1"),
        peer.pull(topic, consumerGroup=group, sysFlag="0", subVersion="1"),
        peer.ask(46, {}, check),
    ):
        words = f"The broker does not support consumer to filter message by {kind[:5]}"
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith(words)
        assert len(answer.remark or "") < 2_000


def test_a_class_filter_is_refused_wherever_it_comes_from(peer: Peer, topic: str) -> None:
    beat = heartbeat("filters-by-class", topic, subString="a.B", classFilterMode=True)
    assert peer.ask(34, {}, beat).code == ResponseCode.SUCCESS

    for answer in (
        peer.pull(topic, sysFlag=str(SUBSCRIPTION | CLASS_FILTER), subscription="a.B"),
        peer.pull(topic, consumerGroup="filters-by-class", sysFlag="0", subVersion="1"),
    ):
        assert answer.code == ResponseCode.SYSTEM_ERROR
        words = "The broker does not support consumer to filter message by class"
        assert (answer.remark or "").startswith(words)


def test_pulls_held_for_a_connection_that_ends_are_forgotten(
    cluster: BlockingCluster, peer: Peer, topic: str
) -> None:
    flags = str(SUBSCRIPTION | SUSPEND)
    ext = pull_ext(topic, sysFlag=flags, suspendTimeoutMillis="20000")
    with connected(cluster.broker.address) as leaving:
        leaving.say(b"".join(frame(11, ext, opaque=number) for number in range(300)))
        assert leaving.is_served()

    bodies = fill(peer, topic, 2)
    assert bodies_of(peer.pull(topic)) == bodies


def test_very_many_pulls_of_one_connection_are_held_and_all_answered(
    cluster: BlockingCluster, peer: Peer, topic: str
) -> None:
    flags = str(SUBSCRIPTION | SUSPEND)
    ext = pull_ext(topic, sysFlag=flags, suspendTimeoutMillis="20000")
    count = 1_000
    with connected(cluster.broker.address) as patient:
        patient.say(b"".join(frame(11, ext, opaque=number) for number in range(count)))
        assert patient.is_served()
        begun = time.monotonic()
        fill(peer, topic, 1)

        answers = [patient.next_command() for _ in range(count)]

    assert {answer.opaque for answer in answers} == set(range(count))
    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("queue_id", ["-1", "99", MOST_32, LEAST_32])
@pytest.mark.parametrize("code", [14, 29, 30, 31, 32])
def test_questions_about_queues_that_are_not_there_are_answered(
    peer: Peer, topic: str, code: int, queue_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    ext = {"topic": topic, "queueId": queue_id, "consumerGroup": "asker", "timestamp": MOST_64}

    answer = peer.ask(code, ext)

    expected = {14: ResponseCode.QUERY_NOT_FOUND}.get(code, ResponseCode.SUCCESS)
    assert answer.code == expected
    if code in (29, 30, 31):
        assert answer.ext_fields == {"offset": "0"}
    if code == RequestCode.GET_EARLIEST_MSG_STORETIME:
        assert answer.ext_fields == {"timestamp": "-1"}
    assert complaints(caplog) == []


@pytest.mark.parametrize("boundary", ["", "lower", "MIDDLE", "x" * 5_000])
def test_a_boundary_that_is_none_is_refused_or_taken_for_the_lower(
    peer: Peer, topic: str, boundary: str, caplog: pytest.LogCaptureFixture
) -> None:
    ext = {"topic": topic, "queueId": "0", "timestamp": "0", "boundaryType": boundary}

    answer = peer.ask(29, ext)

    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.INVALID_PARAMETER)
    assert len(answer.remark or "") < 2_000
    assert complaints(caplog) == []


def test_offsets_are_only_kept_of_what_exists(peer: Peer, topic: str) -> None:
    right = {"consumerGroup": "keeper", "topic": topic, "queueId": "0", "commitOffset": "1"}
    peer.pull(topic, consumerGroup="keeper")

    codes = [
        peer.ask(15, {**right, **change}).code
        for change in (
            {},
            {"consumerGroup": "nobody-knows-it"},
            {"topic": "nobody-made-it"},
            {"queueId": "-1"},
            {"queueId": "4"},
            {"queueId": MOST_32},
        )
    ]

    assert codes == [
        ResponseCode.SUCCESS,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.INVALID_PARAMETER,
    ]


@pytest.mark.parametrize("offset", ["-1", "1", MOST_64, LEAST_64])
def test_handing_back_what_is_not_there_is_refused(
    peer: Peer, offset: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = peer.ask(36, {"offset": offset, "group": "returns", "delayLevel": "0"})

    remark = f"look message by offset failed, {offset}"
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert complaints(caplog) == []
