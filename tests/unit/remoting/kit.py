"""What the remoting tests share: servers on loopback, peers that speak bytes, a fake transport."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from cometmq.codec import core
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command, CommandFlag, Serialization, encode
from cometmq.remoting.channel import Channel
from cometmq.remoting.client import connect
from cometmq.remoting.config import ChannelSettings, TlsServerSettings
from cometmq.remoting.routes import Answer, Routes
from cometmq.remoting.server import Server

LOOPBACK = "127.0.0.1"
ECHO = RequestCode.GET_ROUTEINFO_BY_TOPIC
SLOW = RequestCode.PULL_MESSAGE
HUGE = RequestCode.GET_ALL_TOPIC_CONFIG


def request(
    code: int, opaque: int = 0, body: bytes = b"", *, oneway: bool = False, binary: bool = False
) -> bytes:
    """A request as a frame."""
    flag = CommandFlag.ONEWAY if oneway else 0
    form = Serialization.ROCKETMQ if binary else Serialization.JSON
    return encode(Command(code, opaque=opaque, flag=flag, body=body, serialization=form))


def answer(opaque: int, code: int = ResponseCode.SUCCESS, body: bytes = b"") -> bytes:
    """An answer as a frame."""
    return encode(Command(code, opaque=opaque, flag=CommandFlag.RESPONSE, body=body))


def commands_in(data: bytes) -> list[Command]:
    commands, end = core.decode_frames(data)
    assert end == len(data)
    return commands


def echo(channel: Channel, command: Command) -> Answer:
    """Answers with the request's own body."""
    return Answer(body=command.body)


def echo_routes() -> Routes:
    routes = Routes()
    routes.add(ECHO, echo)
    return routes


@contextlib.asynccontextmanager
async def serving(
    routes: Routes | None = None,
    *,
    channel_settings: ChannelSettings | None = None,
    tls: TlsServerSettings | None = None,
    **arguments: Any,
) -> AsyncIterator[Server]:
    """A server on some port of loopback; stopped at the end."""
    server = Server(
        routes or echo_routes(), channel_settings=channel_settings, tls=tls, **arguments
    )
    await server.start(LOOPBACK, 0)
    try:
        yield server
    finally:
        await server.stop()


def address_of(server: Server) -> str:
    return f"{LOOPBACK}:{server.ports[0]}"


@contextlib.asynccontextmanager
async def dialled(server: Server, routes: Routes | None = None) -> AsyncIterator[Channel]:
    """A channel to ``server``; closed at the end."""
    channel = await connect(address_of(server), routes)
    try:
        yield channel
    finally:
        channel.close()


class RawPeer:
    """A peer that sends what it is told, right or wrong."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def port(self) -> int:
        port: int = self._writer.get_extra_info("sockname")[1]
        return port

    @property
    def transport(self) -> asyncio.WriteTransport:
        return self._writer.transport

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def read(self) -> bytes:
        """Whatever has come; empty at the end of the connection."""
        try:
            return await self._reader.read(65536)
        except ConnectionError:
            return b""

    async def command(self) -> Command:
        """The next command."""
        prefix = await self._reader.readexactly(4)
        rest = await self._reader.readexactly(int.from_bytes(prefix, "big"))
        (command,) = commands_in(prefix + rest)
        return command

    async def commands(self, count: int) -> list[Command]:
        return [await self.command() for _ in range(count)]

    async def until_closed(self) -> bytes:
        """Everything until the other end closes."""
        data = b""
        while chunk := await self.read():
            data += chunk
        return data


@contextlib.asynccontextmanager
async def raw_peer(server: Server) -> AsyncIterator[RawPeer]:
    reader, writer = await asyncio.open_connection(LOOPBACK, server.ports[0])
    try:
        yield RawPeer(reader, writer)
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def is_answering(server: Server) -> bool:
    """Whether a new connection is served."""
    async with dialled(server) as channel:
        got = await channel.request(ECHO, body=b"are you there", timeout_ms=5_000)
        return got.body == b"are you there"


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged for people to read."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


class FakeTransport(asyncio.Transport):
    """A transport that keeps what is written; ``unsent_bytes`` pretends that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.unsent_bytes = 0
        self.is_aborted = False
        self.is_reading_paused = False
        self._is_closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("10.0.0.1", 5001), "sockname": ("10.0.0.2", 9876)}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.writes.append(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self._is_closing = self.is_aborted = True

    def commands(self) -> list[Command]:
        """Everything that was written."""
        return commands_in(b"".join(self.writes))


def channel_on(
    transport: FakeTransport,
    routes: Routes | None = None,
    settings: ChannelSettings | None = None,
    **arguments: Any,
) -> Channel:
    """A channel that is connected with nobody but ``transport``."""
    channel = Channel(routes or echo_routes(), settings or ChannelSettings(), **arguments)
    channel.connection_made(transport)
    return channel


def bodies(commands: Sequence[Command]) -> list[bytes]:
    return [command.body for command in commands]
