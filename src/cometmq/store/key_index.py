"""The index by key: from topic and key to the messages that may have it, over all index files.

Messages come in log order; each one's physical offset is higher than all before, so one that is
not behind the newest entry is there already and can be fed again without harm. The keys of one
message may lie in two files or more: blocks for all of them are allocated before the first is
written, so a full disk never leaves half a message.

After an unclean stop the files that the checkpoint does not vouch for are repaired, oldest first.
A file that lost entries ends the index: later files are removed, and what they held is fed again.
The last message that is left may have lost keys and is always fed again.
"""

from __future__ import annotations

import enum
import mmap
import time
from typing import TYPE_CHECKING, Final

from cometmq.codec import core, digest
from cometmq.codec.sysflag import TRANSACTION_MASK, TransactionType
from cometmq.logs import get_logger
from cometmq.store.index_file import IndexFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from cometmq.clock import Clock
    from cometmq.codec.digest import Digest
    from cometmq.store.config import StoreSettings
    from cometmq.store.files import Files

_NAME_DIGITS: Final = 17
TIME_MS_MAX: Final = (1 << 63) - 1
_log = get_logger(__name__)


class KeyKind(enum.Enum):
    """What is asked for, as ``indexType`` in a query names it. K and U find the same."""

    KEY = "K"
    UNIQUE = "U"
    TAG = "T"


class KeyIndex:
    """All index files of a store. One thread owns it; syncing may be another one's."""

    def __init__(self, folder: Path, settings: StoreSettings, files: Files, clock: Clock) -> None:
        self._folder = folder
        self._settings = settings
        self._files = files
        self._clock = clock
        # Of new files: the sizes the directory has already, so that Apache can go on with it.
        self._sizes = settings.index_slots, settings.index_entries
        # Oldest first; all but the last are full.
        self._index_files: list[IndexFile] = []
        # Full files that were taken to be synced, oldest first.
        self._being_synced: list[IndexFile] = []
        # Offset of the newest message that is in the index; -1 without any.
        self._newest_offset = -1
        self._log_begin = 0
        # Why nothing is added any more; empty when all is well. To go on after a failure, make it
        # empty and feed the log from ``resume_offset``.
        self.failure = ""
        # Stands for a file without room.
        self._no_room = core.IndexTail(mmap.mmap(-1, mmap.PAGESIZE), 1, 1, 1, -1, 0)
        # Nothing is known to be missing: a clean stop, and files that could stay as they were.
        self.is_complete = True
        # Up to this store time full files are known to be on disk; the checkpoint's value.
        self.synced_timestamp = 0

    @classmethod
    def open(
        cls,
        folder: Path,
        settings: StoreSettings,
        *,
        files: Files,
        clock: Clock,
        is_clean: bool,
        log_begin: int,
        log_end: int,
        index_timestamp: int,
    ) -> KeyIndex:
        """Load the files of a folder, which need not exist, and mend them after an unclean stop.

        ``index_timestamp`` is the checkpoint's. Before anything is added the checkpoint must take
        over ``synced_timestamp``, which may be lower, and the log is to be fed from
        ``resume_offset``. Raises DamagedStore for a file of an impossible size.
        """
        index = cls(folder, settings, files, clock)
        index._log_begin = log_begin
        index._load()
        index._recover(is_clean, log_end, index_timestamp)
        return index

    @property
    def resume_offset(self) -> int:
        """A record's position, from which on records may be missing here; the log's begin at least.

        Not the end of the log even when all is well: records without keys leave no trace.
        """
        return max(self._newest_offset, self._log_begin, 0)

    @property
    def end_offset(self) -> int:
        """Physical offset of the newest message here; 0 without any."""
        return max(self._newest_offset, 0)

    @property
    def end_timestamp(self) -> int:
        """Store time of the newest message here; 0 without any."""
        return next((file.end_timestamp for file in self._newest_first() if file.has_entries), 0)

    def close(self) -> None:
        """Unmap all files. Does not sync: what must be on disk is synced before."""
        for file in self._index_files:
            file.close()

    # --- asking ---

    def query(
        self,
        topic: str,
        key: str,
        *,
        limit: int,
        begin_ms: int = 0,
        end_ms: int = TIME_MS_MAX,
        kind: KeyKind = KeyKind.KEY,
    ) -> list[int]:
        """Physical offsets of the newest messages that may have the key, ascending.

        Only hashes are compared, so a hit may have another key. Times are compared as whole seconds
        since the file's first message, rounded down, as Apache does.
        """
        hash_of = digest.tag_hash if kind is KeyKind.TAG else digest.key_hash
        key_hash = hash_of(topic, key)
        limit = min(limit, self._settings.query_count_max)
        found: set[int] = set()
        for file in self._newest_first():
            if len(found) >= limit:
                break
            if file.has_entries:
                found.update(file.find(key_hash, begin_ms, end_ms, limit - len(found)))
                if file.begin_timestamp < begin_ms:
                    break
        return sorted(found)

    # --- adding ---

    def add(
        self,
        topic: str,
        physical_offset: int,
        store_timestamp: int,
        unique_key: str | None,
        keys: str | None,
        tags: str | None,
    ) -> None:
        """Enter a message under its unique key, each word of ``keys`` and its tag."""
        hashes = digest.hashes_of(topic, unique_key, keys, tags)
        self.add_hashes(physical_offset, store_timestamp, hashes)

    def add_hashes(self, physical_offset: int, store_timestamp: int, hashes: Sequence[int]) -> None:
        """Enter a message under the hashes of its keys; one that is there already stays as it is.

        Does not raise when the disk is full: ``failure`` tells, and nothing is added any more.
        """
        if physical_offset <= self._newest_offset or self.failure or not hashes:
            return
        files = self._index_files
        try:
            if files and files[-1].room >= len(hashes):
                files[-1].put(hashes, physical_offset, store_timestamp)
            else:
                self._put_across(hashes, physical_offset, store_timestamp)
        except OSError as error:
            self.failure = f"index cannot be written: {error}"
            _log.error("folder=%s %s; queries miss new messages", self._folder, self.failure)
            return
        self._newest_offset = physical_offset

    def add_digests(self, digests: Sequence[Digest]) -> None:
        """Enter the messages of a stretch of the log, all but those rolled back."""
        for _, _, _, physical_offset, _, sys_flag, timestamp, _, hashes in digests:
            if sys_flag & TRANSACTION_MASK != TransactionType.ROLLBACK:
                self.add_hashes(physical_offset, timestamp, hashes)

    def tail(self) -> core.IndexTail | None:
        """Where messages can be entered directly; ``take_back`` must follow.

        Nothing can when the newest file has no blocks ready, or is being made: then ``add_digests``
        sees to it. An index that has failed takes everything and keeps nothing.
        """
        if self.failure:
            return None
        if not self._index_files:
            return self._no_room
        return self._index_files[-1].tail(self._newest_offset) or self._no_room

    def take_back(self, tail: core.IndexTail) -> None:
        if tail is not self._no_room:
            self._index_files[-1].take_back(tail)
            self._newest_offset = max(self._newest_offset, tail.newest_offset)

    def _put_across(
        self, hashes: Sequence[int], physical_offset: int, store_timestamp: int
    ) -> None:
        """Enter a message whose keys do not all fit into the newest file."""
        room = 0
        if self._index_files:
            room = self._index_files[-1].room
            self._index_files[-1].reserve(room)
        fresh = self._make_files(len(hashes) - room)
        if room:
            self._index_files[-1].put(hashes[:room], physical_offset, store_timestamp)
        for file in fresh:
            if self._index_files:
                file.follow(self._index_files[-1])
            end = room + min(file.room, len(hashes) - room)
            file.put(hashes[room:end], physical_offset, store_timestamp)
            self._index_files.append(file)
            room = end

    def _make_files(self, entry_count: int) -> list[IndexFile]:
        """New files with blocks for so many entries; after OSError there are none."""
        made: list[IndexFile] = []
        name = self._index_files[-1].path.name if self._index_files else ""
        try:
            while entry_count > 0:
                name = self._next_name(name)
                file = IndexFile.create(self._folder / name, *self._sizes, files=self._files)
                made.append(file)
                part = min(entry_count, file.room)
                file.reserve(part)
                entry_count -= part
        except OSError:
            self._remove(made)
            raise
        return made

    def _next_name(self, newest: str) -> str:
        """The local time, or the number behind ``newest`` when the clock does not say more."""
        now_ms = self._clock.now_ms()
        moment = time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000))
        name = f"{moment}{now_ms % 1000:03d}"
        # Files are loaded in the order of their names, also by Apache, which takes any number.
        return name if name > newest else f"{int(newest) + 1:0{_NAME_DIGITS}d}"

    # --- syncing ---

    def take_unsynced(self) -> list[IndexFile]:
        """The files written to since the last call, oldest first, for the caller to sync.

        Then comes ``mark_synced``, unless that failed. Both may be called by another thread than
        the owner, but always by the same one.
        """
        # A copy: the owner may add and delete files meanwhile.
        taken = [file for file in list(self._index_files) if file.is_dirty]
        for file in taken:
            file.is_dirty = False
            if file.is_full:
                self._being_synced.append(file)
        return taken

    def mark_synced(self, files: Collection[IndexFile]) -> None:
        """Move ``synced_timestamp`` over those of ``files`` that were full when they were taken."""
        while self._being_synced and self._being_synced[0] in files:
            self.synced_timestamp = self._being_synced.pop(0).end_timestamp

    # --- deleting ---

    def delete_before(self, log_begin: int) -> list[Path]:
        """Delete the oldest files, while all their messages are gone from the log; never the last.

        A file somebody still looks at ends the round; it goes in a later one.
        """
        deleted = []
        files = self._index_files
        while len(files) > 1 and files[0].end_offset < log_begin and files[0].close():
            file = files.pop(0)
            self._files.remove(file.path)
            deleted.append(file.path)
        return deleted

    def _remove(self, files: Iterable[IndexFile]) -> None:
        for file in files:
            file.close()
            self._files.remove(file.path)

    def _remove_from(self, number: int) -> None:
        """Remove the files from ``number`` on, the newest first."""
        files = self._index_files
        while len(files) > number:
            file = files.pop()
            _log.warning("file=%s removed; its messages are indexed again", file.path)
            self._remove([file])

    # --- opening ---

    def _load(self) -> None:
        found = []
        for entry in self._files.entries(self._folder):
            if entry.is_folder:
                continue
            if len(entry.name) == _NAME_DIGITS and entry.name.isascii() and entry.name.isdigit():
                found.append(entry)
            else:
                _log.warning("file=%s is no index file, ignored", self._folder / entry.name)
        if found and not found[-1].size:
            # Made, but never given its size.
            self._files.remove(self._folder / found.pop().name)
        for entry in found:
            path = self._folder / entry.name
            file = IndexFile.open(path, entry.size, settings=self._settings, files=self._files)
            self._index_files.append(file)
            self._sizes = file.slots, file.entries

    def _recover(self, is_clean: bool, log_end: int, index_timestamp: int) -> None:
        is_disordered = self._remove_disordered()
        files = self._index_files
        synced = self._synced_count(index_timestamp)
        doubtful = self._count_before(log_end) if is_clean else synced
        if is_disordered or not is_clean or doubtful < len(files):
            self._mend(doubtful, log_end)
        vouched = synced if is_clean else len(files)
        for file in files[vouched:]:
            file.is_dirty = True
        for file in files[:vouched]:
            if file.is_full:
                self.synced_timestamp = file.end_timestamp
        self.is_complete = self.is_complete and bool(files)
        filled = [file.end_offset for file in files if file.has_entries]
        self._newest_offset = filled[-1] if filled else -1

    def _remove_disordered(self) -> bool:
        """Remove files whose names are not in the order of their content, and all behind them.

        Apache names by local time, which is set back once a year.
        """
        filled = [file for file in self._index_files if file.has_entries]
        ordered = sorted(filled, key=lambda file: file.begin_offset)
        for file, expected in zip(filled, ordered, strict=True):
            if file is not expected:
                self._remove_from(self._index_files.index(file))
                return True
        return False

    def _synced_count(self, index_timestamp: int) -> int:
        """How many of the oldest files were synced, to judge by the checkpoint.

        It names the end of the last full file that was. Files behind that one may have ended in the
        same millisecond, or even earlier when the clock was set back.
        """
        for number, file in enumerate(self._index_files):
            if not file.is_full or file.end_timestamp > index_timestamp:
                return number
            if file.end_timestamp == index_timestamp:
                return number + 1
        return len(self._index_files)

    def _count_before(self, log_end: int) -> int:
        """How many of the oldest files hold no message at or behind the end of the log."""
        for number, file in enumerate(self._index_files):
            if file.has_entries and file.end_offset >= log_end:
                return number
        return len(self._index_files)

    def _mend(self, first: int, log_end: int) -> None:
        """Repair the files from ``first`` on, at least the last one that stays."""
        self.is_complete = False
        files = self._index_files
        for number in range(first, len(files) - 1):
            if not self._repair(files[number], log_end, is_last=False) or not files[number].is_full:
                self._remove_from(number + 1)
                break
        while files and not self._repair(files[-1], log_end, is_last=True):
            self._remove_from(len(files) - 1)

    def _repair(self, file: IndexFile, log_end: int, *, is_last: bool) -> bool:
        """Whether anything is left of the file."""
        try:
            file.repair(log_end, is_last=is_last)
        except OSError as error:
            _log.warning("file=%s cannot be repaired: %s", file.path, error)
            return False
        return file.has_entries

    def _newest_first(self) -> Iterable[IndexFile]:
        return reversed(self._index_files)
