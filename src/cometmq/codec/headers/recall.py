"""Taking back a timer message that was not delivered yet (5.3.2 and later)."""

import msgspec

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.base import Header, request, response


@request(RequestCode.RECALL_MESSAGE)
class RecallMessage(Header):
    """``recall_handle`` is what the send's answer gave; see ``codec.recall_handle``."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


@response(RequestCode.RECALL_MESSAGE)
class RecallMessageResponse(Header):
    """The unique key of the message that will not come."""

    msg_id: str
    msg_region: str | None = msgspec.field(name="MSG_REGION", default=None)
