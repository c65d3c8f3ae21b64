"""The queues of one push consumer: how they come, how they go, and what happens in between.

A queue is in exactly one of three places: owned (it is pulled and handled), leaving (a handler of
it still runs in order, its offset is being saved or its lock given back), or gone. One that is
leaving does not come back before it is gone: or there would be two handlers at a time, and what is
still to be saved and unlocked would be that of the new one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, Generic, Protocol, TypeVar

from cometmq import logs
from cometmq.client.concurrent_handling import ConcurrentHandling
from cometmq.client.consumer_setup import ConsumerSetup
from cometmq.client.core.consume_rates import ConsumeRates
from cometmq.client.core.positions import StartRule
from cometmq.client.core.process_queue import FlowLimits
from cometmq.client.core.rebalance import queue_limit
from cometmq.client.offset_stores import OffsetStore
from cometmq.client.orderly_handling import OrderlyHandling
from cometmq.client.owned_queue import OwnedQueue
from cometmq.client.pulling import Puller
from cometmq.client.queue_locking import QueueLocking
from cometmq.client.queue_offsets import start_offset
from cometmq.client.queue_pulling import QueuePulling
from cometmq.codec.bodies.clients import ProcessQueueInfo
from cometmq.errors import CometError
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.running import Background

_log = logs.get_logger("cometmq.client")

T = TypeVar("T")

LEAVE_SECONDS: Final = 0.5
"""What a rebalance waits for the handler of a queue in order; then it goes on without it."""
RESET_SECONDS: Final = 10.0
"""The same when a group is set to other offsets."""


class Member(Protocol):
    """Who decides which queues come and go."""

    def forget(self, queue: MessageQueue) -> None: ...

    def renew(self, topic: str) -> None: ...


class PushQueues(Generic[T]):
    """Owns the queues; ``membership`` and ``pulling`` are set before the first one comes."""

    membership: Member
    pulling: QueuePulling[T]

    def __init__(
        self,
        setup: ConsumerSetup[T],
        store: OffsetStore,
        handling: ConcurrentHandling[T] | OrderlyHandling[T],
        puller: Puller,
        *,
        locking: QueueLocking | None,
        rates: ConsumeRates,
        background: Background,
    ) -> None:
        self.owned: dict[MessageQueue, OwnedQueue[T]] = {}
        self._leaving: dict[MessageQueue, OwnedQueue[T]] = {}
        self._is_stopping = False  # no queue comes any more
        self._setup = setup
        self._settings = setup.settings
        self._clock = setup.clock
        self._store = store
        self._handling = handling
        self._puller = puller
        self._locking = locking
        self._rates = rates
        self._background = background
        self._rule = StartRule(setup.settings.start)
        self._limits: dict[str, FlowLimits] = {}  # by topic
        self._remade: dict[MessageQueue, int] = {}  # how often in a row, without a pull between

    # --- what the membership asks for

    async def queue_added(self, queue: MessageQueue) -> bool:
        """Begin to read a queue; False when its lock, its offset or its last handler says no."""
        if queue in self.owned:
            return True
        if queue in self._leaving or not await self._is_ours(queue):
            return False
        self._store.remove(queue)
        try:
            offset = await start_offset(self._setup.instance, queue, self._rule, self._store.stored)
        except CometError as error:
            _log.warning("queue=%s not begun: %s", queue, error)
            if self._locking is not None:
                await self._locking.unlock((queue,))
            return False
        if self._is_stopping:
            return False
        # Stored soon: a group that begins at the end must not begin at a later end after a crash.
        self._store.update(queue, offset, forward_only=False)
        self._begin(queue, offset)
        return True

    async def queue_removed(self, queue: MessageQueue) -> bool:
        """Stop reading a queue, and say how far it is."""
        owned = self.owned.get(queue)
        if owned is None:
            return True
        self._take_out(owned)
        if self._locking is None:
            self._drop(owned)
            await self._let_go(owned, lambda: self._store.persist((queue,)))
            return True
        owned.leave()
        self._handling.leave(owned)
        if await _idle(owned, LEAVE_SECONDS):
            await self._let_go(owned, lambda: self._leave(owned))
        else:
            work = self._let_go(owned, lambda: self._leave_later(owned))
            self._background.spawn(f"leaving {queue}", work)
        return True

    def queues_changed(
        self, topic: str, known: tuple[MessageQueue, ...], mine: tuple[MessageQueue, ...]
    ) -> None:
        """Divide the limits of the topic, and let brokers take our subscription for the newest."""
        del known
        settings, count = self._settings, len(mine)
        self._limits[topic] = FlowLimits(
            queue_limit(settings.cached_max, settings.topic_cached_max, count),
            queue_limit(settings.cached_mib_max, settings.topic_cached_mib_max, count),
            None if settings.is_orderly else settings.span_max,
        )
        for queue in mine:
            if queue in self.owned:
                self.owned[queue].limits = self._limits[topic]
        self.membership.renew(topic)
        self._setup.instance.heartbeat_soon()

    # --- what queues themselves lead to

    def abandon(self, owned: OwnedQueue[T]) -> None:
        """Another member has the lock: nothing of the queue counts any more."""
        queue = owned.queue
        self._drop(owned)
        self._store.remove(queue)
        if self.owned.get(queue) is not owned:
            return  # it is leaving already
        self._take_out(owned)
        if owned.idle.is_set():
            del self._leaving[queue]
        else:
            work = self._let_go(owned, owned.idle.wait)
            self._background.spawn(f"abandoning {queue}", work)
        self.membership.forget(queue)

    def correct(self, owned: OwnedQueue[T], offset: int) -> None:
        """The broker does not have the offset that was pulled: begin anew where it says."""
        _log.warning(
            "queue=%s has no offset %d, going on at %d", owned.queue, owned.next_offset, offset
        )
        work = self._move(owned, offset, seconds=RESET_SECONDS)
        self._background.spawn(f"correcting {owned.queue}", work)

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on elsewhere, in those of the queues that are owned."""
        moves = [
            self._move(owned, offsets[queue], seconds=RESET_SECONDS)
            for queue, owned in tuple(self.owned.items())
            if queue in offsets
        ]
        await asyncio.gather(*moves)

    def look_for_stuck(self) -> None:
        """Begin queues anew in which no pull began for long: a bug, or a clock that was set."""
        now_ms, limit_ms = self._clock.now_ms(), self._settings.pull_idle_ms_max
        for queue, owned in tuple(self.owned.items()):
            if owned.has_pulled:
                self._remade.pop(queue, None)
            if not owned.cached.is_pull_overdue(now_ms, limit_ms):
                continue
            times = self._remade[queue] = self._remade.get(queue, 0) + 1
            say = _log.error if times > 1 else _log.warning
            say("queue=%s not pulled for %d ms, begun anew (%d. time)", queue, limit_ms, times)
            self._background.spawn(f"beginning {queue} anew", self._remake(owned))

    # --- for the member

    def persistable(self) -> Collection[MessageQueue]:
        """Whose offsets may be written: not those that others may have moved."""
        every = (*self.owned.values(), *self._leaving.values())
        return [one.queue for one in every if self._may_save(one)]

    async def renew_locks(self) -> None:
        """Also of queues that still have to leave."""
        await self._handling.renew((*self.owned.values(), *self._leaving.values()))

    def stop_pulling(self) -> None:
        """Also nothing comes any more."""
        self._is_stopping = True
        for owned in self.owned.values():
            owned.leave()

    def drop_all(self) -> None:
        for owned in (*self.owned.values(), *self._leaving.values()):
            owned.drop()

    def infos(self) -> dict[MessageQueue, ProcessQueueInfo]:
        return {
            queue: owned.cached.info(max(0, self._store.peek(queue)))
            for queue, owned in self.owned.items()
        }

    # --- the inside

    def _begin(self, queue: MessageQueue, offset: int) -> None:
        limits = self._limits.get(queue.topic)
        if limits is None:
            span_max = None if self._settings.is_orderly else self._settings.span_max
            limits = FlowLimits(self._settings.cached_max, self._settings.cached_mib_max, span_max)
        now_ms = self._clock.now_ms()
        owned = OwnedQueue(
            queue,
            self._setup.source(queue.broker_name),
            self._rates.tally(queue.topic),
            next_offset=offset,
            limits=limits,
            now_ms=now_ms,
        )
        if self._locking is not None:
            owned.cached.lock(now_ms)
        self.owned[queue] = owned
        owned.pulling = asyncio.get_running_loop().create_task(
            self.pulling.run(owned), name=f"pulling {queue}"
        )
        owned.pulling.add_done_callback(_say_if_died)

    def _drop(self, owned: OwnedQueue[T]) -> None:
        self._handling.drop(owned)
        owned.drop()

    def _take_out(self, owned: OwnedQueue[T]) -> None:
        """From now on it is leaving."""
        self._puller.forget(owned.queue)
        del self.owned[owned.queue]
        self._leaving[owned.queue] = owned

    async def _let_go(self, owned: OwnedQueue[T], work: Callable[[], Awaitable[object]]) -> None:
        """A queue that leaves is gone when ``work`` is done, whatever comes of it.

        Unless it is cancelled: then the consumer ends, which saves and unlocks what still leaves.
        """
        queue = owned.queue
        try:
            await work()
        except Exception:
            _log.exception("queue=%s not let go as it should be, going on", queue)
        self._store.remove(queue)
        del self._leaving[queue]

    async def _leave_later(self, owned: OwnedQueue[T]) -> None:
        """Keep the lock until the handler has ended, but not for ever."""
        if not await _idle(owned, self._settings.consume_timeout_ms / 1000):
            _log.error("queue=%s let go although its handler still runs", owned.queue)
        await self._leave(owned)
        await owned.idle.wait()

    async def _leave(self, owned: OwnedQueue[T]) -> None:
        if self._may_save(owned):
            await self._store.persist((owned.queue,), is_synchronous=True)
        self._drop(owned)
        await self._unlock(owned)

    async def _unlock(self, owned: OwnedQueue[T]) -> None:
        if self._locking is not None and owned.cached.is_locked:  # else others have it already
            owned.cached.unlock()
            await self._locking.unlock((owned.queue,))

    async def _unlock_later(self, owned: OwnedQueue[T]) -> None:
        await owned.idle.wait()
        await self._unlock(owned)

    async def _is_ours(self, queue: MessageQueue) -> bool:
        """Lock it, where that is needed."""
        if self._locking is None:
            return True
        return (await self._locking.lock((queue,))).get(queue, False)

    def _may_save(self, owned: OwnedQueue[T]) -> bool:
        if self._locking is None:
            return True
        return owned.cached.holds_lock(self._clock.now_ms(), self._settings.lock_life_ms)

    async def _move(self, owned: OwnedQueue[T], offset: int, *, seconds: float) -> None:
        queue = owned.queue
        if self.owned.get(queue) is not owned:
            return
        self._drop(owned)
        self._store.freeze(queue, offset)
        await _idle(owned, seconds)
        if self.owned.get(queue) is not owned:
            return  # it was taken away meanwhile
        await self._store.persist((queue,), is_synchronous=True)
        await self._forget(owned)

    async def _remake(self, owned: OwnedQueue[T]) -> None:
        self._drop(owned)
        await self._store.persist((owned.queue,))
        await self._forget(owned)

    async def _forget(self, owned: OwnedQueue[T]) -> None:
        """Let a dropped queue come anew."""
        queue = owned.queue
        if self.owned.get(queue) is not owned:
            return
        self._take_out(owned)
        if owned.idle.is_set():
            await self._let_go(owned, lambda: self._unlock(owned))
        else:
            work = self._let_go(owned, lambda: self._unlock_later(owned))
            self._background.spawn(f"forgetting {queue}", work)
        self.membership.forget(queue)


async def _idle(owned: OwnedQueue[T], seconds: float) -> bool:
    """Wait for the handler of a queue in order, for some time; whether none is at work."""
    try:
        async with asyncio.timeout(seconds):
            await owned.idle.wait()
    except TimeoutError:
        return False
    return True


def _say_if_died(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("%s ended", task.get_name(), exc_info=error)
