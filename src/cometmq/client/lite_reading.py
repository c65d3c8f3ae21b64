"""What a lite pull consumer reads: queues that come and go, their messages and their offsets.

Topics and queues are as on the wire here; ``LiteConsumer`` translates for users.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from cometmq import logs
from cometmq.client.core.message import Message
from cometmq.client.core.positions import StartRule
from cometmq.client.core.settings import LiteSettings
from cometmq.client.core.value_codecs import ValueCodec
from cometmq.client.lite_line import LiteLine
from cometmq.client.lite_queue import LitePulling, LiteQueue
from cometmq.client.pull_member import PullHooks, PullMember, QueuesListener
from cometmq.client.pulling import Puller
from cometmq.client.queue_offsets import start_offset
from cometmq.client.shared import Shared
from cometmq.codec.bodies.clients import ProcessQueueInfo
from cometmq.errors import InvalidArgument
from cometmq.model.group import TAG_EXPRESSION, SubscriptionData
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.running import Background

_log = logs.get_logger("cometmq.client")

T = TypeVar("T")


class LiteReading(Generic[T]):
    """The inside of one consumer, from ``start`` to ``stop``."""

    def __init__(
        self,
        shared: Shared,
        group: str,
        settings: LiteSettings,
        *,
        codec: ValueCodec[T],
        hooks: PullHooks,
        on_change: QueuesListener,
    ) -> None:
        self._settings = settings
        self._clock = shared.clock
        self._hooks = hooks
        self._on_change = on_change
        self._rule = StartRule(settings.start)
        self._subscriptions: dict[str, SubscriptionData] = {}  # shared topics
        self._assigned: dict[MessageQueue, SubscriptionData] = {}  # fixed queues
        self._queues: dict[MessageQueue, LiteQueue[T]] = {}  # what is read now
        self._polled: list[tuple[LiteQueue[T], list[Message[T]]]] = []  # and not known to be done
        self._commit_at = 0.0  # by itself, on the monotonic clock
        self._seen: dict[str, tuple[MessageQueue, ...]] = {}  # queues by topic, when last told
        self._background = Background()
        self._is_ended = False
        self.is_started = False
        self.line: LiteLine[T] = LiteLine(settings.pull_count)
        self.member = PullMember(shared, group, settings, self, self._rule)
        self._puller = Puller(self.member.instance, self.member.group)
        self._pulling: LitePulling[T] = LitePulling(
            self._puller,
            settings,
            codec=codec,
            group=self.member.group,
            namespace=self.member.namespace,
            clock=shared.clock,
            begin=self._begin,
            subscription_of=self._subscription_of,
            arrive=self._arrive,
            is_full=lambda: self.line.waiting_count > settings.cached_total_max,
        )

    async def start(
        self,
        subscriptions: Iterable[SubscriptionData],
        assigned: Mapping[MessageQueue, SubscriptionData],
    ) -> None:
        """Join the group and begin to read. Whoever starts it stops it, also when this raises."""
        for wanted in subscriptions:
            self._subscriptions[wanted.topic] = wanted
            self.member.membership.subscribe(wanted)
        self._assigned = dict(assigned)
        await self.member.start()
        self.member.watch_topics(self._look, self._settings.topic_check_interval_ms)
        self.assign(assigned)
        self.member.membership.start()
        if self._subscriptions:
            await self.member.membership.rebalance()
        self.is_started = True

    async def stop(self) -> None:
        """Read no more, save offsets, leave the group."""
        self._is_ended = True
        self.line.end()
        try:
            await self.member.membership.stop()  # before anything else: it may be adding a queue
        finally:
            # Also when somebody does not want to wait any longer: nothing of it may be left over.
            try:
                await self._end_queues()
            finally:
                await self.member.stop()

    # --- what is read

    def subscribe(self, wanted: SubscriptionData) -> None:
        self._subscriptions[wanted.topic] = wanted
        self.member.membership.subscribe(wanted)
        self.member.membership.wake()

    def unsubscribe(self, topic: str) -> None:
        self._subscriptions.pop(topic, None)
        self.member.membership.unsubscribe(topic)
        self.member.membership.wake()

    def assign(self, assigned: Mapping[MessageQueue, SubscriptionData]) -> None:
        """Read exactly these of the fixed queues."""
        gone = [queue for queue in self._assigned if queue not in assigned]
        topics = self.topics()
        self._assigned = dict(assigned)
        for topic in self.topics() - topics:
            self._background.spawn(f"finding {topic}", self._find(topic))
        for queue in gone:
            if self._drop(queue):
                self._background.spawn(f"letting {queue} go", self._forget(queue))
        for queue in assigned:
            if queue not in self._queues:
                self._open(queue)

    def find(self, queue: MessageQueue) -> LiteQueue[T] | None:
        return self._queues.get(queue)

    def move(self, queue: MessageQueue, offset: int) -> None:
        """Go on elsewhere in a queue; what was fetched of it is thrown away."""
        lite = self._queues.get(queue)
        if lite is not None:
            self._close(lite)
            self._open(queue, offset=offset, is_paused=lite.is_paused)

    # --- messages

    async def poll(self, timeout_ms: int) -> tuple[MessageQueue, list[Message[T]]] | None:
        """Messages of one queue; what was polled before is done from now on."""
        self.pass_polled()
        now = self._clock.monotonic()
        if self._settings.is_auto_commit and now >= self._commit_at:
            self._commit_at = now + self._settings.auto_commit_interval_ms / 1000
            self.commit_done()
        lite = await self.line.first(timeout_ms)
        if lite is None:
            return None
        messages = self.line.take(lite, self._settings.pull_count, self._clock.now_ms())
        self._polled.append((lite, messages))
        return lite.queue, messages

    async def next(self) -> tuple[LiteQueue[T], Message[T]] | None:
        """One message, which is done when ``settle`` says so; None when it was stopped."""
        lite = await self.line.first(None)
        if lite is None:
            return None
        (message,) = self.line.take(lite, 1, self._clock.now_ms())
        return lite, message

    def settle(self, lite: LiteQueue[T], message: Message[T]) -> None:
        if lite.is_dropped:
            return
        lite.settle((message,), self._clock.now_ms())
        offset = lite.done
        if self._settings.is_auto_commit and offset is not None:
            self.member.store.update(lite.queue, offset, forward_only=False)

    def pass_polled(self) -> None:
        """What was polled is done."""
        now_ms = self._clock.now_ms()
        for lite, messages in self._polled:
            lite.settle(messages, now_ms)
        self._polled.clear()

    # --- offsets

    def commit_done(self) -> None:
        """Note in memory how far each queue is done."""
        for queue, lite in self._queues.items():
            offset = lite.done
            if offset is not None:
                self.member.store.update(queue, offset, forward_only=False)

    def positions(self) -> dict[MessageQueue, int]:
        """Where each queue is, behind everything handed out."""
        found = ((queue, lite.position) for queue, lite in self._queues.items())
        return {queue: offset for queue, offset in found if offset is not None}

    async def stored(self, queue: MessageQueue) -> int | None:
        """What was committed here or, if nothing was, what is stored."""
        known = self.member.store.peek(queue)
        return known if known >= 0 else await self.member.store.stored(queue)

    # --- PullOwner

    def subscriptions(self) -> Collection[SubscriptionData]:
        """Fixed queues are not in it: they are nobody else's business."""
        return tuple(self._subscriptions.values())

    def topics(self) -> set[str]:
        return {*self._subscriptions, *(queue.topic for queue in self._assigned)}

    def owned(self) -> Collection[MessageQueue]:
        return tuple(self._queues)

    def infos(self) -> dict[MessageQueue, ProcessQueueInfo]:
        peek = self.member.store.peek
        return {queue: lite.cache.info(peek(queue)) for queue, lite in self._queues.items()}

    async def queue_added(self, queue: MessageQueue) -> bool:
        if queue not in self._queues:
            self._open(queue)
        return True

    async def queue_removed(self, queue: MessageQueue) -> bool:
        # One that was subscribed and is assigned now is not the group's to take away.
        if queue not in self._assigned and self._drop(queue):
            await self._forget(queue)
        return True

    def queues_changed(
        self, topic: str, known: tuple[MessageQueue, ...], mine: tuple[MessageQueue, ...]
    ) -> None:
        self._seen[topic] = known
        self._on_change(topic, known, mine)

    # --- the inside

    async def _end_queues(self) -> None:
        if self._settings.is_auto_commit:
            self.commit_done()
        tasks = [lite.task for lite in self._queues.values() if lite.task is not None]
        for lite in self._queues.values():
            self.line.drop(lite)
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._background.stop()

    async def _begin(self, queue: MessageQueue) -> int:
        return await start_offset(self.member.instance, queue, self._rule, self.stored)

    def _subscription_of(self, topic: str) -> SubscriptionData:
        found = self._subscriptions.get(topic)
        if found is None:
            of_topic = (wanted for wanted in self._assigned.values() if wanted.topic == topic)
            found = next(of_topic, SubscriptionData(topic))
        if found.expression_type == TAG_EXPRESSION:
            # Pulls of Java's lite consumer say no version of tags either.
            return msgspec.structs.replace(found, sub_version=0)
        return found

    def _arrive(self, lite: LiteQueue[T], messages: list[Message[T]]) -> None:
        if self._hooks.filters:
            messages = list(self._hooks.wanted(messages))
        self.line.put(lite, messages)

    def _open(
        self, queue: MessageQueue, *, offset: int | None = None, is_paused: bool = False
    ) -> None:
        if self._is_ended:
            return  # nobody would ever end its task
        lite: LiteQueue[T] = LiteQueue(
            queue, self._clock.now_ms(), offset=offset, is_paused=is_paused
        )
        self._queues[queue] = lite
        work = self._pulling.run(lite)
        lite.task = asyncio.get_running_loop().create_task(work, name=f"pulling {queue}")

    def _close(self, lite: LiteQueue[T]) -> None:
        self.line.drop(lite)
        self._polled = [polled for polled in self._polled if polled[0] is not lite]

    async def _find(self, topic: str) -> None:
        """Let the brokers of a topic know that we are here."""
        await self.member.instance.routes.refresh(topic)
        await self.member.instance.heartbeat()

    def _drop(self, queue: MessageQueue) -> bool:
        """Read a queue no more, and note how far it is done; says whether it was read.

        At once, and not in a task: whoever wants it back at the next moment begins it anew.
        """
        lite = self._queues.pop(queue, None)
        if lite is None:
            return False
        offset = lite.done
        self._close(lite)
        self._puller.forget(queue)
        if self._settings.is_auto_commit and offset is not None:
            self.member.store.update(queue, offset, forward_only=False)
        return True

    async def _forget(self, queue: MessageQueue) -> None:
        """Save the offset of a queue that was dropped."""
        await self.member.store.persist([queue])
        if queue not in self._queues:
            self.member.store.remove(queue)

    async def _look(self) -> None:
        """Tell of topics that have got more queues, or less."""
        for topic in self.topics():
            found = self.member.instance.routes.known(topic)
            if found is None or self._seen.get(topic) == found.read_queues:
                continue
            is_first = topic not in self._seen
            self._seen[topic] = found.read_queues
            if not is_first:
                mine = tuple(queue for queue in found.read_queues if queue in self._queues)
                self._on_change(topic, found.read_queues, mine)


def not_assigned(queue: MessageQueue) -> InvalidArgument:
    fact = f"queue {queue_name(queue)} is not assigned to this consumer"
    return InvalidArgument("queue", fact, "see its assignment, which the group may change")


def queue_name(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
