"""The files of a store as their reader sees them: queues as arrays of entries, the log as buffers.

Nothing is locked or written. Files are opened before they are read and stay open until the reader
is done, so retention may delete them meanwhile. The log is mapped up to where it is settled: what
lies behind may be cut when its broker starts after a crash, and touching a mapping behind the cut
would kill the process, so that is read with ``pread``.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cometmq.codec.queue_entry import ENTRY_BYTES
from cometmq.codec.record import RECORD_BYTES_MIN
from cometmq.errors import DamagedStore, NotFound, StoreError
from cometmq.spark.gathering import BUFFER_BYTES_MAX
from cometmq.store.directory import LOG_FOLDER, QUEUE_FOLDER, offset_name

ENTRY: Final = np.dtype([("position", ">i8"), ("size", ">i4"), ("tags", ">i8")])
assert ENTRY.itemsize == ENTRY_BYTES

GAP_BYTES_MAX: Final = 64 * 1024
"""Records that lie further apart are read from a file one by one."""
ABORT_FILE: Final = "abort"
_OFFSET_DIGITS: Final = 20
FILLER_SIZE: Final = 2**31 - 1
"""Of an entry that is there only because its queue does not begin with the first of a file."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the log in memory: records are at ``positions`` of ``buffer``."""

    buffer: Any
    positions: Any


class LogFiles:
    """The commit log: its files by the offset at which they begin."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self._folders = folders
        self._files: dict[int, _LogFile] = {}
        self.file_bytes = 0
        self.settled_end = 0
        """What lies before is never cut, and mapped."""
        self._paths: dict[int, Path] = {}
        self.look()

    @property
    def begin(self) -> int:
        return min(self._paths, default=0)

    @property
    def newest(self) -> int:
        """Where the newest file begins."""
        return max(self._paths, default=0)

    @property
    def end(self) -> int:
        """Where the newest file ends, however much of it is written."""
        return self.newest + self.file_bytes

    def hold(self, position: int) -> bool:
        """Keep the file with ``position`` open; whether it is there."""
        if not self.file_bytes:
            self.look()
        begin = position // self.file_bytes * self.file_bytes if self.file_bytes else 0
        if begin in self._files:
            return True
        if begin not in self._paths:
            self.look()
        path = self._paths.get(begin)
        if path is None:
            return False
        try:
            settled = min(self.settled_end - begin, self.file_bytes)
            self._files[begin] = _LogFile(path, max(settled, 0))
        except FileNotFoundError:
            del self._paths[begin]
            return False
        return True

    def stretch(self, positions: Any, sizes: Any) -> Stretch:
        """The records at these positions, which are of one file that is held."""
        begin = int(positions[0]) // self.file_bytes * self.file_bytes
        return self._files[begin].stretch(positions - begin, sizes)

    def release(self, before: int) -> None:
        """Let go of files that end at ``before`` or earlier."""
        for begin in [one for one in self._files if one + self.file_bytes <= before]:
            self._files.pop(begin).close()

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()

    def path_at(self, position: int) -> Path:
        """Where the file with ``position`` is, or was."""
        begin = position // self.file_bytes * self.file_bytes if self.file_bytes else 0
        return self._paths.get(begin, self._folders[0] / offset_name(begin))

    def listed(self) -> list[int]:
        """Where files begin that are there at this moment; others may have been there before."""
        return sorted(begin for folder in self._folders for begin, _, _ in _numbered(folder))

    def look(self) -> None:
        """See which files there are now."""
        for folder in self._folders:
            for begin, path, size in _numbered(folder):
                self._paths[begin] = path
                if size:
                    self.file_bytes = max(self.file_bytes, size)


class _LogFile:
    """One log file that is held open."""

    def __init__(self, path: Path, settled_bytes: int) -> None:
        self.path = path
        self._settled_bytes = settled_bytes
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._buffer: Any = None

    def stretch(self, positions: Any, sizes: Any) -> Stretch:
        end = int(positions[-1] + sizes[-1])
        if end > self._settled_bytes:
            return self._read(positions, sizes)
        if self._buffer is None:
            self._buffer = self._mapped(end)
        if self._buffer.size <= BUFFER_BYTES_MAX:
            return Stretch(self._buffer, positions)
        base = int(positions[0])
        return Stretch(self._buffer.slice(base, end - base), positions - base)

    def _mapped(self, end: int) -> Any:
        size = os.fstat(self._fd).st_size
        if size < end:
            raise self._too_short(end)
        length = min(self._settled_bytes, size)
        return pa.py_buffer(mmap.mmap(self._fd, length, prot=mmap.PROT_READ))

    def close(self) -> None:
        self._buffer = None  # the mapping goes with the last array that is made of it
        with contextlib.suppress(OSError):
            os.close(self._fd)

    def _read(self, positions: Any, sizes: Any) -> Stretch:
        """Copy records out of the file; what lies close together with one call."""
        ends = positions + sizes
        cuts: Any = np.flatnonzero(positions[1:] - ends[:-1] > GAP_BYTES_MAX) + 1
        firsts = np.concatenate(([0], cuts))
        lasts = np.concatenate((cuts, [len(positions)])) - 1
        begins, stops = positions[firsts], ends[lasts]
        bases = np.concatenate(([0], np.cumsum(stops - begins)))
        target: Any = np.empty(int(bases[-1]), np.uint8)
        view = memoryview(target)
        for begin, stop, base in zip(begins.tolist(), stops.tolist(), bases.tolist(), strict=False):
            self._read_into(view[base : base + stop - begin], begin)
        moved = positions - np.repeat(begins - bases[:-1], lasts - firsts + 1)
        return Stretch(pa.py_buffer(target), moved)

    def _read_into(self, target: memoryview, begin: int) -> None:
        at = 0
        while at < len(target):
            got = os.preadv(self._fd, [target[at:]], begin + at)
            if not got:
                raise self._too_short(begin + len(target))
            at += got

    def _too_short(self, end: int) -> StoreError:
        return DamagedStore(str(self.path), f"file ends before {end}, where a record ends")


class QueueFiles:
    """One consume queue."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = sorted(_numbered(folder))
        sizes = [size for _, _, size in self._files if size]
        self._file_bytes = max(sizes, default=0)

    @property
    def file_begin(self) -> int:
        """The number of the first entry that a file has room for."""
        return self._files[0][0] // ENTRY_BYTES if self._files else 0

    @property
    def file_end(self) -> int:
        if not self._files:
            return 0
        return (self._files[-1][0] + self._file_bytes) // ENTRY_BYTES

    def entries(self, begin: int, end: int) -> Any:
        """The entries ``[begin, end)``; those that have no file, or were not written, are zero."""
        entries: Any = np.zeros(max(end - begin, 0), ENTRY)
        raw = memoryview(entries.view(np.uint8))
        for file_begin, path, size in self._files:
            low = max(begin * ENTRY_BYTES, file_begin)
            high = min(end * ENTRY_BYTES, file_begin + size)
            if low >= high:
                continue
            try:
                _read_file(path, low - file_begin, raw[low - begin * ENTRY_BYTES :][: high - low])
            except FileNotFoundError:
                continue
        return entries

    def bounds(self, log_begin: int, log_end: int) -> tuple[int, int]:
        """The first entry that points into the log, and the one after the last."""
        begin, end = self.file_begin, self.file_end
        end = partition(begin, end, lambda n: self._is_written(n, log_end))
        begin = partition(begin, end, lambda n: not self._is_from(n, log_begin))
        return begin, end

    def _is_written(self, number: int, log_end: int) -> bool:
        entry = self.entries(number, number + 1)[0]
        size, position = int(entry["size"]), int(entry["position"])
        return size == FILLER_SIZE or (size >= RECORD_BYTES_MIN and 0 <= position <= log_end - size)

    def _is_from(self, number: int, log_begin: int) -> bool:
        entry = self.entries(number, number + 1)[0]
        return int(entry["size"]) != FILLER_SIZE and int(entry["position"]) >= log_begin


class StoreFiles:
    """A store directory. Raises NotFound when it is not visible here, or is none."""

    def __init__(self, root: Path, log_folders: tuple[Path, ...] = ()) -> None:
        self.root = root
        folders = tuple(dict.fromkeys((*log_folders, root / LOG_FOLDER)))
        if not any(folder.is_dir() for folder in folders):
            advice = "is it the directory that has commitlog in it, and mounted on this machine?"
            raise NotFound("store directory", str(root), advice)
        self.log = LogFiles(folders)

    @property
    def settled_end(self) -> int:
        """Up to where the log is never cut, as far as files tell."""
        if not (self.root / ABORT_FILE).exists():
            return self.log.end
        # A broker is running, or was killed: it may write to the last file, or to the one before,
        # because it makes the next file before it needs it.
        return self.log.newest - self.log.file_bytes

    def queue(self, topic: str, queue_id: int) -> QueueFiles:
        return QueueFiles(self.root / QUEUE_FOLDER / topic / str(queue_id))

    def queues(self) -> Iterator[tuple[str, int]]:
        """Topics and queue ids that have a folder."""
        top = self.root / QUEUE_FOLDER
        for topic in sorted(_folders(top)):
            for queue_id in self.queue_ids(topic):
                yield topic, queue_id

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic that have a folder."""
        names = _folders(self.root / QUEUE_FOLDER / topic)
        return sorted(int(name) for name in names if name.isdecimal())

    def close(self) -> None:
        self.log.close()


def partition(begin: int, end: int, is_before: Any) -> int:
    """The first number for which ``is_before`` is false, if that changes only once."""
    while begin < end:
        middle = (begin + end) // 2
        if is_before(middle):
            begin = middle + 1
        else:
            end = middle
    return begin


def _numbered(folder: Path) -> list[tuple[int, Path, int]]:
    """Files that are named by the offset at which they begin, with their sizes."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if len(entry.name) == _OFFSET_DIGITS and entry.name.isdecimal():
                    with contextlib.suppress(FileNotFoundError):
                        size = entry.stat().st_size
                        found.append((int(entry.name), Path(entry.path), size))
    except FileNotFoundError:
        return []
    return sorted(found)


def _folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except FileNotFoundError:
        return []


def _read_file(path: Path, offset: int, target: memoryview) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        at = 0
        while at < len(target):
            got = os.preadv(fd, [target[at:]], offset + at)
            if not got:
                return
            at += got
    finally:
        os.close(fd)
