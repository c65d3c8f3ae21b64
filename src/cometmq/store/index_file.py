"""One index file: hash slots, and chains of entries that lead from a key's hash to messages.

Only the owner thread comes here, except for ``sync``. A message is entered in this order: entries
and slots, then the header, once. A process that is killed therefore leaves the header behind what
is written, never ahead of it. After a power cut any page may be missing, also the header's, so then
``repair`` believes the entries only as far as they make sense and makes all chains anew.

A file is mapped for reading until it is first written to; blocks are allocated before that, in
steps, because a write to a mapping without blocks kills the process when the disk is full.
"""

from __future__ import annotations

import mmap
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from cometmq.codec import core, index_entry
from cometmq.codec.index_entry import (
    ENTRY_BYTES,
    HEADER_BYTES,
    SLOT_BYTES,
    entry_position,
    file_bytes,
)
from cometmq.errors import DamagedStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cometmq.store.config import StoreSettings
    from cometmq.store.files import Files

ALLOCATE_BYTES_MIN: Final = 64 * 1024
ALLOCATE_BYTES_MAX: Final = 1024 * 1024
"""Entries get their blocks in steps that double from one to the other."""

_ENTRIES_PER_SLOT: Final = 4


class IndexFile:
    """A file and its header, whose fields are attributes here."""

    __slots__ = (
        "_allocated",
        "_files",
        "_is_writable",
        "_mapping",
        "_writable_end",
        "begin_offset",
        "begin_timestamp",
        "count",
        "end_offset",
        "end_timestamp",
        "entries",
        "is_dirty",
        "path",
        "slot_count",
        "slots",
    )

    def __init__(self, path: Path, slots: int, entries: int, files: Files) -> None:
        self.path = path
        self.slots = slots
        self.entries = entries
        self._files = files
        with closing(files.open(path)) as file:
            self._mapping = file.map(writable=False)
        self._is_writable = False
        # How far the file surely has blocks, in bytes, and which entry ends there.
        self._allocated = 0
        self._writable_end = 0
        # Written since it was last taken to be synced.
        self.is_dirty = False
        header = index_entry.unpack_header(self._mapping)
        # Of the first and the last message in the file.
        self.begin_timestamp = header.begin_timestamp
        self.end_timestamp = header.end_timestamp
        self.begin_offset = header.begin_offset
        self.end_offset = header.end_offset
        # Slots in use.
        self.slot_count = header.slot_count
        # Number of the next entry; the first one is 1.
        self.count = min(header.index_count, entries)

    @classmethod
    def create(cls, path: Path, slots: int, entries: int, *, files: Files) -> IndexFile:
        """Make an empty file with room for its first entries. After OSError it is not there."""
        files.create(path, file_bytes(slots, entries))
        try:
            file = cls(path, slots, entries, files)
            file.reserve(1)
        except OSError:
            files.remove(path)
            raise
        return file

    @classmethod
    def open(cls, path: Path, size: int, *, settings: StoreSettings, files: Files) -> IndexFile:
        """Open a file of ``size`` bytes for reading; it becomes writable with the first ``put``.

        Raises DamagedStore when the size is none an index file has.
        """
        return cls(path, *sizes_of(path, size, settings), files)

    @property
    def has_entries(self) -> bool:
        return self.count > 1

    @property
    def room(self) -> int:
        """How many entries still fit in."""
        return self.entries - self.count

    @property
    def is_full(self) -> bool:
        return self.count >= self.entries

    def follow(self, older: IndexFile) -> None:
        """Begin where ``older`` ends: like Apache's, the first entry counts its time from there."""
        assert not self.has_entries, self.path
        self.begin_timestamp = self.end_timestamp = older.end_timestamp
        self.begin_offset = self.end_offset = older.end_offset

    def put(self, hashes: Sequence[int], physical_offset: int, store_timestamp: int) -> None:
        """Enter a message under all ``hashes``, for which there must be room.

        Raises OSError, with nothing written, when the disk is full.
        """
        number = self.count
        if number + len(hashes) > self._writable_end:
            self.reserve(len(hashes))
        seconds = index_entry.seconds_since(self.begin_timestamp, store_timestamp)
        if number == 1:
            self.begin_timestamp = store_timestamp
            self.begin_offset = physical_offset
        self.slot_count += core.put_index_entries(
            self._mapping, self.slots, number, hashes, physical_offset, seconds
        )
        self.end_timestamp = store_timestamp
        self.end_offset = physical_offset
        self._put_header(number + len(hashes))
        # In this order: a thread that finds the file full, or dirty, has all of it to sync.
        self.count = number + len(hashes)
        self.is_dirty = True

    def tail(self, newest_offset: int) -> core.IndexTail | None:
        """Where entries can be written directly; None when there is not simply room for any."""
        if not self._is_writable or not self.has_entries:
            return None
        return core.IndexTail(
            self._mapping,
            self.slots,
            self.count,
            self._writable_end,
            newest_offset,
            self.begin_timestamp,
        )

    def take_back(self, tail: core.IndexTail) -> None:
        """Count the entries that were written through ``tail``, header first."""
        if tail.number > self.count:
            self.slot_count += tail.empty
            self.end_timestamp = tail.timestamp
            self.end_offset = tail.newest_offset
            self._put_header(tail.number)
            self.count = tail.number
            self.is_dirty = True

    def reserve(self, number: int) -> None:
        """See to it that ``number`` more entries can be written; raises OSError on a full disk."""
        assert number <= self.room, (number, self.room)
        if self.count + number > self._writable_end:
            self._make_writable(self.count + number)

    def find(self, key_hash: int, begin_ms: int, end_ms: int, limit: int) -> list[int]:
        """Physical offsets under the hash, newest first; only times in the range."""
        if begin_ms > self.end_timestamp or end_ms < self.begin_timestamp:
            return []
        return index_entry.find(
            self._mapping,
            self.slots,
            self.count,
            key_hash,
            self.begin_timestamp,
            begin_ms,
            end_ms,
            limit,
        )

    def repair(self, log_end: int, *, is_last: bool = True) -> None:
        """Keep the entries that can be real and lie before ``log_end``, and link them anew.

        Of the newest file the last message goes too: perhaps not all its keys were entered, so it
        is to be entered again. What is left is on disk when this returns; maybe nothing is left.
        Interrupted at any point it can be done again.
        """
        # The mapping is for random access; here nearly all of it is read in order.
        self._mapping.madvise(mmap.MADV_SEQUENTIAL)
        begin = max(0, self.begin_offset)
        count = core.valid_index_count(self._mapping, self.slots, self.count, begin, log_end)
        if is_last:
            count = self._without_last_message(count)
        if count > 1:
            self._cut(count)
        self.count = count
        self._mapping.madvise(mmap.MADV_RANDOM)

    def sync(self) -> None:
        """Bring everything written so far to disk; a file that was deleted has nothing to bring.

        May be called on any thread, while the owner goes on writing.
        """
        with suppress(FileNotFoundError), closing(self._files.open(self.path)) as file:
            file.sync()

    def close(self) -> bool:
        """Unmap the file; False when somebody still looks at its bytes: try again later."""
        try:
            self._mapping.close()
        except BufferError:
            return False
        return True

    def _make_writable(self, end: int) -> None:
        """Give the entries before number ``end`` their blocks, and some more in advance."""
        first = entry_position(0, self.slots)
        needed = max(self._allocated, entry_position(end, self.slots))
        step = min(max(self._allocated - first, ALLOCATE_BYTES_MIN), ALLOCATE_BYTES_MAX)
        allocated = min(needed + step, file_bytes(self.slots, self.entries))
        with closing(self._files.open(self.path)) as file:
            file.allocate(self._allocated, allocated)
            if not self._is_writable:
                self.close()
                self._mapping = file.map(writable=True)
                self._is_writable = True
        self._allocated = allocated
        self._writable_end = (allocated - first) // ENTRY_BYTES

    def _put_header(self, count: int) -> None:
        index_entry.put_header(
            self._mapping,
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.slot_count,
            count,
        )

    def _without_last_message(self, count: int) -> int:
        last = self._entry(count - 1).physical_offset
        while count > 1 and self._entry(count - 1).physical_offset == last:
            count -= 1
        return count

    def _cut(self, count: int) -> None:
        """Make ``count`` the number of the next entry, the header last: see ``repair``."""
        if count > self._writable_end:
            self._make_writable(count)
        slot_count = core.relink_index(self._mapping, self.slots, count)
        with closing(self._files.open(self.path)) as file:
            # Old entries must not turn up again behind new ones after another power cut.
            file.clear(entry_position(count, self.slots), file_bytes(self.slots, self.entries))
            if count < self.count:
                last = self._entry(count - 1)
                self.end_offset = last.physical_offset
                self.end_timestamp = self._time_of(last)
            self.count = count
            self.slot_count = slot_count
            self._put_header(count)
            file.sync()

    def _time_of(self, entry: index_entry.IndexEntry) -> int:
        """The store time of an entry, to the second."""
        if entry.physical_offset == self.begin_offset:
            # Its own seconds may count from the file before.
            return self.begin_timestamp
        return self.begin_timestamp + entry.seconds * 1000

    def _entry(self, number: int) -> index_entry.IndexEntry:
        return index_entry.unpack_entry(self._mapping, entry_position(number, self.slots))


def sizes_of(path: Path, size: int, settings: StoreSettings) -> tuple[int, int]:
    """Slots and entries of an existing file.

    Those of the settings if they give its size. Otherwise four entries for each slot, as in
    Apache's defaults and in ours; raises DamagedStore if it cannot have been that either.
    """
    expected = file_bytes(settings.index_slots, settings.index_entries)
    if size == expected:
        return settings.index_slots, settings.index_entries
    slots = (size - HEADER_BYTES) // (SLOT_BYTES + _ENTRIES_PER_SLOT * ENTRY_BYTES)
    if slots > 0 and size == file_bytes(slots, _ENTRIES_PER_SLOT * slots):
        return slots, _ENTRIES_PER_SLOT * slots
    raise DamagedStore(
        str(path),
        f"index file has {size} bytes, expected {expected}",
        "set maxHashSlotNum and maxIndexNum as when it was written, or delete it",
    )
