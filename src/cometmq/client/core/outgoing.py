"""From the arguments of a send to what its frame needs: properties, flags, a compressed body.

This is run for every message. With tag and keys it is a few pieces of text put together; topics and
tags are looked at only once. Everything else is asked for rarely and has its own function.

The order of properties means nothing to readers. Those that nearly every message has stand as in
what Java writes: KEYS, UNIQ_KEY, WAIT, TAGS.
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from cometmq.client.core import checks
from cometmq.client.core.names import wrap_topic
from cometmq.codec.compression import LEVEL_DEFAULT, CompressionType, compress
from cometmq.codec.properties import NAME_END, VALUE_END, Property
from cometmq.codec.sysflag import TransactionType, with_compression
from cometmq.errors import InvalidArgument
from cometmq.model.limits import BODY_BYTES_MAX, PROPERTIES_BYTES_MAX

COMPRESS_OVER_BYTES: Final = 4_096
TOPICS_REMEMBERED_MAX: Final = 4_096
"""Topics whose check and namespace are remembered; when more were sent to it begins anew."""
TAGS_REMEMBERED_MAX: Final = 4_096
"""The same for tags, of which a topic has few."""

COMPRESSIONS: Final[Mapping[str, CompressionType]] = {
    "zlib": CompressionType.ZLIB,
    "lz4": CompressionType.LZ4,
    "zstd": CompressionType.ZSTD,
}
"""By the names that settings use."""

_TIMERS: Final = (Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS)
_DELAYS: Final = frozenset({Property.DELAY, *_TIMERS})

REPLY: Final = "reply"
"""What MSG_TYPE says of an answer to a request."""


class MessageKind(enum.Enum):
    """What a message is to its broker, as hooks and traces tell it."""

    NORMAL = "normal"
    DELAY = "delay"
    HALF = "half"
    """Waits for the end of its transaction."""
    REPLY = "reply"
    """Answers a request; it goes out with a request code of its own."""


_NORMAL, _HALF = MessageKind.NORMAL, MessageKind.HALF  # reading them off the Enum class is slow


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """One message ready to be sent. ``topic`` is as servers know it, ``body`` as it is sent."""

    topic: str
    body: bytes
    properties: str
    sys_flag: int
    flag: int
    unique_id: str
    kind: MessageKind
    tag: str
    keys: str
    wait_store: bool


class Writer:
    """Makes messages ready for one producer.

    Compressing a large body takes a while: ``compresses`` says whether ``write`` will, so that the
    caller can do it on a thread. ``write`` may run on several threads at a time.
    """

    def __init__(
        self,
        *,
        namespace: str = "",
        body_bytes_max: int = BODY_BYTES_MAX,
        compress_over_bytes: int = COMPRESS_OVER_BYTES,
        compression: CompressionType = CompressionType.ZLIB,
        compression_level: int = LEVEL_DEFAULT,
    ) -> None:
        checks.check_namespace(namespace)
        self._namespace = namespace
        # Every message says in which namespace it was sent.
        self._instance = _pair(Property.INSTANCE_ID, namespace) if namespace else ""
        self._body_bytes_max = body_bytes_max
        self._compress_over_bytes = compress_over_bytes
        self._compression = compression
        self._compression_level = compression_level
        # Checked topics by the names that users gave, as servers know them.
        self._topics: dict[str, str] = {}
        # Checked tags, as properties.
        self._tags: dict[str, str] = {}

    def topic(self, topic: str) -> str:
        """The topic as servers know it. Raises InvalidArgument when it cannot be sent to."""
        wrapped = self._topics.get(topic)
        if wrapped is None:
            wrapped = self._checked_topic(topic)
        return wrapped

    def compresses(self, body: bytes) -> bool:
        """Whether a body is so large that it will be compressed."""
        return len(body) >= self._compress_over_bytes

    def write(
        self,
        topic: str,
        body: bytes,
        unique_id: str,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        delay_ms: int | None = None,
        delay_level: int | None = None,
        deliver_at_ms: int | None = None,
        ordering_key: str | None = None,
        flag: int = 0,
        wait_store: bool = True,
        system: Mapping[str, str] | None = None,
        is_compressible: bool = True,
    ) -> Outgoing:
        """The message, checked. Raises InvalidArgument with what is wrong and what to do.

        ``system`` are properties that users may not set: see ``half``, ``request`` and ``reply``.
        """
        wrapped = self._topics.get(topic) or self._checked_topic(topic)
        if type(body) is not bytes or not 0 < len(body) <= self._body_bytes_max:
            checks.check_body(body, self._body_bytes_max)
            body = bytes(body)
        wait = "true" if wait_store else "false"
        text = f"UNIQ_KEY\x01{unique_id}\x02WAIT\x01{wait}\x02{self._instance}"
        key_text = ""
        if keys and (key_text := checks.joined_keys(keys)):
            text = f"KEYS\x01{key_text}\x02{text}"
        if tag:
            text += self._tags.get(tag) or self._checked_tag(tag)
        kind, more = _NORMAL, None
        if properties or ordering_key is not None or system:
            more = _more(properties, ordering_key, system)
        if delay_ms is not None or delay_level is not None or deliver_at_ms is not None:
            more = (more or {}) | _delay(delay_ms, delay_level, deliver_at_ms)
        if more:
            text += "".join([_pair(name, value) for name, value in more.items()])
            kind = _kind(more)
            if kind is MessageKind.REPLY:
                wrapped = topic  # the cluster's own, in whatever namespace the client is
        if len(text) > PROPERTIES_BYTES_MAX or not text.isascii():
            _check_size(text)
        sys_flag = 0 if kind is not _HALF else TransactionType.PREPARED.value
        if len(body) >= self._compress_over_bytes and is_compressible:
            body = compress(body, self._compression, self._compression_level)
            sys_flag = with_compression(sys_flag, self._compression)
        return Outgoing(
            wrapped,
            body,
            text,
            sys_flag,
            checks.checked_flag(flag) if flag or type(flag) is not int else 0,
            unique_id,
            kind,
            tag or "",
            key_text,
            wait_store,
        )

    def _checked_tag(self, tag: str) -> str:
        checks.check_tag(tag)
        if len(self._tags) >= TAGS_REMEMBERED_MAX:
            self._tags.clear()
        text = self._tags[tag] = _pair(Property.TAGS, tag)
        return text

    def _checked_topic(self, topic: str) -> str:
        if not isinstance(topic, str):
            checks.check_sendable(topic)
        wrapped = wrap_topic(self._namespace, topic)
        checks.check_sendable(wrapped)
        if len(self._topics) >= TOPICS_REMEMBERED_MAX:
            self._topics.clear()
        self._topics[topic] = wrapped
        return wrapped


def is_timed(message: Outgoing) -> bool:
    """Whether a message asks for a time of delivery that only brokers since 5.0 keep."""
    return message.kind is MessageKind.DELAY and any(
        f"{VALUE_END}{name}{NAME_END}" in message.properties for name in _TIMERS
    )


def half(group: str) -> dict[str, str]:
    """What makes a message of ``group`` wait for the end of its transaction."""
    return {Property.TRAN_MSG: "true", Property.PGROUP: group}


def request(correlation_id: str, client_id: str, ttl_ms: int) -> dict[str, str]:
    """What makes a message a request that ``client_id`` wants an answer to."""
    return {
        Property.CORRELATION_ID: correlation_id,
        Property.REPLY_TO_CLIENT: client_id,
        Property.TTL: str(ttl_ms),
    }


def reply(correlation_id: str, client_id: str, ttl_ms: str) -> dict[str, str]:
    """What makes a message the answer to such a request, in the request's own words."""
    found = {
        Property.CORRELATION_ID: correlation_id,
        Property.REPLY_TO_CLIENT: client_id,
        Property.MSG_TYPE: REPLY,
    }
    return found | {Property.TTL: ttl_ms} if ttl_ms else found


def _kind(more: Mapping[str, str]) -> MessageKind:
    is_delayed = not _DELAYS.isdisjoint(more)
    if Property.TRAN_MSG in more:
        if is_delayed:
            raise InvalidArgument(
                "delay", "a message of a transaction cannot be delayed", "leave the delay out"
            )
        return MessageKind.HALF
    if more.get(Property.MSG_TYPE) == REPLY:
        return MessageKind.REPLY
    return MessageKind.DELAY if is_delayed else MessageKind.NORMAL


def _delay(
    delay_ms: int | None, delay_level: int | None, deliver_at_ms: int | None
) -> dict[str, str]:
    checks.check_delay(delay_ms, delay_level, deliver_at_ms)
    if delay_level is not None:
        return {Property.DELAY: str(delay_level)}
    if deliver_at_ms is not None:
        return {Property.TIMER_DELIVER_MS: str(deliver_at_ms)}
    return {Property.TIMER_DELAY_MS: str(delay_ms)} if delay_ms else {}


def _more(
    properties: Mapping[str, str] | None,
    ordering_key: str | None,
    system: Mapping[str, str] | None,
) -> dict[str, str]:
    """What is said beside the usual properties; the system's word counts most."""
    more: dict[str, str] = {}
    if properties:
        checks.check_properties(properties)
        more.update(properties)
    if ordering_key is not None:
        checks.check_ordering_key(ordering_key)
        if more.setdefault(Property.SHARDING_KEY, ordering_key) != ordering_key:
            raise InvalidArgument(
                "ordering_key",
                f"the message has two ordering keys: {ordering_key!r} and"
                f" {more[Property.SHARDING_KEY]!r} in its properties",
                "leave one of them out",
            )
    if system:
        more.update(system)
    return more


def _pair(name: str, value: str) -> str:
    return f"{name}{NAME_END}{value}{VALUE_END}"


def _check_size(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        unit = ord(text[error.start])
        raise InvalidArgument(
            "properties",
            f"tag, keys or properties have the lone surrogate {unit:#x}",
            "pass text that has a UTF-8 form",
        ) from error
    if size > PROPERTIES_BYTES_MAX:
        raise InvalidArgument(
            "properties",
            f"tag, keys and properties take {size} bytes, at most {PROPERTIES_BYTES_MAX} fit",
            "put long text into the body",
        )
