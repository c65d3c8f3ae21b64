"""Lite pull on a cluster: what is polled, what is committed, and what comes again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cometmq.aio import Client
from cometmq.client.core.message import Message
from cometmq.client.hooks import ConsumeContext
from cometmq.client.lite_consumer import LiteConsumer
from cometmq.client.producer import Producer
from cometmq.errors import (
    InvalidArgument,
    NoRoute,
    NotRunning,
    Refused,
    SendFailed,
    SettingsError,
    Unreachable,
)
from cometmq.model.offsets import MessageQueue
from cometmq.testing import FakeClock, LocalCluster
from cometmq.testing.local_cluster import BlockingCluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with LocalCluster() as running:
        yield running


@pytest.fixture
def topic(cluster: BlockingCluster, request: pytest.FixtureRequest) -> str:
    name = request.node.name[:100]
    cluster.create_topic(name, queues=2)
    return str(name)


@asynccontextmanager
async def client(cluster: BlockingCluster, **options: Any) -> AsyncIterator[Client]:
    async with Client(cluster.namesrv, rebalance_gap_ms=0, **options) as mq:
        yield mq


def consumer(mq: Client, topic: str, **options: Any) -> LiteConsumer[str]:
    """Of a group that goes by the name of the topic, and begins at the first message."""
    lite = mq.lite_consumer(topic, codec=str, **{"start": "first", **options})
    lite.subscribe(topic)
    return lite


async def send(mq: Client, topic: str, count: int) -> list[str]:
    values = [f"value {number}" for number in range(count)]
    producer = mq.producer("producers")
    for number, value in enumerate(values):
        await producer.send(topic, value, queue=MessageQueue(topic, "broker-0", number % 2))
    return values


async def send_when_back(producer: Producer, topic: str, value: str) -> None:
    while True:
        try:
            await producer.send(topic, value)
            return
        except (SendFailed, NoRoute):
            await asyncio.sleep(0.05)


async def polled(lite: LiteConsumer[str], count: int) -> list[Message[str]]:
    found: list[Message[str]] = []
    while len(found) < count:
        found += await lite.poll()
    return found


def values_of(messages: list[Message[str]]) -> list[str]:
    return sorted((m.value for m in messages), key=lambda value: int(value.split()[1]))


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def test_everything_is_polled_once(cluster: BlockingCluster, topic: str) -> None:
    async with client(cluster) as mq, consumer(mq, topic) as lite:
        values = await send(mq, topic, 50)

        found = await polled(lite, 50)

        assert values_of(found) == values
        assert await lite.poll(timeout_ms=0) == []


async def test_a_group_goes_on_behind_what_was_committed(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        values = await send(mq, topic, 30)
        async with consumer(mq, topic, is_auto_commit=False) as lite:
            done = await polled(lite, 10)
            await lite.commit()
            await polled(lite, 10)  # and nobody says that these are done

        async with consumer(mq, topic) as lite:
            found = await polled(lite, 30 - len(done))

        assert values_of(done + found) == values


async def test_what_was_polled_last_comes_again_unless_it_is_committed(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        await send(mq, topic, 30)
        async with consumer(mq, topic) as lite:
            done = await lite.poll()
            last = await lite.poll()

        async with consumer(mq, topic) as lite:
            found = await polled(lite, 30 - len(done))

        assert set(values_of(last)) <= set(values_of(found))
        assert not set(values_of(done)) & set(values_of(found))


async def test_commits_by_itself_are_made_inside_of_poll_at_intervals(
    cluster: BlockingCluster, topic: str
) -> None:
    clock = FakeClock()
    async with client(cluster, clock=clock) as mq, consumer(mq, topic) as lite:
        await send(mq, topic, 2)
        await polled(lite, 2)
        queue = MessageQueue(topic, "broker-0", 0)
        await lite.poll(timeout_ms=0)
        before = await lite.committed(queue)

        clock.advance(5)
        await lite.poll(timeout_ms=0)

        assert before == 0
        assert await lite.committed(queue) == 1


async def test_an_iterated_message_is_done_when_the_next_one_is_asked_for(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        values = await send(mq, topic, 20)
        found = []
        async with consumer(mq, topic) as lite:
            async for message in lite:
                found.append(message)
                if len(found) == 8:
                    break

        async with consumer(mq, topic) as lite:
            again = await polled(lite, 13)

        assert found[-1].value in values_of(again)
        assert values_of(found[:-1] + again) == values


async def test_seek_goes_back_and_forth(cluster: BlockingCluster, topic: str) -> None:
    async with client(cluster) as mq, consumer(mq, topic) as lite:
        await send(mq, topic, 20)
        found = await polled(lite, 20)
        queue = MessageQueue(topic, "broker-0", 0)
        in_queue = [message for message in found if message.queue == queue]

        await lite.seek(queue, 7)
        from_offset = await polled(lite, 3)
        await lite.seek_to_begin(queue)
        from_begin = await polled(lite, 10)
        await lite.seek_to_end(queue)
        at_end = lite.position(queue)
        await lite.seek_to_time(queue, in_queue[0].stored_ms)
        from_time = await polled(lite, 10)

        assert [message.queue_offset for message in from_offset] == [7, 8, 9]
        assert [message.queue_offset for message in from_begin] == list(range(10))
        assert at_end == 10
        assert [message.queue_offset for message in from_time] == list(range(10))


async def test_a_seek_is_committed_like_everything_else(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq, consumer(mq, topic) as lite:
        await send(mq, topic, 20)
        await polled(lite, 20)
        queue = MessageQueue(topic, "broker-0", 0)
        await lite.commit()
        before = await lite.committed(queue)

        lite.pause([queue])
        await lite.seek(queue, 3)
        await lite.commit()

        assert (before, await lite.committed(queue)) == (10, 3)


async def test_seek_refuses_what_is_not_there(cluster: BlockingCluster, topic: str) -> None:
    async with client(cluster) as mq, consumer(mq, topic) as lite:
        await send(mq, topic, 2)

        with pytest.raises(InvalidArgument, match="is not assigned"):
            await lite.seek(MessageQueue(topic, "broker-0", 9), 0)
        with pytest.raises(InvalidArgument, match="which has 0 to 1"):
            await lite.seek(MessageQueue(topic, "broker-0", 0), 2)
        with pytest.raises(InvalidArgument, match="is not assigned"):
            lite.pause([MessageQueue(topic, "broker-0", 9)])


async def test_a_paused_queue_gives_nothing_new_until_it_is_resumed(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq, consumer(mq, topic) as lite:
        queue = MessageQueue(topic, "broker-0", 0)
        await lite.seek_to_begin(queue)
        lite.pause([queue])
        await lite.seek_to_begin(queue)  # a pause stays
        await send(mq, topic, 2)

        (other,) = await polled(lite, 1)
        lite.resume([queue])
        (resumed,) = await polled(lite, 1)

        assert (other.queue_id, resumed.queue_id) == (1, 0)


async def test_fixed_queues_are_read_whatever_other_members_do(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        await send(mq, topic, 10)
        queue = MessageQueue(topic, "broker-0", 1)
        members = [mq.lite_consumer(topic, start="first", codec=str) for _ in range(2)]

        for lite in members:
            lite.assign([queue])
        found = [await polled(lite, 5) for lite in members]

        assert [lite.assignment for lite in members] == [{queue}, {queue}]
        assert values_of(found[0]) == values_of(found[1])


async def test_fixed_queues_can_be_replaced(cluster: BlockingCluster, topic: str) -> None:
    async with client(cluster) as mq, mq.lite_consumer(topic, start="first", codec=str) as lite:
        await send(mq, topic, 10)
        first, second = await lite.queues(topic)
        lite.assign([first])
        await polled(lite, 5)

        lite.assign([second], tags="*")
        found = await polled(lite, 5)

        assert {message.queue for message in found} == {second}
        await until(lambda: lite.assignment == {second})


async def test_subscribing_and_assigning_exclude_each_other(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        with pytest.raises(InvalidArgument, match="together with subscribe"):
            consumer(mq, topic).assign([MessageQueue(topic, "broker-0", 0)])


async def test_what_is_no_queue_is_refused(cluster: BlockingCluster, topic: str) -> None:
    name: Any = "a"
    async with client(cluster) as mq, mq.lite_consumer(topic) as lite:
        uses: list[Callable[[], object]] = [
            lambda: lite.assign([name]),
            lambda: lite.pause([name]),
            lambda: lite.position(name),
        ]
        for use in uses:
            with pytest.raises(InvalidArgument, match="'a' is no MessageQueue"):
                use()
        with pytest.raises(InvalidArgument, match="'5' ms are no time"):
            await lite.poll(timeout_ms="5")  # type: ignore[arg-type]


async def test_members_share_the_queues_and_take_over_from_those_who_leave(
    cluster: BlockingCluster, topic: str
) -> None:
    told = []
    async with client(cluster) as mq:
        first = consumer(mq, topic)
        first.on_queues_changed(
            lambda name, known, mine: told.append((name, len(known), len(mine)))
        )
        async with first:
            async with consumer(mq, topic) as second:
                await until(lambda: len(first.assignment) == len(second.assignment) == 1)
                shared = first.assignment | second.assignment
            await until(lambda: len(first.assignment) == 2)

        assert len(shared) == 2
        assert told == [(topic, 2, 2), (topic, 2, 1), (topic, 2, 2)]


async def test_tools_see_offsets_and_state(cluster: BlockingCluster, topic: str) -> None:
    async with client(cluster) as mq, consumer(mq, topic) as lite:
        await send(mq, topic, 4)
        await polled(lite, 4)
        await lite.commit()
        admin = mq.admin()
        (member,) = (await admin.clients.consumers(topic)).members

        info = await admin.clients.running_info(topic, member.client_id)
        offsets = await admin.clients.offsets(topic, topic)

        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert [queue.commit_offset for queue in info.queues] == [2, 2]
        assert info.rates == ()
        assert [offset.offset for offset in offsets] == [2, 2]


async def test_a_reset_by_tools_moves_a_consumer(cluster: BlockingCluster, topic: str) -> None:
    async with client(cluster) as mq, consumer(mq, topic) as lite:
        await send(mq, topic, 4)
        before = await polled(lite, 4)
        await lite.commit()

        offsets = {MessageQueue(topic, "broker-0", number): 1 for number in range(2)}
        assert lite._reading is not None
        await lite._reading.member.reset_offsets(topic, offsets)
        again = await polled(lite, 2)

        assert len(before) == 4
        assert [message.queue_offset for message in again] == [1, 1]


async def test_nothing_is_lost_when_a_broker_is_restarted(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq, consumer(mq, topic) as lite:
        await send(mq, topic, 4)
        before = await polled(lite, 4)

        await asyncio.to_thread(cluster.broker.restart)
        await send_when_back(mq.producer("later"), topic, "value 4")
        after = await polled(lite, 1)

        assert len(before) == 4
        assert [message.value for message in after] == ["value 4"]


async def test_closing_wakes_those_who_poll_and_may_be_repeated(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        lite = consumer(mq, topic)
        polling = asyncio.ensure_future(lite.poll())
        await until(lambda: lite.assignment)

        await lite.close()
        await lite.close()

        with pytest.raises(NotRunning):
            await polling
        with pytest.raises(NotRunning):
            await lite.poll()


async def test_a_closed_consumer_has_left_its_group(cluster: BlockingCluster, topic: str) -> None:
    async with client(cluster) as mq:
        async with consumer(mq, topic):
            inside = await mq.admin().clients.consumers(topic)

        outside = await mq.admin().clients.consumers(topic)

        assert (len(inside.members), len(outside.members)) == (1, 0)


async def test_closing_ends_in_time_when_the_broker_is_gone(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster, drain_timeout_ms=500, request_timeout_ms=500) as mq:
        lite = consumer(mq, topic)
        await lite.poll(timeout_ms=0)
        await asyncio.to_thread(cluster.broker.stop)
        try:
            async with asyncio.timeout(5):
                assert await lite.poll(timeout_ms=1) == []
                await lite.close()
        finally:
            await asyncio.to_thread(cluster.broker.start)


async def test_names_have_the_namespace_outside_and_not_inside(
    cluster: BlockingCluster, topic: str
) -> None:
    cluster.create_topic(f"ns%{topic}", queues=2)
    async with client(cluster, namespace="ns") as mq, consumer(mq, topic) as lite:
        await send(mq, topic, 4)

        found = await polled(lite, 4)

        assert {message.topic for message in found} == {topic}
        assert {queue.topic for queue in lite.assignment} == {topic}
        assert lite.position(found[0].queue) == 2


async def test_broadcasting_members_each_get_everything_and_keep_offsets_in_a_file(
    cluster: BlockingCluster, topic: str, tmp_path: Any
) -> None:
    folder = str(tmp_path)
    async with client(cluster, instance_name=topic[:40]) as mq:
        await send(mq, topic, 4)
        async with consumer(mq, topic, mode="broadcast", offsets_folder=folder) as lite:
            first = await polled(lite, 4)
            await lite.commit()
        await mq.producer("later").send(topic, "value 4")

        async with consumer(mq, topic, mode="broadcast", offsets_folder=folder) as lite:
            second = await polled(lite, 1)

        assert (len(first), [message.value for message in second]) == (4, ["value 4"])


async def test_a_timeout_shorter_than_the_hold_is_refused(cluster: BlockingCluster) -> None:
    async with client(cluster) as mq:
        with pytest.raises(SettingsError, match="pull_timeout_ms"):
            mq.lite_consumer("billing", pull_timeout_ms=1_000)


async def test_a_commit_of_a_negative_offset_is_refused_and_of_a_foreign_queue_ignored(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq, consumer(mq, topic) as lite:
        queue = MessageQueue(topic, "broker-0", 0)

        await lite.commit({MessageQueue(topic, "broker-0", 9): 5, queue: 0})

        assert await lite.committed(queue) == 0
        with pytest.raises(InvalidArgument, match="-1 cannot be committed"):
            await lite.commit({queue: -1})


async def test_a_condition_that_no_broker_understands_is_refused_at_the_start(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        lite = mq.lite_consumer(topic)
        lite.subscribe(topic, sql="price >")

        with pytest.raises(Refused):
            await lite.poll()

        with pytest.raises(NotRunning):
            await lite.poll()
        assert topic not in mq._require().main.claimed_groups


class Watching:
    """A hook and a filter that remember."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def before_consume(self, context: ConsumeContext) -> None:
        self.seen += [("before", message.value) for message in context.messages]

    def after_consume(self, context: ConsumeContext) -> None:
        self.seen += [("after", message.value) for message in context.messages]
        raise ValueError("a hook changes nothing")

    def wanted(self, group: str, messages: Sequence[Message[Any]]) -> Sequence[Message[Any]]:
        assert group
        return [message for message in messages if message.value != "value 0"]


async def test_hooks_see_what_is_polled_and_filters_leave_messages_out(
    cluster: BlockingCluster, topic: str
) -> None:
    watching = Watching()
    async with client(cluster) as mq:
        lite = consumer(mq, topic, hooks=[watching], filters=[watching])
        await send(mq, topic, 2)

        found = await polled(lite, 1)
        await lite.commit()

        assert values_of(found) == ["value 1"]
        assert watching.seen == [("before", "value 1"), ("after", "value 1")]


async def test_a_member_that_is_closed_while_it_starts_leaves_nothing_behind(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        lite = consumer(mq, topic)
        starting = asyncio.ensure_future(lite.poll())
        await asyncio.sleep(0)

        await lite.close()

        with pytest.raises(NotRunning):
            await starting
        assert not [task for task in asyncio.all_tasks() if "pulling" in task.get_name()]
        assert topic not in mq._require().main.claimed_groups


async def test_a_queue_that_is_taken_back_at_once_is_read(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq, mq.lite_consumer(topic, start="first") as lite:
        queues = await lite.queues(topic)
        lite.assign(queues)

        lite.assign([])
        lite.assign(queues)
        await send(mq, topic, 2)
        found = [await lite.poll(), await lite.poll()]

        assert [len(messages) for messages in found] == [1, 1]
        assert lite.assignment == frozenset(queues)


async def test_queues_that_were_subscribed_and_are_assigned_now_stay(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq, consumer(mq, topic) as lite:
        queues = await lite.queues(topic)
        await until(lambda: lite.assignment)

        lite.unsubscribe(topic)
        lite.assign(queues)
        assert lite._reading is not None
        await lite._reading.member.membership.rebalance()

        assert lite.assignment == frozenset(queues)
        await send(mq, topic, 2)
        assert len(await polled(lite, 2)) == 2


async def test_a_closed_consumer_cannot_be_told_what_to_read(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        async with mq.lite_consumer(topic) as lite:
            queues = await lite.queues(topic)

        uses: tuple[Callable[[], object], ...] = (
            lambda: lite.assign(queues),
            lambda: lite.subscribe(topic),
            lambda: lite.unsubscribe(topic),
            lambda: lite.pause(queues),
            lambda: lite.resume(queues),
            lambda: lite.position(queues[0]),
        )
        for use in uses:
            with pytest.raises(NotRunning, match="is closed"):
                use()
        assert lite.assignment == frozenset()


async def test_a_queue_that_comes_while_a_consumer_ends_is_not_begun(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        lite = consumer(mq, topic)
        await lite.poll(timeout_ms=0)
        assert lite._reading is not None
        await lite.close()

        await lite._reading.queue_added(MessageQueue(topic, "broker-0", 9))
        await lite._reading.member.reset_offsets(topic, {MessageQueue(topic, "broker-0", 0): 0})

        assert not [task for task in asyncio.all_tasks() if "pulling" in task.get_name()]


async def test_a_message_left_with_a_break_holds_up_nothing_when_the_next_one_is_asked_for(
    cluster: BlockingCluster, topic: str
) -> None:
    """Else its queue would be full one day, by the span of offsets, and never be read again."""
    async with client(cluster) as mq, consumer(mq, topic) as lite:
        await send(mq, topic, 6)
        seen = []
        for _ in range(6):
            async for message in lite:
                seen.append(message)
                break

        await lite.poll(timeout_ms=0)

        assert len(seen) == 6
        assert lite._reading is not None
        out = sum(len(one.cache) for one in lite._reading._queues.values())
        assert out <= 2  # the last one of each queue


async def test_two_tasks_cannot_ask_one_iterator_at_the_same_time(
    cluster: BlockingCluster, topic: str
) -> None:
    """Of two messages that are out one would never be done, and its queue stay where it is."""
    async with client(cluster) as mq, consumer(mq, topic) as lite:
        iterator = aiter(lite)
        first = asyncio.ensure_future(anext(iterator))
        await asyncio.sleep(0)

        with pytest.raises(RuntimeError, match="make one per task"):
            await anext(iterator)

        values = await send(mq, topic, 6)
        found = [await first] + [await anext(iterator) for _ in range(5)]
        assert values_of(found) == values


async def test_iterating_ends_when_the_client_is_closed(
    cluster: BlockingCluster, topic: str
) -> None:
    found: list[Message[str]] = []

    async def loop(lite: LiteConsumer[str], has_come: asyncio.Event) -> None:
        async for message in lite:
            found.append(message)
            has_come.set()

    async with client(cluster) as mq:
        lite, has_come = consumer(mq, topic), asyncio.Event()
        task = asyncio.create_task(loop(lite, has_come))
        await send(mq, topic, 1)
        await has_come.wait()

    await task
    assert values_of(found) == ["value 0"]


async def test_a_loop_in_which_the_consumer_is_closed_ends(
    cluster: BlockingCluster, topic: str
) -> None:
    found: list[Message[str]] = []
    async with client(cluster) as mq:
        await send(mq, topic, 4)
        lite = consumer(mq, topic)

        async for message in lite:
            found.append(message)
            await lite.close()

        with pytest.raises(NotRunning, match="is closed"):
            await anext(aiter(lite))
        assert len(found) == 1


async def test_a_commit_that_was_not_saved_says_so(cluster: BlockingCluster, topic: str) -> None:
    async with client(cluster, drain_timeout_ms=500, request_timeout_ms=500) as mq:
        lite = consumer(mq, topic)
        await send(mq, topic, 2)
        await polled(lite, 2)
        await asyncio.to_thread(cluster.broker.stop)
        try:
            with pytest.raises(Unreachable, match="were not saved"):
                await lite.commit()
            await lite.commit(persist=False)
            await lite.close()
        finally:
            await asyncio.to_thread(cluster.broker.start)


async def test_whoever_gives_up_while_it_starts_does_not_end_it(
    cluster: BlockingCluster, topic: str
) -> None:
    async with client(cluster) as mq:
        await send(mq, topic, 2)
        lite = consumer(mq, topic)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await lite.poll()

        assert values_of(await polled(lite, 2)) == ["value 0", "value 1"]
