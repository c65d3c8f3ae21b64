"""Reads of several connections are handled together, then answered together."""

import asyncio
import time

import pytest

from cometmq.codec.command import Command
from cometmq.remoting.channel import Channel
from cometmq.remoting.config import ChannelSettings
from cometmq.remoting.outbox import Outbox
from cometmq.remoting.routes import Answer, Routes
from cometmq.remoting.turn import ANSWER_BYTES_MAX, READ_BYTES_MAX, Turn
from tests.unit.remoting.kit import (
    ECHO,
    FakeTransport,
    answer,
    commands_in,
    raw_peer,
    request,
    serving,
    warnings_in,
)


class Diary:
    """What happened, in its order."""

    def __init__(self) -> None:
        self.lines: list[str] = []


class NotedTransport(FakeTransport):
    """A transport that notes when it is written to."""

    def __init__(self, name: str, diary: Diary) -> None:
        super().__init__()
        self._name = name
        self._diary = diary

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._diary.lines.append(f"{self._name} writes {len(data)}")
        super().write(data)


class Reader:
    """Answers every read with so many bytes; the read ``bad`` is more than it can handle."""

    def __init__(self, name: str, turn: Turn, diary: Diary, answer_bytes: int = 1) -> None:
        self.name = name
        self._turn = turn
        self._diary = diary
        self._answer = bytes(answer_bytes)
        self.dropped = ""
        self.use(NotedTransport(name, diary))

    def use(self, transport: FakeTransport) -> None:
        loop = asyncio.get_running_loop()
        self._outbox = Outbox(loop, transport, bytes_max=1 << 30, drop=self.drop)

    def read(self, data: bytes) -> None:
        if self._turn.alone is self:
            self.handle(data)
        else:
            self._turn.add(self, data)

    def handle(self, data: bytes) -> None:
        self._diary.lines.append(f"{self.name} handles {data[:9].decode()}")
        if data == b"bad":
            raise ValueError("a bug")
        self._outbox.is_held = True
        self._outbox.put(self._answer)
        if self._turn.is_handling:
            self._turn.hold(self, self._outbox)
        else:
            self._outbox.is_held = False
            self._outbox.flush()

    def drop(self, reason: str) -> None:
        self.dropped = reason


async def test_all_reads_of_a_turn_are_handled_and_then_all_are_answered() -> None:
    turn, diary = Turn(), Diary()
    a, b = Reader("a", turn, diary), Reader("b", turn, diary)

    a.read(b"1")
    b.read(b"2")
    a.read(b"3")
    assert diary.lines == []
    await asyncio.sleep(0)

    handled = ["a handles 1", "b handles 2", "a handles 3"]
    assert diary.lines == [*handled, "a writes 2", "b writes 1"]


async def test_a_connection_that_is_alone_waits_for_nobody() -> None:
    turn, diary = Turn(), Diary()
    alone = Reader("a", turn, diary)
    alone.read(b"1")
    await asyncio.sleep(0)
    diary.lines.clear()

    alone.read(b"2")

    assert diary.lines == ["a handles 2", "a writes 1"]


async def test_a_read_that_cannot_be_handled_costs_its_own_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turn, diary = Turn(), Diary()
    a, b, c = (Reader(name, turn, diary) for name in "abc")

    for reader, data in ((a, b"1"), (b, b"bad"), (c, b"3")):
        reader.read(data)
    await asyncio.sleep(0)

    assert diary.lines[-2:] == ["a writes 1", "c writes 1"]
    assert (a.dropped, c.dropped) == ("", "")
    assert b.dropped == "its last read could not be handled"
    assert len(warnings_in(caplog)) == 1


async def test_much_is_not_gathered() -> None:
    turn, diary = Turn(), Diary()
    a, b = Reader("a", turn, diary), Reader("b", turn, diary)

    a.read(b"1")
    b.read(b"2" * READ_BYTES_MAX)

    assert diary.lines[:2] == ["a handles 1", "b handles 222222222"]


async def test_large_answers_are_written_before_more_are_made() -> None:
    turn, diary = Turn(), Diary()
    readers = [Reader(name, turn, diary, ANSWER_BYTES_MAX // 2) for name in "abcd"]

    for reader in readers:
        reader.read(b"1")
    await asyncio.sleep(0)

    kinds = [line.split()[1] for line in diary.lines]
    assert kinds == [*["handles"] * 3, *["writes"] * 3, "handles", "writes"]


async def test_the_one_that_read_last_is_forgotten_when_it_has_ended() -> None:
    turn, diary = Turn(), Diary()
    a = Reader("a", turn, diary)
    a.read(b"1")
    await asyncio.sleep(0)
    diary.lines.clear()

    turn.forget(a)

    assert turn.alone is None
    a.read(b"2")
    assert not diary.lines, "it is as good as new"


def noting_routes(noted: list[bytes]) -> Routes:
    def note(channel: Channel, command: Command) -> Answer:
        noted.append(command.body)
        return Answer(body=command.body)

    routes = Routes()
    routes.add(ECHO, note)
    return routes


class TornTransport(FakeTransport):
    """A transport that cannot be written to any more."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        raise RuntimeError("torn")


async def test_answers_that_cannot_be_written_do_not_keep_those_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turn, diary = Turn(), Diary()
    a, b, c = (Reader(name, turn, diary) for name in "abc")
    b.use(TornTransport())

    for reader in (a, b, c):
        reader.read(b"1")
    await asyncio.sleep(0)

    assert diary.lines[-2:] == ["a writes 1", "c writes 1"]
    assert (a.dropped, c.dropped) == ("", "")
    assert b.dropped == "its answers could not be written"
    assert len(warnings_in(caplog)) == 1


@pytest.mark.parametrize("how", ["close", "eof", "lost"])
async def test_what_was_read_before_a_connection_ends_is_handled(how: str) -> None:
    noted: list[bytes] = []
    turn, transport = Turn(), FakeTransport()
    channel = Channel(noting_routes(noted), ChannelSettings(), turn=turn)
    channel.connection_made(transport)

    channel.data_received(request(ECHO, 1, b"last words"))
    assert noted == []
    if how == "close":
        channel.close()
    elif how == "eof":
        channel.eof_received()
    else:
        transport.abort()
    channel.connection_lost(None)

    assert noted == [b"last words"]
    assert len(transport.writes) == (how != "lost"), "it is answered if it can be"


async def test_what_was_read_before_a_server_stops_is_carried_out() -> None:
    noted: list[bytes] = []
    channel = Channel(noting_routes(noted), ChannelSettings(), turn=Turn())
    channel.connection_made(FakeTransport())

    channel.data_received(request(ECHO, 1, b"before"))
    channel.stop_serving()
    channel.data_received(request(ECHO, 2, b"after"))
    await asyncio.sleep(0)

    assert noted == [b"before"]


async def test_a_peer_whose_frame_was_read_in_time_is_not_blamed_for_the_wait() -> None:
    """The loop may have stood still, and its timers come first."""
    transport = FakeTransport()
    channel = Channel(noting_routes([]), ChannelSettings(frame_seconds_max=1), turn=Turn())
    channel.connection_made(transport)
    frame = request(ECHO, 1, b"slow")
    channel.data_received(frame[:20])
    await asyncio.sleep(0)
    other = Channel(noting_routes([]), ChannelSettings(), turn=channel._turn)
    other.connection_made(FakeTransport())
    other.data_received(request(ECHO, 1, b"so that the first one is not alone"))
    await asyncio.sleep(0)

    channel.data_received(frame[20:])
    channel.check(asyncio.get_running_loop().time() + 2)

    assert not transport.is_aborted
    assert len(transport.writes) == 1


async def test_an_answer_that_was_read_is_not_given_up() -> None:
    transport = FakeTransport()
    channel = Channel(Routes(), ChannelSettings(), turn=Turn())
    channel.connection_made(transport)
    asking = asyncio.ensure_future(channel.request(ECHO, timeout_ms=1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    (asked,) = commands_in(b"".join(transport.writes))

    channel.data_received(answer(asked.opaque, body=b"in time"))
    time.sleep(0.01)  # noqa: ASYNC251  # the loop stands still
    channel._expire()

    assert (await asking).body == b"in time"


async def test_one_way_requests_of_peers_that_leave_at_once_are_carried_out() -> None:
    noted: list[bytes] = []
    async with serving(noting_routes(noted)) as server:
        for number in range(20):
            async with raw_peer(server) as peer:
                await peer.send(request(ECHO, number, b"%d" % number, oneway=True))
                peer.transport.write_eof()
                assert await peer.until_closed() == b""

    assert noted == [b"%d" % number for number in range(20)]


async def test_many_peers_get_their_own_answers_in_their_order() -> None:
    async with serving() as server, asyncio.TaskGroup() as tasks:

        async def ask(name: int) -> None:
            async with raw_peer(server) as peer:
                for turn in range(20):
                    wanted = [b"%d %d %d" % (name, turn, number) for number in range(name % 4 + 1)]
                    await peer.send(b"".join(request(ECHO, 1, body) for body in wanted))
                    assert [got.body for got in await peer.commands(len(wanted))] == wanted

        for name in range(30):
            tasks.create_task(ask(name))


async def test_reads_of_a_broken_peer_do_not_keep_answers_of_others() -> None:
    async with serving() as server, raw_peer(server) as good, raw_peer(server) as bad:
        await asyncio.gather(
            good.send(request(ECHO, 1, b"one")), bad.send(request(ECHO, 2, b"two") + b"\xff" * 8)
        )

        assert (await good.command()).body == b"one"
        assert [got.body for got in commands_in(await bad.until_closed())] == [b"two"]
