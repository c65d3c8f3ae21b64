"""How much a broker takes: requests encoded beforehand go out as fast as their answers come.

On every connection a number of requests is in flight; as many as were answered follow at once.
Answers are only counted, by their length; the first and the last are read. That costs so little
that one process on one core can tell what a broker on another is able to do, and it says itself
how much of its core it needed. It obeys lines of JSON on standard input, one load each.

    python -m bench.capacity
"""

import json
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bench.capacity_frames import PULL_COUNT, AnswerCounter, Load, Ring, requests
from bench.load import connect, read_frame
from cometmq.codec import command

BUFFER_BYTES = 1 << 20
SOCKET_BUFFER_BYTES = 1 << 20
STALL_SECONDS_MAX = 10.0

_CPU_CLOCK_OF_PROCESS = 2
_RECORD_BYTES = struct.Struct(">I")


class CapacityError(Exception):
    """A load that could not be measured, and why."""


class Line:
    """One connection: where it is in the ring, what it waits for, and since when."""

    __slots__ = ("answers", "connection", "number", "position", "sent", "unsent")

    def __init__(self, connection: socket.socket, position: int) -> None:
        self.connection = connection
        self.number = connection.fileno()
        self.position = position
        self.answers = AnswerCounter()
        self.sent: deque[tuple[float, int]] = deque()  # when, and how many then
        self.unsent = b""  # what the socket did not take yet


class Window(NamedTuple):
    """What happened while it was measured; waits are those of the answers, in any order."""

    seconds: float
    answers: int
    answer_bytes: int
    waits: Sequence[float]
    weights: Sequence[int]
    client_cpu_seconds: float
    server_cpu_seconds: float


class Generator:
    """Keeps a load going on open connections, all walking the same ring."""

    def __init__(self, connections: Sequence[socket.socket], ring: Ring, in_flight: int) -> None:
        spread = ring.length // len(connections)
        self._lines = {
            line.number: line
            for line in (Line(c, number * spread) for number, c in enumerate(connections))
        }
        self._ring = ring
        self._in_flight = in_flight
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._epoll = select.epoll()
        self._is_alone = len(connections) == 1
        self.answered_ever = 0
        self._reset()

    def run(self, seconds: float, settle_seconds: float, server_pid: int) -> Window:
        """Load until ``seconds`` after the load has settled, then wait for the last answers."""
        for line in self._lines.values():
            self._prepare(line)
        began = time.perf_counter()
        for line in self._lines.values():
            self._send(line, self._in_flight, began)
        self._turn_until(began + settle_seconds)
        self._reset()
        began, client_began = time.perf_counter(), time.process_time()
        server_began = cpu_seconds(server_pid)
        self._turn_until(began + seconds)
        window = Window(
            time.perf_counter() - began, self._answered, self._answer_bytes, self._waits,
            self._weights, time.process_time() - client_began,
            cpu_seconds(server_pid) - server_began,
        )  # fmt: skip
        self._drain()
        return window

    def _reset(self) -> None:
        self._answered = 0  # since the load has settled
        self._answer_bytes = 0
        self._waits: list[float] = []
        self._weights: list[int] = []

    def _prepare(self, line: Line) -> None:
        if self._is_alone:
            # A lone connection needs no polling: its calls wait by themselves, within a bound.
            bound = struct.pack("ll", int(STALL_SECONDS_MAX), 0)
            line.connection.settimeout(None)
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                line.connection.setsockopt(socket.SOL_SOCKET, option, bound)
        else:
            line.connection.setblocking(False)
            self._epoll.register(line.number, select.EPOLLIN)

    def _turn_until(self, deadline: float) -> None:
        clock = time.perf_counter
        lines = self._lines
        alone = [(number, select.EPOLLIN) for number in lines] if self._is_alone else []
        while clock() < deadline:
            for number, events in alone or self._polled():
                line = lines[number]
                if events & select.EPOLLOUT:
                    self._flush(line)
                if events & select.EPOLLIN and (answered := self._receive(line)):
                    self._send(line, answered, clock())

    def _polled(self) -> list[tuple[int, int]]:
        ready = self._epoll.poll(STALL_SECONDS_MAX)
        if not ready:
            raise CapacityError(f"no answer within {STALL_SECONDS_MAX:g} s")
        return ready

    def _receive(self, line: Line) -> int:
        """Take what has come; how many answers are complete with it."""
        answers = line.answers
        held = len(answers.held)
        view = self._view
        if held:
            view[:held] = answers.held
            view = view[held:]
        try:
            received = line.connection.recv_into(view)
        except BlockingIOError:
            raise CapacityError(f"no answer within {STALL_SECONDS_MAX:g} s") from None
        if not received:
            raise CapacityError("the server closed a connection")
        self._answer_bytes += received
        answered = answers.count(self._buffer, held + received)
        if answered:
            self._note_waits(line.sent, answered)
        return answered

    def _note_waits(self, sent: deque[tuple[float, int]], answered: int) -> None:
        """Pair answers with requests in their order, which is what a peer sees in sum."""
        now = time.perf_counter()
        self._answered += answered
        self.answered_ever += answered
        while answered:
            at, count = sent[0]
            taken = min(count, answered)
            if taken == count:
                sent.popleft()
            else:
                sent[0] = (at, count - taken)
            self._waits.append(now - at)
            self._weights.append(taken)
            answered -= taken

    def _send(self, line: Line, count: int, now: float) -> None:
        ring = self._ring
        position = line.position
        data = ring.run(position, count)
        line.position = (position + count) % ring.length
        line.sent.append((now, count))
        if line.unsent:
            line.unsent += data
        elif self._is_alone:
            line.connection.sendall(data)
        else:
            self._send_now(line, data)

    def _send_now(self, line: Line, data: memoryview | bytes) -> None:
        try:
            sent = line.connection.send(data)
        except BlockingIOError:
            sent = 0
        line.unsent = bytes(data[sent:])
        if line.unsent:
            self._epoll.modify(line.number, select.EPOLLIN | select.EPOLLOUT)

    def _flush(self, line: Line) -> None:
        self._epoll.modify(line.number, select.EPOLLIN)
        self._send_now(line, line.unsent)

    def _drain(self) -> None:
        """Read the answers still on their way: the next load starts from nothing."""
        waiting = {number for number, line in self._lines.items() if line.sent}
        while waiting:
            ready = self._polled() if not self._is_alone else [(n, 1) for n in waiting]
            for number, events in ready:
                line = self._lines[number]
                if events & select.EPOLLOUT:
                    self._flush(line)
                if events & select.EPOLLIN:
                    self._receive(line)
                if not line.sent:
                    waiting.discard(number)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process with all its threads, from the clock the kernel keeps for it."""
    return time.clock_gettime((~pid << 3) | _CPU_CLOCK_OF_PROCESS)


def percentile(waits: Sequence[float], weights: Sequence[int], share: float) -> float:
    """The wait that ``share`` of the answers did not exceed; 0 when there were none."""
    wanted = share * sum(weights)
    reached = 0
    for wait, weight in sorted(zip(waits, weights, strict=True)):
        reached += weight
        if reached >= wanted:
            return wait
    return 0.0


def checked_answer(connection: socket.socket, ring: Ring, load: Load) -> int:
    """Send one request and read its answer; gives the answer's length."""
    connection.settimeout(STALL_SECONDS_MAX)
    connection.sendall(ring.run(0, 1))
    frame = read_frame(connection)
    answer = command.decode_frames(frame)[0][0]
    if answer.code != 0:
        raise CapacityError(f"{load.kind} was answered with {answer.code}: {answer.remark}")
    if load.kind == "pull" and (found := record_count(answer.body)) not in (0, PULL_COUNT):
        raise CapacityError(f"a pull found {found} messages, not {PULL_COUNT}")
    return len(frame)


def record_count(body: bytes) -> int:
    """How many records a pull's answer holds; 0 when they are none (the sink's)."""
    position = count = 0
    while position < len(body):
        (size,) = _RECORD_BYTES.unpack_from(body, position)
        if not 0 < size <= len(body) - position:
            return 0
        position += size
        count += 1
    return count


def measure(asked: dict[str, Any], ring: Ring) -> dict[str, float]:
    """Put the load on the server; what it did, per second and per message."""
    load = Load(**asked["load"])
    connections = [_connected(asked["address"]) for _ in range(load.connections)]
    try:
        first_bytes = checked_answer(connections[0], ring, load)
        generator = Generator(connections, ring, load.in_flight)
        window = generator.run(asked["seconds"], asked["settle_seconds"], asked["pid"])
        connections[0].setblocking(True)
        last_bytes = checked_answer(connections[0], ring, load)
    finally:
        for connection in connections:
            connection.close()
    if not window.answers:
        raise CapacityError(f"no answer at all in {window.seconds:g} s")
    mean_bytes = window.answer_bytes / window.answers
    if load.kind == "pull" and mean_bytes < 0.9 * min(first_bytes, last_bytes):
        raise CapacityError(f"pulls had {mean_bytes:.0f} bytes on average, not {first_bytes}")
    return {
        **figures_of(window, window.answers * load.messages_per_answer),
        "answer_bytes": first_bytes,
        "answered": generator.answered_ever + 2,
    }


def figures_of(window: Window, messages: int) -> dict[str, float]:
    return {
        "rate": messages / window.seconds,
        "cpu_us": window.server_cpu_seconds * 1e6 / messages,
        "server_cores": window.server_cpu_seconds / window.seconds,
        "client_cores": window.client_cpu_seconds / window.seconds,
        "p50_ms": percentile(window.waits, window.weights, 0.5) * 1000,
        "p99_ms": percentile(window.waits, window.weights, 0.99) * 1000,
        "p999_ms": percentile(window.waits, window.weights, 0.999) * 1000,
    }


def _connected(address: str) -> socket.socket:
    connection = connect(address)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
    return connection


def obey(asked: dict[str, Any], ring_for: Callable[[Load, str], Ring]) -> dict[str, Any]:
    try:
        return measure(asked, ring_for(Load(**asked["load"]), asked["topic"]))
    except (CapacityError, OSError) as failure:
        return {"error": str(failure)}


def main() -> int:
    pull_rings: dict[tuple[Load, str], Ring] = {}
    loads = 0

    def ring_for(load: Load, topic: str) -> Ring:
        # Messages are sent once, so each load gets new ones; pulls are the same every time.
        if load.kind != "pull":
            return requests(load, topic, loads % 0x10000)
        if (load, topic) not in pull_rings:
            pull_rings[load, topic] = requests(load, topic)
        return pull_rings[load, topic]

    for text in sys.stdin:
        loads += 1
        print(json.dumps(obey(json.loads(text), ring_for)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
