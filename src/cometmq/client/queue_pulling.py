"""Pulling the queues of a push consumer: one pull under way for each, always.

The loop belongs to its queue: it ends when the queue is dropped and with nothing else. Whatever a
pull brings or raises, there is a next one, at once or after a pause.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from cometmq import logs
from cometmq.client.consumer_setup import ConsumerSetup
from cometmq.client.core.arrivals import arrived
from cometmq.client.core.message import Message
from cometmq.client.hooks import FilterHook
from cometmq.client.offset_stores import OffsetStore
from cometmq.client.owned_queue import OwnedQueue
from cometmq.client.pulling import Pulled, Puller, PullFlag, PullStatus
from cometmq.codec.codes import ResponseCode
from cometmq.errors import CometError, Refused
from cometmq.model.group import SubscriptionData

_log = logs.get_logger("cometmq.client")

T = TypeVar("T")

FULL_PAUSE: Final = 0.05
"""How long a queue with enough in memory waits before it looks again, if nobody wakes it."""
BUSY_PAUSE: Final = 0.02
"""After a broker said that it has too much to do."""
REST_PAUSE: Final = 1.0
"""Before a paused consumer, a topic without subscription or an expired lock is looked at again."""
GREETING_SECONDS: Final = 1.0
"""Least time between heartbeats that are asked for because brokers do not know us."""
_UNKNOWN = (
    ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
    ResponseCode.FILTER_DATA_NOT_EXIST,
    ResponseCode.FILTER_DATA_NOT_LATEST,
)
"""The broker has not heard the last heartbeat."""


class Handling(Protocol[T]):
    """Who gets what was pulled."""

    def put(self, owned: OwnedQueue[T], messages: Sequence[Message[T]]) -> None: ...


class QueuePulling(Generic[T]):
    """For all queues of one consumer; ``run`` is the loop of one.

    ``correct`` is told of queues whose offset the broker does not have, and where to go on.
    ``subscriptions`` are what is to be pulled, by topic.
    """

    def __init__(
        self,
        setup: ConsumerSetup[T],
        puller: Puller,
        *,
        store: OffsetStore,
        handling: Handling[T],
        subscriptions: Mapping[str, SubscriptionData],
        filters: Sequence[FilterHook],
        correct: Callable[[OwnedQueue[T], int], None],
    ) -> None:
        self._instance = setup.instance
        self._clock = setup.clock
        self._puller = puller
        self._settings = settings = setup.settings
        self._group = setup.shown_group
        self._store = store
        self._handling = handling
        self._subscriptions = subscriptions
        self._filters = tuple(filters)
        self._correct = correct
        self._loop = asyncio.get_running_loop()
        self._flags = PullFlag.SUSPEND
        if settings.is_subscription_in_pulls:
            self._flags |= PullFlag.SUBSCRIPTION
        self._is_committing = setup.is_cluster
        self._has_locks = setup.has_locks
        self._next_greeting = float("-inf")
        self._interval = settings.pull_interval_ms / 1000
        self.going = asyncio.Event()  # clear while the consumer is paused
        self.going.set()

    async def run(self, owned: OwnedQueue[T]) -> None:
        """Pull until the queue is dropped."""
        complaint = ""  # said last, so that a lasting problem is one line
        while not owned.cached.is_dropped:
            try:
                pause = await self._step(owned)
                complaint = ""
            except CometError as error:
                pause = self._pause_after(error)
                if not _is_busy(error) and complaint != error.fact:
                    complaint = error.fact
                    _log.warning("queue=%s pull failed, trying again: %s", owned.queue, error)
            except Exception:
                _log.exception("queue=%s pulling failed, trying again", owned.queue)
                pause = self._settings.pull_pause_ms / 1000
            if pause > 0:
                await asyncio.sleep(pause)

    async def _step(self, owned: OwnedQueue[T]) -> float:
        """One pull, or a look whether there may be one; seconds before the next."""
        cached = owned.cached
        cached.last_pull_ms = self._clock.now_ms()
        if not self.going.is_set():
            await self._rest()
            return 0
        if cached.full(owned.limits) is not None:
            await self._wait_for_room(owned)
            return 0
        subscription = self._subscriptions.get(owned.queue.topic)
        if subscription is None or (self._has_locks and not self._holds_lock(owned)):
            return REST_PAUSE
        began = self._clock.monotonic()
        pulled = await self._pull(owned, subscription)
        if cached.is_dropped or not self.going.is_set():
            return 0  # what a pull that was held brings while we are paused is pulled again
        owned.has_pulled = True
        tally = owned.tally
        tally.pulls += 1
        tally.pull_seconds += self._clock.monotonic() - began
        tally.pulled += len(pulled.records)
        if pulled.status is PullStatus.ILLEGAL:
            if pulled.min_offset <= owned.next_offset:
                # Not there yet, or somebody has moved the group, which is said in the same way.
                self._correct(owned, pulled.next_offset)
                return self._settings.pull_pause_ms / 1000
            # Deleted before we came: what is in memory from before that can still be handled.
            _log.warning(
                "queue=%s begins at %d now, messages from %d on were deleted before they were read",
                owned.queue,
                pulled.next_offset,
                owned.next_offset,
            )
        messages = self._wanted(owned, pulled, subscription) if pulled.records else ()
        if messages:
            self._handling.put(owned, messages)
        elif not len(cached):
            # Nothing that waits is before it: what was skipped need not be looked at again.
            self._store.update(owned.queue, pulled.next_offset, forward_only=True)
        # Not before: what went wrong until here is pulled again.
        owned.next_offset, owned.end_offset = pulled.next_offset, pulled.max_offset
        if pulled.status is PullStatus.ILLEGAL:
            return self._settings.pull_pause_ms / 1000
        return self._interval if messages else 0

    def _holds_lock(self, owned: OwnedQueue[T]) -> bool:
        """Another member may have the queue otherwise, and our commits would move its offset."""
        return owned.cached.holds_lock(self._clock.now_ms(), self._settings.lock_life_ms)

    async def _pull(self, owned: OwnedQueue[T], subscription: SubscriptionData) -> Pulled:
        settings, flags = self._settings, self._flags
        commit_offset = self._store.peek(owned.queue) if self._is_committing else 0
        if commit_offset > 0:
            flags |= PullFlag.COMMIT
        return await self._puller.pull(
            owned.queue,
            owned.next_offset,
            subscription,
            count=settings.pull_count,
            flags=flags,
            timeout_ms=settings.pull_timeout_ms,
            hold_ms=settings.pull_hold_ms,
            commit_offset=commit_offset,
            bytes_max=settings.pull_bytes,
        )

    def _wanted(
        self, owned: OwnedQueue[T], pulled: Pulled, subscription: SubscriptionData
    ) -> Sequence[Message[T]]:
        messages: Sequence[Message[T]] = arrived(pulled.records, owned.source, subscription)
        return self._filtered(messages) if self._filters and messages else messages

    def _filtered(self, messages: Sequence[Message[Any]]) -> Sequence[Message[Any]]:
        for hook in self._filters:
            try:
                messages = list(hook.wanted(self._group, messages))
            except Exception:
                _log.exception("group=%s a filter failed, nothing is left out", self._group)
        return messages

    def _pause_after(self, error: CometError) -> float:
        if _is_busy(error):
            return BUSY_PAUSE
        if isinstance(error, Refused) and error.response_code in _UNKNOWN:
            now = self._clock.monotonic()
            if now >= self._next_greeting:  # all queues hear it at the same time
                self._next_greeting = now + GREETING_SECONDS
                self._instance.heartbeat_soon()
        return self._settings.pull_pause_ms / 1000

    async def _rest(self) -> None:
        """Until the consumer goes on; not for long, so that nobody takes the queue for stuck."""
        try:
            async with asyncio.timeout(REST_PAUSE):
                await self.going.wait()
        except TimeoutError:
            pass

    async def _wait_for_room(self, owned: OwnedQueue[T]) -> None:
        room: asyncio.Future[None] = self._loop.create_future()
        owned.room = room
        timer = self._loop.call_later(FULL_PAUSE, _end, room)
        try:
            await room
        finally:
            timer.cancel()
            owned.room = None


def _is_busy(error: CometError) -> bool:
    return isinstance(error, Refused) and error.response_code == ResponseCode.FLOW_CONTROL


def _end(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
