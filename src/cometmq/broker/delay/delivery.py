"""Delivers messages of the delay levels when their time has come.

Theory of operation. Each level has a queue, and a message's queue entry says when it is due. Times
grow along a queue, since all of its messages wait equally long: so only the first message that is
not delivered yet, the *head*, has to be watched. ``step`` delivers what is due, a bounded number at
a time, and says when to come again; ``run`` sleeps until then, or until something arrives.

A level's offset moves once its message is in the log, and it is saved once that message is on
disk. So a message is delivered again after a crash, perhaps, but is never lost: what was put aside
had been on disk for long, and must not be worse off for being delivered.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from cometmq.broker.delay.destinations import nothing_is_gone
from cometmq.broker.delay.levels import REAL_QUEUE_ID, REAL_TOPIC, RECORD_CRC, rewritten
from cometmq.codec import properties, record
from cometmq.codec.bodies.offsets import DelayOffsetTable
from cometmq.codec.java import INT32_MAX
from cometmq.errors import RemoteProtocolError
from cometmq.logs import get_logger
from cometmq.model.limits import PROPERTIES_BYTES_MAX
from cometmq.model.system_names import HALF_TOPIC
from cometmq.model.topic import SCHEDULE_TOPIC, DataVersion
from cometmq.store.results import NewMessage, PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.broker.delay.levels import DelayLevels
    from cometmq.clock import Clock
    from cometmq.store import MessageStore
    from cometmq.store.consume_queue import ConsumeQueue
    from cometmq.store.documents import ConfigDocument
    from cometmq.store.results import PutResult

STEP_MESSAGES_MAX: Final = 64
STEP_BYTES_MAX: Final = 1024 * 1024
"""What one step delivers before others may use the loop; the first message whatever its size."""

RETRY_MS: Final = 100
"""How long a level waits after the store has refused a message, or the disk its queue."""

CLOCK_LOOK_MS: Final = 1000
"""Longest sleep while something waits: timers do not notice that the machine's clock was set, nor
that it slept."""

_QUEUE_ID: Final = re.compile("[0-9]{1,10}")
_HOPELESS: Final = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
_log = get_logger(__name__)


class _Head(msgspec.Struct, frozen=True, gc=False):
    """The first message of a level that is not delivered: where it lies, and when it is due."""

    physical_offset: int
    size: int
    due_ms: int

    @property
    def is_filler(self) -> bool:
        """Stands for a message that is gone."""
        return self.size == INT32_MAX


class _Level:
    """How far the messages of one level are delivered."""

    __slots__ = (
        "delay_ms",
        "head",
        "number",
        "offset",
        "problem",
        "resume_ms",
        "skip_reason",
        "skipped",
    )

    def __init__(self, number: int, delay_ms: int, offset: int) -> None:
        self.number = number
        self.delay_ms = delay_ms
        # Of the next message to be delivered.
        self.offset = offset
        # That message, if it has been looked at.
        self.head: _Head | None = None
        # Why it could not be delivered, empty if it was not tried, and when to try again.
        self.problem = ""
        self.resume_ms = 0
        # Messages passed over that the log was not told of yet, and why the last of them was.
        self.skipped = 0
        self.skip_reason = ""

    def wait_ms(self, head: _Head, now_ms: int) -> int:
        """How long it is until something can be done; 0 when it is now.

        A message that would wait longer than its level allows is due: the clock was set back.
        """
        wait_ms = max(head.due_ms - now_ms, 0)
        if wait_ms > self.delay_ms:
            wait_ms = 0
        if self.problem:
            wait_ms = max(wait_ms, min(self.resume_ms - now_ms, RETRY_MS))
        return wait_ms


class _Outcome(NamedTuple):
    """What became of a message: it is over with it, or it must be tried again."""

    is_over: bool
    problem: str = ""


class _Budget:
    """What is left of a step."""

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = STEP_MESSAGES_MAX
        self.bytes = STEP_BYTES_MAX

    @property
    def is_spent(self) -> bool:
        return self.messages <= 0 or self.bytes <= 0

    def spend(self, size: int) -> None:
        self.messages -= 1
        self.bytes -= size


class LevelDelivery:
    """All levels of one store. ``on_progress`` is called when there is something new to save.

    ``put`` is the store's, or whatever counts what it puts; it is never waited for the disk.
    ``is_gone`` says of a topic and a place in the log whether what waits there is to be given up.
    """

    def __init__(
        self,
        store: MessageStore,
        levels: DelayLevels,
        document: ConfigDocument[DelayOffsetTable],
        clock: Clock,
        put: Callable[[NewMessage], PutResult],
        *,
        is_gone: Callable[[str, int], bool] = nothing_is_gone,
    ) -> None:
        self._store = store
        self._clock = clock
        self._put = put
        self._is_gone = is_gone
        self.on_progress: Callable[[], None] = _ignore
        loaded = document.load()
        self._levels = [
            _Level(number, levels.delay_ms(number), self._begin(number, loaded))
            for number in range(1, levels.count + 1)
        ]
        # The level that a step begins with: where the one before had to stop.
        self._turn = 0
        # What may be saved, levels that are not configured now included.
        self._safe = dict(loaded.offset_table)
        self._safe |= self._offsets()
        self._version = loaded.data_version or DataVersion(state_version=0)
        # End of the last message delivered.
        self._put_end = 0
        # Somebody will tell when it is on disk.
        self._is_watching = False
        self._wake = asyncio.Event()
        # Since the start.
        self.delivered_count = 0
        self.skipped_count = 0
        self._warn_of_strangers(levels.count)

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
                await self._sleep(min(wake_ms - now_ms, CLOCK_LOOK_MS) / 1000)

    def notify(self) -> None:
        """A message has arrived in a schedule queue; cheap, to be called as often as it happens."""
        self._wake.set()

    def settle(self) -> None:
        """Have saved what is on disk by now; when stopping, after the last flush of the store."""
        if self._store.watermarks.flushed >= self._put_end and self._take(self._offsets()):
            self.on_progress()

    def table(self) -> DelayOffsetTable:
        """What is to be saved: as far as deliveries are on disk."""
        return DelayOffsetTable(dict(sorted(self._safe.items())), self._version)

    # --- delivering

    def step(self, now_ms: int) -> int | None:
        """Deliver what is due, as far as one step goes; when to come again.

        ``now_ms`` when more is due already, None when there is nothing until something arrives.
        """
        budget = _Budget()
        begin = self._turn
        waits = []
        for number in range(begin, begin + len(self._levels)):
            level = self._levels[number % len(self._levels)]
            wait_ms = self._serve(level, now_ms, budget)
            if wait_ms is not None:
                waits.append(wait_ms)
            if budget.is_spent:
                self._turn = (number + 1) % len(self._levels)
                waits.append(0)
                break
        if budget.messages < STEP_MESSAGES_MAX:
            self._watch_disk()
        return now_ms + min(waits) if waits else None

    def _serve(self, level: _Level, now_ms: int, budget: _Budget) -> int | None:
        """Deliver what is due of one level; how long until its next, None when there is none."""
        wait_ms: int | None = 0
        while not budget.is_spent:
            try:
                head = level.head or self._look(level)
            except OSError as error:
                self._hold(level, str(error), now_ms + RETRY_MS)
                wait_ms = RETRY_MS
                break
            wait_ms = None if head is None else level.wait_ms(head, now_ms)
            if head is None or wait_ms:
                break
            is_over, problem = self._deliver(head)
            if not is_over:
                self._hold(level, problem, now_ms + RETRY_MS)
                wait_ms = RETRY_MS
                break
            if problem:
                level.skipped += 1
                level.skip_reason = problem
            self._move_on(level)
            budget.spend(0 if head.is_filler else head.size)
        if level.skipped and not budget.is_spent:
            self._report_skipped(level)
        return wait_ms

    def _look(self, level: _Level) -> _Head | None:
        """Find the head of a level; None when all of it is delivered.

        Raises OSError when the queue's file cannot be mapped.
        """
        queue = self._store.queue(SCHEDULE_TOPIC, level.number - 1)
        if queue is None:
            return None
        level.offset = _within(queue, level.offset)
        if level.offset == queue.max_offset:
            return None
        physical_offset, size, due_ms = queue.entry(level.offset)
        if queue.extension is not None:
            # Without its unit nothing says when: better early than never.
            due_ms = queue.extension.tags_code(due_ms) or 0
        level.head = _Head(physical_offset, size, due_ms)
        return level.head

    def _deliver(self, head: _Head) -> _Outcome:
        """Put a message where it was sent to, if that is possible."""
        message = None if head.is_filler else self._restored(head.physical_offset)
        if message is None:
            return _Outcome(True, "no longer in the log")
        if isinstance(message, str):
            return _Outcome(True, message)
        if self._is_gone(message.topic, head.physical_offset):
            return _Outcome(True)
        try:
            result = self._put(message)
        except OSError as error:
            return _Outcome(False, str(error))
        if result.status.is_stored:
            self._put_end = result.end
            self.delivered_count += 1
            return _Outcome(True)
        # What is illegal now is so for ever, and would hold up all messages behind it.
        is_hopeless = result.status in _HOPELESS
        return _Outcome(is_hopeless, f"{result.status.name} {result.reason}")

    def _restored(self, physical_offset: int) -> NewMessage | str | None:
        """The message as it was sent; None when it is gone, or why it cannot be delivered."""
        view = self._store.record_at(physical_offset)
        if view is None:
            return None
        try:
            with view:
                found = record.parse(view)
        except RemoteProtocolError as error:
            return str(error)
        assert isinstance(found, record.Record)
        topic = properties.get(found.properties, REAL_TOPIC)
        queue_id = properties.get(found.properties, REAL_QUEUE_ID) or ""
        if not topic or not _QUEUE_ID.fullmatch(queue_id):
            return "it does not say where it was sent to"
        if topic == HALF_TOPIC:
            return "it is half of a transaction"
        return NewMessage(
            topic,
            int(queue_id),
            found.body,
            _kept(found.properties),
            found.born_timestamp,
            found.born_host,
            found.store_host,
            found.flag,
            found.sys_flag,
            found.reconsume_times,
        )

    # --- how far it is

    def _begin(self, number: int, loaded: DelayOffsetTable) -> int:
        """Where to go on with a level: as saved, but within what its queue has."""
        queue = self._store.queue(SCHEDULE_TOPIC, number - 1)
        return 0 if queue is None else _within(queue, loaded.offset_table.get(number, 0))

    def _offsets(self) -> dict[int, int]:
        return {
            level.number: level.offset
            for level in self._levels
            if level.offset or level.number in self._safe
        }

    def _watch_disk(self) -> None:
        """Have what is delivered saved when it is on disk."""
        if self._is_watching:
            return
        self._is_watching = True
        offsets = self._offsets()

        def on_flushed(is_flushed: bool) -> None:
            # If it never will be there, the store takes no more messages, either.
            if not is_flushed:
                return
            self._is_watching = False
            if self._take(offsets):
                self.on_progress()
            if offsets != self._offsets():
                self._watch_disk()

        self._store.watermarks.when_flushed(self._put_end, on_flushed)

    def _take(self, offsets: dict[int, int]) -> bool:
        """Take offsets for safe; whether any is new."""
        safe = self._safe | offsets
        if safe == self._safe:
            return False
        self._safe = safe
        self._version = self._version.advanced(self._clock.now_ms())
        return True

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    # --- telling

    def _hold(self, level: _Level, problem: str, resume_ms: int) -> None:
        if not level.problem:
            _log.error(
                "level=%d offset=%d cannot be delivered, tried again every %d ms: %s",
                level.number,
                level.offset,
                RETRY_MS,
                problem,
            )
        level.problem = problem
        level.resume_ms = resume_ms

    def _move_on(self, level: _Level) -> None:
        if level.problem:
            _log.info("level=%d offset=%d goes on", level.number, level.offset)
        level.problem = ""
        level.offset += 1
        level.head = None

    def _report_skipped(self, level: _Level) -> None:
        _log.error(
            "level=%d messages=%d given up, the last one before offset %d: %s",
            level.number,
            level.skipped,
            level.offset,
            level.skip_reason,
        )
        self.skipped_count += level.skipped
        level.skipped = 0

    def _warn_of_strangers(self, count: int) -> None:
        for topic, queue_id in self._store.queues():
            if topic != SCHEDULE_TOPIC or queue_id < count:
                continue
            number = queue_id + 1
            waiting = self._store.max_offset(topic, queue_id) - self._safe.get(number, 0)
            if waiting > 0:
                _log.warning(
                    "level=%d messages=%d are not delivered: messageDelayLevel has %d levels only",
                    number,
                    waiting,
                    count,
                )


def _ignore() -> None:
    """Nobody saves."""


def _within(queue: ConsumeQueue, offset: int) -> int:
    """An offset that the queue has: its beginning goes with the log, its end with a crash."""
    return min(max(offset, queue.min_offset), queue.max_offset)


def _kept(text: bytes) -> bytes:
    r"""Properties as they are stored again: all of them, but for the checksum of the old record.

    4.x leaves the last ``\x02`` away; we do not, unless there is no room for it.
    """
    if RECORD_CRC in text:
        return rewritten(text, {RECORD_CRC: None})
    if text and not text.endswith(b"\x02") and len(text) < PROPERTIES_BYTES_MAX:
        return text + b"\x02"
    return text
