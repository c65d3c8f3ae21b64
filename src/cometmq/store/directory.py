"""What lies where in a store directory, and which sizes its files have.

::

    commitlog/<offset>                        or the folders of ``storePathCommitLog``
    consumequeue/<topic>/<queue id>/<offset>
    consumequeue_ext/<topic>/<queue id>/<offset>
    index/<yyyyMMddHHmmssSSS>
    config/  checkpoint  abort  lock

Offsets are 20 digits. The files of one kind have one size and follow each other without a gap; the
files that exist decide the size, not the settings. Only names and sizes are looked at here, and of
an index file so much as tells how many slots it has. ``foreign`` looks for what is not ours.
"""

from __future__ import annotations

import collections
import enum
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cometmq.codec import index_entry
from cometmq.codec.queue_entry import ENTRY_BYTES
from cometmq.errors import DamagedStore
from cometmq.model.limits import TOPIC_BYTES_MAX, TOPIC_RETRY_BYTES_MAX
from cometmq.model.topic import RETRY_PREFIX
from cometmq.store.index_shape import has_index_slots, index_slots_of

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Iterable, Mapping

    from cometmq.store.config import StoreSettings
    from cometmq.store.files import Entry, Files

    Queue = tuple[str, int]

LOG_FOLDER: Final = "commitlog"
QUEUE_FOLDER: Final = "consumequeue"
EXTENSION_FOLDER: Final = "consumequeue_ext"
INDEX_FOLDER: Final = "index"
CONFIG_FOLDER: Final = "config"
LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
"""Begins the names of queues whose messages have another topic: Apache's brokers enter them."""

_OFFSET_DIGITS = 20
_TIME_DIGITS = 17


class Damage(enum.Enum):
    """What can be wrong with the names and sizes of files."""

    SIZE = enum.auto()
    NAME = enum.auto()
    GAP = enum.auto()


def refuse(_: Damage, error: DamagedStore) -> None:
    """Stop at the first damage: a store that is about to be written to must have none."""
    raise error


@dataclass(slots=True)
class Layout:
    """The files of a store that was looked at once; later files are not in the lists."""

    root: Path
    log_folders: list[Path]
    """Where new log files go, in order; read-only folders are not among them."""
    log_file_bytes: int
    queue_file_bytes: int
    extension_file_bytes: int
    index_slots: int
    index_entries: int
    log_files: list[Path] = field(default_factory=list)
    """By offset, whichever folder they lie in."""
    queue_files: dict[Queue, list[Path]] = field(default_factory=dict)
    """Every queue that has a folder, without files too."""
    extension_files: dict[Queue, list[Path]] = field(default_factory=dict)
    index_files: list[Path] = field(default_factory=list)
    removable: list[Path] = field(default_factory=list)
    """Files whose creation was cut short: without size, or index files without entries that do
    not have the shape of the settings. They count as absent and may be removed."""
    has_queue_folder: bool = False
    """Without it all queues are to be made anew; an empty one says that all topics are deleted."""
    full_paths: frozenset[Path] = frozenset()
    """Log folders that get no new files while another one has room."""
    strays: list[Path] = field(default_factory=list)
    """What lies among the store's files but is none of them; it is passed over."""

    @classmethod
    def survey(
        cls,
        root: Path,
        settings: StoreSettings,
        files: Files,
        *,
        on_damage: Callable[[Damage, DamagedStore], None] = refuse,
    ) -> Layout:
        """Look at the directory; it need not exist.

        What cannot be right is told to ``on_damage``, which by default raises it; otherwise a file
        of a wrong name or size is left out and the survey goes on.
        """
        paths = [Path(path) for path in settings.log_paths] or [root / LOG_FOLDER]
        read_only = [Path(path) for path in settings.log_paths_read_only]
        layout = cls(
            root,
            sorted(set(paths) - set(read_only)),
            settings.log_file_bytes,
            settings.queue_entries_per_file * ENTRY_BYTES,
            settings.queue_extension_file_bytes,
            settings.index_slots,
            settings.index_entries,
        )
        survey = _Survey(files, layout, on_damage)
        survey.log(sorted({*paths, *read_only}))
        survey.queues()
        layout.has_queue_folder = any(one.name == QUEUE_FOLDER for one in files.entries(root))
        survey.index()
        return layout

    @property
    def index_folder(self) -> Path:
        return self.root / INDEX_FOLDER

    @property
    def config_folder(self) -> Path:
        return self.root / CONFIG_FOLDER

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def abort(self) -> Path:
        return self.root / "abort"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    def log_path(self, offset: int) -> Path:
        """Where the log file that begins at ``offset`` is to be made."""
        assert offset % self.log_file_bytes == 0, (offset, self.log_file_bytes)
        number = offset // self.log_file_bytes
        folders = [folder for folder in self.log_folders if folder not in self.full_paths]
        folders = folders or self.log_folders
        return folders[number % len(folders)] / offset_name(offset)

    def queue_folder(self, topic: str, queue_id: int) -> Path:
        return self.root / QUEUE_FOLDER / topic / str(queue_id)

    def extension_folder(self, topic: str, queue_id: int) -> Path:
        return self.root / EXTENSION_FOLDER / topic / str(queue_id)


def queue_problem(topic: str, queue_id: int) -> str:
    """Why a topic's queue cannot have a folder; empty when it can."""
    try:
        length = len(topic.encode())
    except UnicodeEncodeError:
        return f"topic {topic!r} has no UTF-8 form"
    length_max = TOPIC_RETRY_BYTES_MAX if topic.startswith(RETRY_PREFIX) else TOPIC_BYTES_MAX
    if not 0 < length <= length_max:
        return f"topic of {length} bytes, 1 to {length_max} are possible"
    if "/" in topic or "\0" in topic or topic in (".", ".."):
        return f"topic {topic!r} cannot be the name of a folder"
    if queue_id < 0:
        return f"queue id {queue_id} is negative"
    return ""


def offset_name(offset: int) -> str:
    """The name of the file that begins at ``offset``."""
    return f"{offset:0{_OFFSET_DIGITS}d}"


def file_offset(path: Path) -> int:
    """Where a log, queue or extension file begins; its name must be one of ours."""
    return int(path.name)


def _map(files: Files, path: Path) -> mmap.mmap:
    with closing(files.open(path)) as file:
        return file.map(writable=False)


class _Survey:
    """Fills a layout."""

    def __init__(
        self, files: Files, layout: Layout, on_damage: Callable[[Damage, DamagedStore], None]
    ) -> None:
        self._files = files
        self._layout = layout
        self._on_damage = on_damage

    def log(self, folders: list[Path]) -> None:
        layout = self._layout
        found: list[tuple[Path, int]] = []
        for folder in folders:
            found += self._named(folder, self._entries(folder), _OFFSET_DIGITS)
        found.sort(key=lambda item: item[0].name)
        found = self._without_cut_short(found)
        layout.log_file_bytes = _usual((size for _, size in found), layout.log_file_bytes)
        layout.log_files = self._adjacent(found, layout.log_file_bytes)

    def queues(self) -> None:
        layout = self._layout
        queues = self._queue_files(QUEUE_FOLDER)
        layout.queue_file_bytes = self._queue_sizes(queues, layout.queue_file_bytes, ENTRY_BYTES)
        size = layout.queue_file_bytes
        layout.queue_files = {queue: self._adjacent(queues[queue], size) for queue in queues}
        extensions = self._queue_files(EXTENSION_FOLDER)
        layout.extension_file_bytes = self._queue_sizes(extensions, layout.extension_file_bytes)
        size = layout.extension_file_bytes
        layout.extension_files = {
            queue: self._adjacent(extensions[queue], size) for queue in extensions
        }

    def index(self) -> None:
        layout = self._layout
        folder = layout.index_folder
        found = self._named(folder, self._entries(folder), _TIME_DIGITS)
        found = self._without_cut_short(found)
        expected = index_entry.file_bytes(layout.index_slots, layout.index_entries)
        size = _usual((size for _, size in found), expected)
        layout.index_files = self._sized(found, size)
        if layout.index_files:
            self._index_shape(layout.index_files, size)

    def _index_shape(self, paths: list[Path], size: int) -> None:
        """Find out slots and entries: the settings' if they fit, or what the files show."""
        layout = self._layout
        is_fitting = size == index_entry.file_bytes(layout.index_slots, layout.index_entries)
        for path in paths:
            with _map(self._files, path) as data:
                if index_entry.unpack_header(data).index_count <= 1:
                    continue
                slots = None
                if not is_fitting or not has_index_slots(data, layout.index_slots):
                    slots = index_slots_of(data)
                # What a crash left may fit nothing; with the right size it can be mended.
                if slots is not None or not is_fitting:
                    self._set_index_shape(path, slots or 0, size)
                return
        if not is_fitting:  # nothing is in them, so nothing is lost with them
            layout.removable += paths
            layout.index_files = []

    def _set_index_shape(self, path: Path, slots: int, size: int) -> None:
        entries = (size - index_entry.entry_position(0, slots)) // index_entry.ENTRY_BYTES
        if slots and index_entry.file_bytes(slots, entries) == size:
            self._layout.index_slots, self._layout.index_entries = slots, entries
            return
        problem = f"no number of slots fits this index file of {size} bytes"
        self._damage(Damage.SIZE, path, problem, "set maxHashSlotNum and maxIndexNum")
        self._layout.index_files = []

    def _queue_files(self, name: str) -> dict[Queue, list[tuple[Path, int]]]:
        found: dict[Queue, list[tuple[Path, int]]] = {}
        top = self._layout.root / name
        for topic in self._folders(top, self._entries(top)):
            for queue in self._folders(top / topic, self._entries(top / topic)):
                folder = top / topic / queue
                if queue.isdecimal() and queue == str(int(queue)):
                    named = self._named(folder, self._entries(folder), _OFFSET_DIGITS)
                    found[topic, int(queue)] = self._without_cut_short(named)
                else:
                    self._layout.strays.append(folder)
        return found

    def _queue_sizes(
        self, queues: Mapping[Queue, list[tuple[Path, int]]], configured: int, unit: int = 1
    ) -> int:
        whole = (size for found in queues.values() for _, size in found if size % unit == 0)
        return _usual(whole, configured)

    def _entries(self, folder: Path) -> list[Entry]:
        return self._files.entries(folder)

    def _folders(self, folder: Path, entries: list[Entry]) -> list[str]:
        self._layout.strays += [folder / entry.name for entry in entries if not entry.is_folder]
        return [entry.name for entry in entries if entry.is_folder]

    def _named(self, folder: Path, entries: list[Entry], digits: int) -> list[tuple[Path, int]]:
        """The files of a folder that are named by ``digits``."""
        named = []
        for entry in entries:
            path = folder / entry.name
            if entry.is_folder or entry.name.startswith("."):
                self._layout.strays.append(path)
            elif len(entry.name) == digits and entry.name.isascii() and entry.name.isdigit():
                named.append((path, entry.size))
            else:
                problem = f"files here are named by {digits} digits"
                self._damage(Damage.NAME, path, problem, "move it to another folder")
        return named

    def _without_cut_short(self, found: list[tuple[Path, int]]) -> list[tuple[Path, int]]:
        if found and not found[-1][1]:
            self._layout.removable.append(found[-1][0])
            return found[:-1]
        return found

    def _adjacent(self, found: list[tuple[Path, int]], size: int) -> list[Path]:
        """The files of the right name and size; each must begin where the one before ends."""
        placed: list[tuple[Path, int]] = []
        for path, file_bytes in found:
            end = file_offset(placed[-1][0]) + size if placed else file_offset(path)
            if file_offset(path) % size:
                problem = f"files begin at multiples of their size, which is {size}"
                self._damage(Damage.NAME, path, problem, "move it to another folder")
            elif file_offset(path) < end:
                problem = f"file exists twice, also as {placed[-1][0]}"
                self._damage(Damage.NAME, path, problem, "keep the right one only")
            else:
                if file_offset(path) > end:
                    problem = f"file is missing; the next one there is {path.name}"
                    missing = path.with_name(offset_name(end))
                    self._damage(Damage.GAP, missing, problem, "restore it from a copy")
                placed.append((path, file_bytes))
        return self._sized(placed, size)

    def _sized(self, found: list[tuple[Path, int]], expected: int) -> list[Path]:
        paths = []
        for path, size in found:
            if size == expected:
                paths.append(path)
            else:
                problem = f"file has {size} bytes, others of its kind have {expected}"
                self._damage(Damage.SIZE, path, problem, "restore it from a copy")
        return paths

    def _damage(self, kind: Damage, path: Path, problem: str, next_step: str) -> None:
        self._on_damage(kind, DamagedStore(str(path), problem, next_step))


def _usual(sizes: Iterable[int], configured: int) -> int:
    """The size most files have; of several the configured one, or the smallest."""
    counts = collections.Counter(size for size in sizes if size)
    if not counts:
        return configured
    return min(counts, key=lambda size: (-counts[size], size != configured, size))
