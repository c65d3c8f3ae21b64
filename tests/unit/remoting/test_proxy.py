"""The proxy that misbehaves on demand: does it, and what do a client and a server make of it?"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from cometmq.codec.codes import RequestCode
from cometmq.codec.command import Command
from cometmq.errors import ConnectionLost, RequestTimeout, Unreachable
from cometmq.remoting.channel import Channel
from cometmq.remoting.client import connect
from cometmq.remoting.routes import Answer
from cometmq.remoting.server import Server
from cometmq.testing import FaultyProxy
from tests.unit.remoting.kit import (
    ECHO,
    LOOPBACK,
    SLOW,
    address_of,
    echo_routes,
    is_answering,
    serving,
    warnings_in,
)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def two_ends() -> AsyncIterator[tuple[FaultyProxy, Streams, Streams]]:
    """A proxy, and both ends of a connection through it."""
    accepted: asyncio.Queue[Streams] = asyncio.Queue()
    listener = await asyncio.start_server(lambda *pair: accepted.put_nowait(pair), LOOPBACK, 0)
    target = f"{LOOPBACK}:{listener.sockets[0].getsockname()[1]}"
    async with FaultyProxy(target) as proxy:
        host, _, port = proxy.address.rpartition(":")
        client = await asyncio.open_connection(host, int(port))
        server = await accepted.get()
        try:
            yield proxy, client, server
        finally:
            for _, writer in (client, server):
                writer.transport.abort()
            listener.close()


async def arrives(reader: asyncio.StreamReader, seconds: float = 0.05) -> bytes | None:
    """What comes within a while; None for nothing."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await reader.read(65536)
    return None


async def test_without_faults_everything_passes_in_both_directions() -> None:
    async with two_ends() as (proxy, client, server):
        client[1].write(b"question")
        server[1].write(b"answer")

        assert await server[0].readexactly(8) == b"question"
        assert await client[0].readexactly(6) == b"answer"
        assert [lane.passed_bytes for lane in proxy.lanes] == [8, 6]
        assert proxy.connection_count == 1


async def test_an_end_that_is_shut_passes_and_the_other_direction_goes_on() -> None:
    async with two_ends() as (_, client, server):
        client[1].write_eof()
        assert await server[0].read() == b""

        server[1].write(b"still here")
        server[1].write_eof()

        assert await client[0].read() == b"still here"


async def test_a_delay_holds_back_and_loses_nothing() -> None:
    async with two_ends() as (proxy, client, server):
        proxy.to_server.delay_seconds = 0.05
        loop = asyncio.get_running_loop()
        begun = loop.time()

        client[1].write(b"late")

        assert await server[0].readexactly(4) == b"late"
        assert loop.time() - begun >= 0.045


async def test_pieces_arrive_one_by_one() -> None:
    async with two_ends() as (proxy, client, server):
        proxy.to_client.piece_bytes = 1

        server[1].write(b"abcdefgh")

        reads: list[bytes] = []
        while len(b"".join(reads)) < 8:
            reads.append(await client[0].read(100))
        assert b"".join(reads) == b"abcdefgh"
        assert len(reads) > 2, "not necessarily one by one: the system may join what is not read"


async def test_a_thin_line_takes_its_time() -> None:
    async with two_ends() as (proxy, client, server):
        proxy.to_server.bytes_per_second = 10_000
        proxy.to_server.piece_bytes = 100
        loop = asyncio.get_running_loop()
        begun = loop.time()

        client[1].write(bytes(600))
        await server[0].readexactly(600)

        assert loop.time() - begun >= 0.045


async def test_copies_arrive_as_often_as_wanted() -> None:
    async with two_ends() as (proxy, client, server):
        proxy.to_server.copies = 3

        client[1].write(b"ab")

        assert await server[0].readexactly(6) == b"ababab"


async def test_a_cut_after_some_bytes_lets_exactly_these_through() -> None:
    async with two_ends() as (proxy, client, server):
        proxy.to_server.cut_after(5)

        client[1].write(b"123")
        assert await server[0].readexactly(3) == b"123"
        client[1].write(b"45678")

        assert await server[0].read() == b"45"
        assert await client[0].read() == b""


async def test_a_cut_ends_both_sides_now() -> None:
    async with two_ends() as (proxy, client, server):
        proxy.cut()

        assert await server[0].read() == b""
        assert await client[0].read() == b""
        assert proxy.connection_count == 0


async def test_a_stalled_lane_keeps_everything_back_even_the_end() -> None:
    async with two_ends() as (proxy, client, server):
        proxy.to_server.stall()

        client[1].write(b"lost?")
        client[1].write_eof()
        server[1].write(b"the other direction works")

        assert await client[0].readexactly(25) == b"the other direction works"
        assert await arrives(server[0]) is None
        proxy.to_server.resume()
        assert await server[0].read() == b"lost?"


async def test_new_connections_can_be_refused() -> None:
    async with two_ends() as (proxy, _, _):
        proxy.is_refusing = True
        host, _, port = proxy.address.rpartition(":")

        reader, writer = await asyncio.open_connection(host, int(port))

        assert await reader.read() == b""
        writer.close()


async def test_with_nobody_behind_it_the_connection_just_ends() -> None:
    async with serving() as server:
        address = address_of(server)
    async with FaultyProxy(address) as proxy:
        channel = await connect(proxy.address)

        with pytest.raises(ConnectionLost):
            await channel.request(ECHO, timeout_ms=5_000)


# A client and a server with a bad line between them


@contextlib.asynccontextmanager
async def through_proxy(
    served: list[bytes] | None = None,
) -> AsyncIterator[tuple[Server, FaultyProxy, Channel]]:
    """A channel to a server that notes what it was told (with ``SLOW``)."""
    routes = echo_routes()
    routes.add(RequestCode.HEART_BEAT, lambda channel, command: None)

    def note(channel: Channel, command: Command) -> Answer:
        assert served is not None
        served.append(command.body)
        return Answer(body=b"noted")

    routes.add(SLOW, note)
    async with serving(routes) as server, FaultyProxy(address_of(server)) as proxy:
        channel = await connect(proxy.address)
        try:
            yield server, proxy, channel
        finally:
            channel.close()


@pytest.mark.parametrize("piece_bytes", [1, 7])
async def test_requests_and_answers_pass_in_pieces(piece_bytes: int) -> None:
    async with through_proxy() as (_, proxy, channel):
        for lane in proxy.lanes:
            lane.piece_bytes = piece_bytes

        asked = [channel.request(ECHO, body=b"%d" % n, timeout_ms=20_000) for n in range(5)]

        assert [got.body for got in await asyncio.gather(*asked)] == [b"%d" % n for n in range(5)]


async def test_a_delay_longer_than_the_deadline_is_a_timeout_and_the_late_answer_harmless() -> None:
    async with through_proxy() as (_, proxy, channel):
        proxy.to_client.delay_seconds = 0.05
        with pytest.raises(RequestTimeout):
            await channel.request(ECHO, body=b"late", timeout_ms=10)

        proxy.to_client.delay_seconds = 0
        got = await channel.request(ECHO, body=b"in time", timeout_ms=5_000)

        assert got.body == b"in time"


async def test_a_thin_line_only_makes_it_slow() -> None:
    async with through_proxy() as (_, proxy, channel):
        proxy.to_client.bytes_per_second = 1_000_000
        proxy.to_client.piece_bytes = 5_000

        got = await channel.request(ECHO, body=bytes(40_000), timeout_ms=10_000)

        assert got.body == bytes(40_000)


async def test_a_cut_in_the_middle_of_an_answer_is_a_lost_connection() -> None:
    served: list[bytes] = []
    async with through_proxy(served) as (server, proxy, channel):
        proxy.to_client.cut_after(10)

        with pytest.raises(ConnectionLost):
            await channel.request(SLOW, body=b"done all the same", timeout_ms=5_000)

        assert served == [b"done all the same"]
        assert await is_answering(server)


async def test_a_cut_in_the_middle_of_a_request_is_not_carried_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    served: list[bytes] = []
    async with through_proxy(served) as (server, proxy, channel):
        proxy.to_server.cut_after(20)

        with pytest.raises(ConnectionLost):
            await channel.request(SLOW, body=b"never", timeout_ms=5_000)

        assert served == []
        assert await is_answering(server)
        assert warnings_in(caplog) == []


async def test_a_cut_ends_every_request_that_waits_and_a_new_connection_works() -> None:
    async with through_proxy() as (_, proxy, channel):
        waiting = [
            asyncio.ensure_future(channel.request(RequestCode.HEART_BEAT, timeout_ms=60_000))
            for _ in range(10)
        ]
        await channel.request(ECHO, timeout_ms=5_000)

        proxy.cut()
        got = await asyncio.gather(*waiting, return_exceptions=True)
        again = await connect(proxy.address)

        assert [type(error) for error in got] == [ConnectionLost] * 10
        assert (await again.request(ECHO, body=b"x", timeout_ms=5_000)).body == b"x"
        again.close()


@pytest.mark.parametrize("lane", ["to_server", "to_client"])
async def test_a_half_open_connection_is_noticed_by_the_deadline_only(lane: str) -> None:
    async with through_proxy() as (_, proxy, channel):
        getattr(proxy, lane).stall()

        with pytest.raises(RequestTimeout):
            await channel.request(ECHO, timeout_ms=20)
        assert channel.is_open
        getattr(proxy, lane).resume()

        assert (await channel.request(ECHO, body=b"again", timeout_ms=5_000)).body == b"again"


async def test_duplicated_requests_are_carried_out_twice_and_the_second_answer_is_dropped() -> None:
    """No protocol of ours promises more; whoever needs exactly once brings a key."""
    served: list[bytes] = []
    async with through_proxy(served) as (_, proxy, channel):
        proxy.to_server.copies = 2
        first = await channel.request(SLOW, body=b"1", timeout_ms=5_000)
        second = await channel.request(SLOW, body=b"2", timeout_ms=5_000)

        assert (first.body, second.body) == (b"noted", b"noted")
        assert served[:3] == [b"1", b"1", b"2"]


async def test_duplicated_answers_are_dropped() -> None:
    async with through_proxy() as (_, proxy, channel):
        proxy.to_client.copies = 3

        for number in range(5):
            got = await channel.request(ECHO, body=b"%d" % number, timeout_ms=5_000)
            assert got.body == b"%d" % number


async def test_a_proxy_that_refuses_is_a_lost_connection() -> None:
    async with through_proxy() as (_, proxy, _):
        proxy.is_refusing = True

        with pytest.raises((ConnectionLost, Unreachable)):
            await (await connect(proxy.address)).request(ECHO, timeout_ms=5_000)
