"""What the producers and consumers of one client share: routes, instances, time, names."""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Protocol

from cometmq import logs
from cometmq.client.background import Repeater
from cometmq.client.core.identity import DEFAULT_INSTANCE, client_id, fresh_instance_name
from cometmq.client.core.settings import ClientSettings, Mode
from cometmq.client.forking import let_go
from cometmq.client.instance import Instance
from cometmq.client.life import Forgetting, Life, closing_for_this_task, on_fork
from cometmq.client.name_servers import NameServers
from cometmq.client.routes import Routes
from cometmq.clock import Clock
from cometmq.codec.message_id import UniqueIds
from cometmq.errors import AlreadyExists
from cometmq.remoting.config import TlsClientSettings
from cometmq.remoting.connections import Connections, Pauses
from cometmq.remoting.running import Background
from cometmq.remoting.signing import Credentials

_log = logs.get_logger("cometmq.client")

_stable_ids: set[tuple[str, str]] = set()
"""Client ids that do not change, with the groups that use them in this process."""

_last_name_ns = 0


IsHandler = Callable[[], bool]
"""Says whether the caller is a handler of a member."""


class Member(Protocol):
    """A producer or consumer, as far as closing it is concerned."""

    async def close(self) -> None: ...


class Shared(Forgetting):
    """One client from the inside; ``life`` is the client's own."""

    def __init__(
        self,
        life: Life,
        name_servers: tuple[str, ...],
        settings: ClientSettings,
        *,
        ip: str,
        clock: Clock,
        unique_ids: UniqueIds,
        namespace: str | None,
        tls: TlsClientSettings | None,
        credentials: Credentials | None,
    ) -> None:
        self.life = life
        self.settings = settings
        self.clock = clock
        self.namespace = namespace
        self.unique_ids = unique_ids
        self.name_servers = name_servers
        self.background = Background()
        self._ip = ip
        self._tls = tls
        self._credentials = credentials
        self.name_server_connections = Connections(
            owner="client",
            tls=tls,
            credentials=credentials,
            connect_timeout_ms=settings.connect_timeout_ms,
            pauses=Pauses(first=0.2),
        )
        servers = NameServers(name_servers, self.name_server_connections)
        self.routes = Routes(servers, timeout_ms=settings.request_timeout_ms)
        self._instances: list[Instance] = []
        self._stable: list[tuple[str, str]] = []
        self._members: list[Member] = []  # in the order in which they were made
        self._handlers: dict[int, IsHandler] = {}  # by the id of a member that has some
        self.tracers: dict[str, Member] = {}  # by topic; members report to them until they close
        self.main = self._instance(self._main_name())
        self._refreshing = Repeater(
            "looking at routes", self._refresh, interval_ms=settings.route_interval_ms
        )

    def start(self) -> None:
        if self.settings.instance_name != DEFAULT_INSTANCE:
            self._claim(self.main.client_id, "")
        self._refreshing.start(self.background)
        self.main.start()
        on_fork(self)

    async def stop(self) -> None:
        """Close all members, then everything else, which happens whatever becomes of them."""
        try:
            with closing_for_this_task():
                for members in (tuple(self._members), tuple(self.tracers.values())):
                    closing = (member.close() for member in members)
                    for result in await asyncio.gather(*closing, return_exceptions=True):
                        if isinstance(result, Exception):
                            _log.error("closing a member failed", exc_info=result)
        finally:  # also when whoever closes it is cancelled: nothing may go on by itself
            _stable_ids.difference_update(self._stable)
            ends = [instance.stop() for instance in self._instances]
            await asyncio.gather(self.background.stop(), self.routes.stop(), *ends)
            self.name_server_connections.close()
            await asyncio.sleep(0)

    def hang_up(self) -> None:
        """End all connections here and now, for those who have no time to stop."""
        for instance in self._instances:
            instance.connections.close()
        self.name_server_connections.close()

    def forget_after_fork(self) -> None:
        """Leave the connections to the parent; the names it uses are free in this process."""
        brokers = (instance.connections for instance in self._instances)
        for connections in (self.name_server_connections, *brokers):
            let_go(connections.filenos)
        _stable_ids.difference_update(self._stable)

    def require(self) -> None:
        """Raise NotRunning unless the client may be used."""
        self.life.require()

    def add(self, member: Member, is_handler: IsHandler | None = None) -> None:
        """Close this one with the client."""
        self._members.append(member)
        if is_handler is not None:
            self._handlers[id(member)] = is_handler

    def drop(self, member: Member) -> None:
        """It was closed by itself."""
        if member in self._members:
            self._members.remove(member)
            self._handlers.pop(id(member), None)

    def is_handler(self) -> bool:
        """Whether the caller is a handler of a member, whose end closing would wait for."""
        return any(is_handler() for is_handler in self._handlers.values())

    def instance_for_consumer(self, group: str, mode: Mode) -> Instance:
        """Who speaks for a consumer: nobody who speaks for its group already.

        A broadcasting consumer finds its progress by its client id, which therefore stays the same.
        Raises AlreadyExists when this process has a broadcasting one of the group already.
        """
        if mode == "broadcast":
            stable = client_id(self._ip, self.settings.instance_name, self.settings.unit_name)
            self._claim(stable, group)
            for instance in self._instances:
                if instance.client_id == stable:
                    return instance
            return self._started(self._instance(self.settings.instance_name))
        for instance in self._instances:
            if instance.client_id != self._stable_id and group not in instance.claimed_groups:
                instance.claimed_groups.add(group)
                return instance
        instance = self._started(self._instance(_fresh_name()))
        instance.claimed_groups.add(group)
        return instance

    @property
    def _stable_id(self) -> str | None:
        """The id of the instance for broadcasting consumers, where it is not the main one."""
        if self.settings.instance_name != DEFAULT_INSTANCE:
            return None
        return client_id(self._ip, DEFAULT_INSTANCE, self.settings.unit_name)

    def release_consumer(self, instance: Instance, group: str) -> None:
        """A consumer has gone; its group may be used again."""
        instance.claimed_groups.discard(group)
        claim = (instance.client_id, group)
        if claim in self._stable:
            self._stable.remove(claim)
            _stable_ids.discard(claim)

    def _claim(self, identity: str, group: str) -> None:
        claim = (identity, group)
        if claim in _stable_ids:
            what = f"broadcasting consumer of group '{group}' with the id" if group else "client id"
            raise AlreadyExists(what, identity, "give each client its own instance_name")
        _stable_ids.add(claim)
        self._stable.append(claim)

    def _instance(self, name: str) -> Instance:
        instance = Instance(
            client_id(self._ip, name, self.settings.unit_name),
            settings=self.settings,
            routes=self.routes,
            clock=self.clock,
            tls=self._tls,
            credentials=self._credentials,
        )
        self._instances.append(instance)
        return instance

    def _main_name(self) -> str:
        given = self.settings.instance_name
        return _fresh_name() if given == DEFAULT_INSTANCE else given

    def _started(self, instance: Instance) -> Instance:
        instance.start()
        return instance

    async def _refresh(self) -> None:
        """Look at all routes, and let go of brokers that are in none of them."""
        topics = {topic for instance in self._instances for topic in instance.topics()}
        await self.routes.refresh_all(topics)  # raises when no name server answers: nobody goes
        for address in self.routes.table.drop_gone():
            _log.info("broker=%s is in no route any more", address)
            for instance in self._instances:
                instance.forget(address, "it is in no route any more")


def _fresh_name() -> str:
    """A name that nobody else has. Clocks may stand still between two calls, as on Windows."""
    global _last_name_ns
    _last_name_ns = max(time.time_ns(), _last_name_ns + 1)
    return fresh_instance_name(os.getpid(), _last_name_ns)
