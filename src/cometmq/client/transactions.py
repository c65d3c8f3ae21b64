"""``TransactionProducer``: messages that appear only when a local transaction has succeeded.

Theory of operation. A half message is stored first, where no consumer sees it. Then the local
transaction runs, and the broker is told how it ended: the message appears, is dropped, or (when
nobody knows yet) stays half. What it was told is not answered and may get lost; so the broker asks
about every half message that stays so for too long, and it asks any producer of the group. That is
why ``check`` must find out from the message alone how its transaction ended, also for messages of
a process that is gone.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Self, TypeGuard

import msgspec

from cometmq import logs
from cometmq.client.core import checks, names, outgoing
from cometmq.client.core.message import Message, Source
from cometmq.client.core.outgoing import Outgoing
from cometmq.client.core.queue_selection import Selector
from cometmq.client.core.results import LocalState, SendResult, TransactionResult
from cometmq.client.core.settings import ProducerSettings
from cometmq.client.core.value_codecs import BYTES, ValueCodec, codec_for
from cometmq.client.flights import Flights
from cometmq.client.handler_runner import ENDING, ThreadEnded, is_async, is_outcome
from cometmq.client.hooks import SendGuard, SendHook, TransactionContext, TransactionHook
from cometmq.client.life import ClosedOnExit, Life
from cometmq.client.producer import Producer, SendOptions
from cometmq.client.shared import Shared
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.transaction import CheckTransactionState, EndTransaction
from cometmq.codec.message_id import decode_offset_id
from cometmq.codec.properties import Property
from cometmq.codec.record import Record
from cometmq.errors import CometError, InvalidArgument, Unreachable
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.running import Background

_log = logs.get_logger("cometmq.client")

REMARK_LENGTH_MAX: Final = 500
"""What a broker is told of a failure: it goes into its log."""

CHECKS_MAX: Final = 2_000
"""Questions about half messages that wait; more are passed over, for brokers ask again."""

Outcome = LocalState | None
Local = Callable[[SendResult], Outcome | Awaitable[Outcome]]
"""A local transaction: told where the half message is, it says how it ended."""
Check = Callable[[Message[Any]], Outcome | Awaitable[Outcome]]
"""Finds out how the transaction of a half message ended."""
Function = Callable[[Any], Any]
"""One of both."""


class TransactionProducer(ClosedOnExit):
    """Sends messages in transactions; made by ``Client.transaction_producer``, closed with it."""

    def __init__(
        self,
        shared: Shared,
        group: str,
        check: Check,
        settings: ProducerSettings | None = None,
        *,
        codec: Any = None,
        topics: Iterable[str] = (),
        hooks: Sequence[SendHook | TransactionHook] = (),
        guards: Sequence[SendGuard] = (),
    ) -> None:
        if not callable(check):
            fact = f"check must be a function, not {type(check).__name__}"
            raise InvalidArgument("check", fact, "give one that returns a LocalState")
        settings = settings or ProducerSettings()
        self._shared = shared
        self._instance = shared.main
        self._check = check
        reading: ValueCodec[Any] = BYTES if codec is None else codec_for(codec)
        namespace = shared.namespace or ""
        self._halves = _Halves(
            shared,
            group,
            settings,
            codec=codec,
            hooks=tuple(hook for hook in hooks if _is_send_hook(hook)),
            guards=guards,
            on_check=self._asked,
            more_topics=topics,
        )
        shared.drop(self._halves)  # it is closed from here, after what uses it
        self._source: Source[Any] = Source("", reading, group, namespace)
        self._shown_group = names.unwrap_group(namespace, self.group)
        self._hooks = tuple(hook for hook in hooks if _is_transaction_hook(hook))
        self._complaints: set[int] = set()  # ids of hooks that have failed
        self._running = Flights(settings.in_flight_max)  # transactions
        self._checks: deque[tuple[str, CheckTransactionState, Record]] = deque()
        self._has_checks = asyncio.Event()
        self._is_overrun = False  # which is said once
        self._background = Background()
        self._life = Life("this producer")
        self._closed = asyncio.Event()
        self._life.begin()
        shared.add(self)
        self._background.spawn(f"checks of {self.group}", self._answer_checks())
        self._background.spawn(f"routes of {self.group}", self._halves.introduce())

    async def __aenter__(self) -> Self:
        self._life.require()
        return self

    async def close(self) -> None:
        """Begin no more transactions, let those under way end, and leave; may be called again.

        They get ``drain_timeout_ms`` of the client. Of what takes longer the broker is not told;
        it asks another producer of the group.
        """
        if not self._life.end_here():
            if self._life.is_closing_here:
                await self._closed.wait()
            return
        try:
            await self._land()
        finally:
            # Also when somebody does not want to wait any longer: nothing of it may be left over.
            try:
                await self._leave()
            finally:
                self._life.ended()
                self._shared.drop(self)
                self._closed.set()

    async def _land(self) -> None:
        """Let transactions under way end, for some time."""
        has_landed = False
        try:
            has_landed = await self._running.landed(self._shared.settings.drain_timeout_ms)
        finally:
            if not has_landed:
                count = self._running.count
                _log.warning("group=%s closed with %d transactions under way", self.group, count)
                self._halves.hurry()

    async def _leave(self) -> None:
        try:
            await self._background.stop()
        finally:
            await self._halves.close()

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        local: Local,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        flag: int = 0,
        wait_store: bool = True,
        timeout_ms: int | None = None,
    ) -> TransactionResult:
        """Store a half message, run ``local``, and tell the broker how that ended.

        ``local`` gets the result of the send and returns a ``LocalState``. None and an exception,
        which is logged, are ``UNKNOWN``: the broker asks ``check`` later. A plain function runs on
        a thread. It does not run at all, and the message is dropped, when the half message was not
        stored as safely as the broker is set up for. The other arguments are those of
        ``Producer.send``; ``timeout_ms`` is for the half message. Raises what that does; nothing
        has run then.
        """
        self._life.require()
        if not callable(local):
            fact = f"local must be a function, not {type(local).__name__}"
            raise InvalidArgument("local", fact, "give one that returns a LocalState")
        options = SendOptions(
            tag=tag,
            keys=keys,
            properties=properties,
            ordering_key=ordering_key,
            queue=queue,
            selector=selector,
            flag=flag,
            wait_store=wait_store,
        )
        running = self._running
        running.count += 1  # not limited here: sends are, and locals may call each other
        try:
            message, sent = await self._halves.send_half(topic, value, options, timeout_ms)
            state, remark = LocalState.ROLLBACK, None
            if sent.is_ok:
                state, remark = await self._outcome(local, sent, sent.message_id)
            await self._end(message, sent, state, remark)
        finally:
            running.leave()
        return TransactionResult(sent, state)

    @property
    def group(self) -> str:
        """As servers know it, with the namespace."""
        return self._halves.group

    # --- ends

    async def _outcome(
        self, function: Function, argument: Any, name: str
    ) -> tuple[LocalState, str | None]:
        """What a function decided, and what the broker is told of its failure."""
        try:
            state = await _called(function, argument)
        except BaseException as error:
            if not is_outcome(error):
                raise
            _log.exception("group=%s message=%s transaction failed, unknown", self.group, name)
            return LocalState.UNKNOWN, f"{type(error).__name__}: {error}"[:REMARK_LENGTH_MAX]
        if isinstance(state, LocalState):
            return state, None
        if state is not None:
            shown = repr(state)[:100]
            _log.error("group=%s message=%s ended with %s, no LocalState", self.group, name, shown)
        return LocalState.UNKNOWN, None

    async def _end(
        self, message: Outgoing, sent: SendResult, state: LocalState, remark: str | None
    ) -> None:
        address = self._instance.routes.table.master(sent.queue.broker_name) or ""
        try:
            if not address:
                raise Unreachable(sent.queue.broker_name, "no route names its master any more")
            header = EndTransaction(
                self.group,
                sent.queue_offset,
                decode_offset_id(sent.offset_id).physical_offset,
                state.value,
                sent.message_id,
                None,
                sent.transaction_id,
                message.topic,
            )
            await self._tell(address, header, remark)
        except CometError as error:
            self._not_told(sent.message_id, error)
        context = TransactionContext(
            self._shown_group,
            sent.queue.topic,
            sent.message_id,
            sent.transaction_id,
            state,
            False,
            message.tag or None,
            tuple(message.keys.split()),
            address,
            sent.region,
        )
        self._call_hooks(context)

    async def _tell(self, address: str, header: EndTransaction, remark: str | None) -> None:
        await self._instance.tell(address, RequestCode.END_TRANSACTION, header, remark=remark)

    def _not_told(self, message_id: str, error: CometError) -> None:
        """Nothing is lost by that: the broker will ask."""
        _log.warning(
            "group=%s message=%s broker not told its end: %s", self.group, message_id, error
        )

    def _call_hooks(self, context: TransactionContext) -> None:
        for hook in self._hooks:
            try:
                hook.after_end(context)
            except Exception as error:
                if id(hook) in self._complaints:
                    _log.debug("group=%s hook=%r failed again: %r", self.group, hook, error)
                    continue
                self._complaints.add(id(hook))
                _log.exception("group=%s hook=%r failed, going on without it", self.group, hook)

    # --- checks

    def _asked(self, address: str, request: CheckTransactionState, half: Record) -> None:
        if len(self._checks) >= CHECKS_MAX:
            if not self._is_overrun:
                self._is_overrun = True
                _log.warning(
                    "group=%s %d checks wait, more are passed over", self.group, CHECKS_MAX
                )
            return
        self._checks.append((address, request, half))
        self._has_checks.set()

    async def _answer_checks(self) -> None:
        while True:
            await self._has_checks.wait()
            while self._checks:
                try:
                    await self._answer(*self._checks.popleft())
                except Exception:
                    _log.exception("group=%s a check failed, going on", self.group)
            self._has_checks.clear()
            self._is_overrun = False

    async def _answer(self, address: str, request: CheckTransactionState, half: Record) -> None:
        message: Message[Any] = Message(half, self._source)
        state, remark = await self._outcome(self._check, message, message.message_id)
        header = EndTransaction(
            self.group,
            request.tran_state_table_offset,
            request.commit_log_offset,
            state.value,
            message.message_id,
            True,
            request.transaction_id,
            half.topic,
        )
        try:
            await self._tell(address, header, remark)
        except CometError as error:
            self._not_told(message.message_id, error)
        context = TransactionContext(
            self._shown_group,
            message.topic,
            message.message_id,
            request.transaction_id,
            state,
            True,
            message.tag,
            message.keys,
            address,
            message.properties.get(Property.MSG_REGION, ""),
        )
        self._call_hooks(context)


class _Halves(Producer):
    """Sends half messages, and is who brokers ask about them."""

    def __init__(
        self,
        shared: Shared,
        group: str,
        settings: ProducerSettings,
        *,
        codec: Any,
        hooks: Sequence[SendHook],
        guards: Sequence[SendGuard],
        on_check: Callable[[str, CheckTransactionState, Record], None],
        more_topics: Iterable[str],
    ) -> None:
        self._on_check = on_check
        namespace = shared.namespace or ""
        if isinstance(more_topics, str):
            fact = f"topics is the text {more_topics!r} and no list of topics"
            raise InvalidArgument("topics", fact, f"write [{more_topics!r}]")
        self._more_topics = frozenset(names.wrap_topic(namespace, name) for name in more_topics)
        for topic in self._more_topics:
            checks.check_sendable(topic)
        super().__init__(shared, group, settings, codec=codec, hooks=hooks, guards=guards)

    async def send_half(
        self, topic: str, value: Any, options: SendOptions, timeout_ms: int | None
    ) -> tuple[Outgoing, SendResult]:
        self._life.require()
        system = outgoing.half(self.group)
        limit_ms = self._timeout_ms if timeout_ms is None else checks.checked_timeout(timeout_ms)
        message, place, limit_ms = await self._written(topic, value, options, limit_ms, system)
        sent = await self._watched.send(message, limit_ms, place, mode="transaction")
        if sent.transaction_id is None:  # 4.9 does not say it
            sent = msgspec.structs.replace(sent, transaction_id=sent.message_id)
        return message, sent

    def hurry(self) -> None:
        """Closing has had its time already."""
        self._drain_timeout_ms = 0

    async def introduce(self) -> None:
        """Let the brokers of topics know us before anything was sent: they may have questions."""
        for topic in self._more_topics:
            await self._instance.routes.refresh(topic)
        if self._more_topics:
            self._instance.heartbeat_soon()

    def topics(self) -> Collection[str]:
        return {*super().topics(), *self._more_topics}

    def check_transaction(self, address: str, request: CheckTransactionState, half: Record) -> None:
        self._on_check(address, request, half)


async def _called(function: Function, argument: Any) -> Any:
    """What a function says; a plain one runs on a thread."""
    if is_async(function):
        return await function(argument)
    result = await asyncio.to_thread(_on_thread, function, argument)
    return await result if inspect.isawaitable(result) else result


def _on_thread(function: Function, argument: Any) -> Any:
    try:
        return function(argument)
    except ENDING as error:
        raise ThreadEnded(repr(error)) from error


def _is_send_hook(hook: SendHook | TransactionHook) -> TypeGuard[SendHook]:
    return hasattr(hook, "before_send")


def _is_transaction_hook(hook: SendHook | TransactionHook) -> TypeGuard[TransactionHook]:
    return hasattr(hook, "after_end")
