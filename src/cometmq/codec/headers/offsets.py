"""Offsets of queues and of consumer groups: asking, storing, resetting, copying."""

from enum import StrEnum
from typing import Self

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.base import I32, I64, Header, request, response


class BoundaryType(StrEnum):
    """Which message a search by time wants when several have the same time: first or last."""

    LOWER = "LOWER"
    UPPER = "UPPER"

    @classmethod
    def _missing_(cls, value: object) -> Self:
        # As in Java: anything that is not UPPER in some spelling is the lower boundary.
        return cls("UPPER" if str(value).upper() == "UPPER" else "LOWER")


@request(RequestCode.QUERY_CONSUMER_OFFSET)
class QueryConsumerOffset(Header):
    """The offset a group has stored for a queue; ``set_zero_if_not_found`` absent means true."""

    consumer_group: str
    topic: str
    queue_id: I32
    set_zero_if_not_found: bool | None = None


@request(RequestCode.UPDATE_CONSUMER_OFFSET)
class UpdateConsumerOffset(Header):
    """Store a group's offset of a queue, usually one-way; Node clients send -1 for "none"."""

    consumer_group: str
    topic: str
    queue_id: I32
    commit_offset: I64


@request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
class SearchOffsetByTimestamp(Header):
    """The offset of the first (or last) message stored at or after ``timestamp``."""

    topic: str
    queue_id: I32
    timestamp: I64
    boundary_type: BoundaryType | None = None


@request(RequestCode.GET_MAX_OFFSET)
class GetMaxOffset(Header):
    """The offset after the last message; ``committed`` absent means true."""

    topic: str
    queue_id: I32
    committed: bool | None = None


@request(RequestCode.GET_MIN_OFFSET)
class GetMinOffset(Header):
    """The offset of the first message that is still there."""

    topic: str
    queue_id: I32


@response(
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
)
class OffsetResponse(Header):
    """One offset; clients crash when a success lacks it."""

    offset: I64


@request(RequestCode.GET_EARLIEST_MSG_STORETIME)
class GetEarliestMsgStoretime(Header):
    """When the oldest message of a queue was stored."""

    topic: str
    queue_id: I32


@response(RequestCode.GET_EARLIEST_MSG_STORETIME)
class GetEarliestMsgStoretimeResponse(Header):
    """Milliseconds, -1 when the queue is empty."""

    timestamp: I64


@request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
class ResetOffset(Header):
    """Set a group back (or forth) to ``timestamp``, from ``mqadmin`` and on to the consumers.

    A ``timestamp`` of -1 is the end of the queues, a ``queue_id`` of -1 all queues, an ``offset``
    of -1 none.
    """

    topic: str
    group: str
    timestamp: I64
    is_force: bool | None = None
    queue_id: I32 | None = None
    offset: I64 | None = None


@request(RequestCode.QUERY_CORRECTION_OFFSET)
class QueryCorrectionOffset(Header):
    """Offsets of groups on ``topic`` compared with those of ``compare_group``."""

    topic: str
    compare_group: str
    filter_groups: str | None = None


@request(RequestCode.CLONE_GROUP_OFFSET)
class CloneGroupOffset(Header):
    """Give ``dest_group`` the offsets of ``src_group``, on one topic or on all."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None
