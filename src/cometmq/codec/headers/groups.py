"""Consumer groups of a broker: settings, deletion, progress, subscriptions."""

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.base import I32, Header, request, response


@request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
class GetAllSubscriptionGroupConfig(Header):
    """All groups, or from 5.x one page of them; without ``group_seq`` all are wanted."""

    group_seq: I32 | None = None
    data_version: str | None = None
    max_group_num: I32 | None = None


@response(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
class GetAllSubscriptionGroupConfigResponse(Header):
    """How many groups there are over all pages."""

    total_group_num: I32 | None = None


@request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
class GetSubscriptionGroupConfig(Header):
    """The settings of one group."""

    group: str


@request(RequestCode.DELETE_SUBSCRIPTIONGROUP)
class DeleteSubscriptionGroup(Header):
    """Forget a group, and its offsets too: 5.x asks with ``clean_offset``, 4.9 with the other."""

    group_name: str
    clean_offset: bool | None = None
    remove_offset: bool | None = None


@request(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN)
class UpdateAndGetGroupForbidden(Header):
    """Forbid a group to read a topic, or allow it; without ``readable`` only ask."""

    group: str
    topic: str
    readable: bool | None = None


@request(RequestCode.GET_CONSUME_STATS)
class GetConsumeStats(Header):
    """A group's progress on all its topics, on one, or on several joined by ``;``."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@request(RequestCode.GET_BROKER_CONSUME_STATS)
class GetBrokerConsumeStats(Header):
    """The progress of every group, of ordered ones only or of the others only."""

    is_order: bool


@request(RequestCode.QUERY_TOPICS_BY_CONSUMER)
class QueryTopicsByConsumer(Header):
    """Topics for which a group has offsets."""

    group: str


@request(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER)
class QuerySubscriptionByConsumer(Header):
    """A group's subscription of a topic."""

    group: str
    topic: str | None = None
