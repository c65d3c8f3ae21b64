"""What leaves on a connection: collected during a turn of the loop, written with one call.

While a read is handled, its answers wait for the end of it (``is_held``); what is put at any other
time waits for the loop's next turn. Only when much has gathered it is written at once, so that
answers which are many times larger than their requests do not pile up here.
"""

import asyncio
from collections.abc import Callable, Iterable

from cometmq.remoting.tls import TlsStream

_JOINED_BYTES_MAX = 64 * 1024  # up to here one copy is cheaper than many pieces
_GATHERED_BYTES_MAX = 1024 * 1024


class Outbox:
    """The sending half of a connection; ``drop`` is called when the peer leaves too much unread."""

    __slots__ = (
        "_bytes_max",
        "_can_gather",
        "_drop",
        "_gathered_bytes",
        "_is_planned",
        "_loop",
        "_parts",
        "_transport",
        "_written_bytes",
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
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._bytes_max = bytes_max
        self._drop = drop
        # asyncio's own writelines joins (3.11) or forgets to pause us (3.12.0 to 3.12.8, 3.13.0 and
        # 3.13.1; CVE-2024-12254), so that nobody would throttle the peer.
        self._can_gather = type(transport).__module__.startswith("uvloop")
        self._parts: list[bytes | memoryview] = []
        self._gathered_bytes = 0  # their sum
        self._written_bytes = 0  # given to the transport so far, as they are on the wire
        self._is_planned = False  # the loop's next turn will flush
        self.is_held = False  # someone will flush when a read is done
        self.tls: TlsStream | None = None

    @property
    def sent_bytes(self) -> int:
        """What the system has taken from us so far; grows as long as the peer reads."""
        return self._written_bytes - self._transport.get_write_buffer_size()

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

    def flush(self) -> None:
        """Write what has gathered."""
        if not self._parts or self._transport.is_closing():
            return
        parts, self._parts = self._parts, []
        size, self._gathered_bytes = self._gathered_bytes, 0
        if self.tls is not None:
            self.write(self.tls.send(b"".join(parts)))
        elif size > _JOINED_BYTES_MAX and self._can_gather:
            self._written_bytes += size
            self._transport.writelines(parts)
        else:
            self.write(parts[0] if len(parts) == 1 else b"".join(parts))
        unsent = self._transport.get_write_buffer_size()
        if unsent > self._bytes_max:
            self._drop(f"has {unsent} bytes of answers unread")

    def write(self, data: bytes | memoryview) -> None:
        """Write bytes as they are, at once."""
        if data and not self._transport.is_closing():
            self._written_bytes += len(data)
            self._transport.write(data)

    def clear(self) -> None:
        """Forget what has gathered."""
        self._parts.clear()
        self._gathered_bytes = 0

    def _gathered(self, size: int) -> None:
        self._gathered_bytes += size
        if self._gathered_bytes >= _GATHERED_BYTES_MAX:
            self.flush()
        elif not (self.is_held or self._is_planned):
            self._is_planned = True
            self._loop.call_soon(self._flush_as_planned)

    def _flush_as_planned(self) -> None:
        self._is_planned = False
        self.flush()
