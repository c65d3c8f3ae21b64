"""What the store answers: values a caller plans for, not exceptions."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Self

import msgspec

if TYPE_CHECKING:
    from types import TracebackType


class PutStatus(enum.Enum):
    """What became of a message; names as RocketMQ's, whose brokers map them to response codes."""

    PUT_OK = enum.auto()
    FLUSH_DISK_TIMEOUT = enum.auto()
    """Stored, but not known to be on disk in time."""
    CREATE_MAPPED_FILE_FAILED = enum.auto()
    MESSAGE_ILLEGAL = enum.auto()
    PROPERTIES_SIZE_EXCEEDED = enum.auto()
    SERVICE_NOT_AVAILABLE = enum.auto()
    """Closed, a slave, read-only after a failed sync, or the disk is full."""
    OS_PAGE_CACHE_BUSY = enum.auto()
    TRANSIENT_POOL_EMPTY = enum.auto()
    """Every buffer of the transient pool waits to be committed."""
    UNKNOWN_ERROR = enum.auto()

    @property
    def is_stored(self) -> bool:
        """Whether the message is in the log, durable or not."""
        return self in (PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT)


class NewMessage(msgspec.Struct, frozen=True, gc=False):
    """A message to be stored. Hosts are packed (``codec.record.pack_host``), properties raw."""

    topic: str
    queue_id: int
    body: bytes | memoryview
    properties: bytes = b""
    born_timestamp: int = 0
    born_host: bytes = bytes(8)
    store_host: bytes = bytes(8)
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class PutResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message went; of a batch, where its first message went.

    ``end`` is the log position behind it: the message is durable once ``flushed`` reaches it.
    ``offsets`` are the physical offsets of all messages of a batch, else empty.
    """

    status: PutStatus
    physical_offset: int = -1
    end: int = -1
    queue_offset: int = -1
    store_timestamp: int = 0
    offsets: tuple[int, ...] = ()
    reason: str = ""


class GetStatus(enum.Enum):
    """Why a read returned what it did; names as RocketMQ's."""

    FOUND = enum.auto()
    NO_MATCHED_MESSAGE = enum.auto()
    MESSAGE_WAS_REMOVING = enum.auto()
    OFFSET_FOUND_NULL = enum.auto()
    OFFSET_OVERFLOW_BADLY = enum.auto()
    OFFSET_OVERFLOW_ONE = enum.auto()
    OFFSET_TOO_SMALL = enum.auto()
    NO_MATCHED_LOGIC_QUEUE = enum.auto()
    NO_MESSAGE_IN_QUEUE = enum.auto()


class GetLimits(msgspec.Struct, frozen=True, gc=False):
    """How much one read may return and look at; the first message is returned whatever its size.

    The cold limits are for records further back than memory is likely to hold.
    """

    count: int = 32
    bytes_max: int = 256 * 1024
    count_cold: int = 8
    bytes_cold_max: int = 64 * 1024
    entries_max: int = 800
    """Queue entries examined, and so how far a filter looks."""


class GetResult:
    """Records as slices of the mapped log, one after the other; adjacent ones share a slice.

    The slices keep their files mapped: release them when the bytes have gone out, by ``release()``
    or by using the result as a context manager.
    """

    __slots__ = (
        "bytes",
        "count",
        "is_cold",
        "max_offset",
        "min_offset",
        "next_offset",
        "slices",
        "status",
    )

    def __init__(
        self, status: GetStatus, next_offset: int, min_offset: int = 0, max_offset: int = 0
    ) -> None:
        self.status = status
        # Where the next read should begin.
        self.next_offset = next_offset
        # The queue's bounds when it was read, half open.
        self.min_offset = min_offset
        self.max_offset = max_offset
        # Record bytes, in order.
        self.slices: list[memoryview] = []
        self.count = 0
        self.bytes = 0
        # The last record lies further back than memory is likely to hold: ask a slave.
        self.is_cold = False

    def release(self) -> None:
        """Give the slices back; harmless when done twice."""
        for view in self.slices:
            view.release()
        self.slices = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
