"""Listening: accepts connections and stops without losing what is in work."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator

from cometmq import logs
from cometmq.codec.command import Command
from cometmq.errors import CometError, SettingsError
from cometmq.remoting.budget import PartialFrames
from cometmq.remoting.channel import Channel
from cometmq.remoting.config import ChannelSettings, ServerSettings, TlsServerSettings
from cometmq.remoting.routes import Answer, Routes
from cometmq.remoting.tls import server_door
from cometmq.remoting.turn import Turn

_log = logs.get_logger("cometmq.remoting")

_CLOSE_SECONDS_MAX = 1.0
_ANY_PORT_ATTEMPTS = 20
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


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach what listens on ``address``."""
    return address in ("localhost", "::1") or address.startswith("127.")


@contextlib.contextmanager
def binding(host: str, port: int, *, key: str = "bindAddress") -> Iterator[None]:
    """Around what binds a port: a busy one is an error that names it.

    So is a host that is not known, with the ``key`` of the setting that says so.
    """
    try:
        yield
    except (socket.gaierror, UnicodeError) as error:  # UnicodeError: no host can have that name
        reason = error.strerror if isinstance(error, OSError) else "that is no name"
        advice = "listen on an address of this machine, such as 127.0.0.1, or on 0.0.0.0 for all"
        raise SettingsError(key, f"'{host}' cannot be listened on: {reason}", advice) from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(host, port) from error
        if error.errno is None:
            # asyncio of 3.13 on tries the next address when one is not there, and says nothing
            # but that it has come to the end of them.
            raise OSError(errno.EADDRNOTAVAIL, f"cannot listen on {host}:{port}") from error
        raise


class Server:
    """A listening server and its connections.

    ``start`` binds and serves (``bind`` and ``serve`` do it in two steps); ``stop`` closes the
    door, lets requests in work finish (bounded) and ends all connections. ``on_closed`` is told of
    every connection that ended, ``on_refused`` of every request that was not answered with success.
    """

    def __init__(
        self,
        routes: Routes,
        *,
        settings: ServerSettings | None = None,
        channel_settings: ChannelSettings | None = None,
        tls: TlsServerSettings | None = None,
        on_closed: Callable[[Channel], None] | None = None,
        on_refused: Callable[[Command, Answer], None] | None = None,
    ) -> None:
        self._routes = routes
        self._settings = settings or ServerSettings()
        self._channel_settings = channel_settings or ChannelSettings()
        self._door = server_door(tls or TlsServerSettings())
        self._on_closed = on_closed
        self._on_refused = on_refused
        self._budget = PartialFrames(self._settings.partial_frames_bytes_max)
        self._turn = Turn()
        self._channels: set[Channel] = set()
        self._listeners: list[asyncio.Server] = []
        self._is_stopping = False
        self._all_closed = asyncio.Event()  # meaningful while stopping

    @property
    def channels(self) -> frozenset[Channel]:
        return frozenset(self._channels)

    @property
    def partial_frames_bytes(self) -> int:
        """What all connections together hold of frames that are not complete."""
        return self._budget.total_bytes

    @property
    def ports(self) -> list[int]:
        """Where it listens; the first is the main one (useful when port 0 was asked for)."""
        return [
            listener.sockets[0].getsockname()[1] for listener in self._listeners if listener.sockets
        ]

    async def start(self, host: str, port: int) -> None:
        """Bind and serve. Raises PortInUse, unless any port will do (0)."""
        await self.bind(host, port)
        await self.serve()

    async def bind(self, host: str, port: int) -> None:
        """Take the ports, so that they are known, but accept nobody yet. Raises PortInUse."""
        attempts = 1 if port else _ANY_PORT_ATTEMPTS
        while True:
            attempts -= 1
            try:
                return await self._bind(host, port)
            except PortInUse:  # the port two below the one that the system chose
                self._stop_listening()
                if not attempts:
                    raise
            except BaseException:
                self._stop_listening()
                raise

    async def serve(self) -> None:
        """Accept connections, once bound. Raises PortInUse."""
        for listener in self._listeners:
            host, port = listener.sockets[0].getsockname()[:2]
            with binding(host, port):
                await listener.start_serving()

    def refuse_connections(self) -> None:
        """Accept nobody any more; the connections there are stay."""
        self._is_stopping = True
        self._stop_listening()

    async def stop(self) -> None:
        """Refuse new connections, let requests in work finish, end everything; bounded.

        Requests that come from here on are not carried out: their clients see the connection end.
        """
        self.refuse_connections()
        for channel in self._channels:
            channel.stop_serving()
        await self._drain()
        for channel in list(self._channels):
            channel.close("the server stops")
        if self._channels:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), _CLOSE_SECONDS_MAX)
        for channel in list(self._channels):
            channel.drop("the server stops and the peer does not read")

    async def _bind(self, host: str, port: int) -> None:
        await self._listen(host, port)
        if self._settings.is_vip_enabled and self.ports[0] > VIP_PORT_DISTANCE:
            await self._listen(host, self.ports[0] - VIP_PORT_DISTANCE)

    async def _listen(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        with binding(host, port):
            listener = await loop.create_server(
                self._accept, host, port, backlog=self._settings.backlog, start_serving=False
            )
        self._listeners.append(listener)

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def _accept(self) -> Channel:
        channel = Channel(
            self._routes,
            self._channel_settings,
            door=self._door,
            budget=self._budget,
            turn=self._turn,
            on_opened=self._channels.add,
            on_closed=self._forget,
        )
        channel.on_refused = self._on_refused
        if self._is_stopping:  # it had been waiting to be accepted
            channel.close("the server stops")
        return channel

    def _forget(self, channel: Channel) -> None:
        self._channels.discard(channel)
        if self._is_stopping and not self._channels:
            self._all_closed.set()
        if self._on_closed is not None:
            self._on_closed(channel)

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.drain_seconds_max
        while handlers := {task for channel in self._channels for task in channel.handlers}:
            seconds = deadline - loop.time()
            if seconds <= 0:
                _log.warning("%s requests still in work are given up", len(handlers))
                return
            await asyncio.wait(handlers, timeout=seconds)
