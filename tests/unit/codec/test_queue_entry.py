import msgspec
import pytest

from cometmq.codec import queue_entry, queue_extension
from cometmq.codec.queue_entry import QueueEntry
from cometmq.errors import LocalProtocolError, RemoteProtocolError

VECTOR = bytes.fromhex("0000000000000400 00000073 000000000027a807")

TAG_A, TAG_B = 2598919, 2598920


def queue(*entries: tuple[int, int, int]) -> bytes:
    return b"".join(queue_entry.pack(*entry) for entry in entries)


def test_the_vector_is_written_and_read() -> None:
    target = bytearray(30)

    queue_entry.pack_into(target, 10, 1024, 115, TAG_A)

    assert target == bytes(10) + VECTOR
    assert queue_entry.pack(1024, 115, TAG_A) == VECTOR
    assert queue_entry.unpack(target, 10) == QueueEntry(1024, 115, TAG_A)
    assert len(VECTOR) == queue_entry.ENTRY_BYTES


def test_a_negative_hash_keeps_its_sign() -> None:
    assert queue_entry.pack(0, 1, -5).endswith(b"\xff" * 7 + b"\xfb")


def test_an_entry_needs_its_room() -> None:
    target = bytearray(20)

    for position in (1, -1):
        with pytest.raises(LocalProtocolError):
            queue_entry.pack_into(target, position, 1024, 115, TAG_A)
    with pytest.raises(LocalProtocolError):
        queue_entry.pack_into(target, 0, 1024, 1 << 31, TAG_A)

    assert not any(target)


def test_a_cut_off_entry_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        queue_entry.unpack(VECTOR, 1)


def test_zeros_are_no_entry_but_a_filler_is() -> None:
    assert not queue_entry.is_valid(queue_entry.unpack(bytes(20)))
    assert not queue_entry.is_valid(QueueEntry(-1, 100, 0))
    assert queue_entry.is_valid(queue_entry.FILLER)
    assert msgspec.structs.astuple(queue_entry.FILLER) == (0, 0x7FFFFFFF, 0)


def test_scan_returns_the_entries_with_the_tags() -> None:
    data = queue((0, 100, TAG_A), (100, 110, TAG_B), (210, 120, 0), (330, 130, TAG_A))

    assert queue_entry.scan(data, 0, 80, frozenset({TAG_A}), 32) == (
        [(0, 0, 100), (3, 330, 130)],
        4,
    )
    assert queue_entry.scan(data, 0, 80, frozenset({TAG_B, 0}), 32)[0] == [
        (1, 100, 110),
        (2, 210, 120),
    ]
    assert queue_entry.scan(data, 0, 80, frozenset(), 32) == ([], 4)
    assert len(queue_entry.scan(data, 0, 80, None, 32)[0]) == 4


def test_scan_counts_from_its_begin_and_stops_at_its_end() -> None:
    data = queue((0, 100, 1), (100, 110, 1), (210, 120, 1), (330, 130, 1))

    assert queue_entry.scan(data, 20, 60, None, 32) == ([(0, 100, 110), (1, 210, 120)], 2)
    assert queue_entry.scan(data, 20, 59, None, 32) == ([(0, 100, 110)], 1)
    assert queue_entry.scan(data, 60, 1000, None, 32) == ([(0, 330, 130)], 1)
    assert queue_entry.scan(data, 100, 200, None, 32) == ([], 0)


def test_scan_stops_after_the_last_match_it_may_return() -> None:
    data = queue((0, 100, 1), (100, 110, 2), (210, 120, 1), (330, 130, 2))

    assert queue_entry.scan(data, 0, 80, frozenset({1}), 2) == ([(0, 0, 100), (2, 210, 120)], 3)
    assert queue_entry.scan(data, 0, 80, None, 1) == ([(0, 0, 100)], 1)
    assert queue_entry.scan(data, 0, 80, None, 0) == ([], 0)


@pytest.mark.parametrize("unwritten", [(0, 0, 0), (-1, 100, 1), (0, -1, 1)])
def test_scan_stops_before_an_entry_that_was_not_written(unwritten: tuple[int, int, int]) -> None:
    data = queue((0, 100, 1), unwritten, (210, 120, 1))

    assert queue_entry.scan(data, 0, 60, None, 32) == ([(0, 0, 100)], 1)


def test_scan_leaves_extension_addresses_to_the_caller() -> None:
    address = queue_extension.address_to_tags_code(48)
    data = queue((0, 100, address), (100, 110, -2147483648), (210, 110, -2147483649))

    assert queue_entry.scan(data, 0, 60, frozenset({1}), 32)[0] == [(0, 0, 100), (2, 210, 110)]


def test_tags_are_kept_as_javas_hash() -> None:
    assert queue_entry.tags_code("TagA") == TAG_A
    assert queue_entry.tags_code("") == 0
    assert queue_entry.tags_code(None) == 0


def test_a_delayed_message_carries_its_delivery_time() -> None:
    assert queue_entry.delay_tags_code(1_700_000_000_000, 5000) == 1_700_000_005_000
    assert queue_entry.delay_tags_code(1_700_000_000_000, 0) == 1_700_000_000_000
    assert queue_entry.delay_tags_code(1_700_000_000_000, None) == 1_700_000_001_000


FILLER = (0, 0x7FFFFFFF, 0)


@pytest.mark.parametrize(
    ("entries", "counted"),
    [
        ([], (0, -1)),
        ([(0, 0, 0)], (0, -1)),
        ([(0, 100, 1)], (1, 100)),
        ([(0, 100, 1), (100, 50, 1), (500, 10, 1)], (3, 510)),
        ([(0, 100, 1), (0, 0, 0), (100, 50, 1)], (1, 100)),
        ([(0, 100, 1), (-1, 100, 1)], (1, 100)),
        ([(0, 100, 1), (100, -1, 1)], (1, 100)),
        ([(0, 100, 1), (99, 50, 1)], (1, 100)),
        ([FILLER, FILLER], (2, -1)),
        ([FILLER, FILLER, (700, 100, 1), (800, 100, 1)], (4, 900)),
        ([(0, 100, 1), FILLER, (500, 100, 1)], (3, 600)),
        ([(500, 100, 1), FILLER, (100, 100, 1)], (2, 600)),
    ],
)
def test_entries_are_counted_up_to_the_first_that_cannot_be(
    entries: list[tuple[int, int, int]], counted: tuple[int, int]
) -> None:
    data = queue(*entries) + bytes(40)

    assert queue_entry.count(data, 0, len(data)) == counted


def test_only_whole_entries_between_begin_and_end_are_counted() -> None:
    data = queue((0, 100, 1), (100, 100, 1), (200, 100, 1), (300, 100, 1))

    assert queue_entry.count(data, 20, 60) == (2, 300)
    assert queue_entry.count(data, 20, 59) == (1, 200)
    assert queue_entry.count(data, 20, 20) == (0, -1)
    assert queue_entry.count(memoryview(data), 0, 80) == (4, 400)
