"""Where a group can be moved to, and which offset that is in a queue."""

from typing import TypeAlias

import msgspec

from cometmq.admin.servers import BrokerAddress, Servers
from cometmq.codec import core
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.offsets import (
    GetMaxOffset,
    GetMinOffset,
    OffsetResponse,
    SearchOffsetByTimestamp,
)


class Earliest(msgspec.Struct, frozen=True, tag=True):
    """The first message that is still there."""


class Latest(msgspec.Struct, frozen=True, tag=True):
    """Behind the last message: only what comes from now on."""


class Time(msgspec.Struct, frozen=True, tag=True):
    """The first message stored at this time or later; the end when there is none."""

    ms: int


class Offset(msgspec.Struct, frozen=True, tag=True):
    """This offset, or the nearest that a queue has."""

    offset: int


class Shift(msgspec.Struct, frozen=True, tag=True):
    """So many messages on from where the group is, or back when negative, within the queue."""

    by: int


Position: TypeAlias = Earliest | Latest | Time | Offset | Shift
"""Where to; each queue has its own offset for it."""


class Bounds(msgspec.Struct, frozen=True):
    """What is known of a queue: its offsets, and where the group is (None: nowhere yet)."""

    min_offset: int
    max_offset: int
    current: int | None

    def nearest(self, offset: int) -> int:
        """The offset itself, or the end of the queue that it lies beyond."""
        return min(max(offset, self.min_offset), self.max_offset)


def offset_at(position: Position, bounds: Bounds, found: int | None = None) -> int:
    """The offset a position means in a queue, always one that the queue has.

    ``found`` is what a search by time gave; only ``Time`` needs it. A shift of a group that is
    nowhere begins at the first message.
    """
    match position:
        case Earliest():
            return bounds.min_offset
        case Latest():
            return bounds.max_offset
        case Time():
            assert found is not None
            return bounds.nearest(found)
        case Offset(offset):
            return bounds.nearest(offset)
        case Shift(by):
            start = bounds.min_offset if bounds.current is None else bounds.current
            return bounds.nearest(start + by)


async def search(servers: Servers, broker: BrokerAddress, topic: str, queue: int, ms: int) -> int:
    """The offset of the first message stored at ``ms`` or later; the end when there is none.

    4.9 brokers give the last message instead of the end for a time that is past it.
    """
    header = SearchOffsetByTimestamp(topic, queue, ms)
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    return await _offset(servers, broker, code, header)


async def queue_bounds(
    servers: Servers, broker: BrokerAddress, topic: str, queue: int
) -> tuple[int, int]:
    """The first offset of a queue and the one after the last."""
    low = await _offset(servers, broker, RequestCode.GET_MIN_OFFSET, GetMinOffset(topic, queue))
    high = await _offset(servers, broker, RequestCode.GET_MAX_OFFSET, GetMaxOffset(topic, queue))
    return low, high


async def _offset(
    servers: Servers,
    broker: BrokerAddress,
    code: RequestCode,
    header: GetMinOffset | GetMaxOffset | SearchOffsetByTimestamp,
) -> int:
    answer = await servers.ask(broker.address, code, header)
    return core.read(answer, OffsetResponse).offset
