"""The index over all its files: filling, asking, rolling over, and what is left after a stop."""

import errno
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cometmq.codec import index_entry
from cometmq.codec.digest import hashes_of
from cometmq.codec.java import index_hash
from cometmq.errors import DamagedStore
from cometmq.store.config import StoreSettings
from cometmq.store.key_index import KeyIndex, KeyKind
from cometmq.testing import CrashingDisk, FakeClock
from cometmq.testing.clock import EPOCH_MS
from tests import oracle
from tests.unit.store.index_folder import (
    ENTRIES,
    LOG_END,
    SLOTS,
    contents,
    headers,
    offsets,
    opened,
    paths,
)

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def disk(tmp_path: Path) -> CrashingDisk:
    return CrashingDisk(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def index(disk: CrashingDisk, folder: Path) -> KeyIndex:
    return opened(disk, folder)


def killed(disk: CrashingDisk, folder: Path, **changes: Any) -> KeyIndex:
    """The index after the process was killed; nothing counts as synced."""
    disk.abandon()
    return opened(disk, folder, **({"is_clean": False, "index_timestamp": 0} | changes))


def fill(index: KeyIndex, begin: int, end: int, *, keys: int = 2) -> None:
    """Messages ``begin`` to ``end``, a second apart; number n lies at 100 * n with key ``k<n>``."""
    for number in range(begin, end):
        words = " ".join([f"k{number}", *(f"more{number}-{n}" for n in range(keys - 1))])
        index.add("T", 100 * number, EPOCH_MS + 1000 * number, None, words, None)


def missing(index: KeyIndex, begin: int, end: int, *, keys: int = 2) -> list[str]:
    """Which of the keys that ``fill`` gives are not found at their place."""
    return [
        key
        for number in range(begin, end)
        for key in (f"k{number}", *(f"more{number}-{n}" for n in range(keys - 1)))
        if 100 * number not in index.query("T", key, limit=64)
    ]


def damage(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def sync(index: KeyIndex) -> None:
    taken = index.take_unsynced()
    for file in taken:
        file.sync()
    index.mark_synced(taken)


# Asking


def test_a_message_is_found_by_all_its_names(index: KeyIndex) -> None:
    index.add("T", 100, EPOCH_MS, "unique", "one  two ", "tag")

    for key in ("unique", "one", "two"):
        assert index.query("T", key, limit=32) == [100]
    assert index.query("T", "unique", limit=32, kind=KeyKind.UNIQUE) == [100]
    assert index.query("T", "tag", limit=32, kind=KeyKind.TAG) == [100]
    for key in ("tag", "", "three"):
        assert index.query("T", key, limit=32) == []
    assert index.query("Other", "one", limit=32) == []


def test_hashes_come_in_the_order_of_the_entries() -> None:
    hashes = hashes_of("T", "u", " b a", "t")

    assert hashes == [index_hash(text) for text in ("T#u", "T#b", "T#a", "T#T#t")]
    assert hashes_of("T", None, None, None) == []
    assert hashes_of("T", "", " ", "") == []


def test_a_message_without_keys_leaves_no_trace(index: KeyIndex, folder: Path) -> None:
    index.add("T", 100, EPOCH_MS, None, None, None)

    assert index.resume_offset == 0
    assert not folder.exists()


def test_colliding_keys_are_both_returned(index: KeyIndex) -> None:
    """Java's hash of AaAa and BBBB is the same; whoever asked compares the keys."""
    index.add("T", 100, EPOCH_MS, "AaAa", None, None)
    index.add("T", 200, EPOCH_MS, "BBBB", None, None)

    assert index.query("T", "AaAa", limit=32) == [100, 200]


def test_the_newest_hits_win_and_come_in_ascending_order(index: KeyIndex) -> None:
    for number in range(25):
        index.add("T", 100 * number, EPOCH_MS + number, "same", None, None)

    assert index.query("T", "same", limit=13) == [100 * number for number in range(12, 25)]
    assert len(index.query("T", "same", limit=64)) == 25
    assert index.query("T", "same", limit=0) == []


def test_the_settings_bound_the_number_of_hits(disk: CrashingDisk, folder: Path) -> None:
    settings = StoreSettings(index_slots=SLOTS, index_entries=ENTRIES, query_count_max=3)
    index = opened(disk, folder, settings=settings)
    for number in range(25):
        index.add("T", 100 * number, EPOCH_MS + number, "same", None, None)

    assert index.query("T", "same", limit=64) == [2200, 2300, 2400]


def test_a_key_that_is_given_twice_is_one_hit(index: KeyIndex) -> None:
    index.add("T", 100, EPOCH_MS, "same", "same same", None)

    assert index.query("T", "same", limit=64) == [100]


def test_only_the_range_of_time_is_searched(index: KeyIndex) -> None:
    for number in range(25):
        index.add("T", 100 * number, EPOCH_MS + 1000 * number, "same", None, None)

    def between(begin: int, end: int) -> list[int]:
        found = index.query(
            "T", "same", limit=64, begin_ms=EPOCH_MS + begin * 1000, end_ms=EPOCH_MS + end * 1000
        )
        return [offset // 100 for offset in found]

    assert between(3, 5) == [3, 4, 5]
    assert between(8, 22) == list(range(8, 23))
    assert between(24, 30) == [24]
    assert between(25, 30) == []
    assert between(-9, -1) == []


def test_files_older_than_the_range_are_not_searched(index: KeyIndex, folder: Path) -> None:
    for number in range(25):
        index.add("T", 100 * number, EPOCH_MS + 1000 * number, "same", None, None)
    oldest = index._index_files[0]
    oldest.close()  # looking into it would now fail

    assert len(index.query("T", "same", limit=64, begin_ms=EPOCH_MS + 12_000)) == 13


# Rolling over


def test_a_full_file_is_followed_by_another(index: KeyIndex, folder: Path) -> None:
    fill(index, 0, 12)

    assert [header.index_count for header in headers(folder)] == [11, 11, 5]
    assert [header.begin_offset for header in headers(folder)] == [0, 500, 1000]
    assert missing(index, 0, 12) == []


def test_files_are_as_the_oracle_writes_them(index: KeyIndex, folder: Path) -> None:
    """Also where the keys of a message go on in the next file, and its first time counts oddly."""
    files = [oracle.IndexFile(SLOTS, ENTRIES)]
    for number in range(20):
        time_ms = EPOCH_MS + 2500 * number
        index.add("T", 100 * number, time_ms, f"u{number}", f"a{number % 3} b", "tag")
        for text in (f"T#u{number}", f"T#a{number % 3}", "T#b", "T#T#tag"):
            if files[-1].is_full:
                files.append(oracle.IndexFile(SLOTS, ENTRIES, seed=files[-1]))
            files[-1].put(text, 100 * number, time_ms)

    assert contents(folder) == [bytes(file.data) for file in files]


def test_the_keys_of_one_message_may_fill_several_files(index: KeyIndex, folder: Path) -> None:
    fill(index, 0, 3, keys=35)

    assert len(paths(folder)) == 11
    assert missing(index, 0, 3, keys=35) == []
    assert offsets(folder) == [0] * 35 + [100] * 35 + [200] * 35


def test_files_are_named_by_local_time(disk: CrashingDisk, folder: Path) -> None:
    clock = FakeClock(EPOCH_MS + 7)
    index = opened(disk, folder, clock=clock)

    fill(index, 0, 5)
    clock.advance(3600)
    fill(index, 5, 6)

    moments = [datetime.fromtimestamp(EPOCH_MS // 1000 + later, UTC) for later in (0, 3600)]
    assert [path.name for path in paths(folder)] == [
        moment.astimezone().strftime("%Y%m%d%H%M%S007") for moment in moments
    ]


def test_names_grow_even_when_the_clock_does_not(disk: CrashingDisk, folder: Path) -> None:
    clock = FakeClock(EPOCH_MS + 999)
    index = opened(disk, folder, clock=clock)

    fill(index, 0, 10)
    clock.set_back(3600)
    fill(index, 10, 20)

    names = [path.name for path in paths(folder)]
    assert len(names) == 4
    assert {len(name) for name in names} == {17}
    assert names == [f"{int(names[0]) + number}" for number in range(4)]
    assert [header.begin_offset for header in headers(folder)] == [0, 500, 1000, 1500]


# Feeding again


def test_a_clean_stop_leaves_everything(disk: CrashingDisk, folder: Path) -> None:
    index = opened(disk, folder)
    fill(index, 0, 12)
    index.close()
    before = contents(folder)

    again = opened(disk, folder)

    assert again.resume_offset == 1100
    assert (again.end_offset, again.end_timestamp) == (1100, EPOCH_MS + 11_000)
    assert missing(again, 0, 12) == []
    assert contents(folder) == before


def test_messages_fed_again_are_not_doubled(disk: CrashingDisk, folder: Path) -> None:
    index = opened(disk, folder)
    fill(index, 0, 12)
    fill(index, 3, 12)
    index.close()
    before = contents(folder)

    again = opened(disk, folder)
    fill(again, 0, 12)
    assert contents(folder) == before
    fill(again, 11, 14)

    assert missing(again, 0, 14) == []
    assert offsets(folder) == [100 * (number // 2) for number in range(28)]


def test_an_empty_index_is_fed_from_the_begin_of_the_log(disk: CrashingDisk, folder: Path) -> None:
    assert opened(disk, folder).resume_offset == 0
    assert opened(disk, folder, log_begin=5000).resume_offset == 5000


def test_an_index_the_log_has_left_behind_is_fed_from_the_begin_of_the_log(
    disk: CrashingDisk, folder: Path
) -> None:
    fill(opened(disk, folder), 0, 12)

    assert opened(disk, folder, log_begin=5000).resume_offset == 5000


def test_after_a_kill_the_last_message_is_fed_again(disk: CrashingDisk, folder: Path) -> None:
    fill(opened(disk, folder), 0, 12)
    before = contents(folder)

    again = killed(disk, folder)
    assert again.resume_offset == 1000
    assert missing(again, 0, 11) == []
    fill(again, 10, 12)

    assert contents(folder) == before


def test_a_kill_between_entry_and_header_leaves_no_trace(disk: CrashingDisk, folder: Path) -> None:
    index = opened(disk, folder)
    fill(index, 0, 3)
    (path,) = paths(folder)
    header = path.read_bytes()[: index_entry.HEADER_BYTES]
    fill(index, 3, 4)
    before = path.read_bytes()
    damage(path, 0, header)

    again = killed(disk, folder)
    fill(again, again.resume_offset // 100, 4)

    assert missing(again, 0, 4) == []
    assert path.read_bytes() == before


def test_a_kill_before_the_first_header_of_a_file_leaves_no_trace(
    disk: CrashingDisk, folder: Path
) -> None:
    """The slot leads to an entry that is not counted, and would be linked to itself."""
    fill(opened(disk, folder), 0, 6)
    first, second = paths(folder)
    before = contents(folder)
    damage(second, 0, bytes(index_entry.HEADER_BYTES))

    again = killed(disk, folder, index_timestamp=headers(folder)[0].end_timestamp)
    assert paths(folder) == [first]
    fill(again, again.resume_offset // 100, 6)

    assert missing(again, 0, 6) == []
    assert contents(folder) == before


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_kill_amid_the_keys_of_a_message_over_two_files_loses_none(
    disk: CrashingDisk, folder: Path, is_synced: bool
) -> None:
    fill(opened(disk, folder), 0, 4, keys=3)
    before = contents(folder)
    paths(folder)[1].unlink()

    timestamp = headers(folder)[0].end_timestamp if is_synced else 0
    again = killed(disk, folder, index_timestamp=timestamp)
    fill(again, again.resume_offset // 100, 4, keys=3)

    assert missing(again, 0, 4, keys=3) == []
    assert contents(folder) == before


def test_a_lost_page_of_an_older_file_ends_the_index_there(
    disk: CrashingDisk, folder: Path
) -> None:
    fill(opened(disk, folder), 0, 40)
    before = contents(folder)
    damage(paths(folder)[2], index_entry.entry_position(5, SLOTS), bytes(40))

    again = killed(disk, folder)

    assert again.resume_offset == 1000
    assert len(paths(folder)) == 3
    fill(again, 10, 40)
    assert missing(again, 0, 40) == []
    assert contents(folder) == before


def test_files_the_checkpoint_vouches_for_are_not_looked_at(
    disk: CrashingDisk, folder: Path
) -> None:
    fill(opened(disk, folder), 0, 40)
    damage(paths(folder)[2], index_entry.entry_position(5, SLOTS), bytes(40))

    again = killed(disk, folder, index_timestamp=headers(folder)[2].end_timestamp)

    assert again.resume_offset == 3800
    assert len(paths(folder)) == 8


def test_of_files_that_end_in_the_same_millisecond_the_first_is_synced(
    disk: CrashingDisk, folder: Path
) -> None:
    index = opened(disk, folder)
    for number in range(40):
        index.add("T", 100 * number, EPOCH_MS, None, f"k{number}", None)
    damage(paths(folder)[1], index_entry.entry_position(5, SLOTS), bytes(20))

    again = killed(disk, folder, index_timestamp=EPOCH_MS)

    assert again.resume_offset == 1200


def test_a_lost_header_of_an_older_file_ends_the_index_there(
    disk: CrashingDisk, folder: Path
) -> None:
    fill(opened(disk, folder), 0, 40)
    before = contents(folder)
    damage(paths(folder)[2], 0, bytes(index_entry.HEADER_BYTES))

    again = killed(disk, folder, index_timestamp=headers(folder)[1].end_timestamp)
    assert len(paths(folder)) == 2
    fill(again, again.resume_offset // 100, 40)

    assert missing(again, 0, 40) == []
    assert contents(folder)[:2] == before[:2]
    assert offsets(folder) == [100 * (number // 2) for number in range(80)]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("log_end", [0, 1, 499, 500, 501, 700, 1950, 3900])
def test_entries_beyond_the_log_are_removed(
    disk: CrashingDisk, folder: Path, log_end: int, is_clean: bool
) -> None:
    fill(opened(disk, folder), 0, 40)
    kept = -(-log_end // 100)

    again = killed(disk, folder, log_end=log_end, is_clean=is_clean)

    assert max(offsets(folder), default=-1) < log_end
    fill(again, again.resume_offset // 100, kept)
    assert missing(again, 0, kept) == []
    for number in range(kept, 45):
        again.add("T", 100 * number, EPOCH_MS, None, f"other{number}", None)
    assert again.query("T", "k39", limit=64) == ([] if kept < 40 else [3900])
    assert again.query("T", "other44", limit=64) == [4400]


def test_names_that_are_not_in_order_are_made_anew(disk: CrashingDisk, folder: Path) -> None:
    """Apache names files by local time, which falls back by an hour in autumn."""
    fill(opened(disk, folder), 0, 20)
    one, two = paths(folder)[:2]
    two.rename(one.with_name("20991114221320000"))

    again = opened(disk, folder)

    assert again.resume_offset == 300
    assert paths(folder) == [one]
    fill(again, 3, 20)
    assert missing(again, 0, 20) == []


# The folder


def test_folders_and_foreign_files_are_left_alone(
    disk: CrashingDisk, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "20231114221320000").mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")

    with caplog.at_level(logging.WARNING, "cometmq"):
        index = opened(disk, folder)

    assert index.resume_offset == 0
    assert "notes.txt is no index file" in caplog.text
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_file_that_never_got_its_size_is_removed(disk: CrashingDisk, folder: Path) -> None:
    fill(opened(disk, folder), 0, 3)
    (folder / "20991114221320000").touch()

    again = opened(disk, folder)

    assert len(paths(folder)) == 1
    assert missing(again, 0, 3) == []


def test_a_file_of_another_size_is_refused(disk: CrashingDisk, folder: Path) -> None:
    folder.mkdir()
    (folder / "20231114221320000").write_bytes(bytes(100))

    with pytest.raises(DamagedStore, match="20231114221320000"):
        opened(disk, folder)


def test_a_directory_keeps_its_sizes_whatever_the_settings_say(
    disk: CrashingDisk, folder: Path
) -> None:
    written = StoreSettings(index_slots=5, index_entries=20)
    index = opened(disk, folder, settings=written)
    fill(index, 0, 5)
    index.close()

    again = opened(disk, folder)
    fill(again, 5, 40)

    assert missing(again, 0, 40) == []
    assert {path.stat().st_size for path in paths(folder)} == {index_entry.file_bytes(5, 20)}
    assert offsets(folder, slots=5) == [100 * (number // 2) for number in range(80)]


def test_an_empty_newest_file_of_apache_is_filled(disk: CrashingDisk, folder: Path) -> None:
    fill(opened(disk, folder), 0, 5)
    (old,) = paths(folder)
    seeded = oracle.IndexFile(SLOTS, ENTRIES)
    seeded.set("q", 0, EPOCH_MS + 4000)
    seeded.set("q", 8, EPOCH_MS + 4000)
    seeded.set("q", 16, 400)
    seeded.set("q", 24, 400)
    old.with_name("20231114221320005").write_bytes(seeded.data)

    again = opened(disk, folder)
    assert again.resume_offset == 400
    assert again.query("T", "k3", limit=64, begin_ms=EPOCH_MS + 3000) == [300]
    fill(again, 4, 6)

    assert len(paths(folder)) == 2
    assert missing(again, 0, 6) == []
    assert offsets(folder) == [100 * (number // 2) for number in range(12)]


# Deleting


def test_files_go_when_their_messages_are_gone(index: KeyIndex, folder: Path) -> None:
    fill(index, 0, 12)
    first, second, third = paths(folder)

    assert index.delete_before(400) == []
    assert index.delete_before(401) == [first]
    assert index.delete_before(LOG_END) == [second]

    assert paths(folder) == [third]
    assert missing(index, 10, 12) == []
    assert index.query("T", "k1", limit=64) == []


def test_a_file_that_is_looked_at_is_deleted_later(index: KeyIndex, folder: Path) -> None:
    fill(index, 0, 12)
    first, second, _ = paths(folder)

    with memoryview(index._index_files[0]._mapping):
        assert index.delete_before(LOG_END) == []
        assert missing(index, 0, 12) == []

    assert index.delete_before(LOG_END) == [first, second]


def test_a_file_may_be_deleted_while_it_is_being_synced(index: KeyIndex) -> None:
    fill(index, 0, 12)

    taken = index.take_unsynced()
    assert len(index.delete_before(LOG_END)) == 2
    for file in taken:
        file.sync()
    index.mark_synced(taken)

    assert index.synced_timestamp == EPOCH_MS + 9000
    fill(index, 12, 20)
    sync(index)
    assert index.synced_timestamp == EPOCH_MS + 19_000


# Syncing


def test_full_files_that_were_synced_move_the_checkpoint(index: KeyIndex) -> None:
    assert index.take_unsynced() == []
    fill(index, 0, 3)
    sync(index)
    assert index.synced_timestamp == 0

    fill(index, 3, 12)
    taken = index.take_unsynced()
    assert len(taken) == 3
    assert index.take_unsynced() == []
    assert index.synced_timestamp == 0
    index.mark_synced(taken)

    assert index.synced_timestamp == EPOCH_MS + 9000


def test_a_file_that_fills_up_while_it_is_synced_does_not_count(index: KeyIndex) -> None:
    fill(index, 0, 3)
    taken = index.take_unsynced()
    fill(index, 3, 12)

    index.mark_synced(taken)

    assert index.synced_timestamp == 0


def test_a_file_whose_sync_failed_holds_the_checkpoint_back(index: KeyIndex) -> None:
    fill(index, 0, 5)
    failed = index.take_unsynced()
    fill(index, 5, 12)
    sync(index)

    assert len(failed) == 1
    assert index.synced_timestamp == 0


def test_what_a_checkpoint_does_not_vouch_for_is_synced_after_a_clean_start(
    disk: CrashingDisk, folder: Path
) -> None:
    fill(opened(disk, folder), 0, 20)
    timestamp = headers(folder)[1].end_timestamp

    again = opened(disk, folder, index_timestamp=timestamp)

    assert again.synced_timestamp == timestamp
    assert [file.path for file in again.take_unsynced()] == paths(folder)[2:]


def test_after_a_repair_the_checkpoint_goes_back_to_what_is_left(
    disk: CrashingDisk, folder: Path
) -> None:
    fill(opened(disk, folder), 0, 15)
    first, _, third = headers(folder)

    again = killed(disk, folder, log_end=1000, index_timestamp=third.end_timestamp)

    assert again.synced_timestamp == first.end_timestamp


# A full disk


def test_a_full_disk_stops_the_index_and_nothing_else(
    disk: CrashingDisk, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index = opened(disk, folder)
    fill(index, 0, 4)
    disk.fail_allocate(FULL)
    with caplog.at_level(logging.ERROR, "cometmq"):
        fill(index, 4, 30, keys=3)

    assert "No space left on device" in index.failure
    assert len(caplog.records) == 1
    assert len(paths(folder)) == 1
    assert missing(index, 0, 4) == []
    assert index.resume_offset == 300


def test_after_a_full_disk_the_index_catches_up(disk: CrashingDisk, folder: Path) -> None:
    index = opened(disk, folder)
    fill(index, 0, 4)
    disk.fail_allocate(FULL)
    fill(index, 4, 30, keys=3)
    index.close()
    disk.heal()

    again = opened(disk, folder)
    fill(again, again.resume_offset // 100, 30, keys=3)

    assert missing(again, 0, 4) == []
    assert missing(again, 4, 30, keys=3) == []


def test_an_index_that_stopped_may_go_on_in_place(disk: CrashingDisk, folder: Path) -> None:
    index = opened(disk, folder)
    disk.fail_allocate(FULL, after=3)
    fill(index, 0, 9, keys=25)
    stopped = index.resume_offset // 100
    disk.heal()

    index.failure = ""
    fill(index, stopped, 9, keys=25)

    assert missing(index, 0, 9, keys=25) == []
    assert offsets(folder) == [100 * (number // 25) for number in range(225)]


def test_a_message_for_which_the_disk_has_no_room_is_not_entered_by_half(
    disk: CrashingDisk, folder: Path
) -> None:
    index = opened(disk, folder)
    fill(index, 0, 4)
    before = contents(folder)
    disk.fail_allocate(FULL, after=2)

    fill(index, 4, 5, keys=33)

    assert index.failure
    assert contents(folder) == before


def test_a_file_that_cannot_be_repaired_is_made_anew(disk: CrashingDisk, folder: Path) -> None:
    fill(opened(disk, folder), 0, 12)
    disk.abandon()
    disk.fail_sync(OSError(errno.EIO, "Input/output error"))

    again = opened(disk, folder, is_clean=False, index_timestamp=EPOCH_MS + 9000)

    assert again.resume_offset == 0
    assert paths(folder) == []
    disk.heal()
    fill(again, 0, 12)
    assert missing(again, 0, 12) == []
