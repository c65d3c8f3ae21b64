"""A push consumer from its start to its stop, as its instance and its brokers see it."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from cometmq import logs
from cometmq.client import running_info
from cometmq.client.background import Repeater
from cometmq.client.class_filters import ClassFilters, FilterClass
from cometmq.client.closing_time import ClosingTime
from cometmq.client.concurrent_handling import ConcurrentHandling
from cometmq.client.consume_hooks import HookCalls, make_runner
from cometmq.client.consumer_setup import ConsumerSetup
from cometmq.client.core.consume_rates import SAMPLE_MS, ConsumeRates
from cometmq.client.core.message import ACK, Message
from cometmq.client.core.message_batch import Batch
from cometmq.client.core.names import is_retry_topic
from cometmq.client.core.positions import StartRule
from cometmq.client.failure_log import FailureLog
from cometmq.client.hooks import ConsumeHook, FilterHook
from cometmq.client.iteration import Handout
from cometmq.client.membership import Membership
from cometmq.client.offset_stores import OffsetStore, offset_store, persist_last
from cometmq.client.orderly_handling import OrderlyHandling
from cometmq.client.pulling import Puller
from cometmq.client.push_queues import PushQueues
from cometmq.client.queue_locking import QueueLocking
from cometmq.client.queue_pulling import QueuePulling
from cometmq.client.sending_back import SendingBack
from cometmq.client.shared import Shared
from cometmq.client.subscription_check import check_subscription
from cometmq.codec.bodies.clients import (
    ConsumeDirectlyResult,
    ConsumerData,
    ConsumeResult,
    ConsumerRunningInfo,
)
from cometmq.codec.codes import ResponseCode
from cometmq.codec.record import Record
from cometmq.errors import BrokerError, NoRoute
from cometmq.model.group import ConsumeType, MessageModel, SubscriptionData
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.running import Background

_log = logs.get_logger("cometmq.client")

T = TypeVar("T")

WATCH_MS_MAX: Final = 15_000
"""Between two looks for queues and handlers that are stuck."""
FIRST_LOCKS_MS: Final = 1_000
"""Before locks are renewed for the first time."""
_MODELS = {"cluster": MessageModel.CLUSTERING, "broadcast": MessageModel.BROADCASTING}


class PushMember(Generic[T]):
    """``handler`` is None for a consumer that is iterated over."""

    def __init__(
        self,
        shared: Shared,
        setup: ConsumerSetup[T],
        handler: Callable[[Any], Any] | None,
        *,
        hooks: Sequence[ConsumeHook],
        filters: Sequence[FilterHook],
    ) -> None:
        self.instance = setup.instance
        self.handout: Handout | None = None
        self._shared = shared
        self._setup = setup
        self._settings = settings = setup.settings
        self._clock = setup.clock
        self._began_ms = setup.clock.now_ms()
        self._background = Background()
        self._rates = ConsumeRates(self._began_ms)
        self._wanted: dict[str, SubscriptionData] = {}  # for pulls: as the user said it
        self._store: OffsetStore = offset_store(
            setup.instance, setup.group, mode=settings.mode, folder=settings.offsets_folder
        )
        self._locking = QueueLocking(setup.instance, setup.group) if setup.has_locks else None
        self._handling = self._make_handling()
        self._make_runner(handler, hooks)
        self._class_filters = ClassFilters(setup.instance, setup.group)
        puller = Puller(setup.instance, setup.group, self._class_filters)
        self.queues: PushQueues[T] = PushQueues(
            setup,
            self._store,
            self._handling,
            puller,
            locking=self._locking,
            rates=self._rates,
            background=self._background,
        )
        self.pulling: QueuePulling[T] = QueuePulling(
            setup,
            puller,
            store=self._store,
            handling=self._handling,
            subscriptions=self._wanted,
            filters=filters,
            correct=self.queues.correct,
        )
        self.membership = Membership(
            setup.instance,
            setup.group,
            mode=settings.mode,
            strategy=settings.strategy,
            owner=self.queues,
        )
        self.queues.pulling = self.pulling
        self.queues.membership = self.membership

    def _make_handling(self) -> ConcurrentHandling[T] | OrderlyHandling[T]:
        setup = self._setup
        sending_back = None
        if setup.is_cluster:
            sending_back = SendingBack(
                setup.instance,
                setup.group,
                namespace=setup.namespace,
                reconsume_max=setup.settings.reconsume_max,
            )
        failures = FailureLog(setup.shown_group, setup.clock)
        if not setup.settings.is_orderly:
            return ConcurrentHandling(setup, self._store, sending_back, failures=failures)
        return OrderlyHandling(
            setup,
            self._store,
            sending_back,
            locking=self._locking,
            abandon=lambda owned: self.queues.abandon(owned),
            failures=failures,
        )

    def _make_runner(
        self, handler: Callable[[Any], Any] | None, hooks: Sequence[ConsumeHook]
    ) -> None:
        setup, finished = self._setup, self._handling.finished
        calls = HookCalls(
            hooks,
            group=setup.shown_group,
            namespace=setup.namespace,
            mode=setup.mode.value,
            timeout_ms=setup.settings.consume_timeout_ms,
            clock=setup.clock,
        )
        if handler is None:
            self.handout = Handout(calls, on_done=finished, clock=setup.clock)
            self._handling.runner = self.handout
        else:
            concurrency = setup.settings.concurrency
            self._handling.runner = make_runner(
                handler, calls, concurrency=concurrency, on_done=finished, clock=setup.clock
            )

    # --- life

    def subscribe(
        self, subscription: SubscriptionData, filtered: FilterClass | None = None
    ) -> None:
        self._class_filters.set(subscription.topic, filtered)
        self._wanted[subscription.topic] = subscription
        self.membership.subscribe(subscription)

    def unsubscribe(self, topic: str) -> None:
        self._class_filters.set(topic, None)
        self._wanted.pop(topic, None)
        self.membership.unsubscribe(topic)

    async def start(self) -> None:
        """Join the group and begin to read; ``stop`` it also when this raises."""
        await self._store.load()
        await asyncio.gather(*(self._find(topic) for topic in self._wanted))
        for subscription in tuple(self._wanted.values()):
            await self.check(subscription)
        await self._class_filters.upload()
        await self.instance.add_consumer(self)
        await self.membership.rebalance()
        self.membership.start()
        self._begin_repeating()

    async def check(self, subscription: SubscriptionData) -> None:
        """Have a broker judge what only brokers understand. Raises Refused."""
        await check_subscription(self.instance, self.group, subscription)

    async def stop(self) -> None:
        """Stop pulling, let handlers end, save offsets, unlock, leave the group: in this order."""
        time = ClosingTime(self.instance.settings.drain_timeout_ms)
        self.queues.stop_pulling()
        try:
            await self.membership.stop()
        finally:
            # Also when somebody does not want to wait any longer: nothing of it may be left over.
            try:
                await self._handling.drain(time.handler_seconds)
            finally:
                await self._leave(time)

    async def _leave(self, time: ClosingTime) -> None:
        try:
            await self._background.stop()
            queues, seconds = self.queues.persistable(), time.saving_seconds
            await persist_last(self._store, queues, group=self.group, seconds=seconds)
        finally:
            self.queues.drop_all()
            try:
                if self._locking is not None:
                    await self._locking.unlock_last(time.parting_seconds)
            finally:
                await self.instance.remove_consumer(self, time.parting_seconds)

    def is_handler(self) -> bool:
        """Whether the caller is a handler, which must not wait for its own end."""
        return self._handling.runner.owns_this_task()

    # --- as a member

    @property
    def group(self) -> str:
        return self._setup.group

    def topics(self) -> Collection[str]:
        return tuple(self.membership.subscriptions)

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            _MODELS[self._settings.mode],
            StartRule(self._settings.start).where,
            tuple(self.membership.subscriptions.values()),
            self.instance.settings.is_unit_mode,
        )

    def wake_rebalance(self) -> None:
        self.membership.wake()

    async def persist(self) -> None:
        self._handling.flush()
        await self._store.persist(self.queues.persistable())

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        wanted = {queue: offset for queue, offset in offsets.items() if queue.topic == topic}
        await self.queues.reset(wanted)

    def offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        return self._store.snapshot(topic)

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        properties = running_info.properties(
            self._settings,
            group=self.group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            name_servers=self._shared.name_servers,
            began_ms=self._began_ms,
            is_orderly=self._settings.is_orderly,
        )
        properties["PROP_THREADPOOL_CORE_SIZE"] = str(self._settings.concurrency)
        return ConsumerRunningInfo(
            properties=properties,
            subscription_set=tuple(self.membership.subscriptions.values()),
            mq_table=self.queues.infos(),
            status_table=self._rates.statuses(self._clock.now_ms()),
            jstack=running_info.stacks() if with_stacks else None,
        )

    async def consume_directly(self, message: Record, broker_name: str) -> ConsumeDirectlyResult:
        if self.handout is not None:
            remark = f"consumer group {self._setup.shown_group} is iterated over: it has no handler"
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
        began = self._clock.monotonic()
        received = Message(message, self._setup.source(broker_name))
        item = Batch((received,))
        error = await self._handling.runner.call(item if self._setup.is_batch else received)
        decision = item.settled(has_failed=error is not None)[0]
        result = ConsumeResult.CR_SUCCESS if decision is ACK else ConsumeResult.CR_LATER
        if error is not None:
            result = ConsumeResult.CR_THROW_EXCEPTION
        return ConsumeDirectlyResult(
            order=self._settings.is_orderly,
            auto_commit=True,
            consume_result=result,
            remark=None if error is None else f"{type(error).__name__}: {error}",
            spent_time_mills=round((self._clock.monotonic() - began) * 1000),
        )

    # --- the inside

    async def _find(self, topic: str) -> None:
        if is_retry_topic(topic):
            return  # the first heartbeat makes it
        try:
            await self.instance.routes.find(topic)
        except NoRoute as error:
            _log.warning("group=%s waits for a topic: %s", self.group, error)

    def _begin_repeating(self) -> None:
        settings, client = self._settings, self.instance.settings
        shortest_ms = min(settings.consume_timeout_ms, settings.pull_idle_ms_max)
        watch_ms = max(10, min(shortest_ms // 4, WATCH_MS_MAX))
        repeated = [
            Repeater(f"watching {self.group}", self._watch, interval_ms=watch_ms),
            Repeater(f"rates of {self.group}", self._sample, interval_ms=SAMPLE_MS),
            Repeater(
                f"filter classes of {self.group}",
                self._class_filters.upload,
                interval_ms=client.heartbeat_interval_ms,
            ),
        ]
        if self._locking is not None:
            interval_ms = client.lock_interval_ms
            first_ms = min(FIRST_LOCKS_MS, interval_ms)
            name = f"locks of {self.group}"
            locks = Repeater(
                name, self.queues.renew_locks, interval_ms=interval_ms, first_ms=first_ms
            )
            repeated.append(locks)
        for repeater in repeated:
            repeater.start(self._background)

    async def _watch(self) -> None:
        self.queues.look_for_stuck()
        await self._handling.send_back_overdue()

    async def _sample(self) -> None:
        self._rates.sample(self._clock.now_ms())
