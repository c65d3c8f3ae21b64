"""A received message, and what its handler decides about it.

A pull may bring thousands of messages of which a handler reads two attributes each. So a message
is one small object around the record as it was stored; whatever has to be decoded is decoded when
it is first asked for and then kept. Two threads that ask at the same time may both do the work,
with the same result.

What a handler says (``ack``, ``retry``, ``dead_letter``) is only written down here; the consumer
looks at it when the handler has returned.
"""

import enum
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import force_setattr

from cometmq.client.core.names import unwrap_topic
from cometmq.client.core.value_codecs import ValueCodec, decode_error
from cometmq.codec import batch, core
from cometmq.codec import properties as property_string
from cometmq.codec.compression import decompress
from cometmq.codec.message_id import encode_offset_id
from cometmq.codec.properties import Property
from cometmq.codec.record import Record, unpack_host
from cometmq.codec.sysflag import (
    COMPRESSED,
    COMPRESSION_MASK,
    INNER_BATCH,
    NEED_UNWRAP,
    TRANSACTION_MASK,
    compression_type,
)
from cometmq.errors import DecisionError, DecodeError, MissingDependency, RemoteProtocolError
from cometmq.model.offsets import MessageQueue
from cometmq.model.topic import RETRY_PREFIX

T = TypeVar("T")

BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""What a compressed body may grow to, unless its source says otherwise."""

DELAY_LEVEL_MAX: Final = 18
SUSPEND_MS_MIN, SUSPEND_MS_MAX = 10, 30_000

# As they stand in a property string: the name and what ends it.
_TAGS, _KEYS, _UNIQ_KEY, _RETRY_TOPIC = (
    f"{name}{property_string.NAME_END}".encode()
    for name in (Property.TAGS, Property.KEYS, Property.UNIQ_KEY, Property.RETRY_TOPIC)
)
_NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})


class Mode(enum.Enum):
    """How messages are handled, which says what may be decided about them."""

    CONCURRENT = "concurrent"
    ORDERLY = "orderly"
    BROADCAST = "broadcast"


class DecisionKind(enum.Enum):
    """What is to become of a message."""

    ACK = "ack"
    RETRY = "retry"
    """Handed back to the broker, which delivers it again."""
    SUSPEND = "suspend"
    """Kept, and its queue with it; handled again after a while."""
    DEAD_LETTER = "dead letter"


class Decision(NamedTuple):
    """What a handler wants; ``delay_level`` is for a retry, ``suspend_ms`` for a suspension.

    Level 0 leaves the delay to the broker, None the time to the consumer's settings.
    """

    kind: DecisionKind
    delay_level: int = 0
    suspend_ms: int | None = None


ACK: Final = Decision(DecisionKind.ACK)
RETRY: Final = Decision(DecisionKind.RETRY)
SUSPEND: Final = Decision(DecisionKind.SUSPEND)
DEAD_LETTER: Final = Decision(DecisionKind.DEAD_LETTER)


class Source(msgspec.Struct, Generic[T], frozen=True):
    """What all messages of a pull have in common.

    ``mode`` is None where nobody waits for a decision: browsed, polled and pulled messages.
    """

    broker_name: str
    codec: ValueCodec[T]
    group: str = ""
    namespace: str = ""
    mode: Mode | None = None
    body_bytes_max: int = BODY_BYTES_MAX


class Message(msgspec.Struct, Generic[T], frozen=True, eq=False):
    """A message as it was received; ``value`` is what the declared type makes of its body.

    ``record`` is what the broker stored, as it came. Nothing here can be assigned to.
    """

    # Made without keywords, once for each message pulled. The fields below the first two are
    # caches and what happened to the message since; ``force_setattr`` fills them.
    record: Record
    source: Source[T]
    _redeliveries: int = 0
    _decision: Decision | None = None
    _body: bytes | None = None
    _value: T | msgspec.UnsetType = msgspec.UNSET
    _properties: Mapping[str, str] | None = None
    _topic: str | None = None

    @property
    def value(self) -> T:
        """The body as the declared type. Raises DecodeError when it is not of that type."""
        value = self._value
        if value is msgspec.UNSET:
            body, codec = self.body, self.source.codec
            try:
                value = codec.decode(body)
            except Exception as error:  # a codec may be the user's and raise anything
                raise decode_error(self.message_id, codec, error) from error
            force_setattr(self, "_value", value)
        return value

    @property
    def body(self) -> bytes:
        """The body as it was sent, decompressed.

        Raises DecodeError when that fails or is too large, MissingDependency when the package for
        it is not installed.
        """
        if not self.record.sys_flag & COMPRESSED:
            return self.record.body
        body = self._body
        if body is None:
            body = self._decompressed()
            force_setattr(self, "_body", body)
        return body

    @property
    def body_bytes(self) -> int:
        """Size of the body as it is stored, which may be compressed."""
        return len(self.record.body)

    @property
    def stored_bytes(self) -> int:
        """Size of the whole record."""
        return self.record.size

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it comes from a retry topic."""
        topic = self._topic
        if topic is None:
            topic = self.record.topic
            if topic.startswith(RETRY_PREFIX):
                topic = self._property(_RETRY_TOPIC) or topic
            topic = unwrap_topic(self.source.namespace, topic)
            force_setattr(self, "_topic", topic)
        return topic

    @property
    def delivered_from(self) -> str:
        """The topic it was read from: ``%RETRY%<group>`` when it is delivered again."""
        return unwrap_topic(self.source.namespace, self.record.topic)

    @property
    def queue(self) -> MessageQueue:
        """The queue it was read from."""
        return MessageQueue(self.delivered_from, self.source.broker_name, self.record.queue_id)

    @property
    def broker_name(self) -> str:
        return self.source.broker_name

    @property
    def queue_id(self) -> int:
        return self.record.queue_id

    @property
    def queue_offset(self) -> int:
        return self.record.queue_offset

    @property
    def physical_offset(self) -> int:
        """Where it lies in its broker's log."""
        return self.record.physical_offset

    @property
    def message_id(self) -> str:
        """The id its sender gave it, which stays over retries; the offset id if it gave none."""
        return self._property(_UNIQ_KEY) or self.offset_id

    @property
    def unique_key(self) -> str | None:
        """The id its sender gave it."""
        return self._property(_UNIQ_KEY)

    @property
    def offset_id(self) -> str:
        """The id its broker gave it, which says where it lies."""
        return encode_offset_id(self.record.store_host, self.record.physical_offset)

    @property
    def tag(self) -> str | None:
        return self._property(_TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple((self._property(_KEYS) or "").split())

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, the user's and RocketMQ's own."""
        found = self._properties
        if found is None:
            raw = self.record.properties
            found = MappingProxyType(property_string.decode(raw)) if raw else _NO_PROPERTIES
            force_setattr(self, "_properties", found)
        return found

    @property
    def ordering_key(self) -> str | None:
        """The key by which its sender chose the queue, if it said so; Java, Go and Node.js do."""
        found = self.properties
        return (
            found.get(Property.SHARDING_KEY)
            or found.get(Property.SHARDING_KEY_GO)
            or found.get(Property.SHARDING_KEY_NODE)
        )

    @property
    def transaction_id(self) -> str | None:
        """The transaction it was sent in, None for all other messages."""
        found = self.properties
        if known := found.get(Property.TRANSACTION_ID):
            return known
        is_part = self.record.sys_flag & TRANSACTION_MASK or found.get(Property.TRAN_MSG) == "true"
        return found.get(Property.UNIQ_KEY) if is_part else None

    @property
    def born_ms(self) -> int:
        """When it was sent, by the sender's clock."""
        return self.record.born_timestamp

    @property
    def born_host(self) -> str:
        return _host(self.record.born_host)

    @property
    def stored_ms(self) -> int:
        """When it was stored, by the broker's clock."""
        return self.record.store_timestamp

    @property
    def store_host(self) -> str:
        return _host(self.record.store_host)

    @property
    def reconsume_times(self) -> int:
        """How often it was handled in vain: 0 at the first delivery."""
        return self.record.reconsume_times + self._redeliveries

    @property
    def flag(self) -> int:
        """The sender's, without a meaning to RocketMQ."""
        return self.record.flag

    @property
    def sys_flag(self) -> int:
        return self.record.sys_flag

    @property
    def decision(self) -> Decision | None:
        """What was decided about it, None as long as nothing was."""
        return self._decision

    def ack(self) -> None:
        """Say that it is done, whatever happens next in the handler."""
        self._waiting_mode("ack")
        self._decide("ack", ACK)

    def retry(self, delay_level: int = 0, suspend_ms: int | None = None) -> None:
        """Say that it is to be delivered again.

        ``delay_level`` (1 to 18) is an entry of the broker's table of delays, 0 lets the broker
        choose by the number of deliveries. Orderly handlers wait instead, with their queue:
        ``suspend_ms`` (10 to 30000) says how long, None is the consumer's setting. Raises
        DecisionError for an argument of the other kind of handler.
        """
        if self._waiting_mode("retry") is Mode.ORDERLY:
            if delay_level != 0:
                reason = "with a delay_level later messages of its queue would overtake it"
                raise self._refusal("retry", reason, "give suspend_ms, or nothing")
            decision = self._suspension(suspend_ms)
        else:
            if suspend_ms is not None:
                reason = "suspend_ms is for orderly handlers"
                raise self._refusal("retry", reason, "give a delay_level, or nothing")
            decision = self._retry_at(delay_level)
        self._decide("retry", decision)

    def dead_letter(self) -> None:
        """Give it up: it goes to the group's dead-letter topic, ``%DLQ%<group>``."""
        self._waiting_mode("dead letter")
        self._decide("dead letter", DEAD_LETTER)

    def __repr__(self) -> str:
        tag = "" if self.tag is None else f" tag={self.tag!r}"
        return (
            f"<Message {self.message_id} topic={self.topic!r}{tag} broker={self.broker_name!r}"
            f" queue={self.queue_id} offset={self.queue_offset} body_bytes={self.body_bytes}>"
        )

    def _property(self, mark: bytes) -> str | None:
        """One property; all of them are decoded only when somebody wants to see them."""
        known = self._properties
        if known is not None:
            return known.get(mark[:-1].decode())
        raw = self.record.properties
        value = property_string.find_value(raw, 0, len(raw), mark)
        return value.decode("utf-8", "replace") if value else None

    def _decompressed(self) -> bytes:
        record = self.record
        try:
            kind = compression_type(record.sys_flag)
            assert kind is not None, record.sys_flag
            return decompress(record.body, kind, self.source.body_bytes_max)
        except RemoteProtocolError as error:
            raise DecodeError(
                self.message_id, "compressed data", str(error), "see record.body for what is stored"
            ) from error

    def _waiting_mode(self, name: str) -> Mode:
        """The mode, if there is one in which ``name`` can be decided."""
        mode = self.source.mode
        if mode is None:
            reason = "it does not come from a consumer that waits for a decision"
            raise self._refusal(name, reason, "commit the position you have read to instead")
        if mode is Mode.BROADCAST and name != "ack":
            reason = "a broadcast message is never delivered again"
            raise self._refusal(name, reason, "handle the failure here, or consume as a cluster")
        return mode

    def _retry_at(self, delay_level: int) -> Decision:
        # bool and float compare like integers, and a duration is what people try first.
        if type(delay_level) is not int or not 0 <= delay_level <= DELAY_LEVEL_MAX:
            reason = f"delay_level {delay_level!r} is no whole number from 0 to {DELAY_LEVEL_MAX}"
            next_step = "levels are entries of the broker's messageDelayLevel, not times"
            raise self._refusal("retry", reason, next_step)
        return Decision(DecisionKind.RETRY, delay_level) if delay_level else RETRY

    def _suspension(self, suspend_ms: int | None) -> Decision:
        if suspend_ms is None:
            return SUSPEND
        if type(suspend_ms) is not int or not SUSPEND_MS_MIN <= suspend_ms <= SUSPEND_MS_MAX:
            reason = f"suspend_ms {suspend_ms!r} is not from {SUSPEND_MS_MIN} to {SUSPEND_MS_MAX}"
            raise self._refusal("retry", reason, "give whole milliseconds")
        return Decision(DecisionKind.SUSPEND, 0, suspend_ms)

    def _decide(self, name: str, decision: Decision) -> None:
        if self._decision is not None:
            reason = f"the decision was {self._decision.kind.value} already"
            raise self._refusal(name, reason, "decide once, before the handler returns")
        force_setattr(self, "_decision", decision)

    def _refusal(self, name: str, reason: str, next_step: str) -> DecisionError:
        return DecisionError(self.message_id, name, reason, next_step)


def messages_in(data: bytes, source: Source[T]) -> list[Message[T]]:
    """The messages in the body of a pull answer.

    Raises RemoteProtocolError when it is damaged; whether bodies can be read shows later.
    """
    return messages_of(core.parse_records(data), source)


def messages_of(records: list[Record], source: Source[T]) -> list[Message[T]]:
    """The messages in records that were pulled."""
    for record in records:
        if record.sys_flag & NEED_UNWRAP:
            records = list(_without_inner_batches(records))
            break
    return [Message(record, source) for record in records]


def settle(message: Message[Any], default: Decision) -> Decision:
    """End a delivery: what its handler decided or, if it said nothing, ``default``.

    A decision that comes later raises DecisionError instead of being lost without a word.
    """
    decision = message.decision
    if decision is None:
        decision = default
        force_setattr(message, "_decision", default)
    return decision


def redelivered(message: Message[T]) -> Message[T]:
    """The same message for another try from memory: undecided, and counted once more."""
    again = Message(message.record, message.source)
    force_setattr(again, "_redeliveries", message.reconsume_times + 1 - again.reconsume_times)
    return again


def _without_inner_batches(records: list[Record]) -> Iterator[Record]:
    """The records, with the messages of an inner batch (5.x) in its place.

    A batch that cannot be read stays one message: that is for its handler to judge, while an error
    here would stop the whole queue.
    """
    for record in records:
        if record.sys_flag & NEED_UNWRAP:
            try:
                yield from _unwrapped(record)
                continue
            except (RemoteProtocolError, MissingDependency):
                pass
        yield record


def _unwrapped(record: Record) -> list[Record]:
    kind = compression_type(record.sys_flag)
    data = record.body if kind is None else decompress(record.body, kind, BODY_BYTES_MAX)
    return [
        msgspec.structs.replace(
            record,
            sys_flag=record.sys_flag & ~(NEED_UNWRAP | INNER_BATCH | COMPRESSED | COMPRESSION_MASK),
            queue_offset=record.queue_offset + number,
            flag=item.flag,
            body=item.body,
            properties=item.properties,
        )
        for number, item in enumerate(batch.decode(data))
    ]


def _host(packed: bytes) -> str:
    ip, port = unpack_host(packed)
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
