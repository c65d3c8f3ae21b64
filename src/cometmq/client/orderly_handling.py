"""Handling the messages of each queue in its order, one call of the handler at a time.

Theory of operation. A queue with messages has one task that takes the first of them, has them
handled and commits them, again and again, until there are none. What failed returns to the front of
its queue, and the queue rests; nothing is taken before everything taken earlier is committed or has
returned. In a group only the member that has the broker's lock of a queue may
handle it: when the lock could not be renewed for too long the queue waits, and when another member
got it the queue is abandoned with everything in memory. Broadcasting members need no locks.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from cometmq import logs
from cometmq.client.consumer_setup import ConsumerSetup
from cometmq.client.core.message import (
    ACK,
    SUSPEND,
    Decision,
    DecisionKind,
    Message,
    Mode,
    redelivered,
    settle,
)
from cometmq.client.core.message_batch import Batch
from cometmq.client.core.process_queue import NOTHING
from cometmq.client.failure_log import FailureLog
from cometmq.client.handler_runner import Left, Runner
from cometmq.client.offset_stores import OffsetStore
from cometmq.client.owned_queue import OwnedQueue
from cometmq.client.queue_locking import QueueLocking
from cometmq.client.sending_back import SendingBack

_log = logs.get_logger("cometmq.client")

T = TypeVar("T")

LOCK_PAUSE: Final = 0.1
"""Before a lock that has expired is asked for."""
LOCK_RETRY_PAUSE: Final = 3.0
"""Before it is asked for again when nobody could say whose it is."""
TURN_PAUSE: Final = 0.01
"""What a queue that was handled for long leaves to the others."""
_FOREIGN_LIVES: Final = 1.5
"""A lock that was not renewed for so many lives may have been somebody else's meanwhile."""


class OrderlyHandling(Generic[T]):
    """For one consumer; ``locking`` and ``sending_back`` are None when it broadcasts.

    ``abandon`` is told of queues that others have locked. The runner is set later.
    """

    runner: Runner[OwnedQueue[T]]

    def __init__(
        self,
        setup: ConsumerSetup[T],
        store: OffsetStore,
        sending_back: SendingBack | None,
        *,
        locking: QueueLocking | None,
        abandon: Callable[[OwnedQueue[T]], None],
        failures: FailureLog,
    ) -> None:
        self._settings = setup.settings
        self._store = store
        self._sending_back = sending_back
        self._locking = locking
        self._abandon = abandon
        self._batch_size = setup.batch_size
        self._clock = setup.clock
        self._failures = failures
        self._loop = asyncio.get_running_loop()
        self._turns = asyncio.Semaphore(setup.settings.concurrency)
        self.tasks: set[asyncio.Task[None]] = set()  # one for each queue with messages
        self._calling: dict[OwnedQueue[T], Any] = {}  # what the handler was called with
        self._interrupted: set[OwnedQueue[T]] = set()  # whose task was cancelled inside of a call
        self._stopping = asyncio.Event()

    def put(self, owned: OwnedQueue[T], messages: Sequence[Message[T]]) -> None:
        """Cache what a pull brought, and see to it that the queue is handled."""
        if owned.cached.put(messages) and not self._stopping.is_set():
            self._begin(owned)

    def finished(
        self, owned: OwnedQueue[T], item: Any, error: BaseException | None, seconds: float
    ) -> None:
        """Nothing is submitted here: handlers are called and waited for."""
        raise AssertionError((owned, item, error, seconds))

    def flush(self) -> None:
        """Nothing is collected here."""

    def leave(self, owned: OwnedQueue[T]) -> None:
        """A handler that runs is let alone, one that has not begun does not; see ``owned.idle``."""
        item = self._calling.get(owned)
        if item is not None:
            self.runner.withdraw(item)

    def drop(self, owned: OwnedQueue[T]) -> None:
        """The same; what a handler that runs says is ignored."""
        self.leave(owned)

    async def drain(self, seconds: float) -> None:
        """Begin nothing more, and let handlers end."""
        self._stopping.set()
        deadline = self._loop.time() + seconds
        try:
            await self.runner.drain(seconds)
            if self.tasks:  # what they do after a call
                await asyncio.wait(self.tasks, timeout=max(0, deadline - self._loop.time()))
        finally:
            tasks = tuple(self.tasks)
            for task in tasks:
                task.cancel()
            await self.runner.stop()
            if tasks:
                await asyncio.wait(tasks, timeout=1)

    async def send_back_overdue(self) -> None:
        """A message in order cannot be handled elsewhere: there is no such limit."""

    async def renew(self, queues: Iterable[OwnedQueue[T]]) -> None:
        """Ask for the locks of these queues again."""
        if self._locking is None:
            return
        # A dropped one whose handler still runs needs its lock, too.
        owned = {o.queue: o for o in queues if o.cached.is_locked or not o.cached.is_dropped}
        answers = await self._locking.lock(owned)
        for queue, is_ours in answers.items():
            self._note_lock(owned[queue], is_ours)

    # --- one queue

    def _begin(self, owned: OwnedQueue[T]) -> None:
        task = self._loop.create_task(self._handle(owned), name=f"handling {owned.queue}")
        self.tasks.add(task)
        task.add_done_callback(lambda task: self._ended(task, owned))

    async def _handle(self, owned: OwnedQueue[T]) -> None:
        while not owned.is_leaving and not self._stopping.is_set():
            try:
                if not self._holds_lock(owned):
                    pause: float | None = await self._relock(owned)
                else:
                    async with self._turns:
                        pause = await self._turn(owned)
            except Exception:
                _log.exception("queue=%s handling failed, going on", owned.queue)
                owned.cached.roll_back()  # or the next commit would pass what was not done
                pause = self._settings.suspend_ms / 1000
            if pause is None:
                return
            await self._sleep(pause)

    async def _turn(self, owned: OwnedQueue[T]) -> float | None:
        """Handle what there is; seconds to rest before the next turn, None when nothing is left."""
        began = self._clock.monotonic()
        limit = self._settings.continuous_ms_max / 1000
        while not owned.is_leaving and not self._stopping.is_set():
            if not self._holds_lock(owned):
                return TURN_PAUSE
            if self._clock.monotonic() - began > limit:
                return TURN_PAUSE
            messages = owned.cached.take(self._batch_size or 1, self._clock.now_ms())
            if not messages:
                return None
            pause = await self._call(owned, messages)
            if pause is not None:
                return pause
        return None

    async def _call(self, owned: OwnedQueue[T], messages: list[Message[T]]) -> float | None:
        """One call of the handler and what follows from it; how long the queue is to rest."""
        item = messages[0] if self._batch_size is None else Batch(messages)
        began = self._clock.monotonic()
        owned.idle.clear()
        self._calling[owned] = item
        try:
            error = await self.runner.call(item)
            owned.tally.handled_seconds += self._clock.monotonic() - began
            owned.tally.handled += len(messages)
            if owned.cached.is_dropped:
                return None
            return await self._settle(owned, messages, item, error)
        except asyncio.CancelledError:
            self._commit_acked(owned, messages)
            self._interrupted.add(owned)
            raise
        finally:
            del self._calling[owned]
            owned.idle.set()

    async def _settle(
        self,
        owned: OwnedQueue[T],
        messages: list[Message[T]],
        item: Any,
        error: BaseException | None,
    ) -> float | None:
        rest = self._settings.suspend_ms / 1000
        if error is not None and not isinstance(error, Exception):
            if not isinstance(error, Left):
                self._failures.note(messages[0], error, "it is handled again")
            owned.cached.again(messages)
            return rest
        if error is not None:
            self._failures.note(messages[0], error, "its queue rests")
        decisions = self._decisions(item, error)
        done = 0
        pause: float | None = None
        for message, decision in zip(messages, decisions, strict=True):
            if decision is not ACK and not await self._is_buried(owned, message, decision):
                pause = rest if decision.suspend_ms is None else decision.suspend_ms / 1000
                break
            done += 1
        self._commit(owned, messages[done:], done)
        return pause

    def _decisions(self, item: Any, error: BaseException | None) -> list[Decision]:
        if not isinstance(item, Message):
            decisions: list[Decision] = item.settled(has_failed=error is not None)
            return decisions
        return [settle(item, ACK if error is None else SUSPEND)]

    async def _is_buried(
        self, owned: OwnedQueue[T], message: Message[T], decision: Decision
    ) -> bool:
        """Whether a failed message is out of the way, so that its queue can go on."""
        owned.tally.failed += 1
        if message.source.mode is Mode.BROADCAST or self._sending_back is None:
            return True
        limit = self._settings.reconsume_max
        is_over = limit >= 0 and message.reconsume_times >= limit
        if decision.kind is DecisionKind.DEAD_LETTER or is_over:
            return await self._sending_back.send_copy(message, is_dead=True)
        return False

    def _commit_acked(self, owned: OwnedQueue[T], messages: list[Message[T]]) -> None:
        """The handler was cancelled: what it had acknowledged before is done all the same."""
        done = 0
        while done < len(messages) and messages[done].decision is ACK:
            done += 1
        self._commit(owned, messages[done:], done)

    def _commit(self, owned: OwnedQueue[T], left: list[Message[T]], done: int) -> None:
        if owned.cached.is_dropped:
            return
        owned.tally.ok += done
        if left:
            owned.cached.again(left)
            owned.cached.put([redelivered(message) for message in left])
        offset = owned.cached.commit()
        if offset != NOTHING:
            self._store.update(owned.queue, offset, forward_only=False)
        if owned.room is not None:
            owned.has_room()

    async def _sleep(self, seconds: float) -> None:
        """Not longer than this consumer runs."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    def _ended(self, task: "asyncio.Task[None]", owned: OwnedQueue[T]) -> None:
        self.tasks.discard(task)
        if task.cancelled():
            # By its handler, unless the whole loop ends: that must not stop the queue.
            if owned in self._interrupted and not self._stopping.is_set():
                self._begin(owned)
            self._interrupted.discard(owned)
        elif (error := task.exception()) is not None:
            _log.error("%s failed", task.get_name(), exc_info=error)

    # --- locks

    def _holds_lock(self, owned: OwnedQueue[T]) -> bool:
        if self._locking is None:
            return True
        return owned.cached.holds_lock(self._clock.now_ms(), self._settings.lock_life_ms)

    async def _relock(self, owned: OwnedQueue[T]) -> float:
        assert self._locking is not None
        await asyncio.sleep(LOCK_PAUSE)
        answers = await self._locking.lock((owned.queue,))
        if owned.queue not in answers:
            return LOCK_RETRY_PAUSE
        self._note_lock(owned, answers[owned.queue])
        return TURN_PAUSE

    def _note_lock(self, owned: OwnedQueue[T], is_ours: bool) -> None:
        if owned.cached.is_dropped:
            return
        now_ms = self._clock.now_ms()
        life_ms = self._settings.lock_life_ms * _FOREIGN_LIVES
        was_foreign = owned.cached.is_lock_older_than(life_ms, now_ms)
        if is_ours and not was_foreign:
            owned.cached.lock(now_ms)
            return
        _log.warning("queue=%s its lock was lost, begun anew when it is ours again", owned.queue)
        owned.cached.unlock()
        self._abandon(owned)
