"""Requests and answers in both directions on one connection.

Theory of operation. A read is decoded as a whole, handled by the routes as one batch, and all its
answers are written with one call. Answers that come later (from a coroutine, from a timer) are
collected until the loop's next turn and then written together, too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from cometmq import logs
from cometmq.codec import core
from cometmq.codec.codes import ResponseCode
from cometmq.codec.command import Command, CommandFlag, Serialization
from cometmq.codec.headers.base import Header
from cometmq.errors import ConnectionLost, LocalProtocolError, RequestTimeout, TooManyRequests
from cometmq.model.limits import HANDLERS_IN_FLIGHT_MAX
from cometmq.remoting.alarm import Alarm
from cometmq.remoting.budget import PartialFrames
from cometmq.remoting.config import ChannelSettings
from cometmq.remoting.connection import Connection
from cometmq.remoting.link import Link
from cometmq.remoting.routes import Answer, Routes, failure
from cometmq.remoting.tls import TlsDoor
from cometmq.remoting.turn import Turn

_log = logs.get_logger("cometmq.remoting")

_NO_FRAMES: list[bytes] = []

Waiter = tuple[asyncio.Future[Command], int]
"""Who waits for an answer, and how many milliseconds it was ready to."""


class Channel(Link):
    """One connection. Handlers answer and ask through it; it owns all its limits."""

    on_refused: "Callable[[Command, Answer], None] | None" = None
    """Told of every request that is answered with something else than success."""

    def __init__(
        self,
        routes: Routes,
        settings: ChannelSettings,
        *,
        door: TlsDoor | None = None,
        budget: PartialFrames | None = None,
        turn: Turn | None = None,
        on_opened: "Callable[[Channel], None] | None" = None,
        on_closed: "Callable[[Channel], None] | None" = None,
    ) -> None:
        super().__init__(settings, door=door, budget=budget, turn=turn)
        self._routes = routes
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._connection: Connection[Waiter] = Connection(frame_bytes_max=settings.frame_bytes_max)
        self._expiry = Alarm(self._loop)
        self._handlers: dict[asyncio.Task[None], Awaitable[Answer | None]] = {}  # not finished yet
        self._is_serving = True
        self._leaving = ""  # why to close when the last answer has come
        self.attributes: dict[str, Any] = {}  # what handlers remember about this peer

    # --- asking

    async def request(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int,
        serialization: Serialization = Serialization.JSON,
    ) -> Command:
        """Ask the peer and wait for its answer, whatever its code.

        Raises RequestTimeout, ConnectionLost, TooManyRequests, and LocalProtocolError for what does
        not fit into a frame.
        """
        if not self._connection.has_room:
            raise TooManyRequests(self.peer, self._connection.pending_count)
        if not self.is_open:
            raise ConnectionLost(self.peer, self._close_reason or "it is not open yet")
        future: asyncio.Future[Command] = self._loop.create_future()
        deadline = self._loop.time() + timeout_ms / 1000
        opaque = self._connection.ask((future, timeout_ms), deadline)
        try:
            head = core.encode_head(serialization, code, opaque, 0, None, header, len(body))
            self._outbox.put(head, (body,), len(body))
            del body  # may be large, and is wanted only until it is written
            self._expiry.set(deadline, self._expire)
            return await future
        finally:
            self._connection.forget(opaque)
            # It keeps the error it was given, which knows this frame and all that wait for it.
            del future
            if self._leaving and self._connection.pending_count == 0:
                self.close(self._leaving)

    def oneway(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        remark: str | None = None,
        serialization: Serialization = Serialization.JSON,
    ) -> None:
        """Tell the peer something that needs no answer; lost without notice if it is gone."""
        if self.is_open:
            opaque, flag = self._connection.tell(), CommandFlag.ONEWAY
            head = core.encode_head(serialization, code, opaque, flag, remark, header, len(body))
            self._outbox.put(head, (body,), len(body))

    def close_when_answered(self, reason: str) -> None:
        """End the connection as soon as nobody waits for an answer on it, or has to for too long.

        Whoever calls it asks nothing more here.
        """
        if self._connection.pending_count == 0:
            self.close(reason)
        else:
            self._leaving = reason

    # --- answering

    def reply(self, request: Command, answer: Answer) -> None:
        """Answer a request, unless it was one-way."""
        if answer.code and self.on_refused is not None:
            self.on_refused(request, answer)
        self.reply_parts(request, answer.code, answer.remark, answer.header, (answer.body,))

    def succeed(self, request: Command, header: Header) -> None:
        """Answer with success and a header alone: the short way, for what happens per message."""
        if request.flag & 2 == 0 and self._is_usable:
            head = core.encode_head(request.serialization, 0, request.opaque, 1, None, header, 0)
            self._outbox.put(head)

    def answer_with(self, frames: list[bytes]) -> None:
        """Send answers that were written already, each a whole frame."""
        if self._is_usable:
            self._outbox.put_all(frames)

    def reply_parts(
        self,
        request: Command,
        code: int,
        remark: str | None,
        header: Header | None,
        body: Sequence[bytes | memoryview],
    ) -> None:
        """Answer with a body in several parts; big ones are written as they are, not joined.

        What does not fit into a frame is answered with an error instead.
        """
        if request.is_oneway or not self.is_open:
            return
        size = sum(map(len, body))
        form, opaque = request.serialization, request.opaque
        try:
            head = core.encode_head(form, code, opaque, 1, remark, header, size)
        except LocalProtocolError as error:
            refused = failure(request, error)
            head = core.encode_head(form, refused.code, opaque, 1, refused.remark, None, 0)
            size = 0
        self._outbox.put(head, body, size)

    def finish_later(self, request: Command, pending: Awaitable[Answer | None]) -> None:
        """Answer when ``pending`` is done; bounded, since a peer may ask faster than we answer."""
        if len(self._handlers) >= HANDLERS_IN_FLIGHT_MAX:
            _discard(pending)
            remark = f"[REJECTREQUEST]{HANDLERS_IN_FLIGHT_MAX} requests of this client are in work"
            self.reply(request, Answer(ResponseCode.SYSTEM_BUSY, remark=remark))
            return
        task = self._loop.create_task(self._finish(request, pending))
        self._handlers[task] = pending
        task.add_done_callback(self._finished)

    @property
    def handlers(self) -> frozenset[asyncio.Task[None]]:
        """Requests of the peer in work."""
        return frozenset(self._handlers)

    def stop_serving(self) -> None:
        """From here on requests are not carried out; what is in work may finish."""
        self._finish_turn()
        self._is_serving = False

    # --- the inside

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._on_opened is not None:
            self._on_opened(self)

    def handle(self, data: bytes) -> None:
        """Carry out what the peer asks for in a read, and take its answers."""
        requests = self._connection.requests_in(data)
        if requests is None:
            self._take_mixed(data)
        else:
            self._serve(requests)
            # Nothing was held, and nothing is: no need to tell the budget.
            now, watch = self._loop.time(), self._watch
            if self._is_usable:  # ``note_read``, without calling it for every message
                watch.last_activity, watch.partial_since = now, None
                watch.read_count += 1
            else:
                watch.note_read(now, is_partial=True, is_progress=bool(requests))

    def _serve(self, requests: Sequence[Command]) -> None:
        if requests and self._is_serving:
            outbox, frames = self._outbox, _NO_FRAMES
            outbox.is_held = True
            try:
                frames = self._routes.dispatch(self, requests)
            finally:
                turn = self._turn
                if turn is not None and turn.is_handling:
                    if frames:
                        outbox.put_all(frames)
                    turn.hold(self, outbox)
                else:
                    outbox.is_held = False
                    outbox.send(frames)

    def _take_mixed(self, data: bytes) -> None:
        """A read with answers in it, with parts of a frame, or with something broken."""
        requests, answers, unmatched, fault = self._connection.receive(data)
        for (future, _), command in answers:
            if not future.done():
                future.set_result(command)
        self._serve(requests)
        self._note_read(
            self._connection.held_bytes, is_progress=bool(requests or answers or unmatched)
        )
        if fault is not None:
            self._refuse(fault)

    def _lost(self) -> None:
        self._expiry.cancel()
        for future, _ in self._connection.close():
            if not future.done():
                future.set_exception(ConnectionLost(self.peer, self._close_reason))
        for task in self._handlers:
            task.cancel()
        if self._on_closed is not None:
            self._on_closed(self)

    async def _finish(self, request: Command, pending: Awaitable[Answer | None]) -> None:
        try:
            answer = await pending
            if answer is not None:
                self.reply(request, answer)
        except Exception as error:
            self.reply(request, failure(request, error))

    def _finished(self, task: asyncio.Task[None]) -> None:
        # A task that was cancelled before its first step has not touched what it was to await.
        _discard(self._handlers.pop(task))

    def _expire(self) -> None:
        self._finish_turn()  # an answer may be among what was read
        for future, timeout_ms in self._connection.expire(self._loop.time()):
            if not future.done():
                future.set_exception(RequestTimeout(self.peer, timeout_ms))
        deadline = self._connection.next_deadline()
        if deadline is not None:
            self._expiry.set(deadline, self._expire)


def _discard(pending: Awaitable[Answer | None]) -> None:
    """Give up what nobody will await; without effect on what is done."""
    if asyncio.iscoroutine(pending):
        pending.close()
    elif isinstance(pending, asyncio.Future):
        pending.cancel()
