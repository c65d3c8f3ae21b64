"""A file that is written whole: which of its copies counts, and what a failure leaves behind."""

import errno
import os
from pathlib import Path

import pytest

from cometmq import saved_file
from cometmq.errors import RemoteProtocolError
from cometmq.saved_file import DiskFiles, Loaded, SavedFile, Source


class FailingFiles(DiskFiles):
    """The disk, which refuses to replace the file with the name ``fails_at``."""

    fails_at = ""

    def replace(self, path: Path, content: bytes) -> None:
        if path.name == self.fails_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        super().replace(path, content)


def number(content: bytes) -> int:
    if not content.strip().isdigit():
        raise RemoteProtocolError(f"{content!r} is no number")
    return int(content)


def table(folder: Path, files: DiskFiles | None = None) -> SavedFile[int]:
    return SavedFile(folder / "table", number, files)


def put(folder: Path, *, file: bytes | None, backup: bytes | None) -> None:
    for name, content in (("table", file), ("table.bak", backup)):
        if content is not None:
            (folder / name).write_bytes(content)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class TestLoad:
    @pytest.mark.parametrize("backup", [None, b"", b"broken", b"2"])
    def test_a_good_file_needs_no_backup(self, tmp_path: Path, backup: bytes | None) -> None:
        put(tmp_path, file=b"1", backup=backup)

        assert table(tmp_path).load() == Loaded(1, Source.FILE)

    @pytest.mark.parametrize(
        ("file", "problem"),
        [
            (None, "there is no such file or it is empty"),
            (b"", "there is no such file or it is empty"),
            (b" \n", "there is no such file or it is empty"),
            (b"broken", "b'broken' is no number"),
        ],
    )
    def test_otherwise_the_backup_counts(
        self, tmp_path: Path, file: bytes | None, problem: str
    ) -> None:
        put(tmp_path, file=file, backup=b"2")

        assert table(tmp_path).load() == Loaded(2, Source.BACKUP, problem)

    @pytest.mark.parametrize("file", [None, b""])
    @pytest.mark.parametrize("backup", [None, b"", b"\n"])
    def test_a_first_start_finds_nothing(
        self, tmp_path: Path, file: bytes | None, backup: bytes | None
    ) -> None:
        put(tmp_path, file=file, backup=backup)

        assert table(tmp_path).load() == Loaded(None, Source.NOWHERE)

    @pytest.mark.parametrize(
        ("file", "backup", "problem"),
        [
            (b"broken", None, "b'broken' is no number"),
            (b"broken", b"", "b'broken' is no number"),
            (b"broken", b"also", "b'broken' is no number; backup: b'also' is no number"),
            (None, b"also", "there is no such file or it is empty; backup: b'also' is no number"),
        ],
    )
    def test_what_is_there_and_cannot_be_read_is_not_ignored(
        self, tmp_path: Path, file: bytes | None, backup: bytes | None, problem: str
    ) -> None:
        put(tmp_path, file=file, backup=backup)
        before = contents(tmp_path)

        with pytest.raises(RemoteProtocolError) as caught:
            table(tmp_path).load()

        assert str(caught.value) == (
            f"cannot read {tmp_path / 'table'}: {problem}; repair the file, or remove it and "
            "table.bak to start without what they held"
        )
        assert contents(tmp_path) == before


class TestSave:
    def test_each_save_keeps_the_one_before(self, tmp_path: Path) -> None:
        file = table(tmp_path)

        states = []
        for content in (b"1", b"2", b"3"):
            file.save(content)
            states.append(contents(tmp_path))

        assert states == [
            {"table": b"1"},
            {"table": b"2", "table.bak": b"1"},
            {"table": b"3", "table.bak": b"2"},
        ]

    @pytest.mark.parametrize(
        ("file", "backup", "kept"),
        [
            (b"1", None, {"table.bak": b"1"}),
            (b"1", b"broken", {"table.bak": b"1"}),
            (b"broken", b"2", {"table.bak": b"2"}),
            (b"", None, {}),
        ],
    )
    def test_what_was_loaded_becomes_the_backup(
        self, tmp_path: Path, file: bytes, backup: bytes | None, kept: dict[str, bytes]
    ) -> None:
        put(tmp_path, file=file, backup=backup)
        saved = table(tmp_path)
        saved.load()

        saved.save(b"3")

        assert contents(tmp_path) == {"table": b"3", **kept}

    @pytest.mark.parametrize("name", ["table", "table.bak"])
    def test_a_full_disk_costs_the_new_content_only(self, tmp_path: Path, name: str) -> None:
        put(tmp_path, file=b"1", backup=None)
        files = FailingFiles()
        file = table(tmp_path, files)
        file.load()

        files.fails_at = name
        with pytest.raises(OSError, match="No space left"):
            file.save(b"2")
        after_failure = table(tmp_path).load().value
        files.fails_at = ""
        file.save(b"3")

        assert after_failure == 1
        assert contents(tmp_path) == {"table": b"3", "table.bak": b"1"}


class TestDisk:
    def test_a_missing_file_is_none_and_an_empty_one_is_empty(self, tmp_path: Path) -> None:
        (tmp_path / "empty").touch()

        assert DiskFiles().read(tmp_path / "missing") is None
        assert DiskFiles().read(tmp_path / "empty") == b""

    def test_replacing_makes_the_folders_and_leaves_only_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "a" / "b" / "table"

        DiskFiles().replace(path, b"long content")
        DiskFiles().replace(path, b"short")

        assert contents(path.parent) == {"table": b"short"}

    def test_what_a_crash_left_half_written_does_not_matter(self, tmp_path: Path) -> None:
        (tmp_path / "table.tmp").write_bytes(b"half of some cont")

        DiskFiles().replace(tmp_path / "table", b"1")

        assert contents(tmp_path) == {"table": b"1"}

    def test_a_folder_that_is_there_is_made_without_complaint(self, tmp_path: Path) -> None:
        saved_file.make_folder(tmp_path / "a")
        saved_file.make_folder(tmp_path / "a")

        assert (tmp_path / "a").is_dir()

    def test_a_file_in_the_place_of_a_folder_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "a").touch()

        with pytest.raises(FileExistsError):
            DiskFiles().replace(tmp_path / "a" / "table", b"1")


def test_a_file_that_only_its_owner_may_read_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"old")
    path.chmod(0o600)

    saved_file.replace_file(path, b"new")

    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
