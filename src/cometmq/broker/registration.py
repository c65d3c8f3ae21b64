"""How a broker makes itself known: at the start, now and then, on every change, and when it goes.

Every name server hears the same from a link of its own, so one that is slow or down keeps nobody
waiting. Always the whole table of topics is told: releases from 5.0 on refuse a broker that begins
with a single topic, and one that removes what a registration lacks would forget the others.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

import msgspec

from cometmq import logs
from cometmq.broker.config import BrokerSettings
from cometmq.broker.identity import Identity
from cometmq.broker.name_server_link import Announcement, NameServerLink, NameServerState, Pace
from cometmq.clock import Clock
from cometmq.codec import registration
from cometmq.codec.bodies.nameserver import RegisterBrokerBody
from cometmq.codec.bodies.topics import TopicConfigTable
from cometmq.codec.codes import VERSION
from cometmq.codec.headers.registration import RegisterBroker, UnregisterBroker
from cometmq.model.topic import DataVersion, Permission, TopicConfig
from cometmq.remoting.config import TlsClientSettings

__all__ = ["NameServerState", "Pace", "Registrar"]

_log = logs.get_logger("cometmq.broker")

FIRST_TIMEOUT_MS = 3000
"""How long a start waits for name servers that do not answer."""

UNREGISTER_TIMEOUT_MS = 3000

_QUICK_TOPICS = 500
"""A table of so many topics is written in some milliseconds; a larger one on a thread."""

_READ_WRITE = Permission.READ | Permission.WRITE


class Topics(Protocol):
    """Whoever knows the topics."""

    def table(self) -> TopicConfigTable: ...


class Registrar:
    """Keeps all name servers informed about one broker.

    ``register_now`` tries each of them once; ``run`` goes on from there; ``unregister`` ends it.
    ``on_order`` is told, with each answer, the topics which that name server says are ordered. What
    others said before does not count: it may have been taken back meanwhile.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        identity: Identity,
        topics: Topics,
        *,
        clock: Clock,
        tls: TlsClientSettings | None = None,
        on_order: Callable[[Collection[str]], None] | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._topics = topics
        self._is_loneliness_told = False
        self._telling = asyncio.Lock()
        self._told: Announcement | None = None  # what was last written, for all links
        self._links = [
            NameServerLink(
                address,
                self._announcement,
                clock=clock,
                pace=pace or Pace(period=settings.register_period_used_ms / 1000),
                tls=tls,
                timeout_ms=settings.register_timeout_ms,
                is_asking_first=not settings.force_register,
                on_order=on_order,
            )
            for address in dict.fromkeys(settings.namesrv_addr)
        ]

    @property
    def states(self) -> tuple[NameServerState, ...]:
        """How things stand with each name server, in the order of the settings."""
        return tuple(link.state for link in self._links)

    @property
    def is_registered(self) -> bool:
        """Whether clients can find this broker: one name server is enough."""
        return any(link.state.is_registered for link in self._links)

    def mark(self, *_: object) -> None:
        """Topics have changed: tell it soon. Any number of calls makes one registration."""
        for link in self._links:
            link.mark()

    async def register_now(self) -> bool:
        """Try every name server once, side by side; returns within some seconds, and never raises.

        True if at least one of them knows this broker now.
        """
        if not self._links and not self._is_loneliness_told:
            self._is_loneliness_told = True
            _log.warning("no name server is set, so clients cannot find this broker (namesrvAddr)")
        timeout_ms = min(FIRST_TIMEOUT_MS, self._settings.register_timeout_ms)
        await asyncio.gather(*(link.register(timeout_ms) for link in self._links))
        return self.is_registered

    async def run(self) -> None:
        """Keep the registrations alive until ``unregister``; cancel it to end it sooner."""
        async with asyncio.TaskGroup() as group:
            for link in self._links:
                group.create_task(link.run(), name=f"registration with {link.address}")

    async def unregister(self) -> None:
        """Take the broker out of all routes, before it stops serving; bounded, never raises."""
        who = self._identity
        header = UnregisterBroker(who.broker_name, who.address, who.cluster_name, who.broker_id)
        await asyncio.gather(*(link.leave(header, UNREGISTER_TIMEOUT_MS) for link in self._links))

    async def _announcement(self) -> Announcement:
        """What there is to tell now, written once for all name servers."""
        async with self._telling:
            table = self._topics.table()
            version = table.data_version or DataVersion()
            if self._told is None or self._told.version != version:
                if len(table.topic_config_table) <= _QUICK_TOPICS:
                    self._told = self._written(table, version)
                else:
                    self._told = await asyncio.to_thread(self._written, table, version)
            return self._told

    def _written(self, table: TopicConfigTable, version: DataVersion) -> Announcement:
        is_compressed = self._settings.compressed_register
        topics = {
            name: self._as_registered(topic) for name, topic in table.topic_config_table.items()
        }
        wrapper = msgspec.structs.replace(table, data_version=version, topic_config_table=topics)
        body = registration.encode(
            RegisterBrokerBody((), wrapper), VERSION, compressed=is_compressed
        )
        who = self._identity
        header = RegisterBroker(
            broker_name=who.broker_name,
            broker_addr=who.address,
            cluster_name=who.cluster_name,
            ha_server_addr=who.ha_address,
            broker_id=who.broker_id,
            compressed=is_compressed,
            body_crc32=registration.body_crc32(body),
            enable_acting_master=False,
        )
        return Announcement(header, body, version, len(topics))

    def _as_registered(self, topic: TopicConfig) -> TopicConfig:
        """A topic as clients shall see it: a broker that takes nothing says so in all of them."""
        allowed = self._settings.broker_permission
        if allowed & _READ_WRITE != _READ_WRITE:
            topic = msgspec.structs.replace(topic, perm=topic.perm & allowed)
        if self._settings.compressed_register and topic.attributes is not None:
            # Name servers of 4.x cannot read a compressed topic that has them.
            topic = msgspec.structs.replace(topic, attributes=None)
        return topic
