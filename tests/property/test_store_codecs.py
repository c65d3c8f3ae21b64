"""The store codecs on values and bytes nobody thought of.

Values make the round trip and agree with the oracle; damaged bytes are refused with
RemoteProtocolError or still are a value, and nothing else happens.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cometmq.codec import (
    batch,
    checkpoint,
    compression,
    index_entry,
    java,
    message_id,
    properties,
    queue_entry,
    queue_extension,
    record,
    sysflag,
    timer,
)
from cometmq.errors import RemoteProtocolError
from tests import oracle

pytestmark = pytest.mark.slow

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1

int32 = st.integers(-INT32_MAX - 1, INT32_MAX)
int64 = st.integers(-INT64_MAX - 1, INT64_MAX)
any_text = st.text(st.characters(codec=None))
topics = st.text(st.characters(codec="utf-8"), max_size=40) | st.integers(1, 300).map("t".__mul__)
short_bytes = st.binary(max_size=60)

quick = settings(deadline=None, max_examples=200)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """Keyword arguments of ``encode_into``, without target and position."""
    sys_flag = draw(st.integers(0, 0x7FF) | int32)
    return {
        "topic": draw(topics).encode(),
        "body": draw(short_bytes),
        "properties": draw(short_bytes),
        "queue_id": draw(int32),
        "queue_offset": draw(int64),
        "physical_offset": draw(int64),
        "store_timestamp": draw(int64),
        "born_timestamp": draw(int64),
        "born_host": draw(hosts(sys_flag & sysflag.BORN_HOST_V6)),
        "store_host": draw(hosts(sys_flag & sysflag.STORE_HOST_V6)),
        "flag": draw(int32),
        "sys_flag": sys_flag,
        "reconsume_times": draw(int32),
        "prepared_transaction_offset": draw(int64),
    }


def hosts(is_v6: int) -> st.SearchStrategy[bytes]:
    size = record.HOST_V6_BYTES if is_v6 else record.HOST_V4_BYTES
    return st.binary(min_size=size, max_size=size)


def structs(kind: type[msgspec.Struct], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(kind, **fields)


queue_entries = st.tuples(int64, int32, int64)
index_entries = structs(
    index_entry.IndexEntry, key_hash=int32, physical_offset=int64, seconds=int32, previous=int32
)
extension_units = structs(
    queue_extension.ExtensionUnit, tags_code=int64, store_timestamp=int64, bitmap=short_bytes
)
timer_units = structs(
    timer.TimerUnit,
    previous=int64,
    magic=st.integers(0, 15),
    enqueue_timestamp=int64,
    delay_ms=int32,
    physical_offset=int64,
    message_size=int32,
    topic_hash=int32,
    reserved=int64,
)
batches = st.lists(
    structs(batch.BatchItem, flag=int32, body=short_bytes, properties=short_bytes), max_size=5
)


@quick
@given(messages(), st.integers(0, 20))
def test_records_are_written_as_the_oracle_writes_them(
    message: dict[str, Any], position: int
) -> None:
    expected = oracle.write_record(**message)
    target = bytearray(b"\xee" * (len(expected) + position + 5))

    size = record.encode_into(target, position, *message.values())

    assert target == b"\xee" * position + expected + b"\xee" * 5
    assert size == len(expected)


@quick
@given(messages())
def test_records_are_read_as_the_oracle_reads_them(message: dict[str, Any]) -> None:
    data = oracle.write_record(**message)
    expected = oracle.read_record(data)

    found = record.parse(data, check_crc=True)

    assert isinstance(found, record.Record)
    assert found.topic.encode() == expected.pop("topic")
    assert {name: getattr(found, name) for name in expected} == expected
    assert record.encode(found) == data


@quick
@given(st.lists(queue_entries | st.just((0, 0, 0)), max_size=12), st.sets(int64), st.integers(0, 5))
def test_entries_are_scanned_as_the_oracle_scans_them(
    entries: list[tuple[int, int, int]], tags: set[int], limit: int
) -> None:
    entries = [(abs(offset) & INT64_MAX, abs(size) & INT32_MAX, t) for offset, size, t in entries]
    tags |= {tags_code for _, _, tags_code in entries[::2]}
    data = b"".join(oracle.write_entry(*entry) for entry in entries)

    assert b"".join(queue_entry.pack(*entry) for entry in entries) == data
    for wanted in (None, tags):
        chosen = None if wanted is None else frozenset(wanted)
        found = queue_entry.scan(data, 0, len(data), chosen, limit)
        assert found == oracle.scan(data, wanted, limit)


@quick
@given(any_text)
def test_string_hashes_are_the_oracles(text: str) -> None:
    assert java.string_hash(text) == oracle.java_hash(text)
    assert 0 <= java.index_hash(text) <= INT32_MAX


names = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=8)


@quick
@given(st.dictionaries(names, names, max_size=6))
def test_properties_make_the_round_trip(found: dict[str, str]) -> None:
    text = properties.encode(found)

    assert properties.decode(text) == found
    assert properties.decode(text.removesuffix("\x02")) == found
    for name, value in found.items():
        assert properties.get(text.encode(), name.encode()) == value


@quick
@given(
    st.lists(st.sampled_from(["a", "b", "ab", "\x01", "\x02", "é"]), max_size=14).map("".join),
    st.sampled_from(["a", "b", "ab", "ba", "é", "", "a\x01b"]),
)
def test_one_property_is_the_one_of_the_whole_map(text: str, name: str) -> None:
    assert properties.get(text.encode(), name.encode()) == properties.decode(text).get(name)


@quick
@given(batches)
def test_batches_make_the_round_trip(items: list[batch.BatchItem]) -> None:
    data = batch.encode(items)

    assert batch.decode(data) == items
    assert batch.looks_like_batch(data) == bool(items)


@quick
@given(st.binary(max_size=500), st.sampled_from(compression.CompressionType))
def test_compression_makes_the_round_trip(body: bytes, kind: compression.CompressionType) -> None:
    packed = compression.compress(body, kind)

    assert compression.decompress(packed, kind, len(body)) == body


@quick
@given(index_entries, extension_units, timer_units)
def test_entries_and_units_make_the_round_trip(
    entry: index_entry.IndexEntry,
    extension: queue_extension.ExtensionUnit,
    unit: timer.TimerUnit,
) -> None:
    assert index_entry.unpack_entry(index_entry.pack_entry(entry), 0) == entry
    assert queue_extension.parse(queue_extension.encode(extension)) == extension
    assert timer.parse_log(timer.encode_unit(unit)) == unit


@quick
@given(hosts(0) | hosts(1), st.integers(0, INT64_MAX))
def test_offset_ids_make_the_round_trip(host: bytes, physical_offset: int) -> None:
    text = message_id.encode_offset_id(host, physical_offset)

    ip, port = record.unpack_host(host)
    assert message_id.decode_offset_id(text) == message_id.OffsetId(ip, port, physical_offset)


@st.composite
def damaged(draw: st.DrawFn, originals: st.SearchStrategy[bytes]) -> bytes:
    """Bytes with up to three of them changed, perhaps cut off or with a tail."""
    data = bytearray(draw(originals))
    for _ in range(draw(st.integers(0, 3))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    end = draw(st.just(len(data)) | st.integers(0, len(data)))
    return bytes(data[:end]) + draw(st.just(b"") | st.binary(max_size=8))


def value_or_refusal(parse: Callable[[bytes], Any], data: bytes) -> Any:
    """What ``parse`` makes of the bytes; any error but RemoteProtocolError fails the test."""
    try:
        return parse(data)
    except RemoteProtocolError:
        return None


@settings(deadline=None, max_examples=500)
@given(damaged(messages().map(lambda message: oracle.write_record(**message))))
@example(b"")
@example(bytes(91))
def test_a_damaged_record_is_refused_or_still_a_record(data: bytes) -> None:
    found = value_or_refusal(record.parse, data)
    value_or_refusal(lambda data: list(record.parse_all(data)), data)
    value_or_refusal(record.verify_property_crc, data)
    checked = value_or_refusal(lambda data: record.parse(data, check_crc=True), data)

    assert checked is None or checked == found
    if isinstance(found, record.Record):
        assert record.encode(found) == data[: found.size]


@settings(deadline=None, max_examples=500)
@given(damaged(batches.map(batch.encode)))
def test_a_damaged_batch_is_refused_or_still_a_batch(data: bytes) -> None:
    found = value_or_refusal(batch.decode, data)

    assert batch.looks_like_batch(data) == bool(found)
    if found is not None:
        assert len(batch.encode(found)) == len(data)


@quick
@given(
    damaged(
        st.tuples(st.sampled_from(compression.CompressionType), st.binary(max_size=300)).map(
            lambda pair: compression.compress(pair[1], pair[0])
        )
    ),
    st.sampled_from(compression.CompressionType),
    st.integers(0, 400),
)
def test_a_damaged_body_is_refused_or_within_its_limit(
    data: bytes, kind: compression.CompressionType, limit: int
) -> None:
    found = value_or_refusal(lambda data: compression.decompress(data, kind, limit), data)

    assert found is None or len(found) <= limit


@quick
@given(
    damaged(
        st.one_of(
            queue_entries.map(lambda entry: queue_entry.pack(*entry)),
            index_entries.map(index_entry.pack_entry),
            extension_units.map(queue_extension.encode),
            timer_units.map(timer.encode_unit),
            st.binary(max_size=70),
        )
    )
)
def test_damaged_entries_and_pages_are_refused_or_still_values(data: bytes) -> None:
    readers: list[Callable[[bytes], Any]] = [
        queue_entry.unpack,
        queue_extension.parse,
        index_entry.unpack_header,
        lambda data: index_entry.unpack_slot(data, 0),
        lambda data: index_entry.unpack_entry(data, 0),
        checkpoint.unpack,
        timer.parse_log,
        lambda data: timer.unpack_slot(data, 0),
        timer.unpack_check,
        record.unpack_host,
    ]
    for reader in readers:
        value_or_refusal(reader, data)

    found = value_or_refusal(queue_extension.parse, data)
    if found is not None:
        assert queue_extension.encode(found) == data[: found.size]


@quick
@given(st.binary(max_size=60), any_text)
def test_any_bytes_have_properties_and_any_text_may_be_an_id(data: bytes, text: str) -> None:
    found = properties.decode(data)

    assert all(name and value for name, value in found.items())
    value_or_refusal(lambda _: message_id.decode_offset_id(text), data)
    for hexadecimal in (text, data.hex()):
        parsed = message_id.parse_unique_id(hexadecimal)
        assert parsed is None or len(parsed.ip) in (4, 16)


@quick
@given(int32)
def test_any_flag_has_a_transaction_type_and_perhaps_a_compression_type(flag: int) -> None:
    kind = sysflag.transaction_type(flag)

    assert sysflag.with_transaction_type(flag, kind) == flag
    found = value_or_refusal(lambda _: sysflag.compression_type(flag), b"")
    assert found is None or flag & sysflag.COMPRESSED
