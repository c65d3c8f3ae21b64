"""Low-level and scheduled pull on a cluster: each pull is asked for, offsets are the user's."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cometmq.aio import Client
from cometmq.client.core.message import Message
from cometmq.client.hooks import ConsumeContext
from cometmq.client.life import State
from cometmq.client.pull_member import PullHooks
from cometmq.client.pulling import PullStatus
from cometmq.errors import InvalidArgument, NotRunning, SettingsError, Unreachable
from cometmq.model.offsets import MessageQueue
from cometmq.testing import LocalCluster
from cometmq.testing.local_cluster import BlockingCluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with LocalCluster(settings={"messageDelayLevel": "1s 1s 1s 1s 1s"}) as running:
        yield running


@pytest.fixture
def topic(cluster: BlockingCluster, request: pytest.FixtureRequest) -> str:
    name = request.node.name[:100]
    cluster.create_topic(name, queues=2)
    return str(name)


@pytest.fixture
def queue(topic: str) -> MessageQueue:
    return MessageQueue(topic, "broker-0", 0)


@asynccontextmanager
async def client(cluster: BlockingCluster, **options: Any) -> AsyncIterator[Client]:
    async with Client(cluster.namesrv, rebalance_gap_ms=0, **options) as mq:
        yield mq


async def send(mq: Client, queue: MessageQueue, count: int, *, tag: str | None = None) -> None:
    async with mq.producer("producers") as producer:
        for number in range(count):
            await producer.send(queue.topic, f"value {number}", tag=tag, queue=queue)


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def test_a_pull_brings_messages_and_says_where_to_go_on(
    cluster: BlockingCluster, queue: MessageQueue
) -> None:
    async with client(cluster) as mq, mq.pull_consumer(queue.topic, codec=str) as puller:
        await send(mq, queue, 5)

        first = await puller.pull(queue, 1, count=3)
        last = await puller.pull(queue, first.next_offset)

        assert [message.value for message in first.messages] == ["value 1", "value 2", "value 3"]
        assert (first.status, first.next_offset) == (PullStatus.FOUND, 4)
        assert (first.min_offset, first.max_offset) == (0, 5)
        assert [message.value for message in last.messages] == ["value 4"]


async def test_every_status_is_told(cluster: BlockingCluster, queue: MessageQueue) -> None:
    async with client(cluster) as mq, mq.pull_consumer(queue.topic) as puller:
        await send(mq, queue, 2, tag="a")

        at_end = await puller.pull(queue, 2)
        beyond = await puller.pull(queue, 9)
        unwanted = await puller.pull(queue, 0, tags="b")

        assert (at_end.status, at_end.next_offset) == (PullStatus.NO_NEW, 2)
        assert (beyond.status, beyond.next_offset) == (PullStatus.ILLEGAL, 2)
        assert (unwanted.status, unwanted.next_offset) == (PullStatus.NO_MATCH, 2)


async def test_a_twin_of_a_tag_is_left_out(cluster: BlockingCluster, queue: MessageQueue) -> None:
    async with client(cluster) as mq, mq.pull_consumer(queue.topic) as puller:
        await send(mq, queue, 1, tag="BB")

        result = await puller.pull(queue, 0, tags=["Aa"])

        assert (list(result.messages), result.next_offset) == ([], 1)


async def test_a_pull_that_may_wait_gets_what_comes_later(
    cluster: BlockingCluster, queue: MessageQueue
) -> None:
    async with client(cluster) as mq, mq.pull_consumer(queue.topic, codec=str) as puller:
        waiting = asyncio.ensure_future(puller.pull(queue, 0, wait=True))
        await puller.queues(queue.topic)

        await send(mq, queue, 1)

        assert [message.value for message in (await waiting).messages] == ["value 0"]


async def test_offsets_are_saved_when_they_were_updated(
    cluster: BlockingCluster, queue: MessageQueue
) -> None:
    async with client(cluster) as mq:
        await send(mq, queue, 7)
        async with mq.pull_consumer(queue.topic) as puller:
            await puller.queues(queue.topic)
            puller.update_offset(queue, 7)
            noted, stored = puller.offset(queue), await puller.stored_offset(queue)

        async with mq.pull_consumer(queue.topic) as puller:
            assert await puller.stored_offset(queue) == 7
            puller.update_offset(queue, 3)
            await puller.persist()
            assert await puller.stored_offset(queue) == 3

        assert noted == 7
        assert stored != 7


async def test_offsets_of_queues_that_belong_to_others_are_not_saved(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        members = [mq.pull_consumer(topic) for _ in range(2)]
        for member in members:
            member.register(topic)
            await member.queues(topic)
        await until(lambda: [len(member.mine(topic)) for member in members] == [1, 1])
        first, second = members
        (foreign,) = second.mine(topic)
        await send(mq, foreign, 2)

        first.update_offset(foreign, 2)
        await first.persist()

        assert await first.stored_offset(foreign) != 2


async def test_registered_topics_are_shared_and_listeners_told(
    cluster: BlockingCluster, topic: str
) -> None:
    told: list[tuple[str, int, int]] = []
    async with client(cluster) as mq:
        first = mq.pull_consumer(topic)
        first.register(topic)
        first.on_queues_changed(
            lambda name, known, mine: told.append((name, len(known), len(mine)))
        )
        async with first:
            second = mq.pull_consumer(topic)
            second.register(topic)
            async with second:
                await until(lambda: len(first.mine(topic)) == 1)
                shared = {*first.mine(topic), *second.mine(topic)}
            await until(lambda: len(first.mine(topic)) == 2)

        assert shared == {MessageQueue(topic, "broker-0", number) for number in range(2)}
        assert told == [(topic, 2, 2), (topic, 2, 1), (topic, 2, 2)]


async def test_questions_about_a_queue(cluster: BlockingCluster, queue: MessageQueue) -> None:
    async with client(cluster) as mq, mq.pull_consumer(queue.topic) as puller:
        empty = await puller.earliest_store_time(queue)
        await send(mq, queue, 3)
        (first, *_) = (await puller.pull(queue, 0)).messages

        assert empty is None
        assert await puller.min_offset(queue) == 0
        assert await puller.max_offset(queue) == 3
        assert await puller.search_offset(queue, first.stored_ms) == 0
        assert await puller.earliest_store_time(queue) == first.stored_ms


async def test_a_message_that_is_sent_back_comes_again_through_the_retry_topic(
    cluster: BlockingCluster, queue: MessageQueue
) -> None:
    async with client(cluster) as mq, mq.pull_consumer(queue.topic, codec=str) as puller:
        await send(mq, queue, 1)
        (message,) = (await puller.pull(queue, 0)).messages

        await puller.send_back(message)
        retry_topic = f"%RETRY%{queue.topic}"
        while await mq._require().routes.refresh(retry_topic) is None:
            await asyncio.sleep(0.005)  # the broker tells the name server by and by
        (retry,) = await puller.queues(retry_topic)
        (again,) = (await puller.pull(retry, 0, wait=True)).messages

        assert (again.value, again.topic, again.reconsume_times) == ("value 0", queue.topic, 1)


async def test_a_message_cannot_be_sent_back_with_a_level_that_there_is_not(
    cluster: BlockingCluster, queue: MessageQueue
) -> None:
    async with client(cluster) as mq, mq.pull_consumer(queue.topic, codec=str) as puller:
        await send(mq, queue, 1)
        (message,) = (await puller.pull(queue, 0)).messages

        with pytest.raises(InvalidArgument, match="no delay level 99; use 1 to 18, 0 for"):
            await puller.send_back(message, 99)


async def test_a_callback_is_called_for_each_queue_of_ours(
    cluster: BlockingCluster, topic: str
) -> None:
    called: list[MessageQueue] = []
    async with client(cluster) as mq, mq.pull_consumer(topic, schedule_pause_ms=1) as puller:

        async def pull(queue: MessageQueue) -> None:
            called.append(queue)

        puller.schedule(topic, pull)
        await until(lambda: len(set(called)) == 2 and len(called) > 4)

    assert set(called) == {MessageQueue(topic, "broker-0", number) for number in range(2)}


async def test_no_callback_is_called_any_more_when_it_is_closed(
    cluster: BlockingCluster, topic: str
) -> None:
    called: list[MessageQueue] = []
    async with client(cluster) as mq:
        puller = mq.pull_consumer(topic, schedule_pause_ms=1)

        async def pull(queue: MessageQueue) -> None:
            called.append(queue)

        puller.schedule(topic, pull)
        async with puller:
            await until(lambda: called)
        count = len(called)
        await asyncio.sleep(0.02)

        assert len(called) == count


class Watching:
    """A hook and a filter that remember."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, bool]] = []

    def before_consume(self, context: ConsumeContext) -> None:
        self.seen.append(("before", len(context.messages), context.is_success))

    def after_consume(self, context: ConsumeContext) -> None:
        self.seen.append(("after", len(context.messages), context.is_success))
        raise ValueError("a hook changes nothing")

    def wanted(self, group: str, messages: Sequence[Message[Any]]) -> Sequence[Message[Any]]:
        assert group
        return messages[1:]


async def test_hooks_see_results_and_filters_leave_messages_out(
    cluster: BlockingCluster, queue: MessageQueue
) -> None:
    watching = Watching()
    async with client(cluster) as mq:
        puller = mq.pull_consumer(queue.topic, codec=str, hooks=[watching], filters=[watching])
        await send(mq, queue, 3)

        result = await puller.pull(queue, 0)

        assert [message.value for message in result.messages] == ["value 1", "value 2"]
        assert watching.seen == [("before", 2, False), ("after", 2, True)]


def test_a_filter_that_says_nothing_leaves_nothing_out(caplog: pytest.LogCaptureFixture) -> None:
    class Forgetful:
        def wanted(self, group: str, messages: Sequence[Message[Any]]) -> Any:
            return None

    messages: list[Any] = ["one", "two"]

    assert PullHooks("billing", "", (), [Forgetful()]).wanted(messages) == messages
    assert "a filter failed" in caplog.text


async def test_what_cannot_be_meant_is_refused(
    cluster: BlockingCluster, queue: MessageQueue
) -> None:
    async with client(cluster) as mq:
        with pytest.raises(SettingsError, match="wait_timeout_ms"):
            mq.pull_consumer("billing", wait_timeout_ms=1_000)
        with pytest.raises(InvalidArgument, match="without rebalancing"):
            mq.pull_consumer("billing", is_rebalancing=False).schedule(
                queue.topic, lambda _queue: asyncio.sleep(0)
            )
        async with mq.pull_consumer(queue.topic) as puller:
            with pytest.raises(InvalidArgument, match="no offset -1"):
                await puller.pull(queue, -1)
            with pytest.raises(InvalidArgument, match="0 messages"):
                await puller.pull(queue, 0, count=0)
            with pytest.raises(InvalidArgument, match="no offset -1"):
                puller.update_offset(queue, -1)


async def test_an_unknown_broker_is_an_error_and_not_a_wait(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq, mq.pull_consumer(topic) as puller:
        with pytest.raises(Unreachable, match="no route"):
            await puller.pull(MessageQueue(topic, "broker-9", 0), 0)


async def test_a_closed_consumer_cannot_be_used(
    cluster: BlockingCluster, queue: MessageQueue
) -> None:
    async with client(cluster) as mq:
        puller = mq.pull_consumer(queue.topic)
        await puller.queues(queue.topic)

        await puller.close()
        await puller.close()

        with pytest.raises(NotRunning):
            await puller.pull(queue, 0)
        with pytest.raises(NotRunning):
            puller.update_offset(queue, 1)


async def test_tools_see_the_offsets_that_were_noted(
    cluster: BlockingCluster, queue: MessageQueue
) -> None:
    async with client(cluster) as mq, mq.pull_consumer(queue.topic) as puller:
        await puller.queues(queue.topic)
        puller.update_offset(queue, 4)

        found = puller._running.running_info(with_stacks=True)

        assert found.mq_table[queue].commit_offset == 4
        assert found.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert "running_info" in (found.jstack or "")
        assert puller._running.offsets(queue.topic) == {queue: 4}


async def test_whoever_gives_up_while_it_starts_does_not_end_it(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        puller = mq.pull_consumer(topic)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await puller.queues(topic)

        assert len(await puller.queues(topic)) > 0


async def test_a_scheduled_call_may_close_its_consumer(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster, drain_timeout_ms=60_000) as mq:
        puller = mq.pull_consumer(topic)
        ended = asyncio.Event()

        async def callback(_queue: MessageQueue) -> int | None:
            await puller.close()
            ended.set()
            return None

        puller.schedule(topic, callback)
        async with asyncio.timeout(10):
            with contextlib.suppress(NotRunning):  # when the calls are faster
                await puller.queues(topic)
            await ended.wait()
            await until(lambda: topic not in mq._require().main.claimed_groups)


async def test_a_scheduled_call_may_close_its_client(cluster: BlockingCluster, topic: str) -> None:
    async with asyncio.timeout(10), client(cluster, drain_timeout_ms=60_000) as mq:
        puller = mq.pull_consumer(topic)
        puller.schedule(topic, lambda _queue: mq.close())

        with contextlib.suppress(NotRunning):  # when the calls are faster
            await puller.queues(topic)
        await until(lambda: not mq._life.is_running)

    assert mq._life.state is State.CLOSED


async def test_nothing_is_scheduled_on_a_closed_consumer(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        puller = mq.pull_consumer(topic)
        puller.register(topic)
        await puller.queues(topic)
        await until(lambda: puller.mine(topic))
        await puller.close()

        async def callback(_queue: MessageQueue) -> int | None:
            return None

        with pytest.raises(NotRunning, match="is closed"):
            puller.schedule(topic, callback)
        with pytest.raises(NotRunning, match="is closed"):
            puller.register("another")
        assert not [task for task in asyncio.all_tasks() if "scheduled" in task.get_name()]
