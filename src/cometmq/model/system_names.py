"""Names that are RocketMQ's own: topics and groups, and which characters names may have.

Brokers keep some of the topics, and which of them may be sent to is checked on both sides. A
namespace is put before every name but these.
"""

import re
from typing import Final

from cometmq.model.topic import SCHEDULE_TOPIC

DEFAULT_TOPIC: Final = "TBW102"
"""After which topics are made for senders, unless they name another one."""
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Messages of transactions wait here until these end."""
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Which of them have ended."""
UNCHECKED_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Where they end when nobody can say how their transaction did."""
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""Messages with a time of delivery wait here."""
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""Where clients report what they did with messages, unless they were told another topic."""
REPLY_SUFFIX: Final = "_REPLY_TOPIC"
"""Ends the topic of replies, which begins with the name of the cluster."""
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"

NOT_SENDABLE: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        UNCHECKED_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    }
)
"""Topics that clients must not send to, whether a broker has them or not."""

SYSTEM_TOPICS: Final = NOT_SENDABLE | {
    DEFAULT_TOPIC,
    TRACE_TOPIC,
    "BenchmarkTest",
    "CHECKPOINT_TOPIC",
}
"""Topics that are RocketMQ's own wherever they are, beside those with the prefix."""

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group in whose name tools read; every broker has it."""
INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
"""The group in whose name a client sends what its consumers could not hand back."""
DEFAULT_PRODUCER_GROUP: Final = "DEFAULT_PRODUCER"
"""What Java calls a producer without a group; it must not be used."""
DEFAULT_CONSUMER_GROUP: Final = "DEFAULT_CONSUMER"
"""The same for consumers."""

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
"""Groups of RocketMQ itself, made on first use even where other groups are not."""

SYSTEM_GROUPS: Final = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
"""Groups that every broker has from the start."""

_LEGAL_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def is_legal_name(name: str) -> bool:
    """Whether a name has only characters that topics and groups may have, and at least one."""
    return _LEGAL_NAME.fullmatch(name) is not None


def is_system_topic(name: str) -> bool:
    """Whether a topic of this name is RocketMQ's own on every broker."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(name: str) -> bool:
    """Whether a group of this name is RocketMQ's own on every broker."""
    return name in SYSTEM_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)
