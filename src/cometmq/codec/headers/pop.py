"""Pop consumption (5.x): the broker hands messages out and wants each one acknowledged.

All these codes are above 32767, so they travel with JSON headers only.
"""

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.base import I32, I64, Header, request, response


@request(RequestCode.POP_MESSAGE)
class PopMessage(Header):
    """Ask for messages of any queue (``queue_id`` -1), hidden from others for a while.

    ``born_time`` absent or 0 means now; ``init_mode`` is 0 to begin at the first message, 1 at the
    last. ``attempt_id`` lets an ordered consumer repeat a request that got lost.
    """

    consumer_group: str
    topic: str
    queue_id: I32
    max_msg_nums: I32
    invisible_time: I64
    poll_time: I64
    born_time: I64 | None
    init_mode: I32
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


@request(RequestCode.PEEK_MESSAGE)
class PeekMessage(Header):
    """Look at messages without taking them."""

    topic: str
    queue_id: I32
    max_msg_nums: I32
    consumer_group: str


@response(RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE)
class PopMessageResponse(Header):
    """From what a consumer makes the handle of each message, in the order of the body.

    ``start_offset_info``, ``msg_offset_info`` and ``order_count_info`` are lists joined by ``;``
    with one entry per kind of topic and queue.
    """

    pop_time: I64
    invisible_time: I64
    revive_qid: I32
    rest_num: I64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@request(RequestCode.ACK_MESSAGE)
class AckMessage(Header):
    """A message is done; ``extra_info`` is its handle, ``topic`` may be a retry topic."""

    consumer_group: str
    topic: str
    queue_id: I32
    extra_info: str
    offset: I64


@request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
class ChangeMessageInvisibleTime(Header):
    """Hide a message for another while; ``suspend`` comes from 5.5.0 clients."""

    consumer_group: str
    topic: str
    queue_id: I32
    extra_info: str
    offset: I64
    invisible_time: I64
    suspend: bool | None = None


@response(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
class ChangeMessageInvisibleTimeResponse(Header):
    """What the new handle is made from; the old one is void."""

    pop_time: I64
    invisible_time: I64
    revive_qid: I32


@request(RequestCode.NOTIFICATION)
class Notification(Header):
    """Wait until there is something to pop."""

    consumer_group: str
    topic: str
    queue_id: I32
    poll_time: I64
    born_time: I64
    order: bool | None = None
    attempt_id: str | None = None


@response(RequestCode.NOTIFICATION)
class NotificationResponse(Header):
    """Whether there is something, or too many wait already."""

    has_msg: bool
    polling_full: bool | None = None


@request(RequestCode.POLLING_INFO)
class PollingInfo(Header):
    """Ask how many requests wait on a queue."""

    consumer_group: str
    topic: str
    queue_id: I32


@response(RequestCode.POLLING_INFO)
class PollingInfoResponse(Header):
    """How many requests wait."""

    polling_num: I32
