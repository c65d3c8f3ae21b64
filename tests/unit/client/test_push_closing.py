"""How consumers end: by themselves, with their client, in the middle of something."""

import asyncio
from typing import Any

import pytest

from cometmq.client.client import Client
from cometmq.client.closing_time import FAREWELL_SECONDS, STEP_SECONDS_MIN
from cometmq.client.core.message import Message
from cometmq.codec import core
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.clients import UnregisterClient
from cometmq.codec.headers.send import ConsumerSendMsgBack
from cometmq.errors import InvalidArgument, NotRunning
from cometmq.remoting.routes import Answer
from tests.unit.client.consumer_kit import queue, until
from tests.unit.client.kit import Asked
from tests.unit.client.push_kit import (
    Collected,
    clustered,
    is_waited_for,
    peek,
    started,
)


async def test_closing_saves_then_unlocks_then_leaves() -> None:
    async with clustered(messages=2) as (cluster, client):
        handler = Collected()
        consumer = await started(client, handler, is_orderly=True)
        await until(lambda: peek(consumer) == 2)
        cluster.a.asked.clear()

        await consumer.close()

        steps = [
            RequestCode.UPDATE_CONSUMER_OFFSET,
            RequestCode.UNLOCK_BATCH_MQ,
            RequestCode.UNREGISTER_CLIENT,
        ]
        codes = [asked.code for asked in cluster.a.asked if asked.code in steps]
        assert list(dict.fromkeys(codes)) == steps
        assert all(
            not asked.command.is_oneway
            for asked in cluster.a.questions(RequestCode.UPDATE_CONSUMER_OFFSET)
        )
        assert cluster.broker.offsets["orders", 0] == 2


async def test_a_consumer_ends_with_its_client_and_leaves_no_task() -> None:
    before = len(asyncio.all_tasks())
    async with clustered(messages=1, queues=3) as (_, client):
        await started(client, Collected())
        await started(client, Collected(), is_orderly=True)
    await asyncio.sleep(0)

    assert len(asyncio.all_tasks()) <= before


async def test_a_close_that_is_cancelled_at_once_still_ends_everything() -> None:
    async with clustered(messages=1) as (cluster, client):
        consumer = await started(client, Collected())
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)

        closing.cancel()
        await asyncio.wait((closing,))

        names = {task.get_name().split()[0] for task in asyncio.all_tasks()}
        assert not names & {"handler", "pulling", "rebalancing", "watching"}
        assert cluster.a.questions(RequestCode.UNREGISTER_CLIENT)
        assert not consumer.is_running


async def test_a_close_that_is_cancelled_while_it_saves_still_leaves_the_group() -> None:
    async with clustered(messages=1) as (cluster, client):
        consumer = await started(client, Collected())
        await until(lambda: peek(consumer) == 1)
        cluster.a.on(RequestCode.UPDATE_CONSUMER_OFFSET, None)
        asked = len(cluster.a.questions(RequestCode.UPDATE_CONSUMER_OFFSET))
        closing = asyncio.create_task(consumer.close())
        await cluster.a.until(RequestCode.UPDATE_CONSUMER_OFFSET, asked + 1)

        closing.cancel()
        await asyncio.wait((closing,))

        assert cluster.a.questions(RequestCode.UNREGISTER_CLIENT)
        cluster.a.on(RequestCode.UPDATE_CONSUMER_OFFSET, Answer())
        again = await started(client, Collected())
        assert again.is_running


async def test_no_heartbeat_says_that_we_are_here_after_we_have_left() -> None:
    """Or the broker would keep queues for us until it gives us up."""
    go = asyncio.Event()

    async def slow(_: Any) -> Answer:
        await go.wait()
        return Answer()

    async with clustered() as (cluster, client):
        consumer = await started(client, Collected())
        cluster.a.on(RequestCode.HEART_BEAT, slow)
        beats = len(cluster.a.questions(RequestCode.HEART_BEAT))
        beating = asyncio.create_task(client._require().main.heartbeat())
        await cluster.a.until(RequestCode.HEART_BEAT, beats + 1)
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0.01)
        assert not cluster.a.questions(RequestCode.UNREGISTER_CLIENT)

        go.set()
        await closing
        await beating

        assert cluster.a.questions(RequestCode.UNREGISTER_CLIENT)


async def test_an_iterator_that_is_left_gives_its_message_back() -> None:
    async with clustered(messages=2) as (cluster, client):
        consumer = client.consumer("group", start="first")
        consumer.subscribe("orders")
        async for message in consumer:
            if message.queue_offset == 1:
                break
        (back,) = await cluster.a.until(RequestCode.CONSUMER_SEND_MSG_BACK)

        assert ConsumerSendMsgBack.from_ext(back.command.ext_fields).offset == 1_001
        assert peek(consumer) >= 1


async def test_an_acknowledged_message_is_done_although_the_iterator_is_left() -> None:
    async with clustered(messages=1) as (cluster, client):
        consumer = client.consumer("group", start="first")
        consumer.subscribe("orders")
        async for message in consumer:
            message.ack()
            break
        await until(lambda: peek(consumer) == 1)

        assert cluster.broker.sent_back == []


async def test_a_waiting_iterator_ends_when_the_consumer_is_closed() -> None:
    async with clustered() as (_, client):
        consumer = client.consumer("group", start="first")
        consumer.subscribe("orders")
        iterator = aiter(consumer)
        waiting = asyncio.create_task(anext(iterator, None))
        await until(lambda: is_waited_for(consumer))
        await consumer.close()

        assert await waiting is None
        with pytest.raises(NotRunning):
            await anext(aiter(consumer))


async def test_a_first_question_that_is_given_up_does_not_end_the_consumer() -> None:
    """As ``asyncio.wait_for(anext(messages), 1)`` does when joining takes longer."""
    async with clustered(messages=1) as (cluster, client):
        go = asyncio.Event()

        async def slow(asked: Asked) -> Any:
            await go.wait()
            return cluster.broker._query(asked)

        cluster.a.on(RequestCode.QUERY_CONSUMER_OFFSET, slow)
        consumer = client.consumer("group", start="first")
        consumer.subscribe("orders")
        iterator = aiter(consumer)
        asking = asyncio.create_task(anext(iterator))
        await cluster.a.until(RequestCode.QUERY_CONSUMER_OFFSET)
        asking.cancel()
        await asyncio.wait((asking,))
        go.set()

        assert (await anext(iterator)).queue_offset == 0


async def test_a_consumer_that_is_closed_while_it_starts_leaves_nothing() -> None:
    async with clustered(messages=1) as (cluster, client):
        cluster.a.on(RequestCode.QUERY_CONSUMER_OFFSET, None)
        before = len(asyncio.all_tasks())
        consumer = client.consumer("group", start="first")
        consumer.subscribe("orders")
        starting = asyncio.create_task(consumer.start(Collected()))
        await cluster.a.until(RequestCode.QUERY_CONSUMER_OFFSET)
        await consumer.close()

        with pytest.raises(NotRunning):
            await starting
        await until(lambda: len(asyncio.all_tasks()) <= before)
        assert client._require().main.consumers == {}


async def test_iterating_without_a_subscription_can_be_made_good() -> None:
    async with clustered(messages=1) as (_, client):
        consumer = client.consumer("group", start="first")
        with pytest.raises(InvalidArgument, match="subscribe"):
            await anext(aiter(consumer))
        consumer.subscribe("orders")

        assert (await anext(aiter(consumer))).queue_offset == 0


async def test_a_consumer_with_a_handler_is_not_iterated_over() -> None:
    async with clustered() as (_, client):
        consumer = await started(client, Collected())
        with pytest.raises(NotRunning, match="either a handler or iteration"):
            await anext(aiter(consumer))


async def test_a_closed_consumer_reads_no_queues() -> None:
    async with clustered(messages=1) as (_, client):
        consumer = await started(client, Collected())
        await until(lambda: peek(consumer) == 1)
        assert consumer.queues
        assert consumer.progress()

        await consumer.close()

        assert (consumer.queues, consumer.progress()) == ((), [])


async def test_a_handler_may_close_its_client() -> None:
    """It only begins that, because closing waits for handlers; who leaves the client waits."""
    async with clustered(messages=1, drain_timeout_ms=60_000) as (cluster, client):
        consumer = client.consumer("group", start="first")
        consumer.subscribe("orders")

        async def handle(message: Message[bytes]) -> None:
            await client.close()

        await consumer.run(handle)
        await client.close()

        assert cluster.broker.offsets["orders", 0] == 1
        assert cluster.a.questions(RequestCode.UNREGISTER_CLIENT)
        assert not cluster.a.channels


async def test_the_client_may_be_closed_in_the_middle_of_an_iteration() -> None:
    async with clustered(messages=1, drain_timeout_ms=60_000) as (cluster, client):
        consumer = client.consumer("group", start="first")
        consumer.subscribe("orders")

        async for _ in consumer:
            await client.close()

        assert len(cluster.broker.sent_back) == 1


@pytest.mark.parametrize("kind", ["consumer", "lite_consumer", "pull_consumer"])
async def test_a_consumer_cannot_be_closed_on_another_loop(kind: str) -> None:
    """It would hang: what it waits for happens on its own loop."""
    async with clustered(messages=1) as (_, client):
        consumer = getattr(client, kind)("group")
        if kind == "consumer":
            consumer.subscribe("orders")
            await consumer.start(Collected())
        else:
            await consumer.__aenter__()

        with pytest.raises(NotRunning, match="outside of the event loop"):
            await asyncio.to_thread(asyncio.run, consumer.close())

        assert consumer._life.is_running
        await consumer.close()
        assert not consumer._life.is_running


PULLING = pytest.mark.parametrize("kind", ["lite_consumer", "pull_consumer"])


async def pulling(client: Client, kind: str) -> Any:
    """A consumer that pulls, a member of its group, with an offset to be saved."""
    consumer: Any = getattr(client, kind)("group")
    if kind == "lite_consumer":
        consumer.subscribe("orders")
        await consumer.poll(timeout_ms=0)
        await until(lambda: consumer.position(queue()) is not None)
    else:
        consumer.register("orders")
        await consumer.queues("orders")
        await until(lambda: consumer.mine("orders"))
        consumer.update_offset(queue(), 1)
    return consumer


@PULLING
async def test_a_pulling_consumer_leaves_although_its_close_is_cancelled(kind: str) -> None:
    """Else its group would keep queues for a member that reads nothing."""
    async with clustered(messages=1) as (cluster, client):
        consumer = await pulling(client, kind)
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)

        closing.cancel()
        await asyncio.wait((closing,))

        assert not consumer._life.is_running
        assert cluster.a.questions(RequestCode.UNREGISTER_CLIENT)
        assert client._require().main.consumers == {}
        names = {task.get_name().split()[0] for task in asyncio.all_tasks()}
        assert not names & {"pulling", "scheduled", "rebalancing"}


@PULLING
async def test_a_client_waits_for_a_pulling_consumer_that_is_being_closed(kind: str) -> None:
    async with clustered(messages=1) as (cluster, client):
        consumer = await pulling(client, kind)
        go = asyncio.Event()

        async def slow(asked: Asked) -> Any:
            await go.wait()
            return cluster.broker._update(asked)

        cluster.a.on(RequestCode.UPDATE_CONSUMER_OFFSET, slow)
        closing = asyncio.create_task(consumer.close())
        await cluster.a.until(RequestCode.UPDATE_CONSUMER_OFFSET)
        closing_all = asyncio.create_task(client.close())
        await asyncio.sleep(0.01)

        go.set()
        await closing
        await closing_all

        assert ("orders", 0) in cluster.broker.offsets
        assert cluster.a.questions(RequestCode.UNREGISTER_CLIENT)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["consumer", "lite_consumer", "pull_consumer"])
async def test_a_broker_that_says_nothing_does_not_hold_up_the_end(kind: str) -> None:
    """Offsets get as much time to be saved as handlers get to end, and not five seconds each."""
    async with clustered(messages=1, request_timeout_ms=200) as (cluster, client):
        if kind == "consumer":
            consumer = await started(client, Collected())
            await until(lambda: peek(consumer) == 1)
        else:
            consumer = await pulling(client, kind)
        cluster.a.on(RequestCode.UPDATE_CONSUMER_OFFSET, None)
        cluster.a.on(RequestCode.UNREGISTER_CLIENT, None)

        async with asyncio.timeout(4):
            await consumer.close()


@pytest.mark.slow
@pytest.mark.parametrize("is_orderly", [False, True])
async def test_a_broker_that_hangs_costs_a_second_beyond_what_handlers_get(
    is_orderly: bool,
) -> None:
    """Offsets, locks, what is sent back, heartbeats and leaving do not each get their own time."""
    is_stuck = asyncio.Event()

    async def handle(message: Message[bytes]) -> None:
        if message.queue_id == 0 and not is_orderly:
            raise ValueError("it is sent back")
        is_stuck.set()
        await asyncio.sleep(60)

    async with clustered(queues=2, drain_timeout_ms=300) as (cluster, client):
        for queue_id in (0, 1):
            cluster.broker.put(1, queue_id=queue_id)
        await started(client, handle, is_orderly=is_orderly)
        await is_stuck.wait()
        for code in (
            RequestCode.UPDATE_CONSUMER_OFFSET,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.HEART_BEAT,
            RequestCode.UNLOCK_BATCH_MQ,
            RequestCode.UNREGISTER_CLIENT,
        ):
            cluster.a.on(code, None)
        client._require().main.heartbeat_soon()
        await cluster.a.until(RequestCode.HEART_BEAT)

        async with asyncio.timeout(0.3 + FAREWELL_SECONDS + 4 * STEP_SECONDS_MIN):
            await client.close()


async def test_who_leaves_is_named_to_slow_brokers_when_nobody_waits_any_more() -> None:
    async with clustered(messages=1, drain_timeout_ms=0) as (cluster, client):
        consumer = await started(client, Collected())
        instance = client._require().main
        async with instance._beating:  # a heartbeat is under way
            member = instance.consumers["group"]
            await instance.remove_consumer(member, 0.001)
            assert not cluster.a.questions(RequestCode.UNREGISTER_CLIENT)

        (left,) = await cluster.a.until(RequestCode.UNREGISTER_CLIENT)
        assert core.read(left.command, UnregisterClient).consumer_group == "group"
        await consumer.close()


@pytest.mark.parametrize("kind", ["consumer", "lite_consumer", "pull_consumer"])
async def test_offsets_are_saved_although_nothing_is_waited_for(kind: str) -> None:
    """``drain_timeout_ms`` is for handlers and sends: 0 must not cost the group its offsets."""
    async with clustered(messages=1, drain_timeout_ms=0) as (cluster, client):
        if kind == "consumer":
            consumer = await started(client, Collected())
            await until(lambda: peek(consumer) == 1)
        else:
            consumer = await pulling(client, kind)
        cluster.broker.offsets.clear()

        await consumer.close()

        assert ("orders", 0) in cluster.broker.offsets
