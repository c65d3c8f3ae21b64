import pytest

from cometmq.codec import index_entry
from cometmq.codec.index_entry import IndexEntry, IndexHeader
from cometmq.codec.java import index_hash
from cometmq.errors import LocalProtocolError, RemoteProtocolError
from tests import oracle

SLOTS, ENTRIES = 5_000_000, 20_000_000


def test_a_file_of_the_default_size_has_420_mb() -> None:
    assert index_entry.file_bytes(SLOTS, ENTRIES) == 420_000_040


def test_a_header_is_written_and_read() -> None:
    header = IndexHeader(1, 2, 3, 4, 5, 6)

    data = index_entry.pack_header(header)

    assert data.hex() == "".join(f"{n:016x}" for n in (1, 2, 3, 4)) + "0000000500000006"
    assert len(data) == index_entry.HEADER_BYTES
    assert index_entry.unpack_header(data) == header


@pytest.mark.parametrize("count", [0, -1])
def test_a_fresh_header_counts_from_one(count: int) -> None:
    data = bytes(36) + count.to_bytes(4, "big", signed=True)

    assert index_entry.unpack_header(data) == IndexHeader()


def test_an_entry_is_written_and_read() -> None:
    entry = IndexEntry(key_hash=1656937772, physical_offset=1024, seconds=7, previous=3)

    data = index_entry.pack_entry(entry)

    assert data.hex() == "62c2dd2c" + "0000000000000400" + "00000007" + "00000003"
    assert index_entry.unpack_entry(b"-" + data, 1) == entry
    assert len(data) == index_entry.ENTRY_BYTES


def test_slots_and_entries_have_their_positions() -> None:
    key_hash = index_hash(index_entry.key_text("TopicTest", "Key1"))

    assert index_entry.slot_position(key_hash, SLOTS) == 40 + 4 * 1937772
    assert index_entry.slot_position(0, SLOTS) == 40
    assert index_entry.entry_position(0, SLOTS) == 40 + 4 * SLOTS
    assert index_entry.entry_position(3, 500) == 40 + 2000 + 60
    assert index_entry.unpack_slot(b"-" + index_entry.pack_slot(77), 1) == 77


def test_a_chain_ends_outside_of_the_written_entries() -> None:
    linked = [number for number in range(-2, 8) if index_entry.is_linked(number, 5)]

    assert linked == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("begin", "stored", "seconds"),
    [
        (0, 5000, 0),
        (-1, 5000, 0),
        (1000, 1000, 0),
        (1000, 1999, 0),
        (1000, 2000, 1),
        (1000, 500, 0),
        (1, 10**18, 2**31 - 1),
    ],
)
def test_time_is_kept_as_whole_seconds_since_the_begin(
    begin: int, stored: int, seconds: int
) -> None:
    assert index_entry.seconds_since(begin, stored) == seconds


def test_keys_and_tags_are_told_apart() -> None:
    assert index_entry.key_text("T", "a") == "T#a"
    assert index_entry.tag_text("T", "a") == "T#T#a"


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(LocalProtocolError):
        index_entry.pack_entry(IndexEntry(1 << 31, 0, 0, 0))
    with pytest.raises(LocalProtocolError):
        index_entry.pack_slot(1 << 31)


def test_a_cut_off_file_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        index_entry.unpack_header(bytes(39))
    with pytest.raises(RemoteProtocolError):
        index_entry.unpack_slot(bytes(43), 40)
    with pytest.raises(RemoteProtocolError):
        index_entry.unpack_entry(bytes(60), 41)


# Whole files

FEW = 5
"""Slots of a small file: hashes 1, 6 and 11 fall on the same one."""


def small_file(*entries: tuple[int, int, int]) -> bytearray:
    """A file with (hash, physical offset, seconds) as its entries."""
    data = bytearray(index_entry.file_bytes(FEW, 20))
    for number, entry in enumerate(entries, 1):
        index_entry.put_into(data, FEW, number, *entry)
    return data


def previous_of(data: bytearray, number: int) -> int:
    return index_entry.unpack_entry(data, index_entry.entry_position(number, FEW)).previous


def found(data: bytearray, key_hash: int, **changes: int) -> list[int]:
    """What ``find`` finds from time 100,000 on, among at most 20 entries."""
    asked = {"count": 20, "begin_timestamp": 100_000, "begin_ms": 0, "end_ms": 10**15, "limit": 32}
    asked |= changes
    return index_entry.find(data, FEW, key_hash=key_hash, **asked)


def test_entries_are_put_as_the_oracle_puts_them() -> None:
    keys = [f"T#{number}" for number in range(19)]
    expected = oracle.IndexFile(FEW, 20)
    data = bytearray(len(expected.data))

    used = 0
    for number, key in enumerate(keys, 1):
        expected.put(key, 100 * number, 7_000)
        used += index_entry.put_into(data, FEW, number, index_hash(key), 100 * number, 0)
    index_entry.put_header(data, 7_000, 7_000, 100, 1900, used, 20)

    assert data == expected.data


def test_a_slot_that_leads_beyond_the_new_entry_counts_as_empty() -> None:
    for left_behind in (3, 4, -1):
        data = small_file((1, 100, 0), (6, 200, 0))
        data[44:48] = index_entry.pack_slot(left_behind)

        assert index_entry.put_into(data, FEW, 3, 11, 300, 0)
        assert previous_of(data, 3) == 0


def test_an_entry_needs_its_room() -> None:
    data = small_file()

    with pytest.raises(LocalProtocolError):
        index_entry.put_into(data, FEW, 20, 1, 100, 0)
    with pytest.raises(LocalProtocolError):
        index_entry.put_into(data, FEW, 1, 1, 100, 1 << 31)

    assert not any(data[: index_entry.entry_position(0, FEW)]), "no slot leads to it"


def test_a_header_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        index_entry.put_header(small_file(), 0, 0, 0, 0, 0, 1 << 31)


def test_find_tells_colliding_hashes_apart() -> None:
    data = small_file((1, 100, 0), (6, 200, 0), (11, 300, 0), (6, 400, 0), (2, 500, 0))

    assert found(data, 6) == [400, 200]
    assert found(data, 1) == [100]
    assert found(data, 16) == []
    assert found(data, 3) == []


def test_find_returns_the_newest_ones_up_to_the_limit() -> None:
    data = small_file((1, 100, 0), (1, 200, 0), (1, 300, 0))

    assert found(data, 1, limit=2) == [300, 200]
    assert found(data, 1, limit=0) == []


def test_find_counts_a_message_that_has_the_key_twice_once() -> None:
    data = small_file((1, 100, 0), (1, 200, 0), (6, 200, 0), (1, 200, 0), (1, 300, 0))

    assert found(data, 1, limit=2) == [300, 200]
    assert found(data, 1) == [300, 200, 100]


def test_find_compares_times_by_the_second() -> None:
    data = small_file((1, 100, 0), (1, 200, 10), (1, 300, 20))

    assert found(data, 1, begin_ms=110_000) == [300, 200]
    assert found(data, 1, begin_ms=110_001) == [300]
    assert found(data, 1, end_ms=110_000) == [200, 100]
    assert found(data, 1, end_ms=109_999) == [100]
    assert found(data, 1, begin_ms=101_000, end_ms=109_999) == []


def test_find_stops_at_the_first_entry_that_is_too_old() -> None:
    """As Java does; with a clock that was set back this hides older entries."""
    data = small_file((1, 100, 50), (1, 200, 0), (1, 300, 50))

    assert found(data, 1, begin_ms=110_000) == [300]


def test_find_does_not_see_entries_that_are_not_counted() -> None:
    data = small_file((1, 100, 0), (2, 200, 0))

    assert found(data, 2, count=2) == []
    assert found(data, 1, count=2) == [100]


@pytest.mark.parametrize(
    ("number", "previous"), [(2, 2), (2, 3), (1, 3), (2, -1), (2, 21), (2, 99)]
)
def test_find_ends_on_any_chain(number: int, previous: int) -> None:
    data = small_file((1, 100, 0), (1, 200, 0), (1, 300, 0))
    position = index_entry.entry_position(number, FEW) + 16
    data[position : position + 4] = index_entry.pack_slot(previous)

    offsets = found(data, 1)

    assert offsets[:2] == [300, 200]
    assert len(offsets) <= 20


def test_find_ends_at_a_negative_time() -> None:
    data = small_file((1, 100, 0), (1, 200, -1), (1, 300, 0))

    assert found(data, 1) == [300]


def test_find_needs_as_much_file_as_is_counted() -> None:
    data = small_file((1, 100, 0))
    data[44:48] = index_entry.pack_slot(30)

    with pytest.raises(RemoteProtocolError):
        found(data, 1, count=40)


def test_relinking_restores_slots_and_chains() -> None:
    entries = [(hashed, 100 * number, 0) for number, hashed in enumerate([1, 6, 2, 0, 1, 11, 7])]
    whole = small_file(*entries)
    damaged = bytearray(whole)
    damaged[40:60] = index_entry.pack_slot(9) * FEW
    for number in (2, 5, 6):
        position = index_entry.entry_position(number, FEW) + 16
        damaged[position : position + 4] = b"\x7f\xff\xff\xff"

    used = index_entry.relink(damaged, FEW, 8)

    assert damaged == whole
    assert used == 3


def test_relinking_forgets_the_entries_that_are_not_counted() -> None:
    data = small_file((1, 100, 0), (6, 200, 0), (2, 300, 0))

    used = index_entry.relink(data, FEW, 2)

    assert used == 1
    assert data[40:60] == small_file((1, 100, 0))[40:60]


def test_relinking_what_is_right_writes_nothing() -> None:
    data = bytes(small_file((1, 100, 0), (6, 200, 0), (2, 300, 0)))

    # Into these bytes it could not write.
    assert index_entry.relink(data, FEW, 4) == 2


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param((-1, 300, 0), id="negative hash"),
        pytest.param((1, 199, 0), id="offset falls"),
        pytest.param((1, 1000, 0), id="offset at the end"),
        pytest.param((1, 300, -1), id="negative time"),
        pytest.param((0, 0, 0), id="zeros"),
    ],
)
def test_entries_count_up_to_the_first_that_cannot_be_real(entry: tuple[int, int, int]) -> None:
    data = small_file((1, 100, 0), (1, 200, 0), (1, 200, 9), (1, 999, 0), (1, 999, 0))
    position = index_entry.entry_position(4, FEW)
    data[position : position + 20] = index_entry.pack_entry(IndexEntry(*entry, 0))

    assert index_entry.valid_count(data, FEW, 6, 100, 1000) == 4


def test_entries_that_make_sense_all_count() -> None:
    data = small_file((0, 100, 0), (1, 200, 5), (1, 200, 4))

    assert index_entry.valid_count(data, FEW, 4, 100, 201) == 4
    assert index_entry.valid_count(data, FEW, 3, 100, 201) == 3
    assert index_entry.valid_count(data, FEW, 1, 100, 201) == 1
    assert index_entry.valid_count(data, FEW, 4, 101, 201) == 1


def test_zeros_are_no_entry_even_in_a_log_that_begins_at_zero() -> None:
    data = small_file((1, 0, 0), (5, 0, 0))

    assert index_entry.valid_count(data, FEW, 10, 0, 1000) == 3
