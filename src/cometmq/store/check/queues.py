"""Queues against the log: each record is looked for in its queue while the log is walked.

A cursor per queue goes along with the walk, so that neither the log nor a queue is held in memory.
Entries of a queue point to ascending positions; at record ``p`` of a queue its cursor stands

- at an entry that points to ``p``: they belong together, number, size and tag are compared;
- at one that points behind ``p``: either the entry is wrong, or it is right and ``p`` has none;
- at one that points before ``p``: no record of this queue was there, the entry is wrong.

When the walk is over, what cursors still have points behind the log or is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cometmq.codec import properties, queue_entry, queue_extension
from cometmq.codec.queue_entry import ENTRY_BYTES, FILLER, QueueEntry
from cometmq.codec.tails import UNQUEUED
from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.store.check.cursor import QueueCursor
from cometmq.store.check.reading import Segments
from cometmq.store.check.report import Kind, Severity
from cometmq.store.directory import LIGHT_QUEUE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.codec.record import Record
    from cometmq.store.check.context import Context

    Queue = tuple[str, int]

_CHUNKS_BYTES_MAX = 32 * 1024 * 1024
_CHUNK_ENTRIES_MIN = 16
_CHUNK_ENTRIES_MAX = 3000
_RESYNC_TRIES = 100


class Place(NamedTuple):
    """Where a record belongs: its queue, and its number there."""

    queue: Queue
    number: int


def places(record: Record) -> Iterator[Place]:
    """The queues a record is put into: its own, and the light queues it names."""
    if not record.sys_flag & UNQUEUED:
        yield Place((record.topic, record.queue_id), record.queue_offset)
    if b"INNER_MULTI_DISPATCH\x01" in record.properties:
        names = properties.get(record.properties, b"INNER_MULTI_DISPATCH") or ""
        numbers = properties.get(record.properties, b"INNER_MULTI_QUEUE_OFFSET") or ""
        for name, number in zip(names.split(","), numbers.split(","), strict=False):
            if name.startswith(LIGHT_QUEUE_PREFIX) and number.isdecimal():
                yield Place((name, 0), int(number))


class QueueCheck:
    """All queues of a store; told of the records one after the other, then that the log ends."""

    def __init__(self, context: Context, *, delays_ms: tuple[int, ...] | None) -> None:
        self._context = context
        self._report = context.report
        self._layout = layout = context.layout
        self._log = context.log
        self._mappings = context.mappings
        self._severity_at = context.severity_at
        # None: the levels are not known, so any delivery time after the storing is right.
        self._delays_ms = delays_ms
        # Queues of which the log has records but the directory nothing: how many, and the first.
        self._homeless: dict[Queue, tuple[int, int]] = {}
        filled = {queue: paths for queue, paths in layout.queue_files.items() if paths}
        share = _CHUNKS_BYTES_MAX // ENTRY_BYTES // max(1, len(filled))
        chunk_entries = min(max(share, _CHUNK_ENTRIES_MIN), _CHUNK_ENTRIES_MAX)
        size = layout.queue_file_bytes
        self._cursors = {
            queue: QueueCursor(Segments(paths, size, context.mappings), chunk_entries)
            for queue, paths in filled.items()
        }
        self._report.queues = len(layout.queue_files)

    def record(self, record: Record) -> None:
        """Find the record in its queues; records come in the order of the log."""
        for queue, number in places(record):
            cursor = self._cursors.get(queue)
            if cursor is not None:
                self._find(cursor, queue, number, record)
            elif not queue[0].startswith(LIGHT_QUEUE_PREFIX):
                count, first = self._homeless.get(queue, (0, record.physical_offset))
                self._homeless[queue] = (count + 1, first)

    def next_record(self, position: int, end: int) -> int | None:
        """Where, before ``end``, the first record behind ``position`` begins that a queue has."""
        targets = set()
        for cursor in self._cursors.values():
            entry = self._skip_absent(cursor)
            if entry is not None and entry.physical_offset <= position:
                entry = cursor.following()
            if entry is not None and position < entry.physical_offset < end:
                targets.add(entry.physical_offset)
        for target in sorted(targets)[:_RESYNC_TRIES]:
            if self._log.record_at(target) is not None:
                return target
        return None

    def has_entry_from(self, position: int) -> bool:
        """Whether some queue has an entry for ``position`` or what is behind it."""
        for cursor in self._cursors.values():
            entry = self._skip_absent(cursor)
            if entry is not None and entry.physical_offset >= position:
                return True
        return False

    def finish(self, log_end: int, topics: frozenset[str]) -> None:
        """The log ends at ``log_end``; ``topics`` are those the configuration knows."""
        for queue, cursor in self._cursors.items():
            self._finish_queue(queue, cursor, log_end)
        for queue, (count, first) in self._homeless.items():
            severity = self._severity_at(first)
            text = f"{_name(queue)} has no files, the log has {count} messages for it from {first}"
            is_known = queue[0] in topics or queue in self._layout.queue_files
            if severity is Severity.ERROR and not is_known:
                severity = Severity.NOTE
                text += "; was the topic deleted?"
            self._report.add(Kind.NO_QUEUE, severity, self._layout.queue_folder(*queue), None, text)

    def _finish_queue(self, queue: Queue, cursor: QueueCursor, log_end: int) -> None:
        beyond = 0
        first, path = cursor.number, cursor.path
        while (entry := self._skip_absent(cursor)) is not None:
            if entry.physical_offset < log_end:
                self._wrong(cursor, queue, entry.physical_offset)
            else:
                if not beyond:
                    first, path = cursor.number, cursor.path
                beyond += 1
            self._advance(cursor)
        if beyond:
            text = f"{beyond} entries of {_name(queue)} point behind the end of the log, {log_end}"
            self._report.add(Kind.BEYOND_LOG, self._severity_at(log_end), path, first, text)
        later = cursor.later_entry()
        if later is not None:
            text = f"{_name(queue)} ends here, but files behind have entries"
            severity = self._severity_at(later.physical_offset)
            self._report.add(Kind.QUEUE_GAP, severity, cursor.path, cursor.number, text)
        if cursor.early:
            text = f"the log has {cursor.early} older messages of {_name(queue)}; was it deleted?"
            self._report.add(Kind.NO_ENTRY, Severity.NOTE, cursor.path, cursor.first, text)

    def _find(self, cursor: QueueCursor, queue: Queue, number: int, record: Record) -> None:
        position = record.physical_offset
        has_wrong_entry = False
        while (entry := self._skip_absent(cursor)) is not None:
            if entry.physical_offset == position:
                self._compare(cursor, entry, number, record)
                return
            if entry.physical_offset > position and self._is_right(cursor, queue, entry):
                break
            has_wrong_entry |= cursor.number == number
            self._wrong(cursor, queue, position)
            self._advance(cursor)
        if has_wrong_entry:
            return
        if cursor.entry is not None and not cursor.has_matched:
            cursor.early += 1
        else:
            text = f"message {number} of {_name(queue)} has no entry there"
            path = self._log.path_at(position) or self._layout.root
            self._report.add(Kind.NO_ENTRY, self._severity_at(position), path, position, text)

    def _compare(self, cursor: QueueCursor, entry: QueueEntry, number: int, record: Record) -> None:
        position = record.physical_offset
        if entry.size != record.size:
            text = f"entry says {entry.size} bytes, its message at {position} has {record.size}"
            self._add(Kind.ENTRY_SIZE, cursor, position, text)
        shift = number - cursor.number
        if shift != cursor.shift:
            kind = Kind.QUEUE_GAP if shift > cursor.shift else Kind.QUEUE_REPEAT
            text = f"entry {cursor.number} is for a message at {position} that has number {number}"
            self._add(kind, cursor, position, text)
            cursor.shift = shift
        complaint = self._tag_complaint(entry.tags_code, record)
        if complaint:
            self._add(Kind.ENTRY_TAG, cursor, position, complaint)
        cursor.has_matched = True
        self._advance(cursor)

    def _tag_complaint(self, tags_code: int, record: Record) -> str:
        """What is wrong with the tags code of an entry; empty when nothing is."""
        if queue_extension.is_address(tags_code):
            address = queue_extension.tags_code_to_address(tags_code)
            paths = self._layout.extension_files.get((record.topic, record.queue_id), [])
            extension = Segments(paths, self._layout.extension_file_bytes, self._mappings)
            unit = extension.extension_at(address)
            if unit is None:
                return f"entry points to {address} of the queue's extension, where nothing is"
            tags_code = unit.tags_code
        delay_level = _delay_level(record)
        if delay_level and self._delays_ms is None:
            if tags_code > record.store_timestamp:
                return ""
            return f"entry has delivery time {tags_code}, stored at {record.store_timestamp}"
        if delay_level:
            delay_ms = _delay_ms(delay_level, self._delays_ms or ())
            expected = queue_entry.delay_tags_code(record.store_timestamp, delay_ms)
        else:
            expected = queue_entry.tags_code(properties.get(record.properties, b"TAGS"))
        return "" if tags_code == expected else f"entry has tags code {tags_code}, not {expected}"

    def _is_right(self, cursor: QueueCursor, queue: Queue, entry: QueueEntry) -> bool:
        """Whether an entry that points ahead points to a message that has its number."""
        if cursor.right == cursor.number:
            return True
        number = self._number_at(queue, entry)
        if number is None:
            return False
        if number - cursor.number != cursor.shift:
            # Wrong alone, or are all entries from here on moved by what is missing before them?
            following = cursor.following()
            after = None if following is None else self._number_at(queue, following)
            if after is not None and after - cursor.number - 1 == cursor.shift:
                return False
        cursor.right = cursor.number
        return True

    def _number_at(self, queue: Queue, entry: QueueEntry) -> int | None:
        """The number that the message an entry points to has in ``queue``."""
        record = self._log.record_at(entry.physical_offset)
        if record is None:
            return None
        return next((place.number for place in places(record) if place.queue == queue), None)

    def _skip_absent(self, cursor: QueueCursor) -> QueueEntry | None:
        """Go on behind fillers, and behind messages that were deleted with the head of the log.

        Returns the entry that is neither.
        """
        while (entry := cursor.entry) is not None:
            is_deleted = entry.physical_offset < self._log.begin and not cursor.has_matched
            if not is_deleted and entry != FILLER:
                return entry
            self._advance(cursor)
        return None

    def _wrong(self, cursor: QueueCursor, queue: Queue, position: int) -> None:
        entry = cursor.entry
        assert entry is not None
        if entry.physical_offset in self._context.broken:
            return
        target = self._log.record_at(entry.physical_offset)
        where = f"entry {cursor.number} of {_name(queue)} points to {entry.physical_offset}"
        if target is None:
            self._add(Kind.ENTRY_NOWHERE, cursor, position, f"{where}, where no message begins")
        else:
            other = f"message {target.queue_offset} of {_name((target.topic, target.queue_id))}"
            self._add(Kind.ENTRY_ELSEWHERE, cursor, position, f"{where}, which is {other}")

    def _advance(self, cursor: QueueCursor) -> None:
        self._report.entries += 1
        cursor.advance()

    def _add(self, kind: Kind, cursor: QueueCursor, position: int, text: str) -> None:
        entry = cursor.entry
        if entry is not None and entry != FILLER:
            # An entry for what was vouched for, or that seems to be one, stays when the store is
            # opened, or is damage that no kill has left.
            position = min(position, entry.physical_offset)
        severity = self._severity_at(position)
        self._report.add(kind, severity, cursor.path, cursor.number, text)


def _name(queue: Queue) -> str:
    return f"{queue[0]}/{queue[1]}"


def _delay_level(record: Record) -> int:
    """The level a message waits at, 0 when it is not a waiting one."""
    if record.topic != SCHEDULE_TOPIC:
        return 0
    level = properties.get(record.properties, b"DELAY") or ""
    return int(level) if level.isdecimal() else 0


def _delay_ms(level: int, delays_ms: tuple[int, ...]) -> int | None:
    if not delays_ms:
        return None
    return delays_ms[min(level, len(delays_ms)) - 1]
