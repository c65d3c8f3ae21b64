"""What a topic or a group is for, told from its name."""

import enum
from collections.abc import Collection

from cometmq.model.system_names import (
    DEFAULT_CONSUMER_GROUP,
    REPLY_SUFFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)
from cometmq.model.system_names import is_system_group as is_broker_group
from cometmq.model.topic import DLQ_PREFIX, RETRY_PREFIX

_SYSTEM_PREFIXES = (SYSTEM_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX.upper())
_CLIENT_GROUPS = frozenset({DEFAULT_CONSUMER_GROUP, "SCHEDULE_CONSUMER"})
"""Groups that no broker has and no user made."""


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
        name in SYSTEM_TOPICS
        or name.startswith(_SYSTEM_PREFIXES)
        or name in server_names
        or (name.endswith(REPLY_SUFFIX) and name.removesuffix(REPLY_SUFFIX) in server_names)
    )
    return TopicKind.SYSTEM if is_system else TopicKind.NORMAL


def is_system_group(name: str) -> bool:
    """Whether a group is RocketMQ's own."""
    return name in _CLIENT_GROUPS or is_broker_group(name)


def is_of_dead_letters(group: str, topic: str) -> bool:
    """Whether a topic holds the dead letters of this group, which it does not consume itself."""
    return topic == DLQ_PREFIX + group
