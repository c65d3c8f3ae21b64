"""``Admin``: the one object through which a cluster is asked and changed."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from cometmq.admin.brokers import Brokers, Cluster
from cometmq.admin.clients import Clients
from cometmq.admin.connections import Connections
from cometmq.admin.groups import Groups
from cometmq.admin.messages import Messages
from cometmq.admin.name_servers import NameServers
from cometmq.admin.offsets import Offsets
from cometmq.admin.servers import Asking, Servers
from cometmq.admin.signing import Credentials
from cometmq.admin.topics import Topics
from cometmq.clock import Clock, SystemClock
from cometmq.errors import SettingsError
from cometmq.remoting.client import CONNECT_TIMEOUT_MS, split_address
from cometmq.remoting.config import TlsClientSettings

TIMEOUT_MS = 5_000
"""For one request, unless somebody is known to need longer for it."""


class Admin:
    """Questions and commands to a cluster, by subject::

        async with Admin("host:9876;host2:9876") as admin:
            for topic in await admin.topics.list():
                print(topic.name, topic.kind)

    Connections are made when they are needed and closed at the end of the block. All calls may be
    made at the same time. Results are frozen structs that ``msgspec.json.encode`` can write; what
    goes wrong is in ``cometmq.errors``. Names that are no ``host:port`` raise at once.

    ``connections`` are somebody else's, which are used in place of own ones and stay open.
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
    ) -> None:
        self._connections = Connections(
            tls=tls,
            credentials=_credentials(access_key, secret_key, security_token),
            connect_timeout_ms=connect_timeout_ms,
        )
        servers = Servers(
            _addresses(namesrv),
            connections or self._connections,
            clock=clock or SystemClock(),
            timeout_ms=timeout_ms,
        )
        self.name_servers = NameServers(servers)
        self.brokers = Brokers(servers)
        self.topics = Topics(servers, self.name_servers)
        self.clients = Clients(servers)
        self.groups = Groups(servers, self.clients, self.topics)
        self.offsets = Offsets(servers, self.topics, self.groups)
        self.messages = Messages(servers, self.topics, self.groups, self.clients)

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

    async def cluster(self) -> Cluster:
        """All name servers and brokers, and how they are doing."""
        return await self.brokers.cluster()


def _addresses(namesrv: str | Sequence[str]) -> tuple[str, ...]:
    texts = namesrv.split(";") if isinstance(namesrv, str) else namesrv
    addresses = tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))
    if not addresses:
        raise SettingsError("namesrv", "no name server is given", "write host:port;host2:port")
    for address in addresses:
        split_address(address)
    return addresses


def _credentials(access: str | None, secret: str | None, token: str | None) -> Credentials | None:
    if access is None and secret is None:
        return None
    if access is None or secret is None:
        missing = "access_key" if access is None else "secret_key"
        raise SettingsError(missing, "it is missing", "give both keys or none")
    return Credentials(access, secret, token)
