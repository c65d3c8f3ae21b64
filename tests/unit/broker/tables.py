"""Fresh tables of a broker in a folder, and the same ones opened again; settings with defaults."""

from pathlib import Path
from typing import Any

from cometmq.broker.config import BrokerSettings
from cometmq.broker.groups import GROUPS_MAX, GroupTable
from cometmq.broker.offsets import OFFSETS_MAX, ConsumerOffsets
from cometmq.broker.topics import TOPICS_MAX, Topic, TopicTable
from cometmq.clock import Clock
from cometmq.codec import core
from cometmq.codec.codes import RequestCode
from cometmq.codec.command import Command
from cometmq.model.topic import TopicConfig
from cometmq.store.documents import ConfigDocuments
from cometmq.testing import FakeClock
from tests.golden.wire_frames import frames

CLUSTER, BROKER = "DefaultCluster", "broker-a"


def broker_settings(**changes: Any) -> BrokerSettings:
    """Settings of ``broker-a``, the broker that Apache's recordings are of."""
    return BrokerSettings(**{"broker_name": BROKER, "cluster_name": CLUSTER, **changes})


def topic_table(
    folder: Path, clock: Clock | None = None, *, topics_max: int = TOPICS_MAX, **settings: Any
) -> TopicTable:
    """The topics saved below ``folder``, or only the system's; ``settings`` as the broker's."""
    document = ConfigDocuments(folder).topics
    chosen = broker_settings(**settings)
    return TopicTable(document, chosen, clock or FakeClock(), topics_max=topics_max)


def group_table(
    folder: Path, clock: Clock | None = None, *, groups_max: int = GROUPS_MAX, **settings: Any
) -> GroupTable:
    """The groups saved below ``folder``, or only the system's."""
    document = ConfigDocuments(folder).groups
    chosen = broker_settings(**settings)
    return GroupTable(document, chosen, clock or FakeClock(), groups_max=groups_max)


def consumer_offsets(folder: Path, *, offsets_max: int = OFFSETS_MAX) -> ConsumerOffsets:
    """The offsets saved below ``folder``, or none."""
    return ConsumerOffsets(ConfigDocuments(folder).consumer_offsets, offsets_max=offsets_max)


def save(
    folder: Path,
    topics: TopicTable | None = None,
    groups: GroupTable | None = None,
    offsets: ConsumerOffsets | None = None,
) -> None:
    """Save tables below ``folder``, as a broker does that goes down."""
    documents = ConfigDocuments(folder)
    if topics is not None:
        documents.topics.load()
        documents.topics.save(topics.table())
    if groups is not None:
        documents.groups.load()
        documents.groups.save(groups.table())
    if offsets is not None:
        documents.consumer_offsets.load()
        documents.consumer_offsets.save(offsets.table())


def add_topic(
    topics: TopicTable, name: str, queues: int = 4, *, perm: int = 6, order: bool = False
) -> Topic:
    """A topic as an administrator makes it."""
    return topics.put(TopicConfig(name, queues, queues, perm, order=order, attributes={}))


def recorded_requests(code: RequestCode) -> list[Command]:
    """What real clients sent to Apache's brokers under one code, in all their dialects."""
    return [
        core.decode_frames(frame.raw)[0][0]
        for frame in frames()
        if frame.code == code and frame.kind != "response" and frame.sender == "client"
    ]
