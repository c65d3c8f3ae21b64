"""The log of timed messages: one unit for each, in the order in which they were found.

Files of one size follow each other without a gap; a file ends with a blank. Nothing says where the
log ends: behind the last unit there are zeros, and whoever opens the log finds that place. So all
that lies behind it is cleared, lest a unit of the past be taken for one of this log.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Final

from cometmq.codec import timer
from cometmq.codec.record import MAGIC_BLANK
from cometmq.codec.timer import BLANK_BYTES, UNIT_BYTES, TimerUnit
from cometmq.errors import DamagedStore

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cometmq.store.files import Files

ALLOCATE_BYTES: Final = 1024 * 1024
"""Blocks are got in steps of this size, before anything is written to them."""

_UNIT: Final = struct.Struct(">iqiqiqiiq")
_NAME_DIGITS: Final = 20


class _LogFile:
    """One file, mapped."""

    __slots__ = ("_allocated", "_file", "begin", "is_dirty", "mapping", "path", "size")

    def __init__(self, files: Files, path: Path, size: int) -> None:
        self.path = path
        # Log position of the first byte, which is also the file's name.
        self.begin = int(path.name)
        self.size = size
        self._file = files.open(path)
        self.mapping: mmap.mmap = self._file.map(writable=True)
        # How far it has blocks.
        self._allocated = 0
        # Written to since the last sync.
        self.is_dirty = False

    def write(self, position: int, data: bytes) -> None:
        """Raises OSError, and has written nothing, when the disk is full."""
        end = position + len(data)
        if end > self._allocated:
            step = min(self.size, end + ALLOCATE_BYTES)
            self._file.allocate(position, step)
            self._allocated = step
        self.mapping[position:end] = data
        self.is_dirty = True

    def change(self, position: int, data: bytes) -> None:
        """Write over what is there, and so has blocks already."""
        self.mapping[position : position + len(data)] = data
        self.is_dirty = True

    def clear_from(self, position: int) -> None:
        if self._file.clear(position, self.size):
            self.is_dirty = True

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self.mapping.close()
        self._file.close()


class TimerLog:
    """All files. ``file_bytes`` is for the first one; those that exist keep their size."""

    def __init__(self, files: Files, folder: Path, file_bytes: int) -> None:
        self._files = files
        self._folder = folder
        self._file_bytes = file_bytes
        # Oldest first.
        self._log_files: list[_LogFile] = []
        # Their names are not durable yet.
        self._is_settled = True
        self.end = 0
        self._load()

    @property
    def begin(self) -> int:
        return self._log_files[0].begin if self._log_files else self.end

    # --- opening

    def find_end(self, begin: int, is_possible: Callable[[TimerUnit], bool]) -> None:
        """Find where the log ends: at the first unit, from ``begin`` on, that cannot be one.

        ``begin`` is where a unit began once; all before it is taken for granted. What lies behind
        the end is cleared.
        """
        self.end = self._log_files[-1].begin + self._log_files[-1].size if self._log_files else 0
        end = self._start(begin)
        for position, unit in self.units(end):
            if not is_possible(unit):
                end = position
                break
            end = position + UNIT_BYTES
        self.cut(end)

    def _start(self, begin: int) -> int:
        """Where to begin looking: at ``begin``, unless there is no unit before it."""
        file = self._file_of(begin)
        if file is None or (begin - file.begin) % UNIT_BYTES:
            return self.begin
        if begin == file.begin or self._unit_in(file, begin - UNIT_BYTES) is not None:
            return begin
        return self.begin

    def cut(self, end: int) -> None:
        """Forget everything from ``end`` on."""
        for file in reversed(self._log_files):
            if file.begin <= end < file.begin + file.size:
                file.clear_from(end - file.begin)
                break
            self._log_files.pop()
            file.close()
            self._files.remove(file.path)
        self.end = end

    # --- reading

    def unit(self, position: int) -> TimerUnit | None:
        """The unit at a position; None when there is none, or not any more."""
        file = self._file_of(position)
        if file is None or not self.begin <= position < self.end:
            return None
        return self._unit_in(file, position)

    def last(self) -> tuple[int, TimerUnit] | None:
        """The last unit of all, and its position."""
        for file in reversed(self._log_files):
            place = min(self.end - file.begin, file.size - BLANK_BYTES) // UNIT_BYTES * UNIT_BYTES
            if place >= UNIT_BYTES:
                position = file.begin + place - UNIT_BYTES
                unit = self._unit_in(file, position)
                return None if unit is None else (position, unit)
        return None

    def recent(self, count: int) -> Iterator[TimerUnit]:
        """The latest units of the file that is written to, not more than ``count`` of them."""
        last = self.last()
        file = None if last is None else self._file_of(last[0])
        if last is None or file is None:
            return
        for position in range(last[0], file.begin - 1, -UNIT_BYTES)[:count]:
            unit = self._unit_in(file, position)
            if unit is not None:
                yield unit

    def units(self, begin: int) -> Iterator[tuple[int, TimerUnit]]:
        """Units from a position on, with their positions, up to the end or what is no unit."""
        for file in self._log_files:
            if file.begin + file.size <= begin:
                continue
            start = max(begin - file.begin, 0)
            stop = min(self.end - file.begin, file.size)
            for position in range(start, stop - UNIT_BYTES + 1, UNIT_BYTES):
                values = _UNIT.unpack_from(file.mapping, position)
                if values[2] == MAGIC_BLANK:
                    break
                if values[0] != UNIT_BYTES or not timer.is_valid_magic(values[2]):
                    return
                yield file.begin + position, TimerUnit(*values[1:])

    def _unit_in(self, file: _LogFile, position: int) -> TimerUnit | None:
        place = position - file.begin
        if not 0 <= place <= file.size - UNIT_BYTES:
            return None
        values = _UNIT.unpack_from(file.mapping, place)
        if values[0] != UNIT_BYTES or not timer.is_valid_magic(values[2]):
            return None
        return TimerUnit(*values[1:])

    def _file_of(self, position: int) -> _LogFile | None:
        if not self._log_files or position < self._log_files[0].begin:
            return None
        number = (position - self._log_files[0].begin) // self._file_bytes
        return self._log_files[number] if number < len(self._log_files) else None

    # --- writing

    def append(self, unit: TimerUnit) -> int:
        """Write a unit; its position. Raises OSError, and has changed nothing, on a full disk."""
        file = self._file_of(self.end)
        if file is not None and file.size - (self.end - file.begin) < UNIT_BYTES + BLANK_BYTES:
            place = self.end - file.begin
            following = self._new_file(file.begin + file.size)
            file.write(place, timer.encode_blank(file.size - place))
            file, self.end = following, following.begin
        elif file is None:
            file = self._new_file(self.end)
        position = self.end
        file.write(position - file.begin, timer.encode_unit(unit))
        self.end = position + UNIT_BYTES
        return position

    def replace(self, position: int, unit: TimerUnit) -> None:
        """Write another unit over the one at a position."""
        file = self._file_of(position)
        assert file is not None, position
        file.change(position - file.begin, timer.encode_unit(unit))

    def sync(self) -> None:
        """Bring everything appended before this call to disk; may run beside the appending."""
        if not self._is_settled:
            self._is_settled = True
            self._files.settle(self._log_files[0].path)
        for file in tuple(self._log_files):
            if file.is_dirty:
                file.is_dirty = False
                file.sync()

    def drop_before(self, log_begin: int) -> list[Path]:
        """Let go of files of which all messages have left the commit log, but never of the last.

        They are to be removed, in this order. Must not run beside ``sync``.
        """
        dropped = []
        while len(self._log_files) > 1:
            file = self._log_files[0]
            newest = self._newest_in(file)
            if newest is None or newest.physical_offset >= log_begin:
                break
            self._log_files.pop(0)
            file.close()
            dropped.append(file.path)
        return dropped

    def close(self) -> None:
        for file in self._log_files:
            file.close()
        self._log_files = []

    # --- helpers

    def _newest_in(self, file: _LogFile) -> TimerUnit | None:
        """The last unit of a full file."""
        place = (file.size - BLANK_BYTES) // UNIT_BYTES * UNIT_BYTES - UNIT_BYTES
        return self._unit_in(file, file.begin + place)

    def _new_file(self, begin: int) -> _LogFile:
        last = self._log_files[-1] if self._log_files else None
        if last is not None and last.begin == begin:
            return last  # made before, when the disk had no room for what was to follow
        path = self._folder / f"{begin:0{_NAME_DIGITS}d}"
        self._files.create(path, self._file_bytes, durable=False)
        self._is_settled = False
        file = _LogFile(self._files, path, self._file_bytes)
        self._log_files.append(file)
        return file

    def _load(self) -> None:
        found = []
        for entry in self._files.entries(self._folder):
            path = self._folder / entry.name
            if entry.is_folder or not (entry.name.isdigit() and len(entry.name) == _NAME_DIGITS):
                continue
            if not entry.size:
                self._files.remove(path)
            else:
                found.append((path, entry.size))
        sizes = sorted({size for _, size in found})
        if len(sizes) > 1 or any(size < UNIT_BYTES + BLANK_BYTES for size in sizes):
            raise _damaged(self._folder, f"has files of {' and '.join(map(str, sizes))} bytes")
        if sizes:
            self._file_bytes = sizes[0]
        begins = [int(path.name) for path, _ in found]
        for one, other in itertools.pairwise(begins):
            if other - one != self._file_bytes:
                raise _damaged(self._folder, f"lacks the file after {one:0{_NAME_DIGITS}d}")
        self._log_files = [_LogFile(self._files, path, size) for path, size in found]
        self.end = self.begin


def _damaged(folder: Path, fact: str) -> DamagedStore:
    return DamagedStore(
        str(folder), fact, "put the files back, or remove the folder to give up what waits"
    )
