"""The real file system, as the store uses it."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.store.files import DiskFile, DiskFiles, DiskUsage, Entry

FILES = DiskFiles()
MIB = 1024 * 1024


@pytest.fixture
def file(tmp_path: Path) -> Iterator[DiskFile]:
    """A file of 64 KiB, all zeros."""
    path = tmp_path / "file"
    FILES.create(path, 64 * 1024)
    file = FILES.open(path)
    yield file
    file.close()


class TestFolders:
    def test_entries_come_by_name_with_their_size(self, tmp_path: Path) -> None:
        for name in "cab":
            (tmp_path / name).write_bytes(name.encode() * 7)
        (tmp_path / "aa").mkdir()
        (tmp_path / "aa" / "below").write_bytes(b"x")

        assert FILES.entries(tmp_path) == [
            Entry("a", 7, False),
            Entry("aa", 0, True),
            Entry("b", 7, False),
            Entry("c", 7, False),
        ]

    def test_a_folder_that_is_not_there_is_empty(self, tmp_path: Path) -> None:
        assert FILES.entries(tmp_path / "nothing" / "here") == []

    def test_a_folder_goes_with_all_that_is_in_it(self, tmp_path: Path) -> None:
        FILES.create(tmp_path / "a" / "b" / "c", 10)

        FILES.remove_folder(tmp_path / "a")
        FILES.remove_folder(tmp_path / "a")

        assert FILES.entries(tmp_path) == []


class TestCreate:
    def test_it_makes_a_file_of_zeros_and_the_folders_above(self, tmp_path: Path) -> None:
        path = tmp_path / "a" / "b" / "file"

        FILES.create(path, 1000)

        assert path.read_bytes() == bytes(1000)

    def test_it_takes_no_room_before_it_is_allocated(self, tmp_path: Path) -> None:
        FILES.create(tmp_path / "file", 100 * MIB)

        assert (tmp_path / "file").stat().st_blocks == 0

    def test_a_name_that_exists_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"precious")

        with pytest.raises(FileExistsError):
            FILES.create(tmp_path / "file", 1000)

        assert (tmp_path / "file").read_bytes() == b"precious"

    def test_a_size_that_cannot_be_leaves_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            FILES.create(tmp_path / "file", (1 << 63) - 1)

        assert FILES.entries(tmp_path) == []


class TestFile:
    def test_a_process_killed_while_it_creates_one_leaves_no_empty_file(
        self, tmp_path: Path
    ) -> None:
        # A file that grows past the limit ends the process, unless it ignores the signal.
        program = """if True:
            import pathlib, resource, signal, sys
            from cometmq.store.files import DiskFiles
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            DiskFiles().create(pathlib.Path(sys.argv[1], "small"), 1000)
            DiskFiles().create(pathlib.Path(sys.argv[1], "large"), 1001)
        """

        ended = subprocess.run([sys.executable, "-c", program, tmp_path], check=False)

        assert ended.returncode == -signal.SIGXFSZ
        assert FILES.entries(tmp_path) == [Entry("small", 1000, False)]

    def test_allocating_gives_blocks_and_changes_nothing(self, file: DiskFile) -> None:
        file.write(0, b"begin")

        file.allocate(0, 32 * 1024)

        status = file.path.stat()
        assert status.st_size == 64 * 1024
        assert 32 * 1024 <= status.st_blocks * 512 < 64 * 1024
        assert file.path.read_bytes()[:10] == b"begin" + bytes(5)

    def test_allocating_what_no_disk_has_fails_with_its_reason(self, file: DiskFile) -> None:
        with pytest.raises(OSError, match=r"No space left|File too large"):
            file.allocate(0, 1 << 60)

    def test_a_write_is_seen_in_a_mapping_and_the_other_way_round(self, file: DiskFile) -> None:
        with file.map(writable=True) as mapping:
            file.write(100, memoryview(b"written"))
            mapping[200:206] = b"mapped"

            assert mapping[100:107] == b"written"
            assert file.path.read_bytes()[200:206] == b"mapped"

    def test_a_mapping_may_be_read_only(self, file: DiskFile) -> None:
        with file.map(writable=False) as mapping:
            with pytest.raises(TypeError):
                mapping[0:1] = b"x"

            assert len(mapping) == 64 * 1024

    def test_a_mapping_outlives_the_file(self, tmp_path: Path) -> None:
        FILES.create(tmp_path / "other", 4096)
        other = FILES.open(tmp_path / "other")
        mapping = other.map(writable=True)

        other.close()
        mapping[:5] = b"still"

        assert (tmp_path / "other").read_bytes()[:5] == b"still"
        mapping.close()

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_any_buffer_is_written_whole(self, kind: type, file: DiskFile) -> None:
        data = os.urandom(50_000)

        file.write(7, kind(data))

        assert file.path.read_bytes()[7 : 7 + len(data)] == data

    def test_syncing_returns(self, file: DiskFile) -> None:
        file.write(0, b"x")

        file.sync()

        assert file.path.read_bytes()[:1] == b"x"

    def test_what_is_not_there_cannot_be_opened(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            FILES.open(tmp_path / "nothing")


class TestClear:
    def test_what_was_written_becomes_zero_and_that_is_told(self, file: DiskFile) -> None:
        file.write(0, b"a" * 1000)

        assert file.clear(100, 64 * 1024)

        assert file.path.read_bytes() == (b"a" * 100).ljust(64 * 1024, b"\0")

    @pytest.mark.parametrize("is_allocated", [False, True])
    def test_zeros_stay_and_that_is_told_too(self, is_allocated: bool, file: DiskFile) -> None:
        file.write(0, b"a" * 100)
        if is_allocated:
            file.allocate(0, 64 * 1024)

        assert not file.clear(100, 64 * 1024)
        assert file.path.read_bytes()[:100] == b"a" * 100

    def test_what_lies_behind_the_end_is_kept(self, file: DiskFile) -> None:
        file.write(0, b"a" * 64 * 1024)

        assert file.clear(10, 20)

        assert file.path.read_bytes() == b"a" * 10 + bytes(10) + b"a" * (64 * 1024 - 20)

    def test_nothing_is_cleared_of_nothing(self, file: DiskFile) -> None:
        file.write(0, b"a" * 64 * 1024)

        assert not file.clear(10, 10)
        assert not file.clear(64 * 1024, 64 * 1024)

    def test_islands_between_holes_are_found(self, tmp_path: Path) -> None:
        FILES.create(tmp_path / "large", 10 * MIB)
        large = FILES.open(tmp_path / "large")
        for position in (5000, 3 * MIB + 17, 10 * MIB - 1):
            large.write(position, b"x")

        assert large.clear(5001, 10 * MIB)

        content = (tmp_path / "large").read_bytes()
        assert content[:5001] == bytes(5000) + b"x"
        assert not any(content[5001:])
        large.close()

    def test_bytes_written_through_a_mapping_are_cleared(self, file: DiskFile) -> None:
        with file.map(writable=True) as mapping:
            mapping[40_000:40_005] = b"stale"

            assert file.clear(30_000, 64 * 1024)
            assert not any(mapping[:])


class TestSmallFiles:
    def test_reading_what_is_not_there_is_none(self, tmp_path: Path) -> None:
        assert FILES.read(tmp_path / "nothing") is None

    def test_a_file_is_replaced_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "folder" / "file"

        FILES.replace(path, b"first, and long")
        FILES.replace(path, b"second")

        assert FILES.read(path) == b"second"
        assert [entry.name for entry in FILES.entries(path.parent)] == ["file"]

    def test_removing_twice_is_fine(self, tmp_path: Path) -> None:
        FILES.replace(tmp_path / "file", b"x")

        FILES.remove(tmp_path / "file")
        FILES.remove(tmp_path / "file")

        assert FILES.read(tmp_path / "file") is None

    def test_the_time_of_the_last_change_is_known(self, tmp_path: Path) -> None:
        FILES.replace(tmp_path / "file", b"x")
        os.utime(tmp_path / "file", ns=(0, 1_234_567_890_987_654_321))

        assert FILES.modified_ms(tmp_path / "file") == 1_234_567_890_987


class TestUsage:
    def test_it_is_that_of_the_nearest_folder_there_is(self, tmp_path: Path) -> None:
        here, below = FILES.usage(tmp_path), FILES.usage(tmp_path / "not" / "yet")

        assert here.used > 0
        assert here.free > 0
        assert below.used + below.free == here.used + here.free

    @pytest.mark.parametrize(
        ("used", "free", "percent"),
        [(0, 100, 0), (1, 999, 1), (75, 25, 75), (7501, 2499, 76), (100, 0, 100), (0, 0, 100)],
    )
    def test_shares_are_rounded_up(self, used: int, free: int, percent: int) -> None:
        assert DiskUsage(used, free).percent == percent


class TestLock:
    def test_it_is_held_until_the_end_of_the_block(self, tmp_path: Path) -> None:
        path = tmp_path / "folder" / "lock"

        with FILES.lock(path) as first:
            with FILES.lock(path) as second, DiskFiles().lock(path) as third:
                held = first, second, third
        with FILES.lock(path) as again:
            assert again

        assert held == (True, False, False)

    def test_its_file_says_lock_and_stays(self, tmp_path: Path) -> None:
        (tmp_path / "lock").write_bytes(b"something longer")

        with FILES.lock(tmp_path / "lock"):
            pass

        assert (tmp_path / "lock").read_bytes() == b"lock"

    def test_it_is_the_same_by_another_name(self, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "folder")

        with FILES.lock(tmp_path / "folder" / "lock"):
            with FILES.lock(tmp_path / "link" / "lock") as other:
                assert not other

    def test_an_attempt_that_fails_does_not_free_it(self, tmp_path: Path) -> None:
        with FILES.lock(tmp_path / "lock"):
            with FILES.lock(tmp_path / "lock"):
                pass
            with FILES.lock(tmp_path / "lock") as is_free:
                assert not is_free

    @pytest.mark.slow
    def test_another_process_does_not_get_it(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"

        with FILES.lock(path):
            while_held = ask_another_process(path)
        afterwards = ask_another_process(path)

        assert (while_held, afterwards) == ("False", "True")

    @pytest.mark.slow
    def test_it_is_apaches_lock_on_the_first_byte(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        script = (
            "import fcntl, sys; file = open(sys.argv[1], 'r+b')\n"
            "try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
            "except OSError: print('taken')\n"
            "else: print('free')"
        )

        with FILES.lock(path):
            found = run(script, path)

        assert found == "taken"


def ask_another_process(path: Path) -> str:
    script = (
        "import pathlib, sys; from cometmq.store.files import DiskFiles\n"
        "with DiskFiles().lock(pathlib.Path(sys.argv[1])) as is_free: print(is_free)"
    )
    return run(script, path)


def run(script: str, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()
