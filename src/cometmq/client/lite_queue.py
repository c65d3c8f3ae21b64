"""One queue of a lite pull consumer, and the task that keeps it filled.

Theory of operation. Messages go through three states: *waiting* to be handed out, *out* with the
user, and done. The cache holds those of the first two states; what is done is removed from it. Two
offsets follow from that and are kept nowhere: the *position*, behind everything handed out, and
what is *done*, before everything that is not. Both end at the offset of the next pull, so that
messages which nobody wants are passed over, too.

A queue that goes, comes back or is read from elsewhere is another object each time. What a pull of
the old one brings finds it dropped and is thrown away: it can never move the new one.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from cometmq import logs
from cometmq.client.core.arrivals import arrived
from cometmq.client.core.message import Message, Source
from cometmq.client.core.process_queue import FlowLimits, ProcessQueue
from cometmq.client.core.settings import LiteSettings
from cometmq.client.core.value_codecs import ValueCodec
from cometmq.client.pulling import Pulled, Puller, PullFlag
from cometmq.clock import Clock
from cometmq.codec.codes import ResponseCode
from cometmq.errors import CometError, Refused
from cometmq.model.group import SubscriptionData
from cometmq.model.offsets import MessageQueue

_log = logs.get_logger("cometmq.client")

T = TypeVar("T")

PAUSED_LOOK_MS = 1_000
FULL_LOOK_MS = 50
FLOW_CONTROL_PAUSE_MS = 20
"""After a broker has said that it is too busy."""
BEGIN_PAUSE_MS = 3_000
"""Before the first offset is asked for again."""
EARLY_ANSWER_MS = 20
"""A broker that answers at once and leads us nowhere is not asked more often than this."""

_FLAGS = PullFlag.SUSPEND | PullFlag.SUBSCRIPTION | PullFlag.LITE


class LiteQueue(Generic[T]):
    """One queue from the moment it is ours until it goes, or is read from elsewhere."""

    __slots__ = (
        "abandoned",
        "cache",
        "changed",
        "complaint",
        "end_offset",
        "is_paused",
        "is_ready",
        "pull_offset",
        "queue",
        "task",
        "turn",
        "waiting",
    )

    def __init__(
        self, queue: MessageQueue, now_ms: int, *, offset: int | None = None, is_paused: bool
    ) -> None:
        self.queue = queue  # as on the wire
        self.cache: ProcessQueue[Message[T]] = ProcessQueue(now_ms)
        self.waiting: deque[Message[T]] = deque()
        # Out with iterators that are gone; any thread may add to it, where they are collected.
        self.abandoned: deque[Message[T]] = deque()
        self.pull_offset = offset  # None until it is known where to begin
        self.end_offset = 0  # where the queue ended when it was last pulled
        self.is_paused = is_paused
        self.is_ready = False  # stands in the line of those that have messages
        self.turn = 0  # messages handed out one by one since it was first in that line
        self.changed = asyncio.Event()  # it was resumed, or has more room
        self.complaint = ""  # logged last, so that a lasting problem is one line
        self.task: asyncio.Task[None] | None = None

    @property
    def is_dropped(self) -> bool:
        return self.cache.is_dropped

    @property
    def position(self) -> int | None:
        """Behind everything that was handed out."""
        return self.waiting[0].queue_offset if self.waiting else self.pull_offset

    @property
    def done(self) -> int | None:
        """Before everything that is not done."""
        first = self.cache.first()
        return self.pull_offset if first is None else first.queue_offset

    def put(self, messages: Sequence[Message[T]]) -> None:
        self.cache.put(messages)
        self.waiting.extend(messages)

    def take(self, count: int, now_ms: int) -> list[Message[T]]:
        """Hand out the next messages; those that were left with a ``break`` are done then."""
        waiting, abandoned = self.waiting, self.abandoned
        if abandoned:
            self.settle([abandoned.popleft() for _ in range(len(abandoned))], now_ms)
        return [waiting.popleft() for _ in range(min(count, len(waiting)))]

    def settle(self, messages: Sequence[Message[T]], now_ms: int) -> None:
        """These, which were handed out, are done."""
        if not self.cache.is_dropped:
            self.cache.remove_all(messages, now_ms)
            self.changed.set()

    def drop(self) -> int:
        """End it; returns how many messages were still waiting."""
        count = len(self.waiting)
        self.cache.is_dropped = True
        self.waiting.clear()
        if self.task is not None:
            self.task.cancel()
        return count

    async def rest(self, limit_ms: int) -> None:
        """Wait for a change, but not for ever."""
        self.changed.clear()
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self.changed.wait()
        except TimeoutError:
            pass


class LitePulling(Generic[T]):
    """Fills the queues of one consumer.

    ``begin`` finds out where a queue begins, ``subscription_of`` what is wanted of a topic,
    ``arrive`` takes what has come and says when all queues together have enough.
    """

    def __init__(
        self,
        puller: Puller,
        settings: LiteSettings,
        *,
        codec: ValueCodec[T],
        group: str,
        namespace: str,
        clock: Clock,
        begin: Callable[[MessageQueue], Awaitable[int]],
        subscription_of: Callable[[str], SubscriptionData],
        arrive: Callable[[LiteQueue[T], list[Message[T]]], None],
        is_full: Callable[[], bool],
    ) -> None:
        self._puller = puller
        self._settings = settings
        self._codec = codec
        self._group = group
        self._namespace = namespace
        self._clock = clock
        self._begin = begin
        self._subscription_of = subscription_of
        self._arrive = arrive
        self._is_full = is_full
        self._limits = FlowLimits(settings.cached_max, settings.cached_mib_max, settings.span_max)
        self._turns = asyncio.Semaphore(settings.pull_concurrency)

    async def run(self, lite: LiteQueue[T]) -> None:
        """Until it is dropped; whatever happens, the next step follows."""
        while not lite.is_dropped:
            try:
                await self._step(lite)
                lite.complaint = ""
            except CometError as error:
                await self._cope(lite, error)
            except Exception:
                _log.exception("group=%s queue=%s not read, going on", self._group, lite.queue)
                await asyncio.sleep(self._settings.pull_pause_ms / 1000)

    async def _step(self, lite: LiteQueue[T]) -> None:
        if lite.is_paused:
            await lite.rest(PAUSED_LOOK_MS)
        elif self._is_full() or lite.cache.full(self._limits) is not None:
            lite.cache.last_pull_ms = self._clock.now_ms()
            await lite.rest(FULL_LOOK_MS)
        elif lite.pull_offset is None:
            offset = await self._begin(lite.queue)
            if not lite.is_dropped and lite.pull_offset is None:
                lite.pull_offset = offset
        else:
            await self._pull(lite, lite.pull_offset)

    async def _pull(self, lite: LiteQueue[T], offset: int) -> None:
        lite.cache.last_pull_ms = self._clock.now_ms()
        wanted = self._subscription_of(lite.queue.topic)
        began = self._clock.monotonic()
        if offset < lite.end_offset:
            # There is more, so that the answer comes at once. Pulls that a broker holds need no
            # turn: queues without messages would keep the others from being read.
            async with self._turns:
                pulled = await self._ask(lite, offset, wanted)
        else:
            pulled = await self._ask(lite, offset, wanted)
        if lite.is_dropped or lite.is_paused:
            return  # what a pull that was held brings while it is paused is pulled again
        source = Source(lite.queue.broker_name, self._codec, self._group, self._namespace)
        messages = arrived(pulled.records, source, wanted)
        lite.end_offset = pulled.max_offset
        if messages:
            self._arrive(lite, messages)
        # Not before: what could not be taken in is pulled again.
        lite.pull_offset = pulled.next_offset
        if not messages and pulled.next_offset == offset and not self._was_held(began):
            await asyncio.sleep(EARLY_ANSWER_MS / 1000)

    async def _ask(self, lite: LiteQueue[T], offset: int, wanted: SubscriptionData) -> Pulled:
        return await self._puller.pull(
            lite.queue,
            offset,
            wanted,
            count=self._settings.pull_count,
            flags=_FLAGS,
            hold_ms=self._settings.pull_hold_ms,
            timeout_ms=self._settings.pull_timeout_ms,
        )

    def _was_held(self, began: float) -> bool:
        return (self._clock.monotonic() - began) * 1000 >= EARLY_ANSWER_MS

    async def _cope(self, lite: LiteQueue[T], error: CometError) -> None:
        is_busy = isinstance(error, Refused) and error.response_code == ResponseCode.FLOW_CONTROL
        if error.fact != lite.complaint:
            lite.complaint = error.fact
            what = "group=%s queue=%s not read, trying again: %s"
            _log.warning(what, self._group, lite.queue, error)
        if is_busy:
            pause_ms = FLOW_CONTROL_PAUSE_MS
        else:
            is_begun = lite.pull_offset is not None
            pause_ms = self._settings.pull_pause_ms if is_begun else BEGIN_PAUSE_MS
        await asyncio.sleep(pause_ms / 1000)
