"""The JSON files of a store's ``config`` directory, of a name server and of a client.

Several have the shape of a body and share its type. ``encode`` keeps what a newer release wrote
and we do not know, so that opening a directory with CometMQ loses nothing.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from cometmq.codec import fastjson
from cometmq.codec.bodies.groups import SubscriptionGroupTable
from cometmq.codec.bodies.offsets import ConsumerOffsetTable, DelayOffsetTable
from cometmq.codec.bodies.queues import MessageRequestModeTable
from cometmq.codec.bodies.stats import TimerMetrics, TransactionMetrics
from cometmq.codec.bodies.topics import TopicConfigTable, TopicQueueMapping
from cometmq.codec.fastjson import PrettyStyle
from cometmq.errors import LocalProtocolError
from cometmq.model.java_types import Int32, Int64
from cometmq.model.offsets import MessageQueue
from cometmq.model.topic import DataVersion


class LmqConsumerOffsetTable(ConsumerOffsetTable, frozen=True, rename="camel"):
    """``lmqConsumerOffset.json``: light queues have one queue, so no queue ids."""

    lmq_offset_table: dict[str, Int64] = msgspec.field(default_factory=dict)


class BloomFilterData(msgspec.Struct, frozen=True, rename="camel"):
    """The bits of one filter in the bit map of a message."""

    bit_num: Int32 = 0
    bit_pos: tuple[Int32, ...] = ()


class ConsumerFilterData(msgspec.Struct, frozen=True, rename="camel"):
    """An SQL subscription that outlives its consumers; ``dead`` follows from the times."""

    consumer_group: str | None = None
    topic: str | None = None
    expression: str | None = None
    expression_type: str | None = None
    born_time: Int64 = 0
    dead_time: Int64 = 0
    client_version: Int64 = 0
    dead: bool | None = None
    bloom_filter_data: BloomFilterData | None = None


class TopicFilterData(msgspec.Struct, frozen=True, rename="camel"):
    """The filters of one topic by group."""

    topic: str | None = None
    group_filter_data: dict[str, ConsumerFilterData] = {}


class ConsumerFilterTable(msgspec.Struct, frozen=True, rename="camel"):
    """``consumerFilter.json``."""

    filter_data_by_topic: dict[str, TopicFilterData] = {}


class OrderInfo(msgspec.Struct, frozen=True):
    """Messages of one queue that were popped in order and not yet acknowledged.

    ``offsets`` has the first offset, then distances from it; ``acked`` is a bit mask over them.
    """

    pop_time: Int64 = msgspec.field(name="popTime", default=0)
    invisible_time: Int64 | None = msgspec.field(name="i", default=None)
    offsets: list[Int64] | None = msgspec.field(name="o", default=None)
    next_visible_times: dict[Int64, Int64] | None = msgspec.field(name="ot", default=None)
    consumed_counts: dict[Int64, Int32] | None = msgspec.field(name="oc", default=None)
    last_consume_timestamp: Int64 = msgspec.field(name="l", default=0)
    acked: Int64 = msgspec.field(name="cm", default=0)
    attempt_id: str | None = msgspec.field(name="a", default=None)


class ConsumerOrderInfoTable(msgspec.Struct, frozen=True, rename="camel"):
    """``consumerOrderInfo.json``: ``topic@group`` to queue to what is popped there."""

    table: dict[str, dict[Int32, OrderInfo]] = {}
    order_info_count: Int32 | None = None
    ordered_consumption_level: str | None = None


class TopicQueueMappingTable(msgspec.Struct, frozen=True, rename="camel"):
    """``topicQueueMapping.json``."""

    data_version: DataVersion | None = None
    topic_queue_mapping_info_map: dict[str, TopicQueueMapping] = {}


class KVConfigTable(msgspec.Struct, frozen=True, rename="camel"):
    """``kvConfig.json`` of a name server: text by namespace and key."""

    config_table: dict[str, dict[str, str]] = {}


class LocalOffsetTable(msgspec.Struct, frozen=True, rename="camel"):
    """``offsets.json`` of a broadcasting consumer."""

    offset_table: dict[MessageQueue, Int64] = {}


DOCUMENTS: Mapping[str, type[msgspec.Struct]] = MappingProxyType(
    {
        "topics.json": TopicConfigTable,
        "subscriptionGroup.json": SubscriptionGroupTable,
        "consumerOffset.json": ConsumerOffsetTable,
        "lmqConsumerOffset.json": LmqConsumerOffsetTable,
        "delayOffset.json": DelayOffsetTable,
        "consumerFilter.json": ConsumerFilterTable,
        "consumerOrderInfo.json": ConsumerOrderInfoTable,
        "topicQueueMapping.json": TopicQueueMappingTable,
        "messageRequestMode.json": MessageRequestModeTable,
        "timermetrics": TimerMetrics,
        "transactionMetrics": TransactionMetrics,
        "kvConfig.json": KVConfigTable,
        "offsets.json": LocalOffsetTable,
    }
)
"""Type by file name; the ``.bak`` of a file has the same type."""

COMPACT_DOCUMENTS = frozenset({"timermetrics", "transactionMetrics", "kvConfig.json"})
"""Files that have everything on one line."""


def decode(data: bytes, *, name: str) -> Any:
    """Read the content of the file ``name`` into its type."""
    return fastjson.decode(data, DOCUMENTS[name])


def encode(
    document: msgspec.Struct,
    *,
    name: str,
    style: PrettyStyle,
    previous: Any = None,
) -> bytes:
    """Write the content of the file ``name``.

    ``previous`` is what ``fastjson.loads`` gave for the file before: members of its objects that
    our types do not know are carried over. Entries of tables are not: what is gone stays gone.
    """
    if not isinstance(document, DOCUMENTS[name]):
        raise LocalProtocolError(f"{name} cannot hold a {type(document).__name__}")
    value = document if previous is None else _with_unknown(document, previous)
    if name in COMPACT_DOCUMENTS:
        return fastjson.dumps(value)
    return fastjson.dumps_pretty(value, style)


def _with_unknown(value: Any, previous: Any) -> Any:
    if not isinstance(previous, dict):
        return value
    if isinstance(value, dict):
        return {key: _with_unknown(item, previous.get(key)) for key, item in value.items()}
    if not isinstance(value, msgspec.Struct):
        return value
    known = {wire: attribute for attribute, wire in fastjson.wire_names(type(value))}
    members = {
        wire: _with_unknown(getattr(value, attribute), previous.get(wire))
        for wire, attribute in known.items()
    }
    unknown = {wire: item for wire, item in previous.items() if wire not in known}
    members |= {wire: item for wire, item in unknown.items() if isinstance(wire, str)}
    return fastjson.Members((wire, members[wire]) for wire in sorted(members))
