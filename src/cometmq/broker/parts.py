"""What a broker is made of: builds each part, lists every route; no logic."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq.broker.archives import Archives, ArchivesFile
from cometmq.broker.clients import Clients
from cometmq.broker.delay.delivery import LevelDelivery
from cometmq.broker.delay.destinations import DeletedFile, Destinations
from cometmq.broker.delay.levels import DelayLevels
from cometmq.broker.delay.timers import Timers
from cometmq.broker.durability import Durability
from cometmq.broker.groups import GroupTable
from cometmq.broker.handlers.clients import ClientHandlers
from cometmq.broker.handlers.connections import ConnectionHandlers
from cometmq.broker.handlers.extensions import ExtensionHandlers
from cometmq.broker.handlers.group_services import GroupServiceHandlers
from cometmq.broker.handlers.groups import GroupHandlers
from cometmq.broker.handlers.locks import LockHandlers
from cometmq.broker.handlers.not_yet import NotYetHandlers
from cometmq.broker.handlers.offset_services import OffsetServiceHandlers
from cometmq.broker.handlers.offsets import OffsetHandlers
from cometmq.broker.handlers.pull import PullHandlers
from cometmq.broker.handlers.query import QueryHandlers
from cometmq.broker.handlers.recall import RecallHandlers
from cometmq.broker.handlers.relays import RelayHandlers
from cometmq.broker.handlers.reply import ReplyHandlers
from cometmq.broker.handlers.send import SendHandlers
from cometmq.broker.handlers.send_back import SendBackHandlers
from cometmq.broker.handlers.topic_services import TopicServiceHandlers
from cometmq.broker.handlers.topics import TopicHandlers
from cometmq.broker.idempotence import IdempotentSends, KeptProducers
from cometmq.broker.idempotence_snapshot import SnapshotFile
from cometmq.broker.keeping import Keeper
from cometmq.broker.metrics import RequestMeter
from cometmq.broker.observing import Counting
from cometmq.broker.offsets import ConsumerOffsets
from cometmq.broker.progress import Progress
from cometmq.broker.queue_locks import QueueLocks
from cometmq.broker.registration import Registrar
from cometmq.broker.removal import TopicRemoval
from cometmq.broker.retry import Retries
from cometmq.broker.send_plans import SendPlans
from cometmq.broker.topics import TopicTable
from cometmq.clock import Clock
from cometmq.codec.codes import ResponseCode
from cometmq.errors import SettingsError
from cometmq.model.system_names import TIMER_TOPIC
from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.remoting.routes import Answer, Routes
from cometmq.saved_file import make_folder
from cometmq.store import MessageStore
from cometmq.store.config import FlushMode
from cometmq.store.documents import ConfigDocuments

if TYPE_CHECKING:
    from cometmq.broker.broker_config import BrokerConfig
    from cometmq.broker.identity import Identity
    from cometmq.clock import Clock
    from cometmq.remoting.channel import Channel
    from cometmq.remoting.routes import Routes
    from cometmq.store.config import StoreSettings
    from cometmq.store.consume_queue import ConsumeQueue

WAITING_SENDS_MAX = 100_000
"""Messages that may wait for the disk at a time; senders of more are told to slow down."""

FLUSH_SECONDS_MAX = 5.0
"""How long a broker that stops waits for the disk before it tells senders that it took too long."""

SETTLE_SECONDS_MAX = 3.0
"""How long whoever changes a topic waits for slow name servers; they are told in any case."""


class Parts:
    """Everything a broker is made of, once it is known where it listens; must be made on its loop.

    Opening the store may take a while: it recovers what a crash has left.
    """

    def __init__(
        self, config: BrokerConfig, identity: Identity, clock: Clock, meter: RequestMeter
    ) -> None:
        loop = asyncio.get_running_loop()
        chance = random.Random()
        self.identity = identity
        self._clock = clock
        _require_folders(config.store)
        self.store = MessageStore.open(config.store.root, config.store, clock=clock, loop=loop)
        documents = ConfigDocuments(config.store.root)
        self._open_tables(config, documents)
        self._open_delays(config, documents, chance)
        self._open_extensions(config)
        self._open_data_path(config, loop, chance)
        self._open_services(config, meter)
        self.keeper = self._keeper(documents, config)
        self.extensions = ExtensionHandlers(
            self.store, self.archives, config.broker, self._settle_archives
        )
        # A topic is saved after its first message is stored: a kill in between loses the former.
        self.topics.adopt(self.store.queues())
        held = self.pulls.held
        self.store.on_arrival(self._on_arrival, is_awaited=lambda: held.count > 0)

    def _open_tables(self, config: BrokerConfig, documents: ConfigDocuments) -> None:
        """Who and what there is: topics, groups, offsets, clients, locks."""
        settings, clock = config.broker, self._clock
        self.topics = TopicTable(documents.topics, settings, clock)
        self.groups = GroupTable(documents.groups, settings, clock)
        self.offsets = ConsumerOffsets(documents.consumer_offsets)
        self.clients = Clients(self.groups, self.topics, settings, clock)
        self.locks = QueueLocks(clock, settings.lock_expiry_ms)
        self.registrar = Registrar(
            settings,
            self.identity,
            self.topics,
            clock=clock,
            tls=config.tls_client,
            on_order=self.topics.apply_order,
        )
        self.topics.on_change.append(self.registrar.mark)
        self.topics.on_delete.append(self.registrar.mark)

    def _open_delays(
        self, config: BrokerConfig, documents: ConfigDocuments, chance: random.Random
    ) -> None:
        """What is delivered later, by level or by time."""
        settings, clock = config.broker, self._clock
        self._deleted_file = DeletedFile(config.store.root)
        self.destinations = Destinations(self._deleted_file, self.store, self.topics)
        self.topics.on_delete.append(self.destinations.forget)
        put, is_gone = self.destinations.put, self.destinations.is_gone
        self.levels = DelayLevels(config.store.delays_ms())
        self.delivery = LevelDelivery(
            self.store, self.levels, documents.delay_offsets, clock, put, is_gone=is_gone
        )
        self.plans = self._send_plans(config, chance)
        self.timers = Timers(self.store, settings, clock, put, is_gone=is_gone)
        self.plans.timers.crowd = self.timers
        self.recalls = RecallHandlers(
            self.store, self.topics, self.plans, self.plans.timers, settings=settings, clock=clock
        )

    def _open_data_path(
        self, config: BrokerConfig, loop: asyncio.AbstractEventLoop, chance: random.Random
    ) -> None:
        """What is run for each message."""
        settings, identity = config.broker, self.identity
        self.durability = Durability(
            self.store.watermarks,
            loop,
            timeout_ms=config.store.sync_flush_timeout_ms,
            waiting_max=WAITING_SENDS_MAX,
        )
        is_sync = config.store.flush_mode is FlushMode.SYNC_FLUSH
        self.sends = SendHandlers(
            self.store,
            self.plans,
            self.durability if is_sync else None,
            self.idempotent,
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
        self.topics.on_delete.append(self._end_pulls)
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

    def _open_services(self, config: BrokerConfig, meter: RequestMeter) -> None:
        """What is asked for now and then, and who counts it all."""
        settings, clock = config.broker, self._clock
        self.counting = Counting(
            self.topics,
            self.pulls.taken,
            clock,
            cluster_name=self.identity.cluster_name,
            pulls=lambda: meter.pull_count,
            missed=lambda: self.pulls.missed,
            returned=self.send_backs.returned,
            buried=self.send_backs.buried,
            groups=self.groups,
            timers=self.timers,
            put_aside={SCHEDULE_TOPIC: self._delayed_count},
        )
        self.replies = ReplyHandlers(
            self.store, self.plans, self.clients, settings=settings, clock=clock
        )
        self.offset_services = OffsetServiceHandlers(
            self.offsets,
            self.topics,
            self.groups,
            self.clients,
            self.store,
            broker_name=self.identity.broker_name,
            settings=settings,
            clock=clock,
            delay_table=self.delivery.table,
            on_reset=self.pulls.on_reset,
        )
        self.removal = TopicRemoval(self.store, self.topics, self.offsets)

    def _open_extensions(self, config: BrokerConfig) -> None:
        """What only our own pipeline uses: idempotent sends, and archives of the log."""
        self._producers_file = SnapshotFile(config.store.root)
        self.idempotent = IdempotentSends(
            self.store, self._producers_file, config.broker, self._clock
        )
        self.topics.on_delete.append(self.idempotent.forget_topic)
        self._archives_file = ArchivesFile(config.store.root)
        self.archives = Archives(self._archives_file, self.store, self._clock)
        self.store.retention.hold = self.archives.hold

    def _send_plans(self, config: BrokerConfig, chance: random.Random) -> SendPlans:
        return SendPlans(
            self.topics,
            Retries(self.groups, self.topics, self.locks.has_lock),
            self.levels,
            self.identity,
            config.broker,
            body_bytes_max=config.store.message_bytes_max,
            clock=self._clock,
            chance=chance,
        )

    def add_to(self, routes: Routes) -> None:
        """List every route."""
        self.sends.add_to(routes)
        self.pulls.add_to(routes)
        self.send_backs.add_to(routes)
        self.recalls.add_to(routes)
        ClientHandlers(self.clients, self.topics, self.identity.broker_name).add_to(routes)
        LockHandlers(self.locks).add_to(routes)
        OffsetHandlers(self.offsets, self.topics, self.groups, self.store).add_to(routes)
        self.offset_services.add_to(routes)
        self.replies.add_to(routes)
        QueryHandlers(self.store, self.clients).add_to(routes)
        TopicHandlers(self.topics, self._settle_topics).add_to(routes)
        GroupHandlers(self.groups, self.keeper.settle).add_to(routes)
        self._add_administration(routes)
        self.extensions.add_to(routes)
        NotYetHandlers().add_to(routes)

    def _add_administration(self, routes: Routes) -> None:
        """Questions and commands about topics, groups and clients."""
        name, tps = self.identity.broker_name, self.counting.statistics.tps
        TopicServiceHandlers(
            self.store,
            self.topics,
            self.offsets,
            self.clients,
            self.removal,
            broker_name=name,
            settle=self._settle_removal,
            tps=tps,
        ).add_to(routes)
        progress = Progress(
            self.store, self.topics, self.offsets, self.clients, broker_name=name, tps=tps
        )
        GroupServiceHandlers(
            self.groups,
            self.offsets,
            self.clients,
            progress,
            broker_address=self.identity.address,
            settle=self.keeper.settle_all,
        ).add_to(routes)
        ConnectionHandlers(self.clients, self._clock).add_to(routes)
        RelayHandlers(self.store, self.topics, self.clients, broker_name=name).add_to(routes)

    def on_closed(self, channel: Channel) -> None:
        """A connection has ended."""
        self.clients.on_closed(channel)
        self.pulls.held.on_closed(channel)

    async def release_waiting(self) -> None:
        """Answer everybody who waits: for a message, or for the disk."""
        self.pulls.close()
        self.removal.close()
        marks = self.store.watermarks
        if self.durability.waiting_count:
            await asyncio.to_thread(marks.wait_flushed, marks.appended, FLUSH_SECONDS_MAX)
        marks.release_waiting()
        self.durability.close()

    def _keeper(self, documents: ConfigDocuments, config: BrokerConfig) -> Keeper:
        keeper = Keeper(self._clock)
        # Before the topics: of one that is gone nothing must be delivered, whatever happens next.
        self.destinations.on_change = keeper.add(
            "deleted topics", self._deleted_file, self.destinations.table
        )
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
        self.idempotent.on_dirty = keeper.add(
            "idempotent producers",
            KeptProducers(self.store, self._producers_file),
            self.idempotent.snapshot,
            interval_ms=config.broker.flush_producer_interval_ms,
        )
        self.archives.on_change = keeper.add("archives", self._archives_file, self.archives.table)
        return keeper

    async def _settle_topics(self) -> None:
        """Bring topics to disk and to the name servers, as far as that is quick."""
        await self.keeper.settle()
        await self._register()

    async def _settle_removal(self) -> None:
        """The same when topics are gone, and what groups had consumed of them."""
        await self.keeper.settle_all()
        await self._register()

    async def _settle_archives(self) -> str:
        """Bring how far archives are to disk; why that failed, if it did."""
        await self.keeper.settle()
        return self.keeper.problem_of("archives")

    async def _register(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS_MAX):
                await self.registrar.register_now()

    def _delayed_count(self) -> int:
        """Messages that were ever put aside for a delay level."""
        levels = range(self.levels.count)
        return sum(self.store.max_offset(SCHEDULE_TOPIC, number) for number in levels)

    def _end_pulls(self, topic: str) -> None:
        """A topic is gone: nobody needs to wait for its messages any more."""
        remark = f"topic[{topic}] not exist, apply first please!"
        answer = Answer(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        self.pulls.held.end_topic(topic, lambda pull: pull.channel.reply(pull.command, answer))

    def _on_arrival(self, queues: set[ConsumeQueue]) -> None:
        self.pulls.on_arrival(queues)
        for queue in queues:
            if queue.topic == SCHEDULE_TOPIC:
                self.delivery.notify()
            elif queue.topic == TIMER_TOPIC:
                self.timers.notify()


def _require_folders(settings: StoreSettings) -> None:
    """Make where the store is to lie; what cannot be is an error that names the setting."""
    asked = [("storePathRootDir", settings.root)]
    grown = [path for path in settings.log_paths if path not in settings.log_paths_read_only]
    asked += [("storePathCommitLog", Path(path)) for path in grown]
    for key, folder in asked:
        try:
            make_folder(folder)
        except OSError as error:
            problem = f"'{folder}' cannot be made a folder: {error.strerror}"
            advice = "name one that the broker may make, or write to"
            raise SettingsError(key, problem, advice) from error
