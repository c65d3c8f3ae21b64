"""The commit log: every message of the store in one sequence of bytes, cut into files.

A record never spans two files. What is left at the end of a file, at least 8 bytes, is a blank.
The owner thread appends; reading hands out slices of the mapped files.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.clock import SystemClock
from cometmq.codec import batch as batch_codec
from cometmq.codec import core, record
from cometmq.codec import properties as message_properties
from cometmq.codec.properties import Property
from cometmq.codec.record import BLANK_BYTES_MIN, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from cometmq.codec.sysflag import TRANSACTION_MASK
from cometmq.errors import LocalProtocolError, OffsetOutOfRange, ProtocolError
from cometmq.logs import get_logger
from cometmq.model.limits import (
    PROPERTIES_BYTES_MAX,
    RECORD_OVERHEAD_BYTES_MAX,
    TOPIC_BYTES_MAX,
)
from cometmq.model.topic import RETRY_PREFIX
from cometmq.store.results import NewMessage, PutResult, PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer

    from cometmq.clock import Clock
    from cometmq.store.allocator import Allocator
    from cometmq.store.config import StoreSettings
    from cometmq.store.consume_queue import ConsumeQueue
    from cometmq.store.mapped_file import MappedFile, TransientPool
    from cometmq.store.mapped_file_queue import MappedFileQueue
    from cometmq.store.watermarks import Watermarks

_PUT_OK: Final = PutStatus.PUT_OK
_WRONG_HOSTS: Final = "the hosts do not have the lengths that the sys flag says"
_DELAY: Final = Property.DELAY.encode()
_log = get_logger(__name__)


class CommitLog:
    """Appends records and reads them back by position. Statuses are values, see ``PutStatus``."""

    def __init__(
        self,
        files: MappedFileQueue,
        marks: Watermarks,
        settings: StoreSettings,
        *,
        allocator: Allocator,
        clock: Clock,
        pool: TransientPool | None = None,
    ) -> None:
        self.files = files
        self._marks = marks
        self._allocator = allocator
        self._pool = pool
        self._now_ms = clock.now_ms
        record_bytes_max = min(
            settings.message_bytes_max + RECORD_OVERHEAD_BYTES_MAX, files.size - BLANK_BYTES_MIN
        )
        # Where the next record goes, which is also where the log ends.
        self.tail = core.LogTail(
            settings.message_bytes_max, record_bytes_max, _now_ns(clock), PutResult, _PUT_OK
        )
        self.tail.end = marks.appended
        marks.follow(self.tail, has_pool=pool is not None)
        self.has_record_crc = settings.is_record_crc_appended
        # The same of a record that is on disk.
        self.flushed_timestamp = 0
        # The file appended to.
        self._active: MappedFile | None = None

    def resume(self) -> None:
        """Go on where the log ends; recovery has left the bytes behind that zero."""
        file = self.files.last
        if file is not None and self._marks.appended < file.end:
            file.allocate()
            self._activate(file, self._marks.appended - file.begin)

    # --- appending ---

    def append(self, message: NewMessage, queue: ConsumeQueue) -> PutResult:
        """Store one message at the end of the log and give it the queue's next offset."""
        if self.has_record_crc:
            return self._append_slowly(message, queue)
        try:
            result: PutResult | None = self.tail.append(message, queue)
        except (OverflowError, TypeError) as error:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))
        return result or self._append_slowly(message, queue)

    def _append_slowly(self, message: NewMessage, queue: ConsumeQueue) -> PutResult:
        """Store a message for which something must be done first, or say why it cannot be."""
        tail = self.tail
        if self.has_record_crc:
            message = msgspec.structs.replace(
                message, properties=record.reserve_property_crc(message.properties)
            )
        failure = self._make_room(message, queue)
        if failure is not None:
            return failure
        try:
            result: PutResult | None = tail.append(message, queue)
        except (OverflowError, TypeError) as error:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))
        if result is None:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=_WRONG_HOSTS)
        if self.has_record_crc:
            assert tail.target is not None
            record.append_property_crc(tail.target, result.physical_offset - tail.base)
        return result

    def append_batch(self, batch: NewMessage, queue: ConsumeQueue) -> PutResult:
        """Store the messages of a wire batch, all in one file and with consecutive offsets."""
        topic = queue.topic_bytes
        body = batch.body
        problem = _batch_problem(batch)
        if problem:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=problem)
        if len(batch.body) > self.tail.body_bytes_max:
            return self._refuse(body, b"", 0)
        try:
            if self.has_record_crc:
                body = _with_room_for_crc(body)
            size, count = core.measure_batch(
                body, len(topic), batch.sys_flag, self.tail.record_bytes_max
            )
        except ProtocolError as error:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))
        if count == 0:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason="the batch is empty")
        if size > self.files.size - BLANK_BYTES_MIN:
            return PutResult(
                PutStatus.MESSAGE_ILLEGAL, reason=f"batch of {size} bytes does not fit one log file"
            )
        tail = self.tail
        if tail.position + size > tail.room_end:
            failure = self._roll()
            if failure is not None:
                return failure
        target, position = tail.target, tail.position
        assert target is not None
        now = self._now_ms()
        queue_offset = queue.next_offset
        try:
            offsets = core.encode_batch_into(
                target,
                position,
                topic,
                body,
                batch.queue_id,
                queue_offset,
                tail.base + position,
                now,
                batch.born_timestamp,
                batch.born_host,
                batch.store_host,
                batch.sys_flag,
                batch.reconsume_times,
            )
        except (LocalProtocolError, OverflowError) as error:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))
        if self.has_record_crc:
            for offset in offsets:
                record.append_property_crc(target, offset - tail.base)
        queue.next_offset = queue_offset + count
        self._move(position + size)
        tail.timestamp = now
        return PutResult(_PUT_OK, offsets[0], tail.end, queue_offset, now, offsets)

    def append_raw(self, offset: int, data: ReadableBuffer) -> int:
        """Continue the log with bytes of another one; returns the new end.

        Raises OffsetOutOfRange unless ``offset`` is the end of the log: nothing is skipped or
        written twice. An empty log may begin with any file. Raises OSError when there is no room
        for another file.
        """
        end = self._marks.appended
        if not self.files and end == 0 and offset % self.files.size == 0:
            self._begin_at(offset)
        elif offset != end:
            raise OffsetOutOfRange(self._name, offset, self.begin, end)
        tail = self.tail
        with memoryview(data).cast("B") as rest:
            written = 0
            while written < rest.nbytes:
                if self._active is None or tail.position == self.files.size:
                    self._next_file()
                assert tail.target is not None
                length = min(rest.nbytes - written, self.files.size - tail.position)
                begin, stop = tail.position, tail.position + length
                tail.target[begin:stop] = rest[written : written + length]
                written += length
                self._move(stop)
        return self._marks.appended

    # --- reading ---

    @property
    def last_timestamp(self) -> int:
        """Store time of the last record."""
        return self.tail.timestamp

    @last_timestamp.setter
    def last_timestamp(self, timestamp: int) -> None:
        self.tail.timestamp = timestamp

    @property
    def begin(self) -> int:
        """First position of the log that is still there."""
        first = self.files.first
        return self._marks.appended if first is None else first.begin

    def record_at(self, offset: int) -> memoryview | None:
        """The record at a position, as a slice to be released; None when there is none."""
        file = self.files.find(offset)
        if file is None or offset < file.begin:
            return None
        end = min(self._marks.committed, file.end)
        if offset + RECORD_BYTES_MIN > end:
            return None
        position = offset - file.begin
        size, magic = record.peek(file.view, position)
        if magic not in (MAGIC_V1, MAGIC_V2) or not RECORD_BYTES_MIN <= size <= end - offset:
            return None
        return file.view[position : position + size]

    def slices(self, runs: list[tuple[int, int]]) -> list[memoryview]:
        """The bytes of log positions ``[begin, end)`` that are known to be there, to be released.

        None of the runs spans two files.
        """
        files = self.files
        file = files.find(runs[0][0])
        assert file is not None, runs
        views = core.slice_runs(file.view, file.begin, runs, 0)
        while len(views) < len(runs):
            file = files.find(runs[len(views)][0])
            assert file is not None, runs
            views += core.slice_runs(file.view, file.begin, runs, len(views))
        return views

    def read_raw(self, offset: int, limit: int) -> memoryview:
        """Bytes from a position on, at most ``limit`` and within one file; empty at the end.

        The slice is to be released. Raises OffsetOutOfRange outside the log.
        """
        end = self._marks.committed
        if offset == end:
            return memoryview(b"")
        file = self.files.find(offset)
        if file is None or offset > end or offset < file.begin:
            raise OffsetOutOfRange(self._name, offset, self.begin, end)
        begin = offset - file.begin
        return file.view[begin : min(begin + limit, file.size, end - file.begin)]

    # --- files ---

    def commit(self) -> None:
        """Write what the transient buffers hold to the files; any thread but one at a time."""
        begin, end = self._marks.committed, self._marks.appended
        for file in self.files.between(begin, end):
            stop = min(end, file.end)
            if file.buffer is not None:
                file.commit(max(begin, file.begin), stop)
            self._marks.move_committed(stop)

    def reclaim_buffers(self) -> None:
        """Take back the buffers of full files that are committed; the owner thread's work."""
        if self._pool is None:
            return
        for file in self.files:
            if file.buffer is not None and file is not self._active:
                if file.end > self._marks.committed:
                    return
                self._pool.give_back(file.buffer)
                file.buffer = None

    def has_full_file_after(self, offset: int) -> bool:
        """Tell whether the file that holds a position is committed to its end."""
        file = self.files.find(offset)
        return file is not None and file.end <= self._marks.committed

    def flush(self) -> int:
        """Return, with the position, when the log is on disk as far as it is committed.

        Runs on the flusher's thread. The time is read before the end: it is never ahead of it.
        """
        timestamp = self.tail.timestamp
        end = self._marks.committed
        for file in self.files.between(self._marks.flushed, end):
            file.sync()
        self.flushed_timestamp = timestamp
        return end

    def close(self) -> None:
        self._allocator.close()
        self.tail.target = None
        self._active = None
        for file in self.files:
            if file.buffer is not None and self._pool is not None:
                self._pool.give_back(file.buffer)
                file.buffer = None
        if self._pool is not None:
            self._pool.close()
        for path in self.files.close():
            _log.warning("file=%s is still being read and stays mapped", path)

    @property
    def has_pool(self) -> bool:
        return self._pool is not None

    @property
    def _name(self) -> str:
        first = self.files.first
        return "commit log" if first is None else str(first.path.parent)

    def _make_room(self, message: NewMessage, queue: ConsumeQueue) -> PutResult | None:
        """See to it that a message fits that did not; a result only if it cannot, or not now."""
        tail = self.tail
        body, properties, topic = message.body, message.properties, queue.topic_bytes
        magic = MAGIC_V1 if len(topic) <= TOPIC_BYTES_MAX else MAGIC_V2
        size = record.record_bytes(len(body), len(topic), len(properties), message.sys_flag, magic)
        if (
            len(body) > tail.body_bytes_max
            or size > tail.record_bytes_max
            or len(properties) > PROPERTIES_BYTES_MAX
        ):
            return self._refuse(body, properties, size)
        if tail.position + size > tail.room_end:
            failure = self._roll()
            if failure is not None:
                return failure
        if tail.position >= tail.attention:
            self._look_ahead()
        return None

    def _roll(self) -> PutResult | None:
        """Fill the active file up and go on in the next one; a result only if that fails."""
        if self._pool is not None and self._pool.available == 0:
            self.reclaim_buffers()
            if self._pool.available == 0:
                reason = "every buffer of the transient pool waits to be written to the log"
                return PutResult(PutStatus.TRANSIENT_POOL_EMPTY, reason=reason)
        tail = self.tail
        begin = self._marks.appended if self._active is None else self._active.end
        try:
            file = self._allocator.take(begin)
        except (OSError, TimeoutError) as error:
            _log.error("log file at %d cannot be made: %s", begin, error)
            return PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED, reason=str(error))
        if self._active is not None and tail.position < self.files.size:
            assert tail.target is not None
            record.encode_blank_into(tail.target, tail.position, self.files.size - tail.position)
            self._move(self.files.size)
        self.files.append(file)
        self._activate(file, 0)
        return None

    def _next_file(self) -> None:
        """Go on in a new file without a blank: the one before is full.

        It needs no buffer: what is replicated comes in large pieces.
        """
        begin = self._marks.appended
        file = self._allocator.take(begin - begin % self.files.size)
        self.files.append(file)
        self._activate(file, begin - file.begin, has_buffer=False)

    def _begin_at(self, offset: int) -> None:
        marks = self._marks
        self.tail.end = offset
        marks.move_committed(offset)
        marks.flushed = marks.dispatched = offset

    def _activate(self, file: MappedFile, position: int, *, has_buffer: bool = True) -> None:
        if self._pool is not None and has_buffer:
            file.buffer = self._pool.take()
            assert file.buffer is not None, "asked for before"
            file.buffer[:position] = file.mapping[:position]
        self._active = file
        tail = self.tail
        tail.target = file.mapping if file.buffer is None else file.buffer
        tail.base = file.begin
        tail.position = position
        tail.room_end = file.size - BLANK_BYTES_MIN
        tail.attention = position

    def _move(self, position: int) -> None:
        tail = self.tail
        tail.position = position
        if position >= tail.attention:
            self._look_ahead()
        tail.end = tail.base + position

    def _look_ahead(self) -> None:
        """Ask for pages ahead of the writer and, in the second half, for the next file."""
        file, position = self._active, self.tail.position
        assert file is not None
        if self._pool is None and position < file.size:
            self._allocator.populate(file, position + self._allocator.ahead_bytes)
        if position >= file.size // 2:
            self._allocator.prepare(file.end)
        attention = position + self._allocator.ahead_bytes // 2
        if position < file.size // 2:
            attention = min(attention, file.size // 2)
        # A file that was filled up is looked at no more.
        self.tail.attention = max(attention, position + 1)

    def _refuse(self, body: bytes | memoryview, properties: bytes, size: int) -> PutResult:
        if len(properties) > PROPERTIES_BYTES_MAX:
            reason = f"properties of {len(properties)} bytes, the most is {PROPERTIES_BYTES_MAX}"
            return PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED, reason=reason)
        if len(body) > self.tail.body_bytes_max:
            reason = f"body of {len(body)} bytes, the most is {self.tail.body_bytes_max}"
        else:
            reason = f"record of {size} bytes, the most is {self.tail.record_bytes_max}"
        return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=reason)


def _now_ns(clock: Clock) -> Callable[[], int]:
    """The clock as the tail wants it; the system's own without a Python call in between."""
    if isinstance(clock, SystemClock):
        return time.time_ns
    return lambda: clock.now_ms() * 1_000_000


def _batch_problem(batch: NewMessage) -> str:
    """Why these messages may not come as a batch; empty when they may."""
    if batch.sys_flag & TRANSACTION_MASK:
        return "a batch cannot be transactional"
    if batch.topic.startswith(RETRY_PREFIX):
        return "a batch cannot go to a retry topic"
    if message_properties.get(batch.properties, _DELAY) not in (None, "0"):
        return "a batch cannot be delayed"
    return ""


def _with_room_for_crc(body: bytes | memoryview) -> bytes:
    return batch_codec.encode(
        msgspec.structs.replace(item, properties=record.reserve_property_crc(item.properties))
        for item in batch_codec.decode(body)
    )
