"""The hot functions of the store keep the promises of their plain twins, whichever core is active.

The suite runs in both cores; in the compiled one these tests compare it with the plain code.
"""

import random
import zlib
from collections.abc import Callable, Iterable, Iterator

import pytest

from cometmq.codec import batch, core, digest, index_entry, queue_entry, record
from cometmq.codec.batch import BatchItem
from cometmq.codec.record import Record
from cometmq.errors import LocalProtocolError, RemoteProtocolError

HOST = record.pack_host("10.0.0.5", 10911)
HOST_V6 = record.pack_host("2001:db8::1", 10911)
SEEDS = range(40)
TEXTS = ["", "a", "TagA", "order-17", "ключ", "😀", "x y", " lead", "two  spaces ", "é" * 9]


def random_properties(chance: random.Random) -> bytes:
    names = ["KEYS", "TAGS", "UNIQ_KEY", "KEY", "XTAGS", "WAIT", ""]
    items = [
        f"{chance.choice(names)}\x01{chance.choice(TEXTS)}\x02" for _ in range(chance.randrange(6))
    ]
    tail = chance.choice(["", "TAGS\x01last", "KEYS", "\x01\x02", "TAGS\x01a\x01b\x02", "\x02\x02"])
    broken = b"TAGS\x01\xff\xfe\x02" if chance.random() < 0.1 else b""
    return "".join(items).encode() + broken + tail.encode()


def random_log(chance: random.Random, base: int) -> bytearray:
    """Records one after the other, from time to time damaged, cut short or followed by a blank."""
    log = bytearray(16384)
    position = 0
    for _ in range(chance.randrange(1, 12)):
        sys_flag = chance.choice([0, 4, 8, 12, 0x10, 0x20, 0x30])
        topic = chance.choice(["T", "orders", "тема", "%RETRY%" + "g" * 130]).encode()
        position += record.encode_into(
            log,
            position,
            topic,
            chance.randbytes(chance.randrange(200)),
            random_properties(chance),
            chance.randrange(4),
            chance.randrange(1000),
            base + position,
            chance.randrange(1 << 41),
            5,
            HOST_V6 if sys_flag & 0x10 else HOST,
            HOST_V6 if sys_flag & 0x20 else HOST,
            0,
            sys_flag,
            0,
            0,
        )
    if chance.random() < 0.5:
        record.encode_blank_into(log, position, len(log) - position)
    if chance.random() < 0.5:
        log[chance.randrange(position)] ^= 1 << chance.randrange(8)
    return log


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("check_crc", [False, True])
def test_a_walk_finds_what_the_plain_walk_finds(seed: int, check_crc: bool) -> None:
    chance = random.Random(seed)
    base = chance.choice([0, 1 << 30])
    log = random_log(chance, base)
    ends = [len(log), chance.randrange(len(log)), 0]

    for end in ends:
        for limit in (1, 3, 1000):
            expected = digest.walk(log, 0, end, base, limit, check_crc)
            assert core.walk_records(log, 0, end, base, limit, check_crc) == expected, (seed, end)


def records_or_refusal(
    parse: Callable[[bytes], Iterable[Record]], data: bytes
) -> list[Record] | str:
    try:
        return list(parse(data))
    except RemoteProtocolError as error:
        return str(error)


@pytest.mark.parametrize("seed", SEEDS)
def test_pulled_records_are_those_of_the_plain_reader(seed: int) -> None:
    chance = random.Random(seed)
    log = bytes(random_log(chance, 0))
    walked = digest.walk(log, 0, len(log), 0, 1000, False)
    ends = [walked.position, chance.randrange(len(log)), len(log), 0]

    for data in [log[:end] for end in ends]:
        expected = records_or_refusal(record.parse_all, data)
        assert records_or_refusal(core.parse_records, data) == expected, (seed, len(data))
        assert records_or_refusal(record.parse_records, data) == expected, (seed, len(data))


@pytest.mark.parametrize("parse", [core.parse_records, record.parse_records])
def test_every_damaged_byte_of_a_pull_is_judged_as_by_the_plain_reader(
    parse: Callable[[bytes], list[Record]],
) -> None:
    log = bytearray(512)
    size = record.encode_into(
        log, 0, b"orders", b"body", b"K\x01v\x02", 3, 7, 0, 1, 1, HOST, HOST, 0, 0, 0, 0
    )
    pulled = bytes(log[:size])

    for position in range(size):
        for value in (0, 1, 0x10, 0x30, 0x7F, 0x80, 0xFF):
            data = pulled + pulled[:position] + bytes([value]) + pulled[position + 1 :]
            expected = records_or_refusal(record.parse_all, data)
            assert records_or_refusal(parse, data) == expected, (position, value)


@pytest.mark.parametrize("parse", [core.parse_records, record.parse_records])
def test_a_pull_is_read_from_any_buffer_without_keeping_it(
    parse: Callable[[memoryview | bytes], list[Record]],
) -> None:
    buffer = bytearray(1024)
    topics = ["orders", "orders", "тема", "", "%RETRY%" + "g" * 130, "orders"]
    end = 0
    for topic in topics:
        end += record.encode_into(
            buffer, end, topic.encode(), b"", b"", 0, 0, end, 1, 1, HOST, HOST, 0, 0, 0, 0
        )
    del buffer[end:]

    found = parse(memoryview(buffer))

    assert [item.topic for item in found] == topics
    buffer.clear()  # raises BufferError while somebody holds a view
    assert parse(b"") == []


@pytest.mark.parametrize("lost", [[], [2], [3], [2, 3], [4], [5]])
@pytest.mark.parametrize("properties_bytes", [600, 1300, 1451])
def test_a_sector_of_the_properties_that_was_never_written_ends_a_recovery(
    lost: list[int], properties_bytes: int
) -> None:
    log = bytearray(4096)
    properties = b"KEYS\x01k\x02P\x01" + bytes([120]) * (properties_bytes - 10) + b"\x02"
    size = record.encode_into(
        log, 700, b"T", b"body", properties, 0, 0, 700, 1, 1, HOST, HOST, 0, 0, 0, 0
    )
    for sector in lost:
        log[sector * 512 : sector * 512 + 512] = bytes(512)

    expected = digest.walk(log, 700, 4096, 0, 1, True)

    assert core.walk_records(log, 700, 4096, 0, 1, True) == expected
    is_hit = any(sector * 512 < 700 + size for sector in lost)
    assert bool(expected.digests) is not is_hit
    assert core.walk_records(log, 700, 4096, 0, 1, False).digests


@pytest.mark.parametrize("length", [0, 1, 7, 8, 63, 64, 65, 79, 80, 127, 128, 1024, 65_537])
def test_records_carry_zlibs_checksum_whatever_their_length(length: int) -> None:
    body = random.Random(length).randbytes(length)
    target = bytearray(length + 200)

    core.encode_record_into(target, 0, b"T", body, b"", 0, 0, 0, 1, 1, HOST, HOST, 0, 0, 0, 0)

    assert int.from_bytes(target[8:12], "big") == zlib.crc32(body) & 0x7FFFFFFF


def random_batch(chance: random.Random) -> bytes:
    return batch.encode(
        BatchItem(chance.randrange(9), chance.randbytes(chance.randrange(90)), b"KEYS\x01k\x02")
        for _ in range(chance.randrange(1, 9))
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_batch_becomes_the_records_the_plain_code_writes(seed: int) -> None:
    chance = random.Random(seed)
    body = random_batch(chance)
    sys_flag = chance.choice([0, 0x10, 0x30])
    born = HOST_V6 if sys_flag & 0x10 else HOST
    store = HOST_V6 if sys_flag & 0x20 else HOST
    topic = chance.choice([b"T", b"%RETRY%" + b"g" * 140])
    facts = (3, 77, 1 << 33, 99, 98, born, store, sys_flag, 2)
    plain, fast = bytearray(4096), bytearray(4096)

    expected = batch.encode_records_into(plain, 5, topic, body, *facts)

    assert core.encode_batch_into(fast, 5, topic, body, *facts) == expected
    assert fast == plain
    size, count = core.measure_batch(body, len(topic), sys_flag, 1 << 20)
    assert (size, count) == batch.measure(body, len(topic), sys_flag, 1 << 20)
    assert count == len(expected)
    assert not any(fast[5 + size :])


@pytest.mark.parametrize("cut", [1, 5, 19, 21, 23])
def test_half_a_batch_is_refused_with_the_plain_reason(cut: int) -> None:
    body = batch.encode([BatchItem(0, b"0123456789", b"")])[:-cut]

    with pytest.raises(RemoteProtocolError, match="batch"):
        core.measure_batch(body, 1, 0, 1 << 20)


def test_a_batch_with_one_record_too_many_bytes_is_refused() -> None:
    body = batch.encode([BatchItem(0, bytes(10), b""), BatchItem(0, bytes(500), b"")])

    with pytest.raises(RemoteProtocolError, match="record of 592 bytes"):
        core.measure_batch(body, 1, 0, 400)


def test_a_batch_that_does_not_fit_is_refused() -> None:
    body = batch.encode([BatchItem(0, bytes(10), b"")])

    with pytest.raises(LocalProtocolError):
        core.encode_batch_into(bytearray(50), 0, b"T", body, 0, 0, 0, 1, 1, HOST, HOST, 0, 0)


def entries(chance: random.Random) -> Iterator[bytes]:
    physical_offset = 0
    for _ in range(chance.randrange(30)):
        if chance.random() < 0.1:
            yield queue_entry.pack(0, 0x7FFFFFFF, 0)
        elif chance.random() < 0.05:
            yield queue_entry.pack(chance.choice([-1, 0, 1]), chance.choice([-1, 0, 5]), 0)
        else:
            yield queue_entry.pack(physical_offset, 100, 0)
            physical_offset += chance.choice([100, 150, 99])


@pytest.mark.parametrize("seed", SEEDS)
def test_entries_are_counted_as_the_plain_code_does(seed: int) -> None:
    data = b"".join(entries(random.Random(seed))) + bytes(47)

    for begin in (0, 20):
        expected = queue_entry.count(data, begin, len(data))
        assert core.count_entries(data, begin, len(data)) == expected, seed


@pytest.mark.parametrize("seed", SEEDS)
def test_a_selection_is_the_one_the_plain_code_makes(seed: int) -> None:
    chance = random.Random(seed)
    data = b"".join(entries(chance)) + bytes(27)
    tags = chance.choice([None, frozenset([0]), frozenset([5]), frozenset(range(70))])
    log = (chance.choice([0, 150]), chance.choice([0, 600]), chance.choice([10_000, 800]))
    limits = (chance.randrange(1, 9), chance.choice([150, 5000]), 2, 150)

    facts = (data, 0, len(data), tags, *log, *limits)

    assert core.select_entries(*facts) == queue_entry.select(*facts), seed


def test_a_damaged_entry_that_reaches_beyond_all_numbers_ends_a_read() -> None:
    data = queue_entry.pack(0, 100, 0) + queue_entry.pack(2**63 - 50, 100, 0)

    found = core.select_entries(data, 0, len(data), None, 0, 0, 10_000, 32, 5000, 32, 5000)

    assert found == queue_entry.select(data, 0, len(data), None, 0, 0, 10_000, 32, 5000, 32, 5000)
    assert (found[0], found[1]) == ([(0, 100)], 1)


SLOTS, ENTRIES = 7, 40


@pytest.mark.parametrize("seed", SEEDS)
def test_index_entries_are_written_mended_and_counted_as_the_plain_code_does(seed: int) -> None:
    chance = random.Random(seed)
    plain = bytearray(index_entry.file_bytes(SLOTS, ENTRIES))
    fast = bytearray(plain)
    number = 1
    while number < ENTRIES - 4:
        hashes = tuple(chance.randrange(1 << 31) for _ in range(chance.randrange(1, 4)))
        facts = (SLOTS, number, hashes, number * 100, chance.randrange(50))
        expected = index_entry.put_entries(plain, *facts)
        assert core.put_index_entries(fast, *facts) == expected
        number += len(hashes)
    assert fast == plain

    damaged = 40 + 4 * chance.randrange(SLOTS) + 3
    for data in (plain, fast):
        data[damaged] ^= 5
    limits = (SLOTS, number, 0, chance.choice([1 << 40, 1500]))
    valid = index_entry.valid_count(plain, *limits)
    assert core.valid_index_count(fast, *limits) == valid
    assert core.relink_index(fast, SLOTS, valid) == index_entry.relink(plain, SLOTS, valid)
    assert fast == plain


def test_index_entries_without_room_are_refused() -> None:
    data = bytearray(index_entry.file_bytes(SLOTS, 3))

    with pytest.raises(LocalProtocolError):
        core.put_index_entries(data, SLOTS, 2, (1, 2), 100, 0)
