"""The broker program: starts and stops the parts, and runs the clocks; no logic."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from cometmq import logs
from cometmq.broker.identity import resolve_identity
from cometmq.broker.metrics import RequestMeter
from cometmq.broker.observing import Observing
from cometmq.broker.parts import Parts
from cometmq.clock import Clock, SystemClock
from cometmq.remoting.config import TlsMode
from cometmq.remoting.health import HealthServer
from cometmq.remoting.metrics import Registry
from cometmq.remoting.routes import Routes
from cometmq.remoting.running import Background, say_what_has_no_effect
from cometmq.remoting.server import Server, is_loopback

if TYPE_CHECKING:
    from cometmq.broker.broker_config import BrokerConfig
    from cometmq.remoting.channel import Channel

_log = logs.get_logger("cometmq.broker")


class Broker:
    """One broker on one store directory. Built cheaply; everything happens in ``start``."""

    def __init__(self, config: BrokerConfig, *, clock: Clock | None = None) -> None:
        self.background = Background()
        self.numbers = Registry()
        self._meter = RequestMeter(self.numbers)
        self._config = config
        self._clock = clock or SystemClock()
        self._routes = Routes()
        self._server = Server(
            self._routes,
            settings=config.server,
            channel_settings=config.channel,
            tls=config.tls,
            on_closed=self._on_closed,
            on_refused=self._meter.on_refused,
        )
        self._health = HealthServer(lack=self._lack, metrics=self.numbers.expose)
        self._parts: Parts | None = None
        self._is_serving = False

    @property
    def port(self) -> int:
        """Where it listens, once started."""
        return self._server.ports[0]

    @property
    def address(self) -> str:
        """What clients are told, once started."""
        return self.parts.identity.address

    @property
    def health_port(self) -> int:
        """Where probes and metrics are served, once started with such a port."""
        return self._health.port

    @property
    def channels(self) -> frozenset[Channel]:
        """All connections."""
        return self._server.channels

    def refuse_connections(self) -> None:
        """Accept nobody any more, because it is about to end."""
        self._server.refuse_connections()

    @property
    def parts(self) -> Parts:
        """What it is made of, once started."""
        assert self._parts is not None, "the broker is not started"
        return self._parts

    async def start(self) -> None:
        """Open the store, listen and register.

        Raises PortInUse, SettingsError, and what opening a store raises.
        """
        config, network = self._config, self._config.network
        await self._server.bind(network.bind_address, network.listen_port)
        identity = resolve_identity(config.broker, network, self.port)
        parts = self._parts = Parts(config, identity, self._clock, self._meter)
        parts.add_to(self._routes)
        observing = Observing(parts, parts.counting, self._meter, config, self._clock)
        observing.add_to(self._routes)
        metrics = observing.show(self.numbers, connections=lambda: len(self._server.channels))
        observing.spawn(self.background, metrics)
        self.background.spawn("save documents", parts.keeper.run())
        self.background.spawn("deliver delayed messages", parts.delivery.run())
        self.background.spawn("deliver timed messages", parts.timers.run())
        self.background.spawn("save timed messages", parts.timers.keep())
        self.background.spawn("follow idempotent sends", parts.idempotent.run())
        self.background.spawn("scan for silent clients", self._scan())
        await self._server.serve()
        if config.health.port is not None:
            await self._health.start(config.health.address, config.health.port)
        self._is_serving = True
        say_what_has_no_effect(self._config, _log)
        if config.tls.mode != TlsMode.ENFORCING and not is_loopback(network.bind_address):
            _log.warning(
                "anyone who reaches port %d can send and read messages: neither TLS nor access"
                " control is on (tls.server.mode=enforcing, or bindAddress=127.0.0.1)",
                self.port,
            )
        _log.info("%s", identity)
        await parts.registrar.register_now()
        self.background.spawn("register with name servers", parts.registrar.run())
        _log.info("broker listens on %s:%d", network.bind_address, self.port)

    async def stop(self) -> None:
        """Leave the name servers, finish what is in work, and bring everything to disk; bounded."""
        self._is_serving = False
        parts = self._parts
        if parts is not None:
            await parts.registrar.unregister()
            for channel in self._server.channels:
                channel.stop_serving()
            await parts.release_waiting()
            # What that answered is written in the loop's next turn.
            await asyncio.sleep(0)
        await self._server.stop()
        await self.background.stop()
        await self._health.stop()
        if parts is not None:
            await _bring_to_disk(parts)
            _log.info("broker stopped")

    # --- the inside

    def _on_closed(self, channel: Channel) -> None:
        if self._parts is not None:
            self._parts.on_closed(channel)

    def _lack(self) -> str | None:
        """What is missing until this broker can be used."""
        if not self._is_serving:
            return "not listening"
        return self.parts.store.state.refusal or None

    async def _scan(self) -> None:
        while True:
            await asyncio.sleep(self._config.broker.client_scan_interval_ms / 1000)
            parts = self.parts
            parts.clients.scan()
            parts.locks.drop_expired()
            parts.offsets.drop_expired_resets(self._clock.monotonic(), parts.clients.may_pull)


async def _bring_to_disk(parts: Parts) -> None:
    """Each part gets its turn, the tables above all, whatever happens to those before it."""
    async with contextlib.AsyncExitStack() as turns:  # the last one that is named goes first
        turns.callback(parts.store.close)
        turns.push_async_callback(parts.keeper.close)
        turns.callback(parts.timers.close)
        turns.callback(parts.delivery.settle)
        # What was delivered in the last moments must not be delivered again.
        parts.store.flush()
