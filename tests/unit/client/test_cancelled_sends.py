"""Sends that are cancelled: they end at once, and tell whether the message may be stored."""

import asyncio
from collections.abc import Callable

import pytest

from cometmq.client.client import Client
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.remoting.channel import Channel
from cometmq.remoting.routes import Answer
from tests.unit.client.kit import Asked, FakeCluster, connected, refused, status

SEND = RequestCode.SEND_MESSAGE_V2
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
LEFT = "the message had left: it may be stored all the same"


def notes_of(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", ()))


async def test_a_cancelled_send_is_not_tried_again() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(SEND, None)
        cluster.b.on(SEND, None)
        sending = asyncio.ensure_future(client.producer().send("orders", b"x"))
        while not cluster.sends:
            await asyncio.sleep(0)

        sending.cancel()

        with pytest.raises(asyncio.CancelledError) as cancelled:
            await sending
        assert len(cluster.sends) == 1
        assert notes_of(cancelled.value) == [LEFT]


async def test_a_send_that_is_cancelled_in_its_second_try_says_that_it_had_left() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(SEND, refused(ResponseCode.SYSTEM_BUSY), None)
        sending = asyncio.ensure_future(client.producer().send("orders", b"x"))
        await cluster.a.until(SEND, 2)

        sending.cancel()

        with pytest.raises(asyncio.CancelledError) as cancelled:
            await sending
        assert notes_of(cancelled.value) == [LEFT]


def lose_route(client: Client, cluster: FakeCluster) -> None:
    """Let the next try wait for a route, for ever."""
    client._require().routes.table.remove("orders")
    cluster.name_servers[0].on(ROUTE, None)


@pytest.mark.parametrize(
    ("first", "notes"),
    [
        (lambda _: refused(ResponseCode.SYSTEM_BUSY), []),
        (lambda asked: asked.channel.drop("as told"), [LEFT]),
        (status(ResponseCode.FLUSH_DISK_TIMEOUT), [LEFT]),
    ],
    ids=["refused", "lost", "less safe"],
)
async def test_a_send_that_is_cancelled_between_its_tries_says_if_the_first_may_be_stored(
    first: Callable[[Asked], Answer | None], notes: list[str]
) -> None:
    def reply(asked: Asked) -> Answer | None:
        lose_route(client, cluster)
        return first(asked)

    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(SEND, reply)
        producer = client.producer(is_retried_when_not_stored=True)
        sending = asyncio.ensure_future(producer.send("orders", b"x"))
        await cluster.name_servers[0].until(ROUTE, 2)

        sending.cancel()

        with pytest.raises(asyncio.CancelledError) as cancelled:
            await sending
        assert notes_of(cancelled.value) == notes
        assert len(cluster.sends) == 1


async def test_a_send_that_is_cancelled_before_it_leaves_says_nothing_of_the_kind() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        sending = asyncio.ensure_future(client.producer().send("orders", b"x"))
        await asyncio.sleep(0)  # it asks for the route

        sending.cancel()

        with pytest.raises(asyncio.CancelledError) as cancelled:
            await sending
        assert notes_of(cancelled.value) == []
        assert not cluster.sends


async def test_a_send_that_is_cancelled_when_none_of_its_tries_left_says_nothing() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer()
        await producer.send("orders", b"x")
        await cluster.a.stop()
        while client._require().main.connections.find(cluster.a.address) is not None:
            await asyncio.sleep(0)
        sending = asyncio.ensure_future(producer.send("orders", b"y"))
        await asyncio.sleep(0)  # it dials, in vain
        lose_route(client, cluster)
        await cluster.name_servers[0].until(ROUTE, 2)

        sending.cancel()

        with pytest.raises(asyncio.CancelledError) as cancelled:
            await sending
        assert notes_of(cancelled.value) == []
        assert len(cluster.sends) == 1


async def test_a_send_that_is_cancelled_while_its_broker_goes_away_says_nothing() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        connections = client._require().main.connections

        async def never() -> Channel:
            await asyncio.Event().wait()
            raise AssertionError

        def go_away(_: Asked) -> Answer:
            connections._line(cluster.a.address).dialling = asyncio.ensure_future(never())
            return refused(ResponseCode.GO_AWAY)

        cluster.a.on(SEND, go_away)
        sending = asyncio.ensure_future(client.producer().send("orders", b"x"))
        await cluster.a.until(SEND)
        while connections.find(cluster.a.address) is not None:
            await asyncio.sleep(0)

        sending.cancel()

        with pytest.raises(asyncio.CancelledError) as cancelled:
            await sending
        assert notes_of(cancelled.value) == []
