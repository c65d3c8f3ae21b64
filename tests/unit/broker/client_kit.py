"""Clients of a broker without a socket: tables in memory, heartbeats with good defaults."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cometmq.broker.clients import Clients
from cometmq.broker.config import BrokerSettings
from cometmq.broker.groups import GroupTable
from cometmq.broker.handlers.clients import ClientHandlers
from cometmq.broker.topics import TopicTable
from cometmq.codec.bodies.clients import ConsumerData, HeartbeatData, ProducerData
from cometmq.codec.codes import LanguageCode, RequestCode
from cometmq.model.group import MessageModel, SubscriptionData
from cometmq.remoting.routes import Routes
from cometmq.store.documents import ConfigDocuments
from cometmq.testing import FakeClock
from tests.unit.broker.fake_channel import FakeChannel

BROKER = "broker-a"


class NoFiles:
    """A file system with nothing in it."""

    def read(self, path: Path) -> bytes | None:
        return None

    def replace(self, path: Path, content: bytes) -> None:
        raise AssertionError(f"{path}: these tests save nothing")


class Place:
    """A broker as far as its clients go."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FakeClock()
        self.settings = BrokerSettings(broker_name=BROKER, **settings)
        documents = ConfigDocuments(Path("/nowhere"), NoFiles())
        self.topics = TopicTable(documents.topics, self.settings, self.clock)
        self.groups = GroupTable(documents.groups, self.settings, self.clock)
        self.clients = Clients(self.groups, self.topics, self.settings, self.clock)
        self.routes = Routes()
        ClientHandlers(self.clients, self.topics, BROKER).add_to(self.routes)

    def beat(
        self, channel: FakeChannel, data: HeartbeatData, *, language: int = LanguageCode.JAVA
    ) -> bool:
        return self.clients.heartbeat(channel, data, language=language, version=407)

    def join(self, client_id: str, **consumer: Any) -> FakeChannel:
        """A consumer that connects and sends its first heartbeat; its notices are forgotten."""
        channel = FakeChannel()
        self.beat(channel, consuming(client_id, **consumer))
        channel.notices.clear()
        return channel


def consuming(
    client_id: str = "c1",
    group: str = "G",
    topics: Mapping[str, str] | str = "T",
    *,
    version: int = 1,
    model: MessageModel = MessageModel.CLUSTERING,
    fingerprint: int | None = None,
    without_sub: bool | None = None,
) -> HeartbeatData:
    """The heartbeat of a client in one consumer group; ``topics="TU"`` are all of two topics."""
    wanted = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, "*")
    subscriptions = tuple(
        SubscriptionData(topic, expression, sub_version=version)
        for topic, expression in wanted.items()
    )
    data = ConsumerData(group, message_model=model, subscription_data_set=subscriptions)
    return HeartbeatData(client_id, (), (data,), fingerprint, without_sub)


def producing(client_id: str = "p1", *groups: str) -> HeartbeatData:
    """The heartbeat of a client in some producer groups, P unless others are given."""
    return HeartbeatData(client_id, tuple(map(ProducerData, groups or ("P",))))


def changes_told(channel: FakeChannel) -> list[str]:
    """The groups whose members changed, as this connection was told; each is told once."""
    told = []
    for notice in channel.notices:
        assert notice.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert notice.header is not None
        told.append(notice.header.to_ext()["consumerGroup"])
    channel.notices.clear()
    return told
