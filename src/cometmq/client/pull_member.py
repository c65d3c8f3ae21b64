"""What lite pull and low-level pull have in common: a member of a group that fetches by itself.

Brokers see it in heartbeats and ask it for offsets and state like any other consumer. What it
reads, and when, is its owner's business. Group, topics and queues are as on the wire.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from cometmq import logs
from cometmq.client import running_info
from cometmq.client.background import Repeater
from cometmq.client.closing_time import ClosingTime
from cometmq.client.core.message import Message
from cometmq.client.core.names import unwrap_group, unwrap_queue, unwrap_topic, wrap_group
from cometmq.client.core.positions import StartRule
from cometmq.client.core.settings import LiteSettings, PullSettings
from cometmq.client.hooks import ConsumeContext, ConsumeHook, FilterHook
from cometmq.client.instance import Instance
from cometmq.client.membership import Membership, QueueOwner
from cometmq.client.offset_stores import OffsetStore, offset_store, persist_last
from cometmq.client.shared import Shared
from cometmq.client.subscription_check import check_subscription
from cometmq.codec.bodies.clients import (
    ConsumeDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from cometmq.codec.codes import ResponseCode
from cometmq.codec.record import Record
from cometmq.errors import BrokerError, StoreError, Unreachable
from cometmq.model.group import ConsumeType, MessageModel, SubscriptionData
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.running import Background

_log = logs.get_logger("cometmq.client")

QueuesListener: TypeAlias = Callable[
    [str, tuple[MessageQueue, ...], tuple[MessageQueue, ...]], object
]
"""Told of a topic, all of its queues, and those of this consumer."""

_MODELS = {"cluster": MessageModel.CLUSTERING, "broadcast": MessageModel.BROADCASTING}


class PullOwner(QueueOwner, Protocol):
    """Who reads the queues."""

    def subscriptions(self) -> Collection[SubscriptionData]:
        """What heartbeats say."""
        ...

    def topics(self) -> Collection[str]:
        """Whose routes are kept up to date."""
        ...

    def owned(self) -> Collection[MessageQueue]:
        """Whose offsets are kept."""
        ...

    def infos(self) -> dict[MessageQueue, ProcessQueueInfo]:
        """What is in memory of each queue."""
        ...

    def move(self, queue: MessageQueue, offset: int) -> None:
        """Go on elsewhere in a queue that is owned."""
        ...


class PullMember:
    """One consumer that pulls, as its instance sees it, from ``start`` to ``stop``."""

    def __init__(
        self,
        shared: Shared,
        group: str,
        settings: LiteSettings | PullSettings,
        owner: PullOwner,
        rule: StartRule | None = None,
    ) -> None:
        self.namespace = shared.namespace or ""
        self.group = wrap_group(self.namespace, group)
        self.shared = shared
        self._settings = settings
        self._owner = owner
        self._where = (rule or StartRule()).where
        self._began_ms = 0
        self._background = Background()
        self.instance: Instance = shared.instance_for_consumer(self.group, settings.mode)
        try:
            self.store: OffsetStore = offset_store(
                self.instance, self.group, mode=settings.mode, folder=settings.offsets_folder
            )
        except BaseException:
            shared.release_consumer(self.instance, self.group)
            raise
        self.membership = Membership(
            self.instance, self.group, mode=settings.mode, strategy=settings.strategy, owner=owner
        )

    async def start(self) -> None:
        """Join the group. Whoever starts it stops it, also when this raises.

        Raises Refused when a broker does not understand a subscription.
        """
        self._began_ms = self.instance.clock.now_ms()
        await self.store.load()
        await asyncio.gather(*(self.instance.routes.refresh(t) for t in self._owner.topics()))
        for wanted in self._owner.subscriptions():
            await check_subscription(self.instance, self.group, wanted)
        await self.instance.add_consumer(self)

    async def stop(self) -> None:
        """Save offsets and leave the group, within the time that closing may take."""
        time = ClosingTime(self.shared.settings.drain_timeout_ms)
        try:
            await self._background.stop()
            await self.membership.stop()
            queues, seconds = self._owner.owned(), time.saving_seconds
            await persist_last(self.store, queues, group=self.group, seconds=seconds)
        finally:
            # Also when somebody does not want to wait any longer: the group must not count on us.
            try:
                await self.instance.remove_consumer(self, time.parting_seconds)
            finally:
                self.shared.release_consumer(self.instance, self.group)

    async def save(self, queues: Collection[MessageQueue]) -> None:
        """Save the offsets of these queues now. Raises Unreachable, or StoreError for a file."""
        if await self.store.persist(queues, is_synchronous=True):
            return
        group = unwrap_group(self.namespace, self.group)
        problem = f"offsets of group '{group}' were not saved, the log says why"
        advice = "try again; until then they are kept in memory and saved at intervals"
        if self._settings.mode == "broadcast":
            raise StoreError(str(self._settings.offsets_folder or "~"), problem, advice)
        brokers = ", ".join(sorted({queue.broker_name for queue in queues}))
        raise Unreachable(brokers, problem, advice)

    def watch_topics(self, look: Callable[[], Awaitable[object]], interval_ms: int) -> None:
        """Look at topics from time to time, until it is stopped."""
        watching = Repeater(f"queues of {self.group}", look, interval_ms=interval_ms)
        watching.start(self._background)

    def shown(self, queue: MessageQueue) -> MessageQueue:
        """A queue as users know it."""
        return unwrap_queue(self.namespace, queue)

    # --- ConsumerMember

    def topics(self) -> Collection[str]:
        return self._owner.topics()

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_ACTIVELY,
            _MODELS[self._settings.mode],
            self._where,
            tuple(self._owner.subscriptions()),
            self.instance.settings.is_unit_mode,
        )

    def wake_rebalance(self) -> None:
        self.membership.wake()

    async def persist(self) -> None:
        owned = self._owner.owned()
        self.store.keep_only(owned)
        await self.store.persist(owned)

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        owned = set(self._owner.owned())
        moved = [queue for queue in offsets if queue in owned and queue.topic == topic]
        for queue in moved:
            self.store.update(queue, offsets[queue], forward_only=False)
            self._owner.move(queue, offsets[queue])
        await self.store.persist(moved)

    def offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        return self.store.snapshot(topic)

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(
            properties=running_info.properties(
                self._settings,
                group=self.group,
                consume_type=ConsumeType.CONSUME_ACTIVELY,
                name_servers=self.shared.name_servers,
                began_ms=self._began_ms,
            ),
            subscription_set=tuple(self._owner.subscriptions()),
            mq_table=self._owner.infos(),
            jstack=running_info.stacks() if with_stacks else None,
        )

    async def consume_directly(
        self,
        message: Record,  # noqa: ARG002  # there is nobody to hand it to
        broker_name: str,  # noqa: ARG002
    ) -> ConsumeDirectlyResult:
        group = unwrap_group(self.namespace, self.group)
        remark = f"The Consumer Group <{group}> not exist in this consumer: it has no handler"
        raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)


class QueuesListeners:
    """Who is told of other queues; they see names without the namespace."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._listeners: list[QueuesListener] = []

    def add(self, listener: QueuesListener) -> None:
        self._listeners.append(listener)

    def tell(
        self, topic: str, known: tuple[MessageQueue, ...], mine: tuple[MessageQueue, ...]
    ) -> None:
        """What a listener raises is logged and changes nothing."""
        name = unwrap_topic(self._namespace, topic)
        all_queues = tuple(unwrap_queue(self._namespace, queue) for queue in known)
        own_queues = tuple(unwrap_queue(self._namespace, queue) for queue in mine)
        for listener in self._listeners:
            try:
                listener(name, all_queues, own_queues)
            except Exception:
                _log.exception("topic=%s a listener failed, going on", name)


class PullHooks:
    """Who is told of each result of a pull, and who may leave messages out of it."""

    def __init__(
        self,
        group: str,
        namespace: str,
        hooks: Sequence[ConsumeHook],
        filters: Sequence[FilterHook],
    ) -> None:
        self.hooks = tuple(hooks)
        self.filters = tuple(filters)
        self._group = group
        self._namespace = namespace

    def wanted(self, messages: Sequence[Message[Any]]) -> Sequence[Message[Any]]:
        for one in self.filters:
            try:
                messages = list(one.wanted(self._group, messages))
            except Exception:
                _log.exception("group=%s a filter failed, nothing is left out", self._group)
        return messages

    def tell(self, queue: MessageQueue, messages: Sequence[Message[Any]], now_ms: int) -> None:
        if not self.hooks:
            return
        context = ConsumeContext(
            self._group, self._namespace or None, queue, messages, "pull", now_ms
        )
        self._call("before_consume", context)
        context.is_success, context.outcome = True, "SUCCESS"
        self._call("after_consume", context)

    def _call(self, name: str, context: ConsumeContext) -> None:
        for hook in self.hooks:
            try:
                getattr(hook, name)(context)
            except Exception:
                _log.exception("group=%s a hook failed, going on", self._group)
