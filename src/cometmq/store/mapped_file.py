"""One file of the commit log, mapped whole.

A file is *active* while records are appended to it and *sealed* afterwards; that is a matter of who
holds it, the bytes are the same. With the transient pool the active file's records go to a buffer
first and reach the file when they are committed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING, Final

from cometmq.store.files import MADV_POPULATE_WRITE

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.store.files import Files

_POPULATE_STEP_BYTES: Final = 256 * 1024
_libc = ctypes.CDLL(None, use_errno=True)


class MappedFile:
    """A log file: ``view`` is its bytes, read-only, to be sliced; a slice keeps it mapped."""

    __slots__ = ("_file", "_is_populated", "begin", "buffer", "mapping", "path", "size", "view")

    def __init__(self, files: Files, path: Path, size: int, *, writable: bool = True) -> None:
        self.path = path
        # Log position of the first byte, which is also the file's name.
        self.begin = int(path.name)
        self.size = size
        # Kept open: an error of the disk is told to those who had the file open when it happened.
        self._file = files.open(path)
        self.mapping: mmap.mmap = self._file.map(writable=writable)
        # Consumers read the log in order, so here reading ahead pays: a cold read took 8 times as
        # long without.
        self.mapping.madvise(mmap.MADV_NORMAL)
        self.view = memoryview(self.mapping).toreadonly()
        # Where records wait to be committed; None when they are written to the mapping itself.
        self.buffer: mmap.mmap | None = None
        self._is_populated = 0

    @property
    def end(self) -> int:
        return self.begin + self.size

    def allocate(self) -> None:
        """Give the whole file its blocks; until then nothing may be written to the mapping."""
        self._file.allocate(0, self.size)

    def populate(self, end: int) -> None:
        """Fault in the pages up to ``end``, so that appending does not have to.

        Runs on a thread beside everything else. Python's own ``madvise`` would keep the
        interpreter to itself meanwhile: half a second per GiB.
        """
        begin, end = self._is_populated, min(self.size, end)
        try:
            first = ctypes.c_char.from_buffer(self.mapping)
        except (ValueError, TypeError):  # closed meanwhile
            return
        try:
            address = ctypes.addressof(first)
            while begin < end:
                length = min(_POPULATE_STEP_BYTES, end - begin)
                call = _libc.madvise(
                    ctypes.c_void_p(address + begin), ctypes.c_size_t(length), MADV_POPULATE_WRITE
                )
                if call != 0:
                    break  # an older kernel: the first touch of a page costs more, no harm
                begin += length
        finally:
            del first
        self._is_populated = end

    def commit(self, begin: int, end: int) -> None:
        """Write the buffer's bytes at the log positions ``[begin, end)`` to the file."""
        assert self.buffer is not None
        with memoryview(self.buffer)[begin - self.begin : end - self.begin] as part:
            self._file.write(begin - self.begin, part)

    def clear_from(self, position: int) -> bool:
        """Make everything from ``position`` on zero, on disk too; tell whether it was not."""
        was_dirty = self._file.clear(position, self.size)
        if was_dirty:
            self._file.sync()
        return was_dirty

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> bool:
        """Unmap and close the file; False, to be tried again, while a slice of it is in use."""
        self.view.release()
        try:
            self.mapping.close()
        except BufferError:
            self.view = memoryview(self.mapping).toreadonly()
            return False
        self._file.close()
        return True


class TransientPool:
    """Buffers of memory that records are collected in before they are written to their file."""

    def __init__(self, size: int, buffer_bytes: int) -> None:
        self._buffer_bytes = buffer_bytes
        # Made when first needed: five of a GiB each are a lot for a broker that idles.
        self._left = size
        self._free: list[mmap.mmap] = []

    def take(self) -> mmap.mmap | None:
        """A buffer, or None when all are in use."""
        if self._free:
            return self._free.pop()
        if self._left == 0:
            return None
        self._left -= 1
        return mmap.mmap(-1, self._buffer_bytes)

    def give_back(self, buffer: mmap.mmap) -> None:
        self._free.append(buffer)

    @property
    def available(self) -> int:
        return len(self._free) + self._left

    def close(self) -> None:
        for buffer in self._free:
            buffer.close()
        self._free = []


def memory_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
