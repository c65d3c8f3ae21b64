"""A load generator that costs next to nothing: pre-encoded requests out, answers counted by bytes.

The same requests always get answers of the same length, so a burst is over when that many bytes
have come; nothing is decoded while the clock runs.
"""

import selectors
import socket
import time
from collections.abc import Sequence
from typing import NamedTuple

_READ_BYTES = 1 << 20
_ANSWER_SECONDS_MAX = 10.0


class Burst(NamedTuple):
    """Requests sent together, and how many bytes their answers have in all."""

    requests: bytes
    request_count: int
    answer_bytes: int


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def measured(connection: socket.socket, frames: Sequence[bytes]) -> Burst:
    """Send ``frames`` once and learn how long their answers are."""
    connection.sendall(b"".join(frames))
    received = sum(len(read_frame(connection)) for _ in frames)
    return Burst(b"".join(frames), len(frames), received)


def read_frame(connection: socket.socket) -> bytes:
    """One whole frame, prefix included."""
    prefix = _read_exactly(connection, 4)
    return prefix + _read_exactly(connection, int.from_bytes(prefix, "big"))


def requests_per_second(
    connections: Sequence[socket.socket], bursts: Sequence[Burst], seconds: float
) -> float:
    """Keep one burst in flight on every connection for ``seconds``; answered requests a second."""
    answered = 0
    with selectors.DefaultSelector() as selector:
        waiting = [burst.answer_bytes for burst in bursts]
        for number, connection in enumerate(connections):
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_READ, number)
        began = time.perf_counter()
        for connection, burst in zip(connections, bursts, strict=True):
            _send(connection, burst.requests)
        while (spent := time.perf_counter() - began) < seconds:
            for key, _ in selector.select(_ANSWER_SECONDS_MAX):
                number = key.data
                waiting[number] -= len(connections[number].recv(_READ_BYTES))
                if waiting[number] == 0:
                    answered += bursts[number].request_count
                    waiting[number] = bursts[number].answer_bytes
                    _send(connections[number], bursts[number].requests)
        _drain(selector, connections, waiting, bursts)
    for connection in connections:
        connection.setblocking(True)
        connection.settimeout(_ANSWER_SECONDS_MAX)
    return answered / spent


def _drain(
    selector: selectors.BaseSelector,
    connections: Sequence[socket.socket],
    waiting: list[int],
    bursts: Sequence[Burst],
) -> None:
    """Read the answers still on their way, so that the next round starts from nothing."""
    for number, connection in enumerate(connections):
        selector.unregister(connection)
        connection.setblocking(True)
        connection.settimeout(_ANSWER_SECONDS_MAX)
        _read_exactly(connection, waiting[number])
        waiting[number] = bursts[number].answer_bytes


def _send(connection: socket.socket, data: bytes) -> None:
    """Requests of one burst fit the socket's buffer; a peer that does not read is an error."""
    sent = connection.send(data)
    if sent != len(data):
        raise RuntimeError(f"only {sent} of {len(data)} bytes could be sent at once")


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    chunks = []
    while size:
        chunk = connection.recv(min(size, _READ_BYTES))
        if not chunk:
            raise ConnectionError("the server closed the connection")
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)
