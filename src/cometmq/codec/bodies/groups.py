"""Bodies about consumer groups: their settings and their subscriptions."""

import msgspec

from cometmq.model.group import SubscriptionData, SubscriptionGroupConfig
from cometmq.model.java_types import Int32
from cometmq.model.topic import DataVersion


class SubscriptionGroupTable(msgspec.Struct, frozen=True, rename="camel"):
    """All groups of a broker, also ``subscriptionGroup.json``; ``forbidden_table`` is 5.x.

    ``forbidden_table`` has bits by group and topic; bit 0 forbids reading.
    """

    data_version: DataVersion | None = None
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    forbidden_table: dict[str, dict[str, Int32]] | None = None


class SubscriptionGroupList(msgspec.Struct, frozen=True, rename="camel"):
    """Groups to create or change with one request."""

    group_config_list: tuple[SubscriptionGroupConfig, ...] = ()


class GroupForbidden(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Whether a group may read a topic."""

    topic: str | None = None
    group: str | None = None
    readable: bool | None = None


class GroupList(msgspec.Struct, frozen=True, rename="camel"):
    """Names of groups."""

    group_list: tuple[str, ...] = ()


class QuerySubscriptionAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """What a group subscribes of a topic; no subscription when it does not."""

    group: str | None = None
    topic: str | None = None
    subscription_data: SubscriptionData | None = None
