"""What becomes of a request on its way to its handler and back; the peer is a fake transport."""

import asyncio
import itertools
from collections.abc import Awaitable, Sequence

import pytest

from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command, Serialization
from cometmq.errors import BrokerError, RemoteProtocolError
from cometmq.model.limits import FRAME_BYTES_MAX, HANDLERS_IN_FLIGHT_MAX
from cometmq.remoting.channel import Channel
from cometmq.remoting.routes import Answer, Routes
from tests.unit.remoting.kit import (
    ECHO,
    SLOW,
    FakeTransport,
    answer,
    bodies,
    channel_on,
    echo_routes,
    request,
    warnings_in,
)


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport()


def only(transport: FakeTransport) -> Command:
    """The one answer that was written."""
    (command,) = transport.commands()
    return command


def failing(error: Exception) -> Routes:
    def fail(channel: Channel, command: Command) -> Answer:
        raise error

    routes = echo_routes()
    routes.add(SLOW, fail)
    return routes


async def test_a_read_with_many_requests_is_answered_with_one_write(
    transport: FakeTransport,
) -> None:
    channel = channel_on(transport)

    channel.data_received(b"".join(request(ECHO, n, b"%d" % n) for n in range(200)))

    assert len(transport.writes) == 1
    assert bodies(transport.commands()) == [b"%d" % n for n in range(200)]
    assert [command.opaque for command in transport.commands()] == list(range(200))


async def test_an_answer_is_in_the_serialization_of_its_request(transport: FakeTransport) -> None:
    channel = channel_on(transport)

    channel.data_received(request(ECHO, 1) + request(ECHO, 2, binary=True))

    first, second = transport.commands()
    assert (first.serialization, second.serialization) == (Serialization.JSON, 1)
    assert first.is_response
    assert second.is_response


async def test_a_batch_handler_gets_runs_of_its_code_in_the_order_received(
    transport: FakeTransport,
) -> None:
    batches: list[list[int]] = []

    def take(channel: Channel, commands: Sequence[Command]) -> None:
        batches.append([command.opaque for command in commands])
        for command in commands:
            channel.reply(command, Answer(body=b"batch"))

    routes = echo_routes()
    routes.add_batch(SLOW, take)
    channel = channel_on(transport, routes)

    codes = [SLOW, SLOW, ECHO, SLOW, SLOW, SLOW]
    channel.data_received(b"".join(request(code, n) for n, code in enumerate(codes)))

    assert batches == [[0, 1], [3, 4, 5]]
    assert len(transport.writes) == 1
    assert [command.opaque for command in transport.commands()] == [0, 1, 2, 3, 4, 5]


def usual_routes(seen: list[tuple[str, list[int]]], *, failing: str = "") -> Routes:
    """Routes on which what has the body ``usual`` is taken the short way."""

    def take(channel: Channel, commands: Sequence[Command], frames: list[bytes]) -> int:
        usual = list(itertools.takewhile(lambda command: command.body == b"usual", commands))
        seen.append(("short", [command.opaque for command in usual]))
        frames += [answer(command.opaque, body=b"short") for command in usual]
        if failing == "short":
            raise BrokerError(ResponseCode.SYSTEM_BUSY, "later")
        return len(usual)

    def handle(channel: Channel, commands: Sequence[Command]) -> None:
        seen.append(("long", [command.opaque for command in commands]))
        if failing == "long":
            raise BrokerError(ResponseCode.SYSTEM_BUSY, "later")
        for command in commands:
            channel.reply(command, Answer(body=b"long"))

    routes = echo_routes()
    routes.add_batch(SLOW, handle)
    routes.add_short_way(SLOW, take)
    return routes


async def test_a_short_way_takes_what_is_usual_and_leaves_the_rest_to_the_handler(
    transport: FakeTransport,
) -> None:
    seen: list[tuple[str, list[int]]] = []
    channel = channel_on(transport, usual_routes(seen))

    bodies = [b"usual", b"usual", b"odd", b"usual"]
    channel.data_received(b"".join(request(SLOW, n, body) for n, body in enumerate(bodies)))

    assert seen == [("short", [0, 1]), ("long", [2, 3])]
    got = {command.opaque: command.body for command in transport.commands()}
    assert got == {0: b"short", 1: b"short", 2: b"long", 3: b"long"}
    assert len(transport.writes) == 1


async def test_a_short_way_sees_commands_of_its_code_only_and_the_order_stays(
    transport: FakeTransport,
) -> None:
    seen: list[tuple[str, list[int]]] = []
    channel = channel_on(transport, usual_routes(seen))

    codes = [SLOW, ECHO, SLOW, SLOW, ECHO]
    channel.data_received(b"".join(request(code, n, b"usual") for n, code in enumerate(codes)))

    assert seen == [("short", [0]), ("short", [2, 3])]
    assert sorted(command.opaque for command in transport.commands()) == [0, 1, 2, 3, 4]
    assert len(transport.writes) == 1


async def test_a_short_way_that_raises_fails_its_run_and_answers_nothing_else(
    transport: FakeTransport,
) -> None:
    channel = channel_on(transport, usual_routes([], failing="short"))

    channel.data_received(request(SLOW, 1, b"usual") + request(SLOW, 2) + request(ECHO, 3))

    assert [(got.opaque, got.code) for got in transport.commands()] == [(1, 2), (2, 2), (3, 0)]


async def test_a_handler_that_raises_behind_a_short_way_fails_only_what_was_left(
    transport: FakeTransport,
) -> None:
    channel = channel_on(transport, usual_routes([], failing="long"))

    channel.data_received(request(SLOW, 1, b"usual") + request(SLOW, 2))

    assert {got.opaque: got.code for got in transport.commands()} == {1: 0, 2: 2}


async def test_a_gate_stands_before_short_ways_too(transport: FakeTransport) -> None:
    seen: list[tuple[str, list[int]]] = []
    routes = usual_routes(seen)
    routes.set_gate(lambda channel, command: Answer(16) if command.opaque == 1 else None)
    channel = channel_on(transport, routes)

    channel.data_received(request(SLOW, 1, b"usual") + request(SLOW, 2, b"usual"))

    assert seen == [("short", [2])]
    assert {got.opaque: got.code for got in transport.commands()} == {1: 16, 2: 0}


async def test_an_unknown_code_is_answered_as_java_answers_it(transport: FakeTransport) -> None:
    channel = channel_on(transport)

    channel.data_received(request(9999, 4))

    got = only(transport)
    assert (got.code, got.opaque) == (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 4)
    assert got.remark == " request type 9999 not supported"


async def test_a_handler_that_raises_is_an_error_answer_and_a_line_in_the_log(
    transport: FakeTransport, caplog: pytest.LogCaptureFixture
) -> None:
    channel = channel_on(transport, failing(ZeroDivisionError("by nothing")))

    channel.data_received(request(SLOW, 1) + request(ECHO, 2, b"goes on"))

    failed, served = transport.commands()
    assert (failed.opaque, failed.code) == (1, ResponseCode.SYSTEM_ERROR)
    assert failed.remark == "ZeroDivisionError: by nothing"
    assert (served.opaque, served.body) == (2, b"goes on")
    assert warnings_in(caplog) == ["request 11 failed"]


async def test_a_broker_error_is_its_own_code_and_remark(
    transport: FakeTransport, caplog: pytest.LogCaptureFixture
) -> None:
    channel = channel_on(transport, failing(BrokerError(ResponseCode.NO_PERMISSION, "not you")))

    channel.data_received(request(SLOW, 1))

    assert (only(transport).code, only(transport).remark) == (16, "not you")
    assert warnings_in(caplog) == []


async def test_a_header_that_cannot_be_read_is_the_peers_fault(
    transport: FakeTransport, caplog: pytest.LogCaptureFixture
) -> None:
    channel = channel_on(transport, failing(RemoteProtocolError("ext field 'topic' is missing")))

    channel.data_received(request(SLOW, 1))

    assert only(transport).code == ResponseCode.SYSTEM_ERROR
    assert only(transport).remark == "ext field 'topic' is missing"
    assert warnings_in(caplog) == []


async def test_an_answer_that_cannot_be_written_is_an_error_for_its_request_only(
    transport: FakeTransport, caplog: pytest.LogCaptureFixture
) -> None:
    """One answer in the middle of a batch; the others must not be answered twice."""

    def misbehave(channel: Channel, command: Command) -> Answer:
        return Answer(header="no header" if command.opaque == 2 else None)  # type: ignore[arg-type]

    routes = Routes()
    routes.add(ECHO, misbehave)
    channel = channel_on(transport, routes)

    channel.data_received(b"".join(request(ECHO, opaque) for opaque in (1, 2, 3)))

    assert [(got.opaque, got.code) for got in transport.commands()] == [(1, 0), (2, 1), (3, 0)]
    assert len(warnings_in(caplog)) == 1


async def test_a_batch_handler_that_raises_fails_its_run_and_no_more(
    transport: FakeTransport,
) -> None:
    def fail(channel: Channel, commands: Sequence[Command]) -> None:
        raise BrokerError(ResponseCode.SYSTEM_BUSY, "later")

    routes = echo_routes()
    routes.add_batch(SLOW, fail)
    channel = channel_on(transport, routes)

    channel.data_received(request(SLOW, 1) + request(SLOW, 2) + request(ECHO, 3))

    assert [(got.opaque, got.code) for got in transport.commands()] == [(1, 2), (2, 2), (3, 0)]


@pytest.mark.parametrize("code", [ECHO, SLOW, 9999])
async def test_a_one_way_request_is_never_answered_not_even_with_an_error(
    transport: FakeTransport, code: int
) -> None:
    channel = channel_on(transport, failing(ValueError("nobody hears this")))

    channel.data_received(request(code, 1, oneway=True) + request(ECHO, 2))

    assert only(transport).opaque == 2


async def test_a_one_way_request_with_a_coroutine_is_carried_out_and_not_answered(
    transport: FakeTransport,
) -> None:
    done = asyncio.Event()

    async def note(channel: Channel, command: Command) -> Answer:
        done.set()
        return Answer()

    routes = Routes()
    routes.add(ECHO, note)
    channel = channel_on(transport, routes)

    channel.data_received(request(ECHO, 1, oneway=True))
    await done.wait()
    await asyncio.gather(*channel.handlers)
    await asyncio.sleep(0)

    assert transport.writes == []


async def test_a_gate_answers_instead_of_the_handler(transport: FakeTransport) -> None:
    def refuse_odd(channel: Channel, command: Command) -> Answer | None:
        if command.opaque == 5:
            raise BrokerError(ResponseCode.NO_PERMISSION, "nobody may be 5")
        return Answer(ResponseCode.SYSTEM_BUSY) if command.opaque % 2 else None

    routes = echo_routes()
    routes.set_gate(refuse_odd)
    channel = channel_on(transport, routes)

    channel.data_received(b"".join(request(ECHO, opaque) for opaque in (1, 2, 4, 5)))
    channel.data_received(request(ECHO, 7, oneway=True))

    assert {got.opaque: got.code for got in transport.commands()} == {1: 2, 2: 0, 4: 0, 5: 16}


async def test_coroutines_answer_in_the_order_they_finish(transport: FakeTransport) -> None:
    gates = {opaque: asyncio.Event() for opaque in (1, 2, 3)}

    async def wait(channel: Channel, command: Command) -> Answer:
        await gates[command.opaque].wait()
        return Answer(body=b"%d" % command.opaque)

    routes = Routes()
    routes.add(SLOW, wait)
    channel = channel_on(transport, routes)
    channel.data_received(b"".join(request(SLOW, opaque) for opaque in (1, 2, 3)))
    assert len(channel.handlers) == 3

    for opaque in (3, 1, 2):
        gates[opaque].set()
        await asyncio.wait(channel.handlers, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0)

    assert bodies(transport.commands()) == [b"3", b"1", b"2"]
    assert channel.handlers == frozenset()


async def test_answers_that_come_later_in_one_turn_are_one_write(transport: FakeTransport) -> None:
    go = asyncio.Event()

    async def wait(channel: Channel, command: Command) -> Answer:
        await go.wait()
        return Answer()

    routes = Routes()
    routes.add(SLOW, wait)
    channel = channel_on(transport, routes)
    channel.data_received(b"".join(request(SLOW, opaque) for opaque in range(50)))

    go.set()
    await asyncio.gather(*channel.handlers)
    await asyncio.sleep(0)

    assert len(transport.writes) == 1
    assert len(transport.commands()) == 50


async def test_a_coroutine_that_raises_is_an_error_answer(
    transport: FakeTransport, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(channel: Channel, command: Command) -> Answer:
        raise BrokerError(ResponseCode.SYSTEM_BUSY, "later") if command.opaque else ValueError("x")

    routes = Routes()
    routes.add(SLOW, fail)
    channel = channel_on(transport, routes)

    channel.data_received(request(SLOW, 0) + request(SLOW, 1))
    await asyncio.gather(*channel.handlers)
    await asyncio.sleep(0)

    assert [(got.code, got.remark) for got in transport.commands()] == [
        (1, "ValueError: x"),
        (2, "later"),
    ]
    assert warnings_in(caplog) == ["request 11 failed"]


async def test_a_handler_may_answer_by_itself_later(transport: FakeTransport) -> None:
    held: list[Command] = []

    def hold(channel: Channel, command: Command) -> None:
        held.append(command)

    routes = Routes()
    routes.add(SLOW, hold)
    channel = channel_on(transport, routes)
    channel.data_received(request(SLOW, 8))
    assert transport.writes == []

    parts = (b"in ", memoryview(b"parts"))
    channel.reply_parts(held[0], ResponseCode.SUCCESS, "fine", None, parts)
    await asyncio.sleep(0)

    got = only(transport)
    assert (got.opaque, got.remark, got.body) == (8, "fine", b"in parts")


@pytest.mark.parametrize("kind", ["coroutine", "future"])
async def test_too_many_requests_in_work_are_refused(transport: FakeTransport, kind: str) -> None:
    """Neither kind of awaitable may be left behind with a warning."""
    loop = asyncio.get_running_loop()
    go = asyncio.Event()
    futures: list[asyncio.Future[Answer]] = []

    async def wait() -> Answer:
        await go.wait()
        return Answer()

    def handle(channel: Channel, command: Command) -> Awaitable[Answer]:
        if kind == "coroutine":
            return wait()
        futures.append(loop.create_future())
        return futures[-1]

    routes = Routes()
    routes.add(SLOW, handle)
    channel = channel_on(transport, routes)
    channel.data_received(b"".join(request(SLOW, n) for n in range(HANDLERS_IN_FLIGHT_MAX + 2)))

    refused = transport.commands()
    assert [got.opaque for got in refused] == [HANDLERS_IN_FLIGHT_MAX, HANDLERS_IN_FLIGHT_MAX + 1]
    assert {got.code for got in refused} == {ResponseCode.SYSTEM_BUSY}
    assert all(str(got.remark).startswith("[REJECTREQUEST]") for got in refused)
    assert [future.cancelled() for future in futures[-2:]] in ([], [True, True])

    channel.connection_lost(None)
    await asyncio.wait(channel.handlers)


async def test_an_answer_bigger_than_a_frame_is_an_error_answer(
    transport: FakeTransport, caplog: pytest.LogCaptureFixture
) -> None:
    def exaggerate(channel: Channel, command: Command) -> Answer:
        return Answer(body=bytes(FRAME_BYTES_MAX))

    routes = Routes()
    routes.add(ECHO, exaggerate)
    channel = channel_on(transport, routes)

    channel.data_received(request(ECHO, 1) + request(ECHO, 2, binary=True))

    for got in transport.commands():
        assert (got.code, got.body) == (ResponseCode.SYSTEM_ERROR, b"")
        assert "above the limit" in str(got.remark)
    assert len(transport.commands()) == 2
    assert len(warnings_in(caplog)) == 2


async def test_nothing_is_carried_out_any_more_when_serving_has_stopped(
    transport: FakeTransport,
) -> None:
    go = asyncio.Event()

    async def wait(channel: Channel, command: Command) -> Answer:
        await go.wait()
        return Answer()

    routes = echo_routes()
    routes.add(SLOW, wait)
    channel = channel_on(transport, routes)
    channel.data_received(request(SLOW, 1))

    channel.stop_serving()
    channel.data_received(request(ECHO, 2))
    go.set()
    await asyncio.gather(*channel.handlers)
    await asyncio.sleep(0)

    assert only(transport).opaque == 1


def test_a_code_has_one_handler() -> None:
    routes = echo_routes()

    with pytest.raises(AssertionError):
        routes.add(ECHO, lambda channel, command: Answer())
    with pytest.raises(AssertionError):
        routes.add_batch(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda channel, commands: None)


def test_a_short_way_needs_a_handler_for_what_it_leaves() -> None:
    with pytest.raises(AssertionError):
        echo_routes().add_short_way(SLOW, lambda channel, commands, frames: 0)
