"""What a producer refuses before anything is sent, with errors that say what to do instead.

The rules are Java's, with a few more where Java sends what cannot arrive as it was meant: a
separator of the property text inside a property, several ways to delay one message, a key that
would become two. Names are checked as servers get them, with their namespace.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeGuard

from cometmq.codec.java import INT32_MAX, INT32_MIN
from cometmq.codec.properties import NAME_END, VALUE_END, Property
from cometmq.errors import InvalidArgument, SettingsError
from cometmq.model.limits import GROUP_CHARACTERS_MAX, TOPIC_BYTES_MAX
from cometmq.model.offsets import MessageQueue
from cometmq.model.system_names import (
    DEFAULT_CONSUMER_GROUP,
    DEFAULT_PRODUCER_GROUP,
    NOT_SENDABLE,
    is_legal_name,
)

DELAY_LEVEL_MAX: Final = 18
"""Levels that brokers have unless they are set up otherwise."""

INT64_MAX: Final = (1 << 63) - 1

SECONDS_MAX: Final = 10**11
"""A time below this is said in seconds: in milliseconds it would be in 1973 or before."""

_LEVELS: Final = {"zlib": range(10), "zstd": range(1, 23)}
"""LZ4 has none."""

_ALLOWED: Final = "use letters, digits and the characters % | _ -"
_SHOWN_CHARACTERS_MAX: Final = 64

RESERVED_PROPERTIES: Final = frozenset(
    {
        Property.KEYS,
        Property.TAGS,
        Property.WAIT,
        Property.CLUSTER,
        Property.INSTANCE_ID,
        Property.UNIQ_KEY,
        Property.EXTEND_UNIQ_INFO,
        Property.ORIGIN_MESSAGE_ID,
        Property.REAL_TOPIC,
        Property.REAL_QUEUE_ID,
        Property.RETRY_TOPIC,
        Property.RECONSUME_TIME,
        Property.MAX_RECONSUME_TIMES,
        Property.DLQ_ORIGIN_TOPIC,
        Property.DLQ_ORIGIN_MESSAGE_ID,
        Property.DELAY,
        Property.TIMER_DELAY_SEC,
        Property.TIMER_DELAY_MS,
        Property.TIMER_DELIVER_MS,
        Property.TIMER_OUT_MS,
        Property.TIMER_ENQUEUE_MS,
        Property.TIMER_DEQUEUE_MS,
        Property.TIMER_ROLL_TIMES,
        Property.TIMER_DEL_UNIQKEY,
        Property.TIMER_DELAY_LEVEL,
        Property.TRAN_MSG,
        Property.PGROUP,
        Property.TRAN_PREPARED_QUEUE_OFFSET,
        Property.MIN_OFFSET,
        Property.MAX_OFFSET,
        Property.CONSUME_START_TIME,
        Property.CORRELATION_ID,
        Property.REPLY_TO_CLIENT,
        Property.TTL,
        Property.MSG_TYPE,
        Property.ARRIVE_TIME,
        Property.PUSH_REPLY_TIME,
        Property.MSG_REGION,
        Property.TRACE_ON,
        Property.POP_CK,
        Property.POP_CK_OFFSET,
        Property.FIRST_POP_TIME,
        Property.INNER_MULTI_QUEUE_OFFSET,
        Property.BUYER_ID,
        Property.TRANSFER_FLAG,
        Property.CORRECTION_FLAG,
        Property.MQ2_FLAG,
        Property.DUP_INFO,
        Property.BORN_TIMESTAMP,
        Property.BORN_HOST,
        Property.CRC32,
        "ORIGIN_GROUP",
        "_SYS_MSG_PRIORITY_",
        "__LITE_TOPIC",
    }
)
"""Names that Java refuses as a user's (5.5.0's list, which contains that of 4.9)."""

_KEYWORDS: Final = {
    Property.KEYS: "keys=",
    Property.TAGS: "tag=",
    Property.WAIT: "wait_store=",
    Property.DELAY: "delay_level=",
    Property.TIMER_DELAY_SEC: "delay=",
    Property.TIMER_DELAY_MS: "delay=",
    Property.TIMER_DELIVER_MS: "deliver_at=",
}
"""How to ask for what these properties do."""


def check_topic(topic: str) -> None:
    """Refuse a topic that no broker would have."""
    _check_name("topic", topic, TOPIC_BYTES_MAX)


def check_sendable(topic: str) -> None:
    """Refuse a topic that cannot be sent to."""
    check_topic(topic)
    if topic in NOT_SENDABLE:
        raise InvalidArgument(
            "topic", f"topic '{topic}' is the brokers' own", "send to a topic of yours"
        )


def check_producer_group(group: str) -> None:
    """Refuse a group that producers cannot have."""
    _check_name("group", group, GROUP_CHARACTERS_MAX)
    if group == DEFAULT_PRODUCER_GROUP:
        raise _default_group(group, "producer")


def check_consumer_group(group: str) -> None:
    """Refuse a group that consumers cannot have."""
    _check_name("group", group, GROUP_CHARACTERS_MAX)
    if group == DEFAULT_CONSUMER_GROUP:
        raise _default_group(group, "consumer")


def check_namespace(namespace: str) -> None:
    """Refuse a namespace that could not be told from the name behind it; none at all is fine."""
    if namespace and (not is_legal_name(namespace) or "%" in namespace):
        raise InvalidArgument(
            "namespace",
            f"namespace {_shown(namespace)} has characters that are not allowed",
            "use letters, digits and the characters | _ -",
        )


def check_body(body: object, bytes_max: int) -> None:
    """Refuse a body that is empty or too large; it is measured before it is compressed."""
    if not isinstance(body, bytes | bytearray | memoryview):
        raise InvalidArgument(
            "body", f"a body is bytes, not {type(body).__name__}", "encode it first"
        )
    size = memoryview(body).nbytes
    if not size:
        raise InvalidArgument(
            "body", "the body is empty, which no broker accepts", "send at least one byte"
        )
    if size > bytes_max:
        raise InvalidArgument(
            "body",
            f"body of {size} bytes, at most {bytes_max} are allowed",
            "send less, or raise body_bytes_max here and maxMessageSize of the brokers",
        )


def check_tag(tag: object) -> None:
    """Refuse a tag that is blank or has a separator in it."""
    if not isinstance(tag, str):
        raise _not_text("tag", tag)
    if tag.isspace():
        raise InvalidArgument("tag", f"the tag {tag!r} is blank", "leave it out, or name one")
    _check_separators("tag", "the tag", tag)


def joined_keys(keys: str | Iterable[str]) -> str:
    """The keys as one text. A string is taken as it is, with blanks between several keys."""
    if isinstance(keys, str):
        if NAME_END in keys or VALUE_END in keys:
            raise _separator("keys", "the keys", keys)
        if keys.isspace():
            raise InvalidArgument("keys", f"the keys {keys!r} are blank", "leave them out")
        return keys
    if not isinstance(keys, Iterable):
        raise InvalidArgument("keys", f"keys are {keys!r}", "pass a text, or a list of texts")
    return " ".join(_checked_key(key) for key in keys)


def check_ordering_key(key: object) -> None:
    """Refuse an ordering key that is blank or has a separator in it."""
    if not isinstance(key, str):
        raise _not_text("ordering_key", key)
    if not key.strip():
        raise InvalidArgument(
            "ordering_key", f"the ordering key {key!r} is blank", "leave it out, or name one"
        )
    _check_separators("ordering_key", "the ordering key", key)


def check_properties(properties: Mapping[str, str]) -> None:
    """Refuse names that RocketMQ gives a meaning to, and what readers would lose or misread."""
    if not isinstance(properties, Mapping):
        fact = f"properties are {type(properties).__name__}, which has no names"
        raise InvalidArgument("properties", fact, "pass a dictionary of texts")
    for name, value in properties.items():
        if not isinstance(name, str):
            raise _not_text("the name of a property", name)
        if not isinstance(value, str):
            raise _not_text(f"property {_shown(name)}", value)
        if name in RESERVED_PROPERTIES:
            raise _reserved(name)
        if not name.strip() or not value.strip():
            raise InvalidArgument(
                "properties",
                f"property {_shown(name)} is {value!r}: neither may be blank",
                "leave it out, or say something",
            )
        _check_separators("properties", f"property {_shown(name)}", name + value)
        if name == Property.INNER_MULTI_DISPATCH and ("/" in value or "\\" in value):
            raise InvalidArgument(
                "properties",
                f"property '{name}' is {_shown(value)}, which has a path separator",
                "name queues without / and \\",
            )


def check_compression(kind: str, level: int) -> None:
    """Refuse a level that this kind of compression does not have, before a body needs it."""
    levels = _LEVELS.get(kind)
    if levels is not None and level not in levels:
        raise SettingsError(
            "compression_level",
            f"{kind} has no level {level}",
            f"use {levels.start} to {levels.stop - 1}",
        )


def checked_flag(flag: object) -> int:
    """The flag, refused when it is no 32-bit number."""
    if not _is_whole(flag, INT32_MIN, INT32_MAX):
        raise InvalidArgument(
            "flag", f"flag {flag!r} is no number of 32 bits", f"use {INT32_MIN} to {INT32_MAX}"
        )
    return flag


def checked_timeout(timeout_ms: object, *, minimum: int = 1) -> int:
    """The time that was given for one call, refused when it is none."""
    if not _is_whole(timeout_ms, minimum, INT64_MAX):
        advice = f"give whole milliseconds, {minimum} or more"
        raise InvalidArgument("timeout_ms", f"{timeout_ms!r} ms are no time", advice)
    return timeout_ms


def check_level_of_return(delay_level: object) -> None:
    """Refuse a delay level with which no message can be given back."""
    if not _is_whole(delay_level, -1, DELAY_LEVEL_MAX):
        raise InvalidArgument(
            "delay_level",
            f"there is no delay level {delay_level!r}",
            f"use 1 to {DELAY_LEVEL_MAX}, 0 for the broker's choice, or -1 for a dead letter",
        )


def check_delay(delay_ms: int | None, delay_level: int | None, deliver_at_ms: int | None) -> None:
    """Refuse impossible delays, and more than one of them; None is one that was not asked for."""
    asked = {"delay": delay_ms, "delay_level": delay_level, "deliver_at": deliver_at_ms}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise InvalidArgument(
            given[1], f"{' and '.join(given)} were given for one message", "choose one of them"
        )
    if delay_level is not None and not _is_whole(delay_level, 1, DELAY_LEVEL_MAX):
        raise InvalidArgument(
            "delay_level",
            f"there is no delay level {delay_level!r}",
            f"use 1 to {DELAY_LEVEL_MAX}, or delay= for any other time",
        )
    if delay_ms is not None and not 0 <= delay_ms <= INT64_MAX:
        raise InvalidArgument("delay", f"a delay of {delay_ms} ms is impossible", "use 0 or more")
    if deliver_at_ms is not None and _is_whole(deliver_at_ms, 1, SECONDS_MAX - 1):
        raise InvalidArgument(
            "deliver_at",
            f"{deliver_at_ms} looks like seconds, and is in the past as milliseconds",
            "say it in milliseconds since 1970, or as an aware datetime",
        )
    if deliver_at_ms is not None and not _is_whole(deliver_at_ms, 1, INT64_MAX):
        raise InvalidArgument(
            "deliver_at",
            f"{deliver_at_ms!r} is no time to deliver at",
            "say it in whole milliseconds since 1970, or as an aware datetime",
        )


def listed_values(values: object) -> list[Any]:
    """The values of many messages, refused when they are one value that Python takes apart."""
    is_one = isinstance(values, str | bytes | bytearray | memoryview | Mapping)
    if is_one or not isinstance(values, Iterable):
        fact = f"values are {type(values).__name__}, which is one value or none"
        raise InvalidArgument("values", fact, "pass a list of values, or use send for one")
    return list(values)


def check_is_queue(queue: object) -> None:
    """Refuse what is no queue, like a number: each broker has a queue of that number."""
    if not isinstance(queue, MessageQueue):
        raise InvalidArgument(
            "queue",
            f"{queue!r} is no MessageQueue",
            "pass MessageQueue(topic, broker_name, queue_id), or choose with selector=",
        )


def check_handle(handle: object) -> None:
    """Refuse what is not even text, such as the None of a message without a recall handle."""
    if not isinstance(handle, str):
        fact = f"a recall handle is text, not {type(handle).__name__}"
        raise InvalidArgument("handle", fact, "pass the recall_handle of a SendResult")


def check_queue(queue: MessageQueue, topic: str) -> None:
    """Refuse a queue of another topic, and one that no broker has."""
    if queue.topic != topic:
        raise InvalidArgument(
            "queue",
            f"the queue is of topic '{queue.topic}', the message is for '{topic}'",
            "take a queue of the message's topic",
        )
    if not _is_whole(queue.queue_id, 0, INT32_MAX) or not isinstance(queue.broker_name, str):
        # Brokers take -1 for any queue.
        raise InvalidArgument("queue", f"there is no {queue!r}", "take one of the topic's queues")


def _is_whole(number: object, minimum: int, maximum: int) -> TypeGuard[int]:
    """Brokers read these as numbers without a fraction, and drop what they cannot read."""
    if not isinstance(number, int) or isinstance(number, bool):
        return False
    return minimum <= number <= maximum


def _check_name(kind: str, name: object, characters_max: int) -> None:
    if not isinstance(name, str):
        raise _not_text(kind, name)
    if not name.strip():
        raise InvalidArgument(kind, f"the {kind} {name!r} is blank", f"name a {kind}")
    if not is_legal_name(name):
        raise InvalidArgument(
            kind, f"{kind} {_shown(name)} has characters that are not allowed", _ALLOWED
        )
    if len(name) > characters_max:
        raise InvalidArgument(
            kind,
            f"{kind} {_shown(name)} has {len(name)} characters, at most {characters_max} are"
            " allowed",
            "choose a shorter name; a namespace counts too",
        )


def _checked_key(key: object) -> str:
    if not isinstance(key, str):
        raise _not_text("a key", key)
    if not key or any(character.isspace() for character in key):
        raise InvalidArgument(
            "keys", f"the key {_shown(key)} is blank or has blanks in it", "use keys without any"
        )
    _check_separators("keys", "a key", key)
    return key


def _check_separators(argument: str, subject: str, text: str) -> None:
    if NAME_END in text or VALUE_END in text:
        raise _separator(argument, subject, text)


def _separator(argument: str, subject: str, text: str) -> InvalidArgument:
    return InvalidArgument(
        argument,
        f"{subject} has a character \\x01 or \\x02, which separate properties: {_shown(text)}",
        "put such text into the body",
    )


def _reserved(name: str) -> InvalidArgument:
    keyword = _KEYWORDS.get(name)
    return InvalidArgument(
        "properties",
        f"property '{name}' is RocketMQ's own",
        f"use {keyword} for it" if keyword else "choose another name",
    )


def _default_group(group: str, kind: str) -> InvalidArgument:
    return InvalidArgument(
        "group", f"{kind} group '{group}' is what Java uses for none", "choose a name of your own"
    )


def _not_text(argument: str, value: object) -> InvalidArgument:
    return InvalidArgument(
        argument, f"{argument} must be text, not {type(value).__name__}", "pass a str"
    )


def _shown(text: str) -> str:
    cut = text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "…"
    return repr(cut)
