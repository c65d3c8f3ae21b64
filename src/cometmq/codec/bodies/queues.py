"""Bodies that divide queues among consumers: locks, assignments, pull or pop."""

import msgspec

from cometmq.model.group import MessageModel
from cometmq.model.java_types import Int32, JavaEnum
from cometmq.model.offsets import MessageQueue


class LockBatchBody(msgspec.Struct, frozen=True, rename="camel"):
    """LOCK_BATCH_MQ and UNLOCK_BATCH_MQ; ``only_this_broker`` is 5.x."""

    consumer_group: str | None = None
    client_id: str | None = None
    mq_set: tuple[MessageQueue, ...] = ()
    only_this_broker: bool | None = None


class LockBatchAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The queues that are now locked for the caller."""

    lock_ok_mq_set: tuple[MessageQueue, ...] = msgspec.field(name="lockOKMQSet", default=())


class MessageRequestMode(JavaEnum):
    """How the members of a group fetch a topic."""

    PULL = "PULL"
    POP = "POP"


class QueryAssignmentBody(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """QUERY_ASSIGNMENT: which queues are mine, when the broker divides them."""

    topic: str | None = None
    consumer_group: str | None = None
    client_id: str | None = None
    strategy_name: str | None = None
    message_model: MessageModel | None = None


class QueueAssignment(msgspec.Struct, frozen=True, rename="camel"):
    """A queue for the caller; in pop mode queue id -1 stands for all of a broker."""

    message_queue: MessageQueue
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: dict[str, str] | None = None


class QueryAssignmentAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """Answer of QUERY_ASSIGNMENT."""

    message_queue_assignments: tuple[QueueAssignment, ...] = ()


class MessageRequestModeBody(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """SET_MESSAGE_REQUEST_MODE."""

    topic: str | None = None
    consumer_group: str | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: Int32 = 0


class MessageRequestModeTable(msgspec.Struct, frozen=True, rename="camel"):
    """All modes by topic and group; also ``messageRequestMode.json``."""

    message_request_mode_map: dict[str, dict[str, MessageRequestModeBody]] = {}
