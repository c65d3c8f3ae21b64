import pytest

from cometmq.codec import batch, record
from cometmq.codec.batch import BatchItem
from cometmq.codec.record import MAGIC_V1, MAGIC_V2, Record
from cometmq.errors import LocalProtocolError, RemoteProtocolError

ITEM = BatchItem(flag=7, body=b"Hello", properties=b"TAGS\x01TagA\x02")
ITEM_BYTES = bytes.fromhex(
    "00000025 00000000 00000000 00000007 00000005 48656c6c6f 000a 54414753015461674102"
)
OTHER = BatchItem(flag=0, body=b"", properties=b"")


def test_a_batch_is_written_and_read() -> None:
    assert batch.encode([ITEM]) == ITEM_BYTES
    assert batch.decode(batch.encode([ITEM, OTHER, ITEM])) == [ITEM, OTHER, ITEM]
    assert batch.decode(memoryview(ITEM_BYTES)) == [ITEM]
    assert batch.encode([]) == b""
    assert batch.decode(b"") == []


def test_magic_and_checksum_are_not_looked_at() -> None:
    assert batch.decode(ITEM_BYTES[:4] + b"\xaa" * 8 + ITEM_BYTES[12:]) == [ITEM]


@pytest.mark.parametrize("length", range(1, len(ITEM_BYTES)))
def test_a_cut_off_batch_is_refused(length: int) -> None:
    with pytest.raises(RemoteProtocolError):
        batch.decode(ITEM_BYTES + ITEM_BYTES[:length])


@pytest.mark.parametrize(
    ("position", "damage"),
    [
        (0, "00000015"),
        (0, "00000024"),
        (0, "00000026"),
        (0, "ffffffff"),
        (0, "7fffffff"),
        (16, "ffffffff"),
        (16, "00000004"),
        (16, "00000010"),
        (16, "7fffffff"),
        (25, "ffff"),
        (25, "0009"),
        (25, "000b"),
    ],
)
def test_lengths_that_do_not_add_up_are_refused(position: int, damage: str) -> None:
    patch = bytes.fromhex(damage)
    damaged = ITEM_BYTES[:position] + patch + ITEM_BYTES[position + len(patch) :]

    with pytest.raises(RemoteProtocolError):
        batch.decode(damaged + ITEM_BYTES)


def test_the_length_of_properties_is_signed() -> None:
    tail = (40_000).to_bytes(2, "big") + b"p" * 40_000
    size = (25 + len(tail)).to_bytes(4, "big")

    with pytest.raises(RemoteProtocolError):
        batch.decode(size + ITEM_BYTES[4:25] + tail)


@pytest.mark.parametrize(
    "item",
    [
        BatchItem(flag=1 << 31, body=b"", properties=b""),
        BatchItem(flag=0, body=b"", properties=b"p" * 32_768),
    ],
)
def test_what_does_not_fit_is_refused(item: BatchItem) -> None:
    with pytest.raises(LocalProtocolError):
        batch.encode([ITEM, item])


def test_only_a_whole_batch_looks_like_one() -> None:
    assert batch.looks_like_batch(ITEM_BYTES * 2)
    assert not batch.looks_like_batch(b"")
    assert not batch.looks_like_batch(b"Hello, I am an ordinary body of some length")
    assert not batch.looks_like_batch(ITEM_BYTES + b"\0")


HOST = record.pack_host("10.0.0.5", 10911)
HOST_V6 = record.pack_host("2001:db8::5", 10911)


@pytest.mark.parametrize(
    ("topic_length", "sys_flag", "fixed"),
    [(1, 0, 92), (127, 0, 218), (128, 0, 220), (1, 0x10, 104), (1, 0x20, 104), (1, 0x30, 116)],
)
def test_measuring_tells_bytes_and_count_of_the_records(
    topic_length: int, sys_flag: int, fixed: int
) -> None:
    data = batch.encode([ITEM, OTHER, ITEM])

    measured = batch.measure(data, topic_length, sys_flag, 1 << 20)

    assert measured == (3 * fixed + 2 * (5 + 10), 3)


def test_a_batch_of_none_measures_nothing() -> None:
    assert batch.measure(b"", 1, 0, 1 << 20) == (0, 0)


def test_measuring_refuses_a_record_that_is_too_large() -> None:
    data = batch.encode([OTHER, ITEM])

    assert batch.measure(data, 1, 0, 107) == (92 + 107, 2)
    with pytest.raises(RemoteProtocolError, match="record of 107 bytes"):
        batch.measure(data, 1, 0, 106)


@pytest.mark.parametrize("damage", [ITEM_BYTES[:-1], ITEM_BYTES + b"\0", b"no batch"])
def test_measuring_refuses_what_is_no_batch(damage: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        batch.measure(damage, 1, 0, 1 << 20)


@pytest.mark.parametrize(("topic", "magic"), [(b"T", MAGIC_V1), (b"%RETRY%" * 20, MAGIC_V2)])
def test_a_batch_becomes_records_with_offsets_that_count_on(topic: bytes, magic: int) -> None:
    data = batch.encode([ITEM, OTHER, ITEM])
    size, _ = batch.measure(data, len(topic), 0x10, 1 << 20)
    target = bytearray(10 + size + 10)

    offsets = batch.encode_records_into(
        target, 10, topic, data, 3, 77, 5000, 99, 98, HOST_V6, HOST, 0x10, 2
    )

    records = list(record.parse_all(target[10 : 10 + size]))
    assert [found.physical_offset for found in records] == list(offsets)
    assert offsets[0] == 5000
    assert offsets[1] == 5000 + records[0].size
    assert [found.queue_offset for found in records] == [77, 78, 79]
    assert [(f.flag, f.body, f.properties) for f in records] == [
        (item.flag, item.body, item.properties) for item in (ITEM, OTHER, ITEM)
    ]
    for found in records:
        assert record.parse(record.encode(found), check_crc=True) == found
        assert shared_fields(found) == (magic, 3, 99, 98, HOST_V6, HOST, 0x10, 2, 0)
    assert target[:10] == target[-10:] == bytes(10)


def shared_fields(found: Record) -> tuple[object, ...]:
    """What all records of a batch have in common."""
    return (
        found.magic,
        found.queue_id,
        found.store_timestamp,
        found.born_timestamp,
        found.born_host,
        found.store_host,
        found.sys_flag,
        found.reconsume_times,
        found.prepared_transaction_offset,
    )


def test_a_batch_without_room_for_it_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        batch.encode_records_into(
            bytearray(106), 0, b"T", ITEM_BYTES, 0, 0, 0, 0, 0, HOST, HOST, 0, 0
        )
