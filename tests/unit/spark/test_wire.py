"""Connections of the Spark connector: what is kept of them after something went wrong."""

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from cometmq.codec import command
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.errors import ConnectionLost, NotFound, RequestTimeout, Unreachable
from cometmq.spark.connecting import Connecting
from cometmq.spark.wire import Reply, Wire

FRAME_BYTES = 65_536
ANSWER, HANG_UP = "answer", "hang up"


class Server:
    """Treats one connection after the other, and each request on it, as its script says."""

    def __init__(self, *script: tuple[str, ...]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        host, port = self._listener.getsockname()
        self.address = f"{host}:{port}"
        self._script = script
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        for steps in self._script:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # nobody comes any more
            with connection:
                for step in steps:
                    frame = connection.recv(FRAME_BYTES)
                    if step == HANG_UP:
                        break
                    (asked,), _ = command.decode_frames(frame)
                    answer = asked.answer(ResponseCode.SUCCESS)
                    connection.sendall(command.encode(answer))

    def close(self) -> None:
        self._listener.close()
        self.thread.join(5)


Serve = Callable[..., Server]


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Wire(Connecting(("127.0.0.1:1",), timeout_ms=2_000))
    yield made
    made.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """``serve((ANSWER,), (HANG_UP,))``: a server with this script."""
    started: list[Server] = []

    def start(*script: tuple[str, ...]) -> Server:
        started.append(Server(*script))
        return started[-1]

    yield start
    for server in started:
        server.close()


def ask(wire: Wire, server: Server) -> int:
    return wire.ask(server.address, RequestCode.GET_BROKER_CLUSTER_INFO).code


def test_a_connection_that_died_is_not_used_again(wire: Wire, serve: Serve) -> None:
    server = serve((HANG_UP,), (ANSWER,))

    with pytest.raises(ConnectionLost):
        ask(wire, server)

    assert ask(wire, server) == ResponseCode.SUCCESS


def test_a_kept_connection_that_was_closed_is_made_anew(wire: Wire, serve: Serve) -> None:
    server = serve((ANSWER, HANG_UP), (ANSWER,))

    assert [ask(wire, server), ask(wire, server)] == [ResponseCode.SUCCESS] * 2


def test_a_connection_that_dies_twice_is_not_asked_a_third_time(wire: Wire, serve: Serve) -> None:
    server = serve((ANSWER, HANG_UP), (HANG_UP,), (ANSWER,))
    ask(wire, server)

    with pytest.raises(ConnectionLost):
        ask(wire, server)

    assert ask(wire, server) == ResponseCode.SUCCESS


def test_a_server_without_tls_is_said_to_be_one(serve: Serve) -> None:
    """OpenSSL has its own numbers of errors: 8 is not "Exec format error"."""
    server = serve((HANG_UP,))
    secured = Wire(Connecting(("127.0.0.1:1",), timeout_ms=2_000, tls=(("tls", "true"),)))

    with pytest.raises(Unreachable, match="TLS failed"):
        ask(secured, server)


class Hanging(Wire):
    """Name servers that answer, refuse, or hang, without sockets; ``asked`` are whom it asked."""

    def __init__(self, *addresses: str, hanging: set[str]) -> None:
        super().__init__(Connecting(addresses))
        self.hanging = hanging
        self.is_refused = False
        self.asked: list[str] = []

    def ask(
        self, address: str, code: RequestCode, header: Any = None, body: bytes = b"", **_: Any
    ) -> Reply:
        self.asked.append(address)
        if address in self.hanging:
            raise RequestTimeout(address, 3_000)
        if self.is_refused:
            raise NotFound("topic", "orders")
        return Reply(command.Command(code=0, opaque=0, flag=1), b"")


def look(wire: Wire) -> None:
    wire.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)


def test_a_name_server_that_hangs_is_waited_for_once() -> None:
    wire = Hanging("a:1", "b:1", "c:1", hanging={"a:1"})

    for _ in range(3):
        look(wire)

    assert wire.asked == ["a:1", "b:1", "b:1", "b:1"]


def test_a_name_server_that_refuses_has_answered() -> None:
    wire = Hanging("a:1", "b:1", hanging={"a:1"})
    wire.is_refused = True

    for _ in range(2):
        with pytest.raises(NotFound):
            look(wire)

    assert wire.asked == ["a:1", "b:1", "b:1"]


def test_all_name_servers_are_asked_before_none_is_there() -> None:
    wire = Hanging("a:1", "b:1", "c:1", hanging={"a:1"})
    look(wire)
    wire.hanging = {"b:1", "c:1"}

    look(wire)
    wire.hanging = {"a:1", "b:1", "c:1"}

    assert wire.asked == ["a:1", "b:1", "b:1", "c:1", "a:1"]
    with pytest.raises(Unreachable, match="is any name server running there"):
        look(wire)
    assert sorted(wire.asked[5:]) == ["a:1", "b:1", "c:1"]
