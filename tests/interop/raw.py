"""A plain blocking connection that speaks whole frames, to ask a real server a single question."""

import socket
import ssl
from types import TracebackType
from typing import Self

TIMEOUT_S = 10.0
FRAME_BYTES_MAX = 16 << 20
LENGTH_BYTES = 4


class RawConnection:
    """One TCP connection; every wait on it ends after ``timeout_s`` with ``TimeoutError``.

    With a context it speaks TLS from the first byte.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        if tls is not None:
            try:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
            except BaseException:
                self._socket.close()
                raise

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        """The next whole frame, its four length bytes included."""
        prefix = self._exactly(LENGTH_BYTES)
        length = int.from_bytes(prefix, "big")
        if length > FRAME_BYTES_MAX:
            raise ValueError(f"the peer announces a frame of {length} bytes")
        return prefix + self._exactly(length)

    def exchange(self, frame: bytes) -> bytes:
        """Send one frame and wait for the next one that comes."""
        self.send(frame)
        return self.receive()

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise ConnectionError(f"the peer closed after {len(data)} of {count} bytes")
            data += piece
        return bytes(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(
    address: str, *, timeout_s: float = TIMEOUT_S, tls: ssl.SSLContext | None = None
) -> RawConnection:
    """A connection to ``host:port``, the form RocketMQ writes addresses in."""
    host, _, port = address.rpartition(":")
    return RawConnection(host, int(port), timeout_s=timeout_s, tls=tls)
