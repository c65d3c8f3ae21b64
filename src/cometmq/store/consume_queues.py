"""All consume queues of a store: the table of them, their files' life, and searching by time."""

from __future__ import annotations

import contextlib
import enum
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cometmq.codec import core
from cometmq.codec.digest import store_timestamp
from cometmq.codec.queue_entry import ENTRY_BYTES
from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.store.consume_queue import ConsumeQueue
from cometmq.store.queue_extension import QueueExtension
from cometmq.store.queue_mappings import QueueMappings, mappings_allowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.store.commit_log import CommitLog
    from cometmq.store.config import StoreSettings
    from cometmq.store.directory import Layout
    from cometmq.store.files import Files

_PAGE_BYTES: Final = 4096


class Boundary(enum.Enum):
    """Which entry a search by time means when several, or none, have that time."""

    LOWER = "LOWER"
    """The first one at that time or later."""
    UPPER = "UPPER"
    """The last one at that time or earlier."""


class ConsumeQueues:
    """Queues by topic and id. The owner thread does everything here but ``sync_dirty``."""

    def __init__(self, layout: Layout, settings: StoreSettings, files: Files) -> None:
        self._layout = layout
        self._files = files
        self._mappings = QueueMappings(files, settings.mapped_queue_files_max or mappings_allowed())
        self.table: dict[tuple[str, int], ConsumeQueue] = {}
        # The same by topic, for dispatching; without those whose entries need a second look.
        self.tails: dict[str, dict[int, core.QueueTail]] = {}
        # Queues with entries that may not be on disk; a deque because two threads use it.
        self._dirty: deque[ConsumeQueue] = deque()

    def load(self, *, vouched: int | None) -> None:
        """Take over the queues whose files exist, see ``ConsumeQueue.load``.

        What lies behind their ends is left to ``queue_mending``.
        """
        for (topic, queue_id), paths in self._layout.queue_files.items():
            queue = self.obtain(topic, queue_id)
            if paths:
                queue.load(int(paths[0].name), int(paths[-1].name), vouched=vouched)
                if queue.dirty_begin < queue.max_offset:
                    self.mark_dirty(queue)
        for (topic, queue_id), paths in self._layout.extension_files.items():
            if paths and (topic, queue_id) in self.table:
                self.table[topic, queue_id].extension = QueueExtension(
                    paths, self._layout.extension_file_bytes, self._mappings
                )

    def obtain(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made if there is none yet; its files come with its first entry."""
        queue = self.table.get((topic, queue_id))
        if queue is None:
            folder = str(self._layout.queue_folder(topic, queue_id))
            queue = ConsumeQueue(
                topic, queue_id, folder, self._mappings, self._layout.queue_file_bytes
            )
            self.table[topic, queue_id] = queue
            if topic != SCHEDULE_TOPIC:
                self.tails.setdefault(topic, {})[queue_id] = queue
        return queue

    def newest_record(self) -> tuple[int, int] | None:
        """Log positions of the newest record that has an entry in any queue, half open."""
        newest = max(self.table.values(), key=lambda queue: queue.max_physical, default=None)
        if newest is None or newest.max_physical < 0:
            return None
        physical_offset, size, _ = newest.entry(newest.max_offset - 1)
        return physical_offset, physical_offset + size

    def truncate(self, end: int) -> None:
        for queue in self.table.values():
            queue.truncate(end)

    def drop_empty(self) -> None:
        """Remove queues without entries: their topics were deleted, or nothing of them survived.

        Doubtful ones stay: their entries may come back.
        """
        empty = [
            key
            for key, queue in self.table.items()
            if queue.max_offset == 0 and not queue.is_doubtful
        ]
        for topic, queue_id in empty:
            queue = self.table.pop((topic, queue_id))
            for begin in queue.file_begins:
                self._mappings.forget(queue.path(begin))
            self._files.remove_folder(self._layout.queue_folder(topic, queue_id))
            self.tails.get(topic, {}).pop(queue_id, None)

    def correct_min(self, log_begin: int) -> None:
        for queue in self.table.values():
            queue.correct_min(log_begin)

    def delete_before(self, log_begin: int) -> int:
        """Remove the files whose records are gone from the log; how many."""
        paths = [path for queue in self.table.values() for path in queue.delete_before(log_begin)]
        for path in paths:
            self._files.remove(Path(path))
        return len(paths)

    def delete_topic(self, topic: str, *, queues_max: int | None = None) -> int:
        """Forget a topic's queues, or some of them, and remove their files; how many."""
        found = [key for key in self.table if key[0] == topic]
        if not found:
            return 0
        gone = found[:queues_max]
        for key in gone:
            queue = self.table.pop(key)
            self.tails.get(topic, {}).pop(key[1], None)
            # The newest first: a crash meanwhile leaves no gap.
            for begin in reversed(queue.file_begins):
                self._mappings.forget(queue.path(begin))
                self._files.remove(Path(queue.path(begin)))
            for path in reversed(self._layout.extension_files.pop(key, [])):
                self._mappings.forget(str(path))
                self._files.remove(path)
        if len(gone) == len(found):
            self.tails.pop(topic, None)
            for folder_of in (self._layout.queue_folder, self._layout.extension_folder):
                self._files.remove_folder(folder_of(topic, 0).parent)
        return len(gone)

    def mark_dirty(self, queue: ConsumeQueue) -> None:
        """Remember to sync the queue; called after an entry was appended."""
        queue.is_dirty = True
        self._dirty.append(queue)

    def sync_dirty(self, *, pages_least: int, between: Callable[[], None]) -> None:
        """Sync what was appended; queues with fewer new pages are left for a later round.

        Runs on the flusher's thread and calls ``between`` before each queue: there may be many. A
        queue is taken from the list and marked clean *before* its end is read, so an entry appended
        meanwhile is either covered or listed again.
        """
        for _ in range(len(self._dirty)):
            queue = self._dirty.popleft()
            queue.is_dirty = False
            begin, end = queue.dirty_begin, queue.max_offset
            if (end - begin) * ENTRY_BYTES < pages_least * _PAGE_BYTES:
                self.mark_dirty(queue)
                continue
            between()
            self.sync(queue, begin, end)
            queue.dirty_begin = end

    def sync(self, queue: ConsumeQueue, begin: int, end: int) -> None:
        """Return when the entries ``[begin, end)`` are on disk, with the names of their files."""
        begin, end = begin * ENTRY_BYTES, end * ENTRY_BYTES
        first = begin - begin % queue.file_bytes
        if queue.is_unsettled:
            queue.is_unsettled = False
            with contextlib.suppress(FileNotFoundError):
                self._files.settle(Path(queue.path(first)))
        for file_begin in range(first, end, queue.file_bytes):
            # It may have been deleted meanwhile, with the log it pointed to.
            with (
                contextlib.suppress(FileNotFoundError),
                contextlib.closing(self._files.open(Path(queue.path(file_begin)))) as file,
            ):
                file.sync()

    def offset_at_time(
        self, queue: ConsumeQueue, log: CommitLog, timestamp_ms: int, boundary: Boundary
    ) -> int:
        """Search ``[min, max)`` for a store time; ``max`` when all are earlier."""

        def is_late(physical_offset: int) -> bool:
            stored = _stored_at(log, physical_offset)
            if boundary is Boundary.UPPER:
                return stored > timestamp_ms
            return stored >= timestamp_ms

        found = queue.first_offset(queue.min_offset, is_late)
        if boundary is Boundary.LOWER:
            return found
        return max(queue.min_offset, found - 1)

    def close(self) -> None:
        self._mappings.close()


def _stored_at(log: CommitLog, physical_offset: int) -> int:
    """Store time of a record; 0 when it is gone, so it counts as old."""
    record = log.record_at(physical_offset)
    if record is None:
        return 0
    with record:
        return store_timestamp(record, 0)
