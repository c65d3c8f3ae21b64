"""The store's view of a file system: the seam where tests put a disk that crashes or is full.

Bytes written through a mapping never pass here, as on a real machine; what passes is everything
that makes them durable or gives them a place: allocating, syncing, creating, renaming, removing.
Errors are ``OSError`` as they come.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from cometmq import saved_file
from cometmq.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import ReadableBuffer

MADV_POPULATE_WRITE: Final = 23
"""Linux 5.14: fault all pages in for writing, in one call that lets other threads run."""
_LOOK_BYTES: Final = 64 * 1024

_log = get_logger(__name__)


class Entry(NamedTuple):
    """One name in a folder; folders have size 0."""

    name: str
    size: int
    is_folder: bool


class DiskUsage(NamedTuple):
    """Bytes of the file system a path lies on, as an unprivileged user may use them."""

    used: int
    free: int

    @property
    def percent(self) -> int:
        """Used share, rounded up as Apache does."""
        whole = self.used + self.free
        return -(-100 * self.used // whole) if whole else 100


class File(Protocol):
    """One open file. Mappings made of it outlive it."""

    path: Path

    def map(self, *, writable: bool) -> mmap.mmap:
        """The whole file as memory; random access is assumed, nothing is read ahead."""
        ...

    def allocate(self, begin: int, end: int) -> None:
        """Give the bytes ``[begin, end)`` their blocks now; raises ``OSError`` on a full disk."""
        ...

    def write(self, position: int, data: ReadableBuffer) -> None:
        """Write all of ``data`` at ``position``."""
        ...

    def clear(self, begin: int, end: int) -> bool:
        """Make the bytes zero; tell whether any were not. Not durable before the next sync."""
        ...

    def find_data(self, begin: int, end: int) -> int:
        """Where the first of the bytes lies that is not zero; ``end`` when all are."""
        ...

    def sync(self) -> None:
        """Return when everything written to the file so far, also through mappings, is on disk."""
        ...

    def close(self) -> None: ...


class Files(Protocol):
    """What the store asks of a file system."""

    def entries(self, folder: Path) -> list[Entry]:
        """What a folder holds, ordered by name; empty when there is no such folder."""
        ...

    def create(self, path: Path, size: int, *, durable: bool = True) -> None:
        """Make a file of ``size`` zero bytes, with its folder; the name may not exist yet.

        The name is durable when this returns, or the file is not there. If it is not to be
        durable yet, nothing waits for the disk, and a crash may take the file away until
        ``settle``; of several such files the later ones go first.
        """
        ...

    def settle(self, path: Path) -> None:
        """Make the names of a file and of the two folders above it durable."""
        ...

    def open(self, path: Path) -> File: ...

    def read(self, path: Path) -> bytes | None:
        """The whole content; None when there is no such file."""
        ...

    def replace(self, path: Path, content: bytes) -> None:
        """Make ``content`` the file's: after a crash there is the old or the new one, whole."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file, durably; fine when there is none."""
        ...

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder with all in it; fine when there is none."""
        ...

    def modified_ms(self, path: Path) -> int: ...

    def usage(self, path: Path) -> DiskUsage:
        """Of the file system that holds ``path`` or its nearest existing parent."""
        ...

    def lock(self, path: Path) -> contextlib.AbstractContextManager[bool]:
        """Take Apache's advisory lock; False when another process has it. Freed on exit.

        The file is made; of a folder that is there, the folder itself is locked.
        """
        ...


_locked_here: set[Path] = set()
"""Lock files held by this process."""


class DiskFile:
    """A file of the real file system."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def map(self, *, writable: bool) -> mmap.mmap:
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        mapping = mmap.mmap(self._fd, 0, access=access)
        # Without it the first touch of a fresh queue file reads ahead all of it: 2 to 12 ms
        # instead of some 10 us.
        mapping.madvise(mmap.MADV_RANDOM)
        return mapping

    def allocate(self, begin: int, end: int) -> None:
        os.posix_fallocate(self._fd, begin, end - begin)

    def write(self, position: int, data: ReadableBuffer) -> None:
        with memoryview(data).cast("B") as rest:
            written = 0
            while written < rest.nbytes:
                written += os.pwrite(self._fd, rest[written:], position + written)

    def clear(self, begin: int, end: int) -> bool:
        zeros = bytes(1 << 20)
        found = bytearray(len(zeros))
        was_dirty = False
        while (begin := self._next_data(begin, end)) < end:
            length = min(end - begin, len(zeros))
            with memoryview(found)[:length] as part, memoryview(zeros)[:length] as nothing:
                length = os.preadv(self._fd, [part], begin)
                if part[:length] != nothing[:length]:
                    was_dirty = True
                    self.write(begin, nothing[:length])
            if length == 0:
                break
            begin += length
        return was_dirty

    def find_data(self, begin: int, end: int) -> int:
        # The rest of a page first: of most files that is all there is, and reading a hole costs
        # memory.
        length = mmap.PAGESIZE - begin % mmap.PAGESIZE
        while (begin := self._next_data(begin, end)) < end:
            found = os.pread(self._fd, min(end - begin, length), begin)
            if not found:
                break
            written = found.lstrip(b"\0")
            if written:
                return begin + len(found) - len(written)
            begin += len(found)
            length = _LOOK_BYTES
        return end

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)

    def _next_data(self, begin: int, end: int) -> int:
        """Where the next bytes may lie that were ever written; ``end`` when there are none."""
        if begin >= end:
            return end
        try:
            return min(end, max(begin, os.lseek(self._fd, begin, os.SEEK_DATA)))
        except OSError:  # ENXIO: nothing but holes behind it
            return end


def _open_nameless(folder: Path) -> int | None:
    """A file that gets its name when it has its size; None where the system has no such thing.

    Apache refuses a directory with an empty file in it, and that is what a kill would leave
    between making a file and giving it its size.
    """
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None or not Path("/proc/self/fd").exists():
        return None
    try:
        return os.open(folder, os.O_RDWR | os.O_CLOEXEC | flag, 0o644)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR):
            return None
        raise


def _create_named(path: Path, size: int, *, durable: bool) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        _size(fd, size, durable=durable)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(fd)


def _size(fd: int, size: int, *, durable: bool) -> None:
    os.ftruncate(fd, size)
    if durable:
        os.fsync(fd)


@contextlib.contextmanager
def _folder_locked(folder: Path) -> Iterator[bool]:
    """Lock a folder by its descriptor, where the file system can."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        yield False
        return
    except OSError as error:
        _log.info("folder=%s cannot be locked here: %s", folder, error.strerror)
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)  # a process that was forked may have it, too
        os.close(fd)


class DiskFiles:
    """The real file system."""

    def entries(self, folder: Path) -> list[Entry]:
        try:
            with os.scandir(folder) as found:
                entries = [
                    Entry(item.name, 0 if item.is_dir() else item.stat().st_size, item.is_dir())
                    for item in found
                ]
        except FileNotFoundError:
            return []
        return sorted(entries)

    def create(self, path: Path, size: int, *, durable: bool = True) -> None:
        if durable:
            saved_file.make_folder(path.parent)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
        fd = _open_nameless(path.parent)
        if fd is None:
            _create_named(path, size, durable=durable)
        else:
            try:
                _size(fd, size, durable=durable)
                # Given a folder, it follows the link to the file; the folder is not used.
                os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
            finally:
                os.close(fd)
        if durable:
            saved_file.sync_folder(path.parent)

    def settle(self, path: Path) -> None:
        for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
            saved_file.sync_folder(folder)

    def open(self, path: Path) -> DiskFile:
        return DiskFile(path)

    def read(self, path: Path) -> bytes | None:
        return saved_file.read_file(path)

    def replace(self, path: Path, content: bytes) -> None:
        saved_file.replace_file(path, content)

    def remove(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            saved_file.sync_folder(path.parent)

    def remove_folder(self, folder: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
            saved_file.sync_folder(folder.parent)

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def usage(self, path: Path) -> DiskUsage:
        while not path.exists() and path != path.parent:
            path = path.parent
        status = os.statvfs(path)
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        return DiskUsage(used, status.f_bavail * status.f_frsize)

    @contextlib.contextmanager
    def lock(self, path: Path) -> Iterator[bool]:
        if path.is_dir():
            with _folder_locked(path) as is_ours:
                yield is_ours
            return
        saved_file.make_folder(path.parent)
        name = path.resolve()
        # The system's lock belongs to the process: a second one here would succeed, and give up
        # the first with its file.
        if name in _locked_here:
            yield False
            return
        with path.open("a+b") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
            except OSError:
                yield False
                return
            file.truncate(0)
            file.write(b"lock")
            file.flush()
            _locked_here.add(name)
            try:
                yield True
            finally:
                _locked_here.discard(name)
