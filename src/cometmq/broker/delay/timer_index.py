"""Wheel, log and check page of timed messages: opened, mended, kept.

Theory of operation. A message with a time of its own lies in the queue of ``rmq_sys_wheel_timer``.
From there each one gets a unit in the timer log, and the slot of its time points to the last of its
units, which points to the one before. All of this can be made again from the queue as long as it
is known how far that was read, and each entry of the queue gets exactly one unit: so the last unit
says it.

The check page is written after log and wheel are on disk, so what it says is true of them; they may
be ahead of it, each by itself. Opened again, the log tells its end, the units behind the page's
position are entered into the wheel, and a wheel that knows of units the log has not is made anew.

With another precision units share a slot that did not before, or the other way round. So when the
wheel is made anew, each unit is told which one is before it in its slot now, and who is too far
away for a wheel of smaller steps is parked on its way. Before the first is touched, the page goes
back to where the log begins, and stays there until all of it is on disk: who is killed meanwhile
begins once more, whatever state log and wheel are in.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from cometmq.broker.delay.timer_checkpoint import TimerCheckpoint
from cometmq.broker.delay.timer_log import TimerLog
from cometmq.broker.delay.timer_wheel import TimerWheel
from cometmq.codec import properties, record, timer
from cometmq.codec.java import string_hash
from cometmq.codec.properties import Property
from cometmq.codec.timer import NO_POSITION, TimerCheck, TimerMagic, TimerUnit
from cometmq.errors import RemoteProtocolError
from cometmq.logs import get_logger
from cometmq.model.system_names import TIMER_TOPIC
from cometmq.store.directory import CONFIG_FOLDER
from cometmq.store.files import DiskFiles

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.codec.record import Record
    from cometmq.store import MessageStore
    from cometmq.store.files import Files

LOG_FOLDER: Final = "timerlog"
WHEEL_NAME: Final = "timerwheel"
CHECK_NAME: Final = "timercheck"

SPARE_SLOTS: Final = 60
"""Slots that stay free between the last one written and the first one not read yet."""

_log = get_logger(__name__)
_RECENT_UNITS: Final = 1000
# Plain numbers: operators of a Flag take a microsecond each.
_ROLL: Final = int(TimerMagic.ROLL)
_DELETE: Final = int(TimerMagic.DELETE)
_REAL_TOPIC: Final = Property.REAL_TOPIC.encode()


class Progress(NamedTuple):
    """Where to go on: the time of the next slot to read, the next entry of the queue.

    Slots before ``reached_ms`` were read once, perhaps before a clock was set back.
    """

    read_ms: int
    queue_offset: int
    reached_ms: int = 0


class TimerIndex:
    """The three of them. Opening makes what is missing; ``resumed`` says where to go on.

    Raises OSError when the disk has no room for them.
    Everything but ``sync`` belongs to one thread.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        precision_ms: int,
        log_file_bytes: int,
        now_ms: int,
        files: Files | None = None,
        wheel_slots: int = timer.WHEEL_SLOTS,
    ) -> None:
        root, self._files = store.root, files or DiskFiles()
        self._store = store
        self._precision_ms = precision_ms
        # How far ahead of the slot that is read next one may be written.
        self.turn_ms = (wheel_slots - SPARE_SLOTS) * precision_ms
        # Guards the files while they are synced.
        self._lock = threading.Lock()
        self._is_closed = False
        # Why nothing more is saved; empty while all is well.
        self.failure = ""
        with contextlib.ExitStack() as opened:
            self._checkpoint = TimerCheckpoint(self._files, root / CONFIG_FOLDER / CHECK_NAME)
            opened.callback(self._checkpoint.close)
            self.log = TimerLog(self._files, root / LOG_FOLDER, log_file_bytes)
            opened.callback(self.log.close)
            path = root / WHEEL_NAME
            self.wheel = TimerWheel(self._files, path, precision_ms, slots=wheel_slots)
            opened.pop_all()
        self._is_wheel_settled = not self.wheel.is_new
        # The last time at which something was due when opened, and how many messages wait, roughly.
        self.last_due_ms = 0
        self.waiting_count = 0
        self.resumed = self._recover(now_ms)

    @staticmethod
    def exists(root: Path) -> bool:
        """Whether a directory has anything of it."""
        return any((root / name).exists() for name in (LOG_FOLDER, WHEEL_NAME))

    def floor(self, time_ms: int) -> int:
        """The slot time that a time belongs to."""
        return time_ms // self._precision_ms * self._precision_ms

    # --- writing

    def add(self, due_ms: int, unit: TimerUnit) -> None:
        """Enter a unit into log and wheel. Raises OSError, with nothing done, on a full disk."""
        self.wheel.add(due_ms, self.log.append(unit), _change(unit))
        self.waiting_count += _change(unit)

    def forget(self, time_ms: int) -> None:
        """The slot of that time is done: its messages do not wait any more."""
        slot = self.wheel.slot(time_ms)
        self.waiting_count -= 0 if slot is None else slot.count

    @property
    def saved(self) -> TimerCheck:
        """The page that was written last."""
        return self._checkpoint.saved or TimerCheck()

    def sync(self, progress: Progress, log_end: int, now_ms: int) -> None:
        """Save that everything up to ``log_end`` and ``progress`` is done; blocks, on any thread.

        After an error of the disk nothing is saved any more: nobody knows what it has lost, and
        the next one to open the directory finds out.
        """
        with self._lock:
            if self.failure or self._is_closed:
                return
            try:
                self.log.sync()
                self.wheel.sync()
                if not self._is_wheel_settled:
                    self._files.settle(self.wheel.path)
                    self._is_wheel_settled = True
                self._checkpoint.save(self._check(progress, log_end, now_ms))
            except OSError as error:
                self.failure = str(error)
                _log.error("timers are not saved any more, restart the broker: %s", error)

    def drop_expired(self) -> list[Path]:
        """Let go of log files whose messages are gone; they are to be removed on some thread."""
        with self._lock:
            return self.log.drop_before(self._store.log_begin)

    def remove(self, paths: list[Path]) -> None:
        for path in paths:
            self._files.remove(path)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self.log.close()
            self.wheel.close()
            self._checkpoint.close()

    def _check(self, progress: Progress, log_end: int, now_ms: int) -> TimerCheck:
        old = self.saved
        return TimerCheck(
            progress.read_ms,
            log_end,
            progress.queue_offset,
            progress.queue_offset,
            old.state_version,
            now_ms,
            old.version_counter + 1,
            max(progress.reached_ms, old.reached_timestamp),
            self._precision_ms,
        )

    # --- opening

    def _recover(self, now_ms: int) -> Progress:
        check = self._checkpoint.saved or TimerCheck()
        self.log.find_end(check.log_flush_position, self._is_possible)
        last = self._last_whole()
        read_ms = self._read_ms(check, now_ms)
        queue_offset = self._queue_offset(check, last)
        if not self._is_wheel_usable(check, read_ms):
            self._make_wheel(msgspec.structs.replace(check, queue_offset=queue_offset), read_ms)
        return Progress(read_ms, queue_offset, check.reached_timestamp)

    def _is_wheel_usable(self, check: TimerCheck, read_ms: int) -> bool:
        """Whether it is right as it is, or with the units that it may lack."""
        if self.wheel.is_new or check.log_flush_position <= self.log.begin:
            return False
        if check.precision_ms not in (0, self._precision_ms):
            return False
        begin = min(check.log_flush_position, self.log.end)
        for position, unit in self.log.units(begin):
            self.wheel.add(_due_ms(unit), position, _change(unit))
        return self._is_wheel_right(read_ms)

    def _is_possible(self, unit: TimerUnit) -> bool:
        """Whether there may be such a message: a power cut takes them from the end of the log."""
        end = unit.physical_offset + unit.message_size
        return unit.physical_offset >= 0 and unit.message_size > 0 and end <= self._store.log_end

    def _last_whole(self) -> TimerUnit | None:
        """The last unit; one that a crash has torn is cut off. Only the last can be torn."""
        last = self.log.last()
        if last is not None and not self._is_whole(last[1]):
            self.log.cut(last[0])
            last = self.log.last()
        return None if last is None else last[1]

    def _is_whole(self, unit: TimerUnit) -> bool:
        if unit.physical_offset < self._store.log_begin:
            return True  # nobody can tell any more, and nobody will need it
        found = timer_record(self._store, unit.physical_offset, unit.message_size)
        if found is None:
            return False
        real_topic = properties.get(found.properties, _REAL_TOPIC) or ""
        return unit.topic_hash == string_hash(real_topic)

    def _read_ms(self, check: TimerCheck, now_ms: int) -> int:
        """The slot to go on with: as saved, or the first that anything can lie in."""
        if check.read_timestamp:
            return self.floor(check.read_timestamp)
        for _, unit in self.log.units(self.log.begin):
            return self.floor(unit.enqueue_timestamp)
        # No message in the queue is due before it was stored.
        queue = self._store.queue(TIMER_TOPIC, 0)
        if queue is not None and queue.min_offset < queue.max_offset:
            physical_offset, size, _ = queue.entry(queue.min_offset)
            found = timer_record(self._store, physical_offset, size)
            if found is not None:
                return self.floor(min(now_ms, found.store_timestamp))
        return self.floor(now_ms)

    def _queue_offset(self, check: TimerCheck, last: TimerUnit | None) -> int:
        """Behind the entry of the last unit. Apache gives none to messages that come too late, so
        the page may know better.
        """
        queue = self._store.queue(TIMER_TOPIC, 0)
        if queue is None:
            return 0
        # What the page vouched for and is not there any more must be entered again.
        is_whole = self.log.end >= check.log_flush_position
        offset = check.queue_offset if is_whole else queue.min_offset
        if last is not None:
            behind = last.physical_offset
            offset = max(offset, queue.first_offset(queue.min_offset, lambda at: at > behind))
        return min(max(offset, queue.min_offset), queue.max_offset)

    def _is_wheel_right(self, read_ms: int) -> bool:
        """Whether all slots that are still to be read point to units of theirs, and the other way
        round; the latter for the latest only, as that is enough to see another precision.
        """
        for recent in self.log.recent(_RECENT_UNITS):
            due_ms = _due_ms(recent)
            if due_ms >= read_ms and self.wheel.slot(due_ms) is None:
                return False
        for slot in self.wheel.used(read_ms):
            unit = self.log.unit(slot.last_position)
            if unit is not None:
                self._note(slot.time * self._precision_ms, slot.count)
            elif slot.last_position >= self.log.begin:
                return False
            # Else the messages of the slot are gone, and their units with them.
            if unit is not None and self._time(unit) != slot.time:
                return False
        return True

    def _make_wheel(self, check: TimerCheck, read_ms: int) -> None:
        """Make it from the log; for a directory without one that is an empty one.

        The page is to say ``check``, but for how far the log is right.
        """
        if check.log_flush_position > self.log.begin:
            again = msgspec.structs.replace(check, log_flush_position=self.log.begin)
            self._checkpoint.save(again)
        if not self.wheel.is_new:
            self.wheel.clear()
        self._mark_far(read_ms)
        self.last_due_ms = self.waiting_count = 0
        for position, unit in self.log.units(self.log.begin):
            if _due_ms(unit) >= read_ms:
                self._enter_again(position, unit, read_ms)
        if self.log.end > self.log.begin:
            _log.warning(
                "timers=%d entered into the wheel again: it did not fit the log",
                self.waiting_count,
            )

    def _mark_far(self, read_ms: int) -> None:
        """Have it on disk who is to be parked, or a power cut might leave it due too early."""
        is_any = False
        for position, unit in self.log.units(self.log.begin):
            if _due_ms(unit) >= read_ms + self.turn_ms:
                rolled = msgspec.structs.replace(unit, magic=unit.magic | _ROLL)
                self.log.replace(position, rolled)
                is_any = True
        if is_any:
            self.log.sync()

    def _enter_again(self, position: int, unit: TimerUnit, read_ms: int) -> None:
        due_ms = _due_ms(unit)
        if due_ms >= read_ms + self.turn_ms:
            due_ms = read_ms + self.floor((due_ms - read_ms) % (self.turn_ms // 2))
        slot = self.wheel.slot(due_ms)
        right = msgspec.structs.replace(
            unit,
            previous=NO_POSITION if slot is None else slot.last_position,
            delay_ms=due_ms - unit.enqueue_timestamp,
        )
        if right != unit:
            self.log.replace(position, right)
        self.wheel.add(due_ms, position, _change(unit))
        self._note(due_ms, _change(unit))

    def _note(self, due_ms: int, count: int) -> None:
        self.last_due_ms = max(self.last_due_ms, due_ms)
        self.waiting_count += count

    def _time(self, unit: TimerUnit) -> int:
        return _due_ms(unit) // self._precision_ms


def timer_record(store: MessageStore, physical_offset: int, size: int) -> Record | None:
    """A message that waits, by its place in the log; None when it is not there (any more)."""
    view = store.record_at(physical_offset)
    if view is None:
        return None
    try:
        with view:
            found = record.parse(view)
    except RemoteProtocolError:
        return None
    if not isinstance(found, record.Record):
        return None
    return found if found.topic == TIMER_TOPIC and found.size == size else None


def _due_ms(unit: TimerUnit) -> int:
    return unit.enqueue_timestamp + unit.delay_ms


def _change(unit: TimerUnit) -> int:
    """What a unit does to the count of its slot: who takes a message back counts against it."""
    return -1 if unit.magic & _DELETE else 1
