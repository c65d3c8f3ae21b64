"""The connections of an admin: one for each address, made when needed, kept, and bounded.

What is asked on a connection that turns out to be dead is asked once more on a new one: servers
close idle connections, and the close may cross the question.
"""

import asyncio
from types import TracebackType
from typing import Self

from cometmq.admin.signing import Credentials
from cometmq.codec.command import Command
from cometmq.codec.headers.base import Header
from cometmq.errors import ConnectionLost, Unreachable
from cometmq.remoting.channel import Channel
from cometmq.remoting.client import CONNECT_TIMEOUT_MS, connect
from cometmq.remoting.config import TlsClientSettings

REQUESTS_MAX = 64
"""Requests of one admin under way at a time; more wait for their turn."""

CONNECTIONS_MAX = REQUESTS_MAX
"""Connections kept. Not fewer than requests, so that one that is not in use can always go."""


class _Line:
    """The connection to one address, if there is one."""

    def __init__(self) -> None:
        self.dialling = asyncio.Lock()
        self.channel: Channel | None = None
        self.request_count = 0  # under way

    def close(self) -> None:
        if self.channel is not None:
            self.channel.close()


class Connections:
    """Asks any address. Leaving it closes all connections; then it is of no more use."""

    def __init__(
        self,
        *,
        tls: TlsClientSettings | None = None,
        credentials: Credentials | None = None,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self._tls = tls
        self._credentials = credentials
        self._connect_timeout_ms = connect_timeout_ms
        self._connections_max = connections_max
        self._lines: dict[str, _Line] = {}  # the one that was used last is the last
        self._turns = asyncio.Semaphore(min(REQUESTS_MAX, connections_max))
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        await asyncio.sleep(0)  # transports say good-bye on the loop's next turn

    @property
    def addresses(self) -> tuple[str, ...]:
        """To whom there are connections, the one used last at the end."""
        return tuple(address for address, line in self._lines.items() if line.channel is not None)

    def close(self) -> None:
        """End all connections; requests under way fail with ConnectionLost."""
        self._is_closed = True
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int,
        is_repeatable: bool = True,
    ) -> Command:
        """The answer of ``address``, whatever its code.

        ``is_repeatable`` says that it does no harm to ask twice. Raises Unreachable,
        RequestTimeout, ConnectionLost.
        """
        if self._credentials is not None:
            header = self._credentials.signed(header, body)
        async with self._turns:
            line = self._line(address)
            line.request_count += 1
            try:
                channel = line.channel
                if channel is not None and channel.is_open:
                    try:
                        return await channel.request(code, header, body, timeout_ms=timeout_ms)
                    except ConnectionLost:
                        if not is_repeatable or self._is_closed:
                            raise
                channel = await self._dialled(address, line)
                return await channel.request(code, header, body, timeout_ms=timeout_ms)
            finally:
                line.request_count -= 1

    def _line(self, address: str) -> _Line:
        if self._is_closed:
            raise Unreachable(address, "this admin is closed", "ask inside of its 'async with'")
        line = self._lines.pop(address, None)
        if line is None:
            self._make_room()
            line = _Line()
        self._lines[address] = line
        return line

    def _make_room(self) -> None:
        idle = (address for address, line in self._lines.items() if line.request_count == 0)
        while len(self._lines) >= self._connections_max:
            self._lines.pop(next(idle)).close()
            idle = (address for address, line in self._lines.items() if line.request_count == 0)

    async def _dialled(self, address: str, line: _Line) -> Channel:
        """An open connection; whoever comes while one is being made waits for that one."""
        async with line.dialling:
            if line.channel is not None and line.channel.is_open:
                return line.channel
            timeout_ms = self._connect_timeout_ms
            channel = await connect(address, timeout_ms=timeout_ms, tls=self._tls)
            line.channel = channel
            if self._is_closed:
                channel.close()
                raise ConnectionLost(address, "the admin was closed meanwhile")
            return channel
