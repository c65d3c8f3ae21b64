r"""Message properties: ``name \x01 value \x02`` repeated, as UTF-8.

A reader skips what is no complete property, as every RocketMQ client does: an item without
separator, with an empty name or an empty value. The last ``\x02`` may be missing. The first
``\x01`` of an item ends the name; a further one belongs to the value, although no writer may put
it there. Of a repeated name the last value counts. Bytes that are not UTF-8 read as U+FFFD, as in
Java: a consumer must not stumble over a message that others can read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cometmq.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import ReadableBuffer

NAME_END: Final = "\x01"
VALUE_END: Final = "\x02"

TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."
"""Names beginning with this are never stored."""


class Property:
    """The names RocketMQ itself gives a meaning to; all others are the user's."""

    KEYS: Final = "KEYS"
    TAGS: Final = "TAGS"
    WAIT: Final = "WAIT"
    CLUSTER: Final = "CLUSTER"
    INSTANCE_ID: Final = "INSTANCE_ID"

    UNIQ_KEY: Final = "UNIQ_KEY"
    EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
    ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"

    REAL_TOPIC: Final = "REAL_TOPIC"
    REAL_QUEUE_ID: Final = "REAL_QID"
    RETRY_TOPIC: Final = "RETRY_TOPIC"
    RECONSUME_TIME: Final = "RECONSUME_TIME"
    MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
    DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
    DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"

    DELAY: Final = "DELAY"
    TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
    TIMER_OUT_MS: Final = "TIMER_OUT_MS"
    TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
    TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
    TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
    TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"

    TRAN_MSG: Final = "TRAN_MSG"
    PGROUP: Final = "PGROUP"
    TRANSACTION_ID: Final = "__transactionId__"
    CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
    TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"

    MIN_OFFSET: Final = "MIN_OFFSET"
    MAX_OFFSET: Final = "MAX_OFFSET"
    CONSUME_START_TIME: Final = "CONSUME_START_TIME"

    CORRELATION_ID: Final = "CORRELATION_ID"
    REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
    TTL: Final = "TTL"
    MSG_TYPE: Final = "MSG_TYPE"
    ARRIVE_TIME: Final = "ARRIVE_TIME"
    PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"

    MSG_REGION: Final = "MSG_REGION"
    TRACE_ON: Final = "TRACE_ON"
    TRACE_CONTEXT: Final = "TRACE_CONTEXT"

    POP_CK: Final = "POP_CK"
    POP_CK_OFFSET: Final = "POP_CK_OFFSET"
    FIRST_POP_TIME: Final = "1ST_POP_TIME"

    SHARDING_KEY: Final = "__SHARDINGKEY"
    SHARDING_KEY_GO: Final = "SHARDING_KEY"
    SHARDING_KEY_NODE: Final = "__SHARDING_KEY"

    INNER_NUM: Final = "INNER_NUM"
    INNER_BASE: Final = "INNER_BASE"
    INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
    INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"

    BUYER_ID: Final = "BUYER_ID"
    TRANSFER_FLAG: Final = "TRANSFER_FLAG"
    CORRECTION_FLAG: Final = "CORRECTION_FLAG"
    MQ2_FLAG: Final = "MQ2_FLAG"
    DUP_INFO: Final = "DUP_INFO"
    REDIRECT: Final = "REDIRECT"
    PROPERTY_FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
    BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
    BORN_HOST: Final = "__BORNHOST"
    CRC32: Final = "__CRC32#"


KEYS_MARK: Final = (Property.KEYS + NAME_END).encode()
TAGS_MARK: Final = (Property.TAGS + NAME_END).encode()
"""By which ``find_value`` finds them."""


def decode(data: str | ReadableBuffer) -> dict[str, str]:
    """Return the properties in the order of their first appearance. Never raises."""
    text = data if isinstance(data, str) else str(data, "utf-8", "replace")
    properties: dict[str, str] = {}
    for item in text.split(VALUE_END):
        name, _, value = item.partition(NAME_END)
        if name and value:
            properties[name] = value
    return properties


def encode(properties: Mapping[str, str | None]) -> str:
    r"""Return the property string, each value followed by ``\x02``, the last one too.

    An entry whose value is None is left out. What readers would lose or misread raises
    LocalProtocolError: an empty name or value, and a separator inside one of them. So does text
    that has no UTF-8 form.
    """
    items = []
    for name, value in properties.items():
        if value is None:
            continue
        if not name or not value:
            raise LocalProtocolError(f"property {name!r}={value!r}: no part may be empty")
        if NAME_END in name or VALUE_END in name or NAME_END in value or VALUE_END in value:
            raise LocalProtocolError(f"property {name!r} contains a separator (\\x01 or \\x02)")
        items.append(f"{name}{NAME_END}{value}{VALUE_END}")
    text = "".join(items)
    if not text.isascii():
        _require_utf8(text)
    return text


def get(data: bytes, name: bytes) -> str | None:
    """Return one property, as ``decode(data).get(name)`` would but without building the dict."""
    if not name or b"\x01" in name or b"\x02" in name:
        return None
    value = find_value(data, 0, len(data), name + b"\x01")
    return value.decode("utf-8", "replace") if value else None


def find_value(data: bytes, begin: int, end: int, mark: bytes) -> bytes:
    r"""Return the value of one property in ``data[begin:end]``, empty when there is none.

    ``mark`` is the name and the ``\x01`` behind it.
    """
    mark_end = end
    while (mark_begin := data.rfind(mark, begin, mark_end)) >= 0:
        # Only at the start of an item is it a name; elsewhere it is the tail of a longer name or
        # text inside a value. An item with an empty value does not count, an earlier one may.
        if mark_begin == begin or data[mark_begin - 1] == 2:
            value_begin = mark_begin + len(mark)
            value_end = data.find(b"\x02", value_begin, end)
            value = data[value_begin : end if value_end < 0 else value_end]
            if value:
                return value
        mark_end = mark_begin
    return b""


def _require_utf8(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        unit = ord(text[error.start])
        raise LocalProtocolError(f"property text has the lone surrogate {unit:#x}") from error
