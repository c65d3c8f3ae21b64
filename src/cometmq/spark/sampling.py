"""What brokers do not tell of a queue, found by small pulls: sizes of messages, times exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cometmq.codec import core
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.digest import store_timestamp
from cometmq.codec.headers.pull import PullMessageResponse
from cometmq.model.offsets import MessageQueue
from cometmq.spark.broker_reader import ANSWERED, PullLimits, Wanted, pull_header
from cometmq.spark.planning import Range, spread
from cometmq.spark.records import walk
from cometmq.spark.wire import Reply, Wire

SAMPLE_ROWS: Final = 8
SAMPLE_BYTES: Final = 256 * 1024


def pulled_row_sizes(wire: Wire, address: str, wanted: Range, places: int) -> list[int]:
    """The mean size of messages at so many places of a range; places that are gone have none."""
    replies = _pulled(wire, address, spread(wanted, places, SAMPLE_ROWS))
    return [
        len(reply.body) // len(walk(memoryview(reply.body))) for reply in replies if _has(reply)
    ]


def first_stored_at(
    wire: Wire,
    address: str,
    times: Mapping[MessageQueue, int],
    bounds: Mapping[MessageQueue, tuple[int, int]],
) -> dict[MessageQueue, int]:
    """Of each queue of a broker the first offset that was stored at a time or later, else its end.

    All queues are halved together, so it takes as many steps as the longest of them needs.
    """
    left = {queue: bounds[queue] for queue in times}
    while True:
        middles = {q: (begin + end) // 2 for q, (begin, end) in left.items() if begin < end}
        if not middles:
            return {queue: begin for queue, (begin, _) in left.items()}
        replies = _pulled(wire, address, [Range(q, at, at + 1) for q, at in middles.items()])
        for (queue, at), reply in zip(middles.items(), replies, strict=True):
            begin, end = left[queue]
            is_earlier = _is_before(reply, at, times[queue])
            left[queue] = (at + 1, end) if is_earlier else (begin, at)


def _is_before(reply: Reply, offset: int, time_ms: int) -> bool:
    """Whether the message at an offset was stored before a time; what is gone was."""
    if _has(reply):
        return store_timestamp(reply.body, 0) < time_ms
    return core.read(reply.head, PullMessageResponse).next_begin_offset > offset


def _pulled(wire: Wire, address: str, ranges: Sequence[Range]) -> Iterator[Reply]:
    """What one pull brings of each range."""
    limits = PullLimits(SAMPLE_ROWS, SAMPLE_BYTES, SAMPLE_ROWS, SAMPLE_BYTES)
    headers = [pull_header(one, one.begin, limits, Wanted()) for one in ranges]
    code = RequestCode.PULL_MESSAGE
    for _, reply in wire.ask_all(address, code, headers, accept=ANSWERED):
        yield reply


def _has(reply: Reply) -> bool:
    return reply.code == ResponseCode.SUCCESS and len(reply.body) > 0
