"""The name server program: builds each part, lists every route, runs the clocks; no logic."""

import asyncio

from cometmq import logs
from cometmq.clock import Clock, SystemClock
from cometmq.nameserver.config import NameServerSettings
from cometmq.nameserver.handlers.brokers import BrokerHandlers
from cometmq.nameserver.handlers.kv import KvHandlers
from cometmq.nameserver.handlers.routing import RouteHandlers
from cometmq.nameserver.handlers.runtime import RuntimeHandlers
from cometmq.nameserver.handlers.topics import TopicHandlers
from cometmq.nameserver.kv_config import KvConfigFile, KvSource
from cometmq.nameserver.live_settings import LiveSettings, NameServerConfig
from cometmq.nameserver.route_table import RouteRules, RouteTable
from cometmq.remoting.config import TlsMode
from cometmq.remoting.health import HealthServer
from cometmq.remoting.metrics import Registry
from cometmq.remoting.routes import Routes
from cometmq.remoting.running import Background, say_what_has_no_effect
from cometmq.remoting.server import Server, is_loopback

_log = logs.get_logger("cometmq.nameserver")

_FIRST_SCAN_SECONDS = 5.0
_KV_LOG_SECONDS = 600.0


class NameServer:
    """One name server. Several of them know nothing of each other; brokers register with all."""

    def __init__(self, config: NameServerConfig, *, clock: Clock | None = None) -> None:
        self.background = Background()
        self._config = config
        self._settings = LiveSettings(config)
        self._kv_file = KvConfigFile(config.nameserver.kv_config_path)
        loaded = self._kv_file.load()
        if loaded.source is KvSource.BACKUP:
            _log.warning("kv configuration read from the backup: %s", loaded.problem)
        self._kv = loaded.config
        self._table = RouteTable(_rules(config.nameserver))
        clock = clock or SystemClock()
        numbers = Registry()
        self._brokers = BrokerHandlers(self._table, self._kv, self._current, clock, numbers)
        self._routes = RouteHandlers(self._table, self._kv, self._current, clock, numbers)
        self._server = Server(
            self._handlers(),
            settings=config.server,
            channel_settings=config.channel,
            tls=config.tls,
            on_closed=self._brokers.on_closed,
        )
        self._add_gauges(numbers)
        self._health = HealthServer(lack=self._lack, metrics=numbers.expose)
        self._is_serving = False

    @property
    def port(self) -> int:
        """Where it listens, once started."""
        return self._server.ports[0]

    @property
    def health_port(self) -> int:
        """Where probes and metrics are served, once started with such a port."""
        return self._health.port

    async def start(self) -> None:
        """Listen. Raises PortInUse."""
        network = self._config.network
        await self._server.start(network.bind_address, network.listen_port)
        self.background.spawn("scan for silent brokers", self._scan())
        self.background.spawn("log kv configuration", self._log_kv())
        if self._config.health.port is not None:
            await self._health.start(self._config.health.address, self._config.health.port)
        self._is_serving = True
        say_what_has_no_effect(self._config, _log)
        if self._config.tls.mode != TlsMode.ENFORCING and not is_loopback(network.bind_address):
            _log.warning(
                "anyone who reaches port %d can change routes: neither TLS nor access control is"
                " on (tls.server.mode=enforcing, or bindAddress=127.0.0.1)",
                self.port,
            )
        _log.info("name server listens on %s:%d", network.bind_address, self.port)

    async def stop(self) -> None:
        """Finish what is in work and end all connections; bounded."""
        self._is_serving = False
        await self.background.stop()
        await self._server.stop()
        await self._health.stop()
        _log.info("name server stopped")

    def _handlers(self) -> Routes:
        routes = Routes()
        self._routes.add_to(routes)
        self._brokers.add_to(routes)
        TopicHandlers(self._table, self._current).add_to(routes)
        KvHandlers(self._kv, self._kv_file).add_to(routes)
        RuntimeHandlers(self._settings).add_to(routes)
        return routes

    def _lack(self) -> str | None:
        """What is missing until this name server can be used."""
        return None if self._is_serving else "not listening"

    def _add_gauges(self, numbers: Registry) -> None:
        prefix, table = "cometmq_nameserver", self._table
        numbers.gauge(f"{prefix}_brokers", "Brokers registered.", lambda: table.broker_count)
        numbers.gauge(f"{prefix}_topics", "Topics with a route.", lambda: table.topic_count)
        numbers.gauge(
            f"{prefix}_connections", "Open connections.", lambda: len(self._server.channels)
        )

    def _current(self) -> NameServerSettings:
        return self._settings.nameserver

    def scan(self) -> None:
        """Drop the brokers that were silent too long; the clock calls it, and so do tests."""
        rules = _rules(self._current())
        if rules != self._table.rules:
            self._table.rules = rules
        self._brokers.scan()

    async def _scan(self) -> None:
        await asyncio.sleep(_FIRST_SCAN_SECONDS)
        while True:
            self.scan()
            await asyncio.sleep(self._current().scan_not_active_broker_interval_ms / 1000)

    async def _log_kv(self) -> None:
        while True:
            await asyncio.sleep(_KV_LOG_SECONDS)
            for namespace, key, value in self._kv:
                _log.info("kv=%s/%s is %s", namespace, key, value)


def _rules(settings: NameServerSettings) -> RouteRules:
    return RouteRules(
        support_acting_master=settings.support_acting_master,
        delete_absent_topics=settings.delete_topic_with_broker_registration,
    )
