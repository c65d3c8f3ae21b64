"""Bodies about topics: their settings and how full their queues are."""

from typing import Any

import msgspec

from cometmq.model.java_types import Int32, Int64
from cometmq.model.offsets import MessageQueue
from cometmq.model.topic import DataVersion, TopicConfig


class TopicQueueMapping(msgspec.Struct, frozen=True, rename="camel"):
    """How the queues of a static topic map to those of one broker; carried, never interpreted."""

    topic: str
    total_queues: Int32 = 0
    bname: str | None = None
    epoch: Int64 = 0
    scope: str | None = None
    dirty: bool = False
    curr_id_map: dict[Int32, Int32] = {}
    hosted_queues: dict[Int32, Any] | None = None


class TopicConfigTable(msgspec.Struct, frozen=True, rename="camel"):
    """All topics of a broker (Java: ``TopicConfigSerializeWrapper``), also ``topics.json``.

    The mapping members are those of 5.x releases, absent in ``topics.json``.
    """

    data_version: DataVersion | None = None
    topic_config_table: dict[str, TopicConfig] = {}
    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_info_map: dict[str, TopicQueueMapping] | None = None
    topic_queue_mapping_detail_map: dict[str, TopicQueueMapping] | None = None


class TopicConfigList(msgspec.Struct, frozen=True, rename="camel"):
    """Topics to create or change with one request."""

    topic_config_list: tuple[TopicConfig, ...] = ()


class TopicConfigAndMapping(TopicConfig, frozen=True, rename="camel"):
    """One topic, with its mapping when it is a static one."""

    mapping_detail: TopicQueueMapping | None = None


class TopicOffset(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The bounds of one queue and when it last got a message."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp: Int64 = 0


class TopicStatsTable(msgspec.Struct, frozen=True, rename="camel"):
    """The bounds of all queues of a topic on one broker; only 5.x tells the rate."""

    offset_table: dict[MessageQueue, TopicOffset] = {}
    topic_put_tps: float | None = None
