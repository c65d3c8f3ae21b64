"""Requests and answers between two real ends on loopback, or on a fake transport."""

import asyncio
import gc
import struct
import weakref

import pytest

from cometmq.codec.codes import ResponseCode
from cometmq.codec.command import Command
from cometmq.errors import (
    ConnectionLost,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
    TooManyRequests,
)
from cometmq.model.limits import FRAME_BYTES_MAX, PENDING_REQUESTS_MAX
from cometmq.remoting.channel import Channel
from cometmq.remoting.link import LINGER_SECONDS
from cometmq.remoting.routes import Answer, Routes
from cometmq.remoting.tls import TlsDoor
from tests.unit.remoting.certificates import Certificates
from tests.unit.remoting.kit import (
    ECHO,
    SLOW,
    FakeTransport,
    address_of,
    answer,
    channel_on,
    dialled,
    echo_routes,
    raw_peer,
    request,
    serving,
    warnings_in,
)
from tests.unit.remoting.secure import door_of

MIB = 1024 * 1024


def silent_routes() -> Routes:
    """Echoes one code and never answers the other."""
    routes = echo_routes()
    routes.add(SLOW, lambda channel, command: None)
    return routes


async def test_many_requests_at_once_get_their_own_answers() -> None:
    async with serving() as server, dialled(server) as channel:
        asked = [channel.request(ECHO, body=b"%d" % n, timeout_ms=5_000) for n in range(500)]

        answers = await asyncio.gather(*asked)

        assert [got.body for got in answers] == [b"%d" % n for n in range(500)]
        assert channel.peer == address_of(server)
        assert {other.peer for other in server.channels} == {channel.local}


async def test_answers_overtake_each_other() -> None:
    gate = asyncio.Event()

    async def wait(channel: Channel, command: Command) -> Answer:
        await gate.wait()
        return Answer(body=b"slow")

    routes = echo_routes()
    routes.add(SLOW, wait)
    async with serving(routes) as server, dialled(server) as channel:
        slow = asyncio.ensure_future(channel.request(SLOW, timeout_ms=5_000))
        quick = await channel.request(ECHO, body=b"quick", timeout_ms=5_000)
        assert not slow.done()
        gate.set()

        assert (quick.body, (await slow).body) == (b"quick", b"slow")


async def test_a_server_may_ask_its_client_while_the_client_waits() -> None:
    """As when a broker relays a question: the answer comes on the connection that asks."""

    async def relay(channel: Channel, command: Command) -> Answer:
        got = await channel.request(ECHO, body=command.body, timeout_ms=5_000)
        return Answer(body=b"client says " + got.body)

    routes, client_routes = Routes(), Routes()
    routes.add(SLOW, relay)
    client_routes.add(ECHO, lambda channel, command: Answer(body=command.body.upper()))
    async with serving(routes) as server, dialled(server, client_routes) as channel:
        asked = [channel.request(SLOW, body=b"q%d" % n, timeout_ms=5_000) for n in range(20)]

        answers = await asyncio.gather(*asked)

    assert [got.body for got in answers] == [b"client says Q%d" % n for n in range(20)]


async def test_what_is_told_one_way_arrives_and_is_not_answered() -> None:
    told: list[Command] = []
    routes = echo_routes()

    def note(channel: Channel, command: Command) -> Answer:
        told.append(command)
        return Answer()

    routes.add(SLOW, note)
    async with serving(routes) as server, dialled(server) as channel:
        channel.oneway(SLOW, body=b"by the way")
        got = await channel.request(ECHO, timeout_ms=5_000)

    assert [(command.body, command.is_oneway) for command in told] == [(b"by the way", True)]
    assert got.opaque != told[0].opaque


@pytest.mark.slow
async def test_big_bodies_pass_in_both_directions() -> None:
    body = bytes(range(256)) * (15 * MIB // 256)
    async with serving() as server, dialled(server) as channel:
        got = await channel.request(ECHO, body=body, timeout_ms=20_000)

        assert got.body == body


async def test_each_request_has_its_own_deadline() -> None:
    async with serving(silent_routes()) as server, dialled(server) as channel:
        loop = asyncio.get_running_loop()
        begun = loop.time()

        late = asyncio.ensure_future(channel.request(SLOW, timeout_ms=60_000))
        with pytest.raises(RequestTimeout) as caught:
            await channel.request(SLOW, timeout_ms=30)
        waited = loop.time() - begun
        got = await channel.request(ECHO, body=b"goes on", timeout_ms=5_000)

        assert (caught.value.address, caught.value.timeout_ms) == (address_of(server), 30)
        assert 0.029 < waited < 5
        assert got.body == b"goes on"
        assert not late.done()
        late.cancel()


@pytest.mark.parametrize("timeout_ms", [0, 1])
async def test_no_time_is_a_deadline_too(timeout_ms: int) -> None:
    channel = channel_on(FakeTransport())

    for _ in range(5):
        with pytest.raises(RequestTimeout):
            await channel.request(ECHO, timeout_ms=timeout_ms)
    channel.connection_lost(None)


async def test_deadlines_pass_whatever_the_order_they_were_set_in() -> None:
    channel = channel_on(FakeTransport())

    asked = [channel.request(ECHO, timeout_ms=ms) for ms in (30, 10, 20, 10, 1)]
    got = await asyncio.gather(*asked, return_exceptions=True)

    assert [type(error) for error in got] == [RequestTimeout] * 5
    channel.connection_lost(None)


async def test_an_answer_after_the_deadline_is_dropped_and_hits_nobody() -> None:
    transport = FakeTransport()
    channel = channel_on(transport)
    with pytest.raises(RequestTimeout):
        await channel.request(ECHO, timeout_ms=1)
    late = transport.commands()[0].opaque

    asked = asyncio.ensure_future(channel.request(ECHO, timeout_ms=5_000))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    channel.data_received(answer(late, body=b"late"))
    await asyncio.sleep(0)
    assert not asked.done()
    channel.data_received(answer(transport.commands()[1].opaque, body=b"in time"))

    assert (await asked).body == b"in time"
    channel.connection_lost(None)


async def test_a_request_given_up_by_its_asker_is_forgotten() -> None:
    async with serving(silent_routes()) as server, dialled(server) as channel:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await channel.request(SLOW, timeout_ms=60_000)

        assert (await channel.request(ECHO, body=b"b", timeout_ms=5_000)).body == b"b"


async def test_everyone_who_waits_learns_that_the_connection_is_lost() -> None:
    async with serving(silent_routes()) as server, dialled(server) as channel:
        asked = [asyncio.ensure_future(channel.request(SLOW, timeout_ms=60_000)) for _ in "123"]
        await channel.request(ECHO, timeout_ms=5_000)

        for other in server.channels:
            other.close()
        got = await asyncio.gather(*asked, return_exceptions=True)

        assert [str(error) for error in got] == [
            f"connection to {address_of(server)} lost: closed by the peer"
        ] * 3
        assert len(set(map(id, got))) == 3, "each has an exception of its own"
        assert not channel.is_open
        with pytest.raises(ConnectionLost, match="closed by the peer"):
            await channel.request(ECHO, timeout_ms=5_000)


@pytest.mark.slow
async def test_only_so_many_requests_may_wait_for_an_answer() -> None:
    channel = channel_on(FakeTransport())
    for _ in range(PENDING_REQUESTS_MAX):
        channel._connection.ask((asyncio.get_running_loop().create_future(), 1), 1e9)

    with pytest.raises(TooManyRequests) as caught:
        await channel.request(ECHO, timeout_ms=5_000)

    assert caught.value.limit == PENDING_REQUESTS_MAX
    channel._connection.close()
    channel.connection_lost(None)


async def test_a_request_that_fits_no_frame_is_refused_and_leaves_nothing_behind() -> None:
    transport = FakeTransport()
    channel = channel_on(transport)

    with pytest.raises(LocalProtocolError, match="above the limit"):
        await channel.request(ECHO, body=bytes(FRAME_BYTES_MAX), timeout_ms=5_000)

    assert transport.writes == []
    assert channel._connection.pending_count == 0
    channel.connection_lost(None)


async def test_what_is_waiting_is_written_before_a_connection_closes() -> None:
    async with serving() as server, raw_peer(server) as peer:
        await peer.send(request(ECHO, 1))
        assert (await peer.command()).opaque == 1
        (channel,) = server.channels

        channel.oneway(ECHO, body=b"last words")
        channel.close()
        channel.oneway(ECHO, body=b"too late")
        channel.close()

        assert (await peer.command()).body == b"last words"
        assert await peer.until_closed() == b""


async def test_a_peer_that_has_said_all_still_gets_its_answers() -> None:
    """It shuts its sending side and reads on, as a script with netcat does."""
    async with serving() as server, raw_peer(server) as peer:
        peer.transport.write(request(ECHO, 1, bytes(MIB)))
        peer.transport.write_eof()

        assert (await peer.command()).body == bytes(MIB)
        assert await peer.until_closed() == b""


async def test_handlers_of_a_peer_that_has_gone_are_cancelled() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(channel: Channel, command: Command) -> Answer:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return Answer()

    routes = Routes()
    routes.add(SLOW, wait)
    async with serving(routes) as server:
        async with raw_peer(server) as peer:
            await peer.send(request(SLOW))
            await begun.wait()

        await ended.wait()


async def test_a_handler_that_never_began_leaves_nothing_behind() -> None:
    """Python would warn of a coroutine that nobody awaited."""
    began: list[str] = []

    async def handle(channel: Channel, command: Command) -> Answer:
        began.append("yes")
        return Answer()

    routes = Routes()
    routes.add(SLOW, handle)
    channel = channel_on(FakeTransport(), routes)

    channel.data_received(request(SLOW))
    channel.connection_lost(ConnectionResetError("reset"))
    await asyncio.wait(channel.handlers)
    gc.collect()

    assert began == []


BROKEN = b'{"code":10,"x":Infinity}'
BROKEN_FRAME = struct.pack(">ii", 4 + len(BROKEN) + MIB, len(BROKEN)) + BROKEN + bytes(MIB)

READS = {
    "a part of a frame": [request(ECHO) + request(ECHO)[:10]],
    "a broken frame": [BROKEN_FRAME],
    "a broken frame in pieces": [BROKEN_FRAME[:70_000], BROKEN_FRAME[70_000:]],
    "a broken frame behind a good one": [request(ECHO) + BROKEN_FRAME],
    "a size that cannot be": [b"\xff" * 8],
    "a hello in TLS, which is off": [b"\x16" + bytes(MIB)],
    "a request that fails": [request(SLOW, body=bytes(MIB))],
}


@pytest.mark.parametrize("reads", READS.values(), ids=[name.replace(" ", "-") for name in READS])
async def test_a_channel_that_has_ended_is_freed_at_once(reads: list[bytes]) -> None:
    """No cycles: a thousand closed connections must not wait for the garbage collector."""
    assert is_freed(reads, TlsDoor())


async def test_a_channel_that_was_broken_off_in_tls_is_freed_at_once(
    certificates: Certificates,
) -> None:
    assert is_freed([b"\x16" + b"garbage" * 10, bytes(MIB)], door_of(certificates))


def is_freed(reads: list[bytes], door: TlsDoor) -> bool:
    """Whether nothing keeps a channel that has got these reads and was lost."""
    routes = echo_routes()
    routes.add(SLOW, _fail)
    channel = channel_on(FakeTransport(), routes, door=door)
    gone = weakref.ref(channel)
    gc.disable()
    try:
        for data in reads:
            channel.data_received(data)
        channel.connection_lost(None)
        del channel
        return gone() is None
    finally:
        gc.enable()


def _fail(channel: Channel, command: Command) -> Answer:
    raise RemoteProtocolError("no such thing")


async def test_what_a_failed_request_was_about_is_freed_at_once() -> None:
    """It may be a large message, and a client may have many that fail."""
    channel = channel_on(FakeTransport(), silent_routes())
    held: list[weakref.ref[Routes]] = []

    async def ask() -> None:
        message = Routes()
        held.append(weakref.ref(message))
        await channel.request(SLOW, timeout_ms=5_000)

    asking = asyncio.ensure_future(ask())
    await asyncio.sleep(0)
    gc.disable()
    try:
        channel.connection_lost(None)
        with pytest.raises(ConnectionLost):
            await asking
        del asking
        await asyncio.sleep(0)  # until then the loop holds the task by which it woke us

        assert held[0]() is None
    finally:
        gc.enable()


async def test_a_busy_connection_is_never_idle_and_a_silent_one_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    transport = FakeTransport()
    channel = channel_on(transport)
    now = asyncio.get_running_loop().time()

    channel.check(now + 119)
    assert not transport.is_closing()
    channel.check(now + 121)

    assert transport.is_closing()
    assert not transport.is_aborted
    assert warnings_in(caplog) == []
    channel.connection_lost(None)


async def test_a_closed_connection_is_not_kept_for_a_peer_that_does_not_read() -> None:
    transport = FakeTransport()
    channel = channel_on(transport)
    transport.unsent_bytes = 100
    now = asyncio.get_running_loop().time()

    channel.close()
    channel.check(now + LINGER_SECONDS - 1)
    assert transport.is_closing()
    assert not transport.is_aborted

    channel.check(now + LINGER_SECONDS + 1)
    assert transport.is_aborted
    channel.connection_lost(None)


async def test_a_connection_closed_by_the_peer_with_answers_unread_is_not_kept_either() -> None:
    transport = FakeTransport()
    channel = channel_on(transport)
    transport.unsent_bytes = 100

    channel.eof_received()
    channel.check(asyncio.get_running_loop().time() + LINGER_SECONDS + 1)

    assert transport.is_aborted
    channel.connection_lost(None)


async def test_a_connection_is_dropped_once_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    transport = FakeTransport()
    channel = channel_on(transport)

    channel.close()
    channel.drop("it is enough")
    channel.drop("really")
    channel.connection_lost(None)
    channel.drop("gone already")

    assert transport.is_aborted
    assert warnings_in(caplog) == ["peer=10.0.0.1:5001 connection dropped: it is enough"]


async def test_handlers_may_remember_things_about_their_peer() -> None:
    def count(channel: Channel, command: Command) -> Answer:
        channel.attributes["asked"] = channel.attributes.get("asked", 0) + 1
        return Answer(remark=str(channel.attributes["asked"]))

    routes = Routes()
    routes.add(ECHO, count)
    async with serving(routes) as server, dialled(server) as one, dialled(server) as other:
        remarks = [
            (await channel.request(ECHO, timeout_ms=5_000)).remark for channel in (one, one, other)
        ]

    assert remarks == ["1", "2", "1"]


async def test_answers_with_an_error_code_are_answers() -> None:
    async with serving() as server, dialled(server) as channel:
        got = await channel.request(SLOW, timeout_ms=5_000)

    assert got.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
