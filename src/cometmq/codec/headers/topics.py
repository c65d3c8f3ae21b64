"""Topics of a broker: creating, deleting, describing, and who consumes them."""

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.base import I32, Header, request, response


@request(RequestCode.UPDATE_AND_CREATE_TOPIC)
class UpdateAndCreateTopic(Header):
    """A topic as it shall be; C++ leaves ``topic_sys_flag`` and ``order`` out.

    ``attributes`` are changes: ``+key=value`` or ``-key``, joined by commas.
    """

    topic: str
    default_topic: str
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    topic_filter_type: str
    topic_sys_flag: I32 | None = None
    order: bool | None = None
    attributes: str | None = None
    force: bool | None = None


@request(RequestCode.DELETE_TOPIC_IN_BROKER)
class DeleteTopicInBroker(Header):
    """Forget a topic here; the name servers are told separately."""

    topic: str


@request(RequestCode.GET_ALL_TOPIC_CONFIG)
class GetAllTopicConfig(Header):
    """All topics, or from 5.x one page of them; without ``topic_seq`` all are wanted."""

    topic_seq: I32 | None = None
    data_version: str | None = None
    max_topic_num: I32 | None = None


@response(RequestCode.GET_ALL_TOPIC_CONFIG)
class GetAllTopicConfigResponse(Header):
    """How many topics there are over all pages."""

    total_topic_num: I32 | None = None


@request(RequestCode.GET_TOPIC_CONFIG)
class GetTopicConfig(Header):
    """The settings of one topic."""

    topic: str


@request(RequestCode.GET_TOPIC_STATS_INFO)
class GetTopicStatsInfo(Header):
    """First and last offset of each queue."""

    topic: str


@request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
class QueryTopicConsumeByWho(Header):
    """Groups that are online on a topic or have offsets for it."""

    topic: str


@request(RequestCode.QUERY_CONSUME_TIME_SPAN)
class QueryConsumeTimeSpan(Header):
    """How far behind a group is on each queue, in time."""

    topic: str
    group: str
