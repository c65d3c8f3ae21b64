"""One broker's standing with one name server: a connection that is kept, and what was said on it.

A name server forgets a broker whose connection ends, at once and with all its routes. So the
connection stays open, and when it is lost the broker registers again without waiting for the next
period; while a name server is down it is tried again at growing intervals. A connection on which a
registration meets nothing but silence is replaced: no end of it may ever come, for instance behind
a firewall that has forgotten it, or from a machine that was switched off.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from cometmq import logs
from cometmq.clock import Clock
from cometmq.codec import bodies, core
from cometmq.codec.bodies.nameserver import KVTable
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.registration import (
    QueryDataVersion,
    QueryDataVersionResponse,
    RegisterBroker,
    UnregisterBroker,
)
from cometmq.errors import BrokerError, CometError, RequestTimeout
from cometmq.model.topic import DataVersion
from cometmq.remoting.channel import Channel
from cometmq.remoting.client import connect
from cometmq.remoting.config import TlsClientSettings
from cometmq.remoting.connections import Pauses

_log = logs.get_logger("cometmq.broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a broker registers, in seconds."""

    period: float = 30.0
    gap: float = 0.1
    """Between two registrations: what changes meanwhile goes with the second."""
    retry_first: float = 1.0
    retry_max: float = 10.0

    def retry(self, failures: int) -> float:
        """How long to wait after so many failures in a row."""
        return Pauses(self.retry_first, self.retry_max).after(failures)


@dataclass(frozen=True, slots=True)
class NameServerState:
    """How things stand with one name server; ``problem`` is empty when all is well."""

    address: str
    is_registered: bool
    registered_ms: int | None
    """When it last took a registration."""
    problem: str


@dataclass(frozen=True, slots=True)
class Announcement:
    """All that a broker tells a name server."""

    header: RegisterBroker
    body: bytes
    version: DataVersion
    topic_count: int


class NameServerLink:
    """Keeps one name server informed. ``run`` may be cancelled at any time; ``leave`` ends it."""

    def __init__(
        self,
        address: str,
        announce: Callable[[], Awaitable[Announcement]],
        *,
        clock: Clock,
        pace: Pace,
        tls: TlsClientSettings | None,
        timeout_ms: int,
        is_asking_first: bool,
        on_order: Callable[[Collection[str]], None] | None,
    ) -> None:
        self.address = address
        self._announce = announce
        self._clock = clock
        self._pace = pace
        self._tls = tls
        self._timeout_ms = timeout_ms
        # Whether to ask first if it knows all that there is to tell.
        self._is_asking_first = is_asking_first
        # Told, with each answer, the topics that this name server says are ordered.
        self._on_order = on_order
        self._channel: Channel | None = None
        self._heard_count = -1  # what had come on it when something was asked last
        self._talk = asyncio.Lock()  # one conversation at a time
        self._wake = asyncio.Event()  # there is something to tell, or the connection was lost
        self._is_leaving = False
        self._is_changed = True  # something was not told on this connection yet
        self._failures = 0  # in a row; a lost connection is one
        self._registered_ms: int | None = None
        self._problem = "not registered yet"

    @property
    def state(self) -> NameServerState:
        return NameServerState(self.address, not self._problem, self._registered_ms, self._problem)

    def mark(self) -> None:
        """Something has changed: tell it soon."""
        self._is_changed = True
        self._wake.set()

    async def run(self) -> None:
        """Register again whenever it is time, until ``leave``."""
        while True:
            await self._pause()
            if self._is_leaving:
                return
            await self.register(self._timeout_ms)
            await asyncio.sleep(self._pace.gap)

    async def register(self, timeout_ms: int) -> bool:
        """Try once and say whether it worked; what went wrong is logged when it is new."""
        async with self._talk:
            self._wake.clear()
            self._heard_count = -1
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    topic_count = await self._tell(timeout_ms)
            except (TimeoutError, RequestTimeout):
                self._hang_up_if_silent(timeout_ms)
                self._failed(RequestTimeout(self.address, timeout_ms))
            except CometError as error:
                self._failed(error)
            else:
                self._succeeded(topic_count)
        if not self._problem and self._channel is not None and not self._channel.is_open:
            self._lost(self._channel)  # right behind the answer
        return not self._problem

    async def leave(self, header: UnregisterBroker, timeout_ms: int) -> None:
        """Say good-bye, if it ever heard of us, and hang up; never raises, and is bounded."""
        self._is_leaving = True
        self._wake.set()
        if self._channel is None or not self._channel.is_open:
            return  # a name server forgets who hangs up
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._talk:
                code = RequestCode.UNREGISTER_BROKER
                answer = await self._channel.request(code, header, timeout_ms=timeout_ms)
                _require_success(answer)
                _log.info("name_server=%s unregistered", self.address)
        except (CometError, TimeoutError) as error:
            reason = str(error) or f"no answer within {timeout_ms} ms"
            _log.warning("name_server=%s not unregistered: %s", self.address, reason)
        finally:
            self._channel.close("the broker stops")

    async def _pause(self) -> None:
        """Wait until there is a reason to register."""
        if not self._failures:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pace.period):
                    await self._wake.wait()
        if self._failures and not self._is_leaving:
            await asyncio.sleep(self._pace.retry(self._failures))

    async def _tell(self, timeout_ms: int) -> int:
        """Register, unless it knows everything; the number of topics it has now."""
        channel = await self._open(timeout_ms)
        is_changed, self._is_changed = self._is_changed, False
        told = await self._announce()
        self._heard_count = channel.read_count
        if (
            is_changed
            or not self._is_asking_first
            or await self._is_stale(channel, told, timeout_ms)
        ):
            code = RequestCode.REGISTER_BROKER
            answer = await channel.request(code, told.header, told.body, timeout_ms=timeout_ms)
            _require_success(answer)
            if answer.body and self._on_order is not None:
                self._on_order(frozenset(bodies.decode(KVTable, answer.body).table))
        return told.topic_count

    async def _is_stale(self, channel: Channel, told: Announcement, timeout_ms: int) -> bool:
        who = told.header
        header = QueryDataVersion(who.broker_name, who.broker_addr, who.cluster_name, who.broker_id)
        answer = await channel.request(
            RequestCode.QUERY_DATA_VERSION,
            header,
            bodies.encode(told.version),
            timeout_ms=timeout_ms,
        )
        if answer.code != ResponseCode.SUCCESS:
            return True
        return core.read(answer, QueryDataVersionResponse).changed

    async def _open(self, timeout_ms: int) -> Channel:
        if self._channel is None or not self._channel.is_open:
            self._channel = await connect(
                self.address,
                timeout_ms=timeout_ms,
                tls=self._tls,
                on_closed=self._lost,
            )
            self._is_changed = True
        if self._is_leaving:
            self._channel.close("the broker stops")
        return self._channel

    def _hang_up_if_silent(self, timeout_ms: int) -> None:
        """End a connection on which nothing came; one that says anything at all is only slow."""
        if self._channel is not None and self._channel.read_count == self._heard_count:
            self._channel.close(f"nothing came within {timeout_ms} ms")

    def _lost(self, channel: Channel) -> None:
        is_noticed = self._talk.locked() or self._failures > 0
        if channel is self._channel and not is_noticed and not self._is_leaving:
            self._failures = 1
            self._complain("the connection ended")
            self._wake.set()

    def _succeeded(self, topic_count: int) -> None:
        if self._problem:
            _log.info("name_server=%s registered with %d topics", self.address, topic_count)
        self._failures = 0
        self._problem = ""
        self._registered_ms = self._clock.now_ms()

    def _failed(self, error: CometError) -> None:
        self._is_changed = True
        self._failures += 1
        if not self._is_leaving:
            self._complain(str(error))

    def _complain(self, problem: str) -> None:
        """Log a problem when it is new: not each time that a name server is still down."""
        if problem != self._problem:
            _log.warning("name_server=%s not registered, trying again: %s", self.address, problem)
        self._problem = problem


def _require_success(answer: Command) -> None:
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark or "no reason given")
