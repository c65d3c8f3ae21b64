"""How a broker is set up: Apache's keys, those that do something here and those that do not.

The store, connections, TLS and stopping are set by ``cometmq.store.config`` and
``cometmq.remoting.config``; a broker's file holds the keys of all of them.
"""

import enum
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from cometmq.broker.inert_keys import INERT_KEYS
from cometmq.errors import SettingsError, Unreachable
from cometmq.model.system_names import TRACE_TOPIC
from cometmq.remoting.client import split_address
from cometmq.settings import InertKey, Settings, setting, settings_class

REGISTER_PERIOD_MS_MIN = 10_000
REGISTER_PERIOD_MS_MAX = 60_000
"""Apache's brokers register within these bounds, whatever their file says."""


class BrokerRole(enum.StrEnum):
    """Whether a broker takes messages itself, and whether senders wait for a copy of them."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@settings_class
class BrokerSettings(Settings):
    """What the broker itself does."""

    accepted_without_effect: ClassVar[Mapping[str, InertKey]] = INERT_KEYS

    broker_name: str = setting(
        factory=socket.gethostname, shown="the host's name", doc="Name of the broker group."
    )
    cluster_name: str = setting(
        "DefaultCluster", key="brokerClusterName", doc="Cluster the broker belongs to."
    )
    broker_id: int = setting(
        0, doc="0 for a master (which has 0 in any case), above 0 for its slaves.", minimum=0
    )
    broker_role: BrokerRole = setting(
        BrokerRole.ASYNC_MASTER, doc="What the broker is; only ASYNC_MASTER is possible yet."
    )
    broker_ip1: str = setting(
        "",
        key="brokerIP1",
        doc="Address or host name clients are told; empty for the address this host sends from.",
    )
    broker_ip2: str = setting(
        "", key="brokerIP2", doc="Address slaves are told; empty for the same as clients."
    )
    namesrv_addr: tuple[str, ...] = setting(
        (),
        environment=("NAMESRV_ADDR",),
        doc="Name servers to register with, separated by semicolons.",
        separator=";",
    )
    ha_listen_port: int = setting(
        0, doc="Port slaves are told; 0 for the one above listenPort.", minimum=0, maximum=65535
    )
    broker_permission: int = setting(
        6, doc="What clients may do here: 4 read, 2 write, 6 both.", minimum=0, maximum=7
    )
    config_store_path: Path | None = setting(
        None,
        key="brokerConfigPath",
        doc="File that settings changed at run time are written to: that of -c, when given.",
    )
    config_black_list: tuple[str, ...] = setting(
        ("configBlackList", "brokerConfigPath"),
        doc="Keys that cannot be changed at run time, separated by semicolons.",
    )

    auto_create_topic_enable: bool = setting(
        True, doc="Create a topic when a message is sent to it (topic TBW102 may be inherited)."
    )
    default_topic_queue_nums: int = setting(
        8, doc="Queues that a topic created like that may have at most.", minimum=1
    )
    auto_create_subscription_group: bool = setting(
        True, doc="Create a consumer group when it is first used."
    )
    cluster_topic_enable: bool = setting(
        True, doc="Let clients use the topic that is named like the cluster."
    )
    broker_topic_enable: bool = setting(
        True, doc="Let clients use the topic that is named like the broker."
    )
    trace_topic_enable: bool = setting(False, doc="Create the topic for message traces at start.")
    trace_topic_name: str = setting(
        TRACE_TOPIC, key="msgTraceTopicName", doc="Name of the topic for message traces."
    )
    trace_on: bool = setting(True, doc="Tell producers to trace their messages if they can.")
    region_id: str = setting("DefaultRegion", doc="Region written into messages and answers.")
    reject_transaction_message: bool = setting(
        False, doc="Refuse messages of transactions. (They are refused in any case as yet.)"
    )
    start_accept_send_request_ms: int = setting(
        0,
        key="startAcceptSendRequestTimeStamp",
        doc="Time (milliseconds since 1970) before which no message is taken.",
        minimum=0,
    )

    long_polling_enable: bool = setting(
        True, doc="Hold a pull without messages until one comes, as long as the client allows."
    )
    short_polling_ms: int = setting(
        1000,
        key="shortPollingTimeMills",
        doc="How long a pull is held when long polling is off.",
        minimum=0,
    )
    held_pulls_max: int = setting(
        100_000, doc="Pulls held at a time; more are answered at once.", minimum=1
    )
    lite_pull_message_enable: bool = setting(True, doc="Serve lite pull consumers (request 361).")
    use_server_side_reset_offset: bool = setting(
        True,
        doc="Keep resets of offsets until consumers know of them; else they must be online.",
    )
    store_reply_message_enable: bool = setting(
        True, doc="Store replies to requests, in addition to handing them on."
    )
    slave_read_enable: bool = setting(False, doc="Send consumers that are far behind to a slave.")

    notify_consumer_ids_changed_enable: bool = setting(
        True, doc="Tell the members of a group when one comes or goes."
    )
    client_expiry_ms: int = setting(
        120_000,
        key="channelExpiredTimeout",
        doc="How long a client may go without a heartbeat.",
        minimum=1000,
    )
    client_scan_interval_ms: int = setting(
        10_000, doc="Time between two looks for silent clients.", minimum=10
    )
    lock_expiry_ms: int = setting(
        60_000,
        key="rocketmq.broker.rebalance.lockMaxLiveTime",
        doc="How long a queue stays locked for its consumer without being locked again.",
        minimum=1,
    )

    flush_consumer_offset_interval_ms: int = setting(
        5000, key="flushConsumerOffsetInterval", doc="Time between two saves of offsets.", minimum=1
    )
    flush_delay_offset_interval_ms: int = setting(
        10_000,
        key="flushDelayOffsetInterval",
        doc="Time between two saves of the progress of delayed messages.",
        minimum=1,
    )

    idempotent_producers_max: int = setting(
        10_000,
        doc="Producers of idempotent sends that are remembered, counted for each topic.",
        minimum=1,
    )
    idempotent_sends_remembered: int = setting(
        32, doc="Last sends of such a producer to a topic whose results are known.", minimum=1
    )
    idempotent_producer_expiry_hours: int = setting(
        168,
        doc="Silence after which such a producer is forgotten when another one comes.",
        minimum=1,
    )
    idempotent_producer_idle_minutes: int = setting(
        10,
        doc="Silence after which such a producer may be forgotten when there are too many.",
        minimum=1,
    )
    flush_producer_interval_ms: int = setting(
        5000, doc="Time between two saves of what is known of such producers.", minimum=1
    )
    large_pull_count_max: int = setting(
        65_536, doc="Messages a pull may ask for by extension fields.", minimum=1
    )
    large_pull_bytes_max: int = setting(
        12 * 1024 * 1024,
        doc="Bytes a pull may ask for by extension fields; a frame ends at 16 MiB.",
        minimum=1,
        maximum=15 * 1024 * 1024,
    )

    timer_wheel_enable: bool = setting(
        True, doc="Take messages with a time of delivery of their own, and deliver them."
    )
    timer_precision_ms: int = setting(
        1000,
        doc="Steps of these times; may be changed while messages wait.",
        minimum=10,
        maximum=1000,
    )
    timer_max_delay_sec: int = setting(
        259_200, doc="How far ahead such a time may be, in seconds.", minimum=1
    )
    timer_roll_window_slot: int = setting(
        172_800,
        doc="Steps that a message is put ahead at most; further ones are put ahead again.",
    )
    timer_flush_interval_ms: int = setting(
        1000, doc="Time between two syncs of wheel and log of timed messages.", minimum=1
    )
    timer_congest_num_each_slot: int = setting(
        2**31 - 1,
        doc="Messages of one step; beyond it more and more are refused, all of them at twice that.",
        minimum=1,
    )
    timer_log_file_bytes: int = setting(
        100 * 1024 * 1024,
        key="mappedFileSizeTimerLog",
        doc="Size of a file of the timer log; files that exist keep theirs.",
        minimum=4096,
        maximum=2**31 - 1,
    )
    recall_message_enable: bool = setting(
        False, doc="Let producers take back messages with a time of delivery until it has come."
    )
    allow_recall_when_broker_not_writeable: bool = setting(
        True, doc="Let them also when brokerPermission allows no sends."
    )

    register_period_ms: int = setting(
        30_000,
        key="registerNameServerPeriod",
        doc="Time between two registrations with the name servers (10 to 60 s are used).",
        minimum=1,
    )
    register_timeout_ms: int = setting(
        24_000,
        key="registerBrokerTimeoutMills",
        doc="How long a name server may take to answer a registration.",
        minimum=1,
    )
    force_register: bool = setting(
        True, doc="Register all topics each time, whether they have changed or not."
    )
    compressed_register: bool = setting(False, doc="Compress registrations.")

    metrics_lag_series_max: int = setting(
        100,
        doc="Pairs of topic and group whose lag is a metric, the largest first; 0 for none.",
        minimum=0,
        maximum=1000,
    )

    def __post_init__(self) -> None:
        Settings.__post_init__(self)  # slots: super() would see the class before it had them
        if not self.broker_name.strip():
            raise SettingsError("brokerName", "is empty", "give the broker a name")
        if not self.cluster_name.strip():
            raise SettingsError("brokerClusterName", "is empty", "give the cluster a name")
        for address in self.namesrv_addr:
            _require_address(address)
        if self.broker_role is not BrokerRole.ASYNC_MASTER:
            raise SettingsError(
                "brokerRole",
                f"'{self.broker_role}' is not possible yet: there is no replication",
                "use ASYNC_MASTER, or run Apache's broker",
            )

    @property
    def register_period_used_ms(self) -> int:
        """Time between two registrations, within the bounds that Apache has for it."""
        return min(max(self.register_period_ms, REGISTER_PERIOD_MS_MIN), REGISTER_PERIOD_MS_MAX)


def _require_address(address: str) -> None:
    try:
        split_address(address)
    except Unreachable as error:
        raise SettingsError(
            "namesrvAddr",
            f"'{address}' is no address",
            "write it as host:port; several are separated by semicolons",
        ) from error


@settings_class
class BrokerNetworkSettings(Settings):
    """Where the broker listens."""

    listen_port: int = setting(
        10911, doc="TCP port; 0 takes any that is free.", minimum=0, maximum=65535
    )
    bind_address: str = setting("0.0.0.0", doc="Address or host name to listen on.")  # noqa: S104
