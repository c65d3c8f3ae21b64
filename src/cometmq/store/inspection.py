"""Looking into a store directory without opening it: what there is, and its messages in order.

Nothing is locked or written, so a broker may be running on it; what it is just writing may then
look unfinished.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cometmq.codec import checkpoint, index_entry, queue_entry, record
from cometmq.codec.checkpoint import Checkpoint
from cometmq.codec.index_entry import IndexHeader
from cometmq.codec.queue_entry import ENTRY_BYTES, FILLER
from cometmq.codec.record import BLANK_BYTES_MIN, Blank, Record
from cometmq.errors import NotFound, RemoteProtocolError
from cometmq.store.check.reading import Mappings, ReadOnlyFiles, Segments, map_file
from cometmq.store.config import StoreSettings
from cometmq.store.directory import Layout, file_offset

if TYPE_CHECKING:
    import mmap
    from collections.abc import Generator, Iterator

    from cometmq.store.files import DiskUsage, Files

_UNWRITTEN: Final = (0, 0)
_PARTS: Final = ("commitlog", "consumequeue", "checkpoint")


@dataclass(frozen=True, slots=True)
class QueueStat:
    """One queue: messages from ``min_offset`` to before ``max_offset`` can be read."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    files: int


@dataclass(frozen=True, slots=True)
class IndexStat:
    """One index file."""

    name: str
    header: IndexHeader

    @property
    def entries(self) -> int:
        return self.header.index_count - 1


@dataclass(frozen=True, slots=True)
class StoreStat:
    """What a directory holds, as its files say; nothing is verified."""

    layout: Layout
    log_begin: int
    log_end: int
    queues: list[QueueStat] = field(repr=False)
    indexes: list[IndexStat] = field(repr=False)
    checkpoint: Checkpoint | None
    is_killed: bool
    disk: DiskUsage


class Inspection:
    """A directory that is looked at. Raises NotFound when there is no store in it."""

    def __init__(
        self, root: Path, settings: StoreSettings | None = None, *, files: Files | None = None
    ) -> None:
        self._root = root
        self._files = files or ReadOnlyFiles()
        settings = settings or StoreSettings()
        require_store(root, settings, self._files)
        # What is wrong with names and sizes is for ``check`` to tell; here it is passed over.
        self._layout = Layout.survey(root, settings, self._files, on_damage=lambda *_: None)
        self._mappings = Mappings(self._files)
        self._log = Segments(self._layout.log_files, self._layout.log_file_bytes, self._mappings)

    def stat(self) -> StoreStat:
        layout = self._layout
        page = self._files.read(layout.checkpoint) or b""
        try:
            return StoreStat(
                layout,
                self._log.begin,
                self._log_end(),
                [self._queue(*queue, paths) for queue, paths in sorted(layout.queue_files.items())],
                [self._index(path) for path in layout.index_files],
                checkpoint.unpack(page) if len(page) == checkpoint.PAGE_BYTES else None,
                self._files.read(layout.abort) is not None,
                self._files.usage(self._root),
            )
        finally:
            self._mappings.close()

    def records(self, offset: int | None = None) -> Iterator[Record]:
        """The messages from log position ``offset`` (default: the first) on, bodies included.

        Raises NotFound when the log does not reach there, and RemoteProtocolError at a place that
        should be a message and is none.
        """
        if offset is None:
            offset = self._log.begin
        if self._log.paths and not self._log.begin <= offset < self._log.end:
            bounds = f"its files have {self._log.begin} to {self._log.end}"
            raise NotFound("position in the log", str(offset), bounds)
        for path in self._log.paths:
            if file_offset(path) + self._log.file_bytes <= offset:
                continue
            with map_file(self._files, path) as data:
                is_full = yield from _records(data, file_offset(path), offset)
            if not is_full:
                return

    def _log_end(self) -> int:
        """Where the messages of the newest file that has some end."""
        for path in reversed(self._log.paths):
            data = self._log.mapping(path)
            at = 0
            while at <= len(data) - BLANK_BYTES_MIN:
                size, _ = record.peek(data, at)
                if size <= 0 or at + size > len(data):
                    break
                at += size
            if at:
                return file_offset(path) + at
        return self._log.begin

    def _queue(self, topic: str, queue_id: int, paths: list[Path]) -> QueueStat:
        numbers = _Numbers(Segments(paths, self._layout.queue_file_bytes, self._mappings))
        # Entries are written one after the other and point to ascending positions.
        end = bisect.bisect_left(range(numbers.begin, numbers.end), True, key=numbers.is_unwritten)
        end += numbers.begin
        begin = bisect.bisect_left(
            range(numbers.begin, end), True, key=lambda n: numbers.is_from(n, self._log.begin)
        )
        return QueueStat(topic, queue_id, begin + numbers.begin, end, len(paths))

    def _index(self, path: Path) -> IndexStat:
        return IndexStat(path.name, index_entry.unpack_header(self._mappings.get(path)))


def require_store(root: Path, settings: StoreSettings, files: Files) -> None:
    """Raise NotFound unless something of a store lies below ``root``, or its log elsewhere."""
    if not root.is_dir():
        raise NotFound("directory", str(root), "give the directory of a store")
    names = {entry.name for entry in files.entries(root)}
    if names & set(_PARTS) or any(files.entries(Path(path)) for path in settings.log_paths):
        return
    next_step = "give the directory that has commitlog in it"
    if any(entry.name in _PARTS for entry in files.entries(root / "store")):
        next_step = f"did you mean {root / 'store'}?"
    elif root.name in _PARTS:
        next_step = f"did you mean {root.parent}?"
    raise NotFound("store", str(root), next_step)


def _records(data: mmap.mmap, begin: int, offset: int) -> Generator[Record, None, bool]:
    """The messages of the file that begins at ``begin``; returns whether it was filled up."""
    at = max(0, offset - begin)
    while at <= len(data) - BLANK_BYTES_MIN and record.peek(data, at) != _UNWRITTEN:
        try:
            found = record.parse(data, at)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"no message at {begin + at}: {error.fact}") from error
        if isinstance(found, Blank):
            return True
        yield found
        at += found.size
    return False


class _Numbers:
    """The entries of a queue by number."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self.begin = segments.begin // ENTRY_BYTES
        self.end = segments.end // ENTRY_BYTES

    def is_unwritten(self, number: int) -> bool:
        entry = self._entry(number)
        return entry is None or not queue_entry.is_valid(entry)

    def is_from(self, number: int, position: int) -> bool:
        """Whether the entry points to ``position`` or behind it."""
        entry = self._entry(number)
        return entry is not None and entry != FILLER and entry.physical_offset >= position

    def _entry(self, number: int) -> queue_entry.QueueEntry | None:
        path = self._segments.path_at(number * ENTRY_BYTES)
        if path is None:
            return None
        return queue_entry.unpack(
            self._segments.mapping(path), number * ENTRY_BYTES - file_offset(path)
        )
