"""Ranges of queues pulled from brokers, ours or Apache's.

The next pull is sent before the last one is decoded, so that broker and reader work at the same
time. Small answers (Apache's brokers give 32 messages by default) are joined before decoding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cometmq.codec import core
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.pull import PullMessage, PullMessageResponse
from cometmq.errors import CometError, ConnectionLost, RequestTimeout, Unreachable
from cometmq.model.system_names import TOOLS_GROUP
from cometmq.spark.decode import Place, RecordDecoder
from cometmq.spark.losses import Losses
from cometmq.spark.planning import Range
from cometmq.spark.records import Records, walk
from cometmq.spark.wire import Line, Reply, Wire, refusal

EMPTY_PULLS_MAX: Final = 100
"""Pulls of a place that should have a message and do not bring one, before it counts as lost: a
broker that has just started may still be filling its queues from its log."""
EMPTY_PAUSE_SECONDS: Final = 0.1
RETRY_PAUSES_SECONDS: Final = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Between tries to reach a broker: one that is restarted does not end the query."""
OUTAGES: Final = (ConnectionLost, RequestTimeout, Unreachable)
ANSWERED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
"""What pulls are answered with; the rest are refusals."""
_BUSY: Final = (ResponseCode.SYSTEM_BUSY, ResponseCode.GO_AWAY)
_SUBSCRIPTION_FLAG: Final = 0x4


@dataclass(frozen=True, slots=True)
class PullLimits:
    """How much one pull asks for, and how much is decoded at once."""

    count: int
    bytes_max: int
    batch_rows: int
    batch_bytes: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages a pull wants."""

    tags: frozenset[str] = frozenset()
    sql: str | None = None

    @property
    def is_everything(self) -> bool:
        return not self.tags and self.sql is None

    @property
    def expression(self) -> str:
        return self.sql if self.sql is not None else " || ".join(sorted(self.tags)) or "*"


class BrokerReader:
    """Reads ranges from brokers."""

    def __init__(
        self,
        wire: Wire,
        decoder: RecordDecoder,
        limits: PullLimits,
        wanted: Wanted,
        losses: Losses,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._wire = wire
        self._decoder = decoder
        self._limits = limits
        self._wanted = wanted
        self._losses = losses
        self._pause = pause

    def read(self, wanted: Range, address: str) -> Iterator[Any]:
        """The messages of a range as Arrow batches.

        Raises MessagesLost, RemoteProtocolError, and what the connection raises.
        """
        pulls = _Pulls(self._wire, address, wanted, self._limits, self._wanted, self._pause)
        try:
            yield from self._read(pulls, wanted)
        finally:
            pulls.end()

    def _read(self, pulls: _Pulls, wanted: Range) -> Iterator[Any]:
        place = Place(wanted.queue.topic, wanted.queue.broker_name)
        pending = _Pending()
        offset, empty_count = wanted.begin, 0
        pulls.send(offset)
        while offset < wanted.end:
            reply = pulls.receive()
            head = core.read(reply.head, PullMessageResponse)
            following = self._following(wanted, offset, head, reply)
            if following == offset:
                empty_count += 1
                if empty_count > EMPTY_PULLS_MAX:
                    reason = f"the broker has messages up to {head.max_offset} only"
                    self._losses.report(wanted.queue, offset, wanted.end, reason)
                    break
                self._pause(EMPTY_PAUSE_SECONDS)
            else:
                empty_count = 0
            if following < wanted.end:
                pulls.send(following)
            if reply.code == ResponseCode.SUCCESS and len(reply.body):
                pending.put(reply.body)
                self._check(pending, wanted, offset)
            offset = following
            limits = self._limits
            if pending.rows >= limits.batch_rows or pending.bytes >= limits.batch_bytes:
                yield self._decoder.decode(pending.take(wanted.end), place)
        if pending.rows:
            yield self._decoder.decode(pending.take(wanted.end), place)

    def _following(
        self, wanted: Range, offset: int, head: PullMessageResponse, reply: Reply
    ) -> int:
        """Where to go on, after a look whether something between is missing."""
        following = head.next_begin_offset
        queue = wanted.queue
        if head.min_offset > offset and reply.code != ResponseCode.SUCCESS:
            end = min(head.min_offset, wanted.end)
            self._losses.report(queue, offset, end, f"the queue begins at {head.min_offset}")
            return end
        if reply.code == ResponseCode.SUCCESS:
            return max(following, offset)
        if reply.code == ResponseCode.PULL_OFFSET_MOVED:
            if head.min_offset <= offset < head.max_offset:
                return offset  # it was told of a reset, and is asked again
            reason = f"the queue has {head.min_offset} to {head.max_offset}"
            self._losses.report(queue, offset, wanted.end, reason)
            return wanted.end
        is_skipped = following > offset and self._wanted.is_everything
        if is_skipped:
            reason = "the broker passes them over"
            self._losses.report(queue, offset, min(following, wanted.end), reason)
        return min(max(following, offset), wanted.end)

    def _check(self, pending: _Pending, wanted: Range, offset: int) -> None:
        """Look at the offsets of what a pull has brought: without a filter there is no gap."""
        offsets = pending.last.queue_offsets
        if self._wanted.is_everything:
            expected = offset
            first = int(offsets[0])
            gaps = np.flatnonzero(np.diff(offsets) != 1)
            places = [(expected, first)] if first != expected else []
            places += [(int(offsets[n]) + 1, int(offsets[n + 1])) for n in gaps]
            for begin, end in places:
                end = min(end, wanted.end)
                self._losses.report(wanted.queue, begin, end, "the broker passes them over")


def pull_header(wanted: Range, offset: int, limits: PullLimits, what: Wanted) -> PullMessage:
    """A pull of what a range has from ``offset`` on, in fields of Apache's and of ours."""
    count = max(1, min(limits.count, wanted.end - offset))
    queue = wanted.queue
    return PullMessage(
        # Not the query's group: a reset of its offsets waits for the next pull in its name, and is
        # meant for members that follow it. What a query reads is in its checkpoint.
        TOOLS_GROUP,
        queue.topic,
        queue.queue_id,
        offset,
        count,
        _SUBSCRIPTION_FLAG,
        0,
        0,
        what.expression,
        0,
        "TAG" if what.sql is None else "SQL92",
        max_msg_bytes=limits.bytes_max,
        large_count=str(count),
        large_bytes=str(limits.bytes_max),
    )


class _Pulls:
    """Pulls of one range on one connection, one at a time."""

    def __init__(
        self,
        wire: Wire,
        address: str,
        wanted: Range,
        limits: PullLimits,
        what: Wanted,
        pause: Callable[[float], None],
    ) -> None:
        self._pause = pause
        self._wire = wire
        self._address = address
        self._range = wanted
        self._limits = limits
        self._what = what
        self._offset = wanted.begin  # of the pull that is on its way
        self._line: Line | None = None
        self._is_waiting = False

    def send(self, offset: int) -> None:
        """Ask for what begins at ``offset``; when that fails ``receive`` tries again."""
        self._offset = offset
        try:
            self._line = self._line or self._wire.line(self._address)
            self._line.send(RequestCode.PULL_MESSAGE, self._header(offset))
            self._is_waiting = True
        except OUTAGES:
            self._hang_up()

    def receive(self) -> Reply:
        """The answer to the pull that was sent. Raises what the last of some tries met."""
        for pause_seconds in RETRY_PAUSES_SECONDS:
            try:
                reply = self._receive()
            except OUTAGES:
                self._hang_up()
            else:
                if reply.code in ANSWERED:
                    return reply
                if reply.code not in _BUSY:
                    raise self._refusal(reply)
            self._pause(pause_seconds)
        reply = self._receive()
        if reply.code not in ANSWERED:
            raise self._refusal(reply)
        return reply

    def _receive(self) -> Reply:
        if self._line is None or not self._is_waiting:
            self._line = self._wire.line(self._address)
            self._line.send(RequestCode.PULL_MESSAGE, self._header(self._offset))
        reply = self._line.receive()
        self._line.is_kept = True
        self._is_waiting = False
        return reply

    def _refusal(self, reply: Reply) -> CometError:
        header = self._header(self._offset)
        return refusal(self._address, RequestCode.PULL_MESSAGE, header, reply.head)

    def end(self) -> None:
        """Nobody will take the answer that is still to come."""
        if self._is_waiting:
            self._hang_up()

    def _hang_up(self) -> None:
        self._wire.forget(self._address)
        self._line = None
        self._is_waiting = False

    def _header(self, offset: int) -> PullMessage:
        return pull_header(self._range, offset, self._limits, self._what)


class _Pending:
    """What pulls have brought and nobody has decoded yet."""

    def __init__(self) -> None:
        self._parts: list[Records] = []
        self.rows = 0
        self.bytes = 0

    def put(self, body: Any) -> None:
        buffer = pa.py_buffer(body)
        self._parts.append(Records.at(buffer, walk(memoryview(body))))
        self.rows += len(self._parts[-1])
        self.bytes += len(body)

    @property
    def last(self) -> Records:
        return self._parts[-1]

    def take(self, end: int) -> Records:
        """All of it, without what lies behind the range."""
        parts, self._parts, self.rows, self.bytes = self._parts, [], 0, 0
        records = parts[0] if len(parts) == 1 else _joined(parts)
        offsets = records.queue_offsets
        if int(offsets[-1]) >= end:
            records = records.kept(offsets < end)
        return records


def _joined(parts: list[Records]) -> Records:
    """Records of several buffers in one; their heads are known already."""
    data = np.concatenate([np.frombuffer(part.buffer, np.uint8) for part in parts])
    sizes = np.array([part.buffer.size for part in parts])
    bases = np.cumsum(sizes) - sizes
    positions = [part.positions + base for part, base in zip(parts, bases, strict=True)]
    return Records(
        pa.py_buffer(data),
        np.concatenate(positions),
        np.concatenate([part.heads for part in parts]),
        np.concatenate([part.layouts for part in parts]),
    )
