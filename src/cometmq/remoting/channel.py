"""A connection on an asyncio transport: requests and answers in both directions.

Theory of operation. ``data_received`` decodes everything a read brought, lets the routes handle it
as one batch and writes all answers with one call. Answers that come later (from a coroutine, from a
timer) are collected until the loop's next turn and then written together, too.

Backpressure has two steps. While more than the high-water mark of answers is unsent, nothing more
is read from this peer, so it cannot ask for more. If it goes on not reading, for too long or with
too much unsent, it is dropped. Other connections notice neither.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from cometmq import logs
from cometmq.codec import core
from cometmq.codec.codes import ResponseCode
from cometmq.codec.command import Command, CommandFlag, Serialization
from cometmq.codec.headers.base import Header
from cometmq.errors import (
    ConnectionLost,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
    TooManyRequests,
)
from cometmq.model.limits import HANDLERS_IN_FLIGHT_MAX
from cometmq.remoting.budget import PartialFrames
from cometmq.remoting.config import ChannelSettings
from cometmq.remoting.connection import Connection
from cometmq.remoting.routes import Answer, Routes, failure
from cometmq.remoting.tls import HANDSHAKE_BYTE, TlsRefused, TlsStream

_log = logs.get_logger("cometmq.remoting")

_JOINED_BYTES_MAX = 64 * 1024
_WRITE_BUFFER_BYTES_HIGH = 1024 * 1024

Waiter = tuple[asyncio.Future[Command], int]


class Channel(asyncio.Protocol):
    """One connection. Handlers answer and ask through it; it owns all its limits."""

    def __init__(
        self,
        routes: Routes,
        settings: ChannelSettings,
        *,
        tls: ssl.SSLContext | None = None,
        is_tls_required: bool = False,
        budget: PartialFrames | None = None,
        on_closed: "Callable[[Channel], None] | None" = None,
    ) -> None:
        self._routes = routes
        self._settings = settings
        self._tls_context = tls  # of a listening side; a dialling side calls start_tls
        self._is_tls_required = is_tls_required
        self._budget = budget
        self._on_closed = on_closed
        self._connection: Connection[Waiter] = Connection(frame_bytes_max=settings.frame_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._tls: TlsStream | None = None
        self._out: list[bytes | memoryview] = []  # answers of this turn
        self._is_in_read = False  # the end of data_received will write them
        self._is_flush_planned = False
        self._tasks: set[asyncio.Task[None]] = set()  # handlers that have not finished
        self._close_reason = ""
        self._expiry: asyncio.TimerHandle | None = None
        self.peer = "?"  # host:port of the other end
        self.local = "?"
        self.last_activity = self._loop.time()
        self.partial_since: float | None = None  # when the frame that is incomplete began
        self.stalled_since: float | None = None  # since when answers are unread
        self.is_first_byte_seen = False
        self.attributes: dict[str, Any] = {}  # what handlers remember about this peer

    # --- what programs call

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_tls(self) -> bool:
        return self._tls is not None

    @property
    def held_bytes(self) -> int:
        return self._connection.held_bytes

    @property
    def in_flight_count(self) -> int:
        """Requests of the peer that have no answer yet."""
        return len(self._tasks)

    async def request(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int,
        serialization: Serialization = Serialization.JSON,
    ) -> Command:
        """Ask the peer and wait for its answer, whatever its code."""
        if not self._connection.has_room:
            raise TooManyRequests(self.peer, self._connection.pending_count)
        if not self.is_open:
            raise ConnectionLost(self.peer, self._close_reason or "it is closed")
        future: asyncio.Future[Command] = self._loop.create_future()
        opaque = self._connection.ask((future, timeout_ms), self._loop.time() + timeout_ms / 1000)
        try:
            self._put(
                core.encode_head(serialization, code, opaque, 0, None, header, len(body)), body
            )
            self._plan_expiry()
            return await future
        finally:
            self._connection.forget(opaque)

    def oneway(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        serialization: Serialization = Serialization.JSON,
    ) -> None:
        """Tell the peer something that needs no answer; lost without notice if it is gone."""
        if self.is_open:
            flag = CommandFlag.ONEWAY
            self._put(core.encode_head(serialization, code, 0, flag, None, header, len(body)), body)

    def reply(self, request: Command, answer: Answer) -> None:
        """Answer a request, unless it was one-way."""
        self.reply_parts(request, answer.code, answer.remark, answer.header, (answer.body,))

    def reply_parts(
        self,
        request: Command,
        code: int,
        remark: str | None,
        header: Header | None,
        body: Sequence[bytes | memoryview],
    ) -> None:
        """Answer with a body in several parts; they are written as they are, never joined here."""
        if request.is_oneway or not self.is_open:
            return
        size = sum(map(len, body))
        form, opaque = request.serialization, request.opaque
        try:
            head = core.encode_head(form, code, opaque, 1, remark, header, size)
        except LocalProtocolError as error:
            refused = failure(request, error)
            head = core.encode_head(form, refused.code, opaque, 1, refused.remark, None, 0)
            body = ()
        self._put(head, *body)

    def finish_later(self, request: Command, pending: Awaitable[Answer | None]) -> None:
        """Answer when ``pending`` is done; bounded, since a peer may ask faster than we answer."""
        if len(self._tasks) >= HANDLERS_IN_FLIGHT_MAX:
            if asyncio.iscoroutine(pending):
                pending.close()
            remark = f"[REJECTREQUEST]{HANDLERS_IN_FLIGHT_MAX} requests of this client are in work"
            self.reply(request, Answer(ResponseCode.SYSTEM_BUSY, remark=remark))
            return
        task = self._loop.create_task(self._finish(request, pending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self, reason: str = "closed by us") -> None:
        """Write what is waiting, then end the connection."""
        if self._transport is None or self._transport.is_closing():
            return
        self._close_reason = self._close_reason or reason
        self._flush()
        if self._tls is not None:
            self._transport.write(self._tls.end())
        self._transport.close()

    def drop(self, reason: str) -> None:
        """End the connection at once, with one line in the log; what is waiting is lost."""
        if self._transport is None or self._transport.is_closing():
            return
        self._close_reason = self._close_reason or reason
        _log.warning("peer=%s connection dropped: %s", self.peer, reason)
        self._out.clear()
        self._transport.abort()

    def check(self, now: float) -> None:
        """Close the connection if it is idle, stalled or too slow; called once a second or so."""
        if not self.is_open:
            return
        settings = self._settings
        if now - self.last_activity > settings.idle_seconds_max:
            self.close(f"idle for {settings.idle_seconds_max} s")
        elif self.stalled_since and now - self.stalled_since > settings.stalled_seconds_max:
            self.drop(f"left answers unread for {settings.stalled_seconds_max} s")
        elif self.partial_since and now - self.partial_since > settings.frame_seconds_max:
            self.drop(f"took more than {settings.frame_seconds_max} s for one frame")

    def start_tls(self, stream: TlsStream) -> None:
        """Speak TLS from here on (dialling side)."""
        assert self._transport is not None
        self._tls = stream
        self.is_first_byte_seen = True
        self._transport.write(stream.begin())

    # --- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer = _address(transport.get_extra_info("peername"))
        self.local = _address(transport.get_extra_info("sockname"))
        high = self._settings.write_buffer_bytes_high or _WRITE_BUFFER_BYTES_HIGH
        transport.set_write_buffer_limits(high=high)

    def data_received(self, data: bytes) -> None:
        self.last_activity = self._loop.time()
        try:
            plain = self._decrypted(data)
            received = self._connection.receive(plain)
        except RemoteProtocolError as error:
            self._refuse(error)
            return
        self._is_in_read = True
        try:
            for (future, _), command in received.answers:
                if not future.done():
                    future.set_result(command)
            if received.requests:
                self._routes.dispatch(self, received.requests)
        finally:
            self._is_in_read = False
        self._note_partial()
        self._flush()
        if self._connection.fault is not None:
            self._refuse(self._connection.fault)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._close_reason = self._close_reason or (str(error) if error else "closed by the peer")
        self._transport = None
        self._out.clear()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._budget is not None:
            self._budget.update(self, 0)
        lost = ConnectionLost(self.peer, self._close_reason)
        for future, _ in self._connection.close():
            if not future.done():
                future.set_exception(lost)
        for task in self._tasks:
            task.cancel()
        if self._on_closed is not None:
            self._on_closed(self)

    def pause_writing(self) -> None:
        self.stalled_since = self._loop.time()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.stalled_since = None
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # --- the inside

    def _decrypted(self, data: bytes) -> bytes:
        if not self.is_first_byte_seen and data:
            self.is_first_byte_seen = True
            self._choose_tls(data[0])
        if self._tls is None:
            return data
        step = self._tls.receive(data)
        if step.cipher and self._transport is not None:
            self._transport.write(step.cipher)
        if step.is_over:
            self._loop.call_soon(self.close, "the peer ended TLS")
        return step.plain

    def _choose_tls(self, first: int) -> None:
        if first == HANDSHAKE_BYTE:
            if self._tls_context is None:
                raise RemoteProtocolError("the peer speaks TLS and TLS is off here")
            self._tls = TlsStream(self._tls_context, is_server=True)
        elif self._is_tls_required:
            raise RemoteProtocolError("the peer does not speak TLS and it is required here")

    def _refuse(self, error: RemoteProtocolError) -> None:
        if isinstance(error, TlsRefused) and self._transport is not None:
            self._transport.write(error.alert)
        _log.warning("peer=%s connection closed: %s", self.peer, error)
        self._close_reason = self._close_reason or error.fact
        if self._transport is not None:
            self._transport.close()

    def _note_partial(self) -> None:
        held = self._connection.held_bytes
        if held == 0:
            self.partial_since = None
        elif self.partial_since is None:
            self.partial_since = self.last_activity
        if self._budget is not None:
            self._budget.update(self, held)

    async def _finish(self, request: Command, pending: Awaitable[Answer | None]) -> None:
        try:
            answer = await pending
        except Exception as error:
            answer = failure(request, error)
        if answer is not None:
            self.reply(request, answer)

    def _put(self, *parts: bytes | memoryview) -> None:
        self._out += [part for part in parts if part]
        if not self._is_in_read and not self._is_flush_planned:
            self._is_flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_planned = False
        if not self._out or self._transport is None or self._transport.is_closing():
            return
        out, self._out = self._out, []
        self.last_activity = self._loop.time()
        if self._tls is not None:
            self._transport.write(self._tls.send(b"".join(out)))
        elif len(out) == 1 or sum(map(len, out)) > _JOINED_BYTES_MAX:
            self._transport.writelines(out)
        else:
            self._transport.write(b"".join(out))
        unsent = self._transport.get_write_buffer_size()
        if unsent > self._settings.write_buffer_bytes_max:
            self.drop(f"has {unsent} bytes of answers unread")

    def _plan_expiry(self) -> None:
        deadline = self._connection.next_deadline()
        if deadline is None:
            return
        if self._expiry is not None:
            if self._expiry.when() <= deadline and not self._expiry.cancelled():
                return
            self._expiry.cancel()
        self._expiry = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        for future, timeout_ms in self._connection.expire(self._loop.time()):
            if not future.done():
                future.set_exception(RequestTimeout(self.peer, timeout_ms))
        self._plan_expiry()


def _address(name: object) -> str:
    """``host:port``; an IPv4 address that came through an IPv6 socket is shown as IPv4."""
    if isinstance(name, tuple) and len(name) >= 2:
        host = str(name[0]).removeprefix("::ffff:")
        return f"[{host}]:{name[1]}" if ":" in host else f"{host}:{name[1]}"
    return "?"
