"""Frames to a broker that answers as it is told: windows, refusals, lost connections."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("numpy")

from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.errors import CometError, ConnectionLost, Refused, SendFailed, Unreachable
from cometmq.spark.sink_sending import Frame, Pipe
from cometmq.spark.wire import Reply

OK, BUSY = ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY
GAP = ResponseCode.SEQUENCE_OUT_OF_ORDER
LOST = -1
"""In place of a code: the connection ends instead of an answer."""


@dataclass
class FakeBroker:
    """Stores frames like a broker of ours; ``script`` says how the next ones are answered."""

    is_ours: bool = True
    script: deque[int] = field(default_factory=deque)
    is_up: bool = True
    stored: list[int] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    queues: dict[int, list[bytes]] = field(default_factory=dict)  # bodies that are stored
    most_in_flight: int = 0
    statuses: deque[int] = field(default_factory=deque)  # answers to whether it is ours

    def answer(self, frame_header: Any, body: bytes) -> int:
        sequence = int(frame_header.sequence or -1)
        self.seen.append(sequence)
        code = self.script.popleft() if self.script else OK
        if code in (BUSY, ResponseCode.PRODUCER_UNKNOWN):
            return code
        if self.is_ours and sequence > len(self.stored):
            return GAP
        if not self.is_ours or sequence == len(self.stored):
            self.stored.append(sequence)
            self.queues.setdefault(frame_header.queue_id, []).append(body)
        return code


class FakeLine:
    """A connection to it; answers wait until they are taken."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._answers: deque[tuple[int, int]] = deque()
        self._count = 0
        self._is_lost = False

    def send(self, code: RequestCode, header: Any, body: bytes) -> int:
        if self._is_lost or not self._broker.is_up:
            raise ConnectionLost("fake", "closed by the peer")
        self._count += 1
        self._answers.append((self._count, self._broker.answer(header, body)))
        self._broker.most_in_flight = max(self._broker.most_in_flight, len(self._answers))
        return self._count

    def receive_any(self) -> Reply:
        opaque, code = self._answers.popleft()
        if code == LOST:
            self._is_lost = True
        if self._is_lost:
            raise ConnectionLost("fake", "closed by the peer")
        return Reply(Command(code=code, opaque=opaque, flag=1, remark="as told"), b"")


class FakeWire:
    """Connections to it."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._line: FakeLine | None = None

    def ask(self, address: str, code: RequestCode, *, accept: Sequence[int]) -> Reply:
        if not self._broker.is_up:
            raise Unreachable(address, "refused")
        known: int = OK if self._broker.is_ours else ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        known = self._broker.statuses.popleft() if self._broker.statuses else known
        assert code == RequestCode.COMET_LOG_STATUS
        assert known in accept
        return Reply(Command(code=known, opaque=0, flag=1), b"")

    def line(self, address: str) -> FakeLine:
        self._line = self._line or FakeLine(self._broker)
        return self._line

    def forget(self, address: str) -> None:
        self._line = None


class Time:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.naps: list[float] = []
        self.on_nap: Any = lambda: None

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.naps.append(seconds)
        self.on_nap()


def pipe(broker: FakeBroker, time: Time | None = None, **options: Any) -> Pipe:
    time = time or Time()
    settings: dict[str, Any] = {
        "in_flight_max": 3, "patience_ms": 10_000, "wants_idempotence": True, **options
    }  # fmt: skip
    return Pipe(
        FakeWire(broker),  # type: ignore[arg-type]
        "broker-a",
        lambda: "127.0.0.1:1",
        clock=time.clock,
        sleep=time.sleep,
        **settings,
    )


def frame(sequence: int, body: bytes = b"x", *, queue: int = 0) -> Frame:
    return Frame("orders", queue, 1, body, None, "me", sequence, 0)


def send(to: Pipe, count: int) -> None:
    for sequence in range(count):
        to.put(frame(sequence))
    to.finish()


def test_frames_are_stored_in_order_with_a_bound_on_those_under_way() -> None:
    broker = FakeBroker()
    sender = pipe(broker)

    send(sender, 20)

    assert broker.stored == list(range(20))
    assert broker.most_in_flight == 3
    assert sender.sent == 20


def test_bytes_under_way_have_a_bound_too() -> None:
    broker = FakeBroker()
    sender = pipe(broker, in_flight_max=100)

    for sequence in range(6):
        sender.put(frame(sequence, bytes(7 * 1024 * 1024)))
    sender.finish()

    assert broker.stored == list(range(6))
    assert broker.most_in_flight == 2


def test_after_a_refusal_everything_behind_it_is_sent_again() -> None:
    broker = FakeBroker(script=deque([OK, BUSY]))
    time = Time()

    send(pipe(broker, time), 5)

    assert broker.stored == list(range(5))
    assert broker.seen == [0, 1, 2, 3, 1, 2, 3, 4]
    assert len(time.naps) == 1


@pytest.mark.parametrize("at", range(6))
def test_after_a_lost_connection_all_that_is_not_known_to_be_stored_is_sent_again(at: int) -> None:
    broker = FakeBroker(script=deque([*[OK] * at, LOST]))

    send(pipe(broker), 6)

    assert broker.stored == list(range(6))


def test_a_broker_that_comes_back_in_time_is_waited_for() -> None:
    broker, time = FakeBroker(), Time()
    sender = pipe(broker, time)
    send(sender, 2)
    broker.is_up = False
    time.on_nap = lambda: setattr(broker, "is_up", time.now > 5)

    for sequence in range(2, 8):
        sender.put(frame(sequence))
    sender.finish()

    assert broker.stored == list(range(8))
    assert 5 < time.now < 10


def test_a_broker_that_stays_away_is_given_up() -> None:
    broker, time = FakeBroker(is_up=False), Time()
    sender = pipe(broker, time)

    with pytest.raises(SendFailed) as caught:
        send(sender, 1)

    assert caught.value.may_be_stored
    assert caught.value.brokers == ("broker-a",)
    assert time.now == 10


def test_progress_renews_patience() -> None:
    script = deque[int](
        [code for _ in range(8) for code in (BUSY, BUSY, BUSY, BUSY, BUSY, BUSY, OK)]
    )
    broker, time = FakeBroker(script=script), Time()

    send(pipe(broker, time, in_flight_max=1, patience_ms=4_000), 8)

    assert broker.stored == list(range(8))
    assert time.now > 8


def test_what_was_stored_before_is_as_good_as_stored() -> None:
    broker = FakeBroker(script=deque([ResponseCode.SEQUENCE_ALREADY_STORED]))
    sender = pipe(broker)

    send(sender, 2)

    assert sender.sent == 2


def test_a_gap_before_the_first_frame_means_that_the_broker_has_lost_something() -> None:
    sender = pipe(FakeBroker())

    sender.put(frame(7))
    with pytest.raises(Refused, match="let the task be run again") as caught:
        sender.finish()

    assert caught.value.response_code == GAP


def test_a_refusal_that_will_not_change_ends_the_task() -> None:
    broker = FakeBroker(script=deque([ResponseCode.PRODUCER_UNKNOWN]))

    with pytest.raises(Refused, match="forgotten"):
        send(pipe(broker), 3)

    assert broker.seen == [0, 1, 2]


def test_a_broker_of_apache_gets_no_numbers() -> None:
    broker = FakeBroker(is_ours=False)
    sender = pipe(broker)

    send(sender, 3)

    assert broker.stored == [-1, -1, -1]
    assert sender.sent == 3


def send_to_queues(to: Pipe, count: int, *, queues: int = 1) -> None:
    for number in range(count):
        to.put(frame(number, b"%d" % number, queue=number % queues))
    to.finish()


def test_without_numbers_nothing_overtakes_a_refused_frame_of_its_queue() -> None:
    """Apache's broker would store what is behind it, also when it is busy for a moment only."""
    broker = FakeBroker(is_ours=False, script=deque([OK, BUSY]))

    send_to_queues(pipe(broker), 6)

    assert broker.queues == {0: [b"0", b"1", b"2", b"3", b"4", b"5"]}
    assert broker.most_in_flight == 1


def test_without_numbers_several_queues_are_sent_to_at_a_time() -> None:
    broker = FakeBroker(is_ours=False, script=deque([OK, BUSY, OK, OK, BUSY, BUSY]))
    sender = pipe(broker)

    send_to_queues(sender, 9, queues=3)

    assert broker.queues == {
        0: [b"0", b"3", b"6"], 1: [b"1", b"4", b"7"], 2: [b"2", b"5", b"8"]
    }  # fmt: skip
    assert broker.most_in_flight == 3
    assert sender.sent == 9


@pytest.mark.parametrize("at", range(6))
def test_without_numbers_a_lost_connection_makes_copies_and_changes_no_order(at: int) -> None:
    broker = FakeBroker(is_ours=False, script=deque([*[OK] * at, LOST]))

    send_to_queues(pipe(broker), 6)

    assert broker.queues[0] == sorted([b"0", b"1", b"2", b"3", b"4", b"5", b"%d" % at])


def test_who_does_not_ask_for_numbers_gets_order_by_waiting_from_any_broker() -> None:
    broker = FakeBroker(is_ours=False, script=deque([OK, BUSY]))

    send_to_queues(pipe(broker, wants_idempotence=False), 4)

    assert broker.queues == {0: [b"0", b"1", b"2", b"3"]}


def test_a_broker_that_is_too_busy_to_say_what_it_can_is_asked_again() -> None:
    """Sending without numbers then could store what was stored before."""
    broker = FakeBroker(statuses=deque([BUSY, BUSY]))
    time = Time()

    send(pipe(broker, time), 3)

    assert broker.stored == [0, 1, 2]
    assert len(time.naps) == 2


def test_an_address_that_nobody_knows_is_asked_for_again() -> None:
    broker, time = FakeBroker(), Time()
    sender = pipe(broker, time)
    answers = iter((Unreachable("broker-a", "unknown"), "127.0.0.1:1"))

    def find() -> str:
        answer = next(answers)
        if isinstance(answer, CometError):
            raise answer
        return answer

    sender._find = find
    send(sender, 1)

    assert broker.stored == [0]
    assert len(time.naps) == 1
