"""Reading a topic without a group, on a cluster of two brokers."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime

import pytest

from cometmq.aio import Client
from cometmq.client.producer import Producer
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.offsets import OffsetResponse, SearchOffsetByTimestamp
from cometmq.codec.headers.pull import PullMessage, PullMessageResponse
from cometmq.errors import InvalidArgument, NoRoute, NotRunning, SendFailed, Unreachable
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.routes import Answer
from cometmq.testing import FakeClock, LocalCluster
from cometmq.testing.local_cluster import BlockingCluster
from tests.unit.admin.fake_cluster import record
from tests.unit.client.kit import V4_9_7, Asked, FakeCluster, connected

pytestmark = pytest.mark.slow

CLOCK = FakeClock()
"""The brokers'; a test moves it between two messages."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with LocalCluster(brokers=2, clock=CLOCK) as running:
        yield running


@pytest.fixture
def topic(cluster: BlockingCluster, request: pytest.FixtureRequest) -> str:
    name = request.node.name[:100]
    cluster.create_topic(name, queues=2)
    return str(name)


@asynccontextmanager
async def client(
    cluster: BlockingCluster, *, route_interval_ms: int = 30_000
) -> AsyncIterator[Client]:
    async with Client(cluster.namesrv, route_interval_ms=route_interval_ms) as mq:
        yield mq


async def send(producer: Producer, topic: str, *values: str, **options: str) -> list[int]:
    """Send one by one, a millisecond apart; the times at which they were stored."""
    times = []
    for value in values:
        CLOCK.advance(0.001)
        times.append(CLOCK.now_ms())
        await producer.send(topic, value, tag=options.get("tag"))
    return times


async def send_when_back(producer: Producer, value: str, queue: MessageQueue) -> None:
    while True:
        try:
            await producer.send(queue.topic, value, queue=queue)
            return
        except SendFailed:
            await asyncio.sleep(0.05)


async def test_messages_of_all_queues_come_as_they_were_stored(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        values = [f"value {number}" for number in range(100)]
        await send(mq.producer("producers"), topic, *values)

        found = [message async for message in mq.browse(topic, codec=str)]

        assert [message.value for message in found] == values
        assert len({message.queue for message in found}) == 4


async def test_nothing_remains_of_a_browse(cluster: BlockingCluster, topic: str) -> None:
    async with client(cluster) as mq:
        await send(mq.producer("producers"), topic, "a", "b")

        async with aclosing(mq.browse(topic)) as found:
            await anext(found)
            assert topic in mq._require().main.browsed

        assert topic not in mq._require().main.browsed
        assert mq._require().main.consumers == {}


async def test_a_browse_begins_at_a_time_and_ends_before_another(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        times = await send(mq.producer("producers"), topic, *"abcdef")
        begin = datetime.fromtimestamp(times[2] / 1000, UTC)

        found = [m.value async for m in mq.browse(topic, since=begin, until=times[4], codec=str)]

        assert found == ["c", "d"]


async def test_a_browse_goes_on_where_another_one_ended(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        producer = mq.producer("producers")
        await send(producer, topic, *"abcde")
        ends: dict[MessageQueue, int] = {}
        async for message in mq.browse(topic):
            ends[message.queue] = message.queue_offset + 1
        await send(producer, topic, *"fgh")

        after = [m.value async for m in mq.browse(topic, since=ends, codec=str)]
        before = [m.value async for m in mq.browse(topic, until=ends, codec=str)]

        assert after == ["f", "g", "h"]
        assert before == ["a", "b", "c", "d", "e"]


async def test_only_the_tags_that_were_asked_for_come(cluster: BlockingCluster, topic: str) -> None:
    async with client(cluster) as mq:
        producer = mq.producer("producers")
        await send(producer, topic, "wanted", tag="Aa")
        await send(producer, topic, "twin", tag="BB")

        found = [message.value async for message in mq.browse(topic, tags="Aa", codec=str)]

        assert found == ["wanted"]


async def test_what_is_sent_meanwhile_is_not_waited_for(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        producer = mq.producer("producers")
        await send(producer, topic, "a", "b")
        found = []

        async for message in mq.browse(topic, codec=str):
            found.append(message.value)
            await send(producer, topic, "later")

        assert found == ["a", "b"]


async def test_a_topic_that_is_followed_does_not_end(cluster: BlockingCluster, topic: str) -> None:
    async with client(cluster) as mq:
        producer = mq.producer("producers")
        await send(producer, topic, "a", "b")

        async with aclosing(mq.browse(topic, follow=True, codec=str)) as followed:
            found = [(await anext(followed)).value for _ in range(2)]
            await send(producer, topic, "c")
            found.append((await anext(followed)).value)
            await send(producer, topic, "d")
            found.append((await anext(followed)).value)

        assert found == ["a", "b", "c", "d"]


async def test_a_browse_from_the_end_gives_only_what_comes(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        producer = mq.producer("producers")
        await send(producer, topic, "a", "b")

        async with aclosing(mq.browse(topic, since="last", follow=True, codec=str)) as followed:
            first = asyncio.ensure_future(anext(followed))
            while not any("following" in task.get_name() for task in asyncio.all_tasks()):
                await asyncio.sleep(0)
            await send(producer, topic, "c")

            assert (await first).value == "c"


async def test_queues_that_are_new_are_followed_too(cluster: BlockingCluster, topic: str) -> None:
    async with client(cluster, route_interval_ms=50) as mq:
        producer = mq.producer("producers")
        await send(producer, topic, "a")

        async with aclosing(mq.browse(topic, follow=True, codec=str)) as followed:
            await anext(followed)
            await asyncio.to_thread(cluster.create_topic, topic, queues=3)
            await mq._require().routes.refresh(topic)
            new = MessageQueue(topic, "broker-1", 2)
            await producer.send(topic, "b", queue=new)

            message = await anext(followed)

        assert (message.value, message.queue) == ("b", new)


async def test_following_goes_on_when_a_broker_is_back(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        producer = mq.producer("producers")
        await send(producer, topic, "a")

        async with aclosing(mq.browse(topic, follow=True, codec=str)) as followed:
            await anext(followed)
            following = asyncio.ensure_future(anext(followed))
            await asyncio.to_thread(cluster.broker.restart)
            queue = MessageQueue(topic, "broker-0", 0)
            await send_when_back(mq.producer("later"), "b", queue)

            assert (await following).value == "b"


async def test_a_broker_that_is_gone_is_an_error_and_not_a_gap(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        await send(mq.producer("producers"), topic, *"abcdefgh")
        await asyncio.to_thread(cluster.broker.stop)
        try:
            with pytest.raises(Unreachable):
                _ = [message async for message in mq.browse(topic)]
        finally:
            await asyncio.to_thread(cluster.broker.start)


async def test_following_ends_with_the_client(cluster: BlockingCluster, topic: str) -> None:
    async with client(cluster) as mq:
        await send(mq.producer("producers"), topic, "a")
        followed = mq.browse(topic, follow=True)
        await anext(followed)
        following = asyncio.ensure_future(anext(followed))
        await asyncio.sleep(0)

    with pytest.raises(NotRunning):
        await following


async def test_a_topic_that_does_not_exist_cannot_be_browsed(cluster: BlockingCluster) -> None:
    async with client(cluster) as mq:
        with pytest.raises(NoRoute, match="no-such-topic"):
            await anext(mq.browse("no-such-topic"))


async def test_what_cannot_be_meant_is_refused_at_once(cluster: BlockingCluster) -> None:
    async with client(cluster) as mq:
        with pytest.raises(InvalidArgument, match="until="):
            mq.browse("orders", until=5, follow=True)
        with pytest.raises(InvalidArgument, match="no place to begin"):
            mq.browse("orders", since="yesterday")  # type: ignore[call-overload]


STORED_MS = 5_000


def search_as_before_release_5(asked: Asked) -> Answer:
    """Some message of the very millisecond if there is one, else the nearer neighbour."""
    wanted_ms = SearchOffsetByTimestamp.from_ext(asked.command.ext_fields).timestamp
    return Answer(header=OffsetResponse(2 if wanted_ms == STORED_MS else 0))


def pulled(asked: Asked) -> Answer:
    offset = PullMessage.from_ext(asked.command.ext_fields).queue_offset
    records = [record(queue_offset=n, stored_ms=STORED_MS if n else 1) for n in range(offset, 4)]
    return Answer(header=PullMessageResponse(0, 4, 0, 4), body=b"".join(records))


@asynccontextmanager
async def old_broker() -> AsyncIterator[FakeCluster]:
    """One queue: a message of long ago, and three that were stored in one millisecond."""
    async with FakeCluster() as cluster:
        cluster.create("orders", queues=1)
        cluster.a.version = V4_9_7
        cluster.a.on(RequestCode.GET_MAX_OFFSET, Answer(header=OffsetResponse(4)))
        cluster.a.on(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search_as_before_release_5)
        cluster.a.on(RequestCode.PULL_MESSAGE, pulled)
        yield cluster


async def test_old_brokers_find_a_time_only_about_right_and_nothing_is_left_out() -> None:
    async with old_broker() as cluster, connected(cluster) as mq:
        found = [m.queue_offset async for m in mq.browse("orders", since=STORED_MS)]

        assert found == [1, 2, 3]


async def test_of_a_queue_that_ends_before_it_begins_nobody_is_asked() -> None:
    async with old_broker() as cluster, connected(cluster) as mq:
        cluster.a.on(RequestCode.GET_MAX_OFFSET, Answer(ResponseCode.SYSTEM_ERROR))
        queue = MessageQueue("orders", "broker-a", 0)

        assert [m async for m in mq.browse("orders", until={queue: 0})] == []


async def test_a_search_on_an_old_broker_may_begin_too_early_but_never_too_late() -> None:
    async with old_broker() as cluster, connected(cluster) as mq:
        puller = mq.pull_consumer("billing")
        (queue,) = await puller.queues("orders")

        assert await puller.search_offset(queue, STORED_MS) <= 1
        await puller.close()


async def test_a_broker_that_holds_nothing_is_not_asked_without_a_pause() -> None:
    async with old_broker() as cluster, connected(cluster) as mq:
        cluster.a.on(
            RequestCode.PULL_MESSAGE,
            Answer(ResponseCode.PULL_NOT_FOUND, header=PullMessageResponse(0, 4, 0, 4)),
        )
        following = mq.browse("orders", since="last", follow=True)
        first = asyncio.ensure_future(anext(following))
        await cluster.a.until(RequestCode.PULL_MESSAGE, 1)
        began = asyncio.get_running_loop().time()
        await cluster.a.until(RequestCode.PULL_MESSAGE, 4)

        assert asyncio.get_running_loop().time() - began >= 0.05
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
