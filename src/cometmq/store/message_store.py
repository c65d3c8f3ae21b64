"""A store directory, opened: everything else in this package is a part of it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

import msgspec

from cometmq.clock import SystemClock
from cometmq.codec import core
from cometmq.codec.headers.pull import PullMessage
from cometmq.codec.message_id import decode_offset_id
from cometmq.errors import RemoteProtocolError, StoreError
from cometmq.logs import get_logger
from cometmq.store.config import FlushMode, StoreSettings
from cometmq.store.consume_queues import Boundary
from cometmq.store.directory import queue_problem
from cometmq.store.files import DiskFiles
from cometmq.store.key_index import TIME_MS_MAX, KeyKind
from cometmq.store.locking import locked
from cometmq.store.opening import open_parts
from cometmq.store.results import GetLimits, GetResult, NewMessage, PutResult, PutStatus
from cometmq.store.retention import DiskState, DiskWatch, LogFileFacts, Place, Retention

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from _typeshed import ReadableBuffer

    from cometmq.clock import Clock
    from cometmq.codec.command import Command
    from cometmq.codec.headers.send import SendMessage
    from cometmq.codec.pulls import Answer as PullAnswer
    from cometmq.codec.pulls import OnlineGroup
    from cometmq.codec.sends import Answer, SendTopic
    from cometmq.store.consume_queue import ConsumeQueue
    from cometmq.store.files import Files
    from cometmq.store.retention import MayDelete
    from cometmq.store.watermarks import Watermarks

H = TypeVar("H", "SendMessage", "PullMessage")
_DISPATCH_SECONDS = 0.005  # for which messages that nobody waits for are gathered
_log = get_logger(__name__)


class Loop(Protocol):
    """What the store needs of an event loop to work beside it; asyncio's and uvloop's will do."""

    def call_soon(self, callback: Callable[[], object]) -> object: ...

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> object: ...

    def call_later(self, delay: float, callback: Callable[[], object]) -> asyncio.Handle: ...


class StoreState(msgspec.Struct, frozen=True):
    """What the store can do now. ``refusal`` says why no message is taken; empty when it is."""

    refusal: str
    disk: DiskState
    disk_reason: str
    index_failure: str
    files_condemned: int
    """Log files that are deleted but still being read."""

    @property
    def is_writable(self) -> bool:
        return not self.refusal


class MessageStore:
    """One directory, opened by ``open`` and used by one thread, its owner.

    With a ``loop`` the store dispatches, cleans and calls back on it. Without one it is a plain
    library: reading dispatches first, and nothing is cleaned unless asked.
    """

    def __init__(
        self,
        root: Path,
        settings: StoreSettings,
        lock: contextlib.ExitStack,
        *,
        files: Files,
        clock: Clock,
        loop: Loop | None,
        has_threads: bool,
        is_slave: bool,
        may_delete: MayDelete | None,
    ) -> None:
        self.root = root
        self.settings = settings
        # Takes no messages, only what is replicated from its master.
        self.is_slave = is_slave
        self._lock = lock
        self._files = files
        self._clock = clock
        self._loop = loop
        self._is_closed = False
        parts = open_parts(
            root,
            settings,
            files=files,
            clock=clock,
            has_threads=has_threads,
            on_progress=self._on_progress,
        )
        self._layout = parts.layout
        self.watermarks: Watermarks = parts.marks
        self._log = parts.log
        self._queues = parts.queues
        self._table = parts.queues.table
        self._index = parts.index
        self._dispatcher = parts.dispatcher
        self._reader = parts.reader
        self._flusher = parts.flusher
        # What a read returns when nothing else is asked for.
        self._limits = GetLimits(
            count=settings.read_count_memory,
            bytes_max=settings.read_bytes_memory,
            count_cold=settings.read_count_disk,
            bytes_cold_max=settings.read_bytes_disk,
        )
        self._disk = DiskWatch(settings)
        self._retention = Retention(settings, may_delete=may_delete)
        self._is_sync = settings.flush_mode is FlushMode.SYNC_FLUSH
        # Without a loop nothing is ever scheduled: whoever reads dispatches first.
        self._is_dispatch_scheduled = loop is None
        # Whether somebody waits for what arrives; None: perhaps.
        self._is_awaited: Callable[[], bool] | None = None
        # Set while what was put waits for others to be dispatched with.
        self._dispatch_timer: asyncio.Handle | None = None
        self._clean_timer: asyncio.Handle | None = None
        # Begin of the log when files of queues and index were last removed behind it.
        self._followed_begin = parts.log.begin
        # Why messages are refused, the only thing a put has to look at.
        self._refusal = ""
        self._update_refusal()
        if has_threads:
            self._flusher.start()
        if loop is not None:
            self._clean_later()

    @classmethod
    def open(
        cls,
        root: Path | str,
        settings: StoreSettings | None = None,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        loop: Loop | None = None,
        threads: bool = True,
        is_slave: bool = False,
        may_delete: MayDelete | None = None,
    ) -> Self:
        """Open a directory, or make it, and mend what a crash may have left.

        Sizes in ``settings`` are for new files; those that exist keep theirs. Without ``threads``
        nothing runs in the background: flush by hand. ``may_delete`` is asked before a log file
        goes. Raises StoreLocked, DamagedStore or ForeignStore, and OSError as it comes.
        """
        root = Path(root)
        files = files or DiskFiles()
        settings = settings or StoreSettings(root=root)
        with contextlib.ExitStack() as lock:
            lock.enter_context(locked(root, settings, files))
            store = cls(
                root,
                settings,
                lock,
                files=files,
                clock=clock or SystemClock(),
                loop=loop,
                has_threads=threads,
                is_slave=is_slave,
                may_delete=may_delete,
            )
            store._lock = lock.pop_all()
            return store

    # --- writing ---

    def put(self, message: NewMessage) -> PutResult:
        """Append a message; it is readable after the next dispatch. Never waits."""
        # As long as it is for speed: another call in between costs a put a sixth more.
        if self._refusal:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=self._refusal)
        queue = self._table.get((message.topic, message.queue_id)) or self._new_queue(message)
        if isinstance(queue, PutResult):
            return queue
        result = self._log.append(message, queue)
        if not self._is_dispatch_scheduled:
            self._schedule_dispatch()
        if self._is_sync:
            self._flusher.request()
        return result

    def put_batch(self, batch: NewMessage) -> PutResult:
        """Append the messages of a wire batch (``codec.batch``): all of them, or none."""
        if self._refusal:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=self._refusal)
        queue = self._table.get((batch.topic, batch.queue_id)) or self._new_queue(batch)
        if isinstance(queue, PutResult):
            return queue
        result = self._log.append_batch(batch, queue)
        if not self._is_dispatch_scheduled:
            self._schedule_dispatch()
        if self._is_sync:
            self._flusher.request()
        return result

    def send_tail(
        self,
        topics: dict[str, SendTopic],
        *,
        addition: bytes,
        store_host: bytes,
        id_prefix: str,
        answer: Answer,
    ) -> core.SendTail:
        """What takes plain sends for this store, see ``codec.sends``; used by ``take_sends``."""
        return core.SendTail(
            self._log.tail,
            self._queues.tails,
            topics,
            addition,
            store_host,
            id_prefix,
            _read_plain,
            answer,
        )

    def take_sends(
        self,
        tail: core.SendTail,
        commands: Sequence[Command],
        begin: int,
        header_type: type[SendMessage],
        born_host: bytes,
        host_flags: int,
        heads: list[bytes],
    ) -> int:
        """Store sends from ``commands[begin]`` on, as ``SendTail.take`` does; where it ended.

        For many messages at once what ``put`` is for one. Nobody may wait for the disk.
        """
        if self._refusal or self._log.has_record_crc:
            return begin
        end = tail.take(commands, begin, header_type, born_host, host_flags, heads)
        if end > begin and not self._is_dispatch_scheduled:
            self._schedule_dispatch()
        return end

    def wait_flushed(self, result: PutResult, timeout_ms: int | None = None) -> PutResult:
        """Block until a stored message is on disk; FLUSH_DISK_TIMEOUT when it is not in time.

        For programs with threads; an event loop uses ``watermarks.when_flushed``.
        """
        if not result.status.is_stored:
            return result
        limit_ms = self.settings.sync_flush_timeout_ms if timeout_ms is None else timeout_ms
        self._flusher.request()
        if self.watermarks.wait_flushed(result.end, limit_ms / 1000):
            return result
        reason = self.watermarks.failure or f"not on disk after {limit_ms} ms"
        return msgspec.structs.replace(result, status=PutStatus.FLUSH_DISK_TIMEOUT, reason=reason)

    def append_raw(self, offset: int, data: ReadableBuffer) -> int:
        """Continue the log with another store's bytes (see ``read_raw``); returns the new end.

        Raises OffsetOutOfRange unless ``offset`` is exactly the end of the log, or for an empty log
        where a file begins; StoreError when the store is closed or read-only.
        """
        if self._is_closed or self.watermarks.failure:
            raise StoreError(str(self.root), self._refusal)
        end = self._log.append_raw(offset, data)
        if self._loop is None:
            # A message put next must count on from the ones that came in.
            self._dispatcher.catch_up()
        elif not self._is_dispatch_scheduled:
            self._schedule_dispatch()
        return end

    # --- reading ---

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        limits: GetLimits | None = None,
        *,
        tags: frozenset[int] | None = None,
        accept: Callable[[memoryview], bool] | None = None,
    ) -> GetResult:
        """Read messages of a queue from an offset on; release the result when done with it.

        ``tags`` are the hashes of wanted tags (a hash may be another tag's); ``accept`` sees each
        record that is left and decides.
        """
        if self._loop is None or self._dispatch_timer is not None:
            self._dispatch_if_behind()
        return self._reader.get(
            self._table.get((topic, queue_id)), offset, limits or self._limits, tags, accept
        )

    def pull_tail(
        self,
        online: Mapping[str, OnlineGroup],
        *,
        answer: PullAnswer,
        commit: Callable[[str, str, int, int], object],
    ) -> core.PullTail:
        """What answers plain pulls from this store, see ``codec.pulls``; used by ``take_pulls``."""
        files, queues = self._log.files, self._queues.tails
        return core.PullTail(files, queues, online, _read_plain, answer, commit)

    def take_pulls(
        self, tail: core.PullTail, commands: Sequence[Command], begin: int, frames: list[bytes]
    ) -> int:
        """Answer pulls from ``commands[begin]`` on, as ``PullTail.take`` does; where it ended."""
        if self._dispatch_timer is not None:
            self._dispatch_turn()
        log_end = self.watermarks.committed
        warm_begin = log_end - self._reader.warm_bytes
        return tail.take(commands, begin, PullMessage, warm_begin, log_end, frames)

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The whole record at a log position, to be released; None when there is none."""
        return self._log.record_at(physical_offset)

    def record_by_id(self, message_id: str) -> memoryview | None:
        """The record an offset message id names; which broker it names is not looked at.

        Raises RemoteProtocolError when it is no such id.
        """
        return self._log.record_at(decode_offset_id(message_id).physical_offset)

    def query(
        self,
        topic: str,
        key: str,
        *,
        limit: int = 32,
        begin_ms: int = 0,
        end_ms: int = TIME_MS_MAX,
        kind: KeyKind = KeyKind.KEY,
    ) -> list[int]:
        """Log positions of messages that may have the key; only hashes are compared."""
        self._dispatch_if_behind()
        if self._index is None:
            return []
        return self._index.query(
            topic, key, limit=limit, begin_ms=begin_ms, end_ms=end_ms, kind=kind
        )

    @property
    def index_end(self) -> tuple[int, int]:
        """Log position and store time of the newest message that can be found by key; or zeros."""
        index = self._index
        return (0, 0) if index is None else (index.end_offset, index.end_timestamp)

    def offset_at_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The queue offset of a store time; 0 when there is no such queue."""
        self._dispatch_if_behind()
        queue = self._table.get((topic, queue_id))
        if queue is None:
            return 0
        return self._queues.offset_at_time(queue, self._log, timestamp_ms, boundary)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First offset of a queue that is still there; 0 when there is no such queue."""
        queue = self.queue(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """End of a queue, which is the offset of its next message."""
        queue = self.queue(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue itself, for looking at; its methods are the store's."""
        self._dispatch_if_behind()
        return self._table.get((topic, queue_id))

    def queues(self) -> list[tuple[str, int]]:
        """Topic and id of every queue, in order."""
        self._dispatch_if_behind()
        return sorted(self._table)

    def read_raw(self, offset: int, limit: int) -> memoryview:
        """Bytes of the log within one file, to be released; empty at the end.

        Raises OffsetOutOfRange outside the log.
        """
        return self._log.read_raw(offset, limit)

    @property
    def log_begin(self) -> int:
        return self._log.begin

    @property
    def log_files(self) -> list[LogFileFacts]:
        """The files of the log, oldest first."""
        return self._file_facts()

    @property
    def retention(self) -> Retention:
        """What decides which log files go, for those who need them for longer."""
        return self._retention

    @property
    def log_end(self) -> int:
        return self.watermarks.appended

    @property
    def state(self) -> StoreState:
        """What the store can do now, and why not."""
        return StoreState(
            self._refusal,
            self._disk.state,
            self._disk.reason,
            "" if self._index is None else self._index.failure,
            self._log.files.condemned,
        )

    # --- upkeep ---

    def dispatch(self, limit: int | None = None) -> int:
        """Enter appended records into queues and index; how many. The loop does it by itself."""
        done = self._dispatcher.step(limit or self.settings.dispatch_records_max)
        if self._dispatcher.failure or self._refusal:
            self._update_refusal()
        return done

    def use(self, settings: StoreSettings) -> None:
        """Flush, clean and read as ``settings`` say from now on.

        What files, messages and the pool are like stays as it was when the store was opened.
        Raises SettingsError, and nothing is changed, for hours that are none.
        """
        self._retention.use(settings)
        self._disk.use(settings)
        self._flusher.use(settings)
        self.settings = settings

    def on_flushed(self, callback: Callable[[float], None]) -> None:
        """Have ``callback``, too, told on another thread how many seconds each flush has taken."""
        self._flusher.on_flushed.append(callback)

    def on_arrival(
        self,
        callback: Callable[[set[ConsumeQueue]], None],
        *,
        is_awaited: Callable[[], bool] | None = None,
    ) -> None:
        """Have ``callback`` told, after each dispatch, which queues got messages.

        As long as ``is_awaited`` says that nobody waits for them, what 5 ms bring is
        dispatched together; who reads does not see less.
        """
        self._dispatcher.on_arrival = callback
        self._is_awaited = is_awaited

    def flush(self) -> None:
        """Block until log, queues, index and checkpoint are on disk; ``state`` tells a failure."""
        self._flusher.commit_all()
        self._dispatcher.catch_up()
        self._flusher.flush_all()
        self._update_refusal()

    def vouch(self) -> None:
        """Block until what is dispatched by now is on disk, checkpoint included; on any thread.

        Whoever opens the directory after a crash goes on from there: what was deleted stays so.
        """
        if not self._is_closed:
            self._flusher.flush_all()

    def flush_step(self) -> None:
        """Flush what is due by now; the flusher's thread does it by itself."""
        self._flusher.step()
        self._update_refusal()

    def clean(self, *, at_any_hour: bool = False) -> int:
        """One round of retention: look at the disk, delete what may go; how many log files."""
        state = self._look_at_disk()
        self._log.files.remove_condemned()
        self._log.reclaim_buffers()
        deleted = 0
        facts = self._file_facts()
        now_ms = self._clock.now_ms()
        for file in self._retention.expired(
            facts, now_ms=now_ms, state=state, at_any_hour=at_any_hour
        ):
            if file.end > self._flusher.vouched:
                # Its queues would forget after a crash how far they were.
                self._flusher.hurry()
                break
            path = self._log.files.drop_first()
            _log.info("file=%s deleted, the log begins at %d now", path, self._log.begin)
            deleted += 1
        if deleted or self._followed_begin != self._log.begin:
            self._follow_log()
        if deleted and state is DiskState.REFUSING:
            self._look_at_disk()
        self._try_again()
        self._update_refusal()
        return deleted

    def delete_topic(self, topic: str, *, queues_max: int | None = None) -> int:
        """Forget the queues of a topic; how many. Its records stay in the log until they expire.

        With ``queues_max`` some of the queues, until there is none left: files take their time.
        """
        self._flusher.commit_all()
        self._dispatcher.catch_up()
        return self._queues.delete_topic(topic, queues_max=queues_max)

    def close(self) -> None:
        """Dispatch and flush everything and let go of the directory; harmless when done twice.

        If something could not be brought to disk the directory keeps the mark of a crash, and the
        next one to open it recovers.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._update_refusal()
        if self._clean_timer is not None:
            self._clean_timer.cancel()
        self._flusher.stop()
        self._flusher.commit_all()
        self._dispatcher.catch_up()
        self._flusher.flush_all()
        marks = self.watermarks
        problem = marks.failure or self._dispatcher.failure or self.state.index_failure
        if not problem and not marks.dispatched == marks.appended == marks.flushed:
            problem = f"dispatched to {marks.dispatched} and flushed to {marks.flushed}"
        self._release()
        if problem:
            _log.error("store=%s closed, to be recovered when opened: %s", self.root, problem)
        else:
            self._files.remove(self._layout.abort)
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- helpers ---

    def _new_queue(self, message: NewMessage) -> ConsumeQueue | PutResult:
        """The queue of a message, which is not known yet; a result when there cannot be one."""
        problem = queue_problem(message.topic, message.queue_id)
        if problem:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=problem)
        return self._queues.obtain(message.topic, message.queue_id)

    def _release(self) -> None:
        self._log.close()
        self._queues.close()
        if self._index is not None:
            self._index.close()

    def _dispatch_if_behind(self) -> None:
        """Whoever reads finds what was put, unless the loop's next turn comes to it anyway."""
        if self._dispatch_timer is not None:
            self._dispatch_turn()
        elif self._loop is None and self.watermarks.dispatched < self.watermarks.committed:
            self._dispatcher.catch_up()
            self._update_refusal()

    def _schedule_dispatch(self) -> None:
        assert self._loop is not None
        self._is_dispatch_scheduled = True
        if self._is_awaited is None or self._is_awaited():
            self._loop.call_soon(self._dispatch_turn)
        else:
            # A dispatch costs as much for one message as for ten: a fifth of a send alone. A timer
            # that is shorter than the kernel's tick costs each sleep until then as much (ADR 23).
            self._dispatch_timer = self._loop.call_later(_DISPATCH_SECONDS, self._dispatch_turn)

    def _dispatch_turn(self) -> None:
        self._is_dispatch_scheduled = False
        if self._dispatch_timer is not None:
            self._dispatch_timer.cancel()  # who comes before it does its work
            self._dispatch_timer = None
        if self._is_closed:
            return
        marks = self.watermarks
        before = marks.dispatched
        self.dispatch()
        # Without progress there is half a record, or a full disk: the rest comes, or `clean`.
        if before < marks.dispatched < marks.committed and not self._is_dispatch_scheduled:
            self._schedule_dispatch()

    def _on_progress(self) -> None:
        """Something was committed or flushed, or never will be; on any thread."""
        if self.watermarks.failure:
            self._update_refusal()
        if self._loop is None or self._is_closed:
            self.watermarks.release_waiting()
        elif self.watermarks.has_waiting or self.watermarks.failure or self._log.has_pool:
            self._loop.call_soon_threadsafe(self._progress_turn)

    def _progress_turn(self) -> None:
        self.watermarks.release_waiting()
        self._log.reclaim_buffers()
        self._update_refusal()
        if self.watermarks.dispatched < self.watermarks.committed:
            self._dispatch_turn()

    def _clean_later(self) -> None:
        assert self._loop is not None
        delay = self.settings.clean_interval_ms / 1000
        self._clean_timer = self._loop.call_later(delay, self._clean_turn)

    def _clean_turn(self) -> None:
        if self._is_closed:
            return
        try:
            self.clean()
        except OSError as error:
            _log.error("cleaning failed, tried again later: %s", error)
        self._clean_later()

    def _try_again(self) -> None:
        """Go on with what a full disk had stopped."""
        index = self._index
        if index is not None and index.failure:
            index.failure = ""
            self._dispatcher.feed_index(index.resume_offset, self.watermarks.dispatched)
        if self._dispatcher.failure and self._loop is not None:
            self._dispatch_turn()
        elif self._dispatcher.failure:
            self._dispatcher.catch_up()

    def _look_at_disk(self) -> DiskState:
        places = [Place(path, self._files.usage(path)) for path in self._layout.log_folders]
        state = self._disk.observe(places, Place(self.root, self._files.usage(self.root)))
        self._layout.full_paths = self._disk.full_paths
        return state

    def _file_facts(self) -> list[LogFileFacts]:
        last = self._log.files.last
        return [
            LogFileFacts(
                file.path,
                file.begin,
                file.end,
                self._files.modified_ms(file.path),
                file is last,
            )
            for file in self._log.files
        ]

    def _follow_log(self) -> None:
        """Let queues and index follow a log whose beginning has gone.

        Their files stay as long as the log's do: those may outlive this process.
        """
        begin = self._log.begin
        self._queues.correct_min(begin)
        disk_begin = self._log.files.disk_begin
        if disk_begin is not None and disk_begin != self._followed_begin:
            self._queues.delete_before(disk_begin)
            if self._index is not None:
                self._index.delete_before(disk_begin)
            self._followed_begin = disk_begin

    def _update_refusal(self) -> None:
        if self._is_closed:
            self._refusal = "the store is closed"
        elif self.is_slave:
            self._refusal = "this is a slave: messages go to its master"
        elif self.watermarks.failure:
            self._refusal = f"the store is read-only: {self.watermarks.failure}"
        elif self._dispatcher.failure:
            self._refusal = self._dispatcher.failure
        elif self._disk.state is DiskState.REFUSING:
            self._refusal = self._disk.reason
        else:
            self._refusal = ""


def _read_plain(command: Command, header_type: type[H]) -> H:
    """The header of a request without a field of ours; others are refused, and so not plain.

    The compiled core has read nearly all headers by itself, but leaves those that have a ``Rare``
    field to the plain rules: so only they are looked at here.
    """
    header = core.read(command, header_type)
    if header.is_extended:
        raise RemoteProtocolError("a request with an extension")
    return header
