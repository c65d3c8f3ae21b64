"""Reading the files of a store without touching them: a few mappings at a time, nothing locked."""

from __future__ import annotations

import bisect
import collections
import contextlib
import os
from typing import TYPE_CHECKING, Final

from cometmq.codec import queue_extension, record
from cometmq.codec.record import Record
from cometmq.errors import RemoteProtocolError
from cometmq.store.directory import file_offset
from cometmq.store.files import DiskFile, DiskFiles

if TYPE_CHECKING:
    import mmap
    from pathlib import Path

    from cometmq.codec.queue_extension import ExtensionUnit
    from cometmq.store.files import Files

_MAPPINGS_MAX: Final = 16


class _ReadOnlyFile(DiskFile):
    """A file of which nothing can be changed; it may belong to someone else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)


class ReadOnlyFiles(DiskFiles):
    """The real file system, for those who only look: files are opened for reading."""

    def open(self, path: Path) -> DiskFile:
        return _ReadOnlyFile(path)


def map_file(files: Files, path: Path) -> mmap.mmap:
    """The whole file as memory; closing it is up to the caller."""
    file = files.open(path)
    try:
        return file.map(writable=False)
    finally:
        file.close()


class Mappings:
    """Files mapped for reading, the ones used last kept; a mapping is valid until the next call."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._kept: collections.OrderedDict[Path, mmap.mmap] = collections.OrderedDict()

    def get(self, path: Path) -> mmap.mmap:
        mapping = self._kept.pop(path, None)
        if mapping is None:
            mapping = map_file(self._files, path)
        self._kept[path] = mapping
        if len(self._kept) > _MAPPINGS_MAX:
            _, oldest = self._kept.popitem(last=False)
            oldest.close()
        return mapping

    def close(self) -> None:
        while self._kept:
            self._kept.popitem()[1].close()


class Segments:
    """Files that continue each other, read at positions of the whole."""

    def __init__(self, paths: list[Path], file_bytes: int, mappings: Mappings) -> None:
        self.paths = paths
        self.file_bytes = file_bytes
        self._begins = [file_offset(path) for path in paths]
        self._mappings = mappings

    @property
    def begin(self) -> int:
        return self._begins[0] if self._begins else 0

    @property
    def end(self) -> int:
        return self._begins[-1] + self.file_bytes if self._begins else 0

    def mapping(self, path: Path) -> mmap.mmap:
        return self._mappings.get(path)

    def path_at(self, position: int) -> Path | None:
        """The file that holds ``position``; None when there is none."""
        index = bisect.bisect_right(self._begins, position) - 1
        if index < 0 or position >= self._begins[index] + self.file_bytes:
            return None
        return self.paths[index]

    def record_at(self, position: int) -> Record | None:
        """The record that begins at ``position`` and says so itself, without its body."""
        path = self.path_at(position)
        if path is None:
            return None
        with contextlib.suppress(RemoteProtocolError):
            found = record.parse(self.mapping(path), position - file_offset(path), with_body=False)
            if isinstance(found, Record) and found.physical_offset == position:
                return found
        return None

    def extension_at(self, position: int) -> ExtensionUnit | None:
        """The queue extension unit that begins at ``position``."""
        path = self.path_at(position)
        if path is None:
            return None
        try:
            return queue_extension.parse(self.mapping(path), position - file_offset(path))
        except RemoteProtocolError:
            return None
