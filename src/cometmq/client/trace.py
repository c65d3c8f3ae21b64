"""Message trace: reports of sends and handlers in a topic, where RocketMQ's tools find them.

A hook writes each event as text at once (a message would be too large to keep) and puts it into a
bounded queue; a task sends what is there in batches. Tracing never holds anything up: what does
not fit, or cannot be sent, is lost and counted.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import msgspec

from cometmq import logs
from cometmq.client.background import Repeater
from cometmq.client.core.message import Message
from cometmq.client.core.names import unwrap_group, unwrap_topic
from cometmq.client.core.results import LocalState
from cometmq.client.core.settings import ProducerSettings
from cometmq.client.hooks import ConsumeContext, Outcome, SendContext, TransactionContext
from cometmq.client.producer import Producer
from cometmq.client.shared import Shared
from cometmq.clock import Clock
from cometmq.codec.message_id import UniqueIds
from cometmq.codec.properties import Property
from cometmq.codec.trace import TraceKind, TraceRecord, write
from cometmq.errors import CometError
from cometmq.remoting.running import Background

_log = logs.get_logger("cometmq.client")

WAITING_MAX = 2_048
"""Events that wait to be sent; more are lost."""
BATCH_MAX = 100
"""Events in one report."""
BATCH_BYTES_MAX = 128_000
"""Body of one report."""
KEYS_BYTES_MAX = 8_192
"""Ids and keys by which a report is found; they are properties, of which there is room for 32 K."""
FLUSH_INTERVAL_MS = 500
CLOSE_TIMEOUT_MS = 3_000
"""What the last reports get to leave."""

Send = Callable[[str, bytes, str], Awaitable[object]]
"""Sends a body with keys to a topic; may raise a CometError."""

_NOTE = "cometmq.trace"
_OUTCOMES: dict[Outcome, int] = {
    "SUCCESS": 0,
    "TIME_OUT": 1,
    "EXCEPTION": 2,
    "RETURNNULL": 3,
    "FAILED": 4,
}
_STATES = {
    LocalState.COMMIT: "COMMIT_MESSAGE",
    LocalState.ROLLBACK: "ROLLBACK_MESSAGE",
    LocalState.UNKNOWN: "UNKNOW",  # Java's spelling
}


GROUP_PREFIX = "_INNER_TRACE_PRODUCER-"
SEND_TIMEOUT_MS = 5_000


def tracer(shared: Shared, topic: str) -> "Tracer":
    """Who reports to ``topic`` for a client; closed with it."""
    found = shared.tracers.get(topic)
    if isinstance(found, Tracer):
        return found
    settings = ProducerSettings(send_timeout_ms=SEND_TIMEOUT_MS)
    producer = Producer(shared, GROUP_PREFIX + topic, settings)
    shared.drop(producer)  # it is closed from here, after everybody who reports

    async def send(topic: str, body: bytes, keys: str) -> None:
        await producer.send(topic, body, keys=keys)

    made = Tracer(
        send,
        topic=topic,
        clock=shared.clock,
        unique_ids=shared.unique_ids,
        namespace=shared.namespace,
        on_closed=producer.close,
    )
    shared.tracers[topic] = made
    made.start()
    return made


class _Event(msgspec.Struct, frozen=True, gc=False):
    """One record of a report as text, and by what it is found."""

    text: str
    keys: str


class Tracer:
    """The hooks of producers and consumers whose messages are traced.

    ``start`` it before use; ``close`` sends what is left and belongs after the last event.
    """

    def __init__(
        self,
        send: Send,
        *,
        topic: str,
        clock: Clock,
        unique_ids: UniqueIds,
        namespace: str | None = None,
        on_closed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.sent_count = 0  # events
        self.lost_count = 0  # events
        self._send = send
        self._on_closed = on_closed
        self._topic = topic
        self._clock = clock
        self._unique_ids = unique_ids
        self._namespace = namespace or ""
        self._waiting: deque[_Event] = deque()
        self._is_full = False  # which is said once
        self._flushing = asyncio.Lock()
        self._background = Background()
        self._repeater = Repeater(
            f"sending traces to {topic}", self.flush, interval_ms=FLUSH_INTERVAL_MS
        )

    def start(self) -> None:
        self._repeater.start(self._background)

    async def close(self) -> None:
        """Send what waits, within bounds, and stop."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1000):
                await self.flush()  # after the one that may be under way, which ends by itself
        except (CometError, TimeoutError) as error:
            self.lost_count += len(self._waiting)
            self._waiting.clear()
            _log.warning("topic=%s last traces not sent: %s", self._topic, error)
        finally:
            await self._background.stop()
        if self.lost_count:
            _log.warning("topic=%s %d trace events were lost", self._topic, self.lost_count)
        if self._on_closed is not None:
            await self._on_closed()

    async def flush(self) -> None:
        """Send what waits now. What cannot be sent is lost. Raises the CometError of a send."""
        async with self._flushing:
            self._is_full = False
            while self._waiting:
                await self._send_one(list(self._next_batch()))

    # --- hooks

    def before_send(self, context: SendContext) -> None:
        """Nothing is known yet."""

    def after_send(self, context: SendContext) -> None:
        """A send that was answered; others leave no trace, and reports do not report themselves."""
        result = context.result
        if result is None or not result.is_traced or context.topic == self._topic:
            return
        now_ms = self._clock.now_ms()
        ids = result.message_id.split(",")
        offset_ids = result.offset_id.split(",")
        for number, message_id in enumerate(ids):
            record = TraceRecord(
                kind=TraceKind.SENT,
                message_id=message_id,
                at_ms=context.began_ms,
                region=result.region,
                group=unwrap_group(self._namespace, context.group),
                topic=unwrap_topic(self._namespace, context.topic),
                tags=context.tag,
                keys=" ".join(context.keys),
                store_host=context.address,
                body_bytes=len(context.body),
                cost_ms=max(0, now_ms - context.began_ms) // len(ids),
                message_type=context.kind,
                offset_id=offset_ids[number] if number < len(offset_ids) else None,
                is_success=result.is_ok,
            )
            self._add(record)

    def before_consume(self, context: ConsumeContext) -> None:
        traced = tuple(_traced(context.messages))
        if not traced:
            return
        now_ms = self._clock.now_ms()
        request_id = self._unique_ids.next(now_ms)
        context.notes[_NOTE] = (request_id, traced)
        for message in traced:
            record = TraceRecord(
                kind=TraceKind.RECEIVED,
                message_id=message.message_id,
                at_ms=now_ms,
                region=message.properties.get(Property.MSG_REGION),
                group=unwrap_group(self._namespace, context.group),
                request_id=request_id,
                retry_times=message.reconsume_times,
                keys=" ".join(message.keys),
            )
            self._add(record)

    def after_consume(self, context: ConsumeContext) -> None:
        request_id, traced = context.notes.pop(_NOTE, ("", ()))
        if not traced:
            return
        now_ms = self._clock.now_ms()
        for message in traced:
            record = TraceRecord(
                kind=TraceKind.CONSUMED,
                message_id=message.message_id,
                at_ms=now_ms,
                group=unwrap_group(self._namespace, context.group),
                request_id=request_id,
                cost_ms=max(0, now_ms - context.began_ms) // len(context.messages),
                is_success=context.is_success,
                keys=" ".join(message.keys),
                outcome=_OUTCOMES[context.outcome],
            )
            self._add(record)

    def after_end(self, context: TransactionContext) -> None:
        record = TraceRecord(
            kind=TraceKind.TRANSACTION,
            message_id=context.message_id,
            at_ms=self._clock.now_ms(),
            region=context.region,
            group=unwrap_group(self._namespace, context.group),
            topic=unwrap_topic(self._namespace, context.topic),
            tags=context.tag,
            keys=" ".join(context.keys),
            store_host=context.address,
            message_type="commit",
            transaction_id=context.transaction_id,
            transaction_state=_STATES[context.state],
            is_from_check=context.is_from_check,
        )
        self._add(record)

    # --- the inside

    def _add(self, record: TraceRecord) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self.lost_count += 1
            if not self._is_full:
                self._is_full = True
                _log.warning("topic=%s traces come too fast, some are lost", self._topic)
            return
        keys = f"{record.message_id} {record.keys}" if record.keys else record.message_id
        if len(keys) > KEYS_BYTES_MAX // 4:  # which is the most a character can take
            keys = record.message_id
        self._waiting.append(_Event(write(record), keys))
        if len(self._waiting) >= BATCH_MAX:
            self._repeater.wake()

    def _next_batch(self) -> Iterator[_Event]:
        """The first events that fit into one report, at least one."""
        body_bytes = keys_bytes = count = 0
        while self._waiting and count < BATCH_MAX:
            event = self._waiting[0]
            body_bytes += len(event.text.encode("utf-8", "replace"))
            keys_bytes += len(event.keys.encode("utf-8", "replace")) + 1
            if count and (body_bytes > BATCH_BYTES_MAX or keys_bytes > KEYS_BYTES_MAX):
                return
            count += 1
            yield self._waiting.popleft()

    async def _send_one(self, events: list[_Event]) -> None:
        body = "".join([event.text for event in events]).encode("utf-8", "replace")
        keys = " ".join(dict.fromkeys(key for event in events for key in event.keys.split()))
        try:
            await self._send(self._topic, body, keys)
        except BaseException:
            self.lost_count += len(events)
            raise
        self.sent_count += len(events)


def _traced(messages: Iterable[Message[Any]]) -> Iterator[Message[Any]]:
    for message in messages:
        if message.properties.get(Property.TRACE_ON) != "false":
            yield message
