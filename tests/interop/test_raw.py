"""The raw connection reads whole frames within bounds."""

import socket
from collections.abc import Iterator

import pytest

from tests.interop.raw import FRAME_BYTES_MAX, RawConnection, connect


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def pair(listener: socket.socket) -> tuple[RawConnection, socket.socket]:
    host, port = listener.getsockname()
    connection = connect(f"{host}:{port}", timeout_s=0.03)
    return connection, listener.accept()[0]


def test_a_frame_in_pieces_is_put_together(listener: socket.socket) -> None:
    connection, peer = pair(listener)
    with connection, peer:
        for piece in (b"\x00\x00", b"\x00\x03a", b"bc\x00\x00\x00\x00"):
            peer.sendall(piece)

        assert connection.receive() == b"\x00\x00\x00\x03abc"
        assert connection.receive() == b"\x00\x00\x00\x00"


def test_what_is_sent_arrives(listener: socket.socket) -> None:
    connection, peer = pair(listener)
    with connection, peer:
        connection.send(b"hello")

        assert peer.recv(10) == b"hello"


def test_silence_ends_with_a_timeout(listener: socket.socket) -> None:
    connection, peer = pair(listener)
    with connection, peer, pytest.raises(TimeoutError):
        connection.receive()


def test_a_frame_cut_off_is_an_error(listener: socket.socket) -> None:
    connection, peer = pair(listener)
    with connection:
        with peer:
            peer.sendall(b"\x00\x00\x00\x03a")

        with pytest.raises(ConnectionError, match="closed after 1 of 3 bytes"):
            connection.receive()


def test_an_absurd_length_is_refused_before_it_is_read(listener: socket.socket) -> None:
    connection, peer = pair(listener)
    with connection, peer:
        peer.sendall((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))

        with pytest.raises(ValueError, match="a frame of 16777217 bytes"):
            connection.receive()
