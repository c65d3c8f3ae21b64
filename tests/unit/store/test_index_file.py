"""One index file: what is put in is found again, and what a crash leaves of it is made whole."""

import errno
from contextlib import closing
from pathlib import Path

import pytest

from cometmq.codec import index_entry
from cometmq.codec.index_entry import IndexEntry, IndexHeader
from cometmq.errors import DamagedStore
from cometmq.store.config import StoreSettings
from cometmq.store.files import DiskFiles
from cometmq.store.index_file import ALLOCATE_BYTES_MAX, ALLOCATE_BYTES_MIN, IndexFile
from cometmq.testing import CrashingDisk, DiskEvent
from tests import oracle

SLOTS, ENTRIES = 16, 1000
SIZE = index_entry.file_bytes(SLOTS, ENTRIES)
SETTINGS = StoreSettings(index_slots=SLOTS, index_entries=ENTRIES)
TIME = 1_700_000_000_000
LOG_END = 1 << 40
FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index" / "20231114221320000"


@pytest.fixture
def disk(tmp_path: Path) -> CrashingDisk:
    return CrashingDisk(tmp_path)


@pytest.fixture
def file(disk: CrashingDisk, path: Path) -> IndexFile:
    return IndexFile.create(path, SLOTS, ENTRIES, files=disk)


def reopened(disk: CrashingDisk, path: Path) -> IndexFile:
    return IndexFile.open(path, SIZE, settings=SETTINGS, files=disk)


def fill(file: IndexFile, message_count: int, *, keys: int = 2) -> None:
    """Messages at 100, 200, … with hashes 1, 2, …; a second between two of them."""
    for number in range(1, message_count + 1):
        hashes = [number + 50 * key for key in range(keys)]
        file.put(hashes, 100 * number, TIME + 1000 * number)


def found(file: IndexFile, key_hash: int) -> list[int]:
    return file.find(key_hash, 0, 10**15, 64)


def header_of(path: Path) -> IndexHeader:
    return index_entry.unpack_header(path.read_bytes())


def entries_of(path: Path) -> list[IndexEntry]:
    """All entries that the header counts."""
    data = path.read_bytes()
    numbers = range(1, index_entry.unpack_header(data).index_count)
    return [
        index_entry.unpack_entry(data, index_entry.entry_position(number, SLOTS))
        for number in numbers
    ]


def damage(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def recording(disk: CrashingDisk) -> list[str]:
    """The kinds of events that the disk sees from now on."""
    kinds: list[str] = []
    disk.on_event(lambda event: kinds.append(event.kind) if event.is_done else None)
    return kinds


# Putting and finding


def test_a_message_is_found_under_each_of_its_hashes(file: IndexFile) -> None:
    file.put([7, 7 + SLOTS, 9], 500, TIME)
    file.put([7], 600, TIME)

    assert found(file, 7) == [600, 500]
    assert found(file, 7 + SLOTS) == [500]
    assert found(file, 9) == [500]
    assert found(file, 8) == []


def test_the_file_is_written_as_the_oracle_writes_it(file: IndexFile, path: Path) -> None:
    expected = oracle.IndexFile(SLOTS, ENTRIES)
    for number in range(300):
        keys = [f"T#{number}", f"T#{number % 7}"]
        file.put([abs(oracle.java_hash(key)) for key in keys], 80 * number, TIME + 700 * number)
        for key in keys:
            expected.put(key, 80 * number, TIME + 700 * number)

    assert path.read_bytes() == expected.data


def test_a_file_that_follows_another_counts_its_first_entry_from_there(
    disk: CrashingDisk, file: IndexFile, path: Path
) -> None:
    file.put([1], 100, TIME)
    younger = IndexFile.create(path.with_name("20231114221320001"), SLOTS, ENTRIES, files=disk)

    younger.follow(file)
    younger.put([1, 2], 200, TIME + 5000)
    younger.put([3], 300, TIME + 7000)

    assert [entry.seconds for entry in entries_of(younger.path)] == [5, 0, 2]
    assert header_of(younger.path) == IndexHeader(TIME + 5000, TIME + 7000, 200, 300, 3, 4)


def test_only_times_of_the_file_are_looked_for(file: IndexFile) -> None:
    fill(file, 10)

    assert file.find(5, TIME + 10_001, TIME + 20_000, 64) == []
    assert file.find(5, 0, TIME + 999, 64) == []
    assert file.find(5, TIME + 5000, TIME + 5000, 64) == [500]


def test_a_file_is_full_when_its_last_entry_is_written(file: IndexFile) -> None:
    fill(file, ENTRIES - 2, keys=1)
    assert not file.is_full
    assert file.room == 1

    file.put([1], LOG_END - 1, TIME)

    assert file.is_full
    assert file.room == 0


def test_a_file_is_continued_where_it_ended(disk: CrashingDisk, file: IndexFile) -> None:
    fill(file, 10)
    file.close()

    again = reopened(disk, file.path)
    again.put([5], 5000, TIME + 11_000)

    assert found(again, 5) == [5000, 500]
    assert header_of(file.path) == IndexHeader(TIME + 1000, TIME + 11_000, 100, 5000, 12, 22)


def test_a_header_with_more_entries_than_the_file_reads_as_full(
    disk: CrashingDisk, file: IndexFile
) -> None:
    file.put([1], 100, TIME)
    damage(file.path, 36, (ENTRIES + 5).to_bytes(4, "big"))

    again = reopened(disk, file.path)

    assert again.is_full
    assert found(again, 1) == [100]


# Blocks


def test_a_new_file_has_blocks_for_its_slots_and_some_entries(tmp_path: Path) -> None:
    file = IndexFile.create(tmp_path / "file", 50_000, 200_000, files=DiskFiles())
    status = file.path.stat()

    assert status.st_size == 4_200_040
    assert 0 <= status.st_blocks * 512 - (200_040 + ALLOCATE_BYTES_MIN) < 64 * 1024


@pytest.mark.slow
def test_blocks_for_entries_come_in_growing_steps(tmp_path: Path) -> None:
    disk = CrashingDisk(tmp_path)
    file = IndexFile.create(tmp_path / "file", 10, 400_000, files=disk)
    events = recording(disk)
    hashes = list(range(1000))

    for number in range(150):
        file.put(hashes, number, TIME)
    steps = list(events)
    file.sync()

    in_big_steps = 150_000 * index_entry.ENTRY_BYTES // ALLOCATE_BYTES_MAX
    assert in_big_steps < len(steps) < in_big_steps + 8
    assert disk.unallocated_writes == []


def test_a_sparse_file_gets_its_blocks_before_it_is_written(tmp_path: Path, path: Path) -> None:
    """Apache makes its files without blocks, and a copy may have lost those of zeros."""
    path.parent.mkdir()
    content = oracle.IndexFile(SLOTS, ENTRIES)
    content.put("T#1", 100, TIME)
    with path.open("wb") as target:
        target.write(content.data[:48])
        target.seek(index_entry.entry_position(1, SLOTS))
        target.write(content.data[index_entry.entry_position(1, SLOTS) :].rstrip(b"\0"))
        target.truncate(SIZE)
    disk = CrashingDisk(tmp_path)
    allocated: list[Path] = []
    disk.on_event(lambda event: allocated.append(event.path) if event.kind == "allocate" else None)
    file = reopened(disk, path)
    assert allocated == []

    file.put([1], 200, TIME)

    assert set(allocated) == {path}
    assert path.stat().st_blocks * 512 >= SIZE


def test_reading_changes_nothing_on_disk(disk: CrashingDisk, file: IndexFile) -> None:
    fill(file, 20)
    file.close()
    events = recording(disk)

    again = reopened(disk, file.path)

    assert found(again, 5) == [500]
    assert again.close()
    assert events == []


def test_a_full_disk_leaves_no_new_file(disk: CrashingDisk, path: Path) -> None:
    disk.fail_allocate(FULL)

    with pytest.raises(OSError, match="No space left"):
        IndexFile.create(path, SLOTS, ENTRIES, files=disk)

    assert not path.exists()


def test_a_full_disk_refuses_a_message_as_a_whole(tmp_path: Path) -> None:
    disk = CrashingDisk(tmp_path)
    file = IndexFile.create(tmp_path / "file", SLOTS, 100_000, files=disk)
    hashes = list(range(1000))
    for number in range(3):
        file.put(hashes, 100 * number, TIME)
    before = file.path.read_bytes()
    disk.fail_allocate(FULL)

    with pytest.raises(OSError, match="No space left"):
        file.put(hashes, 300, TIME)

    assert file.path.read_bytes() == before
    disk.heal()
    file.put([12_345], 200_000, TIME)
    assert found(file, 12_345) == [200_000]


# Syncing and closing


def test_what_was_synced_survives(disk: CrashingDisk, file: IndexFile) -> None:
    fill(file, 100)
    content = file.path.read_bytes()
    assert file.is_dirty

    file.sync()

    assert disk.durable(file.path) == content


def test_syncing_a_deleted_file_does_nothing(disk: CrashingDisk, file: IndexFile) -> None:
    disk.remove(file.path)
    events = recording(disk)

    file.sync()

    assert events == []


def test_a_file_that_is_looked_at_is_closed_later(file: IndexFile) -> None:
    fill(file, 3)
    with memoryview(file._mapping):
        assert not file.close()
        assert found(file, 2) == [200]

    assert file.close()


# Repairing


def test_repair_leaves_out_the_last_message_only(disk: CrashingDisk, file: IndexFile) -> None:
    fill(file, 10, keys=3)
    file.close()

    again = reopened(disk, file.path)
    again.repair(LOG_END)

    assert header_of(file.path) == IndexHeader(TIME + 1000, TIME + 9000, 100, 900, 13, 28)
    assert found(again, 10) == []
    assert found(again, 60) == []
    assert found(again, 9) == [900]
    assert disk.durable(file.path) == file.path.read_bytes()


def test_repair_of_an_older_file_keeps_all(disk: CrashingDisk, file: IndexFile) -> None:
    fill(file, 10)
    file.close()
    before = file.path.read_bytes()

    again = reopened(disk, file.path)
    again.repair(LOG_END, is_last=False)

    assert file.path.read_bytes() == before


def test_a_message_entered_again_after_repair_makes_the_same_file(
    disk: CrashingDisk, file: IndexFile
) -> None:
    fill(file, 10)
    file.close()
    before = file.path.read_bytes()

    again = reopened(disk, file.path)
    again.repair(LOG_END)
    again.put([10, 60], 1000, TIME + 10_000)

    assert file.path.read_bytes() == before


def test_a_kill_before_the_header_was_written_is_repaired(
    disk: CrashingDisk, file: IndexFile
) -> None:
    fill(file, 9)
    expected = file.path.read_bytes()
    file.put([9, 25, 30], 1000, TIME + 10_000)
    file.close()
    damage(file.path, 0, expected[: index_entry.HEADER_BYTES])

    again = reopened(disk, file.path)
    again.repair(LOG_END)
    again.put([9, 59], 900, TIME + 9000)

    assert file.path.read_bytes() == expected


def test_a_lost_page_of_entries_cuts_the_file_there(disk: CrashingDisk, file: IndexFile) -> None:
    fill(file, 400)
    file.close()
    damage(file.path, 8192, bytes(4096))
    whole = (8192 - index_entry.entry_position(1, SLOTS)) // index_entry.ENTRY_BYTES

    again = reopened(disk, file.path)
    again.repair(LOG_END)

    kept = whole // 2 - (whole % 2 == 0)
    assert again.end_offset == 100 * kept
    assert [entry.physical_offset for entry in entries_of(file.path)] == [
        100 * (number // 2) for number in range(2, 2 * kept + 2)
    ]
    for number in range(1, kept + 1):
        assert 100 * number in found(again, number)
    assert not any(file.path.read_bytes()[index_entry.entry_position(again.count, SLOTS) :])


def test_a_lost_first_page_leaves_nothing(disk: CrashingDisk, file: IndexFile) -> None:
    """The log begins at 0, so the offset in the zeros would fit."""
    for number in range(400):
        file.put([number + 1], 100 * number, TIME)
    file.close()
    damage(file.path, 40, bytes(4096 - 40))

    again = reopened(disk, file.path)
    again.repair(LOG_END)

    assert not again.has_entries


def test_lost_slots_are_made_anew(disk: CrashingDisk, file: IndexFile) -> None:
    fill(file, 100)
    file.close()
    before = file.path.read_bytes()
    damage(file.path, 40, bytes(4 * SLOTS))

    again = reopened(disk, file.path)
    again.repair(LOG_END, is_last=False)

    assert file.path.read_bytes() == before


def test_entries_beyond_the_log_are_cut_off(disk: CrashingDisk, file: IndexFile) -> None:
    fill(file, 100)
    file.close()

    again = reopened(disk, file.path)
    again.repair(5000)

    assert again.end_offset == 4800
    assert again.end_timestamp == TIME + 48_000
    assert found(again, 49) == []
    assert found(again, 48) == [4800]


def test_when_only_the_first_message_is_left_its_time_is_the_begin(
    disk: CrashingDisk, file: IndexFile, path: Path
) -> None:
    """Its seconds count from the file before."""
    file.put([1], 100, TIME)
    younger = IndexFile.create(path.with_name("20231114221320001"), SLOTS, ENTRIES, files=disk)
    younger.follow(file)
    younger.put([1, 2], 200, TIME + 5500)
    younger.put([3], 300, TIME + 9000)
    younger.close()

    again = reopened(disk, younger.path)
    again.repair(LOG_END)

    assert header_of(younger.path) == IndexHeader(TIME + 5500, TIME + 5500, 200, 200, 2, 3)


def test_repair_of_a_file_with_one_message_leaves_nothing(
    disk: CrashingDisk, file: IndexFile
) -> None:
    file.put([1, 2, 3], 0, TIME)

    file.repair(LOG_END)

    assert not file.has_entries


def test_repair_gives_blocks_before_it_writes(tmp_path: Path, path: Path) -> None:
    content = oracle.IndexFile(SLOTS, ENTRIES)
    for number in range(1, 200):
        content.put(f"T#{number}", 100 * number, TIME)
    path.parent.mkdir()
    path.write_bytes(content.data)
    disk = CrashingDisk(tmp_path)
    events: list[DiskEvent] = []
    disk.on_event(events.append)

    reopened(disk, path).repair(10_000)

    kinds = [event.kind for event in events if event.is_done]
    assert kinds == ["allocate", "clear", "sync"]


# Sizes


@pytest.mark.parametrize(
    ("slots", "entries"), [(5_000_000, 20_000_000), (50_000, 200_000), (7, 28), (SLOTS, ENTRIES)]
)
def test_the_size_of_a_file_tells_its_slots_and_entries(
    tmp_path: Path, slots: int, entries: int
) -> None:
    path = tmp_path / "file"
    size = index_entry.file_bytes(slots, entries)
    DiskFiles().create(path, size)

    with closing(IndexFile.open(path, size, settings=SETTINGS, files=DiskFiles())) as file:
        assert (file.slots, file.entries) == (slots, entries)


@pytest.mark.parametrize("size", [0, 39, 40, 123, SIZE - 1, SIZE + 20])
def test_an_impossible_size_is_refused(tmp_path: Path, size: int) -> None:
    with pytest.raises(DamagedStore) as refused:
        IndexFile.open(tmp_path / "file", size, settings=SETTINGS, files=DiskFiles())

    assert str(tmp_path / "file") in str(refused.value)
    assert f"has {size} bytes, expected {SIZE}" in str(refused.value)
