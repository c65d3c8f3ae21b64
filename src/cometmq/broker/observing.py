"""Puts together everything that looks at a broker: statistics, metrics, runtime info, settings.

Nothing here takes part in handling messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cometmq.broker.delay.timer_figures import TimerFigures
from cometmq.broker.handlers.cleaning import CleaningHandlers
from cometmq.broker.handlers.runtime import RuntimeHandlers
from cometmq.broker.live_settings import LiveSettings
from cometmq.broker.metrics import BrokerMetrics, Disks, Lags, RequestMeter
from cometmq.broker.progress import Consumption
from cometmq.broker.recent_times import RecentTimes
from cometmq.broker.runtime_info import TIME_BOUNDS, RuntimeInfo
from cometmq.broker.statistics import (
    AlsoPutAside,
    DeadLetters,
    PairCounts,
    Sources,
    Statistics,
    TopicPuts,
    Traffic,
    Whole,
)
from cometmq.remoting.client import split_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cometmq.broker.archives import Archives
    from cometmq.broker.broker_config import BrokerConfig
    from cometmq.broker.clients import Clients
    from cometmq.broker.delay.delivery import LevelDelivery
    from cometmq.broker.delay.levels import DelayLevels
    from cometmq.broker.delay.timers import Timers
    from cometmq.broker.durability import Durability
    from cometmq.broker.groups import GroupTable
    from cometmq.broker.handlers.offset_services import OffsetServiceHandlers
    from cometmq.broker.handlers.pull import PullHandlers
    from cometmq.broker.handlers.reply import ReplyHandlers
    from cometmq.broker.handlers.send_back import SendBackHandlers
    from cometmq.broker.idempotence import IdempotentSends
    from cometmq.broker.identity import Identity
    from cometmq.broker.offsets import ConsumerOffsets
    from cometmq.broker.registration import Registrar
    from cometmq.broker.topics import TopicTable
    from cometmq.clock import Clock
    from cometmq.remoting.metrics import Registry
    from cometmq.remoting.routes import Routes
    from cometmq.remoting.running import Background
    from cometmq.store import MessageStore


class Parts(Protocol):
    """What is looked at."""

    identity: Identity
    store: MessageStore
    topics: TopicTable
    groups: GroupTable
    offsets: ConsumerOffsets
    clients: Clients
    delivery: LevelDelivery
    levels: DelayLevels
    durability: Durability
    pulls: PullHandlers
    send_backs: SendBackHandlers
    replies: ReplyHandlers
    offset_services: OffsetServiceHandlers
    registrar: Registrar
    timers: Timers
    idempotent: IdempotentSends
    archives: Archives


class Counting:
    """The counters of a broker, and the statistics over them."""

    def __init__(
        self,
        topics: TopicTable,
        taken: dict[tuple[str, str], list[int]],
        clock: Clock,
        *,
        cluster_name: str,
        pulls: Callable[[], int],
        missed: Callable[[], int],
        returned: dict[tuple[str, str], list[int]],
        buried: dict[tuple[str, str], list[int]],
        groups: GroupTable,
        timers: Timers,
        put_aside: Mapping[str, Callable[[], int]],
    ) -> None:
        """``pulls`` are all requests for messages, ``missed`` those that found nothing.

        ``returned`` are messages that were handed back, ``buried`` those that became dead letters;
        ``put_aside`` tells of topics that nobody sends to how many messages they ever had.
        """
        self._topics = topics
        self.puts = TopicPuts(topics.by_name)
        topics.on_change.append(self.puts.learn)
        topics.on_delete.append(self.puts.forget)
        self.gets, returns, dead = PairCounts(taken), PairCounts(returned), PairCounts(buried)
        for pairs in (self.gets, returns, dead):
            topics.on_delete.append(pairs.forget_topic)
            groups.on_delete.append(pairs.forget_group)
        self._pulls = pulls
        self._missed = missed
        self._timers = timers
        sources = Sources(
            topic_puts=AlsoPutAside(self.puts, put_aside),
            group_gets=self.gets,
            send_backs=returns,
            broker_puts=Whole(cluster_name, lambda: self.puts.total().messages),
            broker_gets=Whole(cluster_name, lambda: self.gets.total().messages),
            dead_letters=DeadLetters(dead),
            user_puts=Whole(cluster_name, self.puts.user_messages),
            user_gets=Whole(cluster_name, lambda: self.gets.messages_of(self._is_users)),
        )
        self.statistics = Statistics(clock, sources, self._traffic)

    def _is_users(self, name: str) -> bool:
        topic = self._topics.get(name)
        return topic is None or not topic.is_system

    def _traffic(self) -> Traffic:
        pulls, missed = self._pulls(), self._missed()
        puts, gets = self.puts.total().messages, self.gets.total().messages
        timed, timed_out = self._timers.entered_count, self._timers.put_count
        return Traffic(puts, gets, max(0, pulls - missed), missed, timed, timed_out)


class Observing:
    """What an operator sees of a broker, and may change of it."""

    def __init__(
        self,
        parts: Parts,
        counting: Counting,
        meter: RequestMeter,
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._parts = parts
        self._counting = counting
        self._meter = meter
        self.settings = LiveSettings(config, clock, facts=_facts(parts.identity))
        self.settings.on_change.append(self._use)
        timers = TimerFigures(parts.timers, clock)
        flushes = RecentTimes(TIME_BOUNDS, clock)
        parts.store.on_flushed(flushes.observe)
        self._info = RuntimeInfo(
            parts.store,
            counting.statistics,
            meter.times,
            lambda: self.settings.config,
            clock,
            failed_sends=lambda: meter.failed_sends,
            waiting_sends=lambda: parts.durability.waiting_count,
            delay_offsets=self._delay_offsets,
            flushes=flushes,
            timers=timers,
        )
        self._runtime = RuntimeHandlers(
            parts.store, self._info, counting.statistics, self.settings, timers=timers
        )
        self._cleaning = CleaningHandlers(parts.store)
        self._lags = Lags(
            Consumption(parts.topics, parts.offsets, parts.clients),
            parts.store.max_offset,
            series_max=0 if config.health.port is None else config.broker.metrics_lag_series_max,
        )

    def add_to(self, routes: Routes) -> None:
        """Serve what is asked about the broker, and measure all handlers there are by then."""
        self._runtime.add_to(routes)
        self._cleaning.add_to(routes)
        self._meter.add_to(routes)

    def show(self, numbers: Registry, *, connections: Callable[[], int]) -> BrokerMetrics:
        """Show everything there is as metrics."""
        parts = self._parts
        metrics = BrokerMetrics(numbers, self._lags, Disks(self._info.log_folders()))
        metrics.add_store(parts.store)
        metrics.add_traffic(self._counting.puts.total, self._counting.gets.total)
        metrics.add_people(
            connections=connections,
            topics=lambda: len(parts.topics.by_name),
            groups=lambda: len(parts.clients.consumer_groups),
            held_pulls=lambda: parts.pulls.held.count,
            waiting_sends=lambda: parts.durability.waiting_count,
        )
        metrics.add_delays(
            parts.store,
            levels=parts.levels.count,
            offsets=self._delay_offsets,
            delivered=lambda: parts.delivery.delivered_count + parts.timers.delivered_count,
            timers=lambda: parts.timers.waiting_count,
        )
        metrics.add_extensions(
            parts.store,
            producers=lambda: parts.idempotent.producer_count,
            behind_bytes=lambda: parts.archives.behind_bytes,
        )
        metrics.add_registration(lambda: parts.registrar.states)
        metrics.add_process()
        return metrics

    def spawn(self, background: Background, metrics: BrokerMetrics) -> None:
        """Run what has to run as long as the broker."""
        background.spawn("sample statistics", self._counting.statistics.run())
        background.spawn("watch lags and disks", metrics.run())
        background.spawn("clean when asked to", self._cleaning.run())

    def _delay_offsets(self) -> Mapping[int, int]:
        return self._parts.delivery.table().offset_table

    def _use(self, config: BrokerConfig) -> None:
        """Settings have changed: tell those who ask them each time."""
        parts, broker = self._parts, config.broker
        parts.store.use(config.store)
        parts.topics.use(broker)
        parts.groups.settings = broker
        parts.clients.settings = broker
        parts.send_backs.settings = broker
        parts.replies.settings = broker
        parts.offset_services.settings = broker
        parts.pulls.use(broker)


def _facts(identity: Identity) -> dict[str, str]:
    host, port = split_address(identity.address)
    ha_host, ha_port = split_address(identity.ha_address)
    return {
        "brokerIP1": host,
        "brokerIP2": ha_host,
        "listenPort": str(port),
        "haListenPort": str(ha_port),
    }
