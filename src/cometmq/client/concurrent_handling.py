"""Handling messages in any order, many at a time: what becomes of each when its handler has ended.

Theory of operation. A message stays in the cache of its queue until it is acknowledged or safe with
a broker; the offset that is committed never passes one that is there. Acknowledgements are
collected and taken out of the caches together, once per turn of the loop. Failed messages are sent
back; one that could not be sent back stays and is handled again after a pause. What a cancelled
handler had stays, too, and goes back when it has held up its queue for too long. What comes from a
queue that was dropped meanwhile is ignored: somebody else has the message by now.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from cometmq import logs
from cometmq.client.closing_time import STEP_SECONDS_MIN
from cometmq.client.consumer_setup import ConsumerSetup
from cometmq.client.core.message import (
    ACK,
    RETRY,
    Decision,
    DecisionKind,
    Message,
    redelivered,
    settle,
)
from cometmq.client.core.message_batch import Batch
from cometmq.client.core.process_queue import NOTHING
from cometmq.client.failure_log import FailureLog
from cometmq.client.handler_runner import Left, Runner
from cometmq.client.offset_stores import OffsetStore
from cometmq.client.owned_queue import OwnedQueue
from cometmq.client.sending_back import DEAD_LETTER_LEVEL, SendingBack

_log = logs.get_logger("cometmq.client")

T = TypeVar("T")

TIMEOUT_LEVEL: Final = 3
"""The delay level of a message whose handler takes too long."""
TIMEOUTS_PER_LOOK: Final = 16
"""Messages of a queue that are sent back for that at a time."""


class ConcurrentHandling(Generic[T]):
    """For one consumer; ``sending_back`` is None when it broadcasts. The runner is set later."""

    runner: Runner[OwnedQueue[T]]

    def __init__(
        self,
        setup: ConsumerSetup[T],
        store: OffsetStore,
        sending_back: SendingBack | None,
        *,
        failures: FailureLog,
    ) -> None:
        self._settings = setup.settings
        self._store = store
        self._sending_back = sending_back
        self._batch_size = setup.batch_size
        self._clock = setup.clock
        self._failures = failures
        self._loop = asyncio.get_running_loop()
        self._due: list[OwnedQueue[T]] = []  # with acknowledged messages still in the cache
        self._returning: set[asyncio.Task[None]] = set()  # messages on their way back
        self._timing_out: dict[Message[T], asyncio.Event] = {}  # the same, for taking too long
        self._kept: dict[Message[T], tuple[OwnedQueue[T], float]] = {}  # with nobody; since when
        self._turns = asyncio.Semaphore(setup.settings.concurrency)

    def put(self, owned: OwnedQueue[T], messages: Sequence[Message[T]]) -> None:
        """Cache what a pull brought, and have it handled."""
        owned.cached.put(messages)
        size = self._batch_size
        if size is None:
            self.runner.submit(owned, messages)
        else:
            starts = range(0, len(messages), size)
            self.runner.submit(owned, [Batch(messages[start : start + size]) for start in starts])

    def finished(
        self, owned: OwnedQueue[T], item: Any, error: BaseException | None, seconds: float
    ) -> None:
        """A handler has ended with a message or a batch; called once for each."""
        owned.tally.handled_seconds += seconds
        if error is None and self._batch_size is None:
            decision = settle(item, ACK)
            if decision is ACK:
                owned.acked.append(item)
                if not owned.is_due:
                    self._note_due(owned)
                return
        self._finished(owned, item, error)

    def flush(self) -> None:
        """Take acknowledged messages out of the caches, and move the offsets."""
        due, self._due = self._due, []
        now_ms = self._clock.now_ms()
        for owned in due:
            owned.is_due = False
            acked, owned.acked = owned.acked, []
            owned.tally.handled += len(acked)
            owned.tally.ok += len(acked)
            self._remove(owned, owned.cached.remove_all(acked, now_ms))

    def leave(self, owned: OwnedQueue[T]) -> None:
        """Handlers go on here until the queue is dropped."""

    def drop(self, owned: OwnedQueue[T]) -> None:
        """The queue will not be ours any more, as soon as this returns."""
        self.runner.discard(owned)
        self.flush()

    async def renew(self, queues: Iterable[OwnedQueue[T]]) -> None:
        """There are no locks here."""

    async def drain(self, seconds: float) -> None:
        """Let handlers end, and what they sent back arrive."""
        deadline = self._loop.time() + seconds
        try:
            await self.runner.drain(seconds)
        finally:
            await self.runner.stop()
            self.flush()
            if self._returning:
                left = max(STEP_SECONDS_MIN, deadline - self._loop.time())
                await asyncio.wait(self._returning, timeout=left)
            for task in self._returning:
                task.cancel()

    async def send_back_overdue(self) -> None:
        """Send back what holds up its queue because its handler takes too long."""
        limit = self._settings.consume_timeout_ms / 1000
        now = self._clock.monotonic()
        self._kept = {
            message: (owned, at)
            for message, (owned, at) in self._kept.items()
            if not owned.cached.is_dropped and message in owned.cached
        }
        late: list[tuple[OwnedQueue[T], Any]]
        late = [(owned, item) for item, (owned, at) in self._kept.items() if now - at > limit]
        if self._sending_back is None:  # broadcast: nobody takes it back, and it must not stay
            for owned, item in late:
                self._give_back(owned, item, RETRY)
            return
        late += [(owned, item) for owned, item, at in self.runner.running() if now - at > limit]
        for owned, item in late:
            held: Sequence[Message[T]] = (item,) if isinstance(item, Message) else item
            await self._time_out(self._sending_back, owned, held)

    # --- the inside

    async def _time_out(
        self, sending_back: SendingBack, owned: OwnedQueue[T], held: Sequence[Message[T]]
    ) -> None:
        """Send back as many of these as stand at the front of their queue."""
        still_there = [message for message in held if message in owned.cached]
        for message in still_there[:TIMEOUTS_PER_LOOK]:
            if owned.cached.is_dropped or owned.cached.first() is not message:
                return
            _log.warning("message=%s handler takes too long, sent back", message.message_id)
            ended = self._timing_out[message] = asyncio.Event()
            try:
                if not await sending_back.send_back(message, TIMEOUT_LEVEL):
                    return
                now_ms = self._clock.now_ms()
                self._remove(owned, owned.cached.remove_if_first(message, now_ms))
            finally:
                del self._timing_out[message]
                ended.set()

    def _note_due(self, owned: OwnedQueue[T]) -> None:
        owned.is_due = True
        if not self._due:
            self._loop.call_soon(self.flush)
        self._due.append(owned)

    def _remove(self, owned: OwnedQueue[T], offset: int) -> None:
        if offset != NOTHING and not owned.cached.is_dropped:
            self._store.update(owned.queue, offset, forward_only=True)
        if owned.room is not None:
            owned.has_room()

    def _finished(self, owned: OwnedQueue[T], item: Any, error: BaseException | None) -> None:
        messages: Sequence[Message[T]] = (item,) if isinstance(item, Message) else item
        if error is not None and not isinstance(error, Exception):
            self._cancelled(owned, messages, error)
            return
        if isinstance(item, Message):
            decisions = [settle(item, ACK if error is None else RETRY)]
        else:
            decisions = item.settled(has_failed=error is not None)
        if error is not None:
            follows = "it is sent back" if self._sending_back else "it is left behind"
            self._failures.note(messages[0], error, follows)
        for message, decision in zip(messages, decisions, strict=True):
            self._decided(owned, message, decision)

    def _cancelled(
        self, owned: OwnedQueue[T], messages: Sequence[Message[T]], error: BaseException
    ) -> None:
        """What was decided before counts; the rest goes to whoever has the queue next."""
        since = self._clock.monotonic()
        for message in messages:
            if message.decision is not None:
                self._decided(owned, message, message.decision)
            elif owned.cached.is_dropped:
                pass
            elif self._sending_back is None and isinstance(error, Left):
                # Nobody would deliver it again: the next iterator gets it, now or after a restart.
                self.runner.submit(owned, (message,))
            else:
                self._kept[message] = (owned, since)
        if not owned.cached.is_dropped and not isinstance(error, Left):
            follows = "it stays until the consumer ends, loses the queue or waited for too long"
            self._failures.note(messages[0], error, follows)

    def _decided(self, owned: OwnedQueue[T], message: Message[T], decision: Decision) -> None:
        if decision is ACK:
            self._ack(owned, message)
        else:
            self._give_back(owned, message, decision)

    def _ack(self, owned: OwnedQueue[T], message: Message[T]) -> None:
        owned.acked.append(message)
        if not owned.is_due:
            self._note_due(owned)

    def _give_back(self, owned: OwnedQueue[T], message: Message[T], decision: Decision) -> None:
        owned.tally.handled += 1
        owned.tally.failed += 1
        if self._sending_back is None:
            now_ms = self._clock.now_ms()
            self._remove(owned, owned.cached.remove(message, now_ms))
            return
        work = self._return(self._sending_back, owned, message, decision)
        task = self._loop.create_task(work, name=f"sending back {message.message_id}")
        self._returning.add(task)
        task.add_done_callback(self._returned)

    async def _return(
        self,
        sending_back: SendingBack,
        owned: OwnedQueue[T],
        message: Message[T],
        decision: Decision,
    ) -> None:
        is_dead = decision.kind is DecisionKind.DEAD_LETTER
        level = DEAD_LETTER_LEVEL if is_dead else decision.delay_level
        timing_out = self._timing_out.get(message)
        if timing_out is not None:
            await timing_out.wait()
        async with self._turns:
            # Removed already: it took too long, and was sent back for that.
            if owned.cached.is_dropped or message not in owned.cached:
                return
            is_safe = await self._is_taken_back(sending_back, message, level)
        if is_safe:
            self._remove(owned, owned.cached.remove(message, self._clock.now_ms()))
        elif not owned.cached.is_dropped:
            pause = self._settings.resend_pause_ms / 1000
            self._loop.call_later(pause, self._again, owned, message)

    async def _is_taken_back(
        self, sending_back: SendingBack, message: Message[T], level: int
    ) -> bool:
        try:
            return await sending_back.send_back(message, level)
        except Exception:  # whatever it is, the message must not be forgotten over it
            _log.exception("message=%s not sent back, going on", message.message_id)
            return False

    def _returned(self, task: "asyncio.Task[None]") -> None:
        self._returning.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed", task.get_name(), exc_info=error)

    def _again(self, owned: OwnedQueue[T], message: Message[T]) -> None:
        if not owned.cached.is_dropped and message in owned.cached:
            again = redelivered(message)
            owned.cached.put((again,))
            items = (again,) if self._batch_size is None else (Batch((again,)),)
            self.runner.submit(owned, items)
