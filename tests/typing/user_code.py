"""Code as users write it: strict type checkers must neither complain nor lose a type.

It is checked and never run. ``assert_type`` is wrong for a checker as soon as it sees another type.
"""

import asyncio
import concurrent.futures
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import cometmq
from cometmq import (
    Average,
    Batch,
    Client,
    CometError,
    Item,
    LocalState,
    Message,
    MessageQueue,
    PullResult,
    SendContext,
    SendFailed,
    SendFuture,
    SendResult,
    SendStatus,
    TransactionResult,
    aio,
)
from cometmq.testing import FakeClock, LocalCluster


@dataclass
class Order:
    """A declared type."""

    number: int
    customer: str


class Texts:
    """A codec of the user's own."""

    def encode(self, value: list[str], /) -> bytes:
        return "\n".join(value).encode()

    def decode(self, body: bytes, /) -> list[str]:
        return body.decode().split("\n")


class Hook:
    """Looks at sends."""

    def before_send(self, context: SendContext) -> None:
        context.notes["began"] = context.began_ms

    def after_send(self, context: SendContext) -> None:
        print(context.topic, context.result, context.error)


# --- without asyncio


def sends(mq: Client) -> None:
    producer = mq.producer("billing", send_timeout_ms=1_000, retries=3, hooks=[Hook()])
    assert_type(producer, cometmq.Producer)
    result = producer.send("orders", Order(1, "ada"), tag="paid", keys=["1", "ada"])
    assert_type(result, SendResult)
    assert_type(result.status, SendStatus)
    assert_type(result.queue, MessageQueue)
    producer.send("orders", b"later", delay=timedelta(minutes=5))
    producer.send("orders", b"then", deliver_at=datetime.now(UTC), ordering_key="ada")
    producer.send("orders", b"there", selector=pick, properties={"region": "north"})
    producer.send_oneway("orders", "text", delay_level=3)
    assert_type(producer.send_many("orders", [b"one", Item(b"two", keys="2")]), list[SendResult])
    assert_type(producer.request("orders", b"?"), Message[bytes])
    assert_type(producer.request("orders", b"?", reply_type=Order).value, Order)


def pick(queues: Sequence[MessageQueue], message: Any) -> MessageQueue:
    return queues[0]


def sends_in_the_background(producer: cometmq.Producer) -> None:
    future = producer.send_async("orders", b"one", tag="paid")
    assert_type(future, SendFuture)
    future.add_done_callback(told)
    assert_type(future.result(5), SendResult)
    concurrent.futures.wait([future])


def told(future: "concurrent.futures.Future[SendResult]") -> None:
    try:
        print(future.result().message_id)
    except SendFailed as error:
        print(error.topic, error.tries, error.may_be_stored, error.next_step)


def transactions(mq: Client) -> None:
    def check(message: Message[Any]) -> LocalState:
        return LocalState.COMMIT if message.keys else LocalState.UNKNOWN

    with mq.transaction_producer("billing", check) as producer:
        result = producer.send("orders", b"half", local=lambda sent: LocalState.COMMIT)
        assert_type(result, TransactionResult)


def consumes(mq: Client) -> None:
    consumer = mq.consumer("billing", codec=Order, concurrency=4, start="first")
    assert_type(consumer, cometmq.Consumer[Order])
    consumer.subscribe("orders", tags=["paid", "refunded"])
    consumer.run(handle)
    for message in consumer:
        assert_type(message, Message[Order])
        assert_type(message.value.customer, str)
        message.retry(delay_level=3)
    mq.consumer("billing", is_orderly=True).run_batches(handle_batch)
    assert_type(mq.consumer("billing", strategy=Average()), cometmq.Consumer[bytes])
    assert_type(mq.consumer("billing", codec=Texts()), cometmq.Consumer[list[str]])


def handle(message: Message[Order]) -> None:
    if message.value.number < 0:
        message.dead_letter()


def handle_batch(batch: Batch[bytes]) -> None:
    batch.ack_up_to(len(batch) - 1)


def pulls(mq: Client) -> None:
    with mq.lite_consumer("billing", codec=str, pull_count=5) as lite:
        lite.subscribe("orders", sql="a > 5")
        assert_type(lite.poll(timeout_ms=100), list[Message[str]])
        assert_type(lite.assignment, frozenset[MessageQueue])
        lite.commit(dict.fromkeys(lite.assignment, 7))
    with mq.pull_consumer("billing") as puller:
        for queue in puller.queues("orders"):
            result = puller.pull(queue, puller.stored_offset(queue) or 0, wait=True)
            assert_type(result, PullResult[bytes])
            puller.update_offset(queue, result.next_offset)
    since = datetime.now(UTC) - timedelta(hours=1)
    for message in mq.browse("orders", since=since, codec=dict[str, int]):
        assert_type(message.value, dict[str, int])


def asks(mq: Client) -> None:
    admin = mq.admin()
    admin.topics.create("orders", read_queues=8, write_queues=8)
    for topic in admin.topics.list():
        assert_type(topic.name, str)
    for message in admin.messages.browse("orders", limit=5):
        assert_type(message.body, bytes)


def fails() -> None:
    try:
        with Client("a:9876;b:9876", namespace="test", tls=True, drain_timeout_ms=100) as mq:
            sends(mq)
    except CometError as error:
        print(error.fact, error.next_step)


# --- with asyncio


async def everything_again() -> None:
    async with aio.Client(["a:9876"], access_key="k", secret_key="s") as mq:
        producer = mq.producer()
        assert_type(producer, aio.Producer)
        assert_type(await producer.send("orders", b"one"), SendResult)
        results = await asyncio.gather(*(producer.send("orders", b"x") for _ in range(9)))
        assert_type(results, list[SendResult])
        consumer = mq.consumer("billing", codec=Order, mode="broadcast")
        assert_type(consumer, aio.Consumer[Order])
        consumer.subscribe("orders")
        async for message in consumer:
            assert_type(message.value, Order)
        await consumer.run(handle)
        await consumer.run(handle_later)
        async with mq.lite_consumer("billing") as lite:
            assert_type(await lite.poll(), list[Message[bytes]])
        async for old in mq.browse("orders", codec=str, follow=True):
            assert_type(old.value, str)
        for topic in await mq.admin().topics.list():
            print(topic.name)


async def handle_later(message: Message[Order]) -> None:
    await asyncio.sleep(message.value.number)


# --- in tests


def test_with_a_cluster() -> None:
    with LocalCluster(brokers=2) as cluster, Client(cluster.namesrv, clock=FakeClock()) as mq:
        cluster.create_topic("orders", queues=8)
        sends(mq)
