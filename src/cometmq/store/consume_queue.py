"""One consume queue: where the n-th message of a topic's queue lies in the commit log.

Entry ``n`` is at byte ``n * 20`` of a sequence cut into files of one size. Only the owner thread
comes here, except to sync. A file is mapped when it is first needed and unmapped when it has been
idle and others need the room (``QueueMappings``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cometmq.codec import core, queue_entry
from cometmq.codec.java import INT32_MAX
from cometmq.codec.queue_entry import ENTRY_BYTES, FILLER
from cometmq.codec.record import RECORD_BYTES_MIN
from cometmq.logs import get_logger
from cometmq.model.limits import QUEUE_GAP_MAX

if TYPE_CHECKING:
    from collections.abc import Callable
    from mmap import mmap

    from cometmq.store.queue_extension import QueueExtension
    from cometmq.store.queue_mappings import QueueMappings

ALLOCATE_BYTES_MIN: Final = 4096
ALLOCATE_BYTES_MAX: Final = 256 * 1024
"""Blocks are asked for in steps that double, so that 50,000 small queues stay small."""

_log = get_logger(__name__)
_FILLER: Final = queue_entry.pack(FILLER.physical_offset, FILLER.size, FILLER.tags_code)


class ConsumeQueue(core.QueueTail):
    """Entries ``[min_offset, max_offset)``; appending goes through ``append`` in log order."""

    __slots__ = (
        "_first_begin",
        "_last_begin",
        "_mappings",
        "dirty_begin",
        "extension",
        "file_bytes",
        "folder",
        "is_dirty",
        "is_doubtful",
        "is_unsettled",
        "min_offset",
        "queue_id",
        "topic",
    )

    def __init__(
        self, topic: str, queue_id: int, folder: str, mappings: QueueMappings, file_bytes: int
    ) -> None:
        super().__init__(topic.encode())
        self.topic = topic
        self.queue_id = queue_id
        self.folder = folder
        self.file_bytes = file_bytes
        self._mappings = mappings
        # First entry whose record is still there.
        self.min_offset = 0
        # Where the files begin, in bytes; -1 without files.
        self._first_begin = -1
        self._last_begin = -1
        # Entries from here on may not be on disk.
        self.is_dirty = False
        self.dirty_begin = 0
        # Has files whose names may not be on disk.
        self.is_unsettled = False
        # Whether anything is behind the entries that were found in order when the queue was loaded:
        # then some may be damaged.
        self.is_doubtful = False
        # Looks up tags codes that are addresses of extension units; most queues have none.
        self.extension: QueueExtension | None = None

    # --- writing ---

    def append(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        """Enter the next record; False when it was there already.

        Entries that are missing before it (a queue that does not begin at 0, or a part that was
        lost with its log) become fillers. A later record with offset 0 says that the topic was
        deleted and made anew. Raises OSError when the disk is full.
        """
        end = physical_offset + size
        if end <= self.max_physical:
            return False
        if queue_offset != self.max_offset:
            if 0 < queue_offset < self.max_offset:
                return False
            if queue_offset == 0:
                self._begin_anew()
            elif not self._can_follow(queue_offset, physical_offset):
                return False
            else:
                self.fill_up(queue_offset)
        position = queue_offset * ENTRY_BYTES
        if not self.buffer_begin <= position < self.ready_end or self.buffer is None:
            self._prepare(position)
        assert self.buffer is not None
        core.pack_entry_into(
            self.buffer, position - self.buffer_begin, physical_offset, size, tags_code
        )
        self.is_hot = True
        self.max_physical = end
        queue_offset += 1
        self.max_offset = queue_offset
        if self.next_offset < queue_offset:
            self.next_offset = queue_offset
        return True

    def truncate(self, end_physical: int) -> None:
        """Forget entries of records that reach beyond ``end_physical``, on disk too."""
        if self.max_physical <= end_physical:
            return
        end = self.max_offset
        while end > self.min_offset:
            physical_offset, size, _ = self.entry(end - 1)
            if size != INT32_MAX and physical_offset + size <= end_physical:
                break
            end -= 1
        self.max_offset = end
        self.forget_behind()

    def rewind(self, offset: int, end_physical: int) -> None:
        """Go on with entry ``offset``, after a record that ends at ``end_physical``.

        What the files hold from there on stays until it is written over, or forgotten.
        """
        self.max_offset = self.next_offset = offset
        self.max_physical = end_physical

    def count_from(self, offset: int) -> None:
        """Take over what the files hold from ``offset`` on, as far as it is in order."""
        self._count(offset * ENTRY_BYTES)
        self.next_offset = self.max_offset

    def end_before(self, position: int, low: int) -> None:
        """Forget entries, from ``low`` on, of records at or behind a log position; on disk too."""
        self.max_offset = self.first_offset(low, lambda place: place >= position)
        self.forget_behind()

    def forget_behind(self) -> None:
        """Make the files hold nothing behind the last entry, so that it is never taken for one."""
        end = self.max_offset * ENTRY_BYTES
        while self._last_begin >= max(end, self._first_begin + 1):
            path = self._drop(self._last_begin)
            self._mappings.remove(path)
            self._last_begin -= self.file_bytes
        if self._last_begin >= 0 and end < self._last_begin + self.file_bytes:
            self._mappings.clear(self.path(self._last_begin), end - self._last_begin)
        self.next_offset = self.max_offset
        self.dirty_begin = min(self.dirty_begin, self.max_offset)
        self.max_physical = -1
        for offset in range(self.max_offset - 1, self.min_offset - 1, -1):
            physical_offset, size, _ = self.entry(offset)
            if size != INT32_MAX:
                self.max_physical = physical_offset + size
                break

    def fill_up(self, queue_offset: int) -> None:
        """Write fillers from where the queue stands to ``queue_offset``."""
        begin = self.max_offset
        entries_per_file = self.file_bytes // ENTRY_BYTES
        if self.min_offset == self.max_offset:
            self.min_offset = queue_offset
        if self._last_begin < 0:
            begin = queue_offset - queue_offset % entries_per_file
            # Where to go on when the disk is full and this is tried again.
            self.max_offset = begin
        for offset in range(begin, queue_offset):
            position = offset * ENTRY_BYTES
            if not self.buffer_begin <= position < self.ready_end or self.buffer is None:
                self._prepare(position)
            assert self.buffer is not None
            start = position - self.buffer_begin
            self.buffer[start : start + ENTRY_BYTES] = _FILLER
            self.max_offset = offset + 1

    # --- reading ---

    def entry(self, offset: int) -> tuple[int, int, int]:
        """Physical offset, size and tags code of an entry that exists."""
        buffer, begin = self.bytes_at(offset * ENTRY_BYTES)
        found = queue_entry.unpack(buffer, offset * ENTRY_BYTES - begin)
        return found.physical_offset, found.size, found.tags_code

    def bytes_at(self, position: int) -> tuple[mmap, int]:
        """The mapped file that holds a byte position, and where it begins."""
        begin = position - position % self.file_bytes
        if self.buffer is not None and begin == self.buffer_begin:
            self.is_hot = True
            return self.buffer, begin
        return self._mappings.get(self.path(begin)), begin

    def has_file_at(self, position: int) -> bool:
        return self._first_begin <= position - position % self.file_bytes <= self._last_begin

    def next_written(self, offset: int) -> int | None:
        """The first entry from ``offset`` on that is not all zeros, whether it is sound or not."""
        position = offset * ENTRY_BYTES
        while self.has_file_at(position):
            begin = position - position % self.file_bytes
            found = self._mappings.find_data(self.path(begin), position - begin, self.file_bytes)
            position = begin + found
            if found < self.file_bytes:
                return position // ENTRY_BYTES
        return None

    def path(self, begin: int) -> str:
        return f"{self.folder}/{begin:020d}"

    @property
    def first_filed(self) -> int:
        """The entry that the files begin with; 0 without files."""
        return max(0, self._first_begin // ENTRY_BYTES)

    @property
    def file_begins(self) -> range:
        """Where the files begin, in bytes."""
        if self._first_begin < 0:
            return range(0)
        return range(self._first_begin, self._last_begin + 1, self.file_bytes)

    # --- life ---

    def load(self, first_begin: int, last_begin: int, *, vouched: int | None) -> None:
        """Take over files that exist, and find out how far they are filled.

        After a clean stop (``vouched`` is None) only the last file is looked at. Otherwise entries
        of records before the log position ``vouched`` are surely on disk; of later ones any page
        may be missing, and the queue ends before them. Nothing is changed on disk, so somebody has
        to decide about what is behind the end then: ``forget_behind`` or, if ``is_doubtful``,
        ``queue_mending``.
        """
        self._first_begin, self._last_begin = first_begin, last_begin
        self.min_offset = first_begin // ENTRY_BYTES
        begin = last_begin
        if vouched is not None:
            while begin > first_begin and not self._begins_before(begin, vouched):
                begin -= self.file_bytes
        self._count(begin)
        while self.max_offset * ENTRY_BYTES == begin and begin > first_begin:
            begin -= self.file_bytes
            self._count(begin)
        self.is_doubtful = self.next_written(self.max_offset) is not None
        self.next_offset = self.max_offset
        self.dirty_begin = self.max_offset
        if vouched is not None:
            # Entries from here on were found, but perhaps only in memory. Those of later records
            # may even be torn, and are entered again.
            self.dirty_begin = begin // ENTRY_BYTES
            self.max_offset = self.first_offset(self.dirty_begin, lambda place: place >= vouched)
            self.is_unsettled = True

    def correct_min(self, log_begin: int) -> None:
        """Move the minimum to the first entry whose record is still in the log."""
        self.min_offset = self.first_offset(
            max(self.min_offset, self.first_filed),
            lambda physical_offset: physical_offset >= log_begin,
        )

    def first_offset(self, low: int, is_reached: Callable[[int], bool]) -> int:
        """The first offset from ``low`` on whose record is where ``is_reached`` says so.

        It must hold for all later records too. Fillers are passed over; the maximum if there is
        no such record.
        """
        high = self.max_offset
        found = high
        while low < high:
            middle = (low + high) // 2
            offset, physical_offset = self._record_from(middle, high)
            if offset == high or is_reached(physical_offset):
                found = min(found, offset) if offset < high else found
                high = middle
            else:
                low = offset + 1
        return found

    def delete_before(self, log_begin: int) -> list[str]:
        """Forget files whose last record is no longer in the log; their paths, to be removed."""
        gone = []
        while self._first_begin < self._last_begin:
            last = (self._first_begin + self.file_bytes) // ENTRY_BYTES - 1
            if self.entry(last)[0] >= log_begin and self.entry(last)[1] != INT32_MAX:
                break
            gone.append(self._drop(self._first_begin))
            self._first_begin += self.file_bytes
        return gone

    def unmapped(self) -> None:
        """The mappings gave the written file up; it is mapped again when needed."""
        self.buffer = None
        self.ready_end = 0

    # --- helpers ---

    def _prepare(self, position: int) -> None:
        """Map the file for a byte position, making it if need be, and give it blocks."""
        begin = position - position % self.file_bytes
        if begin > self._last_begin or self._last_begin < 0:
            self.is_unsettled = True
            self._mappings.create(self.path(begin), self.file_bytes)
            if self._first_begin < 0:
                self._first_begin = begin
            self._last_begin = begin
        if self.buffer is None or begin != self.buffer_begin:
            if self.buffer is not None:
                self._mappings.disown(self.path(self.buffer_begin))
                self.unmapped()  # from now on it may be, to make room
            self.buffer = self._mappings.get(self.path(begin), self)
            self.buffer_begin = begin
            self.ready_end = 0
        written = position - begin
        step = min(max(written, ALLOCATE_BYTES_MIN), ALLOCATE_BYTES_MAX)
        end = min(self.file_bytes, written + step)
        self._mappings.allocate(self.path(begin), written, end)
        # An entry may begin before the end of the blocks and go on behind it.
        whole = end if end == self.file_bytes else end - ENTRY_BYTES
        self.ready_end = begin + whole

    def _can_follow(self, queue_offset: int, physical_offset: int) -> bool:
        """Tell whether so many entries can be missing: no more than the log had records."""
        gap_max = physical_offset // RECORD_BYTES_MIN + QUEUE_GAP_MAX
        if self._last_begin < 0 or queue_offset - self.max_offset <= gap_max:
            return True
        _log.error(
            "topic=%s queue=%d record at %d says it is number %d, after %d: put into no queue",
            self.topic,
            self.queue_id,
            physical_offset,
            queue_offset,
            self.max_offset,
        )
        return False

    def _record_from(self, offset: int, end: int) -> tuple[int, int]:
        """Offset and log position of the first entry that is no filler; ``end`` without one."""
        for number in range(offset, end):
            physical_offset, size, _ = self.entry(number)
            if size != INT32_MAX:
                return number, physical_offset
        return end, -1

    def _begin_anew(self) -> None:
        """Forget everything: the topic was deleted, and what comes now is another queue."""
        for begin in reversed(self.file_begins):
            self._mappings.remove(self._drop(begin))
        self._first_begin = self._last_begin = -1
        self.min_offset = self.max_offset = self.dirty_begin = self.next_offset = 0
        self.max_physical = -1

    def _begins_before(self, begin: int, vouched: int) -> bool:
        """Tell whether the first entry of a file is there, of a record before ``vouched``."""
        physical_offset, size, _ = self.entry(begin // ENTRY_BYTES)
        return size > 0 and physical_offset < vouched

    def _count(self, position: int) -> None:
        """Set the maximum from the entries at a byte position and behind, up to the first hole."""
        self.max_offset = position // ENTRY_BYTES
        before = -1
        while self.has_file_at(position):
            begin = position - position % self.file_bytes
            buffer = self._mappings.get(self.path(begin))
            count, physical_end = core.count_entries(buffer, position - begin, self.file_bytes)
            _, first = self._record_from(self.max_offset, self.max_offset + count)
            if 0 <= first < before:
                return
            self.max_offset += count
            before = max(before, physical_end)
            self.max_physical = max(self.max_physical, physical_end)
            position = begin + self.file_bytes
            if self.max_offset * ENTRY_BYTES < position:
                return

    def _drop(self, begin: int) -> str:
        path = self.path(begin)
        if self.buffer is not None and begin == self.buffer_begin:
            self.unmapped()
        self._mappings.forget(path)
        return path
