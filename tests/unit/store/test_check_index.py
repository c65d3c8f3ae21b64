"""What ``check`` finds in index files; each damage is planted into a sound store."""

from pathlib import Path

from cometmq.store.check import Kind, Severity, check
from tests.unit.store.check_kit import error, found, store_of
from tests.unit.store.raw_store import RawStore


def test_an_index_entry_without_a_message_is_found(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    move_index_entry(store, 5, store.queues["A", 0][3].physical_offset + 1)

    report = check(store.write())

    assert found(report) == error(Kind.INDEX_NOWHERE)
    assert report.findings[0].position == 5


def test_an_index_entry_for_a_message_without_the_key_is_found(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    move_index_entry(store, 5, store.queues["A", 0][9].physical_offset)

    assert found(check(store.write())) == error(Kind.INDEX_KEY)


def test_a_hash_that_is_none_is_found(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    index = store.indexes[0]
    index.set("i", 40 + 4 * index.slots + 20 * 5, -1)

    assert (Kind.INDEX_KEY, Severity.ERROR) in found(check(store.write()))


def test_index_entries_behind_the_log_are_left_there_by_apache(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.indexes[-1].put("A#gone", store.end + 100, store.timestamp)

    report = check(store.write())

    assert found(report) == [(Kind.INDEX_NOWHERE, Severity.NOTE)]


def test_a_message_may_be_indexed_twice_or_not_at_all(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.indexes[-1].put("B#k59", store.queues["B", 1][-1].physical_offset, store.timestamp)
    del store.indexes[0]

    assert check(store.write(), store.settings).is_clean


def test_an_entry_that_leads_to_the_wrong_one_is_found(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    index = store.indexes[1]
    previous = 40 + 4 * index.slots + 20 * 30 + 16
    index.set("i", previous, index.get("i", previous) + 1)

    report = check(store.write())

    assert found(report) == error(Kind.INDEX_CHAIN)
    assert report.findings[0].position == 30


def test_a_slot_that_leads_to_the_wrong_entry_is_found(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.indexes[1].set("i", 40 + 4 * 2, 1)

    report = check(store.write(), store.settings)

    assert found(report) == error(Kind.INDEX_CHAIN)
    assert "slot 2 leads to entry 1" in report.findings[0].text


def test_a_header_that_miscounts_is_found(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.indexes[0].set("i", 32, 3)
    store.indexes[1].set("i", 36, 41)

    report = check(store.write(), store.settings)

    assert found(report) == error(Kind.INDEX_CHAIN) * 2


def move_index_entry(store: RawStore, number: int, offset: int) -> None:
    index = store.indexes[0]
    index.set("q", 40 + 4 * index.slots + 20 * number + 4, offset)
