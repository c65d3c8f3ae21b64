import zlib
from typing import Any

import pytest

from cometmq.client.core import outgoing
from cometmq.client.core.outgoing import COMPRESSIONS, MessageKind, Outgoing, Writer
from cometmq.codec import properties, sysflag
from cometmq.codec.compression import CompressionType, decompress
from cometmq.errors import InvalidArgument
from cometmq.model.limits import PROPERTIES_BYTES_MAX
from tests.interop import vectors

ID = "7F00000100002A139A5D0AE4D1A30000"


def written(body: bytes = b"x", **arguments: Any) -> Outgoing:
    return Writer().write("orders", body, ID, **arguments)


def read(message: Outgoing) -> dict[str, str]:
    return properties.decode(message.properties)


LIKE_JAVA: dict[str, dict[str, Any]] = {
    "plain": {},
    "tag": {"tag": "TagA"},
    "tag and keys": {"tag": "TagA", "keys": "k1 k2"},
    "does not wait": {"tag": "TagA", "keys": "k1", "wait_store": False},
    "delay level": {"tag": "TagA", "keys": "k1", "delay_level": 3},
    "list of keys": {"keys": ["k1", "k2"]},
    "user property": {"tag": "TagA", "properties": {"color": "red"}},
    "half": {"tag": "TagA", "system": outgoing.half("vectors")},
}
USUAL = {"plain", "tag", "tag and keys", "does not wait", "list of keys"}
"""Whose text is Java's to the byte; the order of rarer properties is not."""


@pytest.mark.parametrize("name", LIKE_JAVA)
def test_a_message_has_the_properties_that_java_gives_it(name: str) -> None:
    (vector,) = (
        one
        for one in vectors.read("client-producer-properties")
        if one["name"] == name and "5.5.0" in one["releases"]
    )

    message = written(**LIKE_JAVA[name])

    assert read(message) == vector["properties"]
    if name in USUAL:
        assert message.properties == vector["text"]


def test_a_namespace_is_in_the_topic_and_in_a_property() -> None:
    (vector,) = (
        one
        for one in vectors.read("client-producer-properties")
        if one["name"] == "namespace" and "5.5.0" in one["releases"]
    )

    message = Writer(namespace="ns").write("orders", b"x", ID)

    assert message.topic == "ns%orders"
    assert message.properties == vector["text"]


def test_a_plain_message_is_what_was_given() -> None:
    message = written(b"body", tag="TagA", keys="k1", flag=-7)

    assert message == Outgoing(
        topic="orders",
        body=b"body",
        properties=message.properties,
        sys_flag=0,
        flag=-7,
        unique_id=ID,
        kind=MessageKind.NORMAL,
        tag="TagA",
        keys="k1",
        wait_store=True,
    )


def test_an_empty_tag_and_no_keys_are_none() -> None:
    assert read(written(tag="", keys=[])) == {"UNIQ_KEY": ID, "WAIT": "true"}
    assert read(written(tag=None, keys=iter(()))) == {"UNIQ_KEY": ID, "WAIT": "true"}


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        ({"delay_level": 18}, "DELAY", "18"),
        ({"delay_ms": 1500}, "TIMER_DELAY_MS", "1500"),
        ({"deliver_at_ms": 1_700_000_000_000}, "TIMER_DELIVER_MS", "1700000000000"),
    ],
)
def test_a_delay_is_a_property_and_a_kind(arguments: dict[str, Any], name: str, value: str) -> None:
    message = written(**arguments)

    assert read(message)[name] == value
    assert message.kind is MessageKind.DELAY
    assert outgoing.is_timed(message) == name.startswith("TIMER")


def test_what_only_looks_like_a_time_of_delivery_is_none() -> None:
    message = written(delay_level=1, properties={"MY_TIMER_DELAY_MS": "TIMER_DELAY_MS"})

    assert not outgoing.is_timed(message)
    assert not outgoing.is_timed(written())


def test_no_delay_at_all_is_a_plain_message() -> None:
    assert written(delay_ms=0) == written()


def test_an_ordering_key_is_kept_with_the_message() -> None:
    assert read(written(ordering_key="user-17"))["__SHARDINGKEY"] == "user-17"


def test_an_ordering_key_may_be_said_twice_but_not_differently() -> None:
    same = {"__SHARDINGKEY": "a"}

    assert read(written(ordering_key="a", properties=same))["__SHARDINGKEY"] == "a"
    with pytest.raises(InvalidArgument, match="two ordering keys"):
        written(ordering_key="b", properties=same)


def test_a_half_message_says_so_in_its_flags() -> None:
    message = written(system=outgoing.half("g"))

    assert message.kind is MessageKind.HALF
    assert sysflag.transaction_type(message.sys_flag) is sysflag.TransactionType.PREPARED
    assert read(message)["PGROUP"] == "g"


def test_a_half_message_cannot_be_delayed() -> None:
    with pytest.raises(InvalidArgument, match="cannot be delayed"):
        written(system=outgoing.half("g"), delay_level=1)


def test_a_request_says_who_waits_for_the_answer() -> None:
    message = written(system=outgoing.request("id-1", "10.0.0.1@x", 3000))

    assert message.kind is MessageKind.NORMAL
    assert (
        properties.decode(message.properties).items()
        >= {
            "CORRELATION_ID": "id-1",
            "REPLY_TO_CLIENT": "10.0.0.1@x",
            "TTL": "3000",
        }.items()
    )


def test_a_reply_is_a_kind_of_its_own() -> None:
    message = written(system=outgoing.reply("id-1", "10.0.0.1@x", "3000"))

    assert message.kind is MessageKind.REPLY
    assert read(message)["MSG_TYPE"] == "reply"
    assert "TTL" not in read(written(system=outgoing.reply("id-1", "10.0.0.1@x", "")))


def test_replies_go_to_the_clusters_topic_in_whatever_namespace() -> None:
    writer = Writer(namespace="ns")

    message = writer.write(
        "DefaultCluster_REPLY_TOPIC", b"x", ID, system=outgoing.reply("i", "c", "1")
    )

    assert message.topic == "DefaultCluster_REPLY_TOPIC"


class TestCompression:
    def test_small_bodies_stay_as_they_are(self) -> None:
        writer = Writer(compress_over_bytes=100)
        body = bytes(99)

        assert not writer.compresses(body)
        assert writer.write("orders", body, ID).body is body

    @pytest.mark.parametrize("name", COMPRESSIONS)
    def test_large_bodies_are_compressed_and_say_how(self, name: str) -> None:
        kind = COMPRESSIONS[name]
        writer = Writer(compress_over_bytes=100, compression=kind)
        body = bytes(100)

        message = writer.write("orders", body, ID)

        assert writer.compresses(body)
        assert sysflag.compression_type(message.sys_flag) is kind
        assert decompress(message.body, kind, 1000) == body

    def test_the_default_is_javas(self) -> None:
        message = written(bytes(4096))

        assert message.sys_flag == 0x301
        assert message.body == zlib.compress(bytes(4096), 5)
        assert written(bytes(4095)).sys_flag == 0

    def test_a_half_message_keeps_both_flags(self) -> None:
        message = written(bytes(4096), system=outgoing.half("g"))

        assert message.sys_flag == 0x301 | 0x4

    def test_what_goes_into_a_batch_is_left_alone(self) -> None:
        assert written(bytes(4096), is_compressible=False).sys_flag == 0

    def test_the_limit_counts_before_compression(self) -> None:
        writer = Writer(body_bytes_max=5000, compression=CompressionType.ZLIB)

        with pytest.raises(InvalidArgument, match="5001 bytes"):
            writer.write("orders", bytes(5001), ID)


class TestRefusals:
    @pytest.mark.parametrize(
        "arguments",
        [
            {"body": b""},
            {"body": "text"},
            {"tag": "a\x01b"},
            {"tag": " "},
            {"tag": 5},
            {"keys": "a\x02b"},
            {"keys": ["a b"]},
            {"properties": {"TAGS": "x"}},
            {"properties": {"a": "\x01"}},
            {"ordering_key": ""},
            {"ordering_key": "a\x02"},
            {"delay_ms": -1},
            {"delay_ms": 0, "delay_level": 1},
            {"delay_level": 0},
            {"flag": 2**31},
            {"flag": 0.0},
            {"flag": None},
            {"delay_level": True},
            {"properties": {"a": "\ud800"}},
            {"tag": "\ud800"},
        ],
    )
    def test_what_could_not_arrive_is_not_sent(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(InvalidArgument):
            written(**arguments)

    @pytest.mark.parametrize("topic", ["a b", "", "SCHEDULE_TOPIC_XXXX", 5])
    def test_nor_what_has_no_place_to_go(self, topic: Any) -> None:
        with pytest.raises(InvalidArgument):
            Writer().write(topic, b"x", ID)

    def test_a_namespace_counts_as_part_of_the_topic(self) -> None:
        assert Writer().topic("x" * 127)
        with pytest.raises(InvalidArgument, match="130 characters"):
            Writer(namespace="ns").topic("x" * 127)

    def test_properties_must_fit_into_a_record(self) -> None:
        rest = len(written(properties={"a": "x"}).properties) - 1
        longest = "x" * (PROPERTIES_BYTES_MAX - rest)

        assert len(written(properties={"a": longest}).properties) == PROPERTIES_BYTES_MAX
        with pytest.raises(InvalidArgument, match="32768 bytes"):
            written(properties={"a": longest + "x"})

    def test_their_size_counts_as_utf8(self) -> None:
        assert len(written(properties={"a": "é" * 16_000}).properties) < 16_100
        with pytest.raises(InvalidArgument, match="at most 32767"):
            written(properties={"a": "é" * 16_500})

    def test_a_bad_namespace_is_told_at_once(self) -> None:
        with pytest.raises(InvalidArgument, match="namespace"):
            Writer(namespace="a%b")


def test_any_kind_of_bytes_may_be_a_body() -> None:
    assert Writer().write("orders", bytearray(b"ab"), ID).body == b"ab"  # type: ignore[arg-type]


def test_what_is_remembered_of_topics_and_tags_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outgoing, "TOPICS_REMEMBERED_MAX", 3)
    monkeypatch.setattr(outgoing, "TAGS_REMEMBERED_MAX", 3)
    writer = Writer()

    for number in range(10):
        message = writer.write(f"orders-{number}", b"x", ID, tag=f"tag-{number}")
        assert (message.topic, read(message)["TAGS"]) == (f"orders-{number}", f"tag-{number}")

    assert len(writer._topics) <= 3
    assert len(writer._tags) <= 3
