"""``Producer``: sends messages, alone or many at a time, and asks others for replies."""

import asyncio
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Self, TypedDict, TypeVar, Unpack, overload

import msgspec

from cometmq import logs
from cometmq.client.batching import Batching, Item
from cometmq.client.closing_time import ClosingTime
from cometmq.client.core import checks, names, outgoing
from cometmq.client.core.advice import NO_ADDRESS
from cometmq.client.core.message import Message, Source
from cometmq.client.core.outgoing import COMPRESSIONS, Outgoing, Writer
from cometmq.client.core.queue_selection import Selector
from cometmq.client.core.results import SendResult
from cometmq.client.core.send_budget import TIMED_OUT
from cometmq.client.core.settings import ProducerSettings
from cometmq.client.core.value_codecs import ValueCodec, codec_for, encode_value
from cometmq.client.hooks import SendGuard, SendHook
from cometmq.client.life import ClosedOnExit, Life
from cometmq.client.probing import Probing
from cometmq.client.requesting import Requesting, reply_properties, reply_topic
from cometmq.client.sending import Place, Sending
from cometmq.client.shared import Shared
from cometmq.client.watched import Watched
from cometmq.codec import core, recall_handle
from cometmq.codec.codes import RequestCode
from cometmq.codec.compression import compress
from cometmq.codec.headers.recall import RecallMessage, RecallMessageResponse
from cometmq.codec.headers.transaction import CheckTransactionState
from cometmq.codec.record import Record
from cometmq.codec.sysflag import with_compression
from cometmq.errors import InvalidArgument, RemoteProtocolError, SendFailed, Unreachable
from cometmq.model.offsets import MessageQueue

_log = logs.get_logger("cometmq.client")

DEFAULT_GROUP: Final = "comet_producer"
REQUEST_TIMEOUT_MS: Final = 3_000
THREAD_BYTES: Final = 64 * 1024
"""A body of this size is compressed on a thread, because the loop would be held up."""
MESSAGES_PER_TURN: Final = 256
"""Messages of ``send_many`` that are made ready before the loop gets its turn."""

_REPLY: Final = int(RequestCode.SEND_REPLY_MESSAGE_V2)

T = TypeVar("T")


class SendOptions(TypedDict, total=False):
    """What may be said of a message beside its topic and value: see ``Producer.send``."""

    tag: str | None
    keys: str | Iterable[str]
    properties: Mapping[str, str] | None
    delay: timedelta | float | None
    delay_level: int | None
    deliver_at: datetime | int | None
    ordering_key: str | None
    queue: MessageQueue | None
    selector: Selector | None
    flag: int
    wait_store: bool


class Producer(ClosedOnExit):
    """Sends messages in the name of a group; made by ``Client.producer`` and closed with it.

    Values are bytes, text, or anything JSON can hold, unless a codec was given. All methods may run
    many times at once; ``in_flight_max`` sends are under way, the others wait for their turn.
    """

    def __init__(
        self,
        shared: Shared,
        group: str | None = None,
        settings: ProducerSettings | None = None,
        *,
        codec: Any = None,
        hooks: Sequence[SendHook] = (),
        guards: Sequence[SendGuard] = (),
    ) -> None:
        self._settings = settings = settings or ProducerSettings()
        self._shared = shared
        self._namespace = namespace = shared.namespace or ""
        self._group = names.wrap_group(namespace, DEFAULT_GROUP if group is None else group)
        checks.check_producer_group(self._group)
        self._codec: ValueCodec[Any] | None = None if codec is None else codec_for(codec)
        self._clock = shared.clock
        self._unique_ids = shared.unique_ids
        self._timeout_ms = settings.send_timeout_ms
        self._drain_timeout_ms = shared.settings.drain_timeout_ms
        self._writer = _writer(settings, namespace)
        self._instance = shared.main
        self._sending = Sending(self._instance, self._group, settings, namespace=namespace)
        shown_group = names.unwrap_group(namespace, self._group)
        self._watched = Watched(self._sending, shown_group, namespace, shared.clock)
        self._watched.add(hooks, guards)
        self._batching = Batching(self._watched, settings)
        self._requesting = Requesting(self._instance, self._sending, self._watched, namespace)
        self._probing: Probing | None = None  # the detector, if it was asked for
        if self._sending.faults is not None and settings.is_probing:
            self._probing = Probing(self._instance, self._sending, self._sending.faults)
        # Nobody looks at sends, and they are not collected: the short way.
        self._is_plain = not (self._watched.is_watching or settings.is_batching)
        self._life = Life("this producer")
        self._closed = asyncio.Event()
        self._begin()

    def _begin(self) -> None:
        self._instance.add_producer(self)
        self._shared.add(self)
        self._life.begin()
        if self._probing is not None:
            self._probing.start()

    async def __aenter__(self) -> Self:
        self._life.require()
        return self

    async def close(self) -> None:
        """Take no more sends, let those under way finish, and leave; may be called again.

        They get ``drain_timeout_ms`` of the client; what takes longer ends by itself, or with the
        client's connections.
        """
        if not self._life.end_here():
            if self._life.is_closing_here:
                await self._closed.wait()
            return
        time = ClosingTime(self._drain_timeout_ms)
        try:
            await self._land(self._drain_timeout_ms)
        finally:
            # Also when somebody does not want to wait any longer: nothing of it may be left over.
            try:
                await self._leave(time)
            finally:
                self._life.ended()
                self._shared.drop(self)
                self._closed.set()

    async def _leave(self, time: ClosingTime) -> None:
        try:
            if self._probing is not None:
                await self._probing.stop()
        finally:
            await self._instance.remove_producer(self, time.parting_seconds)

    async def _land(self, timeout_ms: int) -> None:
        """Let everything under way finish, what is held included."""
        loop, flights = asyncio.get_running_loop(), self._sending.flights
        deadline = loop.time() + timeout_ms / 1000
        await self._batching.drain(timeout_ms)
        left_ms = max(0, round((deadline - loop.time()) * 1000))
        if not await flights.landed(left_ms):
            _log.warning("group=%s closed with %d sends under way", self._group, flights.count)

    # --- sending

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        delay: timedelta | float | None = None,
        delay_level: int | None = None,
        deliver_at: datetime | int | None = None,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        flag: int = 0,
        wait_store: bool = True,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message and wait until it is stored; a failed try is followed by others.

        ``keys`` find it again; a text may hold several, with blanks between them. ``delay`` (in
        seconds, or a timedelta) and ``deliver_at`` (milliseconds since 1970, or an aware datetime)
        need brokers of release 5; ``delay_level`` (1 to 18) is an entry of the broker's table.
        Messages with the same ``ordering_key`` go to the same queue; ``queue`` or ``selector``
        choose it otherwise: all three are tried once. ``wait_store=False`` does not wait for the
        disk or a slave where brokers do that. ``timeout_ms`` is for all tries together.

        Whoever cancels a send does not know whether it was stored. Raises SendFailed, NoRoute,
        Unreachable, RequestTimeout, InvalidArgument, EncodeError, Unsupported, TooManyRequests.
        """
        # As ``_written``, but without passing everything on once more: this is run per message.
        self._life.require()
        codec = self._codec
        body = value if codec is None and type(value) is bytes else encode_value(value, codec)
        is_large = len(body) >= THREAD_BYTES
        message = self._writer.write(
            topic,
            body,
            self._unique_ids.next(self._clock.now_ms()),
            tag=tag,
            keys=keys,
            properties=properties,
            delay_ms=None if delay is None else _delay_ms(delay),
            delay_level=delay_level,
            deliver_at_ms=None if deliver_at is None else _deliver_at_ms(deliver_at),
            ordering_key=ordering_key,
            flag=flag,
            wait_store=wait_store,
            is_compressible=not is_large,
        )
        limit_ms = self._timeout_ms if timeout_ms is None else checks.checked_timeout(timeout_ms)
        if is_large:
            message, limit_ms = await self._compressed(message, limit_ms)
        place = None
        if queue is not None or selector is not None or ordering_key is not None:
            place = self._place(message.topic, value, queue, selector, ordering_key)
        if self._is_plain:
            return await self._sending.send(message, limit_ms, place)
        return await self._send_otherwise(message, limit_ms, place)

    async def send_oneway(
        self,
        topic: str,
        value: Any,
        *,
        timeout_ms: int | None = None,
        **options: Unpack[SendOptions],
    ) -> None:
        """Send a message without waiting for an answer: nobody says whether it was stored.

        ``timeout_ms`` is for finding the broker and for being able to write to it. Takes and raises
        what ``send`` does.
        """
        self._life.require()
        limit_ms = self._timeout_ms if timeout_ms is None else checks.checked_timeout(timeout_ms)
        message, place, limit_ms = await self._written(topic, value, options, limit_ms)
        await self._watched.send_oneway(message, limit_ms, place)

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        flag: int = 0,
        wait_store: bool = True,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send many messages in few frames; one result per frame, in order.

        A value may be an ``Item``, which has its own keys, and whose tag, properties and flag count
        instead of those given here. All messages of a frame go to one queue. They are not
        compressed, and cannot be delayed. ``timeout_ms`` is for each frame. Raises what ``send``
        does; ``results`` of a SendFailed are those of the frames before it.
        """
        self._life.require()
        common = Item(None, tag, (), properties, flag)
        values = checks.listed_values(values)
        messages: list[Outgoing] = []
        for value in values:
            messages.append(self._written_item(topic, value, common, wait_store, ordering_key))
            if len(messages) % MESSAGES_PER_TURN == 0:
                await asyncio.sleep(0)
        place = self._place(self._writer.topic(topic), values, queue, selector, ordering_key)
        limit_ms = self._timeout_ms if timeout_ms is None else checks.checked_timeout(timeout_ms)
        return await self._batching.send_many(messages, limit_ms, place)

    # --- requests and replies

    @overload
    async def request(
        self,
        topic: str,
        value: Any,
        *,
        timeout_ms: int = ...,
        **options: Unpack[SendOptions],
    ) -> Message[bytes]: ...
    @overload
    async def request(
        self,
        topic: str,
        value: Any,
        *,
        reply_type: type[T] | ValueCodec[T],
        timeout_ms: int = ...,
        **options: Unpack[SendOptions],
    ) -> Message[T]: ...
    async def request(
        self,
        topic: str,
        value: Any,
        *,
        reply_type: Any = bytes,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        **options: Unpack[SendOptions],
    ) -> Message[Any]:
        """Send a message to which a consumer replies, and wait for that reply.

        ``reply_type`` is what the value of the reply is read as. Takes what ``send`` does. Raises
        NoReply when the request was stored but nobody replied in time, and what ``send`` does.
        """
        self._life.require()
        codec = codec_for(reply_type)
        limit_ms = checks.checked_timeout(timeout_ms)
        correlation_id = str(uuid.uuid4())
        system = outgoing.request(correlation_id, self._instance.client_id, limit_ms)
        message, place, limit_ms = await self._written(topic, value, options, limit_ms, system)
        record = await self._requesting.ask(message, correlation_id, limit_ms, place)
        return Message(record, Source("", codec, namespace=self._namespace))

    async def reply(
        self, message: Message[Any], value: Any, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Reply to a message that was sent with ``request``.

        Raises InvalidArgument when it was not, SendFailed when the asker cannot be reached.
        """
        self._life.require()
        topic, system = reply_topic(message), reply_properties(message)
        body = encode_value(value, self._codec)
        unique_id = self._unique_ids.next(self._clock.now_ms())
        is_large = len(body) >= THREAD_BYTES
        written = self._writer.write(
            topic, body, unique_id, system=system, is_compressible=not is_large
        )
        limit_ms = self._timeout_ms if timeout_ms is None else checks.checked_timeout(timeout_ms)
        if is_large:
            written, limit_ms = await self._compressed(written, limit_ms)
        # The broker that the request came through knows the asker; others may.
        place = Place(broker=message.broker_name)
        return await self._watched.send(written, limit_ms, place, code=_REPLY)

    async def recall(self, topic: str, handle: str, *, timeout_ms: int | None = None) -> str:
        """Take back a message that has not been delivered yet; the id of that message.

        ``handle`` is the ``recall_handle`` of its result. Raises InvalidArgument, NoRoute,
        Unreachable, and Refused when it is too late or the broker is too old (5.3.2).
        """
        self._life.require()
        wire_topic = self._writer.topic(topic)
        if names.is_retry_topic(wire_topic) or names.is_dead_letter_topic(wire_topic):
            problem = f"messages of topic '{topic}' cannot be recalled"
            raise InvalidArgument("topic", problem, "recall from the topic it was sent to")
        checks.check_handle(handle)
        try:
            broker = recall_handle.decode(handle).broker_name
        except RemoteProtocolError as error:
            advice = "pass the recall_handle of a SendResult"
            raise InvalidArgument("handle", error.fact, advice) from error
        limit_ms = self._timeout_ms if timeout_ms is None else checks.checked_timeout(timeout_ms)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_ms / 1000
        address = await self._recaller(wire_topic, broker, limit_ms)
        header = RecallMessage(wire_topic, handle, self._group)
        left_ms = max(1, round((deadline - loop.time()) * 1000))
        answer = await self._instance.ask(
            address, RequestCode.RECALL_MESSAGE, header, timeout_ms=left_ms
        )
        return core.read(answer, RecallMessageResponse).msg_id

    # --- for the instance

    @property
    def group(self) -> str:
        """As servers know it, with the namespace."""
        return self._group

    def topics(self) -> Collection[str]:
        """Whose routes are kept up to date."""
        return {*self._sending.topics(), *self._requesting.reply_topics}

    def check_transaction(self, address: str, request: CheckTransactionState, half: Record) -> None:
        """Only producers of transactions have half messages; another one of the group may."""
        _log.warning(
            "group=%s broker=%s asks about transaction of %s at %d, but this producer has none",
            self._group,
            address,
            half.topic,
            request.commit_log_offset,
        )

    # --- the inside

    async def _send_otherwise(
        self, message: Outgoing, timeout_ms: int, place: Place | None
    ) -> SendResult:
        if not self._settings.is_batching:
            return await self._watched.send(message, timeout_ms, place)
        queue = None
        if place is not None:
            queue = await self._sending.choose(message.topic, place, timeout_ms)
        return await self._batching.send(message, timeout_ms, queue)

    async def _written(
        self,
        topic: str,
        value: Any,
        options: SendOptions,
        timeout_ms: int,
        system: Mapping[str, str] | None = None,
    ) -> tuple[Outgoing, Place | None, int]:
        """A message ready to be sent, where its sender wants it, and what is left of the time."""
        body = encode_value(value, self._codec)
        delay, deliver_at = options.get("delay"), options.get("deliver_at")
        ordering_key = options.get("ordering_key")
        message = self._writer.write(
            topic,
            body,
            self._unique_ids.next(self._clock.now_ms()),
            tag=options.get("tag"),
            keys=options.get("keys"),
            properties=options.get("properties"),
            delay_ms=None if delay is None else _delay_ms(delay),
            delay_level=options.get("delay_level"),
            deliver_at_ms=None if deliver_at is None else _deliver_at_ms(deliver_at),
            ordering_key=ordering_key,
            flag=options.get("flag", 0),
            wait_store=options.get("wait_store", True),
            system=system,
            is_compressible=len(body) < THREAD_BYTES,
        )
        queue, selector = options.get("queue"), options.get("selector")
        place = self._place(message.topic, value, queue, selector, ordering_key)
        if len(body) >= THREAD_BYTES:
            message, timeout_ms = await self._compressed(message, timeout_ms)
        return message, place, timeout_ms

    def _written_item(
        self, topic: str, value: Any, common: Item, wait_store: bool, ordering_key: str | None
    ) -> Outgoing:
        item = value if isinstance(value, Item) else msgspec.structs.replace(common, value=value)
        return self._writer.write(
            topic,
            encode_value(item.value, self._codec),
            self._unique_ids.next(self._clock.now_ms()),
            tag=common.tag if item.tag is None else item.tag,
            keys=item.keys,
            properties={**(common.properties or {}), **(item.properties or {})},
            ordering_key=ordering_key,
            flag=item.flag or common.flag,
            wait_store=wait_store,
            is_compressible=False,
        )

    def _place(
        self,
        topic: str,
        value: Any,
        queue: MessageQueue | None,
        selector: Selector | None,
        ordering_key: str | None,
    ) -> Place | None:
        """Where a message must go, None when any queue is good."""
        if queue is None and selector is None:
            return None if ordering_key is None else Place(key=ordering_key)
        if queue is not None and selector is not None:
            raise InvalidArgument("queue", "queue and selector were both given", "choose one")
        if queue is None:
            return Place(selector=selector, value=value)
        queue = names.wrap_queue(self._namespace, queue)
        checks.check_queue(queue, topic)
        return Place(queue)

    async def _compressed(self, message: Outgoing, timeout_ms: int) -> tuple[Outgoing, int]:
        """The message with its body compressed, unless bodies of its size are not.

        Also what is left of the time: the loop's threads may be busy with something else.
        """
        if not self._writer.compresses(message.body):
            return message, timeout_ms
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        kind = COMPRESSIONS[self._settings.compression]
        level = self._settings.compression_level
        flights = self._sending.flights
        flights.count += 1  # beyond the limit, if need be: who closes the producer waits for it
        try:
            async with asyncio.timeout_at(deadline):
                body = await asyncio.to_thread(compress, message.body, kind, level)
        except TimeoutError as error:
            topic = names.unwrap_topic(self._namespace, message.topic)
            reason = "compressing its body took too long, or all threads of the loop are busy"
            raise SendFailed(topic, 0, timeout_ms, (), TIMED_OUT, reason, False) from error
        finally:
            flights.leave()
        sys_flag = with_compression(message.sys_flag, kind)
        left_ms = max(1, round((deadline - loop.time()) * 1000))
        return msgspec.structs.replace(message, body=body, sys_flag=sys_flag), left_ms

    async def _recaller(self, topic: str, broker: str, timeout_ms: int) -> str:
        """Who takes a message back: the broker that has it, or any that knows the topic."""
        view = await self._sending.find(topic, timeout_ms)
        table = self._instance.routes.table
        brokers = (broker, *(data.broker_name for data in view.route.broker_datas))
        for name in brokers:
            address = table.master(name)
            if address is not None:
                return self._instance.vip(address)
        raise Unreachable(broker, f"no route of topic '{topic}' names its master", NO_ADDRESS)


def _writer(settings: ProducerSettings, namespace: str) -> Writer:
    checks.check_compression(settings.compression, settings.compression_level)
    kind = COMPRESSIONS[settings.compression]
    compress(b"", kind, settings.compression_level)  # a missing package is missed now, not later
    return Writer(
        namespace=namespace,
        body_bytes_max=settings.body_bytes_max,
        compress_over_bytes=settings.compress_over_bytes,
        compression=kind,
        compression_level=settings.compression_level,
    )


def _delay_ms(delay: timedelta | float) -> int:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    try:
        return round(seconds * 1000)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(
            "delay", f"{delay!r} is no delay", "give seconds, or a timedelta"
        ) from error


def _deliver_at_ms(when: datetime | int) -> int:
    if not isinstance(when, datetime):
        return when
    if when.tzinfo is None:
        raise InvalidArgument(
            "deliver_at",
            f"{when.isoformat()} does not say in which time zone",
            "give an aware datetime, such as datetime.now(UTC) + timedelta(hours=1)",
        )
    return round(when.timestamp() * 1000)
