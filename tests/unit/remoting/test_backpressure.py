"""A peer that asks and does not read: throttled, then dropped, while others notice nothing."""

import asyncio

import pytest

from cometmq.codec.command import Command
from cometmq.remoting.channel import Channel
from cometmq.remoting.config import ChannelSettings, TlsServerSettings
from cometmq.remoting.routes import Answer, Routes
from cometmq.remoting.server import Server
from cometmq.remoting.tls import server_door
from tests.unit.remoting.kit import (
    ECHO,
    HUGE,
    FakeTransport,
    RawPeer,
    channel_on,
    dialled,
    echo_routes,
    raw_peer,
    request,
    serving,
    warnings_in,
)

MIB = 1024 * 1024


class HugeAnswers:
    """Routes with answers of a megabyte, and how many were asked for."""

    def __init__(self) -> None:
        self.routes = echo_routes()
        self.routes.add(HUGE, self._answer)
        self.count = 0

    def _answer(self, channel: Channel, command: Command) -> Answer:
        self.count += 1
        return Answer(body=bytes(MIB))


async def ask_until_throttled(peer: RawPeer, huge: HugeAnswers, server: Server) -> int:
    """Ask one by one and never read, until the server does not take requests any more."""
    peer.transport.pause_reading()  # type: ignore[attr-defined]
    for asked in range(1, 200):
        peer.transport.write(request(HUGE))
        for _ in range(200):
            if huge.count >= asked:
                break
            await asyncio.sleep(0.001)
        else:
            return asked
    raise AssertionError("it was never throttled")


@pytest.mark.slow
async def test_a_peer_that_does_not_read_is_not_read_either_and_others_are_served() -> None:
    huge = HugeAnswers()
    async with (
        serving(huge.routes) as server,
        raw_peer(server) as peer,
        dialled(server) as other,
    ):
        asked = await ask_until_throttled(peer, huge, server)

        for _ in range(50):
            peer.transport.write(request(HUGE))
        got = await other.request(ECHO, body=b"as usual", timeout_ms=5_000)
        assert got.body == b"as usual"
        assert huge.count == asked - 1, "not one more was taken"

        peer.transport.resume_reading()  # type: ignore[attr-defined]
        answers = await peer.commands(asked + 50)

        assert [len(got.body) for got in answers] == [MIB] * (asked + 50)
        assert huge.count == asked + 50


@pytest.mark.slow
async def test_a_peer_that_never_reads_is_dropped_after_its_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    huge = HugeAnswers()
    settings = ChannelSettings(stalled_seconds_max=1)
    async with (
        serving(huge.routes, channel_settings=settings) as server,
        raw_peer(server) as peer,
        dialled(server) as other,
    ):
        peer.transport.pause_reading()  # type: ignore[attr-defined]
        await peer.send(request(HUGE) * 20)
        slowest = 0.0
        loop = asyncio.get_running_loop()
        while len(server.channels) > 1 or not huge.count:
            begun = loop.time()
            await other.request(ECHO, timeout_ms=5_000)
            slowest = max(slowest, loop.time() - begun)
            await asyncio.sleep(0.01)

        assert slowest < 0.5
        (line,) = warnings_in(caplog)
        assert line.startswith(f"peer=127.0.0.1:{peer.port} connection dropped: ")
        assert line.endswith("left answers unread for 1 s")


@pytest.mark.slow
async def test_a_peer_with_too_much_unread_is_dropped_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    huge = HugeAnswers()
    settings = ChannelSettings(write_buffer_bytes_max=16 * MIB)
    async with (
        serving(huge.routes, channel_settings=settings) as server,
        raw_peer(server) as peer,
        dialled(server) as other,
    ):
        await other.request(ECHO, timeout_ms=5_000)
        peer.transport.pause_reading()  # type: ignore[attr-defined]
        await peer.send(request(HUGE) * 100)
        while len(server.channels) > 1:
            await asyncio.sleep(0.001)

        (line,) = warnings_in(caplog)
        assert f"peer=127.0.0.1:{peer.port} connection dropped: has 1" in line
        assert line.endswith("bytes of answers unread")
        assert (await other.request(ECHO, body=b"x", timeout_ms=5_000)).body == b"x"


async def test_a_listening_side_stops_reading_while_much_is_unsent() -> None:
    transport = FakeTransport()
    channel = channel_on(transport, door=server_door(TlsServerSettings()))

    channel.pause_writing()
    assert transport.is_reading_paused
    channel.resume_writing()
    assert not transport.is_reading_paused
    channel.connection_lost(None)


async def test_a_dialling_side_goes_on_reading_and_says_that_it_is_stalled() -> None:
    """A peer that cannot get rid of its answers would take no more requests: both would wait."""
    transport = FakeTransport()
    channel = channel_on(transport)

    channel.pause_writing()
    waiting = asyncio.ensure_future(channel.flowing())
    await asyncio.sleep(0)

    assert not transport.is_reading_paused
    assert channel.is_stalled
    assert not waiting.done()
    channel.resume_writing()
    await waiting
    assert not channel.is_stalled
    channel.connection_lost(None)


async def test_whoever_waits_for_a_stalled_peer_is_woken_when_the_connection_ends() -> None:
    channel = channel_on(FakeTransport())
    channel.pause_writing()

    channel.connection_lost(None)
    await channel.flowing()

    assert not channel.is_open


async def test_the_high_water_mark_is_a_setting_and_zero_means_the_default() -> None:
    marks = []
    for high in (0, 123_456):
        transport = FakeTransport()
        channel_on(transport, settings=ChannelSettings(write_buffer_bytes_high=high)).close()
        marks.append(transport.high)

    assert marks == [MIB, 123_456]


async def test_time_runs_out_for_a_peer_that_takes_nothing_and_not_for_a_slow_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    transport = FakeTransport()
    channel = channel_on(transport)
    now = asyncio.get_running_loop().time()
    channel.data_received(request(ECHO, body=bytes(MIB)))
    transport.unsent_bytes = MIB
    channel.pause_writing()

    for step in range(1, 10):
        transport.unsent_bytes -= 1000
        channel.check(now + 20 * step)
    assert not transport.is_closing()
    channel.check(now + 180 + 29)
    assert not transport.is_closing()
    channel.check(now + 180 + 31)

    assert transport.is_aborted
    assert len(warnings_in(caplog)) == 1
    channel.connection_lost(None)


@pytest.mark.slow
async def test_answers_that_come_later_count_too(caplog: pytest.LogCaptureFixture) -> None:
    """Reading is paused, but handlers that wait may still add to what is unsent."""
    go = asyncio.Event()

    async def wait(channel: Channel, command: Command) -> Answer:
        await go.wait()
        return Answer(body=bytes(MIB))

    routes = Routes()
    routes.add(HUGE, wait)
    settings = ChannelSettings(write_buffer_bytes_max=8 * MIB)
    async with serving(routes, channel_settings=settings) as server, raw_peer(server) as peer:
        peer.transport.pause_reading()  # type: ignore[attr-defined]
        await peer.send(request(HUGE) * 60)
        while sum(len(channel.handlers) for channel in server.channels) < 60:
            await asyncio.sleep(0.001)
        go.set()
        while server.channels:
            await asyncio.sleep(0.001)

    assert len(warnings_in(caplog)) == 1
