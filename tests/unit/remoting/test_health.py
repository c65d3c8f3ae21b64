"""The HTTP server for probes and scrapers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import pytest

from cometmq.remoting import health
from cometmq.remoting.health import HealthServer
from cometmq.remoting.server import PortInUse
from tests.unit.remoting.kit import LOOPBACK, warnings_in


class Response(NamedTuple):
    status: int
    fields: dict[str, str]
    body: str


@contextlib.asynccontextmanager
async def serving(
    lack: Callable[[], str | None] = lambda: None,
    metrics: Callable[[], str] = lambda: "a_total 1\n",
    seconds_max: float = health.SECONDS_MAX,
) -> AsyncIterator[HealthServer]:
    server = HealthServer(lack=lack, metrics=metrics, seconds_max=seconds_max)
    await server.start(LOOPBACK, 0)
    try:
        yield server
    finally:
        await server.stop()


async def exchange(server: HealthServer, data: bytes) -> bytes:
    """Send something, read until the server closes."""
    reader, writer = await asyncio.open_connection(LOOPBACK, server.port)
    try:
        writer.write(data)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


async def ask(server: HealthServer, line: str, fields: str = "") -> Response:
    got = await exchange(server, f"{line}\r\nHost: here\r\n{fields}\r\n".encode())
    head, _, body = got.decode().partition("\r\n\r\n")
    first, *rest = head.split("\r\n")
    version, status, _ = first.split(" ", 2)
    assert version == "HTTP/1.1"
    return Response(int(status), dict(field.split(": ", 1) for field in rest), body)


async def test_a_process_that_is_up_is_healthy() -> None:
    async with serving(lack=lambda: "a name server") as server:
        got = await ask(server, "GET /healthz HTTP/1.1")

    assert (got.status, got.body) == (200, "ok\n")
    assert got.fields["Connection"] == "close"
    assert got.fields["Content-Length"] == "3"


async def test_a_program_is_ready_when_it_lacks_nothing() -> None:
    lacks: list[str | None] = ["waiting for the store: 40 % recovered", None]
    async with serving(lack=lambda: lacks.pop(0)) as server:
        before = await ask(server, "GET /readyz HTTP/1.1")
        after = await ask(server, "GET /readyz HTTP/1.1")

    assert (before.status, before.body) == (503, "waiting for the store: 40 % recovered\n")
    assert (after.status, after.body) == (200, "ok\n")


async def test_metrics_are_what_the_program_says() -> None:
    async with serving(metrics=lambda: 'lag{topic="bücher"} 1\n') as server:
        got = await ask(server, "GET /metrics?name=all HTTP/1.0")

    assert (got.status, got.body) == (200, 'lag{topic="bücher"} 1\n')
    assert got.fields["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_a_head_request_gets_the_head() -> None:
    async with serving() as server:
        got = await ask(server, "HEAD /metrics HTTP/1.1")

    assert (got.status, got.body) == (200, "")
    assert got.fields["Content-Length"] == "10"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET / HTTP/1.1", 404),
        ("GET /metrics/x HTTP/1.1", 404),
        ("POST /nowhere HTTP/1.1", 404),
        ("POST /metrics HTTP/1.1", 405),
        ("DELETE /healthz HTTP/1.1", 405),
        ("GET /healthz", 400),
        ("GET /healthz HTTP/2", 400),
        ("GET  /healthz HTTP/1.1", 400),
        ("", 400),
        ("\x16\x03\x01\xff", 400),
    ],
)
async def test_everything_else_is_refused(line: str, status: int) -> None:
    async with serving() as server:
        got = await ask(server, line)
        again = await ask(server, "GET /healthz HTTP/1.1")

    assert got.status == status
    assert (status == 405) == (got.fields.get("Allow") == "GET, HEAD")
    assert again.status == 200


async def test_a_request_that_is_too_large_is_refused() -> None:
    async with serving() as server:
        got = await ask(server, "GET /healthz HTTP/1.1", "X: " + "x" * 100_000 + "\r\n")

    assert got.status == 431


async def test_a_body_is_ignored() -> None:
    async with serving() as server:
        got = await ask(server, "GET /healthz HTTP/1.1", "Content-Length: 3\r\n\r\nabc")

    assert got.status == 200


async def test_a_caller_that_takes_too_long_is_cut_off() -> None:
    async with serving(seconds_max=0.05) as server:
        assert await exchange(server, b"GET /healthz HTT") == b""


async def test_a_caller_that_does_not_read_is_cut_off() -> None:
    async with serving(metrics=lambda: "x" * 20_000_000, seconds_max=0.05) as server:
        _, writer = await asyncio.open_connection(LOOPBACK, server.port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        while not server._callers:
            await asyncio.sleep(0.001)
        while server._callers:
            await asyncio.sleep(0.001)
        writer.transport.abort()


async def test_only_so_many_callers_at_a_time() -> None:
    async with serving() as server:
        silent = [
            await asyncio.open_connection(LOOPBACK, server.port) for _ in range(health.CALLERS_MAX)
        ]
        while len(server._callers) < health.CALLERS_MAX:
            await asyncio.sleep(0.001)

        assert await exchange(server, b"GET /healthz HTTP/1.1\r\n\r\n") == b""
        for _, writer in silent:
            writer.transport.abort()
        while server._callers:
            await asyncio.sleep(0.001)
        assert (await ask(server, "GET /healthz HTTP/1.1")).status == 200


async def test_a_caller_that_leaves_early_is_no_problem() -> None:
    async with serving() as server:
        for data in (b"", b"GET", b"GET /metrics HTTP/1.1\r\n\r\n"):
            _, writer = await asyncio.open_connection(LOOPBACK, server.port)
            writer.write(data)
            await writer.drain()
            writer.transport.abort()

        assert (await ask(server, "GET /healthz HTTP/1.1")).status == 200


async def test_a_page_that_cannot_be_made_is_an_error_and_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> str:
        raise ValueError("no numbers today")

    async with serving(metrics=fail) as server:
        got = await ask(server, "GET /metrics HTTP/1.1")

    assert got.status == 500
    assert warnings_in(caplog) == ["path=/metrics cannot be made"]


async def test_a_busy_port_is_named() -> None:
    async with serving() as server:
        other = HealthServer(lack=lambda: None, metrics=str)
        with pytest.raises(PortInUse) as caught:
            await other.start(LOOPBACK, server.port)

        assert caught.value.port == server.port
        await other.stop()


async def test_stopping_cuts_everyone_off() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection(LOOPBACK, server.port)
        while not server._callers:
            await asyncio.sleep(0.001)

    assert await reader.read() == b""
    writer.close()
