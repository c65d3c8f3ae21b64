"""A connection against what it should be: a list of commands, and a table of who waits."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from cometmq.codec.command import Command, CommandFlag, Serialization, encode
from cometmq.remoting.connection import Connection

OPAQUES = st.integers(-(2**31), 2**31 - 1)
BODIES = st.binary(max_size=64) | st.integers(4_000, 20_000).map(bytes)


@st.composite
def commands(draw: st.DrawFn) -> Command:
    return Command(
        draw(st.integers(0, 32_767)),
        opaque=draw(OPAQUES),
        flag=draw(st.sampled_from([0, CommandFlag.RESPONSE, CommandFlag.ONEWAY])),
        remark=draw(st.none() | st.text(min_size=1, max_size=10)),
        serialization=draw(st.sampled_from(Serialization)),
        body=draw(BODIES),
    )


@st.composite
def chunked_streams(draw: st.DrawFn) -> tuple[list[bytes], list[bytes]]:
    """Frames, and the same bytes cut anywhere else."""
    frames = [encode(command) for command in draw(st.lists(commands(), max_size=12))]
    stream = b"".join(frames)
    cuts = draw(st.lists(st.integers(0, len(stream)), max_size=30))
    bounds = [0, *sorted(cuts), len(stream)]
    return frames, [stream[begin:end] for begin, end in pairwise(bounds)]


@given(chunked_streams())
def test_commands_come_out_as_they_went_in_however_the_stream_is_cut(
    streams: tuple[list[bytes], list[bytes]],
) -> None:
    frames, chunks = streams
    whole, cut = Connection[None](), Connection[None]()
    expected = whole.receive(b"".join(frames))

    requests, unmatched = [], 0
    for chunk in chunks:
        got = cut.receive(chunk)
        assert got.fault is None
        requests += got.requests
        unmatched += got.unmatched

    assert requests == expected.requests
    assert unmatched == expected.unmatched
    assert len(requests) + unmatched == len(frames)
    assert cut.held_bytes == 0


@given(chunked_streams(), st.sampled_from([b"\xff\xff\xff\xff", b"\x00\x00\x00\x03", b"GET / H"]))
def test_what_was_good_before_garbage_comes_out_and_nothing_after_it(
    streams: tuple[list[bytes], list[bytes]], garbage: bytes
) -> None:
    frames, chunks = streams
    peer = Connection[None]()

    results = [peer.receive(chunk) for chunk in [*chunks, garbage + bytes(8), *frames]]

    count = sum(len(got.requests) + got.unmatched for got in results)
    assert count == len(frames)
    assert results[-1].fault is not None


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_are_commands_a_rest_or_a_fault(data: bytes, piece_bytes: int) -> None:
    peer = Connection[None](frame_bytes_max=1024)

    for begin in range(0, len(data), piece_bytes):
        peer.receive(data[begin : begin + piece_bytes])
        assert 0 <= peer.held_bytes <= len(data)


class Waiting(RuleBasedStateMachine):
    """Asking, answering, giving up and timing out, next to a dictionary that does the same."""

    opaques = Bundle("opaques")

    def __init__(self) -> None:
        super().__init__()
        self.peer: Connection[int] = Connection(pending_max=20, first_opaque=2**31 - 5)
        self.model: dict[int, tuple[int, float]] = {}  # opaque: waiter, deadline
        self.now = 0.0
        self.count = 0

    @rule(target=opaques, seconds=st.integers(0, 20))
    def ask(self, seconds: int) -> int:
        assert self.peer.has_room == (len(self.model) < 20)
        if not self.peer.has_room:
            return -1
        self.count += 1
        opaque = self.peer.ask(self.count, self.now + seconds)
        assert opaque not in self.model
        self.model[opaque] = self.count, self.now + seconds
        return opaque

    @rule(chosen=st.lists(opaques, max_size=4))
    def answer(self, chosen: list[int]) -> None:
        frames = [encode(Command(0, opaque=opaque, flag=1)) for opaque in chosen]
        got = self.peer.receive(b"".join(frames))
        found = [self.model.pop(opaque) for opaque in chosen if opaque in self.model]
        assert [waiter for waiter, _ in got.answers] == [waiter for waiter, _ in found]
        assert got.unmatched == len(chosen) - len(found)

    @rule(opaque=consumes(opaques))
    def forget(self, opaque: int) -> None:
        self.peer.forget(opaque)
        self.model.pop(opaque, None)

    @rule(seconds=st.integers(0, 10))
    def let_time_pass(self, seconds: int) -> None:
        self.now += seconds
        late = [opaque for opaque, (_, deadline) in self.model.items() if deadline <= self.now]
        waiters = [self.model.pop(opaque)[0] for opaque in late]
        assert sorted(self.peer.expire(self.now)) == waiters

    @rule()
    def end(self) -> None:
        assert self.peer.close() == [waiter for waiter, _ in self.model.values()]
        self.model.clear()

    @invariant()
    def the_same_wait(self) -> None:
        assert self.peer.pending_count == len(self.model)
        deadlines = [deadline for _, deadline in self.model.values()]
        assert self.peer.next_deadline() == min(deadlines, default=None)


TestWaiting = Waiting.TestCase
