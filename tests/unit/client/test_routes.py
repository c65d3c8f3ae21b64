"""What a client knows of topics, and how it learns it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from cometmq.client.core.routes import QUEUES_MAX, TopicView, view
from cometmq.client.name_servers import NameServers
from cometmq.client.routes import Routes
from cometmq.codec import bodies
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.errors import NoRoute, RequestTimeout, Unreachable
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.remoting.connections import Connections
from cometmq.remoting.routes import Answer
from tests.unit.client.kit import NOT_THERE, Asked, FakeCluster, Node, refused

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


@contextlib.asynccontextmanager
async def routes(brokers: str = "a") -> AsyncIterator[tuple[FakeCluster, Node, Routes]]:
    async with FakeCluster(brokers) as cluster, Connections() as connections:
        server = cluster.name_servers[0]
        found = Routes(NameServers([server.address], connections), timeout_ms=1_000)
        yield cluster, server, found
        await found.stop()


async def to_send(found: Routes, topic: str, timeout_ms: int = 1_000) -> TopicView:
    return await found.find_to_send(
        topic, default_topic="TBW102", queue_count=4, timeout_ms=timeout_ms
    )


async def test_a_topic_is_asked_for_once_and_then_known() -> None:
    async with routes() as (cluster, server, found):
        cluster.create("orders", queues=2)
        assert found.known("orders") is None

        first = await found.find("orders")
        second = await found.find("orders")

        assert first is second is found.known("orders")
        assert [queue.queue_id for queue in first.write_queues] == [0, 1]
        assert len(server.asked) == 1


async def test_many_who_want_the_same_share_one_question() -> None:
    async with routes() as (cluster, server, found):
        cluster.create("orders")

        views = await asyncio.gather(*(to_send(found, "orders") for _ in range(10)))

        assert len(set(map(id, views))) == 1
        assert len(server.asked) == 1


async def test_who_gives_up_does_not_take_the_answer_from_others() -> None:
    async with routes() as (cluster, server, found):
        cluster.create("orders")
        gate = asyncio.Event()

        async def slow(asked: Asked) -> Answer:
            await gate.wait()
            return Answer(body=bodies.encode(cluster.topics["orders"]))

        server.on(ROUTE, slow)
        impatient = asyncio.ensure_future(found.find("orders"))
        patient = asyncio.ensure_future(found.find("orders"))
        await server.until(ROUTE)
        impatient.cancel()
        gate.set()

        view = await patient

        assert view.topic == "orders"
        assert len(server.asked) == 1


async def test_a_name_server_that_is_late_is_a_timeout() -> None:
    async with routes() as (_, server, found):
        server.on(ROUTE, None)

        with pytest.raises(RequestTimeout, match=server.address):
            await found.find("orders", timeout_ms=5)


async def test_route_and_default_topic_share_one_time() -> None:
    async with routes() as (_, server, found):
        server.on(ROUTE, NOT_THERE, None)
        began = asyncio.get_running_loop().time()

        with pytest.raises(RequestTimeout):
            await to_send(found, "fresh", timeout_ms=20)

        assert asyncio.get_running_loop().time() - began < 0.5


async def test_a_topic_that_was_made_meanwhile_is_no_default_any_more() -> None:
    async with routes() as (cluster, _, found):
        cluster.create("TBW102", queues=4, perm=6)
        assert (await to_send(found, "fresh")).is_default
        cluster.create("fresh", queues=4)

        await found.refresh("fresh")

        known = found.known("fresh")
        assert known is not None
        assert not known.is_default


async def test_only_who_wants_to_send_gets_the_default() -> None:
    async with routes() as (cluster, _, found):
        cluster.create("TBW102", perm=7)

        with pytest.raises(NoRoute, match="fresh"):
            await found.find("fresh")

        assert found.known("fresh") is None


async def test_a_route_stays_when_nobody_knows_it_any_more() -> None:
    async with routes() as (cluster, server, found):
        cluster.create("orders")
        view = await found.find("orders")
        server.on(ROUTE, NOT_THERE)

        await found.refresh("orders")
        await server.stop()
        await found.refresh("orders")

        assert found.known("orders") is view


async def test_listeners_are_told_of_changes_only() -> None:
    async with routes("ab") as (cluster, _, found):
        cluster.create("orders", brokers="a")
        told: list[int] = []
        found.on_change(lambda view: told.append(len(view.write_queues)))
        await found.find("orders")

        await found.refresh("orders")
        cluster.create("orders", brokers="ab")
        await found.refresh("orders")

        assert told == [2, 4]


async def test_what_nobody_uses_is_forgotten_with_its_brokers() -> None:
    async with routes("ab") as (cluster, _, found):
        cluster.create("orders", brokers="a")
        cluster.create("others", brokers="b")
        await found.find("orders")
        await found.find("others")

        await found.refresh_all({"orders"})
        assert found.known("others") is not None  # somebody may be about to use it
        assert found.table.drop_gone() == ()
        await found.refresh_all({"orders"})

        assert found.known("others") is None
        assert found.table.drop_gone() == (cluster.b.address,)
        assert found.table.master("broker-b") is None
        assert found.table.master("broker-a") == cluster.a.address


async def test_stopping_tells_whoever_waits() -> None:
    async with routes() as (_, server, found):
        server.on(ROUTE, None)
        waiting = asyncio.ensure_future(found.find("orders"))
        await server.until(ROUTE)

        await found.stop()

        with pytest.raises(Unreachable, match="this client is closed"):
            await waiting


async def test_a_broker_that_has_moved_stays_where_it_was_heard_of_last() -> None:
    """The route of a topic that was deleted stays as it is, with the broker's old address."""
    async with routes("ab") as (cluster, _, found):
        cluster.create("deleted", brokers="a")
        cluster.create("orders", brokers="a")
        both = {"deleted", "orders"}
        await found.refresh_all(both)
        old = cluster.a.address
        del cluster.topics["deleted"]
        cluster.topics["orders"] = TopicRoute(
            (BrokerData("broker-a", {0: cluster.b.address}, "east"),),
            (QueueData("broker-a", 2, 2, 6),),
        )

        await found.refresh_all(both)

        assert found.table.drop_gone() == (old,)
        assert found.table.master("broker-a") == cluster.b.address
        assert found.table.drop_gone() == ()
        assert found.table.master("broker-a") == cluster.b.address


async def test_brokers_of_a_topic_that_is_not_made_yet_are_looked_at_again() -> None:
    async with routes("ab") as (cluster, _, found):
        cluster.create("TBW102", queues=8, brokers="a")
        await to_send(found, "new")
        cluster.create("TBW102", queues=8, brokers="b")

        await found.refresh("new")

        known = found.known("new")
        assert known is not None
        assert known.is_default
        assert {queue.broker_name for queue in known.write_queues} == {"broker-b"}
        assert len(known.write_queues) == 4


async def test_when_nobody_answers_that_is_told_once_and_not_for_each_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with routes() as (_, server, found):
        await server.stop()
        topics = {f"topic-{number}" for number in range(200)}

        with pytest.raises(Unreachable, match="refused"):
            await found.refresh_all(topics)

        assert "not refreshed" not in caplog.text


async def test_a_topic_that_cannot_be_refreshed_does_not_keep_others_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with routes() as (cluster, server, found):
        cluster.create("orders")
        empty = Answer()

        def answer(asked: Asked) -> Answer:
            return empty if asked.command.ext_fields["topic"] == "bad" else cluster._route(asked)

        server.on(ROUTE, answer)

        await found.refresh_all({"bad", "orders"})

        assert found.known("orders") is not None
        assert "routes of 1 topics not refreshed" in caplog.text


async def test_a_name_server_that_is_late_says_what_it_was_asked() -> None:
    async with routes() as (_, server, found):
        server.on(ROUTE, None)

        with pytest.raises(RequestTimeout, match="it was asked where topic 'orders' is"):
            await found.find("orders", timeout_ms=10)


def test_a_route_with_absurdly_many_queues_does_not_fill_the_memory() -> None:
    brokers = (BrokerData("broker-a", {0: "h:1"}, "east"),)
    queues = (QueueData("broker-a", 2**31 - 1, 2**31 - 1, 6),)

    many = view("orders", TopicRoute(brokers, queues))
    ordered = view("orders", TopicRoute(brokers, queues, order_topic_conf="broker-a:" + "9" * 5000))

    assert len(many.write_queues) == len(many.read_queues) == QUEUES_MAX
    assert len(ordered.write_queues) == QUEUES_MAX


async def test_only_a_topic_that_does_not_exist_is_made_after_the_default() -> None:
    """Somebody who cannot answer, such as a broker, says nothing about what exists."""
    async with routes() as (cluster, server, found):
        cluster.create("TBW102")
        server.on(ROUTE, refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), cluster._route)

        with pytest.raises(NoRoute, match="are these name servers"):
            await to_send(found, "orders")

        assert len(server.asked) == 1
        assert (await to_send(found, "orders")).is_default


async def test_both_answers_are_told_without_saying_everything_twice() -> None:
    async with routes() as (_, server, found):
        server.on(ROUTE, refused(ResponseCode.TOPIC_NOT_EXIST, "not known (do this)"))

        with pytest.raises(NoRoute) as caught:
            await to_send(found, "orders")

        assert [text for _, text in caught.value.asked] == [
            "code 17 not known (do this)",
            "default topic TBW102: code 17 not known",
        ]
