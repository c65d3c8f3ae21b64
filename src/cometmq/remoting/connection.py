"""One end of a connection without the connection: bytes in, commands out, who waits for what.

Theory of operation. Both ends may ask: each keeps its own counter of opaques, and the response bit
of a command tells whether it asks or answers, so the two spaces never meet. A waiter is whatever
the caller wants to get back with the answer (a future, usually); this class only keeps it.

Frames that a read brings whole are decoded where they lie. Only the one it ends in the middle of is
gathered elsewhere (``partial``), and the next read goes on behind it without being joined to it.
"""

import heapq
from typing import Generic, NamedTuple, TypeVar

from cometmq.codec import core
from cometmq.codec.command import Command
from cometmq.errors import RemoteProtocolError
from cometmq.model.limits import FRAME_BYTES_MAX, PENDING_REQUESTS_MAX
from cometmq.remoting.partial import PartialFrame

W = TypeVar("W")

_OPAQUE_MASK = 0x7FFFFFFF


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
        "_decoded",
        "_fault",
        "_frame_bytes_max",
        "_opaque",
        "_partial",
        "_pending_max",
        "_waiters",
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
        self._partial: PartialFrame | None = None  # in the middle of which the last read ended
        self._waiters: dict[int, W] = {}  # by opaque, in the order asked
        self._deadlines: list[tuple[float, int]] = []  # heap; entries of answered requests linger
        self._opaque = first_opaque
        self._fault: RemoteProtocolError | None = None
        # What ``requests_in`` found in the read that ``receive`` is given next.
        self._decoded: tuple[list[Command], int] | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes kept of a frame that is not complete yet."""
        return 0 if self._partial is None else self._partial.held_bytes

    @property
    def pending_count(self) -> int:
        """Requests of ours that wait for an answer."""
        return len(self._waiters)

    @property
    def has_room(self) -> bool:
        """True while another request may be asked."""
        return len(self._waiters) < self._pending_max

    def requests_in(self, data: bytes) -> list[Command] | None:
        """The commands of a read that holds whole requests and nothing else: the usual case.

        None for any other, which must be given to ``receive`` then.
        """
        if self._partial is not None or self._fault is not None:
            return None
        try:
            self._decoded = core.decode_frames(data, 0, None, self._frame_bytes_max)
        except RemoteProtocolError:
            return None
        commands, end = self._decoded
        if end != len(data):
            return None
        for command in commands:
            if command.flag & 1:
                return None
        self._decoded = None
        return commands

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
        commands: list[Command] = []
        begin = 0
        try:
            if self._partial is not None:
                begin = self._partial.add(data)
                if not self._partial.is_complete:
                    return commands
                with self._partial.view() as frame:
                    commands, _ = core.decode_frames(frame, 0, None, self._frame_bytes_max)
                self._release()
            self._decode(data, begin, commands)
        except RemoteProtocolError as error:
            # Kept without its trace, whose frames know us and hold the body: a circle, which would
            # wait for the collector with the memory of a whole frame.
            error.__context__ = error.__cause__ = None
            self._fault = error.with_traceback(None)
            self._release()
        return commands

    def _decode(self, data: bytes, begin: int, commands: list[Command]) -> None:
        """Append the commands in ``data[begin:]`` and keep the rest."""
        decoded, self._decoded = self._decoded, None
        found, end = decoded or core.decode_frames(data, begin, None, self._frame_bytes_max)
        commands += found
        if end < len(data):
            if found:  # a fault behind good frames shows only when it comes first
                core.decode_frames(data, end, None, self._frame_bytes_max)
            self._partial = PartialFrame(self._frame_bytes_max)
            self._partial.add(data, end)

    def _release(self) -> None:
        if self._partial is not None:
            self._partial.release()
            self._partial = None

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
