"""Listening, stopping, and the limits that need a clock."""

import asyncio
import socket
from typing import ClassVar

import pytest

from cometmq.codec.codes import ResponseCode
from cometmq.codec.command import Command
from cometmq.errors import ConnectionLost, Unreachable
from cometmq.remoting.channel import Channel
from cometmq.remoting.client import connect
from cometmq.remoting.config import ChannelSettings, ServerSettings
from cometmq.remoting.routes import Answer, Routes
from cometmq.remoting.server import PortInUse, Server
from tests.interop.ports import free_port_triple
from tests.unit.remoting.kit import (
    ECHO,
    LOOPBACK,
    SLOW,
    address_of,
    dialled,
    echo_routes,
    is_answering,
    raw_peer,
    request,
    serving,
    warnings_in,
)


class Gated:
    """Routes with a handler that waits until it may finish."""

    def __init__(self) -> None:
        self.routes = echo_routes()
        self.routes.add(SLOW, self._wait)
        self.has_begun = asyncio.Event()
        self.may_finish = asyncio.Event()
        self.finished = 0

    async def _wait(self, channel: Channel, command: Command) -> Answer:
        self.has_begun.set()
        await self.may_finish.wait()
        self.finished += 1
        return Answer(body=b"finished")


async def test_stopping_lets_requests_in_work_finish() -> None:
    gated = Gated()
    server = Server(gated.routes)
    await server.start(LOOPBACK, 0)
    channel = await connect(address_of(server))
    asked = asyncio.ensure_future(channel.request(SLOW, timeout_ms=10_000))
    await gated.has_begun.wait()

    stopping = asyncio.ensure_future(server.stop())
    await asyncio.sleep(0)
    gated.may_finish.set()
    await stopping

    assert (await asked).body == b"finished"
    assert server.channels == frozenset()


async def test_while_stopping_new_requests_are_not_carried_out() -> None:
    gated = Gated()
    server = Server(gated.routes)
    await server.start(LOOPBACK, 0)
    channel = await connect(address_of(server))
    asked = asyncio.ensure_future(channel.request(SLOW, timeout_ms=10_000))
    await gated.has_begun.wait()

    stopping = asyncio.ensure_future(server.stop())
    await asyncio.sleep(0)
    late = asyncio.ensure_future(channel.request(SLOW, timeout_ms=10_000))
    gated.may_finish.set()
    await stopping

    assert (await asked).body == b"finished"
    with pytest.raises(ConnectionLost):
        await late
    assert gated.finished == 1


async def test_stopping_refuses_new_connections() -> None:
    gated = Gated()
    server = Server(gated.routes)
    await server.start(LOOPBACK, 0)
    address = address_of(server)
    channel = await connect(address)
    asked = asyncio.ensure_future(channel.request(SLOW, timeout_ms=10_000))
    await gated.has_begun.wait()

    stopping = asyncio.ensure_future(server.stop())
    await asyncio.sleep(0)
    with pytest.raises(Unreachable):
        await connect(address)
    gated.may_finish.set()
    await stopping

    assert (await asked).body == b"finished"


async def test_stopping_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    gated = Gated()
    server = Server(gated.routes, settings=ServerSettings(drain_seconds_max=0))
    await server.start(LOOPBACK, 0)
    channel = await connect(address_of(server))
    asked = asyncio.ensure_future(channel.request(SLOW, timeout_ms=10_000))
    await gated.has_begun.wait()

    await server.stop()

    with pytest.raises(ConnectionLost):
        await asked
    assert gated.finished == 0
    assert warnings_in(caplog) == ["1 requests still in work are given up"]


@pytest.mark.slow
async def test_stopping_does_not_wait_for_a_peer_that_does_not_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    routes = Routes()
    routes.add(ECHO, lambda channel, command: Answer(body=bytes(15 * 1024 * 1024)))
    server = Server(routes)
    await server.start(LOOPBACK, 0)
    loop = asyncio.get_running_loop()
    async with raw_peer(server) as peer:
        peer.transport.pause_reading()  # type: ignore[attr-defined]
        await peer.send(request(ECHO))
        while not any(other._outbox.sent_bytes for other in server.channels):
            await asyncio.sleep(0.001)

        begun = loop.time()
        await server.stop()

        assert loop.time() - begun < 3
        assert [line for line in warnings_in(caplog) if "does not read" in line]


async def test_a_server_can_be_stopped_at_any_time() -> None:
    server = Server(echo_routes())
    await server.stop()
    await server.stop()

    other = Server(echo_routes())
    await other.start(LOOPBACK, 0)
    address = address_of(other)
    connecting = [asyncio.ensure_future(connect(address)) for _ in range(20)]
    await asyncio.sleep(0)
    await other.stop()
    got = await asyncio.gather(*connecting, return_exceptions=True)
    await asyncio.sleep(0.01)

    for channel in got:
        assert isinstance(channel, Unreachable | Channel)
        if isinstance(channel, Channel):
            with pytest.raises(ConnectionLost):
                await channel.request(ECHO, timeout_ms=2_000)
    assert other.channels == frozenset()


async def test_a_busy_port_is_an_error_that_names_it() -> None:
    async with serving() as server:
        port = server.ports[0]

        with pytest.raises(PortInUse) as caught:
            await Server(echo_routes()).start(LOOPBACK, port)

    assert (caught.value.host, caught.value.port) == (LOOPBACK, port)
    assert str(caught.value) == (
        f"port {port} on 127.0.0.1 is in use; stop the program that listens there, or choose"
        " another port"
    )


async def test_the_vip_port_is_two_below_and_serves_the_same() -> None:
    port = free_port_triple()
    server = Server(echo_routes(), settings=ServerSettings(is_vip_enabled=True))
    await server.start(LOOPBACK, port)
    try:
        channel = await connect(f"{LOOPBACK}:{port - 2}")
        got = await channel.request(ECHO, body=b"fast", timeout_ms=5_000)
        channel.close()

        assert server.ports == [port, port - 2]
        assert got.body == b"fast"
    finally:
        await server.stop()


async def test_without_being_asked_there_is_no_vip_port() -> None:
    port = free_port_triple()
    server = Server(echo_routes())
    await server.start(LOOPBACK, port)
    try:
        with pytest.raises(Unreachable):
            await connect(f"{LOOPBACK}:{port - 2}")
    finally:
        await server.stop()


async def test_a_busy_vip_port_is_named_and_the_main_port_is_free_again() -> None:
    port = free_port_triple()
    with socket.create_server((LOOPBACK, port - 2)):
        server = Server(echo_routes(), settings=ServerSettings(is_vip_enabled=True))
        with pytest.raises(PortInUse) as caught:
            await server.start(LOOPBACK, port)

    assert caught.value.port == port - 2
    await asyncio.sleep(0)
    again = Server(echo_routes())
    await again.start(LOOPBACK, port)
    await again.stop()


async def test_when_any_port_will_do_a_busy_vip_port_is_no_error() -> None:
    class Unlucky(Server):
        """The port two below the first that the system chooses is taken."""

        chosen: ClassVar[list[int]] = []

        async def _listen(self, host: str, port: int) -> None:
            if port:
                self.chosen.append(port)
                if len(self.chosen) == 1:
                    raise PortInUse(host, port)
            await super()._listen(host, port)

    server = Unlucky(echo_routes(), settings=ServerSettings(is_vip_enabled=True))

    await server.start(LOOPBACK, 0)

    try:
        *unlucky, chosen = server.chosen
        assert unlucky, "and on a busy machine others may be taken, too"
        assert server.ports == [chosen + 2, chosen]
    finally:
        await server.stop()


async def test_whoever_ends_is_reported_once() -> None:
    ended: list[str] = []
    async with serving(on_closed=lambda channel: ended.append(channel.peer)) as server:
        async with dialled(server) as one, dialled(server) as other:
            for channel in (one, other):
                await channel.request(ECHO, timeout_ms=5_000)
            names = {one.local, other.local}
            assert {channel.peer for channel in server.channels} == names
        while server.channels:
            await asyncio.sleep(0.001)

    assert sorted(ended) == sorted(names)


async def test_a_hundred_connections_are_served_side_by_side() -> None:
    async with serving() as server:
        channels = await asyncio.gather(*(connect(address_of(server)) for _ in range(100)))
        asked = [
            channel.request(ECHO, body=b"%d" % number, timeout_ms=10_000)
            for number, channel in enumerate(channels)
        ]

        answers = await asyncio.gather(*asked)

        assert [got.body for got in answers] == [b"%d" % number for number in range(100)]
        for channel in channels:
            channel.close()


@pytest.mark.slow
async def test_a_server_closes_an_idle_connection_and_keeps_a_busy_one() -> None:
    settings = ChannelSettings(idle_seconds_max=1)
    async with (
        serving(channel_settings=settings) as server,
        raw_peer(server) as idle,
        dialled(server) as busy,
    ):
        loop = asyncio.get_running_loop()
        begun = loop.time()
        closed = asyncio.ensure_future(idle.until_closed())
        while not closed.done():
            await busy.request(ECHO, timeout_ms=5_000)
            await asyncio.sleep(0.05)

        assert 1 <= loop.time() - begun < 2.5
        assert (await busy.request(ECHO, timeout_ms=5_000)).code == ResponseCode.SUCCESS


@pytest.mark.slow
async def test_a_client_closes_an_idle_connection_too() -> None:
    async with serving() as server:
        channel = await connect(address_of(server), settings=ChannelSettings(idle_seconds_max=1))
        await channel.request(ECHO, timeout_ms=5_000)

        while channel.is_open:
            await asyncio.sleep(0.05)

        with pytest.raises(ConnectionLost, match="idle for 1 s"):
            await channel.request(ECHO, timeout_ms=5_000)
        assert await is_answering(server)
