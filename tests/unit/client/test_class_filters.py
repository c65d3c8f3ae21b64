"""A filter server here is a second broker with other messages: those its class lets pass."""

import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from cometmq.client.core.message import Message
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.registration import RegisterMessageFilterClass
from cometmq.codec.java import masked_crc32
from cometmq.errors import InvalidArgument, SettingsError
from cometmq.remoting.routes import Answer
from tests.unit.client.consumer_kit import QueueBroker, QueueCluster, until
from tests.unit.client.kit import Node, connected

SOURCE = "package a; public class B implements MessageFilter { /* … */ }"


@contextlib.asynccontextmanager
async def filtering(cluster: QueueCluster) -> AsyncIterator[QueueBroker]:
    """A cluster whose broker has a filter server."""
    server = Node("filter server")
    server.on(RequestCode.REGISTER_MESSAGE_FILTER_CLASS, Answer())
    async with cluster:
        await server.start()
        cluster.create("orders", queues=1)
        cluster.topics["orders"] = msgspec.structs.replace(
            cluster.topics["orders"], filter_server_table={cluster.a.address: [server.address]}
        )
        try:
            yield QueueBroker(server)
        finally:
            await server.stop()


async def test_messages_are_pulled_from_the_filter_server() -> None:
    cluster = QueueCluster()
    got: list[Message[bytes]] = []

    async def handle(message: Message[bytes]) -> None:
        got.append(message)

    async with filtering(cluster) as server, connected(cluster) as mq:
        cluster.broker.put(5)
        server.put(2)
        consumer = mq.consumer("group", start="first")
        consumer.subscribe("orders", filter_class="a.B", filter_source=SOURCE)
        await consumer.start(handle)
        await until(lambda: len(got) == 2)

        assert not [pull for pull in cluster.broker.pulls if pull.topic == "orders"]
        assert {pull.sys_flag & 0b1100 for pull in server.pulls} == {0b1000}


async def test_the_source_is_brought_before_anything_is_pulled() -> None:
    cluster = QueueCluster()

    async with filtering(cluster) as server, connected(cluster) as mq:
        consumer = mq.consumer("group")
        consumer.subscribe("orders", filter_class="a.B", filter_source=SOURCE)
        await consumer.start(print)
        await server.node.until(RequestCode.PULL_MESSAGE)

        first = server.node.asked[0]
        assert first.code == RequestCode.REGISTER_MESSAGE_FILTER_CLASS
        assert first.body == SOURCE.encode()
        assert RegisterMessageFilterClass.from_ext(
            first.command.ext_fields
        ) == RegisterMessageFilterClass("group", "orders", "a.B", masked_crc32(SOURCE.encode()))


async def test_it_is_brought_again_with_the_heartbeats() -> None:
    cluster = QueueCluster()

    async with filtering(cluster) as server, connected(cluster, heartbeat_interval_ms=10) as mq:
        consumer = mq.consumer("group")
        consumer.subscribe("orders", filter_class="a.B", filter_source=SOURCE)
        await consumer.start(print)

        brought = await server.node.until(RequestCode.REGISTER_MESSAGE_FILTER_CLASS, 3)

        assert {asked.body for asked in brought} == {SOURCE.encode()}


async def test_a_broker_without_filter_server_is_never_pulled_instead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with QueueCluster() as cluster, connected(cluster) as mq:
        cluster.create("orders", queues=1)
        cluster.broker.put(1)
        consumer = mq.consumer("group", start="first")
        consumer.subscribe("orders", filter_class="a.B", filter_source=SOURCE)
        await consumer.start(print)
        await until(lambda: "has no filter server" in caplog.text)

        assert not [pull for pull in cluster.broker.pulls if pull.topic == "orders"]


@pytest.mark.parametrize("source", [None, "", " "])
async def test_a_class_needs_its_source(source: str | None) -> None:
    async with QueueCluster() as cluster, connected(cluster) as mq:
        consumer = mq.consumer("group")

        with pytest.raises(InvalidArgument, match="pass the text of its Java file"):
            consumer.subscribe("orders", filter_class="a.B", filter_source=source)
        with pytest.raises(InvalidArgument, match="pass its full name"):
            consumer.subscribe("orders", filter_source=SOURCE)
        with pytest.raises(SettingsError, match="cannot be combined"):
            consumer.subscribe("orders", "tag", filter_class="a.B", filter_source=SOURCE)
