"""The number of slots of an index file, guessed from what is in it."""

import pytest

from cometmq.store.index_shape import has_index_slots, index_slots_of
from tests.oracle import IndexFile
from tests.unit.store.raw_store import index_file


@pytest.mark.parametrize(("slots", "entries"), [(10, 40), (500, 1000), (20_000, 30), (1, 5)])
def test_the_number_of_slots_is_seen_from_the_entries(slots: int, entries: int) -> None:
    for count in (1, 2, entries - 1):
        data = index_file(slots, entries, count).data

        assert index_slots_of(data) == slots
        assert has_index_slots(data, slots)


def test_a_first_entry_of_zeros_does_not_hide_the_number_of_slots() -> None:
    index = IndexFile(10, 40)
    index.put("", 0, 0)  # the empty text has the hash 0
    index.put("T#k", 0, 0)

    assert index_slots_of(index.data) == 10
    assert not has_index_slots(index.data, 9)
    assert not has_index_slots(index.data, 1000)


def test_an_index_without_entries_fits_any_number_of_slots() -> None:
    data = index_file(10, 40, 0).data

    assert index_slots_of(data) is None
    assert has_index_slots(data, 10)


def test_a_damaged_index_has_no_number_of_slots() -> None:
    beyond, headless, negative = (index_file(10, 40, 5) for _ in range(3))
    beyond.set("i", 32, 20_000)
    headless.set("i", 36, 30)
    negative.set("i", 40 + 4 * 10 + 20 * 5, -7)

    assert index_slots_of(beyond.data) is None
    assert index_slots_of(headless.data) is None
    assert index_slots_of(negative.data) is None
    assert index_slots_of(b"short") is None
