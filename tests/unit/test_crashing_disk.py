"""The disk of crash tests loses what it may lose, keeps what was promised, and fails on demand."""

import errno
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from cometmq.store.files import DiskFiles, File, Files
from cometmq.testing import CrashingDisk, DiskEvent, PowerCut
from cometmq.testing.durable_image import PAGE_BYTES

SEEDS = range(40)
OLD = b"o"
NEW = b"n"


@pytest.fixture
def disk(tmp_path: Path) -> CrashingDisk:
    return CrashingDisk(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "file"


@contextmanager
def opened(files: Files, path: Path, *, pages: int = 8) -> Iterator[File]:
    """A file of fresh pages with blocks."""
    files.create(path, pages * PAGE_BYTES)
    with closing(files.open(path)) as file:
        file.allocate(0, pages * PAGE_BYTES)
        yield file


def write(file: File, content: bytes) -> None:
    """Write a byte at the start of each page, through a mapping."""
    with file.map(writable=True) as mapping:
        for number, byte in enumerate(content):
            mapping[number * PAGE_BYTES] = byte


def read(path: Path) -> bytes:
    """The first byte of each page."""
    return path.read_bytes()[::PAGE_BYTES]


def test_what_was_synced_survives_every_crash(disk: CrashingDisk, path: Path) -> None:
    with opened(disk, path) as file:
        write(file, OLD * 8)
        file.sync()

    for seed in SEEDS:
        disk.crash(seed)

        assert read(path) == OLD * 8


def test_pages_written_since_the_last_sync_are_kept_or_lost_one_by_one(tmp_path: Path) -> None:
    found = set()
    for seed in SEEDS:
        root = tmp_path / str(seed)
        disk = CrashingDisk(root)
        with opened(disk, root / "file") as file:
            write(file, OLD * 8)
            file.sync()
            write(file, NEW * 8)

            disk.crash(seed)

        found.add(read(root / "file"))

    assert {OLD * 8, NEW * 8} < found
    assert len(found) > 10
    assert set(b"".join(found)) == set(OLD + NEW)


def test_the_same_seed_loses_the_same_pages(tmp_path: Path) -> None:
    found: dict[str, list[bytes]] = {"first": [], "second": []}
    for name, losses in found.items():
        for seed in range(10):
            path = tmp_path / name / str(seed) / "file"
            disk = CrashingDisk(path.parent)
            with opened(disk, path, pages=64) as file:
                write(file, NEW * 64)
            disk.crash(seed)
            losses.append(read(path))

    assert found["first"] == found["second"]
    assert len(set(found["first"])) > 3


def test_pages_can_be_torn_between_sectors(tmp_path: Path) -> None:
    disk = CrashingDisk(tmp_path, sector_bytes=512)
    path = tmp_path / "file"
    torn = 0
    with opened(disk, path, pages=64) as file, file.map(writable=True) as mapping:
        mapping[:] = NEW * len(mapping)

    disk.crash(5)

    content = path.read_bytes()
    for begin in range(0, len(content), 512):
        assert content[begin : begin + 512] in (bytes(512), NEW * 512)
    for begin in range(0, len(content), PAGE_BYTES):
        torn += len(set(content[begin : begin + PAGE_BYTES])) == 2
    assert torn > 0


def test_a_created_file_is_there_with_its_zeros(disk: CrashingDisk, path: Path) -> None:
    disk.create(path, 5000)

    disk.crash(1)

    assert path.read_bytes() == bytes(5000)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replaced_file_has_its_new_content(disk: CrashingDisk, path: Path, seed: int) -> None:
    disk.replace(path, b"first")
    disk.replace(path, b"second one")

    disk.crash(seed)

    assert path.read_bytes() == b"second one"


def test_a_file_without_a_durable_name_is_there_or_not_until_it_is_settled(
    tmp_path: Path,
) -> None:
    survived = set()
    for seed in SEEDS:
        root = tmp_path / str(seed)
        disk = CrashingDisk(root)
        settled, others = root / "topic" / "0" / "a", [root / "topic" / "1" / n for n in "bc"]
        for path in (settled, *others):
            disk.create(path, 1, durable=False)
            assert disk.durable(path) is None
        disk.settle(settled)
        assert disk.durable(settled) == b"\0"

        disk.crash(seed)

        assert settled.exists()
        survived.add("".join(path.name for path in others if path.exists()))

    assert survived == {"", "b", "bc"}  # the names reach the disk in their order


def test_a_removed_file_stays_removed(disk: CrashingDisk, path: Path) -> None:
    disk.create(path, 1)
    disk.create(path.parent / "deep" / "one", 1)
    disk.remove(path)
    disk.remove_folder(path.parent / "deep")

    disk.crash(1)

    assert disk.entries(path.parent) == []
    assert disk.durable(path) is None


def test_what_was_there_before_is_durable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(OLD * 100)

    disk = CrashingDisk(tmp_path)

    for seed in SEEDS:
        disk.crash(seed)
        assert disk.durable(tmp_path / "file") == OLD * 100
        assert disk.read(tmp_path / "file") == OLD * 100


def test_a_file_nobody_synced_may_vanish(disk: CrashingDisk, tmp_path: Path) -> None:
    survived = set()
    for seed in SEEDS:
        (tmp_path / "file").write_bytes(b"past the disk")

        disk.crash(seed)

        survived.add((tmp_path / "file").exists())

    assert survived == {False, True}


def test_a_mapping_of_before_the_crash_cannot_change_the_file(
    disk: CrashingDisk, path: Path
) -> None:
    with opened(disk, path) as file:
        mapping = file.map(writable=True)
        view = memoryview(mapping)  # keeps it from being closed

    disk.crash(1)
    view[0:1] = NEW

    assert read(path) == bytes(8)
    view.release()
    mapping.close()


def test_a_process_that_just_ends_loses_nothing(disk: CrashingDisk, path: Path) -> None:
    file = disk_file(disk, path)
    mapping = file.map(writable=True)
    mapping[0:1] = NEW

    disk.abandon()

    assert mapping.closed
    assert path.read_bytes()[:1] == NEW
    assert disk.durable(path) == bytes(PAGE_BYTES)


def disk_file(disk: CrashingDisk, path: Path) -> File:
    disk.create(path, PAGE_BYTES)
    file = disk.open(path)
    file.allocate(0, PAGE_BYTES)
    return file


def test_a_lock_is_held_once_and_free_after_a_crash(disk: CrashingDisk, path: Path) -> None:
    dead = disk.lock(path)
    assert dead.__enter__()
    with disk.lock(path) as is_ours:
        assert not is_ours

    disk.crash(1)

    with disk.lock(path) as is_ours:
        assert is_ours
        dead.__exit__(None, None, None)  # a dead holder frees nothing
        with disk.lock(path) as is_theirs:
            assert not is_theirs
    with disk.lock(path) as is_ours:
        assert is_ours


def test_every_change_is_told_before_and_after(disk: CrashingDisk, path: Path) -> None:
    events: list[DiskEvent] = []
    disk.on_event(events.append)

    with opened(disk, path) as file:
        file.write(0, b"x")
        file.sync()
        file.clear(0, 1)
    disk.replace(path.parent / "page", b"x")
    disk.remove(path)
    disk.remove_folder(path.parent)

    kinds = ["create", "allocate", "write", "sync", "clear", "replace", "remove", "remove_folder"]
    assert [(event.kind, event.is_done) for event in events] == [
        (kind, is_done) for kind in kinds for is_done in (False, True)
    ]
    assert disk.event_count == len(events)
    assert events[0].path == path


def test_after_a_power_cut_nothing_works_until_the_crash(disk: CrashingDisk, path: Path) -> None:
    disk.cut_power_at(2)
    with pytest.raises(PowerCut):
        disk.create(path, 1)  # its second event: it was made

    with pytest.raises(PowerCut):
        disk.entries(path.parent)
    with pytest.raises(PowerCut):
        disk.remove(path)
    disk.crash(1)

    assert [entry.name for entry in disk.entries(path.parent)] == ["file"]


def test_a_listener_may_cut_the_power_or_fail_the_call(disk: CrashingDisk, path: Path) -> None:
    def refuse(event: DiskEvent) -> None:
        if event.kind == "create":
            raise OSError(errno.EDQUOT, "too much")
        raise PowerCut

    disk.on_event(refuse)

    with pytest.raises(OSError, match="too much"):
        disk.create(path, 1)
    with pytest.raises(PowerCut):
        disk.replace(path, b"x")
    with pytest.raises(PowerCut):
        disk.read(path)


def interrupted(root: Path, change: str, seed: int) -> dict[str, bytes]:
    """What is there after a power cut in the middle of a change."""
    disk = CrashingDisk(root)
    disk.replace(root / "old", b"old content")
    disk.create(root / "folder" / "a", 1)
    disk.create(root / "folder" / "b", 1)
    with closing(disk.open(root / "old")) as file:
        changes: dict[str, Callable[[], object]] = {
            "create": lambda: disk.create(root / "new", 3),
            "replace": lambda: disk.replace(root / "old", b"new content"),
            "remove": lambda: disk.remove(root / "old"),
            "remove_folder": lambda: disk.remove_folder(root / "folder"),
            "write": lambda: file.write(0, b"NEW"),
            "clear": lambda: file.clear(0, 3),
        }
        disk.cut_power_at(1)
        with pytest.raises(PowerCut):
            changes[change]()
        disk.crash(seed)
    return {path.name: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("create", [{}, {"new": b""}, {"new": bytes(3)}]),
        ("replace", [{"old": b"old content"}, {"old": b"new content"}]),
        ("remove", [{"old": b"old content"}, {}]),
        ("remove_folder", [{"a": b"\0", "b": b"\0"}, {"a": b"\0"}, {"b": b"\0"}]),
        ("write", [{"old": b"old content"}, {"old": b"NEW content"}]),
        ("clear", [{"old": b"old content"}, {"old": b"\0\0\0 content"}]),
    ],
)
def test_a_change_that_was_cut_short_is_done_undone_or_half_done(
    tmp_path: Path, change: str, expected: list[dict[str, bytes]]
) -> None:
    outcomes = [interrupted(tmp_path / str(seed), change, seed) for seed in SEEDS]

    for outcome in expected:
        assert any(outcome.items() <= found.items() for found in outcomes), outcome
    assert all(found.get("old", b"?")[-1:] in (b"t", b"?") for found in outcomes)


def test_a_replacement_that_was_cut_short_may_leave_its_temporary_file(tmp_path: Path) -> None:
    outcomes = [interrupted(tmp_path / str(seed), "replace", seed) for seed in SEEDS]

    left = {found["old.tmp"] for found in outcomes if "old.tmp" in found}
    assert len(left) > 1
    assert all(b"new content".startswith(piece) for piece in left)


def test_a_failed_sync_makes_nothing_durable_not_even_later(disk: CrashingDisk, path: Path) -> None:
    """As on Linux: the pages of a failed sync count as written, and are not."""
    with opened(disk, path) as file:
        write(file, OLD * 2)
        disk.fail_sync(OSError(errno.EIO, "broken"), after=1)
        file.sync()
        write(file, NEW * 2)
        with pytest.raises(OSError, match="broken"):
            file.sync()
        disk.heal()
        write(file, NEW + b"x")
        file.sync()

    durable = disk.durable(path)
    assert durable is not None
    assert durable[::PAGE_BYTES][:2] == OLD + b"x"


def test_allocating_fails_on_demand(disk: CrashingDisk, path: Path) -> None:
    disk.fail_allocate(OSError(errno.ENOSPC, "no room"), after=1)
    with opened(disk, path) as file:
        with pytest.raises(OSError, match="no room"):
            file.allocate(0, 1)

        disk.heal()

        file.allocate(0, 1)


def test_a_full_disk_refuses_new_blocks_and_works_again_with_room(
    disk: CrashingDisk, path: Path
) -> None:
    with opened(disk, path, pages=4) as file:
        disk.fill_after(2 * PAGE_BYTES)
        file.allocate(0, 4 * PAGE_BYTES)  # has its blocks already
        disk.create(path.parent / "other", 3 * PAGE_BYTES)
        with closing(disk.open(path.parent / "other")) as other:
            other.allocate(0, PAGE_BYTES)
            attempts: list[Callable[[], object]] = [
                lambda: other.allocate(0, 3 * PAGE_BYTES),
                lambda: other.write(PAGE_BYTES, bytes(2 * PAGE_BYTES)),
                lambda: disk.replace(path.parent / "page", bytes(2 * PAGE_BYTES)),
            ]
            for attempt in attempts:
                with pytest.raises(OSError) as failure:
                    attempt()
                assert failure.value.errno == errno.ENOSPC
            assert disk.usage(path) == (5 * PAGE_BYTES, PAGE_BYTES)

            disk.remove(path)

            other.allocate(0, 3 * PAGE_BYTES)
            assert disk.usage(path) == (3 * PAGE_BYTES, 3 * PAGE_BYTES)


def test_a_page_written_without_a_block_is_noticed(disk: CrashingDisk, path: Path) -> None:
    disk.create(path, 3 * PAGE_BYTES)
    with closing(disk.open(path)) as file:
        file.allocate(0, PAGE_BYTES)
        file.write(2 * PAGE_BYTES, b"finds its block itself")
        write(file, NEW)
        file.sync()
        assert disk.unallocated_writes == []

        write(file, NEW + NEW)
        file.sync()

    assert disk.unallocated_writes == [(path, PAGE_BYTES)]


def test_blocks_nobody_synced_are_gone_after_a_crash(disk: CrashingDisk, path: Path) -> None:
    with opened(disk, path):
        pass

    disk.crash(1)
    with closing(disk.open(path)) as file:
        write(file, NEW)
        file.sync()

    assert disk.unallocated_writes == [(path, 0)]


def test_without_faults_it_is_a_disk_like_any_other(tmp_path: Path) -> None:
    answers = []
    for name, files in (("real", DiskFiles()), ("ours", CrashingDisk(tmp_path / "ours"))):
        root = tmp_path / name
        with opened(files, root / "folder" / "file") as file:
            write(file, OLD * 3)
            changed = file.clear(PAGE_BYTES, 3 * PAGE_BYTES), file.clear(PAGE_BYTES, 2 * PAGE_BYTES)
            file.sync()
        files.replace(root / "page", b"content")
        usage = files.usage(root)
        answers.append(
            (
                files.entries(root),
                files.entries(root / "none"),
                files.read(root / "page"),
                files.read(root / "none"),
                changed,
                read(root / "folder" / "file"),
                usage.percent,
                files.modified_ms(root / "page") > 0,
            )
        )

    assert answers[0] == answers[1]


def test_a_removed_file_can_still_be_synced_while_it_is_open(
    disk: CrashingDisk, path: Path
) -> None:
    with opened(disk, path) as file:
        disk.remove(path)
        disk.create(path, PAGE_BYTES)
        write(file, NEW)

        file.sync()

    assert disk.durable(path) == bytes(PAGE_BYTES)
