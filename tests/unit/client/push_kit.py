"""Push consumers of a fake cluster, and a handler that keeps what it got."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from cometmq.client.client import Client
from cometmq.client.core.message import Message
from cometmq.client.push_consumer import Consumer
from cometmq.client.push_member import PushMember
from tests.unit.client.consumer_kit import QueueCluster, queue
from tests.unit.client.kit import connected

RETRIES = "%RETRY%group"


class Collected:
    """A handler that keeps what it got; ``fail`` makes it raise."""

    def __init__(self, fail: Callable[[Message[bytes]], bool] = lambda _: False) -> None:
        self.messages: list[Message[bytes]] = []
        self.fail = fail

    async def __call__(self, message: Message[bytes]) -> None:
        self.messages.append(message)
        if self.fail(message):
            raise ValueError("failed")

    @property
    def offsets(self) -> list[int]:
        return [message.queue_offset for message in self.messages]


@contextlib.asynccontextmanager
async def clustered(messages: int = 0, queues: int = 1, **options: Any) -> AsyncIterator[Any]:
    """A cluster with a topic, and a client of it."""
    async with QueueCluster() as cluster:
        cluster.create("orders", queues=queues)
        cluster.create(RETRIES, queues=1)
        cluster.broker.put(messages)
        options.setdefault("drain_timeout_ms", 200)
        options.setdefault("rebalance_gap_ms", 0)
        async with connected(cluster, **options) as client:
            yield cluster, client


def is_waited_for(consumer: Consumer[Any]) -> bool:
    """Whether an iterator waits for a message."""
    member = consumer._member
    return member is not None and member.handout is not None and member.handout.waiting_count > 0


async def started(client: Client, handler: Any, **options: Any) -> Consumer[bytes]:
    consumer = client.consumer("group", **({"start": "first"} | options))
    consumer.subscribe("orders")
    await consumer.start(handler)
    return consumer


def member(consumer: Consumer[bytes]) -> PushMember[bytes]:
    assert consumer._member is not None
    return consumer._member


def peek(consumer: Consumer[bytes]) -> int:
    return member(consumer)._store.peek(queue())
