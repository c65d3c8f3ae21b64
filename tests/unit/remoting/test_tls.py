"""TLS and plain peers on one port; certificates are made by the ``openssl`` program."""

import asyncio

import pytest

from cometmq.codec.command import Command
from cometmq.errors import ConnectionLost, Unreachable
from cometmq.remoting.channel import Channel
from cometmq.remoting.client import connect
from cometmq.remoting.config import (
    ChannelSettings,
    ClientAuth,
    TlsClientSettings,
    TlsMode,
    TlsServerSettings,
)
from cometmq.remoting.routes import Answer, Routes
from cometmq.remoting.server import Server
from tests.unit.remoting.certificates import Certificates
from tests.unit.remoting.kit import (
    ECHO,
    FakeTransport,
    RawPeer,
    address_of,
    channel_on,
    commands_in,
    dialled,
    raw_peer,
    request,
    serving,
    warnings_in,
)
from tests.unit.remoting.secure import TRUSTING, client_stream, door_of, server_settings

MIB = 1024 * 1024


async def body_over(channel: Channel, body: bytes) -> bytes:
    try:
        return (await channel.request(ECHO, body=body, timeout_ms=20_000)).body
    finally:
        channel.close()


async def test_a_permissive_server_serves_both_on_one_port(certificates: Certificates) -> None:
    async with serving(tls=server_settings(certificates)) as server:
        plain = await connect(address_of(server))
        secure = await connect(address_of(server), tls=TRUSTING)

        assert (plain.is_tls, secure.is_tls) == (False, True)
        assert await body_over(secure, b"secure") == b"secure"
        assert await body_over(plain, b"plain") == b"plain"


async def test_an_enforcing_server_closes_plain_clients(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tls=server_settings(certificates, TlsMode.ENFORCING)) as server:
        secure = await connect(address_of(server), tls=TRUSTING)
        plain = await connect(address_of(server))
        with pytest.raises(ConnectionLost):
            await body_over(plain, b"plain")

        assert await body_over(secure, b"secure") == b"secure"
        (line,) = warnings_in(caplog)
        assert line.endswith(
            "connection closed: the peer does not speak TLS and it is required here"
        )


@pytest.mark.parametrize("has_certificate", [True, False])
async def test_a_server_without_tls_closes_tls_clients(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, has_certificate: bool
) -> None:
    settings = server_settings(certificates, TlsMode.DISABLED) if has_certificate else None
    async with serving(tls=settings) as server, dialled(server) as plain:
        with pytest.raises(Unreachable):
            await connect(address_of(server), tls=TRUSTING)

        assert (await plain.request(ECHO, body=b"x", timeout_ms=5_000)).body == b"x"
        (line,) = warnings_in(caplog)
        assert line.endswith("connection closed: the peer speaks TLS and TLS is off here")


@pytest.mark.slow
async def test_big_bodies_pass_through_tls_in_both_directions(certificates: Certificates) -> None:
    body = bytes(range(256)) * (8 * MIB // 256)
    async with serving(tls=server_settings(certificates)) as server:
        secure = await connect(address_of(server), tls=TRUSTING)

        assert await body_over(secure, body) == body


async def test_many_small_requests_pass_through_tls(certificates: Certificates) -> None:
    async with serving(tls=server_settings(certificates)) as server:
        secure = await connect(address_of(server), tls=TRUSTING)
        asked = [secure.request(ECHO, body=b"%d" % n, timeout_ms=5_000) for n in range(300)]

        assert [got.body for got in await asyncio.gather(*asked)] == [b"%d" % n for n in range(300)]
        secure.close()


def client_settings(certificates: Certificates, who: str) -> TlsClientSettings:
    pair = {"nobody": None, "client": certificates.client, "stranger": certificates.stranger}[who]
    return TlsClientSettings(
        is_enabled=True,
        trust_cert_path=certificates.authority,
        cert_path=pair and pair.certificate,
        key_path=pair and pair.key,
    )


@pytest.mark.parametrize(
    ("auth", "who", "known_as"),
    [
        (ClientAuth.NONE, "nobody", None),
        (ClientAuth.NONE, "client", None),
        (ClientAuth.OPTIONAL, "nobody", None),
        (ClientAuth.OPTIONAL, "client", "client"),
        (ClientAuth.REQUIRE, "client", "client"),
    ],
)
async def test_a_client_with_the_right_certificate_is_known(
    certificates: Certificates, auth: ClientAuth, who: str, known_as: str | None
) -> None:
    async with serving(tls=server_settings(certificates, auth=auth)) as server:
        secure = await connect(address_of(server), tls=client_settings(certificates, who))
        await secure.request(ECHO, timeout_ms=5_000)
        (channel,) = server.channels

        shown = channel.peer_certificate
        assert (shown and shown["subject"]) == (known_as and ((("commonName", known_as),),))
        server_certificate = secure.peer_certificate
        assert server_certificate is not None
        assert server_certificate["subject"] == ((("commonName", "server"),),)
        secure.close()


async def one_request(server: Server, tls: TlsClientSettings) -> bytes:
    return await body_over(await connect(address_of(server), tls=tls), b"x")


@pytest.mark.parametrize(
    ("auth", "who"),
    [
        (ClientAuth.OPTIONAL, "stranger"),
        (ClientAuth.REQUIRE, "stranger"),
        (ClientAuth.REQUIRE, "nobody"),
    ],
)
async def test_a_client_with_the_wrong_certificate_is_refused(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, auth: ClientAuth, who: str
) -> None:
    """In TLS 1.3 a client is done before the server judges it, so it may learn of it late."""
    async with serving(tls=server_settings(certificates, auth=auth)) as server:
        with pytest.raises((Unreachable, ConnectionLost)):
            await one_request(server, client_settings(certificates, who))
        while server.channels:
            await asyncio.sleep(0.001)

        lines = [line for line in warnings_in(caplog) if f"peer={address_of(server)}" not in line]
        assert len(lines) == 1
        assert "connection closed: TLS with the peer failed: " in lines[0]


async def test_a_server_whose_certificate_is_not_trusted_is_unreachable(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    settings = TlsServerSettings(
        cert_path=certificates.stranger.certificate, key_path=certificates.stranger.key
    )
    async with serving(tls=settings) as server:
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            await connect(address_of(server), tls=client_settings(certificates, "nobody"))

        assert [line for line in warnings_in(caplog) if f"peer={address_of(server)}" in line] == []


class SecurePeer:
    """A peer that speaks TLS by hand."""

    def __init__(self, peer: RawPeer) -> None:
        self.peer = peer
        self.stream = client_stream()

    async def agree(self, piece_bytes: int = 4096) -> None:
        data = self.stream.begin()
        while not self.stream.is_open:
            await self.send_in_pieces(data, piece_bytes)
            data = self.stream.receive(await self.peer.read()).cipher
        await self.send_in_pieces(data, piece_bytes)

    async def send_in_pieces(self, data: bytes, piece_bytes: int) -> None:
        for begin in range(0, len(data), piece_bytes):
            await self.peer.send(data[begin : begin + piece_bytes])
            await asyncio.sleep(0)

    async def ask(self, body: bytes, piece_bytes: int = 4096) -> bytes:
        await self.send_in_pieces(self.stream.send(request(ECHO, 1, body)), piece_bytes)
        plain = b""
        while not plain:
            plain = self.stream.receive(await self.peer.read()).plain
        (answer,) = commands_in(plain)
        return answer.body


async def test_a_client_may_speak_tls_byte_by_byte(certificates: Certificates) -> None:
    async with serving(tls=server_settings(certificates)) as server, raw_peer(server) as raw:
        peer = SecurePeer(raw)

        await peer.agree(piece_bytes=1)

        assert await peer.ask(b"a question", piece_bytes=1) == b"a question"


async def test_a_client_that_says_goodbye_is_closed_without_a_word(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tls=server_settings(certificates)) as server, raw_peer(server) as raw:
        peer = SecurePeer(raw)
        await peer.agree()
        assert await peer.ask(b"x") == b"x"

        await raw.send(peer.stream.end())
        rest = peer.stream.receive(await raw.until_closed())

        assert rest.is_over, "it was told goodbye too"
        assert warnings_in(caplog) == []


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16",
        b"\x16" + b"garbage" * 10,
        b"\x16\x03\x01\x02\x00" + bytes(512),
        b"\x16\x03\x03\xff\xff" + bytes(100),
    ],
)
async def test_garbage_that_begins_like_tls_costs_its_sender_the_connection(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, garbage: bytes
) -> None:
    async with serving(tls=server_settings(certificates)) as server, raw_peer(server) as raw:
        await raw.send(garbage)
        await raw.send(b"more" * 200)
        await raw.until_closed()

        (line,) = warnings_in(caplog)
        assert "connection closed: TLS with the peer failed: " in line
        secure = await connect(address_of(server), tls=TRUSTING)
        assert await body_over(secure, b"others") == b"others"


async def test_a_broken_stream_ends_in_order_even_if_something_waits_to_be_sent(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing more can be said on it but the alert; a bug here would reach the loop."""
    routes = Routes()

    def notify_and_break(channel: Channel, command: Command) -> Answer:
        channel.oneway(ECHO, None, b"a notice that waits")
        channel.data_received(b"\x17\x03\x03\x00\x20" + bytes(32))
        return Answer()

    routes.add(ECHO, notify_and_break)
    async with serving(routes, tls=server_settings(certificates)) as server:
        async with raw_peer(server) as raw:
            peer = SecurePeer(raw)
            await peer.agree()

            await raw.send(peer.stream.send(request(ECHO, 1)))
            told = await raw.until_closed()

        assert told[:1] == b"\x17", "the alert, encrypted"
        (line,) = warnings_in(caplog)
        assert "connection closed: TLS with the peer failed: " in line


async def test_garbage_inside_tls_costs_its_sender_the_connection_too(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tls=server_settings(certificates)) as server, raw_peer(server) as raw:
        peer = SecurePeer(raw)
        await peer.agree()

        await raw.send(peer.stream.send(b"\xff" * 8))
        await raw.until_closed()

        (line,) = warnings_in(caplog)
        assert "connection closed: frame length -1" in line


async def test_a_handshake_that_never_ends_is_bounded(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """Time is told to the channel here; a byte now and then does not help the peer."""
    transport = FakeTransport()
    channel = channel_on(transport, door=door_of(certificates))
    now = asyncio.get_running_loop().time()

    for second, byte in enumerate(client_stream().begin()[:50]):
        channel.data_received(bytes([byte]))
        channel.check(now + second)
    assert not channel.is_open
    assert not transport.is_closing()
    channel.check(now + 61)

    assert transport.is_aborted
    assert len(warnings_in(caplog)) == 1
    channel.connection_lost(None)


async def test_an_agreed_connection_is_not_held_to_the_time_of_its_handshake(
    certificates: Certificates,
) -> None:
    transport = FakeTransport()
    channel = channel_on(transport, door=door_of(certificates))
    client = client_stream()
    to_server = client.begin()
    while to_server:
        channel.data_received(to_server)
        to_server = client.receive(b"".join(transport.writes)).cipher
        transport.writes.clear()

    assert channel.is_open
    channel.check(asyncio.get_running_loop().time() + 100)
    assert not transport.is_closing()
    channel.connection_lost(None)


@pytest.mark.slow
async def test_a_slow_handshake_is_dropped(certificates: Certificates) -> None:
    settings = ChannelSettings(frame_seconds_max=1)
    async with (
        serving(tls=server_settings(certificates), channel_settings=settings) as server,
        raw_peer(server) as raw,
    ):
        loop = asyncio.get_running_loop()
        begun = loop.time()
        closed = asyncio.ensure_future(raw.until_closed())
        for byte in client_stream().begin():
            if closed.done():
                break
            raw.transport.write(bytes([byte]))
            await asyncio.sleep(0.02)

        assert closed.done()
        assert 1 <= loop.time() - begun < 3


async def test_nothing_is_said_to_a_peer_before_it_is_clear_what_it_speaks(
    certificates: Certificates,
) -> None:
    transport = FakeTransport()
    channel = channel_on(transport, door=door_of(certificates))

    channel.oneway(ECHO, body=b"in clear text?")
    await asyncio.sleep(0)
    with pytest.raises(ConnectionLost, match="not open yet"):
        await channel.request(ECHO, timeout_ms=5_000)

    assert transport.writes == []
    channel.connection_lost(None)
