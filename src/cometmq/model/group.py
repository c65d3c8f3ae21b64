"""Consumer groups: their settings on the broker and what their members subscribe to."""

from typing import Self

import msgspec

from cometmq.model.java_types import Int32, Int64, JavaEnum

MATCH_ALL = "*"
"""Subscription expression that takes every message."""

TAG_EXPRESSION = "TAG"
SQL_EXPRESSION = "SQL92"


class ConsumeType(JavaEnum):
    """How a consumer gets its messages."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        # Early Go clients send the kind of consumer instead of the name of the constant.
        aliases = {"PULL": cls.CONSUME_ACTIVELY, "PUSH": cls.CONSUME_PASSIVELY}
        if isinstance(value, str) and value in aliases:
            return aliases[value]
        return super()._missing_(value)


class MessageModel(JavaEnum):
    """Whether a message goes to one member of the group, to all, or by lite topic."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"
    LITE_SELECTIVE = "LITE_SELECTIVE"


class ConsumeFromWhere(JavaEnum):
    """Where a group without stored offsets begins."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(msgspec.Struct, frozen=True, rename="camel"):
    """What one group wants of one topic.

    ``code_set`` is what the client computed; Go and C++ compute it differently from Java, so a
    broker derives the hashes again from ``tags_set``. ``sub_version`` is milliseconds in Java and
    nanoseconds in Go: compare it only with itself.
    """

    topic: str
    sub_string: str = MATCH_ALL
    tags_set: tuple[str, ...] = ()
    code_set: tuple[Int32, ...] = ()
    sub_version: Int64 = 0
    expression_type: str = TAG_EXPRESSION
    class_filter_mode: bool = False


class SimpleSubscriptionData(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A subscription kept in the settings of a group (5.x)."""

    topic: str
    expression_type: str | None = None
    expression: str | None = None
    version: Int64 = 0


class GroupRetryPolicyType(JavaEnum):
    """Which of the two policies of a group is in force."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ExponentialRetryPolicy(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Delays in milliseconds that grow by a factor."""

    initial: Int64 = 5_000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


class CustomizedRetryPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """A list of delays in milliseconds, the last one repeated."""

    next: tuple[Int64, ...] = ()


class GroupRetryPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """How long a failed message waits (5.x); without details the broker's delay levels apply."""

    type: GroupRetryPolicyType = GroupRetryPolicyType.CUSTOMIZED
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SubscriptionGroupConfig(msgspec.Struct, frozen=True, rename="camel"):
    """Settings of one consumer group.

    Members that are None are those a 4.x peer does not send; ``with_defaults`` fills them as a 5.x
    broker does.
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    consume_message_orderly: bool | None = None
    group_retry_policy: GroupRetryPolicy | None = None
    group_sys_flag: Int32 | None = None
    consume_timeout_minute: Int32 | None = None
    subscription_data_set: tuple[SimpleSubscriptionData, ...] | None = None
    attributes: dict[str, str] | None = None

    @classmethod
    def with_defaults(cls, group_name: str) -> Self:
        """A group as a 5.x broker creates it at the first heartbeat."""
        return cls(
            group_name,
            consume_message_orderly=False,
            group_retry_policy=GroupRetryPolicy(),
            group_sys_flag=0,
            consume_timeout_minute=15,
            attributes={},
        )
