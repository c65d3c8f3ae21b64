"""Frames to brokers: several on their way at a time, each answered before a task is done.

Frames of a task for one broker go out in the order of their numbers, on one connection. When
something fails, the answers that are still to come are taken, and everything that is not known to
be stored is sent again in the same order; a broker of ours stores none of it twice.

Without numbers a broker stores whatever it takes: what is behind a frame that it had no room for,
and in any order, as several threads of it may write. So of each queue one frame is under way then,
and the next one goes when that is stored; queues do not wait for each other.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cometmq import logs
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.send import SendMessageV2
from cometmq.errors import (
    CometError,
    ConnectionLost,
    Refused,
    RequestTimeout,
    SendFailed,
    Unreachable,
)
from cometmq.spark.wire import Line, Wire

if TYPE_CHECKING:
    from cometmq.codec.command import Command

PRODUCER_GROUP: Final = "cometmq_spark_sink"
IN_FLIGHT_BYTES_MAX: Final = 16 * 1024 * 1024
PAUSE_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Between attempts; the last one again and again."""

_DEFAULT_TOPIC: Final = "TBW102"
_DEFAULT_QUEUES: Final = 4
_STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.SEQUENCE_ALREADY_STORED,
    }
)
_WORTH_ANOTHER_TRY: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.PRODUCERS_FULL,
    }
)
_NOT_NOW: Final = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)
_TELLING: Final = (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, *_NOT_NOW)
"""Answers to the question whether a broker is ours; it is, or is not, or cannot say now."""
_ADVICE: Final[dict[int, str]] = {
    ResponseCode.SEQUENCE_TOO_OLD: (
        "a later batch was written already: was an older checkpoint put back?"
    ),
    ResponseCode.SEQUENCE_OUT_OF_ORDER: (
        "the broker has lost what it had acknowledged: let the task be run again"
    ),
    ResponseCode.PRODUCER_UNKNOWN: (
        "the broker has forgotten this query: messages of this batch may come twice from now on"
    ),
    ResponseCode.PRODUCERS_FULL: (
        "write with fewer partitions, or raise idempotentProducersMax of the broker"
    ),
    ResponseCode.MESSAGE_ILLEGAL: "send less, or raise maxMessageSize of the broker",
}
_log = logs.get_logger("cometmq.spark")


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A send: one message with ``properties``, or a batch of ``count`` messages without."""

    topic: str
    queue_id: int
    count: int
    body: bytes
    properties: str | None
    producer_id: str | None
    sequence: int
    born_ms: int

    def header(self, *, is_idempotent: bool) -> SendMessageV2:
        is_batch = self.properties is None
        return SendMessageV2(
            producer_group=PRODUCER_GROUP,
            topic=self.topic,
            default_topic=_DEFAULT_TOPIC,
            default_topic_queue_nums=_DEFAULT_QUEUES,
            queue_id=self.queue_id,
            sys_flag=0,
            born_timestamp=self.born_ms,
            flag=0,
            properties="" if is_batch else self.properties,
            reconsume_times=0,
            unit_mode=False,
            batch=is_batch,
            producer_id=self.producer_id if is_idempotent else None,
            sequence=str(self.sequence) if is_idempotent else None,
        )

    @property
    def code(self) -> RequestCode:
        is_batch = self.properties is None
        return RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2


class Pipe:
    """Frames on their way to one broker, which ``find`` knows the address of.

    ``find`` raises CometError while nobody knows it. ``patience_ms`` is how long to go on without
    any frame being stored; ``clock`` and ``sleep`` count in seconds.
    """

    def __init__(
        self,
        wire: Wire,
        broker: str,
        find: Callable[[], str],
        *,
        wants_idempotence: bool,
        in_flight_max: int,
        patience_ms: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._wire = wire
        self._broker = broker
        self._find = find
        self._wants_idempotence = wants_idempotence
        self._in_flight_max = in_flight_max
        self._patience_seconds = patience_ms / 1000
        self._clock = clock
        self._sleep = sleep
        self._address = ""
        self._line: Line | None = None
        self._is_idempotent = False  # known when the line is there
        self._waiting: deque[Frame] = deque()  # not known to be stored, in order
        self._asked: dict[int, Frame] = {}  # on their way, by the number of the request
        self._bytes = 0
        self._last_good = clock()
        self._failures = 0  # in a row
        self.sent = 0  # messages known to be stored

    def put(self, frame: Frame) -> None:
        """Send a frame, as soon as there is room for it on the way. Raises CometError."""
        while self._waiting and (
            len(self._waiting) >= self._in_flight_max
            or self._bytes + len(frame.body) > IN_FLIGHT_BYTES_MAX
        ):
            self._advance()
        if not self._waiting:
            self._last_good = self._clock()
        self._waiting.append(frame)
        self._bytes += len(frame.body)
        if self._line is not None:
            self._attempt(self._ask_waiting)

    def finish(self) -> None:
        """Return when every frame is stored."""
        while self._waiting:
            self._advance()

    def _advance(self) -> None:
        """Get at least one answer, or begin anew."""
        self._attempt(self._connect_and_ask if self._line is None else self._take_answer)

    def _attempt(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (ConnectionLost, RequestTimeout, Unreachable) as error:
            self._break_off()
            self._pause(error)

    def _connect_and_ask(self) -> None:
        try:
            self._address = self._find()
        except CometError as error:
            self._pause(error)
            return
        self._wire.forget(self._address)  # whatever was on its way there is over
        if self._wants_idempotence:
            said = self._wire.ask(self._address, RequestCode.COMET_LOG_STATUS, accept=_TELLING)
            if said.code in _NOT_NOW:  # busy is not the same as not being one of ours
                what = "what it can do"
                self._pause(Refused(self._address, what, said.code, said.head.remark or ""))
                return
            self._is_idempotent = said.code == ResponseCode.SUCCESS
        self._line = self._wire.line(self._address)
        self._asked.clear()
        self._ask_waiting()

    def _ask_waiting(self) -> None:
        """Send what is not under way, unless it would have to wait for an earlier one's answer."""
        asked = set(self._asked.values())
        earlier = set()
        for frame in self._waiting:
            queue = frame.topic, frame.queue_id
            if frame not in asked and (self._is_idempotent or queue not in earlier):
                self._ask(frame)
            earlier.add(queue)

    def _ask(self, frame: Frame) -> None:
        assert self._line is not None
        header = frame.header(is_idempotent=self._is_idempotent)
        self._asked[self._line.send(frame.code, header, frame.body)] = frame

    def _take_answer(self) -> None:
        answer, frame = self._receive()
        if answer.code in _STORED:
            self._stored(frame)
            self._ask_waiting()
            return
        refusals = [(frame, answer)]
        while self._asked:  # what was sent behind it was refused too, or stored all the same
            answer, frame = self._receive()
            if answer.code in _STORED:
                self._stored(frame)
            else:
                refusals.append((frame, answer))
        refused = {id(frame): answer for frame, answer in refusals}
        first = next(frame for frame in self._waiting if id(frame) in refused)
        error = self._refusal(first, refused[id(first)])
        if error.response_code not in _WORTH_ANOTHER_TRY:
            raise error
        self._pause(error)
        self._ask_waiting()

    def _receive(self) -> tuple[Command, Frame]:
        assert self._line is not None
        while True:
            head = self._line.receive_any().head
            frame = self._asked.pop(head.opaque, None)
            if frame is not None:
                return head, frame

    def _stored(self, frame: Frame) -> None:
        self._waiting.remove(frame)
        self._bytes -= len(frame.body)
        self.sent += frame.count
        self._last_good = self._clock()
        self._failures = 0

    def _refusal(self, frame: Frame, answer: Command) -> Refused:
        what = f"{frame.count} messages for queue {frame.queue_id} of topic '{frame.topic}'"
        remark = (answer.remark or "").strip() or "no remark"
        return Refused(self._address, what, answer.code, remark, _ADVICE.get(answer.code, ""))

    def _break_off(self) -> None:
        self._wire.forget(self._address)
        self._line = None
        self._asked.clear()

    def _pause(self, error: CometError) -> None:
        spent = self._clock() - self._last_good
        if spent >= self._patience_seconds:
            raise self._given_up(error, spent) from error
        seconds = PAUSE_SECONDS[min(self._failures, len(PAUSE_SECONDS) - 1)]
        self._failures += 1
        _log.debug("broker=%s attempt %d failed: %s", self._broker, self._failures, error)
        self._sleep(min(seconds, self._patience_seconds - spent))

    def _given_up(self, error: CometError, spent: float) -> SendFailed:
        topic = self._waiting[0].topic
        code = getattr(error, "response_code", 10_001)
        brokers = (self._broker,)
        return SendFailed(
            topic, self._failures + 1, int(spent * 1000), brokers, code, str(error), True
        )
