"""Looking messages up by key, by position in the log and by queue entry."""

import msgspec

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.base import I32, I64, Header, request, response


@request(RequestCode.QUERY_MESSAGE)
class QueryMessage(Header):
    """Messages of ``topic`` stored between two times whose index holds ``key``.

    ``unique_key_query`` says that ``key`` is a producer's unique key; ``index_type`` (5.5.0) is
    ``K`` for keys.
    """

    topic: str
    key: str
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64
    unique_key_query: bool | None = msgspec.field(name="_UNIQUE_KEY_QUERY", default=None)
    index_type: str | None = None


@response(RequestCode.QUERY_MESSAGE)
class QueryMessageResponse(Header):
    """How far the index has come; also sent, with zeros, when nothing was found (22)."""

    index_last_update_timestamp: I64
    index_last_update_phyoffset: I64


@request(RequestCode.VIEW_MESSAGE_BY_ID)
class ViewMessageById(Header):
    """The one message at ``offset`` of the commit log."""

    offset: I64
    topic: str | None = None


@request(RequestCode.QUERY_CONSUME_QUEUE)
class QueryConsumeQueue(Header):
    """``count`` entries of a consume queue from ``index`` on, judged by a group's filter."""

    topic: str | None = None
    queue_id: I32 | None = None
    index: I64 | None = None
    count: I32 | None = None
    consumer_group: str | None = None
