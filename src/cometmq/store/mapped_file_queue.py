"""The files of the commit log in order, found by position."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cometmq.store.files import Files
    from cometmq.store.mapped_file import MappedFile


class MappedFileQueue:
    """Files of one size, each beginning where the one before ends."""

    def __init__(self, files: Files, size: int, found: list[MappedFile]) -> None:
        # Removes a file; replaced by one that does it on a thread, since a GiB takes its time.
        self.remover: Callable[[Path], None] = files.remove
        self.size = size
        self._files = found
        # Where the first file begins; 0 without files.
        self.begin = found[0].begin if found else 0
        # Deleted, but a slice of them is still in use.
        self._condemned: list[MappedFile] = []

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[MappedFile]:
        return iter(tuple(self._files))

    @property
    def first(self) -> MappedFile | None:
        return self._files[0] if self._files else None

    @property
    def last(self) -> MappedFile | None:
        return self._files[-1] if self._files else None

    @property
    def end(self) -> int:
        """Where the last file ends; 0 without files."""
        return self._files[-1].end if self._files else 0

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds the log position, if there is one."""
        if not self._files:
            return None
        index = (offset - self._files[0].begin) // self.size
        return self._files[index] if 0 <= index < len(self._files) else None

    def between(self, begin: int, end: int) -> list[MappedFile]:
        """The files that hold any position of ``[begin, end)``."""
        return [file for file in self if file.begin < end and file.end > begin]

    def append(self, file: MappedFile) -> None:
        assert not self._files or self._files[-1].end == file.begin, file.path
        self._files.append(file)
        self.begin = self._files[0].begin

    def drop_first(self) -> Path:
        """Forget the oldest file and remove it, as soon as nobody reads it any more."""
        file = self._files.pop(0)
        if self._files:
            self.begin = self._files[0].begin
        self._condemned.append(file)
        self.remove_condemned()
        return file.path

    def drop_after(self, end: int) -> list[Path]:
        """Forget and remove the files that begin at or after ``end``."""
        dropped = []
        while self._files and self._files[-1].begin >= end:
            file = self._files.pop()
            dropped.append(file.path)
            self._condemned.append(file)
        self.remove_condemned()
        return dropped

    def remove_condemned(self) -> None:
        """Try again to remove deleted files that were still being read.

        In order, and none before the one ahead of it is gone: the files on disk never have a gap.
        """
        while self._condemned and self._condemned[0].close():
            self.remover(self._condemned.pop(0).path)

    @property
    def condemned(self) -> int:
        """How many deleted files are still being read."""
        return len(self._condemned)

    @property
    def disk_begin(self) -> int | None:
        """Begin of the oldest file on disk, which may be a deleted one; None without files."""
        files = self._condemned or self._files
        return files[0].begin if files else None

    def close(self) -> list[Path]:
        """Unmap all; paths of those that somebody still reads."""
        self.remove_condemned()
        return [file.path for file in (*self._files, *self._condemned) if not file.close()]
