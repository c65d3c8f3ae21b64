"""What a topic or a group is for, told from its name."""

import enum
from collections.abc import Collection

from cometmq.model.topic import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC

REPLY_SUFFIX = "_REPLY_TOPIC"
"""Ends the topic of replies, which begins with the name of the cluster."""

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
"""Where clients report what they did with messages, unless they were told another topic."""

TOOLS_GROUP = "TOOLS_CONSUMER"
"""The group in whose name tools read; every broker has it."""

_SYSTEM_PREFIXES = ("rmq_sys_", "RMQ_SYS_")
_SYSTEM_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        "CHECKPOINT_TOPIC",
        "OFFSET_MOVED_EVENT",
        "SELF_TEST_TOPIC",
        "TBW102",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
_SYSTEM_GROUPS = frozenset(
    {
        TOOLS_GROUP,
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_PULL",
        "DEFAULT_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SCHEDULE_CONSUMER",
        "SELF_TEST_C_GROUP",
    }
)


class TopicKind(enum.StrEnum):
    """Whose messages a topic holds."""

    NORMAL = "normal"
    RETRY = "retry"
    """Messages of one group that wait to be delivered again."""
    DLQ = "dlq"
    """Messages of one group that were retried in vain."""
    SYSTEM = "system"


def topic_kind(name: str, server_names: Collection[str] = ()) -> TopicKind:
    """The kind of a topic; clusters and brokers (``server_names``) have topics of their own."""
    if name.startswith(RETRY_PREFIX):
        return TopicKind.RETRY
    if name.startswith(DLQ_PREFIX):
        return TopicKind.DLQ
    is_system = (
        name in _SYSTEM_TOPICS
        or name.startswith(_SYSTEM_PREFIXES)
        or name in server_names
        or (name.endswith(REPLY_SUFFIX) and name.removesuffix(REPLY_SUFFIX) in server_names)
    )
    return TopicKind.SYSTEM if is_system else TopicKind.NORMAL


def is_system_group(name: str) -> bool:
    """Whether a group is RocketMQ's own."""
    return name in _SYSTEM_GROUPS or name.startswith("CID_RMQ_SYS_")
