"""``Admin``: the one object through which a cluster is asked and changed."""

from collections.abc import Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cometmq.admin.servers import Asking, Servers
from cometmq.admin.sparing import Sparing
from cometmq.clock import Clock, SystemClock
from cometmq.remoting.addresses import name_servers_in
from cometmq.remoting.client import CONNECT_TIMEOUT_MS
from cometmq.remoting.config import TlsClientSettings
from cometmq.remoting.connections import Connections
from cometmq.remoting.signing import Credentials

# A subject is imported when it is first asked for: a command line that asks one question waits
# for no other.
if TYPE_CHECKING:
    from cometmq.admin.brokers import Brokers, Cluster
    from cometmq.admin.clients import Clients
    from cometmq.admin.groups import Groups
    from cometmq.admin.messages import Messages
    from cometmq.admin.name_servers import NameServers
    from cometmq.admin.offsets import Offsets
    from cometmq.admin.topics import Topics

TIMEOUT_MS = 5_000
"""For one request, unless somebody is known to need longer for it."""


class Admin:
    """Questions and commands to a cluster, by subject::

        async with Admin("host:9876;host2:9876") as admin:
            for topic in await admin.topics.list():
                print(topic.name, topic.kind)

    Connections are made when they are needed and closed at the end of the block. All calls may be
    made at the same time. Results are frozen structs that ``msgspec.json.encode`` can write; what
    goes wrong is in ``cometmq.errors``. Names that are no ``host:port`` raise
    SettingsError at once.

    ``connections`` are somebody else's, which are used in place of own ones and stay open. With
    ``silence_ms`` a server that did not answer in time is taken for down so long without being
    asked: for programs that ask much in a row, and would wait for it again and again.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        *,
        timeout_ms: int = TIMEOUT_MS,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        tls: TlsClientSettings | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        security_token: str | None = None,
        clock: Clock | None = None,
        connections: Asking | None = None,
        silence_ms: int = 0,
    ) -> None:
        clock = clock or SystemClock()
        self._connections = Connections(
            tls=tls,
            credentials=Credentials.of(access_key, secret_key, security_token),
            connect_timeout_ms=connect_timeout_ms,
        )
        asking = connections or self._connections
        if silence_ms:
            asking = Sparing(asking, silence_ms=silence_ms, clock=clock)
        self._servers = Servers(_addresses(namesrv), asking, clock=clock, timeout_ms=timeout_ms)

    @cached_property
    def name_servers(self) -> "NameServers":
        from cometmq.admin.name_servers import NameServers

        return NameServers(self._servers)

    @cached_property
    def brokers(self) -> "Brokers":
        from cometmq.admin.brokers import Brokers

        return Brokers(self._servers)

    @cached_property
    def topics(self) -> "Topics":
        from cometmq.admin.topics import Topics

        return Topics(self._servers, self.name_servers)

    @cached_property
    def clients(self) -> "Clients":
        from cometmq.admin.clients import Clients

        return Clients(self._servers)

    @cached_property
    def groups(self) -> "Groups":
        from cometmq.admin.groups import Groups

        return Groups(self._servers, self.clients, self.topics)

    @cached_property
    def offsets(self) -> "Offsets":
        from cometmq.admin.offsets import Offsets

        return Offsets(self._servers, self.topics, self.groups)

    @cached_property
    def messages(self) -> "Messages":
        from cometmq.admin.messages import Messages

        return Messages(self._servers, self.topics, self.groups, self.clients)

    async def __aenter__(self) -> Self:
        await self._connections.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._connections.__aexit__(kind, error, trace)

    async def cluster(self) -> "Cluster":
        """All name servers and brokers, and how they are doing."""
        return await self.brokers.cluster()


def _addresses(namesrv: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(name_servers_in(namesrv, "write host:port;host2:port"))
