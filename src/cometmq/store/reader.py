"""Reads messages of a queue: entries that match, limits, and slices of the log without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.codec import core
from cometmq.codec.java import INT32_MAX
from cometmq.codec.queue_entry import ENTRY_BYTES
from cometmq.store.mapped_file import memory_bytes
from cometmq.store.results import GetResult, GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from mmap import mmap

    from cometmq.store.commit_log import CommitLog
    from cometmq.store.config import StoreSettings
    from cometmq.store.consume_queue import ConsumeQueue
    from cometmq.store.results import GetLimits
    from cometmq.store.watermarks import Watermarks

    Accept = Callable[[memoryview], bool]
    Hits = list[tuple[int, int, int]]


class Reader:
    """Answers one read at a time, on the owner thread."""

    def __init__(self, log: CommitLog, marks: Watermarks, settings: StoreSettings) -> None:
        self._log = log
        self._marks = marks
        # How much of the log's end is taken to be in memory.
        self.warm_bytes = memory_bytes() * settings.memory_percent // 100

    def get(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        limits: GetLimits,
        tags: frozenset[int] | None = None,
        accept: Accept | None = None,
    ) -> GetResult:
        """See ``MessageStore.get``."""
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        low, high = queue.min_offset, queue.max_offset
        if not low <= offset < high:
            return _outside(offset, low, high)
        position = offset * ENTRY_BYTES
        try:
            buffer, begin = queue.bytes_at(position)
        except FileNotFoundError:
            return _missing_file(queue, offset)
        start = position - begin
        entries = max(limits.count, limits.entries_max)
        stop = min(start + entries * ENTRY_BYTES, high * ENTRY_BYTES - begin, queue.file_bytes)
        if accept is None and (tags is None or queue.extension is None):
            result = self._select(buffer, start, stop, tags, limits)
            result.next_offset += offset
            result.min_offset, result.max_offset = low, high
            return result
        result = GetResult(GetStatus.NO_MATCHED_MESSAGE, offset, low, high)
        hits, examined = core.scan_entries(buffer, start, stop, tags, entries)
        if tags is not None and queue.extension is not None:
            hits = _with_extension(queue, offset, hits, tags)
        result.next_offset = offset + examined
        self._test(result, offset, hits, limits, accept or _anything)
        if result.count:
            result.status = GetStatus.FOUND
        return result

    def _select(
        self, buffer: mmap, start: int, stop: int, tags: frozenset[int] | None, limits: GetLimits
    ) -> GetResult:
        """Let the entries alone decide; touching records share a slice. Offsets count from 0."""
        log = self._log
        log_end = self._marks.committed
        runs, count, total, examined, is_cold, has_gone = core.select_entries(
            buffer,
            start,
            stop,
            tags,
            log.files.begin,
            log_end - self.warm_bytes,
            log_end,
            limits.count,
            limits.bytes_max,
            limits.count_cold,
            limits.bytes_cold_max,
        )
        if not runs:
            status = GetStatus.MESSAGE_WAS_REMOVING if has_gone else GetStatus.NO_MATCHED_MESSAGE
            return GetResult(status, examined)
        result = GetResult(GetStatus.FOUND, examined)
        result.slices = log.slices(runs)
        result.count = count
        result.bytes = total
        result.is_cold = is_cold
        return result

    def _test(
        self, result: GetResult, offset: int, hits: Hits, limits: GetLimits, accept: Accept
    ) -> None:
        """Let ``accept`` look at each record that matches."""
        warm_begin = self._marks.committed - self.warm_bytes
        for number, physical_offset, size in hits:
            if size == INT32_MAX:
                continue
            is_warm = physical_offset >= warm_begin
            if result.count and (
                result.count >= limits.count
                or result.bytes + size > limits.bytes_max
                or (not is_warm and result.count >= limits.count_cold)
                or (not is_warm and result.bytes + size > limits.bytes_cold_max)
            ):
                result.next_offset = offset + number
                return
            record = self._log.record_at(physical_offset)
            if record is None:
                if not result.count:
                    result.status = GetStatus.MESSAGE_WAS_REMOVING
            elif accept(record):
                result.slices.append(record)
                result.count += 1
                result.bytes += size
                result.is_cold = not is_warm
            else:
                record.release()


def _anything(_: memoryview) -> bool:
    return True


def _outside(offset: int, low: int, high: int) -> GetResult:
    """The answer for an offset that is not in ``[low, high)``."""
    if high == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
    return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)


def _missing_file(queue: ConsumeQueue, offset: int) -> GetResult:
    """A queue file is not there: go on with the next one."""
    entries_per_file = queue.file_bytes // ENTRY_BYTES
    return GetResult(
        GetStatus.OFFSET_FOUND_NULL,
        offset - offset % entries_per_file + entries_per_file,
        queue.min_offset,
        queue.max_offset,
    )


def _with_extension(queue: ConsumeQueue, offset: int, hits: Hits, tags: frozenset[int]) -> Hits:
    """Only the hits whose tags code, looked up where it is an address, is wanted."""
    assert queue.extension is not None
    return [
        hit
        for hit in hits
        if (code := queue.extension.tags_code(queue.entry(offset + hit[0])[2])) is None
        or code in tags
    ]
