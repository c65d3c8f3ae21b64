"""Every setting of clients, producers and consumers, with RocketMQ's defaults.

A settings class is what the code reads; the ``…Options`` beside it are the same names as keyword
arguments, all optional (a test compares the two). Times are in milliseconds.
"""

import dataclasses
from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal, TypedDict

from cometmq.client.core.options import checked, option
from cometmq.client.core.strategies import Average, Strategy
from cometmq.errors import SettingsError
from cometmq.model.limits import BODY_BYTES_MAX
from cometmq.model.system_names import TRACE_TOPIC

Mode = Literal["cluster", "broadcast"]
Start = Literal["last", "first"] | int
Compression = Literal["zlib", "lz4", "zstd"]
FaultTable = Literal["off", "5.1.4", "4.9"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What all producers and consumers of a client share."""

    instance_name: str = option(
        "DEFAULT",
        "Second part of the client id. DEFAULT becomes process id and start time, except for"
        " broadcasting consumers, whose progress is found by the client id.",
        key="instanceName",
    )
    unit_name: str | None = option(None, "Further part of the client id.", key="unitName")
    is_unit_mode: bool = option(False, "Said in sends and heartbeats.", key="unitMode")
    client_ip: str | None = option(
        None, "First part of the client id; found out when not given.", key="clientIP"
    )
    is_vip_channel: bool = option(
        False,
        "Use the port two below the broker's for sends, offsets and locks.",
        key="vipChannelEnabled",
    )
    route_interval_ms: int = option(
        30_000, "Between two looks at all routes.", key="pollNameServerInterval", minimum=10
    )
    heartbeat_interval_ms: int = option(
        30_000, "Between two heartbeats.", key="heartbeatBrokerInterval", minimum=10
    )
    persist_interval_ms: int = option(
        5_000, "Between two saves of offsets.", key="persistConsumerOffsetInterval", minimum=10
    )
    rebalance_interval_ms: int = option(
        20_000,
        "Between two rebalances that nothing asked for.",
        key="rocketmq.client.rebalance.waitInterval",
        minimum=10,
    )
    rebalance_gap_ms: int = option(
        1_000,
        "Least time between two rebalances, whoever asks for them.",
        key="rocketmq.client.rebalance.minInterval",
        minimum=0,
    )
    lock_interval_ms: int = option(
        20_000,
        "Between two renewals of queue locks.",
        key="rocketmq.client.rebalance.lockInterval",
        minimum=10,
    )
    request_timeout_ms: int = option(
        3_000, "For routes, heartbeats and the like.", key="mqClientApiTimeout", minimum=1
    )
    connect_timeout_ms: int = option(
        3_000,
        "For a connection.",
        key="com.rocketmq.remoting.client.connect.timeout",
        minimum=1,
    )
    idle_seconds_max: int = option(
        120,
        "A connection on which nothing happens for this long is closed.",
        key="com.rocketmq.remoting.client.channel.maxIdleTimeSeconds",
        minimum=1,
    )
    drain_timeout_ms: int = option(
        5_000, "What handlers and sends that run get to finish at the end.", minimum=0
    )


class ClientOptions(TypedDict, total=False):
    """Keyword arguments of ``Client``: see ``ClientSettings``."""

    instance_name: str
    unit_name: str | None
    is_unit_mode: bool
    client_ip: str | None
    is_vip_channel: bool
    route_interval_ms: int
    heartbeat_interval_ms: int
    persist_interval_ms: int
    rebalance_interval_ms: int
    rebalance_gap_ms: int
    lock_interval_ms: int
    request_timeout_ms: int
    connect_timeout_ms: int
    idle_seconds_max: int
    drain_timeout_ms: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How a producer sends."""

    send_timeout_ms: int = option(
        3_000,
        "For a send with all its tries, finding the route and connecting included.",
        key="sendMsgTimeout",
        minimum=1,
    )
    try_timeout_ms: int = option(
        -1,
        "For each try but the last.",
        key="sendMsgMaxTimeoutPerRequest",
        minimum=1,
        special=-1,
    )
    retries: int = option(
        2, "Further tries of a send that failed.", key="retryTimesWhenSendFailed", minimum=0
    )
    is_retried_when_not_stored: bool = option(
        False,
        "Also try another broker when one has not flushed or replicated in time.",
        key="retryAnotherBrokerWhenNotStoreOK",
    )
    default_topic: str = option(
        "TBW102", "After which brokers make a topic that does not exist.", key="createTopicKey"
    )
    default_queue_count: int = option(
        4, "Queues of a topic made that way.", key="defaultTopicQueueNums", minimum=1
    )
    body_bytes_max: int = option(BODY_BYTES_MAX, "Largest body.", key="maxMessageSize", minimum=1)
    compress_over_bytes: int = option(
        4_096,
        "Bodies of this size and more are compressed.",
        key="compressMsgBodyOverHowmuch",
        minimum=1,
    )
    compression: Compression = option(
        "zlib", "How they are compressed.", key="rocketmq.message.compressType"
    )
    compression_level: int = option(
        5, "How hard is tried.", key="rocketmq.message.compressLevel", minimum=0, maximum=22
    )
    fault_table: FaultTable = option(
        "off",
        "Keep away for a while from brokers that are slow or fail: by the newer rules (5.1.4)"
        " or by the older ones (4.9).",
        key="sendLatencyFaultEnable",
    )
    is_probing: bool = option(
        False, "Probe brokers that are kept away from.", key="startDetectorEnable"
    )
    in_flight_max: int = option(
        65_535, "Sends under way; more wait for their turn.", minimum=1, maximum=65_535
    )
    is_batching: bool = option(
        False, "Collect sends of a topic into batches by itself.", key="autoBatch"
    )
    batch_hold_ms: int = option(
        10, "How long a message waits for others then.", key="batchMaxDelayMs", minimum=1
    )
    batch_bytes: int = option(
        32 * 1024, "When a batch leaves at once.", key="batchMaxBytes", minimum=1
    )
    batch_total_bytes: int = option(
        32 * 1024 * 1024, "Bytes that wait in all.", key="totalBatchMaxBytes", minimum=1
    )
    is_traced: bool = option(False, "Report each send to the trace topic.", key="enableTrace")
    trace_topic: str = option(TRACE_TOPIC, "Where reports go.", key="traceTopic")


class ProducerOptions(TypedDict, total=False):
    """Keyword arguments of ``Client.producer``: see ``ProducerSettings``."""

    send_timeout_ms: int
    try_timeout_ms: int
    retries: int
    is_retried_when_not_stored: bool
    default_topic: str
    default_queue_count: int
    body_bytes_max: int
    compress_over_bytes: int
    compression: Compression
    compression_level: int
    fault_table: FaultTable
    is_probing: bool
    in_flight_max: int
    is_batching: bool
    batch_hold_ms: int
    batch_bytes: int
    batch_total_bytes: int
    is_traced: bool
    trace_topic: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How a push consumer gets and hands out messages."""

    mode: Mode = option(
        "cluster", "Members share the queues, or each gets everything.", key="messageModel"
    )
    is_orderly: bool = option(
        False, "One message of a queue at a time, in order; a failed one is tried again in place."
    )
    start: Start = option(
        "last",
        "Where a group without stored offsets begins: at the end, at the beginning, or at a time"
        " in ms since the epoch. A queue so young that all of it is in memory begins at its"
        " first message in any case: brokers, Apache's too, answer so.",
        key="consumeFromWhere",
    )
    strategy: Strategy = option(
        Average(), "How members share queues.", key="allocateMessageQueueStrategy"
    )
    concurrency: int = option(
        20, "Handlers at a time.", key="consumeThreadMax", minimum=1, maximum=1_000
    )
    batch_size: int = option(
        1,
        "Messages that a batch handler gets at most.",
        key="consumeMessageBatchMaxSize",
        minimum=1,
        maximum=1_024,
    )
    pull_count: int = option(
        32, "Messages per pull.", key="pullBatchSize", minimum=1, maximum=1_024
    )
    pull_bytes: int = option(
        262_144, "Bytes per pull (5.x).", key="pullBatchSizeInBytes", minimum=1
    )
    pull_interval_ms: int = option(
        0, "Between two pulls of a queue.", key="pullInterval", minimum=0, maximum=65_535
    )
    pull_hold_ms: int = option(
        15_000,
        "How long a broker holds a pull for which there is nothing.",
        key="brokerSuspendMaxTimeMillis",
        minimum=1,
    )
    pull_timeout_ms: int = option(
        30_000,
        "When a pull without answer has failed.",
        key="consumerTimeoutMillisWhenSuspend",
        minimum=1,
    )
    pull_pause_ms: int = option(
        1_000, "After a pull that failed.", key="pullTimeDelayMillsWhenException", minimum=1
    )
    cached_max: int = option(
        1_000,
        "Messages of a queue in memory above which no more are pulled.",
        key="pullThresholdForQueue",
        minimum=1,
        maximum=65_535,
    )
    cached_mib_max: int = option(
        100,
        "Mebibytes of a queue in memory above which no more are pulled.",
        key="pullThresholdSizeForQueue",
        minimum=1,
        maximum=1_024,
    )
    span_max: int = option(
        2_000,
        "Between the first and the last message of a queue in memory.",
        key="consumeConcurrentlyMaxSpan",
        minimum=1,
        maximum=65_535,
    )
    topic_cached_max: int = option(
        -1,
        "Messages of a topic in memory, divided by its queues here.",
        key="pullThresholdForTopic",
        minimum=1,
        maximum=6_553_500,
        special=-1,
    )
    topic_cached_mib_max: int = option(
        -1,
        "Mebibytes of a topic in memory, divided by its queues here.",
        key="pullThresholdSizeForTopic",
        minimum=1,
        maximum=102_400,
        special=-1,
    )
    is_subscription_in_pulls: bool = option(
        False, "Say the subscription in each pull.", key="postSubscriptionWhenPull"
    )
    reconsume_max: int = option(
        -1,
        "Deliveries again before a message is a dead letter; -1: 16, and no end when orderly.",
        key="maxReconsumeTimes",
        minimum=0,
        special=-1,
    )
    suspend_ms: int = option(
        1_000,
        "How long a queue rests after a failure when orderly.",
        key="suspendCurrentQueueTimeMillis",
        minimum=10,
        maximum=30_000,
    )
    consume_timeout_ms: int = option(
        15 * 60_000,
        "A message whose handler runs longer is delivered again.",
        key="consumeTimeout",
        minimum=1,
    )
    resend_pause_ms: int = option(
        5_000, "Before a message that could not be sent back is handled again.", minimum=1
    )
    pull_idle_ms_max: int = option(
        120_000,
        "A queue that was not pulled for this long is begun anew.",
        key="rocketmq.client.pull.pullMaxIdleTime",
        minimum=1,
    )
    lock_life_ms: int = option(
        30_000,
        "How long a queue lock counts without being renewed.",
        key="rocketmq.client.rebalance.lockMaxLiveTime",
        minimum=1,
    )
    continuous_ms_max: int = option(
        60_000,
        "How long one queue is handled before others get their turn, when orderly.",
        key="rocketmq.client.maxTimeConsumeContinuously",
        minimum=1,
    )
    offsets_folder: str | PathLike[str] | None = option(
        None,
        "Where broadcasting consumers keep their progress; ~/.rocketmq_offsets when not given.",
        key="rocketmq.client.localOffsetStoreDir",
    )
    is_traced: bool = option(False, "Report each message to the trace topic.", key="enableTrace")
    trace_topic: str = option(TRACE_TOPIC, "Where reports go.", key="traceTopic")


class ConsumerOptions(TypedDict, total=False):
    """Keyword arguments of ``Client.consumer``: see ``ConsumerSettings``."""

    mode: Mode
    is_orderly: bool
    start: Start
    strategy: Strategy
    concurrency: int
    batch_size: int
    pull_count: int
    pull_bytes: int
    pull_interval_ms: int
    pull_hold_ms: int
    pull_timeout_ms: int
    pull_pause_ms: int
    cached_max: int
    cached_mib_max: int
    span_max: int
    topic_cached_max: int
    topic_cached_mib_max: int
    is_subscription_in_pulls: bool
    reconsume_max: int
    suspend_ms: int
    consume_timeout_ms: int
    resend_pause_ms: int
    pull_idle_ms_max: int
    lock_life_ms: int
    continuous_ms_max: int
    offsets_folder: str | PathLike[str] | None
    is_traced: bool
    trace_topic: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LiteSettings:
    """How a lite pull consumer gets messages."""

    mode: Mode = option("cluster", "As for push consumers.", key="messageModel")
    start: Start = option("last", "As for push consumers.", key="consumeFromWhere")
    strategy: Strategy = option(
        Average(), "How members share queues.", key="allocateMessageQueueStrategy"
    )
    pull_count: int = option(
        10, "Messages per pull.", key="pullBatchSize", minimum=1, maximum=1_024
    )
    pull_hold_ms: int = option(
        20_000,
        "How long a broker holds a pull for which there is nothing.",
        key="brokerSuspendMaxTimeMillis",
        minimum=1,
    )
    pull_timeout_ms: int = option(
        30_000,
        "When a pull without answer has failed.",
        key="consumerTimeoutMillisWhenSuspend",
        minimum=1,
    )
    pull_pause_ms: int = option(
        1_000, "After a pull that failed.", key="pullTimeDelayMillsWhenException", minimum=1
    )
    pull_concurrency: int = option(20, "Pulls at a time.", key="pullThreadNums", minimum=1)
    poll_timeout_ms: int = option(
        5_000, "How long ``poll`` waits.", key="pollTimeoutMillis", minimum=0
    )
    is_auto_commit: bool = option(True, "Commit what was polled by itself.", key="autoCommit")
    auto_commit_interval_ms: int = option(
        5_000, "Between two commits.", key="autoCommitIntervalMillis", minimum=1_000
    )
    cached_max: int = option(
        1_000,
        "Messages of a queue in memory above which no more are pulled.",
        key="pullThresholdForQueue",
        minimum=1,
        maximum=65_535,
    )
    cached_mib_max: int = option(
        100,
        "Mebibytes of a queue in memory above which no more are pulled.",
        key="pullThresholdSizeForQueue",
        minimum=1,
        maximum=1_024,
    )
    span_max: int = option(
        2_000,
        "Between the first and the last message of a queue in memory.",
        key="consumeMaxSpan",
        minimum=1,
        maximum=65_535,
    )
    cached_total_max: int = option(
        10_000, "Messages of all queues in memory.", key="pullThresholdForAll", minimum=1
    )
    topic_check_interval_ms: int = option(
        30_000,
        "Between two looks for changed queues.",
        key="topicMetadataCheckIntervalMillis",
        minimum=10,
    )
    offsets_folder: str | PathLike[str] | None = option(
        None, "As for push consumers.", key="rocketmq.client.localOffsetStoreDir"
    )


class LiteOptions(TypedDict, total=False):
    """Keyword arguments of ``Client.lite_consumer``: see ``LiteSettings``."""

    mode: Mode
    start: Start
    strategy: Strategy
    pull_count: int
    pull_hold_ms: int
    pull_timeout_ms: int
    pull_pause_ms: int
    pull_concurrency: int
    poll_timeout_ms: int
    is_auto_commit: bool
    auto_commit_interval_ms: int
    cached_max: int
    cached_mib_max: int
    span_max: int
    cached_total_max: int
    topic_check_interval_ms: int
    offsets_folder: str | PathLike[str] | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """How a low-level pull consumer gets messages."""

    mode: Mode = option("cluster", "As for push consumers.", key="messageModel")
    strategy: Strategy = option(
        Average(), "How members share queues.", key="allocateMessageQueueStrategy"
    )
    is_rebalancing: bool = option(
        True, "Share the queues of registered topics with the group.", key="enableRebalance"
    )
    pull_hold_ms: int = option(
        20_000,
        "How long a broker holds a pull that may wait.",
        key="brokerSuspendMaxTimeMillis",
        minimum=1,
    )
    wait_timeout_ms: int = option(
        30_000,
        "When a pull that may wait has failed.",
        key="consumerTimeoutMillisWhenSuspend",
        minimum=1,
    )
    pull_timeout_ms: int = option(
        10_000, "When any other pull has failed.", key="consumerPullTimeoutMillis", minimum=1
    )
    reconsume_max: int = option(
        16,
        "Deliveries again before a message that is sent back is a dead letter.",
        key="maxReconsumeTimes",
        minimum=0,
    )
    concurrency: int = option(20, "Scheduled callbacks at a time.", key="pullThreadNums", minimum=1)
    schedule_pause_ms: int = option(
        200, "Before a scheduled callback of a queue is called again.", minimum=0
    )
    schedule_failure_pause_ms: int = option(1_000, "The same after it raised.", minimum=0)
    offsets_folder: str | PathLike[str] | None = option(
        None, "As for push consumers.", key="rocketmq.client.localOffsetStoreDir"
    )


class PullOptions(TypedDict, total=False):
    """Keyword arguments of ``Client.pull_consumer``: see ``PullSettings``."""

    mode: Mode
    strategy: Strategy
    is_rebalancing: bool
    pull_hold_ms: int
    wait_timeout_ms: int
    pull_timeout_ms: int
    reconsume_max: int
    concurrency: int
    schedule_pause_ms: int
    schedule_failure_pause_ms: int
    offsets_folder: str | PathLike[str] | None


def settings_from(kind: Any, options: Any) -> Any:
    """A settings class from keyword arguments, checked; unknown ones are named with a hint."""
    known = [field.name for field in dataclasses.fields(kind)]
    for name in options:
        if name not in known:
            raise SettingsError(name, "there is no such option", _hint(name, known))
    return checked(kind(**options))


def _hint(name: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"options are {', '.join(known)}"
