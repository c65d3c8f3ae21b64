"""Bodies with figures about a broker: rates, replication, raw queue entries, timers."""

import msgspec

from cometmq.model.group import SubscriptionData
from cometmq.model.java_types import Int32, Int64
from cometmq.model.topic import DataVersion


class BrokerStatsItem(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A sum, the rate per second, and the mean per message."""

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(msgspec.Struct, frozen=True, rename="camel"):
    """One statistic over the last minute, hour and day."""

    stats_minute: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_day: BrokerStatsItem | None = None


class ConsumeQueueData(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of a consume queue, and how the group's filter judges it."""

    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """Answer of QUERY_CONSUME_QUEUE."""

    queue_data: tuple[ConsumeQueueData, ...] | None = None
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


class HAConnectionInfo(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A slave as its master sees it."""

    addr: str | None = None
    slave_ack_offset: Int64 = 0
    diff: Int64 = 0
    in_sync: bool = False
    transferred_byte_in_second: Int64 = 0
    transfer_from_where: Int64 = 0


class HAClientInfo(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The replication of a slave as it sees it."""

    master_addr: str | None = None
    transferred_byte_in_second: Int64 = 0
    max_offset: Int64 = 0
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_flush_offset: Int64 = 0


class HARuntimeInfo(msgspec.Struct, frozen=True, rename="camel"):
    """Answer of GET_BROKER_HA_STATUS."""

    master: bool = False
    master_commit_log_max_offset: Int64 = 0
    in_sync_slave_nums: Int32 = 0
    ha_connection_info: tuple[HAConnectionInfo, ...] = ()
    ha_client_runtime_info: HAClientInfo | None = None


class Metric(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A count and when it last changed."""

    count: Int64 = 0
    time_stamp: Int64 = 0


class TimerMetrics(msgspec.Struct, frozen=True, rename="camel"):
    """Waiting timer messages by topic; also the file ``timermetrics``."""

    data_version: DataVersion | None = None
    timing_count: dict[str, Metric] = {}


class TransactionMetrics(msgspec.Struct, frozen=True, rename="camel"):
    """Open transactions by topic; the file ``transactionMetrics``."""

    data_version: DataVersion | None = None
    transaction_count: dict[str, Metric] = {}
