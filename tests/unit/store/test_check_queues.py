"""What ``check`` finds in queues; each damage is planted into a sound store."""

from pathlib import Path

import pytest

from cometmq.codec import queue_entry, queue_extension
from cometmq.codec.queue_entry import FILLER, QueueEntry
from cometmq.codec.queue_extension import ExtensionUnit
from cometmq.store.check import Kind, Severity, check
from cometmq.store.check.cursor import QueueCursor
from cometmq.store.check.reading import Mappings, ReadOnlyFiles, Segments
from tests.unit.store.check_kit import error, found, replace_entry, store_of, write_extension
from tests.unit.store.raw_store import RawStore


def test_a_gap_in_the_numbers_of_messages_is_found_once(tmp_path: Path) -> None:
    """As Apache's broker writes it: entries follow each other although a number is missing."""
    store = store_of(tmp_path)
    store.put("A", 0, number=17)
    for number in range(18, 30):
        store.put("A", 0, number=number)

    report = check(store.write())

    assert found(report) == error(Kind.QUEUE_GAP)
    assert report.findings[0].position == 15


def test_a_repeated_number_is_found_once(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    for number in range(14, 20):
        store.put("A", 0, number=number)

    report = check(store.write())

    assert found(report) == error(Kind.QUEUE_REPEAT)
    assert report.findings[0].position == 15


@pytest.mark.parametrize("distance", [1, -1, 10**12])
def test_an_entry_that_points_nowhere_is_found(tmp_path: Path, distance: int) -> None:
    store = store_of(tmp_path)
    offset = store.queues["A", 0][6].physical_offset
    replace_entry(store, ("A", 0), 6, physical_offset=offset + distance)

    report = check(store.write())

    assert found(report) == error(Kind.ENTRY_NOWHERE)
    assert report.findings[0].position == 6
    assert report.findings[0].path == tmp_path / "consumequeue/A/0" / f"{0:020d}"


@pytest.mark.parametrize("other", [("B", 0, 2), ("B", 0, 12), ("A", 0, 7), ("A", 0, 4)])
def test_an_entry_that_points_to_another_message_is_found(
    tmp_path: Path, other: tuple[str, int, int]
) -> None:
    store = store_of(tmp_path)
    topic, queue_id, number = other
    offset = store.queues[topic, queue_id][number].physical_offset
    replace_entry(store, ("A", 0), 6, physical_offset=offset)

    report = check(store.write())

    assert found(report) == error(Kind.ENTRY_ELSEWHERE)
    assert report.findings[0].position == 6
    assert f"message {number} of {topic}/{queue_id}" in report.findings[0].text


def test_the_last_entry_may_point_nowhere_too(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    replace_entry(store, ("A", 0), -1, physical_offset=1)

    assert found(check(store.write())) == error(Kind.ENTRY_NOWHERE)


def test_an_entry_below_the_log_is_wrong_behind_others_that_are_in_it(tmp_path: Path) -> None:
    store = store_of(tmp_path, 200)
    replace_entry(store, ("A", 0), 40, physical_offset=0)

    report = check(store.write(log_from=store.log_file_bytes))

    assert found(report) == error(Kind.ENTRY_NOWHERE)


def test_an_entry_of_another_size_is_found(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    replace_entry(store, ("A", 0), 3, size=1)

    assert found(check(store.write())) == error(Kind.ENTRY_SIZE)


def test_a_wrong_tag_hash_is_found(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    replace_entry(store, ("B", 1), 3, tags_code=queue_entry.tags_code("other"))

    report = check(store.write())

    assert found(report) == error(Kind.ENTRY_TAG)
    assert report.findings[0].position == 3


def test_a_tag_hash_is_no_delivery_time(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.put("SCHEDULE_TOPIC_XXXX", 1, DELAY="2", TAGS="t")

    assert found(check(store.write())) == error(Kind.ENTRY_TAG)


def test_a_missing_or_wrong_extension_unit_is_found(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.put("A", 0, tags_code=queue_extension.address_to_tags_code(0), TAGS="red")
    store.put("A", 0, tags_code=queue_extension.address_to_tags_code(20), TAGS="red")
    store.put("A", 0, tags_code=queue_extension.address_to_tags_code(4000), TAGS="red")
    unit = ExtensionUnit(queue_entry.tags_code("blue"), store.timestamp)
    write_extension(store, ("A", 0), queue_extension.encode(unit))

    assert found(check(store.write())) == error(Kind.ENTRY_TAG) * 3


def test_entries_behind_the_end_of_the_log_are_found(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    for number in range(3):
        store.queues["A", 0].append(QueueEntry(store.end + 100 * number, 100, 0))

    report = check(store.write())

    assert found(report) == error(Kind.BEYOND_LOG)
    assert report.findings[0].position == 15
    assert "3 entries" in report.findings[0].text


def test_queues_without_a_log_are_beyond_it(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.indexes.clear()
    store.log.clear()

    report = check(store.write())

    assert found(report) == error(Kind.BEYOND_LOG) * 4


def test_a_message_without_an_entry_is_found(tmp_path: Path) -> None:
    """Its number is taken by the filler that a start after a crash writes."""
    store = store_of(tmp_path)
    store.queues["A", 0][5] = FILLER

    report = check(store.write())

    assert found(report) == error(Kind.NO_ENTRY)
    assert report.findings[0].position == store_of(tmp_path).queues["A", 0][5].physical_offset


def test_a_message_whose_entry_was_never_written_is_found_once_with_the_gap(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    del store.queues["A", 0][5]

    report = check(store.write())

    assert found(report) == error(Kind.NO_ENTRY) + error(Kind.QUEUE_GAP)


def test_the_newest_messages_may_not_lack_entries_in_a_store_that_was_closed(
    tmp_path: Path,
) -> None:
    store = store_of(tmp_path)
    store.put("A", 0, is_dispatched=False)

    assert found(check(store.write())) == error(Kind.NO_ENTRY)


def test_entries_in_a_file_behind_an_unwritten_one_are_found(tmp_path: Path) -> None:
    store = store_of(tmp_path, 100)
    store.write()
    path = tmp_path / "consumequeue/A/0" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:200].ljust(400, b"\0"))

    report = check(tmp_path)

    assert (Kind.QUEUE_GAP, Severity.ERROR) in found(report)
    assert report.counts[Severity.ERROR, Kind.NO_ENTRY] == 15


def test_messages_of_a_deleted_topic_are_worth_a_note(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    del store.queues["A", 0]

    report = check(store.write())

    assert found(report) == [(Kind.NO_QUEUE, Severity.NOTE)]
    assert "15 messages" in report.findings[0].text


def test_a_queue_of_a_topic_that_exists_may_not_be_missing(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    del store.queues["A", 0]
    store.write()
    (tmp_path / "config").mkdir()
    (tmp_path / "config/topics.json").write_text('{"topicConfigTable":{"A":{"topicName":"A"}}}')

    assert found(check(tmp_path)) == error(Kind.NO_QUEUE)


def test_a_folder_without_files_is_no_deleted_queue(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    del store.queues["A", 0]
    store.write()
    (tmp_path / "consumequeue/A/0").mkdir()

    assert found(check(tmp_path)) == error(Kind.NO_QUEUE)


def test_a_topic_that_was_deleted_and_made_again_is_worth_a_note(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    del store.queues["A", 0]
    for _ in range(20):
        store.put("A", 0)

    report = check(store.write())

    assert found(report) == [(Kind.NO_ENTRY, Severity.NOTE)]
    assert report.entries == 65


@pytest.mark.parametrize("chunk_entries", [1, 3, 20, 1000])
def test_a_cursor_reads_all_entries_whatever_it_reads_at_a_time(
    tmp_path: Path, chunk_entries: int
) -> None:
    store = RawStore(tmp_path)
    for _ in range(50):
        store.put()
    store.write()
    paths = sorted((tmp_path / "consumequeue/T/0").iterdir())
    mappings = Mappings(ReadOnlyFiles())

    cursor = QueueCursor(Segments(paths, 400, mappings), chunk_entries)
    entries: list[QueueEntry] = []
    while cursor.entry is not None:
        assert cursor.number == len(entries)
        entries.append(cursor.entry)
        cursor.advance()
    mappings.close()

    assert entries == store.queues["T", 0]
