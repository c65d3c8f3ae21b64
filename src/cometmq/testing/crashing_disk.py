"""A disk that loses what was not synced, fills up and breaks when a test wants it to.

It stands between a store and a real directory. Bytes written through a mapping do not pass it, as
they do not pass anything on a real machine; so it remembers each file as it was at its last sync,
and a crash compares that with what is there. Every call that changes the disk is an event, told
before and after it happens; the power can be cut at any of them. Nothing is synced really, so tests
do not wait for the disk below.
"""

import contextlib
import errno
import os
import shutil
import weakref
from collections.abc import Callable, Iterator
from mmap import mmap
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple

from cometmq.store.files import DiskFile, DiskFiles, DiskUsage, Entry
from cometmq.testing.durable_image import PAGE_BYTES, DurableImage

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

EventKind = Literal[
    "create",
    "settle",
    "allocate",
    "write",
    "clear",
    "sync",
    "replace",
    "remove",
    "remove_folder",
]


class DiskEvent(NamedTuple):
    """One change of the disk, about to happen or done."""

    kind: EventKind
    path: Path
    is_done: bool


class PowerCut(BaseException):
    """The machine is off: raised by every call to the disk until ``crash`` or ``abandon``.

    No ``Exception``, so that nobody who handles errors of a disk takes it for one.
    """


class CrashingDisk:
    """The ``files`` of a ``MessageStore`` below ``root``, for tests of what survives.

    ::

        disk = CrashingDisk(tmp_path)
        store = MessageStore.open(tmp_path, files=disk, threads=False)
        store.put(message)
        disk.crash(seed=1)  # as if the power had failed; the store is dead, do not close it
        store = MessageStore.open(tmp_path, files=disk, threads=False)

    What lies below ``root`` at the start counts as durable. With ``sector_bytes`` (512, say) a
    crash also tears pages; otherwise a page is written whole or not at all. Files are held in
    memory, so keep them small. It may be called by several threads, but the order of their events
    is then their own.
    """

    def __init__(self, root: Path, *, sector_bytes: int | None = None) -> None:
        self._root = root
        self._sector_bytes = sector_bytes
        self._files = DiskFiles()
        self._images = {
            path: DurableImage(path.read_bytes(), has_blocks=True) for path in _files_below(root)
        }
        # Files whose names are not on disk yet, in the order they were made.
        self._unsettled: list[Path] = []
        self._lock_holders: dict[Path, object] = {}
        # Handed out and perhaps still in use.
        self._open_files: set[CrashingFile] = set()
        self._mappings: list[weakref.ref[mmap]] = []
        # Events so far, and at which of them the power is cut.
        self.event_count = 0
        self._cut_at: int | None = None
        self._is_off = False
        # What the call that the power cut interrupted may have done of its work.
        self._unfinished: Callable[[Random], object] = _nothing
        self._listeners: list[Callable[[DiskEvent], object]] = []
        self._faults: dict[EventKind, tuple[OSError, int]] = {}
        self._free_bytes: int | None = None
        self.unallocated_writes: list[tuple[Path, int]] = []
        """Pages found written through a mapping without having been allocated: (file, position)."""

    # What a test does to it.

    def crash(self, seed: int) -> None:
        """Lose, by ``seed``, some of the pages that were not synced; then the machine is on again.

        Each page that differs from the last sync is kept or lost independently of the others. What
        was created, replaced or removed stays so, except files made without a durable name: of
        those not settled yet the last ones may be gone. A call that ``PowerCut`` interrupted has
        done all, nothing or a part of its work. Locks are free, and the mappings of the time before
        have nothing to do with the files any more.
        """
        chance = Random(seed)
        self._close_everything()
        self._unfinished(chance)
        self._lose_names(chance)
        for path in _files_below(self._root):
            self._lose(path, chance)
        self._images = {path: image for path, image in self._images.items() if path.exists()}
        self._restart()

    def abandon(self) -> None:
        """End the process that uses the disk, not the machine: all it wrote is kept.

        A call that ``PowerCut`` interrupted before its work has not done it. Mappings stay usable
        while somebody holds a view of them, so do not go on with the store of before.
        """
        self._close_everything()
        self._restart()

    def cut_power_at(self, event_count: int) -> None:
        """Raise ``PowerCut`` instead of the ``event_count``-th event from now, which is 1."""
        assert event_count >= 1, event_count
        self._cut_at = self.event_count + event_count

    def on_event(self, listener: Callable[[DiskEvent], object]) -> None:
        """Call ``listener`` at each event, until the next crash.

        Before an event it may raise ``OSError`` to make the call fail, or ``PowerCut``.
        """
        self._listeners.append(listener)

    def fail_sync(self, error: OSError, *, after: int = 0) -> None:
        """Let ``after`` syncs pass and all later ones fail, until ``heal``.

        What a failed sync was to write is not written by a later one either, as on Linux.
        """
        self._faults["sync"] = error, after

    def fail_allocate(self, error: OSError, *, after: int = 0) -> None:
        """Let ``after`` allocations pass and all later ones fail, until ``heal``."""
        self._faults["allocate"] = error, after

    def fill_after(self, free_bytes: int) -> None:
        """Make the disk one that has room for ``free_bytes`` more; then it fails with ENOSPC."""
        self._free_bytes = free_bytes

    def heal(self) -> None:
        """Take back what ``fail_sync``, ``fail_allocate`` and ``fill_after`` did."""
        self._faults.clear()
        self._free_bytes = None

    def durable(self, path: Path) -> bytes | None:
        """What of a file would survive any crash; None when the file might not."""
        image = self._images.get(path)
        return None if image is None or path in self._unsettled else image.content

    # What a store asks of it: the ``Files`` protocol.

    def entries(self, folder: Path) -> list[Entry]:
        self._require_power()
        return self._files.entries(folder)

    def create(self, path: Path, size: int, *, durable: bool = True) -> None:
        def some_of_it(chance: Random) -> None:
            if not path.exists() and chance.random() < 3 / 4:
                path.parent.mkdir(parents=True, exist_ok=True)
                if chance.random() < 2 / 3:
                    content = bytes(chance.choice((0, size)))
                    path.write_bytes(content)
                    self._images[path] = DurableImage(content, has_blocks=False)
                    if not durable:
                        self._unsettled.append(path)

        with self._event("create", path, some_of_it):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.truncate(size)
            self._images[path] = DurableImage(bytes(size), has_blocks=False)
            if not durable:
                self._unsettled.append(path)

    def settle(self, path: Path) -> None:
        with self._event("settle", path, _nothing):
            folders = (path.parent, path.parent.parent, path.parent.parent.parent)
            self._unsettled = [one for one in self._unsettled if one.parent not in folders]

    def open(self, path: Path) -> "CrashingFile":
        self._require_power()
        if path not in self._images:
            # Made behind our back, by the test most likely.
            self._images[path] = DurableImage(path.read_bytes(), has_blocks=True)
        file = CrashingFile(self, path, self._images[path])
        self._open_files.add(file)
        return file

    def read(self, path: Path) -> bytes | None:
        self._require_power()
        return self._files.read(path)

    def replace(self, path: Path, content: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")

        def some_of_it(chance: Random) -> None:
            if chance.random() < 1 / 3:
                _replace(path, content)
                self._images[path] = DurableImage(content, has_blocks=True)
            elif path.parent.is_dir() and chance.random() < 1 / 2:
                temporary.write_bytes(content[: chance.randint(0, len(content))])
                self._images[temporary] = DurableImage(temporary.read_bytes(), has_blocks=True)

        with self._event("replace", path, some_of_it):
            self._take_blocks(_block_count(len(content)))  # the old content is there until the end
            _replace(path, content)
            self._free_blocks(path)
            self._images[path] = DurableImage(content, has_blocks=True)

    def remove(self, path: Path) -> None:
        def some_of_it(chance: Random) -> None:
            if chance.random() < 1 / 2:
                path.unlink(missing_ok=True)

        with self._event("remove", path, some_of_it):
            path.unlink(missing_ok=True)
            self._free_blocks(path)

    def remove_folder(self, folder: Path) -> None:
        def some_of_it(chance: Random) -> None:
            for path in _files_below(folder):
                if chance.random() < 1 / 2:
                    path.unlink(missing_ok=True)

        with self._event("remove_folder", folder, some_of_it):
            shutil.rmtree(folder, ignore_errors=True)
            for path in [path for path in self._images if path.is_relative_to(folder)]:
                self._free_blocks(path)

    def modified_ms(self, path: Path) -> int:
        self._require_power()
        return self._files.modified_ms(path)

    def usage(self, path: Path) -> DiskUsage:
        self._require_power()
        if self._free_bytes is None:
            return self._files.usage(path)
        used = PAGE_BYTES * sum(image.block_count for image in self._images.values())
        return DiskUsage(used, self._free_bytes)

    @contextlib.contextmanager
    def lock(self, path: Path) -> Iterator[bool]:
        self._require_power()
        if path in self._lock_holders:
            yield False
            return
        holder = self._lock_holders[path] = object()
        if not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"lock")
        try:
            yield True
        finally:
            # After a crash it may be somebody else's by now.
            if self._lock_holders.get(path) is holder:
                del self._lock_holders[path]

    # How it works.

    @contextlib.contextmanager
    def _event(
        self, kind: EventKind, path: Path, unfinished: Callable[[Random], object]
    ) -> Iterator[None]:
        self._tell(DiskEvent(kind, path, is_done=False), unfinished)
        self._fail_if_due(kind)
        yield
        self._tell(DiskEvent(kind, path, is_done=True), _nothing)

    def _tell(self, event: DiskEvent, unfinished: Callable[[Random], object]) -> None:
        self._require_power()
        self.event_count += 1
        try:
            if self.event_count == self._cut_at:
                raise PowerCut(event)
            for listener in self._listeners:
                listener(event)
        except PowerCut:
            self._is_off = True
            self._unfinished = unfinished
            raise

    def _fail_if_due(self, kind: EventKind) -> None:
        if kind not in self._faults:
            return
        error, passes = self._faults[kind]
        if passes == 0:
            raise error
        self._faults[kind] = error, passes - 1

    def _require_power(self) -> None:
        if self._is_off:
            raise PowerCut

    def _stop_within(self, begin: int, end: int, chance: Random) -> int:
        """Where the writing of bytes ends when it is cut short: between two pages or sectors."""
        unit = self._sector_bytes or PAGE_BYTES
        return max(begin, min(end, chance.randint(begin // unit, end // unit + 1) * unit))

    def _take_blocks(self, block_count: int) -> None:
        if self._free_bytes is None:
            return
        if block_count * PAGE_BYTES > self._free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._free_bytes -= block_count * PAGE_BYTES

    def _free_blocks(self, path: Path) -> None:
        image = self._images.pop(path, None)
        if self._free_bytes is not None and image is not None:
            self._free_bytes += image.block_count * PAGE_BYTES

    def _note_unallocated(self, path: Path, image: DurableImage, content: bytes) -> None:
        self.unallocated_writes += [(path, where) for where in image.unallocated(content)]

    def _lose_names(self, chance: Random) -> None:
        """Names reach the disk in the order they were given; some of the last may not have."""
        if not self._unsettled:
            return
        kept = chance.choice((0, len(self._unsettled), chance.randint(0, len(self._unsettled))))
        for path in self._unsettled[kept:]:
            path.unlink(missing_ok=True)
        self._unsettled.clear()

    def _lose(self, path: Path, chance: Random) -> None:
        content = path.read_bytes()
        if path not in self._images:  # a lock, or made behind our back: nothing of it was synced
            if chance.random() < 1 / 2:
                path.unlink()
            return
        image = self._images[path]
        self._note_unallocated(path, image, content)
        _write_new_file(path, image.crash(content, chance, self._sector_bytes))

    def _close_everything(self) -> None:
        for file in list(self._open_files):
            file.close()
        for reference in self._mappings:
            mapping = reference()
            if mapping is not None:
                # A view that somebody still holds keeps it open, harmlessly.
                with contextlib.suppress(BufferError):
                    mapping.close()
        self._mappings.clear()

    def _restart(self) -> None:
        self._lock_holders.clear()
        self._listeners.clear()
        self._cut_at = None
        self._is_off = False
        self._unfinished = _nothing


class CrashingFile:
    """One file of a ``CrashingDisk``: the ``File`` protocol."""

    def __init__(self, disk: CrashingDisk, path: Path, image: DurableImage) -> None:
        self.path = path
        self._disk = disk
        self._image = image
        self._file = DiskFile(path)
        # Not by name: the file may be removed while it is open.
        self._reader = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def map(self, *, writable: bool) -> mmap:
        self._disk._require_power()
        mapping = self._file.map(writable=writable)
        self._disk._mappings = [known for known in self._disk._mappings if known() is not None]
        self._disk._mappings.append(weakref.ref(mapping))
        return mapping

    def allocate(self, begin: int, end: int) -> None:
        with self._disk._event("allocate", self.path, _nothing):
            self._disk._take_blocks(self._image.missing_blocks(begin, end))
            self._file.allocate(begin, end)
            self._image.allocate(begin, end)

    def write(self, position: int, data: "ReadableBuffer") -> None:
        content = bytes(data)

        def some_of_it(chance: Random) -> None:
            stop = self._disk._stop_within(position, position + len(content), chance)
            part = content[: stop - position]
            with contextlib.closing(DiskFile(self.path)) as file:
                file.write(position, part)
            self._image.allocate(position, position + len(part))

        with self._disk._event("write", self.path, some_of_it):
            self._disk._take_blocks(self._image.missing_blocks(position, position + len(content)))
            self._file.write(position, content)
            self._image.allocate(position, position + len(content))

    def clear(self, begin: int, end: int) -> bool:
        def some_of_it(chance: Random) -> None:
            with contextlib.closing(DiskFile(self.path)) as file:
                file.clear(begin, self._disk._stop_within(begin, end, chance))

        with self._disk._event("clear", self.path, some_of_it):
            return self._file.clear(begin, end)

    def find_data(self, begin: int, end: int) -> int:
        return self._file.find_data(begin, end)

    def sync(self) -> None:
        # Before the event: what is written meanwhile is not promised to be covered.
        content = self._content()
        self._disk._note_unallocated(self.path, self._image, content)
        try:
            with self._disk._event("sync", self.path, _nothing):
                self._image.sync(content)
        except OSError:
            self._image.fail_sync(content)
            raise

    def close(self) -> None:
        if self in self._disk._open_files:
            self._disk._open_files.remove(self)
            self._file.close()
            os.close(self._reader)

    def _content(self) -> bytes:
        return os.pread(self._reader, os.fstat(self._reader).st_size, 0)


def _nothing(chance: Random) -> None:
    pass


def _files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _block_count(size: int) -> int:
    return -(-size // PAGE_BYTES)


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


def _write_new_file(path: Path, content: bytes) -> None:
    """Replace the file itself, not its bytes: mappings of before must not see or change it."""
    status = path.stat()
    path.unlink()
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
