"""``Consumer``: messages are fetched by themselves and given to a handler, or iterated over."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Generic, Self, TypeVar

from cometmq import logs
from cometmq.client import class_filters
from cometmq.client.consumer_setup import ConsumerSetup
from cometmq.client.core import checks
from cometmq.client.core.message import Message
from cometmq.client.core.message_batch import Batch
from cometmq.client.core.names import (
    retry_topic,
    unwrap_group,
    unwrap_queue,
    unwrap_topic,
    wrap_group,
    wrap_topic,
)
from cometmq.client.core.settings import ConsumerSettings
from cometmq.client.core.subscriptions import subscription
from cometmq.client.core.value_codecs import ValueCodec
from cometmq.client.hooks import ConsumeHook, FilterHook
from cometmq.client.iteration import Handout, MessageIterator
from cometmq.client.life import ClosedOnExit, Life, State
from cometmq.client.metrics import QueueProgress
from cometmq.client.push_member import PushMember
from cometmq.client.shared import Shared
from cometmq.errors import CometError, InvalidArgument, NotRunning, SettingsError
from cometmq.model.group import TAG_EXPRESSION, SubscriptionData
from cometmq.model.offsets import MessageQueue

_log = logs.get_logger("cometmq.client")

T = TypeVar("T")

Handler = Callable[[Message[T]], Any]
"""Gets one message; a coroutine function, or a plain function that runs on a thread.

Returning acknowledges the message, raising has it delivered again.
"""
BatchHandler = Callable[[Batch[T]], Any]


class _ClosedMeanwhile(NotRunning):
    """Somebody has closed the consumer before it was started to the end."""


class Consumer(ClosedOnExit, Generic[T]):
    """A member of a consumer group; made by ``Client.consumer`` and closed with it::

        consumer = mq.consumer("billing")
        consumer.subscribe("orders", tags="paid || refunded")
        await consumer.run(handle)

    Instead of ``run`` it may be iterated over: ``async for message in consumer``. It can be
    started once.
    """

    def __init__(
        self,
        shared: Shared,
        group: str,
        settings: ConsumerSettings,
        *,
        codec: ValueCodec[T],
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[FilterHook] = (),
    ) -> None:
        self._namespace = shared.namespace or ""
        self._group = wrap_group(self._namespace, group)
        checks.check_consumer_group(self._group)
        if settings.pull_timeout_ms < settings.pull_hold_ms:
            reason = f"{settings.pull_timeout_ms} is less than pull_hold_ms"
            raise SettingsError("pull_timeout_ms", reason, "brokers must have time to answer")
        self._shared = shared
        self._settings = settings
        self._codec = codec
        self._hooks = tuple(hooks)
        self._filters = tuple(filters)
        self._life = Life(f"the consumer of group '{group}'")
        self._subscriptions: dict[str, SubscriptionData] = {}  # by topic as on the wire
        self._filters_by_topic: dict[str, class_filters.FilterClass | None] = {}
        self._member: PushMember[T] | None = None
        self._starting: asyncio.Task[None] | None = None  # by the first iterator
        self._joining: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()  # work that nobody waits for
        shared.add(self, self._is_handler)

    async def __aenter__(self) -> Self:
        self._shared.require()
        return self

    def __del__(self) -> None:
        life = getattr(self, "_life", None)  # there is none when a bad argument was refused
        if life is not None:
            life.warn_if_leaked(self)

    # --- what to read

    def subscribe(
        self,
        topic: str,
        tags: str | Iterable[str] | None = None,
        *,
        sql: str | None = None,
        filter_class: str | None = None,
        filter_source: str | None = None,
    ) -> None:
        """Read a topic: all of it, messages with certain tags, or those that meet a condition.

        A ``filter_class`` is the full name of a Java class and ``filter_source`` the text of its
        file: filter servers beside the brokers run it, which RocketMQ had until release 4.2.

        All members of a group must subscribe alike. While the consumer runs this takes effect with
        the next rebalance, soon. Raises InvalidArgument and SettingsError for what cannot be.
        """
        self._require_not_closed()
        filtered = class_filters.filter_class(filter_class, filter_source)
        wired = wrap_topic(self._namespace, topic)
        checks.check_topic(wired)
        now_ms = self._shared.clock.now_ms()
        wanted = subscription(
            wired, tags=tags, sql=sql, filter_class=filter_class, version_ms=now_ms
        )
        self._subscriptions[wired] = wanted
        self._filters_by_topic[wired] = filtered
        if self._member is not None and self._life.is_running:
            self._member.subscribe(wanted, filtered)
            self._spawn(self._announce(self._member, wanted))

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no longer; its queues go with the next rebalance, soon."""
        self._require_not_closed()
        wired = wrap_topic(self._namespace, topic)
        self._subscriptions.pop(wired, None)
        if self._member is not None and self._life.is_running:
            self._member.unsubscribe(wired)
            self._member.wake_rebalance()

    # --- life

    async def run(self, handler: Handler[T]) -> None:
        """Start, and wait until somebody closes it; closes it when cancelled."""
        await self._run(self.start(handler))

    async def run_batches(self, handler: BatchHandler[T]) -> None:
        """``run`` with a handler that gets up to ``batch_size`` messages at once."""
        await self._run(self.start_batches(handler))

    async def start(self, handler: Handler[T]) -> None:
        """Join the group and begin to give messages to ``handler``, until it is closed.

        Raises Refused when a broker does not understand a subscription, Unreachable when nobody
        can be asked, AlreadyExists for a second broadcasting consumer of the group. Either all of
        it is started or nothing.
        """
        await self._start(_callable(handler), is_batch=False)

    async def start_batches(self, handler: BatchHandler[T]) -> None:
        """``start`` with a handler that gets up to ``batch_size`` messages at once."""
        await self._start(_callable(handler), is_batch=True)

    def __aiter__(self) -> MessageIterator[T]:
        """Messages, each acknowledged when the next is asked for. Several may iterate at a time."""
        return MessageIterator(self)

    async def begin_iteration(self) -> Handout:
        """For iterators: starts the consumer, unless another iterator has.

        Whoever gives up waiting for that does not end it for the others, nor for the next time.
        """
        if self._member is None and (self._starting is None or self._starting.done()):
            work = self._start(None, is_batch=False)
            self._starting = asyncio.get_running_loop().create_task(work)
            # What it raises is for whoever waits, should there be somebody.
            self._starting.add_done_callback(lambda task: task.cancelled() or task.exception())
        if self._starting is not None:
            await asyncio.shield(self._starting)
        assert self._member is not None
        self._life.require()
        if self._member.handout is None:
            raise NotRunning(self._life.what, "has a handler", "use either a handler or iteration")
        return self._member.handout

    def pause(self) -> None:
        """Fetch nothing more; what is in memory is still handled, and the queues stay."""
        self._require_member().pulling.going.clear()

    def resume(self) -> None:
        """Fetch again."""
        self._require_member().pulling.going.set()

    async def close(self) -> None:
        """Stop fetching, let handlers end, save offsets and leave the group; may be called again.

        Handlers get ``drain_timeout_ms`` of the client; then they are cancelled, and what they had
        is delivered again. Called by a handler it only begins all that.
        """
        if self._is_handler():
            self._spawn(self._close())
        else:
            await self._close()

    # --- what can be seen of it

    @property
    def group(self) -> str:
        return unwrap_group(self._namespace, self._group)

    @property
    def client_id(self) -> str:
        """By which brokers know this member."""
        return self._require_member().instance.client_id

    @property
    def is_running(self) -> bool:
        return self._life.is_running

    @property
    def topics(self) -> tuple[str, ...]:
        """What it subscribes, without the group's own retry topic."""
        return tuple(unwrap_topic(self._namespace, topic) for topic in self._subscriptions)

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """What this member reads now, the group's retry topic included."""
        if self._member is None or not self._life.is_running:
            return ()
        return tuple(unwrap_queue(self._namespace, q) for q in sorted(self._member.queues.owned))

    def progress(self) -> list[QueueProgress]:
        """How it stands with each queue, as of the last pull."""
        if self._member is None or not self._life.is_running:
            return []
        return [
            QueueProgress(unwrap_queue(self._namespace, queue), len(owned.cached), owned.lag)
            for queue, owned in sorted(self._member.queues.owned.items())
        ]

    # --- the inside

    async def _start(self, handler: Callable[[Any], Any] | None, *, is_batch: bool) -> None:
        self._shared.require()
        if not self._subscriptions:
            fact = f"{self._life.what} has no subscription"
            raise InvalidArgument("topic", fact, "call subscribe(topic) before it is started")
        self._life.begin()
        instance = None
        try:
            instance = self._shared.instance_for_consumer(self._group, self._settings.mode)
            setup = ConsumerSetup(
                instance,
                self._settings,
                self._group,
                self.group,
                self._namespace,
                self._codec,
                is_batch,
            )
            self._member = member = PushMember(
                self._shared, setup, handler, hooks=self._hooks, filters=self._filters
            )
            for wanted in self._all_subscriptions():
                member.subscribe(wanted, self._filters_by_topic.get(wanted.topic))
            await self._join(member)
        except BaseException:
            await self._close()
            if instance is not None and self._member is None:
                self._shared.release_consumer(instance, self._group)
            raise

    async def _join(self, member: PushMember[T]) -> None:
        """In a task of its own, so that who closes the consumer meanwhile can end it."""
        self._joining = asyncio.get_running_loop().create_task(member.start())
        try:
            await self._joining
        except asyncio.CancelledError:
            if self._life.is_running:
                raise
            raise _ClosedMeanwhile(
                self._life.what, "was closed while it started", "make a new one"
            ) from None

    def _all_subscriptions(self) -> list[SubscriptionData]:
        found = list(self._subscriptions.values())
        own_retries = retry_topic(self._group)
        if self._settings.mode == "cluster" and own_retries not in self._subscriptions:
            found.append(subscription(own_retries, version_ms=self._shared.clock.now_ms()))
        return found

    async def _run(self, starting: Coroutine[Any, Any, None]) -> None:
        with contextlib.suppress(_ClosedMeanwhile):  # its first message may have made it end
            await starting
        try:
            await self._closed.wait()
        except asyncio.CancelledError:
            await self._close()
            raise

    def _is_handler(self) -> bool:
        return self._member is not None and self._member.is_handler()

    async def _close(self) -> None:
        if not self._life.end_here():
            if self._life.state is State.CLOSING:
                await self._closed.wait()
            else:
                self._shared.drop(self)
            return
        try:
            try:
                if self._joining is not None and not self._joining.done():
                    self._joining.cancel()
                    await asyncio.wait((self._joining,))
            finally:
                if self._member is not None:
                    await self._leave(self._member)
        finally:
            self._life.ended()
            self._shared.drop(self)
            self._closed.set()

    async def _leave(self, member: PushMember[T]) -> None:
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
        try:
            await member.stop()
        finally:
            self._shared.release_consumer(member.instance, self._group)

    async def _announce(self, member: PushMember[T], wanted: SubscriptionData) -> None:
        try:
            await member.instance.routes.refresh(wanted.topic)
            if wanted.expression_type != TAG_EXPRESSION:
                await member.check(wanted)
        except CometError as error:
            _log.error("group=%s topic=%s subscription: %s", self.group, wanted.topic, error)
        member.instance.heartbeat_soon()
        member.wake_rebalance()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("group=%s %s", self.group, error, exc_info=error)

    def _require_member(self) -> PushMember[T]:
        self._life.require()
        if self._member is None:
            raise NotRunning(self._life.what, "is being started", "wait for start()")
        return self._member

    def _require_not_closed(self) -> None:
        if self._life.state is not State.NEW:
            self._life.require()


def _callable(handler: Any) -> Callable[[Any], Any]:
    if not callable(handler):
        fact = f"{handler!r} cannot be called"
        raise InvalidArgument("handler", fact, "pass a function that takes a message")
    found: Callable[[Any], Any] = handler
    return found
