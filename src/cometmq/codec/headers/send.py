"""Sending: single messages, batches, replies of consumers, and messages handed back for retry."""

import msgspec

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.base import I32, I64, Header, LooseBool, Rare, request, response


@request(RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
class SendMessage(Header):
    """A send with long field names.

    ``queue_id`` below zero lets the broker choose. The body is a batch when ``batch`` is true, and
    only then: the request code does not tell. ``max_reconsume_times`` matters on retry topics.
    ``producer_id`` and ``sequence`` are ours: they make a send idempotent, and no client of Apache
    sends them.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: I32 | None = None
    batch: LooseBool | None = None
    broker_name: str | None = msgspec.field(name="bname", default=None)
    producer_id: Rare | None = msgspec.field(name="cometProducerId", default=None)
    sequence: Rare | None = msgspec.field(name="cometSequence", default=None)

    @property
    def is_extended(self) -> bool:
        """Whether it has a field of ours."""
        return self.producer_id is not None or self.sequence is not None


_SHORT_NAMES = dict(zip(SendMessage.__struct_fields__, "abcdefghijklmn", strict=False))


@request(
    RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2
)
class SendMessageV2(SendMessage, rename=_SHORT_NAMES):
    """The same fields under the names ``a`` to ``n``, which makes headers half as long."""

    # Declared again because msgspec renames only fields that a class declares itself.
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: I32 | None = None
    batch: LooseBool | None = None
    broker_name: str | None = None
    producer_id: Rare | None = msgspec.field(name="cometProducerId", default=None)
    sequence: Rare | None = msgspec.field(name="cometSequence", default=None)


@response(
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)
class SendMessageResponse(Header):
    """Where a message went; sent with codes 0, 10, 11 and 12, all of which mean "stored".

    ``msg_id`` is the offset id (of a batch: all of them, joined by commas) and ``transaction_id``
    the producer's unique key. ``recall_handle`` comes with timer messages only.
    """

    msg_id: str
    queue_id: I32
    queue_offset: I64
    transaction_id: str | None = None
    msg_region: str | None = msgspec.field(name="MSG_REGION", default=None)
    trace_on: str | None = msgspec.field(name="TRACE_ON", default=None)
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


@request(RequestCode.CONSUMER_SEND_MSG_BACK)
class ConsumerSendMsgBack(Header):
    """A consumer could not handle the message at ``offset`` of the commit log."""

    offset: I64
    group: str
    delay_level: I32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: I32 | None = None
