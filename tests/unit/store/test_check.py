"""Every kind of damage that ``check`` knows, planted into a sound store, one at a time."""

import struct
import tarfile
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from cometmq.codec import queue_entry, queue_extension
from cometmq.codec.checkpoint import Checkpoint
from cometmq.codec.queue_entry import FILLER, QueueEntry
from cometmq.codec.queue_extension import ExtensionUnit
from cometmq.errors import ForeignStore
from cometmq.store.check import Kind, Report, Severity, check
from cometmq.store.check.report import FINDINGS_MAX
from cometmq.store.config import StoreSettings
from tests.golden.store_data import STORES, load
from tests.unit.store.raw_store import RawStore

PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC
DATA = Path(__file__).parents[2] / "data" / "store"


def store_of(root: Path, count: int = 60) -> RawStore:
    """A sound store: two topics of two queues, messages with keys and tags, several files each."""
    store = RawStore(root)
    for number in range(count):
        store.put(
            topic="AB"[number % 2],
            queue_id=number // 2 % 2,
            body=b"x" * (number * 7 % 90),
            TAGS=f"t{number % 3}",
            KEYS=f"k{number} common",
            UNIQ_KEY=f"{number:032X}",
        )
    return store


def found(report: Report) -> list[tuple[Kind, Severity]]:
    return [(finding.kind, finding.severity) for finding in report.findings]


def error(kind: Kind) -> list[tuple[Kind, Severity]]:
    return [(kind, Severity.ERROR)]


def put_bytes(store: RawStore, position: int, layout: str, value: int) -> None:
    struct.pack_into(layout, store.log, position, value)


def replace_entry(store: RawStore, queue: tuple[str, int], number: int, **fields: int) -> None:
    entries = store.queues[queue]
    entries[number] = msgspec.structs.replace(entries[number], **fields)


# Sound stores


def test_a_sound_store_has_no_findings_and_is_counted(tmp_path: Path) -> None:
    store = store_of(tmp_path)

    report = check(store.write())

    assert report.is_clean, report
    assert str(report) == f"{tmp_path}: consistent"
    assert (report.records, report.queues, report.entries) == (60, 4, 60)
    assert (report.log_begin, report.log_end) == (0, store.end)
    assert report.bytes == store.end
    assert report.index_files == len(store.indexes) > 2
    assert report.index_entries == 60 * 4
    assert len(store.log) > 2 * store.log_file_bytes


def test_nothing_is_no_inconsistent_store(tmp_path: Path) -> None:
    report = check(tmp_path / "nothing")

    assert report.is_clean
    assert not (tmp_path / "nothing").exists()


def test_a_preallocated_log_file_is_part_of_a_sound_store(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.log.extend(bytes(store.log_file_bytes))

    assert check(store.write()).is_clean


def test_a_log_whose_head_was_deleted_is_sound(tmp_path: Path) -> None:
    store = store_of(tmp_path, 200)
    begin = 6 * store.log_file_bytes

    report = check(store.write(log_from=begin, queues_from=20))

    assert report.is_clean, report
    assert report.log_begin == begin > store.queues["B", 1][20].physical_offset
    assert 0 < report.records < 200 - 80


def test_a_queue_may_begin_with_fillers(tmp_path: Path) -> None:
    store = RawStore(tmp_path)
    store.fill("T", 0, 7)
    store.put()
    store.put(number=8)

    assert check(store.write()).is_clean


def test_prepared_and_rolled_back_messages_belong_to_no_queue(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.put("A", sys_flag=PREPARED, number=0, is_dispatched=False)
    store.put("A", sys_flag=ROLLBACK, number=0, is_dispatched=False)
    store.put("A", sys_flag=COMMIT)

    assert check(store.write()).is_clean


def test_light_queues_hold_messages_of_other_topics(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    named = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "0,1"}
    message = store.put("A", named=named)
    store.queues["%LMQ%a", 0] = [QueueEntry(message.position, message.size, 0)]

    assert check(store.write()).is_clean


def test_delayed_messages_have_their_delivery_time_for_a_tag(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    delivery = store.timestamp + 5000
    store.put("SCHEDULE_TOPIC_XXXX", 1, tags_code=delivery, DELAY="2", TAGS="t")

    assert check(store.write()).is_clean
    assert check(tmp_path, StoreSettings(delay_levels="1s 5s")).is_clean
    assert found(check(tmp_path, StoreSettings(delay_levels="1s 6s"))) == error(Kind.ENTRY_TAG)


def test_a_level_without_a_delay_waits_a_second(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.put("SCHEDULE_TOPIC_XXXX", 1, tags_code=store.timestamp + 1000, DELAY="2")

    assert check(store.write(), StoreSettings(delay_levels="")).is_clean


def test_an_entry_may_have_its_tag_in_the_extension(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    address = queue_extension.address_to_tags_code(20)
    unit = ExtensionUnit(queue_entry.tags_code("red"), store.timestamp)
    store.put("A", 0, tags_code=address, TAGS="red")
    write_extension(store, ("A", 0), bytes(20) + queue_extension.encode(unit))

    assert check(store.write()).is_clean


def test_a_log_on_several_paths_is_one_log(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", 100)
    store.write()
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    for number, path in enumerate(sorted((store.root / "commitlog").iterdir())):
        path.rename(folders[number % 2] / path.name)
    (store.root / "commitlog").rmdir()

    report = check(store.root, StoreSettings(log_paths=tuple(map(str, folders))))

    assert report.is_clean
    assert report.records == 100


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_stores_of_apaches_brokers_are_consistent(name: str, tmp_path: Path) -> None:
    with tarfile.open(DATA / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    manifest = load(name).manifest
    levels = manifest["brokerConf"]["messageDelayLevel"]

    report = check(tmp_path / "store", StoreSettings(delay_levels=levels))

    assert report.is_clean, report
    assert report.is_killed == load(name).is_killed
    assert report.records == len(manifest["messages"]) == report.entries
    assert report.log_end == int(manifest["brokerRuntime"]["commitLogMaxOffset"])


# The log


def test_a_size_that_leads_nowhere_breaks_the_chain(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    broken = store.queues["A", 0][5].physical_offset
    put_bytes(store, broken, ">i", 12_345_678)

    report = check(store.write())

    assert found(report) == error(Kind.BROKEN_CHAIN)
    assert report.findings[0].position == broken
    assert report.records == 59


def test_a_filler_that_does_not_reach_the_next_file_breaks_the_chain(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    filler = store.log.index(struct.pack(">I", 0xCBD43194)) - 4
    put_bytes(store, filler, ">i", 9)

    report = check(store.write())

    assert found(report) == error(Kind.BROKEN_CHAIN)
    assert report.records == 60


def test_a_file_without_filler_breaks_the_chain(tmp_path: Path) -> None:
    store = RawStore(tmp_path)
    overhead = store.put(body=b"").size
    store.put(body=bytes(store.log_file_bytes - 3 * overhead - 8))
    last = store.end
    # What a writer would do that does not keep eight bytes for the filler.
    store.log.extend(bytes(store.log_file_bytes))
    store.put(body=bytes(8))
    store.put()

    report = check(store.write())

    assert last + overhead + 8 == store.log_file_bytes
    assert found(report) == error(Kind.BROKEN_CHAIN)
    assert report.findings[0].position == store.log_file_bytes
    assert report.records == 4


def test_zeros_before_messages_break_the_chain(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    entry = store.queues["B", 1][4]
    store.log[entry.physical_offset : entry.physical_offset + entry.size] = bytes(entry.size)

    report = check(store.write())

    assert found(report) == error(Kind.BROKEN_CHAIN)
    assert report.findings[0].position == entry.physical_offset


def test_zeros_before_another_file_with_messages_break_the_chain(tmp_path: Path) -> None:
    """No queue knows the messages behind, so only their file tells that they were there."""
    store = RawStore(tmp_path)
    size = store.put(number=0, sys_flag=PREPARED, is_dispatched=False).size
    for _ in range(60):
        store.put(number=0, sys_flag=PREPARED, is_dispatched=False)
    zeros = bytes(store.log_file_bytes - 5 * size)
    store.log[5 * size : store.log_file_bytes] = zeros

    report = check(store.write())

    assert found(report) == error(Kind.BROKEN_CHAIN)
    assert report.findings[0].position == 5 * size


def test_a_wrong_magic_is_found(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    put_bytes(store, store.queues["A", 1][3].physical_offset + 4, ">I", 0xDAA320A8)

    report = check(store.write())

    assert found(report) == error(Kind.WRONG_MAGIC)
    assert "0xdaa320a8" in report.findings[0].text
    assert report.records == 59


def test_a_wrong_magic_of_the_last_message_is_no_leftover(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    last = store.put("A", 0)
    put_bytes(store, last.position + 4, ">I", 1)

    report = check(store.write())

    assert found(report)[0] == (Kind.WRONG_MAGIC, Severity.ERROR)


def test_bytes_behind_the_last_message_are_a_leftover(tmp_path: Path) -> None:
    """Apache's broker cuts a log off without clearing what was there."""
    store = store_of(tmp_path)
    store.log[store.end : store.end + 4] = b"torn"

    report = check(store.write())

    assert found(report) == [(Kind.WRONG_MAGIC, Severity.NOTE)]
    assert report.is_consistent
    assert not report.is_clean


def test_a_body_with_another_checksum_is_found(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    message = store.put(body=b"what was sent")
    at = store.log.index(b"what was sent", message.position)
    store.log[at : at + 4] = b"that"

    report = check(store.write())

    assert found(report) == error(Kind.WRONG_CRC)
    assert report.findings[0].position == message.position


def test_a_checksum_in_the_properties_is_verified(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.put(named={"__CRC32#": "0123456789"})

    assert found(check(store.write())) == error(Kind.WRONG_CRC)


def test_a_message_that_says_it_lies_elsewhere_is_found(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    position = store.queues["B", 0][2].physical_offset
    put_bytes(store, position + 28, ">q", position + 1)
    store.indexes.clear()

    report = check(store.write())

    assert found(report) == error(Kind.WRONG_POSITION)
    assert report.records == 60


# The queues


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


def test_a_topic_that_was_deleted_and_made_again_is_worth_a_note(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    del store.queues["A", 0]
    for _ in range(20):
        store.put("A", 0)

    report = check(store.write())

    assert found(report) == [(Kind.NO_ENTRY, Severity.NOTE)]
    assert report.entries == 65


# The index


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


# Files


def test_a_log_file_of_another_size_is_found(tmp_path: Path) -> None:
    store = store_of(tmp_path, 100)
    store.write()
    path = tmp_path / "commitlog" / f"{store.log_file_bytes:020d}"
    path.write_bytes(path.read_bytes()[:-100])

    report = check(tmp_path)

    assert (Kind.FILE_SIZE, Severity.ERROR) in found(report)
    assert report.findings[0].path == path


def test_queue_and_index_files_of_another_size_are_found(tmp_path: Path) -> None:
    store = store_of(tmp_path, 100)
    store.write()
    odd = [tmp_path / "consumequeue/B/1" / f"{400:020d}", *(tmp_path / "index").iterdir()][:2]
    for path in odd:
        path.write_bytes(path.read_bytes() + b"\0")

    report = check(tmp_path)

    assert {f.path for f in report.findings if f.kind is Kind.FILE_SIZE} == set(odd)


def test_a_missing_file_is_found(tmp_path: Path) -> None:
    store = store_of(tmp_path, 100)
    store.write()
    path = tmp_path / "commitlog" / f"{store.log_file_bytes:020d}"
    path.unlink()

    report = check(tmp_path)

    assert (Kind.FILE_MISSING, Severity.ERROR) in found(report)
    assert report.findings[0].path == path


@pytest.mark.parametrize("name", ["commitlog/old.bak", "consumequeue/A/0/1", "index/today"])
def test_a_file_of_a_name_that_files_there_do_not_have_is_found(tmp_path: Path, name: str) -> None:
    store_of(tmp_path).write()
    (tmp_path / name).write_bytes(b"")

    assert found(check(tmp_path)) == error(Kind.FILE_NAME)


@pytest.mark.parametrize(
    "name",
    ["notes.txt", "consumequeue/notes.txt", "consumequeue/A/one", "commitlog/.hidden"],
)
def test_orphans_are_worth_a_note(tmp_path: Path, name: str) -> None:
    store_of(tmp_path).write()
    (tmp_path / name).write_bytes(b"")

    report = check(tmp_path)

    assert found(report) == [(Kind.ORPHAN, Severity.NOTE)]
    assert report.findings[0].path == tmp_path / name


def test_a_checkpoint_that_is_too_short_is_found(tmp_path: Path) -> None:
    store_of(tmp_path).write()
    (tmp_path / "checkpoint").write_bytes(b"\0" * 39)

    assert found(check(tmp_path)) == error(Kind.FILE_SIZE)


def test_a_store_of_another_engine_is_refused(tmp_path: Path) -> None:
    store_of(tmp_path).write()
    (tmp_path / "rocksdbstore").mkdir()
    (tmp_path / "rocksdbstore/000007.sst").write_bytes(b"data")

    with pytest.raises(ForeignStore, match="RocksDB"):
        check(tmp_path)


# Killed stores


def killed_store(root: Path) -> RawStore:
    store = store_of(root)
    store.is_killed = True
    return store


def test_a_torn_tail_of_a_killed_store_is_recoverable(tmp_path: Path) -> None:
    store = killed_store(tmp_path)
    torn = store.put(body=b"half of it", is_dispatched=False)
    store.log[torn.end - 20 : torn.end] = bytes(20)

    report = check(store.write())

    assert found(report) == [(Kind.BROKEN_CHAIN, Severity.RECOVERABLE)]
    assert report.is_killed
    assert report.is_consistent
    assert report.log_end == torn.position


@pytest.mark.parametrize(
    ("at", "layout", "value", "kind"),
    [
        (4, ">I", 7, Kind.WRONG_MAGIC),
        (8, ">I", 7, Kind.WRONG_CRC),
        (28, ">q", 7, Kind.WRONG_POSITION),
    ],
)
def test_the_log_of_a_killed_store_ends_at_the_first_unsound_message(
    tmp_path: Path, at: int, layout: str, value: int, kind: Kind
) -> None:
    store = killed_store(tmp_path)
    position = store.queues["A", 0][12].physical_offset
    put_bytes(store, position + at, layout, value)

    report = check(store.write())

    assert report.log_end == position
    assert set(found(report)) == {
        (kind, Severity.RECOVERABLE),
        (Kind.BEYOND_LOG, Severity.RECOVERABLE),
        (Kind.INDEX_NOWHERE, Severity.RECOVERABLE),
    }


def test_the_newest_messages_of_a_killed_store_may_lack_entries(tmp_path: Path) -> None:
    store = killed_store(tmp_path)
    store.put("A", 0, is_dispatched=False)
    store.put("New", 0, is_dispatched=False)

    report = check(store.write())

    assert found(report) == [
        (Kind.NO_ENTRY, Severity.RECOVERABLE),
        (Kind.NO_QUEUE, Severity.RECOVERABLE),
    ]


def test_a_file_whose_creation_was_cut_short_is_recoverable(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.write()
    (tmp_path / "commitlog" / f"{len(store.log):020d}").write_bytes(b"")

    assert found(check(tmp_path)) == [(Kind.FILE_SIZE, Severity.RECOVERABLE)]


def test_what_the_checkpoint_has_as_safe_is_not_mended(tmp_path: Path) -> None:
    """A start after a kill goes through the log from the checkpoint on, not from its beginning."""
    store = killed_store(tmp_path)
    wrong, missing = store.queues["A", 0][2], store.queues["A", 0][13]
    replace_entry(store, ("A", 0), 2, tags_code=1)
    replace_entry(store, ("A", 0), 13, tags_code=1)

    report = check(store.write())

    assert found(report) == [
        (Kind.ENTRY_TAG, Severity.ERROR),
        (Kind.ENTRY_TAG, Severity.RECOVERABLE),
    ]
    assert wrong.physical_offset < store.log_file_bytes < missing.physical_offset


def test_without_a_useful_checkpoint_all_of_a_killed_store_is_mended(tmp_path: Path) -> None:
    """5.5 writes no time for the queues, so that its broker begins with the oldest file."""
    store = killed_store(tmp_path)
    store.checkpoint = Checkpoint(log_timestamp=store.timestamp)
    replace_entry(store, ("A", 0), 2, tags_code=1)

    assert found(check(store.write())) == [(Kind.ENTRY_TAG, Severity.RECOVERABLE)]


def test_full_index_files_before_the_checkpoint_are_not_mended(tmp_path: Path) -> None:
    store = killed_store(tmp_path)
    old = store.indexes[0].get("q", 8)
    store.checkpoint = Checkpoint(store.timestamp, store.timestamp, old)
    for index in store.indexes[:2]:
        index.set("i", 32, 3)

    report = check(store.write(), store.settings)

    assert found(report) == [
        (Kind.INDEX_CHAIN, Severity.ERROR),
        (Kind.INDEX_CHAIN, Severity.RECOVERABLE),
    ]


# How it goes about it


def test_nothing_is_touched(tmp_path: Path) -> None:
    store = killed_store(tmp_path)
    store.write()
    before = snapshot(tmp_path)
    make_read_only(tmp_path)

    report = check(tmp_path)

    make_read_only(tmp_path, is_undone=True)
    assert report.is_clean
    assert snapshot(tmp_path) == before


def test_findings_are_bounded_and_counted(tmp_path: Path) -> None:
    store = RawStore(tmp_path, log_file_bytes=65536)
    for _ in range(FINDINGS_MAX + 50):
        store.put(tags_code=1)

    report = check(store.write())

    assert len(report.findings) == FINDINGS_MAX
    assert report.dropped == 50
    assert report.count(Severity.ERROR) == FINDINGS_MAX + 50
    assert str(report).endswith("… and 50 more")


def test_progress_grows_to_the_whole(tmp_path: Path) -> None:
    store = RawStore(tmp_path, log_file_bytes=2 * 1024 * 1024)
    for _ in range(10):
        store.put(body=bytes(300 * 1024), KEYS="k")
    told: list[tuple[int, int]] = []

    report = check(store.write(), progress=lambda done, whole: told.append((done, whole)))

    assert report.is_clean
    assert len(told) >= 3
    assert told == sorted(told)
    assert len({whole for _, whole in told}) == 1
    assert told[-1][0] == told[-1][1]


def test_a_finding_says_where_and_what(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    replace_entry(store, ("A", 1), 3, size=1)
    (tmp_path / "notes").write_text("")

    orphan, entry = check(store.write()).findings

    size = store_of(tmp_path).queues["A", 1][3].size
    assert str(orphan) == f"note: {tmp_path}/notes: this is not part of a store"
    assert str(entry).startswith(f"error: {tmp_path}/consumequeue/A/1/{0:020d} at 3: ")
    assert str(entry).endswith(f" has {size}")


def write_extension(store: RawStore, queue: tuple[str, int], data: bytes) -> None:
    path = store.root / "consumequeue_ext" / queue[0] / str(queue[1]) / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(data.ljust(1024, b"\0"))


def move_index_entry(store: RawStore, number: int, offset: int) -> None:
    index = store.indexes[0]
    index.set("q", 40 + 4 * index.slots + 20 * number + 4, offset)


def snapshot(root: Path) -> dict[Path, tuple[int, bytes | None]]:
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in sorted(root.rglob("*"))
    }


def make_read_only(root: Path, *, is_undone: bool = False) -> None:
    paths: Iterable[Path] = [root, *root.rglob("*")]
    for path in paths:
        mode = 0o755 if path.is_dir() else 0o644
        path.chmod(mode if is_undone else mode & 0o555)
