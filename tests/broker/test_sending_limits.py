"""What a producer may not send is refused with the code and the words that clients know."""

import random
import struct
import time

import pytest

from cometmq.codec import properties as message_properties
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.properties import Property
from cometmq.model.limits import BODY_BYTES_MAX, FRAME_BYTES_MAX, PROPERTIES_BYTES_MAX
from cometmq.testing.local_cluster import BlockingCluster
from tests.broker.kit import (
    Peer,
    batch_record,
    bodies_of,
    complaints,
    connected,
    frame,
    send_ext,
    stored_at,
)

ILLEGAL = "the message is illegal, maybe msg body or properties length not matched."
ILLEGAL_CHARACTERS = "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
FORBIDDEN_TOPICS = (
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
)


def properties(**named: str) -> str:
    return message_properties.encode(named)


def test_a_body_may_be_as_large_as_the_limit_and_no_larger(peer: Peer, topic: str) -> None:
    largest = random.Random(1).randbytes(BODY_BYTES_MAX)

    assert stored_at(peer.send(topic, largest)) == 0
    refused = peer.send(topic, largest + b"+")

    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert (refused.remark or "").startswith(ILLEGAL)
    assert peer.max_offset(topic) == 1
    assert bodies_of(peer.pull(topic)) == [largest]


def test_a_message_without_a_body_is_refused(peer: Peer, topic: str) -> None:
    refused = peer.send(topic, b"")

    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert (refused.remark or "").startswith(ILLEGAL)
    assert peer.max_offset(topic) == 0


def test_properties_may_be_as_long_as_the_limit_with_what_the_broker_adds(
    peer: Peer, topic: str
) -> None:
    lengths = range(PROPERTIES_BYTES_MAX - 200, PROPERTIES_BYTES_MAX + 2)

    codes = [peer.send(topic, i=properties(UNIQ_KEY="k", p="x" * n)).code for n in lengths]

    stored = codes.index(ResponseCode.MESSAGE_ILLEGAL)
    assert 0 < stored < 200
    assert set(codes[:stored]) == {ResponseCode.SUCCESS}
    assert set(codes[stored:]) == {ResponseCode.MESSAGE_ILLEGAL}
    assert peer.max_offset(topic) == stored


def test_properties_are_measured_in_bytes(peer: Peer, topic: str) -> None:
    refused = peer.send(topic, i=properties(UNIQ_KEY="k", p="ä" * 16_400))

    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert (refused.remark or "").startswith(ILLEGAL)


@pytest.mark.parametrize(
    "text", ["\x01", "\x02\x02", "name", "name\x01", "\x01value\x02", "a\x01b\x01c\x02", "\x00"]
)
def test_properties_in_disorder_are_stored_or_refused_but_never_fail(
    peer: Peer, topic: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = peer.send(topic, i=text)

    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL)
    assert len(bodies_of(peer.pull(topic))) == (answer.code == ResponseCode.SUCCESS)
    assert complaints(caplog) == []


@pytest.mark.parametrize("code", [10, 310, 320])
@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("", "The specified topic is blank."),
        ("   ", "The specified topic is blank."),
        (
            "no blanks",
            f"The specified topic: no blanks, {ILLEGAL_CHARACTERS}",
        ),
        (
            "a" * 128,
            f"The specified topic: {'a' * 128}, is longer than topic max length: 127",
        ),
    ],
)
def test_a_topic_with_an_impossible_name_is_refused(
    peer: Peer, code: int, name: str, remark: str
) -> None:
    ext = send_ext(name)
    if code == RequestCode.SEND_MESSAGE:
        ext = {"producerGroup": "g", "topic": name, "defaultTopic": "TBW102", "flag": "0"}
        ext |= dict.fromkeys(("defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp"), "0")

    answer = peer.ask(code, ext, b"body")

    assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, remark)


@pytest.mark.parametrize("name", ["ä", "a/b", "../a", "a.b", "a\x00b", "a b", "*", "a\n", "日本"])
def test_a_topic_with_other_characters_is_refused_and_leaves_nothing_behind(
    peer: Peer, cluster: BlockingCluster, name: str
) -> None:
    assert peer.send(name).code == ResponseCode.INVALID_PARAMETER

    folders = {path.name for path in (cluster.broker.folder / "consumequeue").iterdir()}
    assert not {part for part in name.split("/") if part != "a"} & folders
    assert not (cluster.broker.folder / "a").exists()


def test_a_topic_with_the_longest_name_is_taken(peer: Peer) -> None:
    assert stored_at(peer.send("a" * 127)) == 0


@pytest.mark.parametrize("name", FORBIDDEN_TOPICS)
def test_a_topic_of_the_broker_itself_cannot_be_sent_to(peer: Peer, name: str) -> None:
    answer = peer.send(name)

    remark = f"Sending message to topic[{name}] is forbidden."
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, remark)


@pytest.mark.parametrize("queue_id", ["4", "5", "2147483647"])
def test_a_queue_that_the_topic_does_not_have_is_refused(
    peer: Peer, topic: str, queue_id: str
) -> None:
    answer = peer.send(topic, e=queue_id)

    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert (answer.remark or "").startswith(f"request queueId[{queue_id}] is illegal, ")


@pytest.mark.parametrize("queue_id", ["-1", "-2147483648"])
def test_a_negative_queue_lets_the_broker_choose(peer: Peer, topic: str, queue_id: str) -> None:
    answers = [peer.send(topic, e=queue_id) for _ in range(8)]

    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    assert {answer.ext_fields["queueId"] for answer in answers} <= {"0", "1", "2", "3"}
    assert sum(peer.max_offset(topic, queue) for queue in range(4)) == 8


@pytest.mark.parametrize("queue_id", ["-1", "0"])
def test_a_topic_without_queues_takes_nothing(peer: Peer, queue_id: str) -> None:
    name = f"no-queues{queue_id}"
    ext = {"topic": name, "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    counts = {"readQueueNums": "0", "writeQueueNums": "0", "topicSysFlag": "0", "order": "false"}
    assert peer.ask(17, ext | counts).code == ResponseCode.SUCCESS

    refused = peer.send(name, e=queue_id)

    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert (refused.remark or "").startswith(f"request queueId[{queue_id}] is illegal, ")
    assert peer.max_offset(name) == 0


def test_a_topic_that_cannot_be_made_is_unknown(peer: Peer) -> None:
    answer = peer.send("made-after-nothing", c="no-such-default")

    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert (answer.remark or "").startswith("topic[made-after-nothing] not exist, apply first")


@pytest.mark.parametrize("nums", ["-1", "0", "2147483647", "-2147483648"])
def test_a_new_topic_has_at_least_one_queue_and_not_more_than_the_default_has(
    peer: Peer, nums: str
) -> None:
    name = f"made-with-{nums}"

    answer = peer.send(name, d=nums, e="-1")

    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.INVALID_PARAMETER)
    beyond = peer.send(name, e="8")
    assert beyond.code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize(
    "changes",
    [
        {"f": "-1"},
        {"f": str(0x10 | 0x20)},
        {"f": str(0x40 | 0x80)},
        {"f": "2147483647"},
        {"g": "-9223372036854775808"},
        {"g": "9223372036854775807"},
        {"h": "-2147483648"},
        {"j": "-1"},
        {"j": "2147483647"},
        {"l": "-2147483648"},
    ],
    ids=str,
)
def test_absurd_numbers_in_a_send_leave_a_record_that_can_be_read_or_none(
    peer: Peer, topic: str, changes: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    answer = peer.send(topic, b"absurd", **changes)
    assert stored_at(peer.send(topic, b"behind it")) == (answer.code == ResponseCode.SUCCESS)

    found = bodies_of(peer.pull(topic))

    assert found == [b"absurd", b"behind it"][answer.code != ResponseCode.SUCCESS :]
    assert complaints(caplog) == []


@pytest.mark.parametrize("level", ["-1", "0", "-2147483648"])
def test_a_delay_level_below_the_first_delays_nothing(peer: Peer, topic: str, level: str) -> None:
    assert peer.send(topic, i=properties(UNIQ_KEY="k", DELAY=level)).code == ResponseCode.SUCCESS

    assert peer.max_offset(topic) == 1


@pytest.mark.parametrize("level", ["many", "99999999999999999999", "1.5", "1" * 10_000])
def test_a_delay_level_that_is_no_number_is_refused(
    peer: Peer, topic: str, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    refused = peer.send(topic, i=properties(UNIQ_KEY="k", DELAY=level))

    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert (refused.remark or "").startswith(f"the message is illegal: delay level '{level[:9]}")
    assert len(refused.remark or "") < 200
    assert peer.max_offset(topic) == 0
    assert complaints(caplog) == []


BROKEN_BATCHES = {
    "nothing but noise": b"\xff" * 50,
    "a record cut short": batch_record(b"one") + batch_record(b"two")[:-3],
    "a size of nothing": batch_record(b"one", size=0),
    "a negative size": batch_record(b"one", size=-1),
    "a size beyond the body": batch_record(b"one", size=1_000),
    "a size too small": batch_record(b"one", size=24),
    "a body longer than its record": batch_record(b"one", body_bytes=100),
    "a negative body": batch_record(b"one", body_bytes=-3),
    "the most negative body": batch_record(b"one", body_bytes=-(2**31)),
    "properties longer than their record": batch_record(b"one", b"a\x01b", properties_bytes=99),
    "negative properties": batch_record(b"one", b"a\x01b", properties_bytes=-3),
    "bytes behind the last record": batch_record(b"one") + b"\x00",
    "a good record before a bad one": batch_record(b"one") + batch_record(b"two", size=7),
}


@pytest.mark.parametrize("what", BROKEN_BATCHES)
@pytest.mark.parametrize("code", [310, 320])
def test_a_broken_batch_is_refused_as_a_whole(
    peer: Peer, topic: str, code: int, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    refused = peer.ask(code, send_ext(topic, m="true"), BROKEN_BATCHES[what])

    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert (refused.remark or "").startswith(ILLEGAL)
    assert peer.max_offset(topic) == 0
    assert stored_at(peer.send(topic, b"next")) == 0
    assert bodies_of(peer.pull(topic)) == [b"next"]
    assert complaints(caplog) == []


def test_a_batch_larger_than_a_message_may_be_is_refused(peer: Peer, topic: str) -> None:
    one = batch_record(bytes(1_000_000))

    refused = peer.ask(320, send_ext(topic, m="true"), one * 5)

    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert peer.max_offset(topic) == 0


def test_a_batch_of_very_many_messages_is_stored_as_a_whole_or_not_at_all(
    peer: Peer, topic: str
) -> None:
    count = 20_000
    answer = peer.ask(320, send_ext(topic, m="true"), batch_record(b"x") * count)

    expected = count if answer.code == ResponseCode.SUCCESS else 0
    deadline = time.monotonic() + 10
    while peer.max_offset(topic) != expected:  # so many enter the queue in several turns
        assert time.monotonic() < deadline
    assert stored_at(peer.send(topic)) == expected


def test_a_batch_to_a_retry_topic_is_refused(peer: Peer) -> None:
    retry = "%RETRY%batch-group"
    assert peer.ask(200, {}, b'{"groupName":"batch-group"}').code == ResponseCode.SUCCESS

    refused = peer.ask(320, send_ext(retry, m="true"), batch_record(b"one"))

    remark = f"batch request does not support retry group {retry}"
    assert (refused.code, refused.remark) == (ResponseCode.MESSAGE_ILLEGAL, remark)


@pytest.mark.parametrize("code", [310, 320])
@pytest.mark.parametrize(
    "asked",
    [
        {"DELAY": "1"},
        {"DELAY": "many"},
        {"TIMER_DELAY_SEC": "5"},
        {"TIMER_DELAY_MS": "5000"},
        {"TIMER_DELIVER_MS": "1"},
    ],
    ids=str,
)
def test_a_batch_cannot_be_delayed(
    peer: Peer, topic: str, code: int, asked: dict[str, str]
) -> None:
    """Its properties are those of the request: nothing of them is stored with the messages."""
    ext = send_ext(topic, m="true", i=properties(WAIT="true", **asked))

    refused = peer.ask(code, ext, batch_record(b"one") + batch_record(b"two"))

    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert "delay" in (refused.remark or "")
    assert peer.max_offset(topic) == 0


@pytest.mark.parametrize("asked", [{"DELAY": "0"}, {"UNIQ_KEY": "k"}, {"WAIT": "false"}], ids=str)
def test_other_properties_of_a_batch_do_no_harm(
    peer: Peer, topic: str, asked: dict[str, str]
) -> None:
    ext = send_ext(topic, m="true", i=properties(**asked))

    assert stored_at(peer.ask(320, ext, batch_record(b"one") + batch_record(b"two"))) == 0
    assert bodies_of(peer.pull(topic)) == [b"one", b"two"]


def test_a_batch_of_half_messages_is_refused(peer: Peer, topic: str) -> None:
    marked = send_ext(topic, m="true", i=properties(TRAN_MSG="true", PGROUP="producers"))
    flagged = send_ext(topic, m="true", f=str(0x4))

    for ext in (marked, flagged):
        refused = peer.ask(320, ext, batch_record(b"one"))
        assert refused.code == ResponseCode.NO_PERMISSION
        assert (refused.remark or "").endswith("sending transaction message is forbidden")
    assert peer.max_offset(topic) == 0


def test_half_messages_are_refused(peer: Peer, topic: str) -> None:
    marked = peer.send(topic, i=properties(UNIQ_KEY="k", TRAN_MSG="true", PGROUP="producers"))
    flagged = peer.send(topic, f=str(0x4))

    for refused in (marked, flagged):
        assert refused.code == ResponseCode.NO_PERMISSION
        assert (refused.remark or "").endswith("sending transaction message is forbidden")
    assert peer.max_offset(topic) == 0


def test_a_frame_beyond_the_limit_costs_its_sender_the_connection(
    cluster: BlockingCluster, peer: Peer, topic: str
) -> None:
    with connected(cluster.broker.address) as greedy:
        length = struct.pack(">i", FRAME_BYTES_MAX - 3)  # it does not count itself
        greedy.say(length + frame(310, send_ext(topic), bytes(4096))[4:])
        assert greedy.until_closed() == b""

    assert peer.max_offset(topic) == 0


def test_ext_fields_of_megabytes_are_no_harm(peer: Peer, topic: str) -> None:
    assert stored_at(peer.send(topic, unknown="x" * 5_000_000)) == 0

    assert peer.is_served()


def test_many_properties_are_read_in_no_time(peer: Peer, topic: str) -> None:
    """As many as fit: a reader that is slow for each would hold everybody up."""
    text = "".join(f"{number:x}\x01v\x02" for number in range(4_500))

    assert stored_at(peer.send(topic, i=text + properties(UNIQ_KEY="k"))) == 0


def test_a_key_that_is_very_long_or_named_very_often_is_indexed_without_harm(
    peer: Peer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    for keys in ("k" * 32_000, " ".join(["k"] * 16_000), " " * 30_000):
        answer = peer.send(topic, i=properties(**{Property.KEYS: keys, Property.UNIQ_KEY: "u"}))
        assert answer.code == ResponseCode.SUCCESS

    assert len(bodies_of(peer.pull(topic))) == 3
    assert complaints(caplog) == []
