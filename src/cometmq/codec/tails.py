"""The growing ends of log, queues and index, and the two loops that move them.

These are the plain twins of what the compiled core does for every message without making a Python
object for it. The store derives its own classes from ``QueueTail`` and ``LogTail``: what lies in
the tails is what the loops need, everything else is the store's.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from cometmq.codec import digest, index_entry, queue_entry, record
from cometmq.codec.queue_entry import ENTRY_BYTES
from cometmq.errors import LocalProtocolError
from cometmq.model.limits import PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from mmap import mmap

    from _typeshed import ReadableBuffer

UNQUEUED = 0x4
"""Bit of the sys flag of prepared and rolled-back messages, which have no place in their queue."""
_ROLLBACK = 0xC
_WINDOW_BYTES = 1 << 16
_NO_QUEUES: Final[Mapping[int, Any]] = {}


class QueueTail:
    """Where the next entry of a queue goes, and which one it is."""

    __slots__ = (
        "buffer",
        "buffer_begin",
        "is_hot",
        "is_touched",
        "max_offset",
        "max_physical",
        "next_offset",
        "ready_end",
        "topic_bytes",
        "topic_field",
    )

    def __init__(self, topic_bytes: bytes) -> None:
        self.topic_bytes = topic_bytes
        # The topic with its length, as it is in a record of version 1; empty if it is too long.
        size = len(topic_bytes)
        self.topic_field = bytes((size,)) + topic_bytes if size <= TOPIC_BYTES_MAX else b""
        # Offset the next message of the queue gets when it is appended to the log.
        self.next_offset = 0
        # End of the entries that are there.
        self.max_offset = 0
        # End of the newest record that has an entry here; -1 without any.
        self.max_physical = -1
        # The mapped file that is written to, the byte position it begins at, and up to which one
        # entries may begin: there are blocks for them.
        self.buffer: mmap | None = None
        self.buffer_begin = 0
        self.ready_end = 0
        # Used since the mappings were last looked through for idle ones.
        self.is_hot = False
        # Got entries in the dispatch under way.
        self.is_touched = False

    def waits_for(self, queue_offset: int, physical_offset: int) -> bool:
        """Whether this is the record that has its place next, and there is room for its entry."""
        return (
            queue_offset == self.max_offset
            and physical_offset >= self.max_physical
            and self.buffer_begin <= queue_offset * ENTRY_BYTES < self.ready_end
            and self.buffer is not None
        )

    def enter(self, physical_offset: int, size: int, tags_code: int) -> None:
        """Write the entry of the record that has its place next."""
        assert self.buffer is not None
        offset = self.max_offset
        position = offset * ENTRY_BYTES - self.buffer_begin
        queue_entry.LAYOUT.pack_into(self.buffer, position, physical_offset, size, tags_code)
        self.max_physical = physical_offset + size
        self.max_offset = offset = offset + 1
        if self.next_offset < offset:
            self.next_offset = offset
        self.is_hot = True


class StorableMessage(Protocol):
    """What of a message goes into a record; the rest is known by log and queue."""

    @property
    def queue_id(self) -> int: ...
    @property
    def body(self) -> bytes | memoryview: ...
    @property
    def properties(self) -> bytes: ...
    @property
    def born_timestamp(self) -> int: ...
    @property
    def born_host(self) -> bytes: ...
    @property
    def store_host(self) -> bytes: ...
    @property
    def flag(self) -> int: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def reconsume_times(self) -> int: ...
    @property
    def prepared_transaction_offset(self) -> int: ...


class LogTail:
    """Where the next record goes."""

    __slots__ = (
        "attention",
        "base",
        "body_bytes_max",
        "end",
        "fresh",
        "make_result",
        "now_ns",
        "ok",
        "position",
        "record_bytes_max",
        "room_end",
        "target",
        "timestamp",
    )

    def __init__(
        self,
        body_bytes_max: int,
        record_bytes_max: int,
        now_ns: Callable[[], int],
        make_result: Callable[[Any, int, int, int, int], Any],
        ok: object,
    ) -> None:
        self.now_ns = now_ns
        # Makes what ``append`` returns, of ``ok`` and the facts.
        self.make_result = make_result
        self.ok = ok
        self.body_bytes_max = body_bytes_max
        self.record_bytes_max = record_bytes_max
        # The file appended to, or the buffer in its place, and the log position it begins at.
        self.target: mmap | None = None
        self.base = 0
        # Next byte within the file, and where records must end to leave room for the blank.
        self.position = 0
        self.room_end = 0
        # Where somebody wants to look at the file before more is written.
        self.attention = 0
        # End of the log, and the store time of its last message.
        self.end = 0
        self.timestamp = 0
        # Digests of records that were written last, in their order and perhaps not all of them.
        self.fresh: deque[digest.Digest] = deque()

    def has_room(self, size: int, body_bytes: int, properties_bytes: int) -> bool:
        """Whether a record of these sizes can simply be written."""
        position = self.position
        return (
            position < self.attention
            and position + size <= self.room_end
            and size <= self.record_bytes_max
            and body_bytes <= self.body_bytes_max
            and properties_bytes <= PROPERTIES_BYTES_MAX
        )

    def append(self, message: StorableMessage, queue: QueueTail) -> Any:
        """Write a record and move on; return a result with its log position, the end of the log,
        its queue offset and its store time.

        None, with nothing changed, when that is not simply possible: the record is too large for
        the limits or for the file, something in it is wrong, or the file wants attention.
        """
        body, properties, sys_flag = message.body, message.properties, message.sys_flag
        topic, position, target = queue.topic_bytes, self.position, self.target
        magic = record.MAGIC_V1 if len(topic) <= TOPIC_BYTES_MAX else record.MAGIC_V2
        size = record.record_bytes(len(body), len(topic), len(properties), sys_flag, magic)
        if target is None or not self.has_room(size, len(body), len(properties)):
            return None
        now_ms = self.now_ns() // 1_000_000
        queue_offset = 0 if sys_flag & UNQUEUED else queue.next_offset
        physical_offset = self.base + position
        try:
            # Assigned in one piece, after everything that can go wrong.
            target[position : position + size] = record.assemble(
                size,
                magic,
                topic,
                body,
                len(body),
                properties,
                message.queue_id,
                queue_offset,
                physical_offset,
                now_ms,
                message.born_timestamp,
                message.born_host,
                message.store_host,
                message.flag,
                sys_flag,
                message.reconsume_times,
                message.prepared_transaction_offset,
            )
        except LocalProtocolError:
            return None
        if not sys_flag & UNQUEUED:
            queue.next_offset = queue_offset + 1
        self.position = position + size
        # In this order: a time that another thread sees belongs to a record before the end.
        self.end = end = physical_offset + size
        self.timestamp = now_ms
        return self.make_result(self.ok, physical_offset, end, queue_offset, now_ms)


class IndexTail:
    """Where the next entries of an index file go; see ``codec.index_entry``."""

    __slots__ = ("begin_timestamp", "data", "empty", "end", "newest_offset", "number", "slots",
                 "timestamp")  # fmt: skip

    def __init__(
        self,
        data: mmap,
        slots: int,
        number: int,
        end: int,
        newest_offset: int,
        begin_timestamp: int,
    ) -> None:
        self.data = data
        self.slots = slots
        # Number of the next entry, and the one for which there is no room.
        self.number = number
        self.end = end
        # Offset and time of the newest message that is there.
        self.newest_offset = newest_offset
        self.timestamp = 0
        self.begin_timestamp = begin_timestamp
        # Slots that got their first entry.
        self.empty = 0

    def put(self, found: digest.Digest) -> bool:
        """Enter a message; False, with nothing changed, when there is no room."""
        _, _, _, physical_offset, _, sys_flag, stored, _, hashes = found
        is_wanted = physical_offset > self.newest_offset and sys_flag & _ROLLBACK != _ROLLBACK
        if not hashes or not is_wanted:
            return True
        number = self.number
        if number + len(hashes) > self.end:
            return False
        seconds = index_entry.seconds_since(self.begin_timestamp, stored)
        self.empty += index_entry.put_entries(
            self.data, self.slots, number, hashes, physical_offset, seconds
        )
        self.number = number + len(hashes)
        self.newest_offset, self.timestamp = physical_offset, stored
        return True


def dispatch(
    data: ReadableBuffer,
    begin: int,
    end: int,
    base: int,
    limit: int,
    queues: dict[str, dict[int, QueueTail]],
    touched: list[QueueTail],
    index: IndexTail | None,
    fresh: deque[digest.Digest],
) -> tuple[int, int, int]:
    """Enter the records in ``data[begin:end]`` into queues and index, as long as it is simple.

    Simple is a record whose queue is known, waits for exactly this offset and has room, and for
    whose keys the index has room (``index`` None: there is none). It ends before the first other
    one, and after ``limit``. Queues that got entries go to ``touched``, each once until its
    ``is_touched`` is taken back. ``fresh`` are digests that need not be read again, see
    ``LogTail``; those of records that are passed are taken out. Returns how far it came, how many
    records it were, and the store time of the last (0: none).
    """
    timestamp = 0
    count = 0
    with memoryview(data) as view:
        window = _Window(view, base, end)
        while count < limit and begin < end:
            place = base + begin
            while fresh and fresh[0][3] < place:
                fresh.popleft()  # it was entered on another way
            is_fresh = fresh and fresh[0][3] == place
            found = fresh.popleft() if is_fresh else window.digest_at(begin)
            if found is None:
                break
            topic, queue_id, queue_offset, physical_offset, size, sys_flag, stored, code, _ = found
            queue = None
            if not sys_flag & UNQUEUED:
                queue = queues.get(topic, _NO_QUEUES).get(queue_id)
                if queue is None or not queue.waits_for(queue_offset, physical_offset):
                    break
            if index is not None and not index.put(found):
                break
            if queue is not None:
                queue.enter(physical_offset, size, code)
                if not queue.is_touched:
                    queue.is_touched = True
                    touched.append(queue)
            begin += size
            timestamp = stored
            count += 1
    return begin, count, timestamp


class _Window:
    """A stretch of the log, looked at as bytes: slices of a view are slow to make."""

    def __init__(self, view: memoryview, base: int, end: int) -> None:
        self._view = view
        self._base = base
        self._end = end
        self._begin = self._stop = -1
        self._bytes = b""

    def digest_at(self, position: int) -> digest.Digest | None:
        """The digest of the record there; None when it is none, or none that is simple to read."""
        end = self._end
        if not self._begin <= position or self._stop < min(end, position + _WINDOW_BYTES // 2):
            self._begin, self._stop = position, min(end, position + _WINDOW_BYTES)
            self._bytes = bytes(self._view[position : self._stop])
        begin = self._begin
        found = digest.usual_digest(self._bytes, position - begin, self._base + begin)
        if found is not None:
            return found
        digests = digest.walk(self._view, position, end, self._base, 1, False).digests
        return digests[0] if digests else None
