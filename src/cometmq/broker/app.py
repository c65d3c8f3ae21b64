"""The broker program: builds each part, lists every route, runs the clocks; no logic."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

from cometmq import logs
from cometmq.broker.clients import Clients
from cometmq.broker.delay.delivery import LevelDelivery
from cometmq.broker.delay.levels import DelayLevels
from cometmq.broker.durability import Durability
from cometmq.broker.groups import GroupTable
from cometmq.broker.handlers.clients import ClientHandlers
from cometmq.broker.handlers.groups import GroupHandlers
from cometmq.broker.handlers.locks import LockHandlers
from cometmq.broker.handlers.not_yet import NotYetHandlers
from cometmq.broker.handlers.offsets import OffsetHandlers
from cometmq.broker.handlers.pull import PullHandlers
from cometmq.broker.handlers.send import SendHandlers
from cometmq.broker.handlers.send_back import SendBackHandlers
from cometmq.broker.handlers.topics import TopicHandlers
from cometmq.broker.identity import resolve_identity
from cometmq.broker.keeping import Keeper
from cometmq.broker.offsets import ConsumerOffsets
from cometmq.broker.queue_locks import QueueLocks
from cometmq.broker.registration import Registrar
from cometmq.broker.retry import Retries
from cometmq.broker.send_plans import SendPlans
from cometmq.broker.topics import TopicTable
from cometmq.clock import Clock, SystemClock
from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.remoting.config import TlsMode
from cometmq.remoting.health import HealthServer
from cometmq.remoting.metrics import Registry
from cometmq.remoting.routes import Routes
from cometmq.remoting.running import Background, say_what_has_no_effect
from cometmq.remoting.server import Server, is_loopback
from cometmq.store import MessageStore
from cometmq.store.config import FlushMode
from cometmq.store.documents import ConfigDocuments

if TYPE_CHECKING:
    from cometmq.broker.broker_config import BrokerConfig
    from cometmq.broker.identity import Identity
    from cometmq.remoting.channel import Channel
    from cometmq.store.consume_queue import ConsumeQueue

_log = logs.get_logger("cometmq.broker")

WAITING_SENDS_MAX = 100_000
"""Messages that may wait for the disk at a time; senders of more are told to slow down."""


FLUSH_SECONDS_MAX = 5.0
"""How long a broker that stops waits for the disk before it tells senders that it took too long."""

SETTLE_SECONDS_MAX = 3.0
"""How long whoever changes a topic waits for slow name servers; they are told in any case."""


class Broker:
    """One broker on one store directory. Built cheaply; everything happens in ``start``."""

    def __init__(self, config: BrokerConfig, *, clock: Clock | None = None) -> None:
        self.background = Background()
        self.numbers = Registry()
        self._config = config
        self._clock = clock or SystemClock()
        self._routes = Routes()
        self._server = Server(
            self._routes,
            settings=config.server,
            channel_settings=config.channel,
            tls=config.tls,
            on_closed=self._on_closed,
        )
        self._health = HealthServer(lack=self._lack, metrics=self.numbers.expose)
        self._parts: _Parts | None = None
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

    @property
    def parts(self) -> _Parts:
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
        parts = self._parts = _Parts(config, identity, self._clock)
        parts.add_to(self._routes)
        self._add_gauges()
        self.background.spawn("save documents", parts.keeper.run())
        self.background.spawn("deliver delayed messages", parts.delivery.run())
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
            # What was delivered in the last moments must not be delivered again.
            parts.store.flush()
            parts.delivery.settle()
            await parts.keeper.close()
            parts.store.close()
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
            self.parts.clients.scan()
            self.parts.locks.drop_expired()

    def _add_gauges(self) -> None:
        prefix, parts, marks = "cometmq_broker", self.parts, self.parts.store.watermarks
        for name, text, read in (
            ("connections", "Open connections.", lambda: len(self._server.channels)),
            ("topics", "Topics.", lambda: len(parts.topics.by_name)),
            ("consumer_groups", "Groups online.", lambda: len(parts.clients.consumer_groups)),
            ("pulls_held", "Pulls that wait for a message.", lambda: parts.pulls.held.count),
            ("log_begin_bytes", "Where the log begins.", lambda: parts.store.log_begin),
            ("log_end_bytes", "Where the log ends.", lambda: marks.appended),
            ("log_flushed_bytes", "How far it is on disk.", lambda: marks.flushed),
            ("log_dispatched_bytes", "How far it is in queues.", lambda: marks.dispatched),
            ("is_writable", "1 while messages are taken.", lambda: parts.store.state.is_writable),
            ("messages_put_total", "Messages taken since the start.", lambda: parts.sends.count),
            ("messages_got_total", "Messages handed out.", lambda: parts.pulls.count),
        ):
            self.numbers.gauge(f"{prefix}_{name}", text, read)


class _Parts:
    """Everything a broker is made of, once it is known where it listens; must be made on its loop.

    Opening the store may take a while: it recovers what a crash has left.
    """

    def __init__(self, config: BrokerConfig, identity: Identity, clock: Clock) -> None:
        loop = asyncio.get_running_loop()
        settings, chance = config.broker, random.Random()
        self.identity = identity
        self.store = MessageStore.open(config.store.root, config.store, clock=clock, loop=loop)
        documents = ConfigDocuments(config.store.root)
        self.topics = TopicTable(documents.topics, settings, clock)
        self.groups = GroupTable(documents.groups, settings, clock)
        self.offsets = ConsumerOffsets(documents.consumer_offsets)
        self.clients = Clients(self.groups, self.topics, settings, clock)
        self.locks = QueueLocks(clock, settings.lock_expiry_ms)
        self.levels = DelayLevels(config.store.delays_ms())
        self.delivery = LevelDelivery(
            self.store, self.levels, documents.delay_offsets, clock, self.store.put
        )
        self.durability = Durability(
            self.store.watermarks,
            loop,
            timeout_ms=config.store.sync_flush_timeout_ms,
            waiting_max=WAITING_SENDS_MAX,
        )
        self.plans = self._send_plans(config, clock, chance)
        is_sync = config.store.flush_mode is FlushMode.SYNC_FLUSH
        self.sends = SendHandlers(
            self.store,
            self.plans,
            self.durability if is_sync else None,
        )
        self.pulls = PullHandlers(
            self.store,
            self.topics,
            self.groups,
            self.clients,
            self.offsets,
            identity=identity,
            settings=settings,
            loop=loop,
        )
        self.send_backs = SendBackHandlers(
            self.store,
            self.topics,
            self.groups,
            self.levels,
            settings=settings,
            host=identity.store_ip,
            store_host=identity.store_host,
            chance=chance,
        )
        self.registrar = Registrar(
            settings,
            identity,
            self.topics,
            clock=clock,
            tls=config.tls_client,
            on_order=self.topics.apply_order,
        )
        self.topics.on_change.append(self.registrar.mark)
        self.topics.on_delete.append(self.registrar.mark)
        self.keeper = self._keeper(documents, config, clock)
        # A topic is saved after its first message is stored: a kill in between loses the former.
        self.topics.adopt(self.store.queues())
        self.store.on_arrival(self._on_arrival)

    def _send_plans(self, config: BrokerConfig, clock: Clock, chance: random.Random) -> SendPlans:
        return SendPlans(
            self.topics,
            Retries(self.groups, self.topics, self.locks.has_lock),
            self.levels,
            self.identity,
            config.broker,
            body_bytes_max=config.store.message_bytes_max,
            clock=clock,
            chance=chance,
        )

    def add_to(self, routes: Routes) -> None:
        """List every route."""
        self.sends.add_to(routes)
        self.pulls.add_to(routes)
        self.send_backs.add_to(routes)
        ClientHandlers(self.clients, self.topics, self.identity.broker_name).add_to(routes)
        LockHandlers(self.locks).add_to(routes)
        OffsetHandlers(self.offsets, self.topics, self.groups, self.store).add_to(routes)
        TopicHandlers(self.topics, self._settle_topics).add_to(routes)
        GroupHandlers(self.groups, self.keeper.settle).add_to(routes)
        NotYetHandlers().add_to(routes)

    def on_closed(self, channel: Channel) -> None:
        """A connection has ended."""
        self.clients.on_closed(channel)
        self.pulls.held.on_closed(channel)

    async def release_waiting(self) -> None:
        """Answer everybody who waits: for a message, or for the disk."""
        self.pulls.close()
        marks = self.store.watermarks
        if self.durability.waiting_count:
            await asyncio.to_thread(marks.wait_flushed, marks.appended, FLUSH_SECONDS_MAX)
        marks.release_waiting()
        self.durability.close()

    def _keeper(self, documents: ConfigDocuments, config: BrokerConfig, clock: Clock) -> Keeper:
        keeper = Keeper(clock)
        save_topics = keeper.add("topics", documents.topics, self.topics.table)
        self.topics.on_change.append(lambda _: save_topics())
        self.topics.on_delete.append(lambda _: save_topics())
        save_groups = keeper.add("groups", documents.groups, self.groups.table)
        self.groups.on_change.append(lambda _: save_groups())
        self.groups.on_delete.append(lambda _: save_groups())
        self.offsets.on_dirty = keeper.add(
            "consumer offsets",
            documents.consumer_offsets,
            self.offsets.table,
            interval_ms=config.broker.flush_consumer_offset_interval_ms,
        )
        self.delivery.on_progress = keeper.add(
            "delay offsets",
            documents.delay_offsets,
            self.delivery.table,
            interval_ms=config.broker.flush_delay_offset_interval_ms,
        )
        return keeper

    async def _settle_topics(self) -> None:
        """Bring topics to disk and to the name servers, as far as that is quick."""
        await self.keeper.settle()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS_MAX):
                await self.registrar.register_now()

    def _on_arrival(self, queues: set[ConsumeQueue]) -> None:
        self.pulls.on_arrival(queues)
        if any(queue.topic == SCHEDULE_TOPIC for queue in queues):
            self.delivery.notify()
