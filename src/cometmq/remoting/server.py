"""Listening: accepts connections, watches over them, and stops without losing what is in work."""

import asyncio
import contextlib
import errno
from collections.abc import Callable

from cometmq import logs
from cometmq.errors import CometError
from cometmq.remoting.budget import PartialFrames
from cometmq.remoting.channel import Channel
from cometmq.remoting.config import ChannelSettings, ServerSettings, TlsMode, TlsServerSettings
from cometmq.remoting.routes import Routes
from cometmq.remoting.tls import server_context

_log = logs.get_logger("cometmq.remoting")

_CHECK_SECONDS = 1.0
_CLOSE_SECONDS_MAX = 1.0
VIP_PORT_DISTANCE = 2
"""Old Java clients send to the port that many below the listening one."""


class PortInUse(CometError):
    """Somebody listens on ``host``:``port`` already."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.host = host
        self.port = port
        self.fact = f"port {port} on {host} is in use"
        self.next_step = "stop the program that listens there, or choose another port"


class Server:
    """A listening server and its connections.

    ``start`` binds and serves; ``stop`` closes the door, lets requests in work finish (bounded) and
    ends all connections. ``on_closed`` is told of every connection that ended.
    """

    def __init__(
        self,
        routes: Routes,
        *,
        settings: ServerSettings | None = None,
        channel_settings: ChannelSettings | None = None,
        tls: TlsServerSettings | None = None,
        on_closed: Callable[[Channel], None] | None = None,
    ) -> None:
        self._routes = routes
        self._settings = settings or ServerSettings()
        self._channel_settings = channel_settings or ChannelSettings()
        tls_settings = tls or TlsServerSettings()
        self._tls_context = server_context(tls_settings)
        self._is_tls_required = tls_settings.mode == TlsMode.ENFORCING
        self._on_closed = on_closed
        self._budget = PartialFrames(self._settings.partial_frames_bytes_max)
        self._channels: set[Channel] = set()
        self._listeners: list[asyncio.Server] = []
        self._watch: asyncio.Task[None] | None = None
        self._all_closed: asyncio.Event | None = None  # set while stopping

    @property
    def channels(self) -> frozenset[Channel]:
        return frozenset(self._channels)

    @property
    def ports(self) -> list[int]:
        """Where it listens; the first is the main one (useful when port 0 was asked for)."""
        return [
            listener.sockets[0].getsockname()[1] for listener in self._listeners if listener.sockets
        ]

    async def start(self, host: str, port: int) -> None:
        """Bind and serve. Raises PortInUse."""
        await self._listen(host, port)
        if self._settings.is_vip_enabled:
            await self._listen(host, self.ports[0] - VIP_PORT_DISTANCE)
        self._watch = asyncio.get_running_loop().create_task(self._watch_channels())

    async def stop(self) -> None:
        """Refuse new connections, let requests in work finish, end everything; bounded."""
        for listener in self._listeners:
            listener.close()
        await self._drain()
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        for channel in list(self._channels):
            channel.close("the server stops")
        if self._channels:
            self._all_closed = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), _CLOSE_SECONDS_MAX)
        for channel in list(self._channels):
            channel.drop("the server stops and the peer does not read")

    async def _listen(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            listener = await loop.create_server(
                self._accept, host, port, backlog=self._settings.backlog
            )
        except OSError as error:
            for earlier in self._listeners:
                earlier.close()
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(host, port) from error
            raise
        self._listeners.append(listener)

    def _accept(self) -> Channel:
        channel = Channel(
            self._routes,
            self._channel_settings,
            tls=self._tls_context,
            is_tls_required=self._is_tls_required,
            budget=self._budget,
            on_closed=self._forget,
        )
        self._channels.add(channel)
        return channel

    def _forget(self, channel: Channel) -> None:
        self._channels.discard(channel)
        if self._all_closed is not None and not self._channels:
            self._all_closed.set()
        if self._on_closed is not None:
            self._on_closed(channel)

    async def _watch_channels(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            now = loop.time()
            for channel in list(self._channels):
                channel.check(now)

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.drain_seconds_max
        while any(channel.in_flight_count for channel in self._channels):
            if loop.time() >= deadline:
                _log.warning("requests still in work after the grace period are given up")
                return
            await asyncio.sleep(0.01)
