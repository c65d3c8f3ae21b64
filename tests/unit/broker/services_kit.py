"""Administration without a network: the services beside the data path, asked as tools ask."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from cometmq.broker.handlers.clients import ClientHandlers
from cometmq.broker.handlers.connections import ConnectionHandlers
from cometmq.broker.handlers.group_services import GroupServiceHandlers
from cometmq.broker.handlers.relays import RelayHandlers
from cometmq.broker.handlers.topic_services import TopicServiceHandlers
from cometmq.broker.progress import ENTRIES_MAX, Progress
from cometmq.broker.removal import TopicRemoval
from cometmq.codec import bodies
from cometmq.codec.bodies.clients import HeartbeatData
from cometmq.codec.codes import LanguageCode, RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.base import Header
from tests.unit.broker.data_path import DataPath
from tests.unit.broker.fake_channel import FakeChannel, Reply, request
from tests.unit.broker.tables import BROKER

T = TypeVar("T", bound=msgspec.Struct)


class Services(DataPath):
    """The data path with everything that administrators ask; counts what was settled.

    ``rates`` are the statistics, by name and key. With ``relay_timeout_ms`` consumers have as long.
    Answers tell of ``entries_max`` queues at most.
    """

    def __init__(
        self,
        folder: Path,
        *,
        relay_timeout_ms: int = 1000,
        entries_max: int = ENTRIES_MAX,
        **settings: Any,
    ) -> None:
        super().__init__(folder, **settings)
        self.settled = 0
        self.rates: dict[tuple[str, str], float] = {}
        progress = Progress(
            self.store,
            self.topics,
            self.offsets,
            self.clients,
            broker_name=BROKER,
            tps=self._tps,
        )
        self.relays = RelayHandlers(
            self.store,
            self.topics,
            self.clients,
            broker_name=BROKER,
            timeout_ms=relay_timeout_ms,
        )
        self.removal = TopicRemoval(self.store, self.topics, self.offsets)
        self.topic_services = TopicServiceHandlers(
            self.store,
            self.topics,
            self.offsets,
            self.clients,
            self.removal,
            broker_name=BROKER,
            settle=self._settle,
            tps=self._tps,
            entries_max=entries_max,
        )
        group_services = GroupServiceHandlers(
            self.groups,
            self.offsets,
            self.clients,
            progress,
            broker_address=self.identity.address,
            settle=self._settle,
            entries_max=entries_max,
        )
        for handlers in (
            self.topic_services,
            group_services,
            ConnectionHandlers(self.clients, self.clock),
            self.relays,
            ClientHandlers(self.clients, self.topics, BROKER),
        ):
            handlers.add_to(self.routes)

    def ask(self, code: RequestCode, header: Header | None = None) -> Reply:
        """Ask as a tool does, and wait for the answer."""
        return self.put_through(request(code, header))

    def put_through(self, command: Command) -> Reply:
        return asyncio.run(self.answer_to(command))

    def ask_together(self, *commands: Command) -> list[Reply]:
        """Replies to requests that come at the same time."""

        async def ask() -> list[Reply]:
            return list(await asyncio.gather(*map(self.answer_to, commands)))

        return asyncio.run(ask())

    def told(self, kind: type[T], code: RequestCode, header: Header | None = None) -> T:
        """What the body of a successful answer says."""
        reply = self.ask(code, header)
        assert reply.code == ResponseCode.SUCCESS, reply
        return bodies.decode(kind, reply.body)

    async def answer_to(self, command: Command) -> Reply:
        channel = FakeChannel("127.0.0.1:40009")
        replies = channel.ask(self.routes, command)
        await channel.finish()
        (reply,) = [*replies, *channel.replies]
        return reply

    def beat(
        self,
        data: HeartbeatData,
        channel: FakeChannel | None = None,
        *,
        language: int = LanguageCode.JAVA,
        version: int = 513,
    ) -> FakeChannel:
        """A heartbeat of a client, on a connection of its own unless one is given."""
        used = channel or FakeChannel()
        self.clients.heartbeat(used, data, language=language, version=version)
        return used

    def _tps(self, name: str, key: str) -> float:
        return self.rates.get((name, key), 0.0)

    async def _settle(self) -> None:
        self.settled += 1


def opened(folder: Path, **settings: Any) -> Iterator[Services]:
    """For a fixture: the services on a folder, closed in the end."""
    with Services(folder, **settings) as services:
        yield services
