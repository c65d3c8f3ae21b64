"""A received message shows what was stored, lazily, and takes one decision."""

import gc
import sys
import threading
import weakref
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from cometmq.client.core.message import (
    ACK,
    DEAD_LETTER,
    RETRY,
    SUSPEND,
    Decision,
    DecisionKind,
    Message,
    Mode,
    Source,
    messages_in,
    redelivered,
    settle,
)
from cometmq.client.core.value_codecs import BYTES, JSON, ValueCodec, codec_for
from cometmq.codec import batch, record, sysflag
from cometmq.codec import properties as property_string
from cometmq.codec.batch import BatchItem
from cometmq.codec.compression import compress
from cometmq.codec.sysflag import CompressionType, with_compression
from cometmq.errors import DecisionError, DecodeError, MissingDependency, RemoteProtocolError
from cometmq.model.offsets import MessageQueue

HOST = record.pack_host("10.0.0.5", 10911)
HOST_V6 = record.pack_host("2001:db8::1", 50000)
OFFSET_ID = "0A00000500002A9F0000000000001000"


class Order(msgspec.Struct):
    number: int


class CountingCodec:
    """Counts how often a body is decoded."""

    def __init__(self) -> None:
        self.calls = 0

    def encode(self, value: list[bytes], /) -> bytes:
        return b"".join(value)

    def decode(self, body: bytes, /) -> list[bytes]:
        self.calls += 1
        return [body]


def stored(
    topic: str = "orders",
    body: bytes = b"body",
    properties: dict[str, str] | None = None,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    queue_offset: int = 7,
) -> bytes:
    room = bytearray(len(body) + 1024)
    size = record.encode_into(
        room, 0, topic.encode(), body, property_string.encode(properties or {}).encode(), 3,
        queue_offset, 4096, 2000, 1000, HOST_V6 if sys_flag & sysflag.BORN_HOST_V6 else HOST, HOST,
        5, sys_flag, reconsume_times, 0,
    )  # fmt: skip
    return bytes(room[:size])


def received(
    codec: ValueCodec[Any] = BYTES, mode: Mode | None = None, namespace: str = "", **fields: Any
) -> Message[Any]:
    source = Source("broker-a", codec, "billing", namespace, mode)
    (message,) = messages_in(stored(**fields), source)
    return message


def test_a_message_shows_what_was_stored() -> None:
    message = received(properties={"UNIQ_KEY": "7F00", "TAGS": "new", "KEYS": "a  b", "x": "y"})

    assert (message.topic, message.delivered_from) == ("orders", "orders")
    assert message.queue == MessageQueue("orders", "broker-a", 3)
    assert (message.broker_name, message.queue_id, message.queue_offset) == ("broker-a", 3, 7)
    assert (message.physical_offset, message.offset_id) == (4096, OFFSET_ID)
    assert (message.message_id, message.unique_key) == ("7F00", "7F00")
    assert (message.tag, message.keys) == ("new", ("a", "b"))
    assert dict(message.properties) == {
        "UNIQ_KEY": "7F00",
        "TAGS": "new",
        "KEYS": "a  b",
        "x": "y",
    }
    assert (message.body, message.value) == (b"body", b"body")
    assert (message.body_bytes, message.stored_bytes) == (4, message.record.size)
    assert (message.born_ms, message.stored_ms) == (1000, 2000)
    assert (message.born_host, message.store_host) == ("10.0.0.5:10911", "10.0.0.5:10911")
    assert (message.flag, message.sys_flag, message.reconsume_times) == (5, 0, 0)


def test_a_message_without_properties_has_an_offset_id_and_nothing_else() -> None:
    message = received()

    assert (message.message_id, message.unique_key) == (OFFSET_ID, None)
    assert (message.tag, message.keys, message.ordering_key) == (None, (), None)
    assert (message.transaction_id, message.decision) == (None, None)
    assert dict(message.properties) == {}


def test_an_ipv6_host_is_in_brackets() -> None:
    message = received(sys_flag=sysflag.BORN_HOST_V6)

    assert message.born_host == "[2001:db8::1]:50000"


def test_properties_say_the_same_before_and_after_they_are_decoded() -> None:
    message = received(topic="%RETRY%billing", properties={"TAGS": "a", "RETRY_TOPIC": "orders"})
    before = (message.tag, message.keys, message.message_id)

    assert message.properties["TAGS"] == "a"

    assert (message.tag, message.keys, message.message_id) == before
    assert message.topic == "orders"


@pytest.mark.parametrize(
    ("topic", "properties", "restored", "delivered_from"),
    [
        ("orders", {"RETRY_TOPIC": "other"}, "orders", "orders"),
        ("%RETRY%billing", {"RETRY_TOPIC": "orders"}, "orders", "%RETRY%billing"),
        ("%RETRY%billing", {}, "%RETRY%billing", "%RETRY%billing"),
        ("%DLQ%billing", {"RETRY_TOPIC": "orders"}, "%DLQ%billing", "%DLQ%billing"),
        ("ns%orders", {}, "orders", "orders"),
        ("%RETRY%ns%billing", {"RETRY_TOPIC": "ns%orders"}, "orders", "%RETRY%billing"),
        ("other%orders", {}, "other%orders", "other%orders"),
    ],
)
def test_a_retried_message_shows_the_topic_it_was_sent_to(
    topic: str, properties: dict[str, str], restored: str, delivered_from: str
) -> None:
    message = received(topic=topic, properties=properties, namespace="ns")

    assert message.topic == message.topic == restored
    assert message.delivered_from == message.queue.topic == delivered_from


@pytest.mark.parametrize("name", ["__SHARDINGKEY", "SHARDING_KEY", "__SHARDING_KEY"])
def test_an_ordering_key_is_found_in_every_dialect(name: str) -> None:
    assert received(properties={name: "customer-1"}).ordering_key == "customer-1"


@pytest.mark.parametrize(
    ("properties", "sys_flag", "transaction_id"),
    [
        ({"UNIQ_KEY": "7F00"}, 0, None),
        ({"UNIQ_KEY": "7F00", "TRAN_MSG": "true"}, 0, "7F00"),
        ({"UNIQ_KEY": "7F00", "TRAN_MSG": "false"}, 0, None),
        ({"UNIQ_KEY": "7F00"}, 0x8, "7F00"),
        ({"UNIQ_KEY": "7F00", "__transactionId__": "T1"}, 0, "T1"),
    ],
)
def test_a_message_of_a_transaction_knows_its_id(
    properties: dict[str, str], sys_flag: int, transaction_id: str | None
) -> None:
    message = received(properties=properties, sys_flag=sys_flag)

    assert message.transaction_id == transaction_id


def test_a_value_is_what_the_declared_type_makes_of_the_body() -> None:
    source = Source("broker-a", codec_for(Order))
    (message,) = messages_in(stored(body=b'{"number":7}'), source)

    order: Order = message.value

    assert order == Order(7)


def test_a_value_is_decoded_when_first_asked_for_and_then_kept() -> None:
    codec = CountingCodec()
    message = received(codec)
    assert codec.calls == 0

    first, second = message.value, message.value

    assert first is second
    assert codec.calls == 1


def test_a_value_of_none_is_kept_too() -> None:
    assert received(JSON, body=b"null").value is None


def test_a_body_of_another_type_is_an_error_that_names_the_message() -> None:
    message = received(codec_for(Order), body=b"hello", properties={"UNIQ_KEY": "7F00"})

    with pytest.raises(DecodeError) as caught:
        _ = message.value

    assert (caught.value.message_id, caught.value.type_name) == ("7F00", "Order")
    assert isinstance(caught.value.__cause__, msgspec.DecodeError)
    assert message.body == b"hello"


@pytest.mark.parametrize("kind", list(CompressionType))
def test_a_compressed_body_is_read_as_it_was_sent(kind: CompressionType) -> None:
    original = b"abc" * 1000
    packed = compress(original, kind)

    message = received(body=packed, sys_flag=with_compression(0, kind))

    assert message.body is message.body
    assert message.value == message.body == original
    assert message.body_bytes == len(packed)


@pytest.mark.parametrize(
    ("body", "sys_flag"),
    [(b"no zlib", 0x1), (b"x", 0x701), (compress(bytes(101), CompressionType.ZLIB), 0x1)],
)
def test_a_body_that_cannot_be_decompressed_fails_when_it_is_read(
    body: bytes, sys_flag: int
) -> None:
    source = Source("broker-a", BYTES, body_bytes_max=100)
    (message,) = messages_in(stored(body=body, sys_flag=sys_flag), source)

    with pytest.raises(DecodeError, match=f"message {OFFSET_ID} cannot be read as compressed"):
        _ = message.body

    assert message.record.body == body


def test_a_missing_compression_package_is_not_called_a_broken_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    message = received(JSON, sys_flag=with_compression(0, CompressionType.LZ4))

    with pytest.raises(MissingDependency, match="lz4"):
        _ = message.value


def test_nothing_of_a_message_can_be_changed() -> None:
    message = received(properties={"TAGS": "a"})

    for name in ("topic", "value", "record", "source", "_decision", "extra"):
        with pytest.raises(AttributeError):
            setattr(message, name, "x")
    with pytest.raises(TypeError):
        message.properties["TAGS"] = "b"  # type: ignore[index]


def test_messages_are_told_apart_even_when_they_say_the_same() -> None:
    first, second = messages_in(stored() * 2, Source("broker-a", BYTES))

    assert first != second
    assert len({first, second}) == 2


def test_a_text_for_people_is_short_and_without_the_body() -> None:
    message = received(body=b"secret" * 100, properties={"UNIQ_KEY": "7F00", "TAGS": "new"})

    assert repr(message) == (
        "<Message 7F00 topic='orders' tag='new' broker='broker-a' queue=3 offset=7 body_bytes=600>"
    )
    assert "tag" not in repr(received())


def test_a_message_that_its_own_value_refers_to_is_collected() -> None:
    """Handlers attach messages to what they decoded."""

    class Attached(dict[str, Any]):
        pass

    message = received(codec_for(dict), body=b"{}")
    attached = Attached(message=message)
    message.value["attached"] = attached
    gone = weakref.ref(attached)

    del message, attached
    gc.collect()

    assert gone() is None


def test_threads_that_read_at_the_same_time_see_the_same() -> None:
    bodies = [b'{"number":%d}' % number for number in range(200)]
    source = Source("broker-a", codec_for(Order))
    messages = messages_in(
        b"".join(stored(body=body, properties={"TAGS": "a"}) for body in bodies), source
    )
    seen: list[list[tuple[object, ...]]] = []

    def read() -> None:
        seen.append([(m.value, m.properties, m.tag, m.topic) for m in messages])

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(seen) == 4
    assert all(one == seen[0] for one in seen)


def test_a_damaged_pull_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        messages_in(stored() + b"\0", Source("broker-a", BYTES))


@pytest.mark.parametrize("packed", [False, True])
def test_an_inner_batch_becomes_its_messages(packed: bool) -> None:
    items = [BatchItem(n, b"body-%d" % n, b"TAGS\x01t%d\x02" % n) for n in range(2)]
    body, flag = batch.encode(items), sysflag.INNER_BATCH | sysflag.NEED_UNWRAP
    if packed:
        body = compress(body, CompressionType.LZ4)
        flag = with_compression(flag, CompressionType.LZ4)
    data = stored() + stored(body=body, sys_flag=flag, queue_offset=8) + stored(queue_offset=10)

    found = messages_in(data, Source("broker-a", BYTES))

    assert [one.body for one in found] == [b"body", b"body-0", b"body-1", b"body"]
    assert [one.queue_offset for one in found] == [7, 8, 9, 10]
    assert [(one.tag, one.flag) for one in found] == [(None, 5), ("t0", 0), ("t1", 1), (None, 5)]


def test_an_inner_batch_that_cannot_be_read_stays_one_message() -> None:
    flag = sysflag.INNER_BATCH | sysflag.NEED_UNWRAP

    (message,) = messages_in(stored(sys_flag=flag), Source("broker-a", BYTES))

    assert message.body == b"body"


@pytest.mark.parametrize("mode", list(Mode))
def test_a_message_is_acknowledged_once(mode: Mode) -> None:
    message = received(mode=mode)

    message.ack()

    assert message.decision is ACK
    with pytest.raises(DecisionError, match="ack already; decide once"):
        message.ack()


@pytest.mark.parametrize(
    ("mode", "arguments", "decision"),
    [
        (Mode.CONCURRENT, {}, RETRY),
        (Mode.CONCURRENT, {"delay_level": 0}, RETRY),
        (Mode.CONCURRENT, {"delay_level": 1}, Decision(DecisionKind.RETRY, 1)),
        (Mode.CONCURRENT, {"delay_level": 18}, Decision(DecisionKind.RETRY, 18)),
        (Mode.ORDERLY, {}, SUSPEND),
        (Mode.ORDERLY, {"suspend_ms": 10}, Decision(DecisionKind.SUSPEND, 0, 10)),
        (Mode.ORDERLY, {"suspend_ms": 30_000}, Decision(DecisionKind.SUSPEND, 0, 30_000)),
    ],
)
def test_a_retry_goes_back_to_the_broker_or_holds_the_queue(
    mode: Mode, arguments: dict[str, int], decision: Decision
) -> None:
    message = received(mode=mode)

    message.retry(**arguments)

    assert message.decision == decision
    with pytest.raises(DecisionError, match="already"):
        message.dead_letter()


@pytest.mark.parametrize(
    ("mode", "arguments"),
    [
        (Mode.CONCURRENT, {"delay_level": 19}),
        (Mode.CONCURRENT, {"delay_level": -1}),
        (Mode.CONCURRENT, {"delay_level": 2.0}),
        (Mode.CONCURRENT, {"delay_level": True}),
        (Mode.CONCURRENT, {"delay_level": timedelta(seconds=5)}),
        (Mode.CONCURRENT, {"suspend_ms": 100}),
        (Mode.ORDERLY, {"delay_level": 3}),
        (Mode.ORDERLY, {"suspend_ms": 9}),
        (Mode.ORDERLY, {"suspend_ms": 30_001}),
        (Mode.ORDERLY, {"suspend_ms": 100.0}),
        (Mode.BROADCAST, {}),
        (None, {}),
    ],
)
def test_a_retry_that_makes_no_sense_raises_and_decides_nothing(
    mode: Mode | None, arguments: dict[str, Any]
) -> None:
    message = received(mode=mode)

    with pytest.raises(DecisionError) as caught:
        message.retry(**arguments)

    assert caught.value.message_id == OFFSET_ID
    assert caught.value.next_step
    assert message.decision is None


@pytest.mark.parametrize("mode", [Mode.CONCURRENT, Mode.ORDERLY])
def test_a_message_can_be_given_up(mode: Mode) -> None:
    message = received(mode=mode)

    message.dead_letter()

    assert message.decision is DEAD_LETTER


def test_a_broadcast_message_cannot_be_given_up() -> None:
    with pytest.raises(DecisionError, match="never delivered again"):
        received(mode=Mode.BROADCAST).dead_letter()


@pytest.mark.parametrize("name", ["ack", "retry", "dead_letter"])
def test_nothing_can_be_decided_about_a_browsed_message(name: str) -> None:
    message = received(mode=None)

    with pytest.raises(DecisionError, match="does not come from a consumer that waits"):
        getattr(message, name)()


def test_a_delivery_ends_with_the_handlers_decision_or_the_default() -> None:
    silent, decided = received(mode=Mode.CONCURRENT), received(mode=Mode.CONCURRENT)
    decided.retry(delay_level=3)

    outcomes = settle(silent, ACK), settle(decided, ACK)

    assert outcomes == (ACK, Decision(DecisionKind.RETRY, 3))
    for message in (silent, decided):
        with pytest.raises(DecisionError, match="already"):
            message.retry()


def test_a_message_handled_again_from_memory_is_undecided_and_counted() -> None:
    message = received(mode=Mode.ORDERLY, reconsume_times=2)
    message.retry()

    again = redelivered(redelivered(message))

    assert (again.decision, again.reconsume_times) == (None, 4)
    assert message.reconsume_times == 2
    assert again.record is message.record
