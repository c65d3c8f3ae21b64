"""The broker's half of request-reply: handing a reply to the client that waits for it."""

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.base import I32, I64, Header, request


@request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
class PushReplyMessageToClient(Header):
    """A reply as its sender wrote it, with hosts as ``ip:port`` and the time of arrival."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    born_host: str
    store_host: str
    store_timestamp: I64
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool | None = None
