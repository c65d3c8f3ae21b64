"""Delivers messages with a time of their own when it has come.

Theory of operation. What is put aside arrives in one queue. ``step`` enters what is new there into
the wheel (``timer_index``), then reads the slots whose time is over: walks the units of a slot from
the last to the first, and delivers them in the order in which they came. Recalls are units too;
they are seen while walking, before anything is delivered. A message further away than the wheel
may reach is parked half way, and put into the queue again when that slot is read.

A slot is read once all that was stored before its time was over is in the wheel, so nothing comes
too late for it. How far it is, is saved when the deliveries are on disk: so nothing is lost. What
was delivered but not saved is read again after a crash, or when the clock was set back; then the
log is asked whether it has the message already. So nothing is delivered twice, either, as long as
messages are indexed.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from cometmq.broker.delay.destinations import nothing_is_gone
from cometmq.broker.delay.levels import REAL_TOPIC
from cometmq.broker.delay.timer_index import SPARE_SLOTS, Progress, TimerIndex, timer_record
from cometmq.broker.delay.timer_messages import Deletions, has_left, leaving
from cometmq.broker.delay.timer_rules import DELETE_KEY, OUT_MS, number_of
from cometmq.codec import properties, record, timer
from cometmq.codec.java import INT32_MAX, string_hash
from cometmq.codec.timer import NO_POSITION, TimerCheck, TimerMagic, TimerUnit
from cometmq.errors import RemoteProtocolError
from cometmq.logs import get_logger
from cometmq.model.system_names import TIMER_TOPIC
from cometmq.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.broker.config import BrokerSettings
    from cometmq.clock import Clock
    from cometmq.store import MessageStore
    from cometmq.store.consume_queue import ConsumeQueue
    from cometmq.store.files import Files
    from cometmq.store.results import NewMessage, PutResult

STEP_ENTRIES_MAX: Final = 128
STEP_MESSAGES_MAX: Final = 64
STEP_BYTES_MAX: Final = 1024 * 1024
STEP_UNITS_MAX: Final = 2048
STEP_SLOTS_MAX: Final = 4096
"""What one step does before others may use the loop: entries of the queue, messages delivered and
their bytes (the first one whatever its size), units walked over, empty slots passed."""

RETRY_MS: Final = 100
"""How long to wait after the store has refused a message, or the disk a unit."""
LOOK_MS: Final = 2
"""How long to wait for what is stored to reach the queue."""
CLOCK_LOOK_MS: Final = 1000
"""Longest sleep while something waits: timers do not notice that the machine's clock was set."""
IDLE_SAVE_SECONDS: Final = 60
"""How often progress is saved when nothing but time passes."""
_MARKS_MAX: Final = 1024

# Plain numbers: operators of a Flag take a microsecond each.
_DEFAULT: Final = int(TimerMagic.DEFAULT)
_ROLL: Final = int(TimerMagic.ROLL)
_DELETE: Final = int(TimerMagic.DELETE)
_HOPELESS: Final = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
_log = get_logger(__name__)


class _Reading:
    """A slot that is being read: 8 bytes for each of its messages, while it lasts."""

    __slots__ = ("cursor", "deletions", "positions", "time_ms")

    def __init__(self, time_ms: int, last_position: int) -> None:
        self.time_ms = time_ms
        # Of the unit to look at next, towards the first one.
        self.cursor = last_position
        # Of units to deliver, the first one last.
        self.positions = array("q")
        self.deletions = Deletions()


class _Mark(NamedTuple):
    """When the log is on disk up to ``end``, all slots before ``read_ms`` are done."""

    end: int
    read_ms: int


class _Barrier(NamedTuple):
    """Slots before ``limit_ms`` may be read once the log is in the wheel up to ``end``."""

    limit_ms: int
    end: int


class Timers:
    """All timed messages of one store; wheel and log are made when the first one comes.

    ``put`` is the store's, or whatever counts what it puts; it is never waited for the disk.
    ``is_gone`` says of a topic and a place in the log whether what waits there is to be given up.
    """

    def __init__(
        self,
        store: MessageStore,
        settings: BrokerSettings,
        clock: Clock,
        put: Callable[[NewMessage], PutResult],
        *,
        is_gone: Callable[[str, int], bool] = nothing_is_gone,
        files: Files | None = None,
        wheel_slots: int = timer.WHEEL_SLOTS,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._put = put
        self._is_gone = is_gone
        self._files = files
        self._wheel_slots = wheel_slots
        self._is_enabled = settings.timer_wheel_enable
        self._precision_ms = settings.timer_precision_ms
        self._window_slots = _window_slots(settings.timer_roll_window_slot, wheel_slots // 2)
        self._turn_ms = (wheel_slots - SPARE_SLOTS) * self._precision_ms
        self._index: TimerIndex | None = None
        # The next entry of the queue to enter into the wheel.
        self._queue_offset = 0
        # Time of the next slot to read, and the slot itself while it is being read.
        self._read_ms = 0
        self._reading: _Reading | None = None
        # Whether it is so far back that the wheel has no room for what has come since.
        self._is_far_behind = False
        # No message is due after this.
        self._last_due_ms = 0
        # Slots before this may have been delivered by an earlier run.
        self._doubtful_until_ms = 0
        # Slots before this may be read, and what must happen before later ones may.
        self._limit_ms = 0
        self._barrier: _Barrier | None = None
        # How far it may be saved, and what has yet to reach the disk, oldest first.
        self._safe_ms = 0
        self._marks: deque[_Mark] = deque(maxlen=_MARKS_MAX)
        self._put_end = 0
        # Why a message could not be delivered or a unit written, and when to try again.
        self._problem = ""
        self._resume_ms = 0
        # Messages passed over that were not reported yet, and why the last of them was.
        self._skipped = 0
        self._skip_reason = ""
        self._wake = asyncio.Event()
        self._news = asyncio.Event()
        self._saved: tuple[Progress, int] | None = None
        # Since the start.
        self.entered_count = 0
        self.delivered_count = 0
        self.rolled_count = 0
        self.recalled_count = 0
        self.skipped_count = 0
        # Times of slots that were read once, also before the clock was set back.
        self._reached_ms = 0
        if self._is_enabled and TimerIndex.exists(store.root):
            self._open(clock.now_ms())

    # --- life

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            self._wake.clear()
            now_ms = self._clock.now_ms()
            wake_ms = self.step(now_ms)
            if wake_ms is None:
                await self._wake.wait()
            elif wake_ms <= now_ms:
                await asyncio.sleep(0)
            else:
                await _wait(self._wake, min(wake_ms - now_ms, CLOCK_LOOK_MS) / 1000)

    async def keep(self) -> None:
        """Bring progress to disk from time to time, until cancelled."""
        while True:
            await _wait(self._news, IDLE_SAVE_SECONDS)
            self._news.clear()
            await asyncio.sleep(self._settings.timer_flush_interval_ms / 1000)
            await asyncio.to_thread(self._save_later())
            if self._index is not None and (expired := self._index.drop_expired()):
                try:
                    await asyncio.to_thread(self._index.remove, expired)
                except OSError as error:
                    _log.error("expired files of the timer log stay: %s", error)

    def notify(self) -> None:
        """A message has arrived in the queue; cheap, to be called as often as it happens."""
        self._wake.set()

    def save(self) -> None:
        """Bring to disk how far it is, as far as deliveries are there; blocks."""
        self._save_later()()

    def close(self) -> None:
        """Save and let go of the files; when stopping, after the last flush of the store."""
        self.save()
        if self._index is not None:
            self._index.close()
            self._index = None

    def count_at(self, due_ms: int) -> int:
        """How many messages are due at a time, roughly: recalls count against them."""
        slot = None if self._index is None else self._index.wheel.slot(due_ms)
        return 0 if slot is None else slot.count

    @property
    def waiting_count(self) -> int:
        """Messages in the wheel, roughly: recalls count against them."""
        return 0 if self._index is None else max(self._index.waiting_count, 0)

    @property
    def unread_count(self) -> int:
        """Entries of the queue that are not in the wheel yet."""
        queue = self._store.queue(TIMER_TOPIC, 0)
        return 0 if queue is None else max(queue.max_offset - self._queue_offset, 0)

    def behind_ms(self, now_ms: int) -> int:
        """How long the next slot to read could have been read already, if something is due."""
        if self._index is None or self._read_ms > self._last_due_ms:
            return 0
        return max(now_ms - self._read_ms - self._precision_ms, 0)

    @property
    def put_count(self) -> int:
        """Messages that have left the wheel: delivered, or put into it again on their way."""
        return self.delivered_count + self.rolled_count

    @property
    def saved(self) -> TimerCheck:
        """How far it was when that was saved last."""
        return TimerCheck() if self._index is None else self._index.saved

    # --- step by step

    def step(self, now_ms: int) -> int | None:
        """Do what is due, as far as one step goes; when to come again.

        ``now_ms`` when there is more already, None when there is nothing until something arrives.
        """
        queue = self._store.queue(TIMER_TOPIC, 0) if self._is_enabled else None
        if self._problem and now_ms < self._resume_ms <= now_ms + RETRY_MS:
            return self._resume_ms
        if self._index is None and queue is not None and queue.max_offset > queue.min_offset:
            try:
                self._open(now_ms)
            except OSError as error:
                return self._hold("wheel and log", str(error), now_ms)
        if self._index is None:
            return None
        self._follow_clock(self._index, now_ms)
        try:
            if queue is not None and self._enqueue(self._index, queue, now_ms):
                self._go_on()
            wake_ms = self._dequeue(self._index, queue, now_ms)
        except OSError as error:
            return self._hold(f"queue offset={self._queue_offset}", str(error), now_ms)
        self._report_skipped()
        if queue is not None and self._queue_offset < queue.max_offset:
            return now_ms
        return wake_ms

    def _open(self, now_ms: int) -> None:
        index = TimerIndex(
            self._store,
            precision_ms=self._precision_ms,
            log_file_bytes=self._settings.timer_log_file_bytes,
            now_ms=now_ms,
            files=self._files,
            wheel_slots=self._wheel_slots,
        )
        self._index = index
        self._read_ms, self._queue_offset, self._reached_ms = index.resumed
        self._safe_ms = self._read_ms
        self._doubtful_until_ms = max(index.floor(now_ms), self._reached_ms)
        self._last_due_ms = index.last_due_ms
        _log.info("timers=%d wait, slots are read from %d on", index.waiting_count, self._read_ms)

    # --- from the queue into the wheel

    def _enqueue(self, index: TimerIndex, queue: ConsumeQueue, now_ms: int) -> bool:
        """Enter what has come; whether that was anything."""
        self._queue_offset = max(self._queue_offset, queue.min_offset)
        begin = self._queue_offset
        for offset in range(begin, min(begin + STEP_ENTRIES_MAX, queue.max_offset)):
            physical_offset, size, _ = queue.entry(offset)
            self._is_far_behind = size != INT32_MAX and not self._enter(
                index, physical_offset, size, now_ms
            )
            if self._is_far_behind:
                break
            self._queue_offset = offset + 1
        if self._queue_offset == begin:
            return False
        self._news.set()
        return True

    def _enter(self, index: TimerIndex, physical_offset: int, size: int, now_ms: int) -> bool:
        """Enter a message into the wheel; False when it has to wait for slots to be read."""
        found = self._head(physical_offset)
        if found is None:
            self._skip("no longer in the log")
            return True
        due_ms = number_of(found.properties, OUT_MS)
        real_topic = properties.get(found.properties, REAL_TOPIC)
        if due_ms is None or due_ms < 0 or real_topic is None:
            self._skip("it does not say when and where to deliver it")
            return True
        magic = _DEFAULT
        if properties.get(found.properties, DELETE_KEY) is not None:
            magic |= _DELETE
        write_ms = index.floor(now_ms)
        parked_ms = self._parked_ms(due_ms, write_ms)
        if parked_ms is not None:
            magic |= _ROLL
            due_ms = parked_ms
        is_read = self._reading is not None
        due_ms = max(due_ms, self._read_ms + (self._precision_ms if is_read else 0))
        if due_ms - self._read_ms >= self._turn_ms:
            return False
        enqueue_ms = max(min(write_ms, due_ms), due_ms - INT32_MAX)
        slot = index.wheel.slot(due_ms)
        unit = TimerUnit(
            NO_POSITION if slot is None else slot.last_position,
            magic,
            enqueue_ms,
            due_ms - enqueue_ms,
            physical_offset,
            size,
            string_hash(real_topic),
        )
        index.add(due_ms, unit)
        self.entered_count += 1
        self._last_due_ms = max(self._last_due_ms, due_ms)
        return True

    def _parked_ms(self, due_ms: int, write_ms: int) -> int | None:
        """Where a message waits on its way that is further away than the window; else None."""
        window_ms = self._window_slots * self._precision_ms
        beyond_ms = due_ms - write_ms - window_ms
        if beyond_ms < 0:
            return None
        # When little would be left, the way is halved: the last part must not be too short.
        if beyond_ms < self._window_slots // 3 * self._precision_ms:
            return write_ms + self._window_slots // 2 * self._precision_ms
        return write_ms + window_ms

    def _head(self, physical_offset: int) -> record.Record | None:
        view = self._store.record_at(physical_offset)
        if view is None:
            return None
        try:
            with view:
                found = record.parse(view, with_body=False)
        except RemoteProtocolError:
            return None
        return found if isinstance(found, record.Record) else None

    # --- from the wheel to where it was sent

    def _dequeue(self, index: TimerIndex, queue: ConsumeQueue | None, now_ms: int) -> int | None:
        """Read slots whose time is over; when to come again, as ``step``."""
        if self._reading is None:
            wake_ms = self._find_slot(index, queue, now_ms)
            if self._reading is None:
                return wake_ms
        reading = self._reading
        assert reading is not None
        self._walk(index, reading)
        if reading.cursor == NO_POSITION and not self._deliver_some(index, reading, now_ms):
            return self._resume_ms
        if reading.cursor == NO_POSITION and not reading.positions:
            index.forget(reading.time_ms)
            self._reading = None
            self._read_ms += self._precision_ms
            self._marks.append(_Mark(self._put_end, self._read_ms))
            self._news.set()
        return now_ms

    def _find_slot(self, index: TimerIndex, queue: ConsumeQueue | None, now_ms: int) -> int | None:
        """Find the next slot to read; when to come again if there is none."""
        if not self._may_read(index, queue, now_ms):
            return now_ms + LOOK_MS
        limit_ms = min(self._limit_ms, index.floor(now_ms))
        if self._read_ms > self._last_due_ms:
            self._read_ms = max(self._read_ms, limit_ms)
        for _ in range(STEP_SLOTS_MAX):
            if self._read_ms >= limit_ms:
                is_waiting = self._read_ms <= self._last_due_ms
                return self._read_ms + self._precision_ms if is_waiting else None
            slot = index.wheel.slot(self._read_ms)
            if slot is not None:
                self._reading = _Reading(self._read_ms, slot.last_position)
                break
            self._read_ms += self._precision_ms
        return now_ms

    def _may_read(self, index: TimerIndex, queue: ConsumeQueue | None, now_ms: int) -> bool:
        """Whether everything that may be due by now is in the wheel."""
        limit_ms = index.floor(now_ms)
        marks = self._store.watermarks
        if self._barrier is None and self._limit_ms < limit_ms:
            self._barrier = _Barrier(limit_ms, marks.appended)
        if self._barrier is None:
            return True
        end = 0 if self._is_far_behind else self._barrier.end
        if marks.dispatched < end or (queue is not None and self._has_before(queue, end)):
            return False
        self._limit_ms = self._barrier.limit_ms
        self._barrier = None
        return True

    def _has_before(self, queue: ConsumeQueue, end: int) -> bool:
        """Whether the queue has something from before ``end`` that is not in the wheel yet."""
        offset = self._queue_offset
        return offset < queue.max_offset and queue.entry(offset)[0] < end

    def _follow_clock(self, index: TimerIndex, now_ms: int) -> None:
        """Go back with a clock that was set back: messages may be due in slots already read.

        Only where the log can be asked what was delivered from them.
        """
        now_slot_ms = index.floor(now_ms)
        if now_slot_ms >= self._read_ms or self._reading is not None:
            return
        if not self._store.settings.has_index:
            return
        self._doubtful_until_ms = max(self._doubtful_until_ms, self._read_ms)
        self._reached_ms = max(self._reached_ms, self._read_ms)
        self._read_ms = now_slot_ms
        self._safe_ms = min(self._safe_ms, now_slot_ms)
        self._marks.clear()
        self._news.set()

    def _walk(self, index: TimerIndex, reading: _Reading) -> None:
        """Follow the units of a slot back to its first."""
        for _ in range(STEP_UNITS_MAX):
            position = reading.cursor
            if position == NO_POSITION:
                return
            unit = index.log.unit(position)
            if unit is None:
                reading.cursor = NO_POSITION  # removed with the messages, or never on disk
                return
            if unit.magic & _DELETE and not unit.magic & _ROLL:
                found = timer_record(self._store, unit.physical_offset, unit.message_size)
                if found is not None:
                    reading.deletions.add(found)
            else:
                reading.positions.append(position)
            reading.cursor = unit.previous if 0 <= unit.previous < position else NO_POSITION

    def _deliver_some(self, index: TimerIndex, reading: _Reading, now_ms: int) -> bool:
        """Deliver a few messages of a slot; False when one has to be tried again later."""
        count, size = STEP_MESSAGES_MAX, STEP_BYTES_MAX
        while reading.positions and count > 0 and size > 0:
            unit = index.log.unit(reading.positions[-1])
            problem = self._deliver(reading, unit, now_ms)
            if problem:
                self._hold(f"slot={reading.time_ms}", problem, now_ms)
                return False
            self._go_on()
            reading.positions.pop()
            count -= 1
            size -= 0 if unit is None else unit.message_size
        return True

    def _deliver(self, reading: _Reading, unit: TimerUnit | None, now_ms: int) -> str:
        """Put a message where it belongs; why it must be tried again, empty if it must not."""
        found = (
            None
            if unit is None
            else timer_record(self._store, unit.physical_offset, unit.message_size)
        )
        if unit is None or found is None:
            self._skip("no longer in the log")
            return ""
        # Also of those that are parked: put ahead once more, they would lie behind the deletion.
        topic = properties.get(found.properties, REAL_TOPIC) or ""
        if self._is_gone(topic, unit.physical_offset):
            return ""
        is_rolled = bool(unit.magic & _ROLL)
        if not is_rolled and reading.deletions.covers(found):
            self.recalled_count += 1
            return ""
        is_doubtful = reading.time_ms < self._doubtful_until_ms
        if is_doubtful and has_left(self._store, found, is_rolled=is_rolled):
            return ""
        message = leaving(found, unit, now_ms, is_rolled=is_rolled)
        if isinstance(message, str):
            self._skip(message)
            return ""
        try:
            result = self._put(message)
        except OSError as error:
            return str(error)
        if result.status.is_stored:
            self._put_end = result.end
            self.delivered_count += not is_rolled
            self.rolled_count += is_rolled
            return ""
        problem = f"{result.status.name} {result.reason}"
        # What is illegal now is so for ever, and would hold up all messages behind it.
        if result.status in _HOPELESS:
            self._skip(problem)
            return ""
        return problem

    # --- how far it is

    def _save_later(self) -> Callable[[], None]:
        """What brings to disk how far it is now; blocks, on any thread."""
        index = self._index
        if index is None:
            return _ignore
        flushed = self._store.watermarks.flushed
        while self._marks and self._marks[0].end <= flushed:
            self._safe_ms = self._marks.popleft().read_ms
        if not self._marks and flushed >= self._put_end:
            # A slot that is half read must be read again.
            self._safe_ms = self._read_ms
        elif self._marks:
            self._news.set()
        reached_ms = max(self._reached_ms, self._safe_ms)
        state = Progress(self._safe_ms, self._queue_offset, reached_ms), index.log.end
        if state == self._saved:
            return _ignore
        self._saved = state
        progress, log_end = state
        now_ms = self._clock.now_ms()
        return lambda: index.sync(progress, log_end, now_ms)

    # --- telling

    def _hold(self, place: str, problem: str, now_ms: int) -> int:
        """Something is to be tried again; when."""
        if not self._problem:
            _log.error(
                "%s timers cannot go on, tried again every %d ms: %s", place, RETRY_MS, problem
            )
        self._problem = problem
        self._resume_ms = now_ms + RETRY_MS
        return self._resume_ms

    def _go_on(self) -> None:
        if self._problem:
            _log.info("timers go on")
            self._problem = ""

    def _skip(self, reason: str) -> None:
        self._skipped += 1
        self._skip_reason = reason

    def _report_skipped(self) -> None:
        if self._skipped:
            _log.error("timers=%d given up, the last one: %s", self._skipped, self._skip_reason)
            self.skipped_count += self._skipped
            self._skipped = 0


def _window_slots(asked: int, half: int) -> int:
    """How many slots ahead a message may be: up to half the wheel, as Apache has it."""
    most = half - SPARE_SLOTS
    return asked if 2 <= asked <= most else most


def _ignore() -> None:
    """There is nothing to save."""


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
