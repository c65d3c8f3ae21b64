"""What leaves on a connection: collected during a turn of the loop, written with one call.

While a read is handled, its answers wait for the end of it, or for that of the reads beside it
(``is_held``); what is put at any other time waits for the loop's next turn. Only when much has
gathered it is written at once, so that answers which are many times larger than their requests do
not pile up here.

Whoever can wait does (``flowing``) while too much is unsent. Those who wait go on a few at a time,
because the first of them may fill the box again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from cometmq.remoting.tls import TlsStream

_JOINED_BYTES_MAX = 64 * 1024  # up to here one copy is cheaper than many pieces
_GATHERED_BYTES_MAX = 1024 * 1024
_WOKEN_MAX = 64  # of those who wait, in one turn of the loop


class Outbox:
    """The sending half of a connection; ``drop`` is called when the peer leaves too much unread."""

    __slots__ = (
        "_bytes_high",
        "_bytes_max",
        "_can_gather",
        "_drop",
        "_is_full",
        "_is_looking",
        "_is_paused",
        "_is_planned",
        "_loop",
        "_parts",
        "_transport",
        "_waiting",
        "_written_bytes",
        "gathered_bytes",
        "is_held",
        "tls",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        *,
        bytes_max: int,
        drop: Callable[[str], None],
        bytes_high: int = _GATHERED_BYTES_MAX,
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._bytes_high = bytes_high
        self._bytes_max = bytes_max
        self._drop = drop
        # asyncio's own writelines joins (3.11) or forgets to pause us (3.12.0 to 3.12.8, 3.13.0 and
        # 3.13.1; CVE-2024-12254), so that nobody would throttle the peer.
        self._can_gather = type(transport).__module__.startswith("uvloop")
        self._parts: list[bytes | memoryview] = []
        self.gathered_bytes = 0  # what waits to be written
        self._written_bytes = 0  # given to the transport so far, as they are on the wire
        self._is_planned = False  # the loop's next turn will flush
        self._is_paused = False  # the transport has said that too much is unsent
        self._is_full = False  # we have seen so, which may be before it says so
        self._is_looking = False  # the loop's next turn will look again
        self._waiting: deque[asyncio.Future[None]] = deque()  # who would send more
        self.is_held = False  # someone will flush when reads are done
        self.tls: TlsStream | None = None

    @property
    def sent_bytes(self) -> int:
        """What the system has taken from us so far; grows as long as the peer reads."""
        return self._written_bytes - self._transport.get_write_buffer_size()

    @property
    def is_stalled(self) -> bool:
        """Whether so much is unsent that nobody should add to it who can wait."""
        return self._is_paused or self._is_full

    async def flowing(self) -> None:
        """Wait until there is room; also returns when there will never be any."""
        while self.is_stalled:
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(future)
            self._look_soon()
            await future

    def pause(self) -> None:
        """The transport has too much."""
        self._is_paused = True

    def resume(self) -> None:
        """The transport has room again."""
        self._is_paused = False
        self._look()

    def put(
        self, head: bytes, body: Iterable[bytes | memoryview] = (), body_bytes: int = 0
    ) -> None:
        """Send a frame, soon; parts of the body are not joined where that would be a big copy."""
        self._parts.append(head)
        if body_bytes:
            self._parts += filter(None, body)
        self._gathered(len(head) + body_bytes)

    def put_all(self, frames: list[bytes]) -> None:
        """Send whole frames, soon."""
        self._parts += frames
        self._gathered(sum(map(len, frames)))

    def send(self, frames: list[bytes]) -> None:
        """Write what has gathered, and these whole frames behind it."""
        if len(frames) != 1 or self._parts or self.tls is not None:
            self._parts += frames
            self.gathered_bytes += sum(map(len, frames))
            self.flush()
        elif not self._transport.is_closing():
            # The usual case: what ``flush`` does with one part.
            frame, transport = frames[0], self._transport
            self._written_bytes += len(frame)
            transport.write(frame)
            unsent = transport.get_write_buffer_size()
            if unsent > self._bytes_high or self._is_full:
                self._judge(unsent)

    def flush(self) -> None:
        """Write what has gathered."""
        transport = self._transport
        if not self._parts or transport.is_closing():
            return
        parts, self._parts = self._parts, []
        size, self.gathered_bytes = self.gathered_bytes, 0
        if self.tls is not None:
            self.write(self.tls.send(b"".join(parts)))
        else:
            self._written_bytes += size
            if size > _JOINED_BYTES_MAX and self._can_gather:
                transport.writelines(parts)
            else:
                transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
        self._judge(transport.get_write_buffer_size())

    def write(self, data: bytes | memoryview) -> None:
        """Write bytes as they are, at once."""
        if data and not self._transport.is_closing():
            self._written_bytes += len(data)
            self._transport.write(data)

    def clear(self) -> None:
        """Forget what has gathered, and let everybody go who waits."""
        self._parts.clear()
        self.gathered_bytes = 0
        self._is_paused = self._is_full = False
        while self._waiting:
            _wake(self._waiting.popleft())

    def _judge(self, unsent: int) -> None:
        self._is_full = unsent > self._bytes_high
        if unsent > self._bytes_max:
            self._drop(f"has {unsent} bytes of answers unread")

    def _gathered(self, size: int) -> None:
        self.gathered_bytes += size
        if self.gathered_bytes >= _GATHERED_BYTES_MAX:
            self.flush()
        elif not (self.is_held or self._is_planned):
            self._is_planned = True
            self._loop.call_soon(self._flush_as_planned)

    def _flush_as_planned(self) -> None:
        self._is_planned = False
        self.flush()

    def _look_soon(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._loop.call_soon(self._look_as_planned)

    def _look_as_planned(self) -> None:
        self._is_looking = False
        self._look()

    def _look(self) -> None:
        """See whether there is room, and let some of those go on who wait for it."""
        if not self._waiting:
            return
        self._is_full = self._transport.get_write_buffer_size() > self._bytes_high
        if not self.is_stalled:
            for _ in range(min(_WOKEN_MAX, len(self._waiting))):
                _wake(self._waiting.popleft())
        # A transport that is paused tells when it has room. One that has not written yet does not.
        if self._waiting and not self._is_paused:
            self._look_soon()


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
