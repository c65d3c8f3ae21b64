"""Where queues begin and end, and who is asked."""

import pytest

from cometmq.client.core.positions import StartRule
from cometmq.client.queue_offsets import keeper_of, master_of, max_offset, offset_at, start_offset
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.offsets import OffsetResponse
from cometmq.errors import Refused, Unreachable
from cometmq.model.offsets import MessageQueue
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.remoting.routes import Answer
from tests.unit.client.consumer_kit import queue
from tests.unit.client.kit import CLUSTER, FakeCluster, connected, refused

RETRIES = "%RETRY%group"


async def test_the_route_is_asked_for_when_the_master_is_not_known() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders")

        assert await master_of(client._require().main, queue()) == cluster.a.address


async def test_an_unknown_master_is_an_error_before_anybody_is_asked() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        with pytest.raises(Unreachable, match="no route of 'orders' has its master"):
            await master_of(client._require().main, queue())

        assert cluster.a.asked == []


async def test_a_slave_keeps_offsets_while_the_master_is_away() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        data = BrokerData("broker-a", {1: cluster.a.address}, CLUSTER)
        cluster.topics["orders"] = TopicRoute((data,), (QueueData("broker-a", 1, 1, 6),))
        instance = client._require().main

        assert await keeper_of(instance, queue()) == cluster.a.address
        with pytest.raises(Unreachable):
            await keeper_of(instance, MessageQueue("orders", "nobody", 0))


async def test_brokers_say_where_a_queue_ends_and_where_a_time_is() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders")
        cluster.a.on(RequestCode.GET_MAX_OFFSET, Answer(header=OffsetResponse(9)))
        cluster.a.on(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, Answer(header=OffsetResponse(4)))
        instance = client._require().main

        assert await max_offset(instance, queue()) == 9
        assert await offset_at(instance, queue(), 1_000) == 4


@pytest.mark.parametrize(
    ("start", "topic", "expected"),
    [
        ("last", "orders", 9),
        ("first", "orders", 0),
        (1_000, "orders", 4),
        ("last", RETRIES, 0),
        ("first", RETRIES, 0),
        (1_000, RETRIES, 9),
    ],
)
async def test_a_group_that_stored_nothing_begins_as_it_was_told(
    start: "int | str", topic: str, expected: int
) -> None:
    async def nothing(_: MessageQueue) -> int | None:
        return None

    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create(topic)
        cluster.a.on(RequestCode.GET_MAX_OFFSET, Answer(header=OffsetResponse(9)))
        cluster.a.on(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, Answer(header=OffsetResponse(4)))
        rule = StartRule(start)  # type: ignore[arg-type]

        found = await start_offset(client._require().main, queue(topic=topic), rule, nothing)

        assert found == expected


async def test_a_failure_is_not_taken_for_a_beginning() -> None:
    async def nothing(_: MessageQueue) -> int | None:
        return None

    async def unknown(_: MessageQueue) -> int | None:
        raise Unreachable("broker-a", "gone")

    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders")
        cluster.a.on(RequestCode.GET_MAX_OFFSET, refused(ResponseCode.SYSTEM_ERROR))
        instance = client._require().main

        with pytest.raises(Refused):
            await start_offset(instance, queue(), StartRule(), nothing)
        with pytest.raises(Unreachable):
            await start_offset(instance, queue(), StartRule("first"), unknown)
