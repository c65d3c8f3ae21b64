"""Pulling messages from one queue."""

import msgspec

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.base import I32, I64, Header, Rare, request, response

_PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


@request(*_PULLS)
class PullMessage(Header):
    """Ask for messages from ``queue_offset`` on.

    ``subscription`` and ``expression_type`` count only when ``sys_flag`` has bit 4; Go always says
    ``TAG``. ``sub_version`` is in milliseconds, from Go in nanoseconds. ``large_count`` and
    ``large_bytes`` are ours: they ask for more than clients of Apache get.
    """

    consumer_group: str
    topic: str
    queue_id: I32
    queue_offset: I64
    max_msg_nums: I32
    sys_flag: I32
    commit_offset: I64
    suspend_timeout_millis: I64
    subscription: str | None
    sub_version: I64
    expression_type: str | None = None
    max_msg_bytes: I32 | None = None
    request_source: I32 | None = None
    proxy_froward_client_id: str | None = None
    large_count: Rare | None = msgspec.field(name="cometMaxMsgNums", default=None)
    large_bytes: Rare | None = msgspec.field(name="cometMaxMsgBytes", default=None)

    @property
    def is_extended(self) -> bool:
        """Whether it has a field of ours."""
        return self.large_count is not None or self.large_bytes is not None


@response(*_PULLS)
class PullMessageResponse(Header):
    """Where to pull next; with codes 0, 19, 20 and 21, and always with all four offsets."""

    suggest_which_broker_id: I64
    next_begin_offset: I64
    min_offset: I64
    max_offset: I64
    topic_sys_flag: I32 | None = None
    group_sys_flag: I32 | None = None
    forbidden_type: I32 | None = None
    offset_delta: I64 | None = None
