"""One end of a connection without the connection: bytes in, commands out, who waits for what.

Theory of operation. Both ends may ask: each keeps its own counter of opaques, and the response bit
of a command tells whether it asks or answers, so the two spaces never meet. A waiter is whatever
the caller wants to get back with the answer (a future, usually); this class only keeps it.

Received bytes that do not complete a frame are kept as the pieces they came in and joined once,
when the last one is there: a 4 MiB body that arrives in 64 pieces is copied once, not 64 times.
Small pieces are gathered in one buffer, since each object of its own would cost more than it holds.
"""

import heapq
from typing import Generic, NamedTuple, TypeVar

from cometmq.codec import core
from cometmq.codec.command import Command
from cometmq.codec.frame import PREFIX_BYTES
from cometmq.errors import RemoteProtocolError
from cometmq.model.limits import FRAME_BYTES_MAX, PENDING_REQUESTS_MAX

W = TypeVar("W")

_OPAQUE_MASK = 0x7FFFFFFF
_SMALL_PIECE_BYTES = 4096


class Received(NamedTuple, Generic[W]):
    """What a read brought: requests of the peer, answers to ours, and how many matched nothing.

    ``fault`` is what the peer broke behind these commands: serve them, then close.
    """

    requests: list[Command]
    answers: list[tuple[W, Command]]
    unmatched: int = 0
    fault: RemoteProtocolError | None = None


class Connection(Generic[W]):
    """The protocol state of one end."""

    __slots__ = (
        "_deadlines",
        "_fault",
        "_frame_bytes_max",
        "_held_bytes",
        "_opaque",
        "_pending_max",
        "_pieces",
        "_waiters",
        "_wanted_bytes",
    )

    def __init__(
        self,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        pending_max: int = PENDING_REQUESTS_MAX,
        first_opaque: int = 0,
    ) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._pending_max = pending_max
        self._pieces: list[bytes | bytearray] = []  # of a frame that is not complete yet
        self._held_bytes = 0  # their sum
        self._wanted_bytes = PREFIX_BYTES  # joining before that many are held is of no use
        self._waiters: dict[int, W] = {}  # by opaque, in the order asked
        self._deadlines: list[tuple[float, int]] = []  # heap; entries of answered requests linger
        self._opaque = first_opaque
        self._fault: RemoteProtocolError | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes kept of a frame that is not complete yet."""
        return self._held_bytes

    @property
    def pending_count(self) -> int:
        """Requests of ours that wait for an answer."""
        return len(self._waiters)

    @property
    def has_room(self) -> bool:
        """True while another request may be asked."""
        return len(self._waiters) < self._pending_max

    def receive(self, data: bytes) -> Received[W]:
        """Take what was read. After a fault nothing more is taken."""
        commands = self._commands(data) if self._fault is None else []
        if self._waiters or any(command.flag & 1 for command in commands):
            return self._sort(commands)
        return Received(commands, [], 0, self._fault)

    def ask(self, waiter: W, deadline: float) -> int:
        """Remember who waits, until when; returns the opaque for the request."""
        assert self.has_room, self._pending_max
        opaque = self.tell()
        self._waiters[opaque] = waiter
        heapq.heappush(self._deadlines, (deadline, opaque))
        if len(self._deadlines) > 4 * len(self._waiters) + 1024:
            self._drop_answered_deadlines()
        return opaque

    def tell(self) -> int:
        """An opaque for a request that nobody waits for: should it be answered, nobody is hit."""
        while True:
            opaque = self._opaque
            self._opaque = (opaque + 1) & _OPAQUE_MASK
            if opaque not in self._waiters:
                return opaque

    def forget(self, opaque: int) -> None:
        """Nobody waits any more; a late answer will count as unmatched."""
        self._waiters.pop(opaque, None)

    def expire(self, now: float) -> list[W]:
        """Waiters whose deadline has passed; they are forgotten."""
        late: list[W] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, opaque = heapq.heappop(self._deadlines)
            if opaque in self._waiters:
                late.append(self._waiters.pop(opaque))
        return late

    def next_deadline(self) -> float | None:
        """When ``expire`` is worth calling next."""
        while self._deadlines and self._deadlines[0][1] not in self._waiters:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def close(self) -> list[W]:
        """The connection has ended: everyone who will never be answered."""
        waiters = list(self._waiters.values())
        self._waiters.clear()
        self._deadlines.clear()
        self._release()
        return waiters

    def _commands(self, data: bytes) -> list[Command]:
        if self._held_bytes:
            self._keep(data)
            if self._held_bytes < self._wanted_bytes:
                return []
            data = b"".join(self._pieces)
            self._release()
        commands: list[Command] = []
        try:
            commands, end = core.decode_frames(data, 0, None, self._frame_bytes_max)
            if end < len(data):
                if commands:  # a fault behind good frames shows only when it comes first
                    core.decode_frames(data, end, None, self._frame_bytes_max)
                self._hold(data, end)
        except RemoteProtocolError as error:
            self._fault = error
        return commands

    def _hold(self, data: bytes, begin: int) -> None:
        """Begin to gather a frame of which ``data[begin:]`` is there."""
        rest = data[begin:]
        self._held_bytes = len(rest)
        self._pieces = [rest if len(rest) >= _SMALL_PIECE_BYTES else bytearray(rest)]
        self._wanted_bytes = PREFIX_BYTES
        if len(rest) >= PREFIX_BYTES:
            self._wanted_bytes = 4 + int.from_bytes(rest[:4], "big", signed=True)

    def _keep(self, data: bytes) -> None:
        self._held_bytes += len(data)
        last = self._pieces[-1]
        if len(data) >= _SMALL_PIECE_BYTES:
            self._pieces.append(data)
        elif isinstance(last, bytearray):
            last += data
        else:
            self._pieces.append(bytearray(data))

    def _release(self) -> None:
        self._pieces = []
        self._held_bytes = 0

    def _drop_answered_deadlines(self) -> None:
        self._deadlines = [entry for entry in self._deadlines if entry[1] in self._waiters]
        heapq.heapify(self._deadlines)

    def _sort(self, commands: list[Command]) -> Received[W]:
        requests: list[Command] = []
        answers: list[tuple[W, Command]] = []
        unmatched = 0
        for command in commands:
            if not command.flag & 1:
                requests.append(command)
            elif command.opaque in self._waiters:
                answers.append((self._waiters.pop(command.opaque), command))
            else:
                unmatched += 1
        return Received(requests, answers, unmatched, self._fault)
