"""Bodies from and about connected clients: heartbeats, connections, what a consumer is doing."""

import msgspec

from cometmq.model.group import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from cometmq.model.java_types import Int32, Int64, JavaEnum
from cometmq.model.offsets import MessageQueue


class ProducerData(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A producer group a client belongs to."""

    group_name: str


class ConsumerData(msgspec.Struct, frozen=True, rename="camel"):
    """A consumer group a client belongs to and what it wants there."""

    group_name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


class HeartbeatData(msgspec.Struct, frozen=True, rename="camel"):
    """HEART_BEAT: all groups of one client.

    The last two belong to the second version of heartbeats (5.1.3 and later): with
    ``without_sub`` the missing subscriptions are unchanged, not gone.
    """

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    heartbeat_fingerprint: Int32 | None = None
    without_sub: bool | None = None


class CheckClientBody(msgspec.Struct, frozen=True, rename="camel"):
    """CHECK_CLIENT_CONFIG: can the broker compile this subscription."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


class ConsumerIdList(msgspec.Struct, frozen=True, rename="camel"):
    """Client ids of the members of a group."""

    consumer_id_list: tuple[str, ...] = ()


class Connection(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One connected client; ``language`` stays text because new ones appear."""

    client_id: str | None = None
    client_addr: str | None = None
    language: str | None = None
    version: Int32 = 0


class ConsumerConnection(msgspec.Struct, frozen=True, rename="camel"):
    """The members of a consumer group and what the group subscribes."""

    connection_set: tuple[Connection, ...] = ()
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerConnection(msgspec.Struct, frozen=True, rename="camel"):
    """The members of a producer group."""

    connection_set: tuple[Connection, ...] = ()


class ProducerInfo(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One connected producer; ``remote_ip`` is an address with port, a slash before it."""

    client_id: str | None = None
    remote_ip: str | None = msgspec.field(name="remoteIP", default=None)
    language: str | None = None
    version: Int32 = 0
    last_update_timestamp: Int64 = 0


class ProducerTable(msgspec.Struct, frozen=True, rename="camel"):
    """All connected producers by group."""

    data: dict[str, tuple[ProducerInfo, ...]] = {}


class ProcessQueueInfo(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What a consumer has in memory of one queue."""

    commit_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int32 = 0
    cached_msg_size_in_mib: Int32 = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: Int64 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_count: Int32 = 0
    locked: bool = False
    try_unlock_times: Int64 = 0
    last_lock_timestamp: Int64 = 0
    droped: bool = False
    last_pull_timestamp: Int64 = 0
    last_consume_timestamp: Int64 = 0


class PopProcessQueueInfo(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What a popping consumer has in memory of one queue."""

    wait_ack_count: Int32 = 0
    droped: bool = False
    last_pop_timestamp: Int64 = 0


class ConsumeStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Rates and times of a consumer on one topic."""

    pull_rt: float = msgspec.field(name="pullRT", default=0.0)
    pull_tps: float = msgspec.field(name="pullTPS", default=0.0)
    consume_rt: float = msgspec.field(name="consumeRT", default=0.0)
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: Int64 = 0


class ConsumerRunningInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What a consumer says about itself; a broker relays it without looking.

    ``mq_pop_table`` and ``user_consumer_info`` are 5.x.
    """

    properties: dict[str, str] = {}
    subscription_set: tuple[SubscriptionData, ...] = ()
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    status_table: dict[str, ConsumeStatus] = {}
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] | None = None
    user_consumer_info: dict[str, str] | None = None
    jstack: str | None = None


class ConsumeResult(JavaEnum):
    """How a consumer's listener ended; Go sends the position."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeDirectlyResult(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Answer of CONSUME_MESSAGE_DIRECTLY."""

    order: bool = False
    auto_commit: bool = True
    consume_result: ConsumeResult | None = None
    remark: str | None = None
    spent_time_mills: Int64 = 0
