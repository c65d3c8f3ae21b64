"""Dialling."""

import asyncio
import socket
from pathlib import Path

import pytest

from cometmq.errors import SettingsError, Unreachable
from cometmq.remoting.client import connect, split_address
from cometmq.remoting.config import TlsClientSettings
from cometmq.remoting.routes import Answer, Routes
from tests.unit.remoting.kit import (
    ECHO,
    LOOPBACK,
    FakeTransport,
    address_of,
    channel_on,
    raw_peer,
    request,
    serving,
)


async def test_nobody_listening_is_said_with_the_address() -> None:
    with socket.socket() as unused:
        unused.bind((LOOPBACK, 0))
        address = f"{LOOPBACK}:{unused.getsockname()[1]}"

        with pytest.raises(Unreachable) as caught:
            await connect(address)

    assert caught.value.address == address
    assert caught.value.reason == "Connection refused"


async def test_connecting_takes_no_longer_than_it_may() -> None:
    """A listener whose queue is full lets further connections hang."""
    loop = asyncio.get_running_loop()
    with socket.create_server((LOOPBACK, 0), backlog=0) as full:
        address = full.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        begun = loop.time()

        with pytest.raises(Unreachable, match="no connection within 50 ms"):
            await connect(f"{LOOPBACK}:{address[1]}", timeout_ms=50)

        assert loop.time() - begun < 2
        for filler in fillers:
            filler.close()


async def test_agreeing_on_tls_takes_no_longer_than_it_may() -> None:
    with socket.create_server((LOOPBACK, 0)) as silent:
        address = f"{LOOPBACK}:{silent.getsockname()[1]}"

        with pytest.raises(Unreachable, match="no connection within 50 ms"):
            await connect(address, timeout_ms=50, tls=TlsClientSettings(is_enabled=True))


async def test_a_connection_that_was_given_up_is_closed() -> None:
    async with serving() as server:
        connecting = asyncio.ensure_future(
            connect(address_of(server), tls=TlsClientSettings(is_enabled=True))
        )
        while not server.channels:
            await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting

        while server.channels:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "broker",
        ":9876",
        "broker:",
        "broker:http",
        "broker:70000",
        "broker:-1",
        "b:²",
        "b:" + "9" * 5000,
    ],
)
async def test_what_is_no_address_is_refused_with_advice(address: str) -> None:
    with pytest.raises(Unreachable) as caught:
        await connect(address)

    assert caught.value.next_step == "write it as host:port"


@pytest.mark.parametrize("host", ["a" * 70 + ".example", "two\0parts"])
async def test_a_name_no_host_can_have_is_unreachable(host: str) -> None:
    with pytest.raises(Unreachable):
        await connect(f"{host}:9876")


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        ("broker-1.example:10911", ("broker-1.example", 10911)),
        ("[::1]:9876", ("::1", 9876)),
    ],
)
def test_an_address_is_split_at_its_port(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


async def test_a_certificate_that_cannot_be_read_is_a_matter_of_settings() -> None:
    async with serving() as server:
        with pytest.raises(SettingsError, match=r"tls\.client\.trustCertPath"):
            await connect(
                address_of(server),
                tls=TlsClientSettings(is_enabled=True, trust_cert_path=Path("/nowhere.pem")),
            )

        assert server.channels == frozenset()


async def test_a_client_serves_what_its_server_asks() -> None:
    routes = Routes()
    routes.add(ECHO, lambda channel, command: Answer(body=b"client"))
    async with serving() as server:
        channel = await connect(address_of(server), routes)
        await channel.request(ECHO, timeout_ms=5_000)
        (back,) = server.channels

        got = await back.request(ECHO, timeout_ms=5_000)
        channel.close()

    assert got.body == b"client"


async def test_both_ends_know_each_others_address() -> None:
    async with serving() as server, raw_peer(server) as peer:
        await peer.send(request(ECHO))
        await peer.command()
        (channel,) = server.channels

        assert channel.peer == f"127.0.0.1:{peer.port}"
        assert channel.local == address_of(server)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (("::ffff:10.1.2.3", 9876, 0, 0), "10.1.2.3:9876"),
        (("::1", 9876, 0, 0), "[::1]:9876"),
        (None, "?"),
    ],
)
async def test_addresses_are_shown_as_people_write_them(name: object, shown: str) -> None:
    class Transport(FakeTransport):
        def get_extra_info(self, key: str, default: object = None) -> object:
            return name

    channel = channel_on(Transport())

    assert channel.peer == shown
    channel.connection_lost(None)


async def test_whoever_dialled_is_told_when_the_connection_ends() -> None:
    ended: list[str] = []
    async with serving() as server:
        channel = await connect(address_of(server), on_closed=lambda one: ended.append(one.peer))
        assert ended == []
        peer = channel.peer

    while not ended:
        await asyncio.sleep(0.001)
    assert ended == [peer]
