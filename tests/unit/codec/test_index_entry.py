import pytest

from cometmq.codec import index_entry
from cometmq.codec.index_entry import IndexEntry, IndexHeader
from cometmq.codec.java import index_hash
from cometmq.errors import LocalProtocolError, RemoteProtocolError

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
