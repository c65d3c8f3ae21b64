"""Topics: their queues, permissions and attributes, and the version stamp of a table of them."""

import enum

import msgspec

from cometmq.model.java_types import Int32, Int64, JavaEnum

DEFAULT_QUEUE_NUMS = 16

RETRY_PREFIX = "%RETRY%"
"""Begins the topic in which a group's messages wait to be delivered again."""
DLQ_PREFIX = "%DLQ%"
"""Begins the topic of a group's messages that were retried in vain."""

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""Where messages with a delay level wait; their tags code is the time of delivery."""


class Permission(enum.IntFlag):
    """Bits of ``perm`` in topics and routes; an integer on the wire and in files."""

    INHERIT = 1
    """New topics may be created after this one (``TBW102``)."""
    WRITE = 2
    READ = 4
    PRIORITY = 8
    """Reserved by RocketMQ, never set."""


class TopicFilterType(JavaEnum):
    """Whether a message of the topic carries one tag or several."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class DataVersion(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Stamp of a table; two tables with the same stamp have the same content.

    ``state_version`` is None when the peer is a 4.x release, which has no such field.
    """

    counter: Int64 = 0
    state_version: Int64 | None = None
    timestamp: Int64 = 0

    def matches(self, other: "DataVersion") -> bool:
        """Equal as Java sees it: a missing state version counts as 0."""
        return (self.state_version or 0, self.counter, self.timestamp) == (
            other.state_version or 0,
            other.counter,
            other.timestamp,
        )

    def advanced(self, now_ms: int) -> "DataVersion":
        """The stamp after one more change of the table."""
        return DataVersion(self.counter + 1, self.state_version, now_ms)


class TopicConfig(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What a broker knows about one topic.

    ``attributes`` is None when the peer is a 4.x release; a 5.x table always has the member, so a
    topic created here starts with ``attributes={}``.
    """

    topic_name: str
    read_queue_nums: Int32 = DEFAULT_QUEUE_NUMS
    write_queue_nums: Int32 = DEFAULT_QUEUE_NUMS
    perm: Int32 = Permission.READ.value | Permission.WRITE.value
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] | None = None

    @property
    def is_readable(self) -> bool:
        return bool(self.perm & Permission.READ)

    @property
    def is_writable(self) -> bool:
        return bool(self.perm & Permission.WRITE)

    @property
    def is_inheritable(self) -> bool:
        """Whether topics may be auto-created after this one."""
        return bool(self.perm & Permission.INHERIT)
