"""Bodies about consumer positions: stored, reset, compared with the ends of queues.

Several are tables keyed by queue, which only fastjson's dialect can carry; see ``FORMS``.
"""

from typing import Any

import msgspec

from cometmq.codec import fastjson
from cometmq.errors import RemoteProtocolError
from cometmq.model.java_types import Int32, Int64
from cometmq.model.offsets import MessageQueue
from cometmq.model.topic import DataVersion


class ConsumerOffsetTable(msgspec.Struct, frozen=True, rename="camel"):
    """Stored positions: ``topic@group`` to queue to offset; also ``consumerOffset.json``.

    4.x releases know only ``offset_table``. ``group_topic_map`` repeats what the keys say.
    """

    offset_table: dict[str, dict[Int32, Int64]] = {}
    data_version: DataVersion | None = None
    group_topic_map: dict[str, tuple[str, ...]] | None = None
    pull_offset_table: dict[str, dict[Int32, Int64]] | None = None


class DelayOffsetTable(msgspec.Struct, frozen=True, rename="camel"):
    """Position by delay level (counted from 1); also ``delayOffset.json``."""

    offset_table: dict[Int32, Int64] = {}
    data_version: DataVersion | None = None


class ResetOffsetBody(msgspec.Struct, frozen=True, rename="camel"):
    """Positions a group is moved to; ``decode_reset_offsets`` reads the variants of all clients."""

    offset_table: dict[MessageQueue, Int64] = {}


class QueueOffsetForCpp(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A queue and its position, in the form for C++ clients."""

    topic: str
    broker_name: str
    queue_id: Int32
    offset: Int64


class ResetOffsetBodyForCpp(msgspec.Struct, frozen=True, rename="camel"):
    """``ResetOffsetBody`` for consumers in C++, whose JSON parser knows no object keys."""

    offset_table: tuple[QueueOffsetForCpp, ...] = ()


class ConsumerStatusBody(msgspec.Struct, frozen=True, rename="camel"):
    """Positions in a client's memory: of one client, or of several by client id."""

    message_queue_table: dict[MessageQueue, Int64] = {}
    consumer_table: dict[str, dict[MessageQueue, Int64]] = {}


class CorrectionOffsets(msgspec.Struct, frozen=True, rename="camel"):
    """The smallest position of some groups, by queue."""

    correction_offsets: dict[Int32, Int64] = {}


class OffsetWrapper(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A group's position in a queue beside the end of that queue; ``pull_offset`` is 5.x."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    last_timestamp: Int64 = 0
    pull_offset: Int64 | None = None


class ConsumeStats(msgspec.Struct, frozen=True, rename="camel"):
    """How far a group is, queue by queue."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0


class ConsumeStatsList(msgspec.Struct, frozen=True, rename="camel"):
    """How far all groups of a broker are; ``total_inflight_diff`` is 5.x."""

    consume_stats_list: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = ()
    broker_addr: str | None = None
    total_diff: Int64 = 0
    total_inflight_diff: Int64 | None = None


class QueueTimeSpan(msgspec.Struct, frozen=True, rename="camel"):
    """Times of the first, last and next message of a queue.

    The texts repeat the times in the writer's time zone; readers ignore them.
    """

    message_queue: MessageQueue
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


class ConsumeTimeSpans(msgspec.Struct, frozen=True, rename="camel"):
    """Answer of QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: tuple[QueueTimeSpan, ...] = ()


def decode_reset_offsets(data: bytes | str) -> ResetOffsetBody:
    """Read a reset in any of its forms.

    Java has a table with queues as keys, C++ a list of flat objects, Go (through gson) a list of
    ``[queue, offset]`` pairs.
    """
    body = fastjson.loads(data)
    table = body.get("offsetTable") if isinstance(body, dict) else None
    if isinstance(table, list):
        body = {"offsetTable": dict(map(_entry, table))}
    return fastjson.convert(body, ResetOffsetBody)


def _entry(item: Any) -> tuple[fastjson.ObjectKey, Any]:
    if isinstance(item, dict) and "offset" in item:
        queue, offset = {k: v for k, v in item.items() if k != "offset"}, item["offset"]
    elif isinstance(item, list) and len(item) == 2 and isinstance(item[0], dict):
        queue, offset = item
    else:
        raise RemoteProtocolError("an entry of offsetTable is neither a queue nor a pair")
    if any(isinstance(value, dict | list) for value in queue.values()):
        raise RemoteProtocolError("a queue in offsetTable holds an object or a list")
    return fastjson.ObjectKey(queue), offset
