"""Offsets in memory, with brokers and in files."""

import asyncio
from pathlib import Path

import pytest

from cometmq.client.local_offsets import LocalOffsets as OffsetFile
from cometmq.client.offset_stores import (
    FAILED,
    NOTHING_STORED,
    FileOffsets,
    RemoteOffsets,
)
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.offsets import OffsetResponse
from cometmq.errors import StoreError
from cometmq.remoting.routes import Answer
from tests.unit.client.consumer_kit import QueueCluster, queue
from tests.unit.client.kit import Asked, connected, refused


async def test_a_broker_is_asked_and_memory_keeps_what_it_said() -> None:
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders")
        cluster.broker.offsets["orders", 0] = 7
        store = RemoteOffsets(client._require().main, "group")

        assert await store.read(queue(), source="memory") == NOTHING_STORED
        assert await store.read(queue(), source="memory_first") == 7
        assert await store.read(queue(), source="memory") == 7
        assert store.peek(queue()) == 7


async def test_nothing_stored_and_nobody_to_ask_are_told_apart() -> None:
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders")
        store = RemoteOffsets(client._require().main, "group")

        assert await store.read(queue(), source="store") == NOTHING_STORED
        cluster.a.on(RequestCode.QUERY_CONSUMER_OFFSET, refused(ResponseCode.SYSTEM_ERROR))
        assert await store.read(queue(), source="store") == FAILED
        assert await store.read(queue(topic="elsewhere"), source="store") == FAILED


async def test_minus_one_that_some_clients_store_is_nothing() -> None:
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders")
        cluster.a.on(RequestCode.QUERY_CONSUMER_OFFSET, Answer(header=OffsetResponse(-1)))
        store = RemoteOffsets(client._require().main, "group")

        assert await store.stored(queue()) is None


async def test_offsets_go_forward_only_unless_they_may_go_back() -> None:
    async with QueueCluster() as cluster, connected(cluster) as client:
        store = RemoteOffsets(client._require().main, "group")

        store.update(queue(), 5, forward_only=True)
        store.update(queue(), 3, forward_only=True)
        assert store.peek(queue()) == 5
        store.update(queue(), 3, forward_only=False)
        assert store.peek(queue()) == 3
        store.freeze(queue(), 9)
        store.update(queue(), 20, forward_only=True)
        assert store.snapshot("orders") == {queue(): 9}
        store.remove(queue())
        assert store.snapshot() == {}


async def test_only_the_queues_named_are_written_and_synchronous_writes_are_waited_for() -> None:
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders")
        store = RemoteOffsets(client._require().main, "group")
        await client._require().routes.find("orders")
        store.update(queue(0), 5, forward_only=True)
        store.update(queue(1), 6, forward_only=True)

        assert await store.persist([queue(0)], is_synchronous=True)
        assert cluster.broker.offsets == {("orders", 0): 5}
        await store.persist([queue(1)])
        (_, oneway) = await cluster.a.until(RequestCode.UPDATE_CONSUMER_OFFSET, 2)
        assert oneway.command.is_oneway
        store.keep_only([queue(1)])
        assert store.snapshot() == {queue(1): 6}


async def test_one_queue_of_a_topic_is_written_before_the_others() -> None:
    """Apache's brokers lose one of two that are the first of their group and come together."""
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=3)
        is_answering = asyncio.Event()

        async def answer(_: Asked) -> Answer:
            await is_answering.wait()
            return Answer()

        cluster.a.on(RequestCode.UPDATE_CONSUMER_OFFSET, answer)
        store = RemoteOffsets(client._require().main, "group")
        for number in range(3):
            store.update(queue(number), 5, forward_only=True)

        saving = asyncio.create_task(
            store.persist([queue(number) for number in range(3)], is_synchronous=True)
        )
        await cluster.a.until(RequestCode.UPDATE_CONSUMER_OFFSET)
        for _ in range(10):
            await asyncio.sleep(0)
        alone = len(cluster.a.questions(RequestCode.UPDATE_CONSUMER_OFFSET))
        is_answering.set()

        assert await saving
        assert alone == 1
        assert len(cluster.a.questions(RequestCode.UPDATE_CONSUMER_OFFSET)) == 3


async def test_offsets_that_cannot_be_saved_are_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders")
        cluster.a.on(RequestCode.UPDATE_CONSUMER_OFFSET, refused(ResponseCode.SYSTEM_ERROR))
        store = RemoteOffsets(client._require().main, "group")
        store.update(queue(0), 5, forward_only=True)
        store.update(queue(1), 5, forward_only=True)

        for _ in range(3):
            assert not await store.persist([queue(0), queue(1)], is_synchronous=True)

    assert [r.getMessage() for r in caplog.records if "not saved" in r.getMessage()] == [
        (
            f"group=group offsets of 2 queues not saved: {cluster.a.address} refuses"
            " UPDATE_CONSUMER_OFFSET with code 1: no"
        )
    ]


async def test_a_file_keeps_the_offsets_of_queues_that_are_gone_for_now(tmp_path: Path) -> None:
    store = FileOffsets(OffsetFile(tmp_path, "client", "group"))
    await store.load()
    store.update(queue(0), 5, forward_only=True)
    store.update(queue(1), 6, forward_only=True)
    await store.persist([queue(0), queue(1)])
    store.remove(queue(0))
    store.update(queue(1), 8, forward_only=True)
    await store.persist([queue(1)])

    again = FileOffsets(OffsetFile(tmp_path, "client", "group"))
    await again.load()

    assert again.snapshot() == {queue(0): 5, queue(1): 8}
    assert await store.read(queue(0), source="memory_first") == 5
    assert await store.read(queue(3), source="store") == NOTHING_STORED


async def test_a_file_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    file = OffsetFile(tmp_path, "client", "group")
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(b"rubbish")
    store = FileOffsets(file)

    with pytest.raises(StoreError, match="mend it"):
        await store.load()
    assert await store.read(queue(), source="store") == FAILED
