"""Whatever a peer sends, it alone suffers, with one line in the log; everyone else is served."""

import asyncio
import random
import socket
import struct

import pytest

from cometmq.codec.command import Command, Serialization, encode
from cometmq.model.limits import FRAME_BYTES_MAX, PARTIAL_FRAMES_BYTES_MAX
from cometmq.remoting.channel import Channel
from cometmq.remoting.config import ChannelSettings, ServerSettings
from cometmq.remoting.routes import Answer, Routes
from tests.unit.remoting.kit import (
    ECHO,
    LOOPBACK,
    FakeTransport,
    bodies,
    channel_on,
    commands_in,
    dialled,
    is_answering,
    raw_peer,
    request,
    serving,
    warnings_in,
)

MIB = 1024 * 1024


def framed(header: bytes, body: bytes = b"", *, form: int = 0, header_bytes: int = -1) -> bytes:
    """A frame with any header, right or wrong."""
    announced = len(header) if header_bytes < 0 else header_bytes
    return struct.pack(">iI", 4 + len(header) + len(body), form << 24 | announced) + header + body


def json_header(text: str) -> bytes:
    return framed(text.encode())


BINARY = encode(Command(105, opaque=1, remark="remark", serialization=Serialization.ROCKETMQ))[8:]

BROKEN = {
    "text of another protocol": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "random bytes": random.Random(3).randbytes(64),
    "a length of nothing": struct.pack(">i", 0) + bytes(8),
    "a length too small": struct.pack(">i", 3) + bytes(8),
    "a negative length": struct.pack(">i", -1) + bytes(8),
    "the most negative length": struct.pack(">i", -(2**31)) + bytes(8),
    "a length above the limit": struct.pack(">i", FRAME_BYTES_MAX - 3) + bytes(8),
    "the largest length": struct.pack(">i", 2**31 - 1) + bytes(8),
    "a header longer than its frame": framed(b"{}", header_bytes=100),
    "the longest header": framed(b"{}", header_bytes=0xFFFFFF),
    "an unknown serialization": framed(b"{}", form=7),
    "a header of nothing": framed(b""),
    "a header that is no JSON": json_header("hello"),
    "a header that is an array": json_header("[]"),
    "a header cut short": json_header('{"code":105,"opaq'),
    "a code that is text": json_header('{"code":"many"}'),
    "a code that is missing": json_header('{"opaque":1}'),
    "an opaque that is a list": json_header('{"code":105,"opaque":[1]}'),
    "a flag beyond 32 bits": json_header('{"code":105,"flag":99999999999}'),
    "a header nested deeply": json_header('{"code":' + "[" * 5_000),
    "a binary header cut short": framed(BINARY[:12], form=1),
    "a binary remark beyond the header": framed(
        BINARY[:13] + struct.pack(">i", 9999) + BINARY[17:], form=1
    ),
    "a negative binary remark": framed(BINARY[:13] + struct.pack(">i", -5), form=1),
    "binary ext fields beyond the header": framed(BINARY[:-4] + struct.pack(">i", 500), form=1),
    "nothing of a binary header": framed(b"", form=1),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=[name.replace(" ", "-") for name in BROKEN])
async def test_a_broken_frame_costs_its_sender_the_connection_and_one_line(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as server, dialled(server) as other, raw_peer(server) as peer:
        await peer.send(data)

        assert await peer.until_closed() == b""
        assert (await other.request(ECHO, body=b"x", timeout_ms=5_000)).body == b"x"
        (line,) = warnings_in(caplog)
        assert line.startswith(f"peer=127.0.0.1:{peer.port} connection closed: ")
        assert len(server.channels) == 1


async def test_what_was_good_before_a_broken_frame_is_still_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server, raw_peer(server) as peer:
        await peer.send(request(ECHO, 1, b"one") + request(ECHO, 2, b"two") + b"\xff" * 8)

        assert bodies(commands_in(await peer.until_closed())) == [b"one", b"two"]
        assert len(warnings_in(caplog)) == 1


@pytest.mark.parametrize(
    "ext",
    ['"topic"', "[1,2]", '{"topic":{"deep":1}}', '{"topic":[1]}', '{"queueId":"many"}'],
)
async def test_ext_fields_of_the_wrong_type_cost_no_more_than_their_request(
    ext: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Java's decoder refuses some of these with the connection; so may we, but with one line."""

    def read(channel: Channel, command: Command) -> Answer:
        return Answer(remark=",".join(command.ext_fields))

    routes = Routes()
    routes.add(ECHO, read)
    async with serving(routes) as server, raw_peer(server) as peer:
        await peer.send(json_header(f'{{"code":105,"opaque":1,"extFields":{ext}}}'))
        await peer.send(b"\xff" * 8)  # so that the connection ends either way

        got = await peer.until_closed()

        assert [command.opaque for command in commands_in(got)] in ([], [1])
        assert len(warnings_in(caplog)) == 1


async def test_a_byte_at_a_time_is_slow_but_right(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as server, raw_peer(server) as peer:
        for byte in request(ECHO, 1, b"json") + request(ECHO, 2, b"binary", binary=True):
            await peer.send(bytes([byte]))
            await asyncio.sleep(0)

        assert bodies(await peer.commands(2)) == [b"json", b"binary"]
        assert warnings_in(caplog) == []


async def test_a_frame_limit_is_a_setting() -> None:
    settings = ChannelSettings(frame_bytes_max=2048)
    async with serving(channel_settings=settings) as server:
        async with raw_peer(server) as peer:
            await peer.send(request(ECHO, 1, bytes(1900)))
            assert len((await peer.command()).body) == 1900
            await peer.send(request(ECHO, 1, bytes(2048)))
            assert await peer.until_closed() == b""
        assert await is_answering(server)


async def test_a_frame_that_never_ends_costs_its_sender_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A byte now and then keeps no connection alive; time is told to the channel here."""
    transport = FakeTransport()
    channel = channel_on(transport)
    frame = request(ECHO, 1, b"body")
    now = asyncio.get_running_loop().time()

    for second, byte in enumerate(frame[:50]):
        channel.data_received(bytes([byte]))
        channel.check(now + second)
    assert not transport.is_closing()
    channel.check(now + 61)

    assert transport.is_aborted
    assert warnings_in(caplog) == [
        "peer=10.0.0.1:5001 connection dropped: took more than 60 s for one frame"
    ]
    channel.connection_lost(None)


@pytest.mark.slow
async def test_a_slow_loris_is_dropped_while_others_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = ChannelSettings(frame_seconds_max=1)
    async with (
        serving(channel_settings=settings) as server,
        raw_peer(server) as peer,
        dialled(server) as other,
    ):
        loop = asyncio.get_running_loop()
        begun = loop.time()
        closed = asyncio.ensure_future(peer.until_closed())
        for byte in request(ECHO, 1, bytes(1000)):
            if closed.done():
                break
            peer.transport.write(bytes([byte]))
            await other.request(ECHO, timeout_ms=5_000)
            await asyncio.sleep(0.02)

        assert closed.done()
        assert 1 <= loop.time() - begun < 3
        assert len(warnings_in(caplog)) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
async def test_a_storm_of_connections_that_close_at_once_passes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server:
        for number in range(1_000):
            with socket.socket() as storm:
                storm.setblocking(False)
                storm.connect_ex((LOOPBACK, server.ports[0]))
                if number % 2:  # half of them end with a reset
                    linger = struct.pack("ii", 1, 0)
                    storm.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            if number % 100 == 0:
                await asyncio.sleep(0)

        assert await is_answering(server)
        while server.channels:
            await asyncio.sleep(0.001)
        assert warnings_in(caplog) == []


async def test_incomplete_frames_of_all_connections_share_one_budget(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Three hold a little, one holds a lot: it is the one to go."""
    settings = ServerSettings(partial_frames_bytes_max=MIB)
    frame = request(ECHO, 1, bytes(700_000))
    async with (
        serving(settings=settings) as server,
        raw_peer(server) as one,
        raw_peer(server) as large,
        raw_peer(server) as other,
    ):
        for peer, size in ((one, 300_000), (large, 600_000), (other, 140_000)):
            before = server.partial_frames_bytes
            await peer.send(frame[:size])
            while server.partial_frames_bytes < before + size:
                await asyncio.sleep(0.001)
        assert server.partial_frames_bytes == 1_040_000

        await other.send(frame[140_000:160_000])
        assert await large.until_closed() == b""

        (line,) = warnings_in(caplog)
        assert f"peer=127.0.0.1:{large.port} connection dropped: holds 600000 bytes" in line
        assert server.partial_frames_bytes == 460_000
        await one.send(frame[300_000:])
        assert len((await one.command()).body) == 700_000
        assert await is_answering(server)


@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
async def test_a_thousand_hostile_connections_stay_within_the_budget(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each announces 16 MiB and sends a part; whoever holds most is closed first."""
    prefix = struct.pack(">iI", FRAME_BYTES_MAX - 4, 10)
    most = 0
    async with serving() as server:
        peers = []
        try:
            for number in range(1_000):
                peer = socket.create_connection((LOOPBACK, server.ports[0]))
                peer.setblocking(False)
                peer.send(prefix + bytes(64 * 1024 + number))
                peers.append(peer)
                await asyncio.sleep(0)
                most = max(most, server.partial_frames_bytes)
            assert await is_answering(server)
            held = server.partial_frames_bytes
            alive = len(server.channels)
        finally:
            for peer in peers:
                peer.close()

    assert most <= PARTIAL_FRAMES_BYTES_MAX
    assert held > 0.9 * PARTIAL_FRAMES_BYTES_MAX
    assert 600 < alive < 800
    dropped = [line for line in warnings_in(caplog) if "connection dropped: holds" in line]
    assert len(dropped) >= 200
