"""Asking name servers: which one, and what when it does not answer."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from cometmq.client.name_servers import NameServers
from cometmq.codec.codes import RequestCode
from cometmq.errors import RemoteProtocolError, Unreachable
from cometmq.remoting.connections import Connections
from cometmq.remoting.routes import Answer
from tests.unit.client.kit import NOT_THERE, FakeCluster

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


@contextlib.asynccontextmanager
async def servers(count: int) -> AsyncIterator[tuple[FakeCluster, NameServers]]:
    async with FakeCluster(name_servers=count) as cluster, Connections() as connections:
        cluster.create("orders")
        addresses = [server.address for server in cluster.name_servers]
        yield cluster, NameServers(addresses, connections)


async def test_the_first_one_that_knows_is_believed() -> None:
    async with servers(2) as (cluster, asked):
        answer = await asked.route("orders", is_thorough=True, timeout_ms=1_000)

        assert answer.route == cluster.topics["orders"]
        assert not cluster.name_servers[1].asked


async def test_the_next_one_is_asked_when_one_is_down_and_kept_then() -> None:
    async with servers(2) as (cluster, asked):
        await cluster.name_servers[0].stop()

        first = await asked.route("orders", is_thorough=False, timeout_ms=1_000)
        second = await asked.route("orders", is_thorough=False, timeout_ms=1_000)

        assert first.route == second.route == cluster.topics["orders"]
        assert len(first.asked) == 2
        assert len(second.asked) == 1


@pytest.mark.slow
async def test_a_silent_one_leaves_time_for_the_next() -> None:
    async with servers(2) as (cluster, asked):
        cluster.name_servers[0].on(ROUTE, None)

        answer = await asked.route("orders", is_thorough=False, timeout_ms=400)

        assert answer.route == cluster.topics["orders"]


async def test_one_that_does_not_know_is_doubted_only_when_thorough() -> None:
    """A name server that was just started knows nothing yet."""
    async with servers(2) as (cluster, asked):
        cluster.name_servers[0].on(ROUTE, NOT_THERE)

        quick = await asked.route("orders", is_thorough=False, timeout_ms=1_000)
        thorough = await asked.route("orders", is_thorough=True, timeout_ms=1_000)

        assert quick.route is None
        assert thorough.route == cluster.topics["orders"]


async def test_what_all_have_said_is_told() -> None:
    async with servers(2) as (cluster, asked):
        answer = await asked.route("unknown", is_thorough=True, timeout_ms=1_000)

        assert answer.route is None
        assert [address for address, _ in answer.asked] == list(asked.addresses)
        assert all("code 17" in text for _, text in answer.asked)
        assert len(cluster.name_servers) == 2


async def test_nobody_there_is_an_error_with_all_reasons() -> None:
    async with servers(2) as (cluster, asked):
        for server in cluster.name_servers:
            await server.stop()

        with pytest.raises(Unreachable) as caught:
            await asked.route("orders", is_thorough=True, timeout_ms=1_000)

        for address in asked.addresses:
            assert str(caught.value).count(address) >= 2
        assert "cometmq up" in caught.value.next_step


async def test_success_without_a_route_is_the_servers_fault() -> None:
    async with servers(1) as (cluster, asked):
        cluster.name_servers[0].on(ROUTE, Answer())

        with pytest.raises(RemoteProtocolError, match="no body"):
            await asked.route("orders", is_thorough=True, timeout_ms=1_000)


@pytest.mark.slow
async def test_one_that_answers_is_preferred_to_a_silent_one_even_if_it_knows_nothing() -> None:
    async with servers(2) as (cluster, asked):
        silent, awake = cluster.name_servers
        silent.on(ROUTE, None)
        await asked.route("unknown", is_thorough=True, timeout_ms=400)

        await asked.route("orders", is_thorough=True, timeout_ms=1_000)

        assert len(silent.asked) == 1
        assert len(awake.asked) == 2


async def test_the_only_one_is_named_once() -> None:
    async with servers(1) as (cluster, asked):
        await cluster.name_servers[0].stop()
        address = cluster.name_servers[0].address

        with pytest.raises(Unreachable) as caught:
            await asked.route("orders", is_thorough=True, timeout_ms=1_000)

        assert caught.value.fact == f"cannot reach {address}: Connection refused"
