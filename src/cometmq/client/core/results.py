"""What sending tells: how a message was stored, and where."""

import enum

import msgspec

from cometmq.model.offsets import MessageQueue

DEFAULT_REGION = "DefaultRegion"


class SendStatus(enum.Enum):
    """How a message was stored; only ``OK`` means as safely as was asked for."""

    OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message (or a batch) went.

    ``message_id`` is made here before sending, ``offset_id`` by the broker; of a batch both are
    all ids joined by commas, and ``queue_offset`` is the first one's. ``recall_handle`` takes a
    timed message back.
    """

    status: SendStatus
    message_id: str
    offset_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str = DEFAULT_REGION
    is_traced: bool = True

    @property
    def is_ok(self) -> bool:
        return self.status is SendStatus.OK


class LocalState(enum.Enum):
    """How a local transaction ended; ``UNKNOWN`` lets the broker ask later."""

    COMMIT = 8
    ROLLBACK = 12
    UNKNOWN = 0


class TransactionResult(msgspec.Struct, frozen=True, gc=False):
    """A transactional send: where the half message went, and what became of it."""

    sent: SendResult
    state: LocalState
