"""``LiteConsumer``: messages are fetched ahead in the background and taken with ``poll``."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Generic, Self, TypeVar

from cometmq import logs
from cometmq.client.core.arrivals import time_ms
from cometmq.client.core.checks import check_consumer_group, check_topic, checked_timeout
from cometmq.client.core.message import Message
from cometmq.client.core.names import unwrap_queue, wrap_group, wrap_queue, wrap_topic
from cometmq.client.core.settings import LiteSettings
from cometmq.client.core.subscriptions import subscription
from cometmq.client.core.value_codecs import ValueCodec
from cometmq.client.hooks import ConsumeHook, FilterHook
from cometmq.client.life import ClosedOnExit, Life, State
from cometmq.client.lite_queue import LiteQueue
from cometmq.client.lite_reading import LiteReading, not_assigned, queue_name
from cometmq.client.pull_member import PullHooks, QueuesListener, QueuesListeners
from cometmq.client.queue_offsets import max_offset, min_offset, offset_at
from cometmq.client.shared import Shared
from cometmq.errors import InvalidArgument, SettingsError
from cometmq.model.group import SubscriptionData
from cometmq.model.offsets import MessageQueue

_log = logs.get_logger("cometmq.client")

T = TypeVar("T")


class LiteConsumer(ClosedOnExit, Generic[T]):
    """Fetches ahead and lets its user set the pace::

        async with mq.lite_consumer("billing") as lite:
            lite.subscribe("orders", tags="paid")
            while True:
                for message in await lite.poll():
                    ...

    Queues are shared with the group (``subscribe``) or fixed (``assign``), never both. What was
    polled counts as done when the next ``poll`` begins, and is committed by itself from time to
    time (``is_auto_commit``); messages that fail are the user's business. It starts when it is
    entered, or with the first call that is awaited, and is closed with its client at the latest.
    """

    def __init__(
        self,
        shared: Shared,
        group: str,
        settings: LiteSettings,
        *,
        codec: ValueCodec[T],
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[FilterHook] = (),
    ) -> None:
        self._namespace = shared.namespace or ""
        check_consumer_group(wrap_group(self._namespace, group))
        if settings.pull_timeout_ms < settings.pull_hold_ms:
            reason = f"{settings.pull_timeout_ms} is less than pull_hold_ms"
            raise SettingsError("pull_timeout_ms", reason, "brokers must have time to answer")
        self._life = Life(f"lite consumer '{group}'")
        self._shared = shared
        self._group = group
        self._settings = settings
        self._codec = codec
        self._hooks = PullHooks(group, self._namespace, hooks, filters)
        self._listeners = QueuesListeners(self._namespace)
        self._starting: asyncio.Task[None] | None = None
        self._closing = asyncio.Lock()
        self._reading: LiteReading[T] | None = None  # once it is started
        self._subscriptions: dict[str, SubscriptionData] = {}  # by topic
        self._assigned: dict[MessageQueue, SubscriptionData] = {}
        shared.add(self)

    async def __aenter__(self) -> Self:
        await self._started()
        return self

    async def close(self) -> None:
        """Commit what is done (if it commits by itself), save offsets, leave the group.

        May be called again. What was polled last, and not followed by another ``poll``, is not
        done: ``commit`` before, if it is.
        """
        self._life.require_own_loop()
        starting = self._starting
        if starting is not None and not starting.done():  # it can be stopped when it has started
            await asyncio.wait((starting,))
        async with self._closing:
            await self._stop()

    # --- what is read

    def subscribe(
        self, topic: str, *, tags: str | Iterable[str] | None = None, sql: str | None = None
    ) -> None:
        """Read a topic together with the other members of the group, or read it otherwise."""
        self._require_not_closed()
        if self._assigned:
            raise _exclusive("subscribe", "assign")
        wanted = self._subscription(topic, tags, sql)
        self._subscriptions[wanted.topic] = wanted
        if self._reading is not None:
            self._reading.subscribe(wanted)

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic; its queues go with the next rebalance."""
        self._require_not_closed()
        name = wrap_topic(self._namespace, topic)
        self._subscriptions.pop(name, None)
        if self._reading is not None:
            self._reading.unsubscribe(name)

    def assign(
        self,
        queues: Iterable[MessageQueue],
        *,
        tags: str | Iterable[str] | None = None,
        sql: str | None = None,
    ) -> None:
        """Read exactly these queues, whatever other members do; replaces those from before."""
        self._require_not_closed()
        if self._subscriptions:
            raise _exclusive("assign", "subscribe")
        if tags is not None and not isinstance(tags, str):
            tags = tuple(tags)
        wanted = [wrap_queue(self._namespace, queue) for queue in queues]
        by_topic = {q.topic: self._subscription(q.topic, tags, sql) for q in wanted}
        self._assigned = {queue: by_topic[queue.topic] for queue in wanted}
        if self._reading is not None:
            self._reading.assign(self._assigned)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic. Raises NoRoute."""
        await self._started()
        found = await self._shared.routes.find(wrap_topic(self._namespace, topic))
        return tuple(unwrap_queue(self._namespace, queue) for queue in found.read_queues)

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are this consumer's now."""
        if self._reading is None or not self._life.is_running:
            return frozenset()
        owned = self._reading.owned()
        return frozenset(unwrap_queue(self._namespace, queue) for queue in owned)

    def on_queues_changed(self, listener: QueuesListener) -> None:
        """Call this when a topic has other queues, or this consumer has other ones of them."""
        self._listeners.add(listener)

    # --- messages

    async def poll(self, timeout_ms: int | None = None) -> list[Message[T]]:
        """The next messages, of one queue and at most ``pull_count``; none when the time is over.

        What was polled before counts as done from now on.
        """
        if timeout_ms is not None:
            checked_timeout(timeout_ms, minimum=0)
        reading = await self._started()
        await asyncio.sleep(0)  # whoever polls all the time must not keep others from working
        limit_ms = self._settings.poll_timeout_ms if timeout_ms is None else timeout_ms
        found = await reading.poll(limit_ms)
        if found is None:
            self._life.require()
            return []
        queue, messages = found
        self._tell(queue, messages)
        return messages

    def __aiter__(self) -> AsyncIterator[Message[T]]:
        """One message after the other, until it is closed; each is done when the next is asked for.

        After a ``break`` the last one is not done, until something else is taken from its queue.
        """
        return _Messages(self)

    async def _next(self, last: "_Handed[T] | None", *, has_begun: bool) -> "_Handed[T]":
        reading = self._reading
        if reading is None or not (has_begun and self._life.is_ending):
            reading = await self._started()
        if last is not None:
            reading.settle(*last)
        found = await reading.next()
        if found is None:
            raise StopAsyncIteration
        lite, message = found
        self._tell(lite.queue, [message])
        return found

    # --- positions

    def position(self, queue: MessageQueue) -> int | None:
        """Where the next message to be polled is, or behind all; None until that is known."""
        return self._lite(queue).position

    async def committed(self, queue: MessageQueue) -> int | None:
        """How far the group is: as this consumer committed or, if it did not, as is stored.

        None when nothing was stored ever. Raises what asking a broker raises.
        """
        reading = await self._started()
        return await reading.stored(wrap_queue(self._namespace, queue))

    async def commit(
        self, offsets: Mapping[MessageQueue, int] | None = None, *, persist: bool = True
    ) -> None:
        """Say that everything polled so far is done, or everything before these offsets.

        Queues that are not this consumer's any more are passed over. Without ``persist`` offsets
        are saved with the next regular save; with it, Unreachable says that a broker has not taken
        them.
        """
        reading = await self._started()
        if offsets is None:
            reading.pass_polled()
            chosen = reading.positions()
        else:
            chosen = self._own(reading, offsets)
        store = reading.member.store
        for queue, offset in chosen.items():
            store.update(queue, offset, forward_only=False)
        if persist:
            await reading.member.save(chosen)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset; what was fetched is thrown away. The next commit says so, too.

        Raises InvalidArgument for a queue that is not assigned and for an offset that it does not
        have, and what asking its broker raises.
        """
        instance = (await self._started()).member.instance
        name = self._lite(queue).queue
        first, end = await min_offset(instance, name), await max_offset(instance, name)
        if not first <= offset <= end:
            fact = f"{offset} is not in queue {queue_name(queue)}, which has {first} to {end}"
            raise InvalidArgument("offset", fact, "use seek_to_begin or seek_to_end")
        self._seek(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message that is still there."""
        instance = (await self._started()).member.instance
        self._seek(queue, await min_offset(instance, self._lite(queue).queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Pass over everything that is there now."""
        instance = (await self._started()).member.instance
        self._seek(queue, await max_offset(instance, self._lite(queue).queue))

    async def seek_to_time(self, queue: MessageQueue, time: int | datetime) -> None:
        """Go on at the first message that was stored at a time (in ms, or with a zone) or later.

        Brokers before 5.0 may begin with one that is a little older.
        """
        moment_ms = time_ms("time", time)
        instance = (await self._started()).member.instance
        self._seek(queue, await offset_at(instance, self._lite(queue).queue, moment_ms))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch no more of these for now; what was fetched can still be polled."""
        for lite in [self._lite(queue) for queue in queues]:
            lite.is_paused = True

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch them again."""
        for lite in [self._lite(queue) for queue in queues]:
            lite.is_paused = False
            lite.changed.set()

    # --- the inside

    async def _started(self) -> LiteReading[T]:
        reading = self._reading
        if reading is None or not reading.is_started:
            if self._starting is None and self._life.state is State.NEW:
                # In a task of its own: who gives up waiting does not end it for all others.
                work = self._start()
                name = f"starting {self._life.what}"
                self._starting = asyncio.get_running_loop().create_task(work, name=name)
            if self._starting is not None and not self._starting.done():
                await asyncio.shield(self._starting)
            reading = self._reading
        self._life.require()
        assert reading is not None
        return reading

    async def _start(self) -> None:
        self._shared.require()
        self._life.begin()
        try:
            self._reading = LiteReading(
                self._shared,
                self._group,
                self._settings,
                codec=self._codec,
                hooks=self._hooks,
                on_change=self._listeners.tell,
            )
            await self._reading.start(self._subscriptions.values(), self._assigned)
        except BaseException:
            await self._stop()
            raise

    async def _stop(self) -> None:
        try:
            if self._life.end():
                try:
                    if self._reading is not None:
                        await self._reading.stop()
                finally:
                    self._life.ended()
        finally:  # not before: who closes the client meanwhile waits for it
            self._shared.drop(self)

    def _require_not_closed(self) -> None:
        if self._life.state is not State.NEW:
            self._life.require()

    def _subscription(
        self, topic: str, tags: str | Iterable[str] | None, sql: str | None
    ) -> SubscriptionData:
        name = wrap_topic(self._namespace, topic)
        check_topic(name)
        return subscription(name, tags=tags, sql=sql, version_ms=self._shared.clock.now_ms())

    def _lite(self, queue: MessageQueue) -> LiteQueue[T]:
        self._require_not_closed()
        name = wrap_queue(self._namespace, queue)
        found = None if self._reading is None else self._reading.find(name)
        if found is None:
            raise not_assigned(queue)
        return found

    def _seek(self, queue: MessageQueue, offset: int) -> None:
        self._life.require()
        name = self._lite(queue).queue  # it may have gone while its broker was asked
        assert self._reading is not None
        self._reading.move(name, offset)

    def _own(
        self, reading: LiteReading[T], offsets: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, int]:
        known = {}
        for queue, offset in offsets.items():
            if offset < 0:
                fact = f"{offset} cannot be committed for queue {queue_name(queue)}"
                raise InvalidArgument("offsets", fact, "give the offset of the next message")
            name = wrap_queue(self._namespace, queue)
            if reading.find(name) is None:
                _log.info("group=%s queue=%s is not ours, not committed", self._group, name)
            else:
                known[name] = offset
        return known

    def _tell(self, queue: MessageQueue, messages: list[Message[T]]) -> None:
        if self._hooks.hooks:
            shown = unwrap_queue(self._namespace, queue)
            self._hooks.tell(shown, messages, self._shared.clock.now_ms())


_Handed = tuple[LiteQueue[T], Message[T]]


class _Messages(Generic[T]):
    """Iterates over one consumer; several of them share what it has."""

    def __init__(self, consumer: LiteConsumer[T]) -> None:
        self._consumer = consumer
        self._last: _Handed[T] | None = None
        self._has_begun = False
        self._is_asked = False  # somebody waits for the next message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[T]:
        if self._is_asked:  # of two messages that are out, nobody would settle one
            raise RuntimeError("this iterator is asked already; make one per task with aiter()")
        self._is_asked = True
        try:
            last, self._last = self._last, None
            self._last = await self._consumer._next(last, has_begun=self._has_begun)
            self._has_begun = True
            return self._last[1]
        finally:
            self._is_asked = False

    async def aclose(self) -> None:
        """Ask no more; the message that is out is not done."""
        self.__del__()

    def __del__(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            lite, message = last
            lite.abandoned.append(message)


def _exclusive(what: str, other: str) -> InvalidArgument:
    fact = f"{what} cannot be used together with {other}"
    return InvalidArgument(what, fact, "use one of the two, or another consumer")
