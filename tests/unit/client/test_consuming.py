"""Push consumers against a real broker in this process."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from cometmq.admin.admin import Admin
from cometmq.admin.positions import Offset
from cometmq.client.client import Client
from cometmq.client.core.message import Message
from cometmq.client.core.message_batch import Batch
from cometmq.client.push_consumer import Consumer
from cometmq.errors import InvalidArgument, NotRunning
from cometmq.testing import LocalCluster

pytestmark = pytest.mark.slow

QUICK: dict[str, Any] = {
    "rebalance_gap_ms": 20,
    "rebalance_interval_ms": 200,
    "lock_interval_ms": 100,
    "persist_interval_ms": 50,
    "heartbeat_interval_ms": 200,
    "route_interval_ms": 200,
    "drain_timeout_ms": 1_000,
}


@contextlib.asynccontextmanager
async def cluster_of(
    *, queues: int = 2, topic: str = "orders", **settings: Any
) -> AsyncIterator[Any]:
    levels = {"messageDelayLevel": "0s 0s 0s 0s 0s 0s"}
    async with LocalCluster(settings=levels | settings) as cluster:
        await cluster.create_topic(topic, queues=queues)
        yield cluster


def connected(cluster: Any, **options: Any) -> Client:
    return Client(cluster.namesrv, **(QUICK | options))


async def fill(client: Client, count: int, topic: str = "orders", **options: Any) -> None:
    producer = client.producer(f"filler{id(options)}")
    for number in range(count):
        await producer.send(topic, b"%d" % number, **options)
    await producer.close()


async def until(claim: Callable[[], bool], seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not claim():
            await asyncio.sleep(0.01)


def bodies(messages: list[Message[bytes]]) -> list[int]:
    return sorted(int(message.body) for message in messages)


async def stored_offsets(admin: Admin, queues: int = 2, group: str = "group") -> int:
    """The sum of what the broker has of the group."""
    found = [await admin.offsets.get(group, "orders", "broker-0", q) for q in range(queues)]
    return sum(offset or 0 for offset in found)


async def reached(admin: Admin, offset: int, **options: Any) -> None:
    """Wait until the group has stored this offset."""
    async with asyncio.timeout(15):
        while await stored_offsets(admin, **options) != offset:
            await asyncio.sleep(0.01)


async def test_every_message_reaches_a_coroutine_once_and_offsets_are_stored() -> None:
    got: list[Message[bytes]] = []

    async def handle(message: Message[bytes]) -> None:
        got.append(message)

    async with cluster_of() as cluster, connected(cluster) as mq, Admin(cluster.namesrv) as admin:
        await fill(mq, 20)
        consumer = mq.consumer("group", start="first")
        consumer.subscribe("orders")
        await consumer.start(handle)
        await reached(admin, 20)

        assert bodies(got) == list(range(20))


async def test_a_plain_function_runs_on_a_thread_of_its_own() -> None:
    threads: set[str] = set()

    def handle(message: Message[bytes]) -> None:
        threads.add(threading.current_thread().name)

    async with cluster_of() as cluster, connected(cluster) as mq:
        await fill(mq, 5)
        consumer = mq.consumer("group", start="first", concurrency=2)
        consumer.subscribe("orders")
        await consumer.start(handle)
        await until(lambda: bool(threads))
        await consumer.close()

    assert all(name.startswith("cometmq-handler-") for name in threads)


async def test_a_group_begins_where_it_was_when_it_was_closed() -> None:
    got: list[Message[bytes]] = []

    async def handle(message: Message[bytes]) -> None:
        got.append(message)

    async with cluster_of() as cluster, connected(cluster) as mq:
        await fill(mq, 10)
        first = mq.consumer("group", start="first")
        first.subscribe("orders")
        await first.start(handle)
        await until(lambda: len(got) == 10)
        await first.close()
        await fill(mq, 3)
        second = mq.consumer("group", start="first")
        second.subscribe("orders")
        await second.start(handle)
        await until(lambda: len(got) >= 13)
        await second.close()

    assert len(got) == 13


async def test_a_new_group_begins_at_the_end_or_at_a_time() -> None:
    late: list[Message[bytes]] = []
    timed: list[Message[bytes]] = []

    async def last(message: Message[bytes]) -> None:
        late.append(message)

    async def at_time(message: Message[bytes]) -> None:
        timed.append(message)

    async with cluster_of() as cluster, connected(cluster) as mq:
        await fill(mq, 4)
        one = mq.consumer("late")
        one.subscribe("orders")
        await one.start(last)
        two = mq.consumer("timed", start=1)
        two.subscribe("orders")
        await two.start(at_time)
        await until(lambda: len(timed) == 4)
        await mq.producer().send("orders", b"99")
        # Brokers answer 0 for young queues: then a new group sees what was there, too.
        await until(lambda: 99 in bodies(late) and len(timed) == 5)


async def test_a_failed_message_comes_again_with_its_count_and_topic() -> None:
    seen: list[tuple[str, int]] = []

    async def handle(message: Message[bytes]) -> None:
        seen.append((message.topic, message.reconsume_times))
        if message.reconsume_times < 2:
            raise ValueError("not yet")

    async with cluster_of() as cluster, connected(cluster) as mq:
        consumer = mq.consumer("group", start="first")
        consumer.subscribe("orders")
        await consumer.start(handle)
        await fill(mq, 1)
        await until(lambda: len(seen) == 3)

    assert seen == [("orders", 0), ("orders", 1), ("orders", 2)]


async def test_decisions_send_back_and_bury() -> None:
    seen: list[tuple[bytes, int]] = []
    dead: list[Message[bytes]] = []

    async def handle(message: Message[bytes]) -> None:
        seen.append((message.body, message.reconsume_times))
        if message.body == b"0":
            message.dead_letter()
        elif message.reconsume_times == 0:
            message.retry(delay_level=1)

    async def bury(message: Message[bytes]) -> None:
        dead.append(message)

    async with cluster_of() as cluster, connected(cluster) as mq:
        consumer = mq.consumer("group", start="first")
        consumer.subscribe("orders")
        await consumer.start(handle)
        await fill(mq, 2)
        await until(lambda: (b"1", 1) in seen)
        undertaker = mq.consumer("undertaker", start="first")
        undertaker.subscribe("%DLQ%group")
        await undertaker.start(bury)
        await until(lambda: len(dead) == 1)

    assert seen.count((b"0", 0)) == 1
    assert (b"0", 1) not in seen
    assert dead[0].body == b"0"


async def test_only_exact_tags_come_not_their_hash_twins() -> None:
    got: list[str | None] = []

    async def handle(message: Message[bytes]) -> None:
        got.append(message.tag)

    async with cluster_of() as cluster, connected(cluster) as mq, Admin(cluster.namesrv) as admin:
        for tag in ("Aa", "BB", None, "C"):
            await fill(mq, 1, tag=tag)
        consumer = mq.consumer("group", start="first", pull_hold_ms=100)
        consumer.subscribe("orders", tags="Aa || C")
        await consumer.start(handle)
        await reached(admin, 4)

        assert sorted(map(str, got)) == ["Aa", "C"]


async def test_values_have_the_declared_type() -> None:
    got: list[dict[str, int]] = []

    async def handle(message: Message[dict[str, int]]) -> None:
        got.append(message.value)

    async with cluster_of() as cluster, connected(cluster) as mq:
        consumer = mq.consumer("group", codec=dict[str, int], start="first")
        consumer.subscribe("orders")
        await consumer.start(handle)
        await mq.producer().send("orders", {"id": 7})
        await until(lambda: bool(got))

    assert got == [{"id": 7}]


async def test_a_batch_acknowledges_a_prefix_and_the_rest_comes_again() -> None:
    again: list[int] = []
    first: list[int] = []

    async def handle(batch: Batch[bytes]) -> None:
        if batch[0].reconsume_times:
            again.extend(int(message.body) for message in batch)
            return
        first.extend(int(message.body) for message in batch)
        if len(batch) > 1:
            batch.ack_up_to(0)

    async with cluster_of(queues=1) as cluster, connected(cluster) as mq:
        await fill(mq, 4)
        consumer = mq.consumer("group", start="first", batch_size=4)
        consumer.subscribe("orders")
        await consumer.start_batches(handle)
        await until(lambda: len(again) == 3)

    assert sorted(first) == [0, 1, 2, 3]
    assert sorted(again) == [1, 2, 3]


async def test_iterating_acknowledges_when_the_next_is_asked_for() -> None:
    async with cluster_of(queues=1) as cluster, connected(cluster) as mq:
        await fill(mq, 3)
        consumer = mq.consumer("group", start="first")
        consumer.subscribe("orders")
        got: list[int] = []

        async for message in consumer:
            got.append(int(message.body))
            if message.reconsume_times:
                break
            if len(got) == 2:
                break
        assert got == [0, 1]
        async for message in consumer:
            got.append(int(message.body))
            if message.reconsume_times:
                break

    assert got == [0, 1, 2, 1]


async def test_two_iterators_share_the_messages() -> None:
    got: list[list[int]] = [[], []]

    async def iterate(consumer: Consumer[bytes], number: int) -> None:
        async for message in consumer:
            got[number].append(int(message.body))
            await asyncio.sleep(0.005)

    async with cluster_of() as cluster, connected(cluster) as mq:
        await fill(mq, 20)
        consumer = mq.consumer("group", start="first")
        consumer.subscribe("orders")
        tasks = [asyncio.create_task(iterate(consumer, number)) for number in range(2)]
        await until(lambda: sum(map(len, got)) == 20)
        await consumer.close()
        await asyncio.gather(*tasks)

    assert all(got)
    assert sorted(got[0] + got[1]) == list(range(20))


async def test_members_share_queues_and_take_over_from_each_other() -> None:
    got: list[list[int]] = [[], []]

    def handler(number: int) -> Callable[[Message[bytes]], Any]:
        async def handle(message: Message[bytes]) -> None:
            got[number].append(int(message.body))

        return handle

    async with cluster_of(queues=4) as cluster, connected(cluster) as mq:
        members = [mq.consumer("group", start="first") for _ in range(2)]
        for number, member in enumerate(members):
            member.subscribe("orders")
            await member.start(handler(number))

        def count(member: Consumer[bytes]) -> int:
            return sum(queue.topic == "orders" for queue in member.queues)

        await until(lambda: [count(member) for member in members] == [2, 2])
        await fill(mq, 20)
        await until(lambda: sum(map(len, got)) == 20)
        assert members[0].client_id != members[1].client_id
        await members[0].close()
        await until(lambda: count(members[1]) == 4)
        before = len(got[1])
        await fill(mq, 8)
        await until(lambda: len(got[1]) == before + 8)

    assert all(got)


async def test_orderly_handling_keeps_the_order_of_each_queue_and_retries_in_place() -> None:
    got: dict[int, list[int]] = {0: [], 1: []}
    failures = 2

    async def handle(message: Message[bytes]) -> None:
        nonlocal failures
        if message.queue_offset == 3 and failures:
            failures -= 1
            raise ValueError("again, please")
        got[message.queue_id].append(message.queue_offset)

    async with cluster_of() as cluster, connected(cluster) as mq:
        await fill(mq, 20)
        consumer = mq.consumer("group", start="first", is_orderly=True, suspend_ms=20)
        consumer.subscribe("orders")
        await consumer.start(handle)
        await until(lambda: sum(map(len, got.values())) == 20)
        await until(lambda: failures == 0)

    assert got == {0: list(range(10)), 1: list(range(10))}


async def test_an_orderly_handler_of_threads_and_its_dead_letters() -> None:
    got: list[int] = []
    dead: list[bytes] = []

    def handle(message: Message[bytes]) -> None:
        if message.body == b"1":
            message.dead_letter()
            return
        if message.body == b"2":
            raise ValueError("never")
        got.append(int(message.body))

    async def bury(message: Message[bytes]) -> None:
        dead.append(message.body)

    async with cluster_of(queues=1) as cluster, connected(cluster) as mq:
        await fill(mq, 5)
        consumer = mq.consumer(
            "group", start="first", is_orderly=True, suspend_ms=10, reconsume_max=1
        )
        consumer.subscribe("orders")
        await consumer.start(handle)
        await until(lambda: got == [0, 3, 4])
        undertaker = mq.consumer("undertaker", start="first")
        undertaker.subscribe("%DLQ%group")
        await undertaker.start(bury)
        await until(lambda: len(dead) == 2)

    assert sorted(dead) == [b"1", b"2"]


async def test_an_orderly_queue_is_handed_over_only_after_its_handler_has_ended() -> None:
    running: dict[int, int] = {}
    clashes: list[int] = []
    order: dict[int, list[int]] = {}

    async def handle(message: Message[bytes]) -> None:
        queue = message.queue_id
        if running.get(queue):
            clashes.append(queue)
        running[queue] = running.get(queue, 0) + 1
        await asyncio.sleep(0.01)
        order.setdefault(queue, []).append(message.queue_offset)
        running[queue] -= 1

    async with cluster_of(queues=4) as cluster, connected(cluster) as mq:
        await fill(mq, 200)
        members = []
        for number in range(3):
            member = mq.consumer("group", start="first", is_orderly=True)
            member.subscribe("orders")
            await member.start(handle)
            members.append(member)
            await asyncio.sleep(0.1 * number)
        await members[0].close()
        await until(lambda: all(len(set(order.get(q, ()))) == 50 for q in range(4)))

    assert clashes == []
    for offsets in order.values():
        assert sorted(set(offsets)) == list(range(50))
        first_seen = list(dict.fromkeys(offsets))
        assert first_seen == list(range(50))


async def test_each_broadcasting_member_gets_everything_and_remembers_it(tmp_path: Any) -> None:
    got: dict[str, list[int]] = {"a": [], "b": []}

    def handler(name: str) -> Callable[[Message[bytes]], Any]:
        async def handle(message: Message[bytes]) -> None:
            got[name].append(int(message.body))
            if message.body == b"1":
                raise ValueError("dropped")

        return handle

    async def consume(cluster: Any, name: str, count: int) -> None:
        async with connected(cluster, instance_name=name) as mq:
            consumer = mq.consumer(
                "group", mode="broadcast", start="first", offsets_folder=str(tmp_path)
            )
            consumer.subscribe("orders")
            await consumer.start(handler(name))
            await until(lambda: len(got[name]) == count)

    async with cluster_of() as cluster:
        async with connected(cluster) as mq:
            await fill(mq, 6)
        await consume(cluster, "a", 6)
        await consume(cluster, "b", 6)
        async with connected(cluster) as mq:
            await fill(mq, 2)
        await consume(cluster, "a", 8)

    assert sorted(got["a"]) == sorted([*range(6), 0, 1])
    assert sorted(got["b"]) == list(range(6))


async def test_a_broker_that_is_restarted_loses_nothing() -> None:
    got: set[int] = set()

    async def handle(message: Message[bytes]) -> None:
        got.add(int(message.body))

    async with cluster_of() as cluster, connected(cluster) as mq:
        consumer = mq.consumer("group", start="first", pull_pause_ms=50)
        consumer.subscribe("orders")
        await consumer.start(handle)
        await fill(mq, 30)
        await cluster.broker.restart()
        async with connected(cluster) as other:
            producer = other.producer()
            for number in range(30, 60):
                await producer.send("orders", b"%d" % number)
        await until(lambda: len(got) == 60)

    assert got == set(range(60))


@pytest.mark.parametrize(("offset", "expected"), [(2, [0, 1, 2, 3, 4, 2, 3, 4, 5]), (4, None)])
async def test_a_reset_of_the_group_is_followed(offset: int, expected: list[int] | None) -> None:
    got: list[int] = []
    stuck = asyncio.Event()

    async def handle(message: Message[bytes]) -> None:
        got.append(message.queue_offset)
        if expected is None and message.queue_offset == 0:
            await stuck.wait()  # what the group is moved past does not hold it up any more

    async with (
        cluster_of(queues=1) as cluster,
        connected(cluster) as mq,
        Admin(cluster.namesrv) as admin,
    ):
        await fill(mq, 5)
        consumer = mq.consumer("group", start="first", pull_hold_ms=50)
        consumer.subscribe("orders")
        await consumer.start(handle)
        await until(lambda: len(got) == 5)

        await admin.offsets.reset("group", "orders", Offset(offset))
        await fill(mq, 1)

        await reached(admin, 6, queues=1)
    assert got == (expected or [0, 1, 2, 3, 4, 4, 5])


async def test_closing_waits_for_handlers_and_a_slow_one_is_cancelled() -> None:
    ended: list[str] = []
    began = asyncio.Event()

    async def handle(message: Message[bytes]) -> None:
        began.set()
        try:
            await asyncio.sleep(0.2 if message.body == b"0" else 60)
            ended.append("well")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async with cluster_of(queues=1) as cluster, connected(cluster, drain_timeout_ms=500) as mq:
        await fill(mq, 2)
        consumer = mq.consumer("group", start="first")
        consumer.subscribe("orders")
        await consumer.start(handle)
        await began.wait()
        await consumer.close()
        await consumer.close()
        after = mq.consumer("group", start="first")
        after.subscribe("orders")
        left: list[int] = []

        async def take(message: Message[bytes]) -> None:
            left.append(int(message.body))

        await after.start(take)
        await until(lambda: left == [1])

    assert ended == ["well", "cancelled"]


async def test_a_handler_may_close_its_consumer_and_run_returns() -> None:
    async with cluster_of(queues=1) as cluster, connected(cluster) as mq:
        await fill(mq, 1)
        consumer = mq.consumer("group", start="first")
        consumer.subscribe("orders")

        async def handle(message: Message[bytes]) -> None:
            await consumer.close()

        await consumer.run(handle)

        with pytest.raises(NotRunning, match="closed"):
            consumer.subscribe("others")


async def test_a_cancelled_run_closes_the_consumer() -> None:
    async with cluster_of() as cluster, connected(cluster) as mq:
        consumer = mq.consumer("group")
        consumer.subscribe("orders")

        async def handle(message: Message[bytes]) -> None:
            raise AssertionError

        task = asyncio.create_task(consumer.run(handle))
        await until(lambda: bool(consumer.queues))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert not consumer.is_running


async def test_topics_can_be_added_and_left_while_it_runs() -> None:
    got: list[str] = []

    async def handle(message: Message[bytes]) -> None:
        got.append(message.topic)

    async with cluster_of() as cluster, connected(cluster) as mq:
        await cluster.create_topic("others", queues=1)
        consumer = mq.consumer("group", start="first")
        consumer.subscribe("orders")
        await consumer.start(handle)
        consumer.subscribe("others")
        await fill(mq, 1, topic="others")
        await until(lambda: got == ["others"])
        consumer.unsubscribe("orders")
        await until(lambda: all(queue.topic != "orders" for queue in consumer.queues))

    assert consumer.topics == ("others",)


async def test_a_paused_consumer_fetches_nothing_until_it_goes_on() -> None:
    got: list[int] = []

    async def handle(message: Message[bytes]) -> None:
        got.append(int(message.body))

    async with cluster_of() as cluster, connected(cluster) as mq:
        consumer = mq.consumer("group", start="first", pull_hold_ms=50)
        consumer.subscribe("orders")
        await consumer.start(handle)
        consumer.pause()
        await asyncio.sleep(0.2)
        await fill(mq, 3)
        await asyncio.sleep(0.2)
        assert got == []
        consumer.resume()
        await until(lambda: len(got) == 3)


async def test_a_message_whose_handler_takes_too_long_is_sent_back_once() -> None:
    seen: list[int] = []
    release = asyncio.Event()

    async def handle(message: Message[bytes]) -> None:
        seen.append(message.reconsume_times)
        if message.reconsume_times == 0:
            await release.wait()
            raise ValueError("too late to matter")

    async with cluster_of(queues=1) as cluster, connected(cluster) as mq:
        consumer = mq.consumer("group", start="first", consume_timeout_ms=100)
        consumer.subscribe("orders")
        await consumer.start(handle)
        await fill(mq, 1)
        await until(lambda: len(seen) == 2)
        release.set()
        await consumer.close()  # waits for the handler, and for what it would send back
        after = mq.consumer("group", start="first")
        after.subscribe("orders")
        await after.start(handle)
        await fill(mq, 1)
        await until(lambda: len(seen) >= 4)

    assert seen == [0, 1, 0, 1]


async def test_a_consumer_without_subscription_is_not_started() -> None:
    async with cluster_of() as cluster, connected(cluster) as mq:
        consumer = mq.consumer("group")
        with pytest.raises(InvalidArgument, match="subscribe"):
            await consumer.start(print)


async def test_topics_and_groups_have_the_namespace_only_on_the_wire() -> None:
    got: list[Message[bytes]] = []

    async def handle(message: Message[bytes]) -> None:
        got.append(message)
        if message.reconsume_times == 0:
            raise ValueError("once more")

    async with cluster_of(topic="ns%orders") as cluster:
        async with connected(cluster, namespace="ns") as mq:
            consumer = mq.consumer("group", start="first")
            consumer.subscribe("orders")
            await consumer.start(handle)
            await fill(mq, 1)
            await until(lambda: len(got) == 2)
            shown = {queue.topic for queue in consumer.queues}

    assert shown == {"orders", "%RETRY%group"}
    assert [message.topic for message in got] == ["orders", "orders"]
    assert got[1].delivered_from == "%RETRY%group"


async def test_a_group_whose_retry_topic_comes_late_gets_its_retries_all_the_same() -> None:
    times: list[int] = []

    def handle(message: Message[bytes]) -> None:
        times.append(message.reconsume_times)
        if not message.reconsume_times:
            raise ValueError("once more")

    async with cluster_of() as cluster, connected(cluster) as mq:
        consumer = mq.consumer("group", start="first", concurrency=1)
        consumer.subscribe("orders")
        await consumer.start(handle)
        await fill(mq, 3)
        await until(lambda: sorted(times) == [0, 0, 0, 1, 1, 1])
