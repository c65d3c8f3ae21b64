"""Where our Python client begins to read and how far it is, with our servers and Apache's.

Push consumers from start to restart, lite pull, low-level pull, and browsing without a group.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from cometmq.client.core.message import Message
from cometmq.client.lite_consumer import LiteConsumer
from cometmq.errors import InvalidArgument
from cometmq.model.offsets import MessageQueue
from cometmq.testing.history import STRICT
from tests.interop import asking, client_clusters
from tests.interop.cache import Cache
from tests.interop.client_clusters import NEW, QUEUES, RELEASES, Cluster, Clusters, params_of
from tests.interop.client_kit import (
    Inbox,
    Trial,
    now_ms,
    numbered,
    queue_ids,
    scenario,
    text,
    trial,
    until,
)
from tests.interop.feature_kit import CONCURRENTLY

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(150)]


@pytest.fixture(scope="module")
def clusters(
    request: pytest.FixtureRequest, cache: Cache, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clusters]:
    with client_clusters.shared(request, cache, tmp_path_factory) as started:
        started.want(params_of(request, "cluster"))
        yield started


@pytest.fixture(scope="module", params=RELEASES)
def cluster(request: pytest.FixtureRequest, clusters: Clusters) -> Cluster:
    return clusters.get(request.param)


# --- push consumers


@scenario
async def test_a_group_goes_on_where_it_was(cluster: Cluster, topic: str) -> None:
    inbox = Inbox()
    async with trial(cluster, topic) as at:
        await at.send(*numbered(30))
        async with at.consuming(inbox):
            await inbox.wait_for(at.keys)
        await at.send(*numbered(10, "meanwhile"))
        async with at.consuming(inbox):
            await inbox.wait_for(at.keys)

    at.claim(CONCURRENTLY, inbox)


@scenario
async def test_a_new_group_begins_at_the_first_the_last_or_a_time(
    cluster: Cluster, topic: str
) -> None:
    inboxes = {name: Inbox(name) for name in ("first", "last", "time")}
    async with trial(cluster, topic, queues=1) as at, AsyncExitStack() as stack:
        for key in (*numbered(3, "old"), *numbered(3, "young")):
            await at.send(key)
            await asyncio.sleep(0.005)  # no two at the same time: brokers give any of those
        await in_queues(at, 6, queues=1)
        times = {text(message): message.stored_ms async for message in at.mq.browse(topic)}
        # A time between two messages is that of the nearest for some brokers.
        starts: dict[str, str | int] = {"first": "first", "last": "last", "time": times["young-0"]}
        members = [
            await stack.enter_async_context(
                at.consuming(inboxes[name], group=f"{name}_{topic}", start=start)
            )
            for name, start in starts.items()
        ]
        await until(lambda: all(queue_ids(member, topic) for member in members), "all have queues")
        await at.send("new")
        await asyncio.gather(*(inbox.wait_for(["new"]) for inbox in inboxes.values()))
        if cluster.release == NEW:
            await asyncio.gather(*(inbox.wait_for(at.keys) for inbox in inboxes.values()))

    assert sorted(inboxes["first"].keys) == sorted(at.keys)
    if cluster.release == NEW:
        # It says 0 for what is in memory, whatever its settings: so does Java begin there.
        assert sorted(inboxes["time"].keys) == sorted(inboxes["last"].keys) == sorted(at.keys)
    else:
        assert sorted(inboxes["time"].keys) == sorted([*numbered(3, "young"), "new"])
        assert inboxes["last"].keys == ["new"]


@scenario
async def test_an_iterated_message_is_done_when_the_next_is_asked_for(
    cluster: Cluster, topic: str
) -> None:
    inbox = Inbox()
    async with trial(cluster, topic, queues=1) as at:
        await at.send(*numbered(5))
        async with at.mq.consumer(at.group, start="first") as consumer:
            consumer.subscribe(topic)
            async for message in consumer:
                inbox.take(message)
                if len(inbox.messages) == 3:
                    break
        async with at.mq.consumer(at.group, start="first") as consumer:
            consumer.subscribe(topic)
            async for message in consumer:
                inbox.take(message)
                if set(inbox.keys) == set(at.keys) and len(inbox.messages) == 6:
                    break

    assert inbox.keys[:3] == numbered(3)
    assert [message.reconsume_times for message in inbox.of("message-2")] == [0, 1]
    assert all(len(inbox.of(key)) == 1 for key in ("message-0", "message-1", "message-3"))


@scenario
async def test_a_lite_consumer_goes_on_where_it_committed(cluster: Cluster, topic: str) -> None:
    inbox = Inbox()
    async with trial(cluster, topic, queues=2) as at:

        async def poll(count: int) -> None:
            async with at.mq.lite_consumer(at.group, start="first") as lite:
                lite.subscribe(topic)
                async with asyncio.timeout(20):
                    while len(inbox.messages) < count:
                        for message in await lite.poll(timeout_ms=1000):
                            inbox.take(message)
                await lite.commit()
                offsets = [await lite.committed(at.queue(number)) for number in range(2)]
                assert sum(offset or 0 for offset in offsets) == count

        await at.send(*numbered(10))
        await poll(10)
        await at.send(*numbered(6, "meanwhile"))
        await poll(16)

    at.claim(STRICT, inbox)


@scenario
async def test_a_lite_consumer_with_assigned_queues_seeks_and_pauses(
    cluster: Cluster, topic: str
) -> None:
    async with trial(cluster, topic, queues=2) as at:
        for number in range(5):
            for queue in (at.queue(0), at.queue(1)):
                await at.send(f"{queue.queue_id}-{number}", queue=queue)
        async with at.mq.lite_consumer(at.group, start="first") as lite:
            lite.assign(await lite.queues(topic))
            lite.pause([at.queue(0)])
            polled = [text(message) for message in await take(lite, 5)]
            lite.resume([at.queue(0)])
            resumed = [text(message) for message in await take(lite, 5)]
            await lite.seek(at.queue(1), 3)
            again = [text(message) for message in await take(lite, 2)]
            with pytest.raises(InvalidArgument):
                await lite.seek(at.queue(1), 6)
            await lite.seek_to_begin(at.queue(0))
            begun = [text(message) for message in await take(lite, 5)]
            await lite.commit()
            committed = [await lite.committed(at.queue(number)) for number in (0, 1)]

    assert polled == numbered(5, "1")
    assert resumed == begun == numbered(5, "0")
    assert again == ["1-3", "1-4"]
    assert committed == [5, 5]


@scenario
async def test_low_level_pulls_bring_what_was_asked_for_and_keep_what_was_told(
    cluster: Cluster, topic: str
) -> None:
    async with trial(cluster, topic, queues=1) as at:
        for number in range(6):
            await at.send(f"{number}", tag="even" if number % 2 == 0 else "odd")
            await asyncio.sleep(0.005)  # no two at the same time: brokers give any of those
        await in_queues(at, 6, queues=1)
        async with at.mq.pull_consumer(at.group) as puller:
            (queue,) = await puller.queues(topic)
            page = await puller.pull(queue, 1, count=3)
            even = await puller.pull(queue, 0, tags="even")
            end = await puller.pull(queue, 6)
            waiting = asyncio.create_task(puller.pull(queue, 6, wait=True))
            await asyncio.sleep(0.1)
            await at.send("awaited", tag="odd")
            held = await waiting
            puller.update_offset(queue, held.next_offset)
            await puller.persist()
            bounds = await puller.min_offset(queue), await puller.max_offset(queue)
            found = await puller.search_offset(queue, page.messages[1].stored_ms)
        async with at.mq.pull_consumer(at.group) as another:
            stored = await another.stored_offset(queue)

    assert queue == MessageQueue(topic, "broker-a", 0)
    assert [text(message) for message in page.messages] == ["1", "2", "3"]
    assert (page.next_offset, page.max_offset) == (4, 6)
    assert [text(message) for message in even.messages] == ["0", "2", "4"]
    assert (end.messages, end.next_offset) == ([], 6)
    assert [text(message) for message in held.messages] == ["awaited"]
    assert (bounds, stored) == ((0, 7), 7)
    assert found == page.messages[1].queue_offset


@scenario
async def test_browsing_shows_a_topic_in_the_order_it_was_stored(
    cluster: Cluster, topic: str
) -> None:
    async with trial(cluster, topic) as at:
        await at.send(*numbered(40, "old"))
        await asyncio.sleep(0.02)
        middle_ms = round(now_ms())
        await asyncio.sleep(0.02)
        await at.send(*numbered(40, "young"))
        await in_queues(at, 80)
        all_of_it = [text(message) async for message in at.mq.browse(topic)]
        since = [text(message) async for message in at.mq.browse(topic, since=middle_ms)]
        before = [text(message) async for message in at.mq.browse(topic, until=middle_ms)]
        following = at.mq.browse(topic, since="last", follow=True)
        coming = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0.2)
        await at.send("followed")
        followed = text(await coming)
        await following.aclose()

    assert all_of_it == [*before, *since]
    assert (sorted(before), sorted(since)) == (
        sorted(numbered(40, "old")),
        sorted(numbered(40, "young")),
    )
    assert followed == "followed"


# --- what the tests use


async def in_queues(at: Trial, count: int, *, queues: int = QUEUES) -> None:
    """Return once the queues have so many: brokers fill them a moment after they have answered."""

    def are_there() -> bool:
        return asking.stored_count(at.cluster.broker.address, at.topic, queues=queues) == count

    await until(are_there, f"{count} messages are in their queues")


async def take(lite: LiteConsumer[bytes], count: int) -> list[Message[bytes]]:
    """So many messages of a lite consumer."""
    found: list[Message[bytes]] = []
    deadline = time.monotonic() + 20
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        found += await lite.poll(timeout_ms=1000)
    return found
