"""A stream of bytes to a peer: plain or TLS, with its limits on time and memory.

Backpressure has two steps. While more than the high-water mark is unsent, a listening side reads
nothing more from this peer, so it cannot ask for more; a dialling side goes on reading, because a
peer that cannot get rid of its answers would not take our requests either, and whoever sends waits
(``flowing``). If the peer goes on not reading, for too long or with too much unsent, it is dropped.
Other connections notice neither.

The reads of a server's connections are handled together (``turn``). What the bytes mean is the
business of the class above (``channel``).
"""

import abc
import asyncio
from collections.abc import Callable
from typing import cast

from cometmq import logs
from cometmq.errors import ConnectionLost, RemoteProtocolError
from cometmq.remoting.alarm import Alarm
from cometmq.remoting.budget import PartialFrames
from cometmq.remoting.config import ChannelSettings
from cometmq.remoting.outbox import Outbox
from cometmq.remoting.tls import TlsDoor, TlsRefused, TlsStream
from cometmq.remoting.turn import Turn
from cometmq.remoting.watch import Watch

_log = logs.get_logger("cometmq.remoting")

LINGER_SECONDS = 5
"""What a peer gets to read the rest after a connection was closed from here."""

_WRITE_BUFFER_BYTES_HIGH = 1024 * 1024


class Link(asyncio.Protocol, abc.ABC):
    """The transport's protocol; subclasses get plain text in ``handle`` and the end in ``_lost``.

    A listening side has a ``door`` that tells TLS from plain peers; a dialling side calls
    ``start_tls``.
    """

    def __init__(
        self,
        settings: ChannelSettings,
        *,
        door: TlsDoor | None = None,
        budget: PartialFrames | None = None,
        turn: Turn | None = None,
    ) -> None:
        self._settings = settings
        self._door = door
        self._budget = budget
        self._turn = turn
        self._loop = asyncio.get_running_loop()
        self._watch = Watch(settings, self._loop.time())
        self._check = Alarm(self._loop)
        self._unwrap: Callable[[bytes], bytes] | None = None if door is None else self._meet
        self._tls: TlsStream | None = None
        self._handshake: asyncio.Future[None] | None = None  # start_tls waits for it
        self._held_bytes = 0  # of a frame that is not complete, as the budget knows it
        self._is_usable = False  # made, and agreed with the peer what to speak
        self._close_reason = ""
        self._closing_since: float | None = None
        self._is_dropped = False
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox  # there as long as the transport
        self.peer = "?"  # host:port of the other end
        self.local = "?"

    # --- what programs call

    @property
    def is_open(self) -> bool:
        """True while something can be sent."""
        return self._is_usable and self._transport is not None and not self._transport.is_closing()

    @property
    def read_count(self) -> int:
        """How often something came from the peer; loops' clocks are too coarse to tell by time."""
        return self._watch.read_count

    @property
    def is_stalled(self) -> bool:
        """True while so much is unsent that nobody should add to it."""
        return self._transport is not None and self._outbox.is_stalled

    async def flowing(self) -> None:
        """Wait until the peer has read, or the connection has ended."""
        if self._transport is not None:
            await self._outbox.flowing()

    @property
    def fileno(self) -> int | None:
        """The descriptor of its socket, while there is one."""
        if self._transport is None:
            return None
        socket = self._transport.get_extra_info("socket")
        return None if socket is None or socket.fileno() < 0 else int(socket.fileno())

    @property
    def is_tls(self) -> bool:
        return self._tls is not None

    @property
    def peer_certificate(self) -> dict[str, object] | None:
        """What the peer showed of itself, if it was asked to and was believed."""
        return self._tls.peer_certificate() if self._tls is not None and self.is_open else None

    def close(self, reason: str = "closed by us") -> None:
        """Handle what was read, write what is waiting, then end the connection.

        Called by a handler, it leaves what was read besides unanswered.
        """
        self._finish_turn()
        self._close_reason = self._close_reason or reason
        if self._transport is not None and not self._transport.is_closing():
            self._outbox.flush()
            if self._tls is not None:
                self._outbox.write(self._tls.end())
            self._end()

    def drop(self, reason: str) -> None:
        """End the connection at once, with one line in the log; what is waiting is lost."""
        self._close_reason = self._close_reason or reason
        if self._transport is not None and not self._is_dropped:
            self._is_dropped = True
            _log.warning("peer=%s connection dropped: %s", self.peer, reason)
            self._transport.abort()

    def check(self, now: float) -> None:
        """End the connection if the peer has used up its time; called now and then by itself.

        What was read counts, even if it was not handled yet.
        """
        self._finish_turn()
        if self._transport is None:
            return
        if self._closing_since is not None:
            if now - self._closing_since >= LINGER_SECONDS:
                self._transport.abort()
            return
        verdict = self._watch.verdict(now, self._outbox.sent_bytes)
        if verdict is not None:
            (self.drop if verdict.is_fault else self.close)(verdict.reason)

    async def start_tls(self, stream: TlsStream) -> None:
        """Speak TLS from here on (dialling side). Raises ConnectionLost when that fails."""
        if self._transport is None:
            raise ConnectionLost(self.peer, self._close_reason)
        self._use(stream)
        self._handshake = self._loop.create_future()
        self._outbox.write(stream.begin())
        try:
            await self._handshake
        finally:
            self._handshake = None  # it keeps its error, which knows us

    # --- what subclasses do

    @abc.abstractmethod
    def handle(self, data: bytes) -> None:
        """Plain text has come."""

    @abc.abstractmethod
    def _lost(self) -> None:
        """The connection has ended, for ``_close_reason``."""

    def _note_read(self, held_bytes: int, *, is_progress: bool) -> None:
        """``handle`` is done: what is kept of an incomplete frame, and was any completed?"""
        is_partial = held_bytes > 0 or not self._is_usable
        self._watch.note_read(self._loop.time(), is_partial=is_partial, is_progress=is_progress)
        if held_bytes != self._held_bytes and self._budget is not None:
            self._held_bytes = held_bytes
            self._budget.update(self, held_bytes)

    def _refuse(self, error: RemoteProtocolError) -> None:
        """End a connection whose peer broke the protocol."""
        self._close_reason = self._close_reason or error.fact
        if self._handshake is None or self._handshake.done():  # else whoever dials is told
            # As a text: a log handler may keep what it is given, and an error knows its frames.
            _log.warning("peer=%s connection closed: %s", self.peer, str(error))
        if isinstance(error, TlsRefused):
            self._outbox.write(error.alert)  # a stream that is broken takes nothing more
        else:
            self._outbox.flush()  # what was good before is answered
        self._end()

    # --- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclasses
        self.peer = _address(transport.get_extra_info("peername"))
        self.local = _address(transport.get_extra_info("sockname"))
        high = self._settings.write_buffer_bytes_high or _WRITE_BUFFER_BYTES_HIGH
        self._transport.set_write_buffer_limits(high=high)
        bytes_max = self._settings.write_buffer_bytes_max
        self._outbox = Outbox(
            self._loop, self._transport, bytes_max=bytes_max, drop=self.drop, bytes_high=high
        )
        # Whether a peer speaks TLS shows with its first byte; until then nothing can be said to it.
        self._is_usable = self._door is None or self._door.context is None
        self._check.set(self._loop.time() + self._watch.interval, self._check_now)
        _log.debug("peer=%s connection opened", self.peer)
        if self._close_reason:  # closed before it was made
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._unwrap is not None:
            try:
                data = self._unwrap(data)
            except RemoteProtocolError as error:
                self._refuse(error)
                return
        turn = self._turn
        if turn is None or turn.alone is self:
            self.handle(data)
        else:
            turn.add(self, data)

    def eof_received(self) -> bool:
        self.close("closed by the peer")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._finish_turn()
        if self._turn is not None:
            self._turn.forget(self)
        self._close_reason = self._close_reason or (str(error) if error else "closed by the peer")
        self._transport = None
        self._is_usable = False
        self._check.cancel()
        self._outbox.clear()
        # Both know us: without them the last one who knows us frees us, not the collector.
        del self._outbox
        self._unwrap = None
        if self._budget is not None:
            self._budget.update(self, 0)
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_exception(ConnectionLost(self.peer, self._close_reason))
        _log.debug("peer=%s connection ended: %s", self.peer, self._close_reason)
        self._lost()

    def pause_writing(self) -> None:
        self._outbox.pause()
        self._watch.note_stall(self._loop.time(), self._outbox.sent_bytes)
        transport = self._transport
        if self._door is not None and transport is not None and not transport.is_closing():
            transport.pause_reading()

    def resume_writing(self) -> None:
        self._outbox.resume()
        self._watch.note_flow(self._loop.time())
        transport = self._transport
        if self._door is not None and transport is not None and not transport.is_closing():
            transport.resume_reading()

    # --- the inside

    def _finish_turn(self) -> None:
        if self._turn is not None:
            self._turn.finish()

    def _meet(self, data: bytes) -> bytes:
        """The first read of a listening side shows what the peer speaks."""
        assert self._door is not None
        stream = self._door.stream_for(data[0])
        if stream is not None:
            self._use(stream)
            return self._decrypt(data)
        self._unwrap = None
        self._is_usable = True
        return data

    def _use(self, stream: TlsStream) -> None:
        self._is_usable = False
        self._tls = self._outbox.tls = stream
        self._unwrap = self._decrypt

    def _decrypt(self, data: bytes) -> bytes:
        assert self._tls is not None
        step = self._tls.receive(data)
        self._outbox.write(step.cipher)
        if self._tls.is_open and not self._is_usable:
            self._is_usable = True
            if self._handshake is not None and not self._handshake.done():
                self._handshake.set_result(None)
        if step.is_over:
            self._loop.call_soon(self.close, "the peer ended TLS")
        return step.plain

    def _end(self) -> None:
        """Close, but do not wait for ever until the peer has read the rest."""
        self._is_usable = False
        if self._transport is not None and self._closing_since is None:
            self._transport.close()
            self._closing_since = self._loop.time()
            self._check.cancel()
            self._check.set(self._closing_since + LINGER_SECONDS, self._check_now)

    def _check_now(self) -> None:
        now = self._loop.time()
        self._check.set(now + self._watch.interval, self._check_now)
        self.check(now)


def _address(name: object) -> str:
    """``host:port``; an IPv4 address that came through an IPv6 socket is shown as IPv4."""
    if isinstance(name, tuple) and len(name) >= 2:
        host = str(name[0]).removeprefix("::ffff:")
        return f"[{host}]:{name[1]}" if ":" in host else f"{host}:{name[1]}"
    return "?"
