"""Connections of a dialling program: one for each address, made when needed, kept, and bounded.

What is asked on a connection that turns out to be dead is asked once more on a new one: servers
close idle connections, and the close may cross the question. A server that says GO_AWAY is about to
stop or to reload: it is asked again on a new connection, too.

Whoever wants a connection waits for the one attempt to make it, for as long as its own time lets
it. The attempt itself gets the whole time that connecting may take: somebody in a hurry neither
ends it for the others, nor makes the address look as if it could not be reached.
"""

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from cometmq.codec.codes import ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.base import Header
from cometmq.errors import ConnectionLost, RequestTimeout, Unreachable
from cometmq.remoting.channel import Channel
from cometmq.remoting.client import CONNECT_TIMEOUT_MS, connect
from cometmq.remoting.config import ChannelSettings, TlsClientSettings
from cometmq.remoting.routes import Routes
from cometmq.remoting.signing import Credentials

REQUESTS_MAX = 64
"""Requests under way at a time unless told otherwise; more wait for their turn."""

CONNECTIONS_MAX = 64
"""Connections kept; a few more while all of them are in use."""

SILENCE_MS = 1_000
"""A peer that is asked and says nothing for this long is taken for gone: shorter waits prove less
than they would cost everybody else on the connection."""

_SILENCE = "cometmq.remoting.silence"


@dataclass(frozen=True, slots=True)
class Pauses:
    """How long an address that cannot be reached is left alone, in seconds; doubled each time."""

    first: float = 1.0
    longest: float = 30.0

    def after(self, failures: int) -> float:
        return min(self.first * 2.0 ** min(failures - 1, 16), self.longest)


class _Line:
    """The connection to one address, if there is one."""

    __slots__ = ("channel", "dialling", "failures", "problem", "request_count", "retry_at")

    def __init__(self) -> None:
        self.dialling: asyncio.Task[Channel] | None = None  # under way
        self.channel: Channel | None = None
        self.request_count = 0  # under way
        self.failures = 0  # to connect, in a row
        self.retry_at = 0.0  # not before, when there were failures
        self.problem = ""

    def close(self, reason: str) -> None:
        if self.dialling is not None:
            self.dialling.cancel()
        if self.channel is not None:
            self.channel.close(reason)


class Connections:
    """Asks any address. Leaving it closes all connections; then it is of no more use.

    ``owner`` is what errors call it. ``routes`` serve what the peers ask, ``on_opened`` is told of
    each new connection. With ``pauses`` an address that could not be reached is not dialled again
    at once: asking it fails at once instead, and says why the last try failed.
    """

    def __init__(
        self,
        *,
        owner: str = "admin",
        tls: TlsClientSettings | None = None,
        credentials: Credentials | None = None,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        connections_max: int = CONNECTIONS_MAX,
        requests_max: int = REQUESTS_MAX,
        routes: Routes | None = None,
        settings: ChannelSettings | None = None,
        on_opened: Callable[[str], None] | None = None,
        pauses: Pauses | None = None,
        silence_ms: int = SILENCE_MS,
    ) -> None:
        self.credentials = credentials
        self._owner = owner
        self._tls = tls
        self._connect_timeout_ms = connect_timeout_ms
        self._connections_max = connections_max
        self._routes = routes
        self._settings = settings
        self._on_opened = on_opened
        self._pauses = pauses
        self._lines: dict[str, _Line] = {}  # the one that was used last is the last
        self._silence_ms = silence_ms
        self._turns = asyncio.Semaphore(requests_max)
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
    def has_tls(self) -> bool:
        """Whether peers are talked with in TLS."""
        return self._tls is not None and self._tls.is_enabled

    @property
    def addresses(self) -> tuple[str, ...]:
        """To whom there are connections, the one used last at the end."""
        return tuple(address for address, line in self._lines.items() if line.channel is not None)

    @property
    def filenos(self) -> tuple[int, ...]:
        """The descriptors of all sockets."""
        channels = (line.channel for line in self._lines.values() if line.channel is not None)
        found = (channel.fileno for channel in channels)
        return tuple(number for number in found if number is not None)

    def close(self) -> None:
        """End all connections; requests under way fail with ConnectionLost."""
        self._is_closed = True
        for line in self._lines.values():
            line.close("closed by us")
        self._lines.clear()

    def forget(self, address: str, reason: str) -> None:
        """End the connection to an address that is of no more use."""
        line = self._lines.pop(address, None)
        if line is not None:
            line.close(reason)

    def retire(self, address: str, channel: Channel) -> None:
        """Use another connection from now on; what waits on this one may still be answered."""
        line = self._lines.get(address)
        if line is not None and line.channel is channel:
            line.channel = None
        channel.close_when_answered("the peer goes away")

    def find(self, address: str) -> Channel | None:
        """The open connection to an address, if there is one: for what happens per message."""
        line = self._lines.get(address)
        if line is None or line.channel is None or not line.channel.is_open:
            return None
        return line.channel

    async def channel(self, address: str, *, timeout_ms: int | None = None) -> Channel:
        """An open connection to an address, within ``timeout_ms``. Raises Unreachable."""
        line = self._line(address)
        if line.channel is not None and line.channel.is_open:
            return line.channel
        line.request_count += 1
        try:
            return await self._dialled(address, line, timeout_ms)
        finally:
            line.request_count -= 1

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
        RequestTimeout, ConnectionLost, TooManyRequests.
        """
        if self.credentials is not None:
            header = self.credentials.signed(header, body)
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        await self._turn(address, deadline, timeout_ms)
        try:
            line = self._line(address)
            line.request_count += 1
            try:
                return await self._ask(address, line, code, header, body, deadline, is_repeatable)
            finally:
                line.request_count -= 1
        finally:
            self._turns.release()

    def hang_up_if_silent(self, channel: Channel, read_count: int, timeout_ms: int) -> None:
        """A request has had no answer in its time; ``read_count`` is the channel's when it left.

        Ends the connection when nothing at all has come since, for long enough to mean something.
        """
        if channel.read_count != read_count:
            return
        now = asyncio.get_running_loop().time()
        # The beginning of the first of the requests that met this silence.
        known_count, since = channel.attributes.get(_SILENCE, (-1, 0.0))
        if known_count != read_count:
            since = now - timeout_ms / 1000
            channel.attributes[_SILENCE] = (read_count, since)
        silent_ms = round((now - since) * 1000)
        if silent_ms >= self._silence_ms:
            channel.close(f"nothing came within {silent_ms} ms")

    async def _turn(self, address: str, deadline: float, timeout_ms: int) -> None:
        if not self._turns.locked():
            await self._turns.acquire()  # does not wait
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._turns.acquire()
        except TimeoutError as error:
            problem = f"too many other requests were under way for {timeout_ms} ms"
            raise Unreachable(address, problem) from error

    async def _ask(
        self,
        address: str,
        line: _Line,
        code: int,
        header: Header | None,
        body: bytes,
        deadline: float,
        is_repeatable: bool,
    ) -> Command:
        channel = line.channel
        if channel is not None and channel.is_open:
            try:
                answer = await self._asked(channel, code, header, body, _left_ms(deadline))
                if answer.code != ResponseCode.GO_AWAY:
                    return answer
                self.retire(address, channel)
            except ConnectionLost:
                if not is_repeatable or self._is_closed:
                    raise
        channel = await self._dialled(address, line, _left_ms(deadline))
        answer = await self._asked(channel, code, header, body, _left_ms(deadline))
        if answer.code == ResponseCode.GO_AWAY:
            self.retire(address, channel)
        return answer

    async def _asked(
        self, channel: Channel, code: int, header: Header | None, body: bytes, timeout_ms: int
    ) -> Command:
        read_count = channel.read_count
        try:
            return await channel.request(code, header, body, timeout_ms=timeout_ms)
        except RequestTimeout:
            self.hang_up_if_silent(channel, read_count, timeout_ms)
            raise

    def _line(self, address: str) -> _Line:
        if self._is_closed:
            problem = f"this {self._owner} is closed"
            raise Unreachable(address, problem, "ask inside of its 'async with'")
        line = self._lines.pop(address, None)
        if line is None:
            self._make_room()
            line = _Line()
        self._lines[address] = line
        return line

    def _make_room(self) -> None:
        while len(self._lines) >= self._connections_max:
            idle = (address for address, line in self._lines.items() if line.request_count == 0)
            address = next(idle, None)
            if address is None:
                return  # all are in use, and uses are bounded
            self._lines.pop(address).close("others are needed more")

    async def _dialled(self, address: str, line: _Line, timeout_ms: int | None = None) -> Channel:
        """An open connection; whoever comes while one is being made waits for that one."""
        if line.channel is not None and line.channel.is_open:
            return line.channel
        loop = asyncio.get_running_loop()
        dialling = line.dialling
        if dialling is None:
            self._require_no_pause(address, line, loop.time())
            work = self._dial(address, line)
            dialling = line.dialling = loop.create_task(work, name=f"dialling {address}")
            dialling.add_done_callback(functools.partial(_dialling_ended, line))
        limit_ms = self._connect_timeout_ms
        if timeout_ms is not None:
            limit_ms = min(limit_ms, timeout_ms)
        # A little more than the attempt has, whose own words are better.
        limit = limit_ms / 1000 + (0.1 if limit_ms == self._connect_timeout_ms else 0)
        try:
            async with asyncio.timeout(limit):
                return await asyncio.shield(dialling)
        except TimeoutError as error:
            raise Unreachable(address, f"no connection within {limit_ms} ms") from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if dialling.cancelled() and not (task is not None and task.cancelling()):
                raise Unreachable(address, self._end_of(address)) from error
            raise
        finally:
            del dialling  # it keeps its error, which knows this frame and all that wait for it

    async def _dial(self, address: str, line: _Line) -> Channel:
        try:
            channel = await connect(
                address,
                self._routes,
                timeout_ms=self._connect_timeout_ms,
                settings=self._settings,
                tls=self._tls,
            )
        except Unreachable as error:
            line.failures += 1
            line.problem = error.reason
            if self._pauses is not None:
                pause = self._pauses.after(line.failures)
                line.retry_at = asyncio.get_running_loop().time() + pause
            raise
        line.failures = 0
        line.channel = channel
        if self._is_closed or self._lines.get(address) is not line:
            channel.close()
            raise Unreachable(address, self._end_of(address))
        if self._on_opened is not None:
            self._on_opened(address)
        return channel

    def _end_of(self, address: str) -> str:
        """Why a connection that was being made is of no more use."""
        if self._is_closed:
            return f"this {self._owner} is closed"
        return f"{address} was let go of while it was being dialled"

    def _require_no_pause(self, address: str, line: _Line, now: float) -> None:
        if line.failures and now < line.retry_at:
            left = line.retry_at - now
            raise Unreachable(address, line.problem, f"it is tried again in {left:.1f} s")


def _dialling_ended(line: _Line, dialling: "asyncio.Task[Channel]") -> None:
    line.dialling = None
    if not dialling.cancelled():
        dialling.exception()  # told to whoever waits, and to whoever comes during the pause


def _left_ms(deadline: float) -> int:
    return max(1, round((deadline - asyncio.get_running_loop().time()) * 1000))
