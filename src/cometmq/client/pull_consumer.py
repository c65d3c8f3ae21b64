"""``PullConsumer``: its user asks for each pull, with the queue and the offset of its choice."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Generic, Self, TypeVar

import msgspec

from cometmq.client.core.arrivals import arrived, time_ms
from cometmq.client.core.checks import check_consumer_group, check_level_of_return, check_topic
from cometmq.client.core.message import Message, Source
from cometmq.client.core.names import unwrap_queue, wrap_group, wrap_queue, wrap_topic
from cometmq.client.core.settings import PullSettings
from cometmq.client.core.subscriptions import subscription
from cometmq.client.core.value_codecs import ValueCodec
from cometmq.client.hooks import ConsumeHook, FilterHook
from cometmq.client.instance import Instance
from cometmq.client.life import ClosedOnExit, Life, State
from cometmq.client.pull_member import PullHooks, PullMember, QueuesListener, QueuesListeners
from cometmq.client.pulling import Puller, PullFlag, PullStatus
from cometmq.client.queue_offsets import keeper_of, max_offset, min_offset, offset_at
from cometmq.client.scheduled_pull import PullCallback, ScheduledPull
from cometmq.client.sending_back import SendingBack
from cometmq.client.shared import Shared
from cometmq.codec import core
from cometmq.codec.bodies.clients import ProcessQueueInfo
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.offsets import GetEarliestMsgStoretime, GetEarliestMsgStoretimeResponse
from cometmq.errors import InvalidArgument, SettingsError, Unreachable
from cometmq.model.group import SubscriptionData
from cometmq.model.offsets import MessageQueue

T = TypeVar("T")

QUESTION_TIMEOUT_MS = 6_000


class PullResult(msgspec.Struct, Generic[T], frozen=True):
    """What a pull has brought; ``next_offset`` is where to go on, whatever the status."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: Sequence[Message[T]]


class PullConsumer(ClosedOnExit, Generic[T]):
    """Pulls when it is told to, and keeps the offsets it is told::

        async with mq.pull_consumer("billing") as puller:
            for queue in await puller.queues("orders"):
                offset = await puller.stored_offset(queue) or 0
                result = await puller.pull(queue, offset)
                ...
                puller.update_offset(queue, result.next_offset)

    With ``register`` the queues of a topic are shared with the group, and ``mine`` says which are
    this consumer's. Offsets that were updated are saved at intervals and at the end, for all queues
    except those that the group gave to others. It starts when it is entered, or with the first call
    that is awaited, and is closed with its client at the latest.
    """

    def __init__(
        self,
        shared: Shared,
        group: str,
        settings: PullSettings,
        *,
        codec: ValueCodec[T],
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[FilterHook] = (),
    ) -> None:
        self._namespace = shared.namespace or ""
        check_consumer_group(wrap_group(self._namespace, group))
        if settings.wait_timeout_ms < settings.pull_hold_ms:
            reason = f"{settings.wait_timeout_ms} is less than pull_hold_ms"
            raise SettingsError("wait_timeout_ms", reason, "brokers must have time to answer")
        self._life = Life(f"pull consumer '{group}'")
        self._shared = shared
        self._group = group
        self._settings = settings
        self._codec = codec
        self._hooks = PullHooks(group, self._namespace, hooks, filters)
        self._listeners = QueuesListeners(self._namespace)
        self._scheduled = ScheduledPull(settings, self._namespace)
        self._queues = _Queues(settings, self._listeners, self._scheduled)
        self._starting: asyncio.Task[None] | None = None
        self._closing = asyncio.Lock()
        self._member: PullMember | None = None  # once it is started
        self._puller: Puller
        self._sending_back: SendingBack
        shared.add(self, lambda: self._scheduled.owns_this_task)

    async def __aenter__(self) -> Self:
        await self._started()
        return self

    async def close(self) -> None:
        """Let scheduled calls end, save offsets, leave the group; may be called again."""
        self._life.require_own_loop()
        starting = self._starting
        if starting is not None and not starting.done():  # it can be stopped when it has started
            await asyncio.wait((starting,))
        if self._scheduled.owns_this_task and self._closing.locked():
            return  # whoever closes it waits for this call
        async with self._closing:
            await self._stop()

    # --- queues

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic. Raises NoRoute."""
        member = await self._started()
        name = wrap_topic(self._namespace, topic)
        found = await self._shared.routes.find(name)
        await self._use(member, name)
        return tuple(unwrap_queue(self._namespace, queue) for queue in found.read_queues)

    def register(self, topic: str) -> None:
        """Share the queues of a topic with the other members of the group."""
        if self._life.state is not State.NEW:
            self._life.require()
        name = wrap_topic(self._namespace, topic)
        check_topic(name)
        self._queues.register(subscription(name, version_ms=self._shared.clock.now_ms()))

    def mine(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a registered topic that are this consumer's; none until it is started."""
        found = self._queues.mine(wrap_topic(self._namespace, topic))
        return tuple(unwrap_queue(self._namespace, queue) for queue in found)

    def on_queues_changed(self, listener: QueuesListener) -> None:
        """Call this when this consumer has other queues of a registered topic than before."""
        self._listeners.add(listener)

    def schedule(self, topic: str, callback: PullCallback) -> None:
        """Register a topic, and call this for each queue of ours, again and again.

        Never twice at a time for one queue, at most ``concurrency`` calls at a time, again after as
        many ms as it returns (None: ``schedule_pause_ms``; ``schedule_failure_pause_ms`` when it
        raised). Calls for a queue that goes to another member end with the one under way.
        """
        if not self._settings.is_rebalancing:
            fact = "no queue is this consumer's without rebalancing"
            raise InvalidArgument("topic", fact, "leave is_rebalancing as it is")
        self.register(topic)
        name = wrap_topic(self._namespace, topic)
        self._scheduled.schedule(name, callback, self._queues.mine(name))

    def unschedule(self, topic: str) -> None:
        """Call nobody for this topic any more."""
        self._scheduled.unschedule(wrap_topic(self._namespace, topic))

    # --- messages

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count: int = 32,
        tags: str | Iterable[str] | None = None,
        sql: str | None = None,
        wait: bool = False,
    ) -> PullResult[T]:
        """Messages of a queue from an offset on, at most ``count``.

        With ``wait`` a broker that has none waits for one, for ``pull_hold_ms``. Raises what asking
        a broker raises.
        """
        member = await self._started()
        if offset < 0:
            raise InvalidArgument("offset", f"there is no offset {offset}", "give 0 or more")
        if count < 1:
            raise InvalidArgument("count", f"{count} messages cannot be pulled", "give 1 or more")
        name = wrap_queue(self._namespace, queue)
        wanted = subscription(name.topic, tags=tags, sql=sql, version_ms=0)
        await self._use(member, name.topic)
        pulled = await self._puller.pull(
            name,
            offset,
            wanted,
            count=count,
            flags=PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if wait else PullFlag(0)),
            hold_ms=self._settings.pull_hold_ms if wait else 0,
            timeout_ms=self._settings.wait_timeout_ms if wait else self._settings.pull_timeout_ms,
        )
        source = Source(name.broker_name, self._codec, member.group, self._namespace)
        messages: Sequence[Message[T]] = arrived(pulled.records, source, wanted)
        if self._hooks.filters:
            messages = self._hooks.wanted(messages)
        if self._hooks.hooks:
            self._hooks.tell(queue, messages, self._shared.clock.now_ms())
        return PullResult(
            pulled.status, pulled.next_offset, pulled.min_offset, pulled.max_offset, messages
        )

    async def send_back(self, message: Message[Any], delay_level: int = 0) -> None:
        """Have the group get a message again, through its retry topic.

        ``delay_level`` is 0 for what the broker thinks right, -1 for a dead letter. Raises
        Unreachable when no broker has taken it.
        """
        check_level_of_return(delay_level)
        await self._started()
        if not await self._sending_back.send_back(message, delay_level):
            problem = f"message {message.message_id} was not given back"
            raise Unreachable(message.broker_name, problem, "handle it again, or keep its offset")

    # --- offsets

    def update_offset(self, queue: MessageQueue, offset: int) -> None:
        """Note how far the group is in a queue; it is saved at the next interval, or at the end."""
        self._life.require()
        if offset < 0:
            raise InvalidArgument("offset", f"there is no offset {offset}", "give 0 or more")
        name = wrap_queue(self._namespace, queue)
        self._queues.touch(name)
        self._running.store.update(name, offset, forward_only=False)

    async def stored_offset(self, queue: MessageQueue) -> int | None:
        """How far the group is, as is stored; None when nothing was ever stored."""
        member = await self._started()
        return await member.store.stored(wrap_queue(self._namespace, queue))

    def offset(self, queue: MessageQueue) -> int | None:
        """What ``update_offset`` noted, None if it did not."""
        known = self._running.store.peek(wrap_queue(self._namespace, queue))
        return known if known >= 0 else None

    async def persist(self) -> None:
        """Save what was noted now. Raises Unreachable when a broker has not taken it."""
        member = await self._started()
        await member.save(self._queues.owned())

    # --- questions

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that is still there."""
        member = await self._started()
        return await min_offset(member.instance, wrap_queue(self._namespace, queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset after the last message."""
        member = await self._started()
        return await max_offset(member.instance, wrap_queue(self._namespace, queue))

    async def search_offset(self, queue: MessageQueue, time: int | datetime) -> int:
        """The offset of the first message stored at a time (in ms, or with a zone) or later.

        Brokers before 5.0 may say that of one that is a little older.
        """
        moment_ms = time_ms("time", time)
        member = await self._started()
        return await offset_at(member.instance, wrap_queue(self._namespace, queue), moment_ms)

    async def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """When the first message was stored, in ms; None when there is none."""
        member = await self._started()
        return await _earliest_store_time(member.instance, wrap_queue(self._namespace, queue))

    # --- the inside

    @property
    def _running(self) -> PullMember:
        self._life.require()
        assert self._member is not None
        return self._member

    async def _use(self, member: PullMember, topic: str) -> None:
        """Keep the route of a topic up to date, and let its brokers know that we are here."""
        if topic not in self._queues.used_topics:
            self._queues.used_topics.add(topic)
            if member.instance.routes.known(topic) is None:
                await member.instance.routes.refresh(topic)
            await member.instance.heartbeat()

    async def _started(self) -> PullMember:
        if not self._queues.is_started:
            if self._starting is None and self._life.state is State.NEW:
                # In a task of its own: who gives up waiting does not end it for all others.
                work = self._start()
                name = f"starting {self._life.what}"
                self._starting = asyncio.get_running_loop().create_task(work, name=name)
            if self._starting is not None and not self._starting.done():
                await asyncio.shield(self._starting)
        return self._running

    async def _start(self) -> None:
        self._shared.require()
        self._life.begin()
        try:
            member = PullMember(self._shared, self._group, self._settings, self._queues)
            self._member = member
            self._puller = Puller(member.instance, member.group)
            self._sending_back = SendingBack(
                member.instance,
                member.group,
                namespace=self._namespace,
                reconsume_max=self._settings.reconsume_max,
            )
            await self._queues.start(member)
        except BaseException:
            await self._stop()
            raise

    async def _stop(self) -> None:
        try:
            if self._life.end():
                try:
                    await self._leave()
                finally:
                    self._life.ended()
        finally:  # not before: who closes the client meanwhile waits for it
            self._shared.drop(self)

    async def _leave(self) -> None:
        try:
            if self._member is not None:  # first, because it may be adding a queue
                await self._member.membership.stop()
            await self._scheduled.stop(self._shared.settings.drain_timeout_ms)
        finally:
            # Also when somebody does not want to wait any longer: nothing of it may be left over.
            if self._member is not None:
                await self._member.stop()


class _Queues:
    """Which queues are ours: those that the group gave us, and those that nobody shares."""

    def __init__(
        self, settings: PullSettings, listeners: QueuesListeners, scheduled: ScheduledPull
    ) -> None:
        self._is_rebalancing = settings.is_rebalancing
        self._listeners = listeners
        self._scheduled = scheduled
        self._registered: dict[str, SubscriptionData] = {}  # by topic
        self._touched: set[MessageQueue] = set()  # whose offsets were noted
        self._member: PullMember | None = None
        self.used_topics: set[str] = set()
        self.is_started = False

    async def start(self, member: PullMember) -> None:
        self._member = member
        await member.start()
        if self._is_rebalancing:
            for wanted in self._registered.values():
                member.membership.subscribe(wanted)
            member.membership.start()
            await member.membership.rebalance()
        self.is_started = True

    def register(self, wanted: SubscriptionData) -> None:
        if wanted.topic in self._registered:
            return
        self._registered[wanted.topic] = wanted
        if self._member is not None and self._is_rebalancing:
            self._member.membership.subscribe(wanted)
            self._member.membership.wake()

    def mine(self, topic: str) -> tuple[MessageQueue, ...]:
        if self._member is None:
            return ()
        return tuple(sorted(q for q in self._member.membership.queues if q.topic == topic))

    def touch(self, queue: MessageQueue) -> None:
        self._touched.add(queue)

    # --- PullOwner

    def subscriptions(self) -> Collection[SubscriptionData]:
        return tuple(self._registered.values())

    def topics(self) -> Collection[str]:
        return {*self._registered, *self.used_topics}

    def owned(self) -> Collection[MessageQueue]:
        assert self._member is not None
        mine = self._member.membership.queues
        if not self._is_rebalancing:
            return tuple(self._touched)
        unshared = {queue for queue in self._touched if queue.topic not in self._registered}
        return tuple(mine | unshared)

    def infos(self) -> dict[MessageQueue, ProcessQueueInfo]:
        assert self._member is not None
        peek = self._member.store.peek
        return {queue: ProcessQueueInfo(commit_offset=peek(queue)) for queue in self.owned()}

    def move(self, queue: MessageQueue, offset: int) -> None:
        """Nothing is read ahead, so that there is nothing to move."""

    async def queue_added(self, queue: MessageQueue) -> bool:  # noqa: ARG002  # nothing to begin
        return True

    async def queue_removed(self, queue: MessageQueue) -> bool:
        assert self._member is not None
        await self._member.store.persist([queue])
        self._member.store.remove(queue)
        self._touched.discard(queue)
        return True

    def queues_changed(
        self, topic: str, known: tuple[MessageQueue, ...], mine: tuple[MessageQueue, ...]
    ) -> None:
        self._scheduled.update(topic, mine)
        self._listeners.tell(topic, known, mine)


async def _earliest_store_time(instance: Instance, queue: MessageQueue) -> int | None:
    answer = await instance.ask(
        await keeper_of(instance, queue),
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        GetEarliestMsgStoretime(queue.topic, queue.queue_id),
        timeout_ms=QUESTION_TIMEOUT_MS,
    )
    moment_ms = core.read(answer, GetEarliestMsgStoretimeResponse).timestamp
    return moment_ms if moment_ms >= 0 else None
