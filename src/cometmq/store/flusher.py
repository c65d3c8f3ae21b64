"""Brings log, queues, index and checkpoint to disk, on a thread of its own.

::

    commit      transient buffers -> log files      every 200 ms
    flush log   fdatasync of the files behind       every 500 ms if 4 pages wait, 10 s in any case,
                ``flushed``                         at once when a sender waits (one sync for all)
    flush rest  queues with 2 new pages             every second
                all queues, index, checkpoint       every minute

``fdatasync`` and not ``mmap.flush()``: msync keeps the interpreter to itself, so one slow disk
would freeze every connection for as long as the sync lasts (ADR 12). A sync that fails ends it: the
kernel may have dropped the pages, so nothing later could be promised. The store is read-only then.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.clock import Clock
    from cometmq.store.checkpoint import CheckpointFile
    from cometmq.store.commit_log import CommitLog
    from cometmq.store.config import StoreSettings
    from cometmq.store.consume_queues import ConsumeQueues
    from cometmq.store.dispatcher import Dispatcher
    from cometmq.store.key_index import KeyIndex
    from cometmq.store.watermarks import Watermarks

_PAGE_BYTES: Final = 4096
_log = get_logger(__name__)


class Flusher:
    """Steps are taken by the thread, or by whoever calls ``step`` and ``flush_all``."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        dispatcher: Dispatcher,
        marks: Watermarks,
        *,
        checkpoint: CheckpointFile,
        settings: StoreSettings,
        clock: Clock,
        on_progress: Callable[[], None],
        vouched: int,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._marks = marks
        self._checkpoint = checkpoint
        self._settings = settings
        self._clock = clock
        # Called after commits, flushes and the failure, on whatever thread did them.
        self._on_progress = on_progress
        # Told how many seconds each flush of the log took, on the same thread.
        self.on_flushed: list[Callable[[float], None]] = []
        # Everything before this log position is on disk, in log, queues and index.
        self.vouched = vouched
        # One at a time: the thread, or somebody who flushes by hand.
        self._lock = threading.Lock()
        self._wake = threading.Condition()
        self._is_requested = False
        self._is_stopping = False
        self._thread: threading.Thread | None = None
        # When each kind was last done, in seconds of the monotonic clock.
        now = clock.monotonic()
        self._committed_at = self._flushed_at = now
        self._queues_at = self._thorough_at = now

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="cometmq-flush", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what it had not flushed is left to ``flush_all``."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def use(self, settings: StoreSettings) -> None:
        """Flush at other intervals from now on; whether there is a pool stays as it is."""
        with self._wake:
            self._settings = settings
            self._wake.notify()

    def request(self) -> None:
        """A sender waits: flush the log as soon as the sync under way is done."""
        if not self._is_requested:
            with self._wake:
                self._is_requested = True
                self._wake.notify()

    def hurry(self) -> None:
        """Flush everything, checkpoint included, with the next step: somebody needs it."""
        self._thorough_at = float("-inf")
        self.request()

    def step(self) -> None:
        """Do what is due now."""
        settings = self._settings
        now = self._clock.monotonic()
        is_requested, self._is_requested = self._is_requested, False
        with self._lock:
            if self._marks.failure:
                return
            try:
                if settings.has_transient_pool:
                    self._commit_if_due(now, is_requested)
                self._flush_log_if_due(now, is_requested)
                self._flush_rest_if_due(now)
            except OSError as error:
                self._fail(error)

    def commit_all(self) -> None:
        """Write what the transient pool holds to the log, so that it can be dispatched."""
        with self._lock:
            if self._marks.failure:
                return
            try:
                self._log.commit()
            except OSError as error:
                self._fail(error)

    def flush_all(self) -> None:
        """Return when everything appended and dispatched so far is on disk, checkpoint included."""
        with self._lock:
            if self._marks.failure:
                return
            try:
                self._log.commit()
                self._flush_log()
                self._flush_thoroughly()
            except OSError as error:
                self._fail(error)
        self._on_progress()

    def _run(self) -> None:
        while True:
            with self._wake:
                if not self._is_requested and not self._is_stopping:
                    self._wake.wait(self._shortest_interval())
                if self._is_stopping:
                    return
            try:
                self.step()
            except BaseException as error:
                self._fail(error)
                raise

    def _shortest_interval(self) -> float:
        settings = self._settings
        intervals = [settings.flush_interval_ms, settings.queue_flush_interval_ms]
        if settings.has_transient_pool:
            intervals.append(settings.commit_interval_ms)
        return min(intervals) / 1000

    def _commit_if_due(self, now: float, is_requested: bool) -> None:
        settings = self._settings
        waiting = self._marks.appended - self._marks.committed
        passed = (now - self._committed_at) * 1000
        is_due = passed >= settings.commit_thorough_interval_ms or (
            passed >= settings.commit_interval_ms
            and waiting >= settings.commit_pages_least * _PAGE_BYTES
        )
        if waiting and (is_due or is_requested):
            self._log.commit()
            self._committed_at = now
            self._on_progress()

    def _flush_log_if_due(self, now: float, is_requested: bool) -> None:
        settings = self._settings
        waiting = self._marks.committed - self._marks.flushed
        passed = (now - self._flushed_at) * 1000
        is_due = passed >= settings.flush_thorough_interval_ms or (
            passed >= settings.flush_interval_ms
            and (
                waiting >= settings.flush_pages_least * _PAGE_BYTES
                or self._log.has_full_file_after(self._marks.flushed)
            )
        )
        if is_due or is_requested:
            self._flushed_at = now
            if waiting:
                self._flush_log()
                self._on_progress()

    def _flush_log(self) -> None:
        if self._marks.committed > self._marks.flushed:
            began = self._clock.monotonic()
            self._marks.move_flushed(self._log.flush())
            seconds = self._clock.monotonic() - began
            for told in self.on_flushed:
                told(seconds)

    def _serve_waiting(self) -> None:
        """Flush the log for a sender who waits, between other files."""
        if self._is_requested:
            self._is_requested = False
            self._log.commit()
            self._flush_log()
            self._on_progress()

    def _flush_rest_if_due(self, now: float) -> None:
        settings = self._settings
        if (now - self._thorough_at) * 1000 >= settings.queue_flush_thorough_interval_ms:
            self._thorough_at = self._queues_at = now
            self._flush_log()
            self._flush_thoroughly()
        elif (now - self._queues_at) * 1000 >= settings.queue_flush_interval_ms:
            self._queues_at = now
            self._queues.sync_dirty(
                pages_least=settings.queue_flush_pages_least, between=self._serve_waiting
            )

    def _flush_thoroughly(self) -> None:
        """Sync all queues and the index, and only then say so in the checkpoint."""
        position = min(self._marks.dispatched, self._marks.flushed)
        queue_timestamp = self._dispatcher.last_timestamp
        log_timestamp = self._log.flushed_timestamp
        self._queues.sync_dirty(pages_least=0, between=self._serve_waiting)
        before = self._checkpoint.last
        index_timestamp = before.index_timestamp
        if self._index is not None:
            unsynced = self._index.take_unsynced()
            for file in unsynced:
                file.sync()
            self._index.mark_synced(unsynced)
            index_timestamp = self._index.synced_timestamp
        # A store that was only read has nothing newer to say than it found.
        after = msgspec.structs.replace(
            before,
            log_timestamp=log_timestamp or before.log_timestamp,
            queue_timestamp=queue_timestamp or before.queue_timestamp,
            index_timestamp=index_timestamp,
        )
        if after != before or position != self.vouched:
            self._checkpoint.save(after, position)
            self.vouched = position

    def _fail(self, error: BaseException) -> None:
        _log.error("flush failed, the store is read-only from now on: %s", error)
        self._marks.fail(f"flush failed: {error}")
        self._on_progress()
