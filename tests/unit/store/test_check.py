"""Every kind of damage that ``check`` knows, planted into a sound store, one at a time."""

import struct
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from cometmq.codec import queue_entry, queue_extension
from cometmq.codec.checkpoint import Checkpoint
from cometmq.codec.queue_entry import QueueEntry
from cometmq.codec.queue_extension import ExtensionUnit
from cometmq.errors import ForeignStore
from cometmq.store.check import Kind, Severity, check
from cometmq.store.check.log import BREAKS_MAX
from cometmq.store.check.report import FINDINGS_MAX
from cometmq.store.config import StoreSettings
from tests.golden.store_data import STORES, load
from tests.unit.store.check_kit import (
    error,
    found,
    put_bytes,
    replace_entry,
    store_of,
    write_extension,
)
from tests.unit.store.raw_store import RawStore

PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC
DATA = Path(__file__).parents[2] / "data" / "store"


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

    (tmp_path / "abort").write_bytes(b"")
    assert found(check(tmp_path)) == [(Kind.FILE_SIZE, Severity.RECOVERABLE)]


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


def test_an_index_file_that_is_not_full_is_mended_whatever_its_header_says(tmp_path: Path) -> None:
    """The header may be the part that did not reach the disk."""
    store = killed_store(tmp_path)
    store.checkpoint = Checkpoint(store.timestamp, store.timestamp, store.timestamp)
    store.indexes[-1].data[:40] = bytes(40)

    report = check(store.write(), store.settings)

    assert {severity for _, severity in found(report)} == {Severity.RECOVERABLE}
    assert {kind for kind, _ in found(report)} == {Kind.INDEX_CHAIN}


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


@pytest.mark.slow
def test_after_many_breaks_the_rest_of_a_file_is_given_up(tmp_path: Path) -> None:
    store = RawStore(tmp_path, log_file_bytes=262_144, queue_entries=4000)
    for _ in range(BREAKS_MAX + 100):
        put_bytes(store, store.put().position + 4, ">I", 1)
        store.put()

    report = check(store.write())

    assert report.counts[Severity.ERROR, Kind.WRONG_MAGIC] == BREAKS_MAX + 1
    assert report.records == BREAKS_MAX


def test_only_some_files_are_mapped_at_a_time(tmp_path: Path) -> None:
    store = RawStore(tmp_path, index_entries=200)
    for number in range(40):
        store.put(body=bytes(3000), queue_id=number % 20, KEYS=f"k{number}")

    report = check(store.write())

    assert len(store.log) == 40 * store.log_file_bytes
    assert report.is_clean, report


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
