"""Hooks and guards around sends."""

import dataclasses
import logging

import pytest

from cometmq.client.core.outgoing import MessageKind
from cometmq.client.hooks import SendContext
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.errors import SendFailed
from tests.unit.client.kit import FakeCluster, connected, refused

SEND = RequestCode.SEND_MESSAGE_V2


class Recorder:
    """A hook that remembers what it saw."""

    def __init__(self) -> None:
        self.before: list[SendContext] = []
        self.after: list[SendContext] = []

    def before_send(self, context: SendContext) -> None:
        assert context.result is None
        self.before.append(context)

    def after_send(self, context: SendContext) -> None:
        self.after.append(context)


async def test_hooks_see_each_send_before_and_after() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        hook = Recorder()
        producer = client.producer("shop", hooks=[hook])

        result = await producer.send("orders", b"body", tag="t", keys="k1 k2")

        (context,) = hook.after
        assert hook.before == [context]
        assert (context.group, context.topic, context.mode) == ("shop", "orders", "send")
        assert (context.kind, context.body, context.tag) == ("normal", b"body", "t")
        assert context.keys == ("k1", "k2")
        assert (context.queue, context.address) == (result.queue, cluster.a.address)
        assert (context.result, context.error) == (result, None)


async def test_hooks_see_the_error_after_all_tries() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(SEND, refused(ResponseCode.SYSTEM_BUSY))
        hook = Recorder()

        with pytest.raises(SendFailed) as caught:
            await client.producer(hooks=[hook]).send("orders", b"x")

        assert [context.error for context in hook.after] == [caught.value]
        assert len(cluster.sends) == 3


async def test_hooks_see_oneway_sends_and_delays() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        hook = Recorder()

        await client.producer(hooks=[hook]).send_oneway("orders", b"x", delay_level=1)

        (context,) = hook.after
        assert (context.mode, context.kind) == ("oneway", MessageKind.DELAY.value)
        assert context.queue is not None


async def test_a_hook_may_add_properties() -> None:
    class Marking(Recorder):
        def before_send(self, context: SendContext) -> None:
            context.properties += "mark\x01yes\x02"

    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)

        await client.producer(hooks=[Marking()]).send("orders", b"x")

        assert cluster.a.sends[0].properties["mark"] == "yes"


async def test_what_hooks_raise_is_logged_once_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Recorder):
        def before_send(self, context: SendContext) -> None:
            raise ValueError("before")

        def after_send(self, context: SendContext) -> None:
            raise ValueError("after")

    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer(hooks=[Broken()])

        results = [await producer.send("orders", b"x") for _ in range(3)]

        assert all(result.is_ok for result in results)
        errors = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert len(errors) == 2


async def test_a_guard_may_refuse() -> None:
    class Refusing:
        def check(self, context: SendContext) -> None:
            if context.tag == "secret":
                raise PermissionError(context.topic)

    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer(guards=[Refusing()])

        await producer.send("orders", b"x")
        with pytest.raises(PermissionError, match="orders"):
            await producer.send("orders", b"x", tag="secret")

        assert len(cluster.sends) == 1


@dataclasses.dataclass
class Broken:
    """A hook that fails, and that has no hash, as ordinary dataclasses have none."""

    name: str = "broken"

    def before_send(self, context: SendContext) -> None:
        raise ValueError(context.topic)

    def after_send(self, context: SendContext) -> None:
        raise ValueError(context.topic)


async def test_a_hook_without_a_hash_may_fail_too() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders")
        producer = client.producer(hooks=[Broken()])

        results = [await producer.send("orders", b"x") for _ in range(2)]

        assert all(result.is_ok for result in results)
