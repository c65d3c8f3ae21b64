"""Requests to brokers and name servers without an event loop: sockets that block, with time limits.

Tasks of Spark are plain functions, one at a time in a process; a loop would only be in the way of
large answers. A body is received straight into the memory in which it is decoded. Sockets belong
to the process that opened them: they are made when needed and kept for the tasks that follow.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cometmq.codec import core
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command, decode_frame
from cometmq.codec.frame import PREFIX_BYTES, Frame
from cometmq.codec.headers.base import Header
from cometmq.errors import (
    CometError,
    ConnectionLost,
    NotFound,
    Refused,
    RemoteProtocolError,
    RequestTimeout,
    Unreachable,
)
from cometmq.model.limits import FRAME_BYTES_MAX, HEADER_BYTES_MAX
from cometmq.remoting.addresses import split_address
from cometmq.remoting.tls import client_context
from cometmq.spark.connecting import Connecting

CONNECT_SECONDS_MAX: Final = 5.0
CONNECTIONS_MAX: Final = 64
IDLE_SECONDS_MAX: Final = 60.0
"""Servers close connections that are idle for 120 s; older ones than this are made anew."""
PIPELINE_MAX: Final = 64
"""Requests on their way at a time when many are asked at once."""

_PREFIX: Final = struct.Struct(">iI")
_SUCCESS: Final = (ResponseCode.SUCCESS,)

_wires: dict[tuple[int, Connecting], Wire] = {}


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its head, and its body as memory of its own."""

    head: Command
    body: Any

    @property
    def code(self) -> int:
        return self.head.code


def wire_of(connecting: Connecting) -> Wire:
    """The connections of this process to a cluster, kept between tasks."""
    key = os.getpid(), connecting
    wire = _wires.get(key)
    if wire is None:
        # What a forked process has got from its parent is not its own.
        for other in [one for one in _wires if one[0] != key[0]]:
            del _wires[other]
        wire = _wires[key] = Wire(connecting)
    return wire


class Wire:
    """Asks any address, in the name and by the rules of ``connecting``."""

    def __init__(self, connecting: Connecting) -> None:
        self._timeout_ms = connecting.timeout_ms
        self._credentials = connecting.credentials()
        tls = connecting.tls_settings()
        self._tls = None if tls is None else client_context(tls)
        self._lines: dict[str, Line] = {}
        self.name_servers = connecting.name_servers
        self._answering = 0  # the number of the name server that answered last

    def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        accept: Sequence[int] = _SUCCESS,
    ) -> Reply:
        """The answer of ``address``, with one of the codes in ``accept``.

        Raises NotFound, Refused, Unreachable, ConnectionLost, RequestTimeout.
        """
        is_kept = self.line(address).is_kept
        try:
            reply = self._ask(address, code, header, body)
        except ConnectionLost:
            # A kept connection may have been closed meanwhile: it is asked once more.
            if not is_kept:
                raise
            reply = self._ask(address, code, header, body)
        if reply.code not in accept:
            raise refusal(address, code, header, reply.head)
        return reply

    def _ask(self, address: str, code: RequestCode, header: Header | None, body: bytes) -> Reply:
        line = self.line(address)
        try:
            line.send(code, header, body)
            reply = line.receive()
        except BaseException:
            self.forget(address)  # it is dead, or an answer may still be under way
            raise
        line.is_kept = True
        return reply

    def ask_all(
        self,
        address: str,
        code: RequestCode,
        headers: Iterable[Header],
        *,
        accept: Sequence[int] = _SUCCESS,
    ) -> Iterator[tuple[Header, Reply]]:
        """Ask one address many things at once; answers come in the order of the questions."""
        headers = list(headers)
        for begin in range(0, len(headers), PIPELINE_MAX):
            some = headers[begin : begin + PIPELINE_MAX]
            first = self.ask(address, code, some[0], accept=accept)
            yield some[0], first
            line = self.line(address)
            try:
                opaques = [line.send(code, header, b"") for header in some[1:]]
                replies = {reply.head.opaque: reply for reply in map(line.receive_any, opaques)}
            except BaseException:
                self.forget(address)
                raise
            for header, opaque in zip(some[1:], opaques, strict=True):
                reply = replies.get(opaque)
                if reply is None:
                    raise RemoteProtocolError(f"{address} left request {opaque} without an answer")
                if reply.code not in accept:
                    raise refusal(address, code, header, reply.head)
                yield header, reply

    def ask_name_server(self, code: RequestCode, header: Header | None = None) -> Reply:
        """The answer of the first name server that is there. Raises Unreachable when none is.

        Begins with the one that answered last: one that hangs costs its time limit only once.
        """
        problems = []
        count = len(self.name_servers)
        for _ in range(count):
            address = self.name_servers[self._answering]
            try:
                return self.ask(address, code, header)
            except (Unreachable, ConnectionLost, RequestTimeout) as error:
                problems.append(f"{address}: {getattr(error, 'reason', '') or error.fact}")
            self._answering = (self._answering + 1) % count
        from cometmq.admin.servers import no_name_server  # not for every Python worker

        raise no_name_server(self.name_servers, problems)

    def line(self, address: str) -> Line:
        """The connection to an address, made if there is none. Raises Unreachable."""
        line = self._lines.pop(address, None)
        if line is not None and line.idle_seconds > IDLE_SECONDS_MAX:
            line.close()
            line = None
        if line is None:
            while len(self._lines) >= CONNECTIONS_MAX:
                self._lines.pop(next(iter(self._lines))).close()
            line = Line(address, self._timeout_ms, self._credentials, self._tls)
        self._lines[address] = line
        return line

    def forget(self, address: str) -> None:
        """Close the connection to an address, for whatever is on its way there."""
        line = self._lines.pop(address, None)
        if line is not None:
            line.close()

    def close(self) -> None:
        while self._lines:
            self._lines.popitem()[1].close()


class Line:
    """One connection, on which one question is asked after the other."""

    def __init__(
        self, address: str, timeout_ms: int, credentials: Any, tls: ssl.SSLContext | None
    ) -> None:
        self._address = address
        self._timeout_ms = timeout_ms
        self._credentials = credentials
        self._opaque = 0
        self._used_at = time.monotonic()
        self.is_kept = False  # an answer has come on it before
        self._socket = self._connected(tls)

    @property
    def idle_seconds(self) -> float:
        return time.monotonic() - self._used_at

    def send(self, code: RequestCode, header: Header | None, body: bytes = b"") -> int:
        """Ask; the answer is for ``receive``. Returns the number that the answer will have."""
        if self._credentials is not None:
            header = self._credentials.signed(header, body)
        self._opaque += 1
        head = core.encode_head(0, code, self._opaque, 0, None, header, len(body))
        try:
            self._socket.sendall(head + body)
        except TimeoutError as error:
            raise RequestTimeout(self._address, self._timeout_ms) from error
        except OSError as error:
            raise ConnectionLost(self._address, _reason(error)) from error
        return self._opaque

    def receive(self) -> Reply:
        """The answer to the last question."""
        while True:
            reply = self.receive_any()
            if reply.head.opaque == self._opaque:
                return reply

    def receive_any(self, _: int = 0) -> Reply:
        """The next answer, whichever question it is to; what the peer asks is passed over."""
        while True:
            reply = self._receive_frame()
            if reply.head.is_response:
                self._used_at = time.monotonic()
                return reply

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def _receive_frame(self) -> Reply:
        length, word = _PREFIX.unpack(self._exactly(PREFIX_BYTES))
        header_bytes = word & HEADER_BYTES_MAX
        if not header_bytes <= length - 4 <= FRAME_BYTES_MAX:
            raise RemoteProtocolError(f"frame of {length} bytes with a header of {header_bytes}")
        header = self._exactly(header_bytes)
        frame = Frame(word >> 24, 0, header_bytes, header_bytes)
        head = decode_frame(bytes(header), frame)
        return Reply(head, self._exactly(length - 4 - header_bytes))

    def _exactly(self, count: int) -> Any:
        """So many bytes, in memory that nobody has filled with zeros before."""
        target: Any = np.empty(count, np.uint8)
        view = memoryview(target)
        at = 0
        try:
            while at < count:
                got = self._socket.recv_into(view[at:])
                if not got:
                    raise ConnectionLost(self._address, "closed by the peer")
                at += got
        except TimeoutError as error:
            raise RequestTimeout(self._address, self._timeout_ms) from error
        except OSError as error:
            raise ConnectionLost(self._address, _reason(error)) from error
        return target

    def _connected(self, tls: ssl.SSLContext | None) -> socket.socket:
        host, port = split_address(self._address)
        with contextlib.ExitStack() as unfinished:
            try:
                made = socket.create_connection((host, port), CONNECT_SECONDS_MAX)
                unfinished.callback(made.close)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if tls is not None:
                    made = tls.wrap_socket(made, server_hostname=host)
            except (OSError, ValueError) as error:
                raise Unreachable(self._address, _reason(error)) from error
            unfinished.pop_all()
        made.settimeout(self._timeout_ms / 1000)
        return made


def refusal(address: str, code: RequestCode, header: Header | None, answer: Command) -> CometError:
    """The error that an answer stands for."""
    topic = getattr(header, "topic", None)
    if answer.code == ResponseCode.TOPIC_NOT_EXIST and topic:
        return NotFound("topic", topic)
    return Refused(address, code.name, answer.code, (answer.remark or "").strip() or "no remark")


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error}"  # its numbers are OpenSSL's, not the system's
    if isinstance(error, TimeoutError):
        return f"no connection within {CONNECT_SECONDS_MAX:.0f} s"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error)
