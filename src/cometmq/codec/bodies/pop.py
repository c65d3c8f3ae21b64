"""Bodies of pop consumption (5.x)."""

from typing import Any

import msgspec

from cometmq.codec import fastjson
from cometmq.model.java_types import Int32, Int64

_LONG_NAMES = {
    "consumerGroup": "c",
    "topic": "t",
    "retry": "r",
    "startOffset": "so",
    "queueId": "q",
    "reviveQueueId": "rq",
    "popTime": "pt",
    "invisibleTime": "it",
    "bitSet": "b",
}


class BatchAck(msgspec.Struct, frozen=True, gc=False):
    """Acknowledgements of one pop: bit i of ``bit_set`` is the message at start offset + i.

    The bit set is little-endian: bit 0 is the lowest of the first byte. ``retry`` is ``0``, ``1``
    or ``2``: normal topic, retry topic of version 1 or 2.
    """

    consumer_group: str | None = msgspec.field(name="c", default=None)
    topic: str | None = msgspec.field(name="t", default=None)
    retry: str | None = msgspec.field(name="r", default=None)
    start_offset: Int64 = msgspec.field(name="so", default=0)
    queue_id: Int32 = msgspec.field(name="q", default=0)
    revive_queue_id: Int32 = msgspec.field(name="rq", default=0)
    pop_time: Int64 = msgspec.field(name="pt", default=0)
    invisible_time: Int64 = msgspec.field(name="it", default=0)
    bit_set: bytes | None = msgspec.field(name="b", default=None)


class BatchAckBody(msgspec.Struct, frozen=True, rename="camel"):
    """BATCH_ACK_MESSAGE."""

    broker_name: str | None = None
    acks: tuple[BatchAck, ...] = ()


def decode_batch_ack(data: bytes | str) -> BatchAckBody:
    """Read acknowledgements whose members have short names or, as in 5.0, long ones."""
    body = fastjson.loads(data)
    acks = body.get("acks") if isinstance(body, dict) else None
    if isinstance(acks, list):
        body = {**body, "acks": [_short(ack) for ack in acks]}
    return fastjson.convert(body, BatchAckBody)


def _short(ack: Any) -> Any:
    if not isinstance(ack, dict):
        return ack
    return {_LONG_NAMES.get(name, name): value for name, value in ack.items()}
