"""``Client``: how it is made, entered and left, and what its members share."""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from cometmq.client import shared
from cometmq.client.client import Client
from cometmq.client.metrics import ClientMetrics
from cometmq.client.shared import Shared
from cometmq.codec.codes import RequestCode
from cometmq.errors import AlreadyExists, InvalidArgument, NotRunning, SettingsError
from tests.unit.client.kit import FakeCluster, connected, told_by_child


def shared_of(client: Client) -> Shared:
    return client._require()


def test_name_servers_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "one:9876; two:9876;one:9876")

    client = Client()

    assert sorted(client._name_servers) == ["one:9876", "two:9876"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"namesrv": ""}, "no name server is given"),
        ({"namesrv": "host"}, "'host' is no address; write it as host:port"),
        ({"namesrv": "h:9876,h2:9876"}, "put a semicolon between"),
        ({"namesrv": "http://h:9876"}, "but a URL; write it as host:port"),
        ({"namesrv": "fe80::1:9876"}, "an IPv6 address in brackets"),
        ({"namesrv": 5}, "5 is no address and no list of them; write host:port"),
        ({"namesrv": [5]}, "no address and no list of them"),
        ({"namesrv": b"h:9876"}, "no address and no list of them"),
        ({"namespace": 5}, "'namespace': it is int; it must be text"),
        ({"tls": "yes"}, "'tls': 'yes' is of the wrong type"),
        ({"access_key": "ak", "secret_key": b"sk"}, "'secret_key': it is bytes; it must be text"),
        ({"access_key": "ak"}, "secret_key"),
        ({"heartbeat_interval_ms": 1}, "at least 10"),
        ({"heartbeats": 1}, "there is no such option"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    arguments: dict[str, object], words: str
) -> None:
    with pytest.raises(SettingsError, match=words):
        Client(**({"namesrv": "h:9876"} | arguments))  # type: ignore[arg-type]


class HasOne:
    """Half of each kind of hook."""

    def before_send(self, context: object) -> None: ...

    def after_consume(self, context: object) -> None: ...


@pytest.mark.parametrize("hook", [5, HasOne(), ClientMetrics])
async def test_a_hook_that_lacks_a_method_is_refused_before_a_message_needs_it(hook: Any) -> None:
    async with FakeCluster() as cluster, Client(cluster.namesrv) as client:
        makers: list[Callable[..., object]] = [
            client.producer,
            lambda **hooks: client.transaction_producer("halves", print, **hooks),
            lambda **hooks: client.consumer("billing", **hooks),
            lambda **hooks: client.lite_consumer("billing", **hooks),
            lambda **hooks: client.pull_consumer("billing", **hooks),
        ]
        for place, make in enumerate(makers):
            with pytest.raises(InvalidArgument, match=r"is none of hooks; .* before_.* and after_"):
                make(hooks=[hook])
            with pytest.raises(InvalidArgument, match="which is no list"):
                make(hooks=5)
            others = "guards" if place < 2 else "filters"
            with pytest.raises(InvalidArgument, match=f"is none of {others}"):
                make(**{others: [hook]})


async def test_a_timeout_of_pulls_shorter_than_brokers_may_hold_them_is_refused() -> None:
    async with FakeCluster() as cluster, Client(cluster.namesrv) as client:
        with pytest.raises(SettingsError, match="'pull_timeout_ms': 1000 is less than pull_hold"):
            client.consumer("billing", pull_timeout_ms=1_000)


async def test_nothing_happens_before_it_is_entered() -> None:
    async with FakeCluster() as cluster:
        client = Client(cluster.namesrv)

        with pytest.raises(NotRunning, match="was not entered yet"):
            client.producer()

        assert not cluster.name_servers[0].channels


async def test_leaving_it_leaves_nothing_behind() -> None:
    async with FakeCluster() as cluster:
        cluster.create("orders")
        before = asyncio.all_tasks()
        async with connected(cluster) as client:
            await client.producer().send("orders", b"x")
            assert cluster.a.channels

        while cluster.a.channels or cluster.name_servers[0].channels:
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
        with pytest.raises(NotRunning, match="this client is closed"):
            client.producer()


async def test_closing_again_does_nothing() -> None:
    async with FakeCluster() as cluster:
        async with connected(cluster) as client:
            await client.close()
            await client.close()

        with pytest.raises(NotRunning, match="is closed and cannot be started"):
            await client.__aenter__()


async def test_a_client_that_nobody_closes_says_so() -> None:
    async with FakeCluster() as cluster:
        client = await Client(cluster.namesrv, client_ip="10.0.0.9").__aenter__()
        shared = shared_of(client)

        with pytest.warns(ResourceWarning, match=r"this client was not closed; .*test_client"):
            del client

        await shared.stop()


async def test_the_client_id_has_address_and_a_fresh_name() -> None:
    async with FakeCluster() as cluster:
        ids = set()
        for _ in range(2):
            async with connected(cluster) as client:
                ids.add(client.client_id)
        async with connected(cluster, instance_name="mine", unit_name="u") as client:
            named = client.client_id

        assert len(ids) == 2
        assert all(each.startswith(f"10.0.0.9@{os.getpid()}#") for each in ids)
        assert named == "10.0.0.9@mine@u"


async def test_a_name_that_is_in_use_is_refused_until_it_is_free() -> None:
    async with FakeCluster() as cluster:
        async with connected(cluster, instance_name="mine"):
            with pytest.raises(AlreadyExists, match="give each client its own instance_name"):
                async with connected(cluster, instance_name="mine"):
                    pass

        async with connected(cluster, instance_name="mine") as client:
            assert client.client_id == "10.0.0.9@mine"


async def test_two_consumers_of_a_group_speak_for_themselves() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        shared = shared_of(client)

        first = shared.instance_for_consumer("g", "cluster")
        other_group = shared.instance_for_consumer("h", "cluster")
        second = shared.instance_for_consumer("g", "cluster")
        shared.release_consumer(first, "g")
        third = shared.instance_for_consumer("g", "cluster")

        assert first is other_group is third is shared.main
        assert second.client_id != first.client_id


async def test_a_broadcasting_consumer_keeps_its_id() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        shared = shared_of(client)

        instance = shared.instance_for_consumer("g", "broadcast")
        same = shared.instance_for_consumer("h", "broadcast")

        assert instance.client_id == "10.0.0.9@DEFAULT"
        assert same is instance
        with pytest.raises(AlreadyExists, match="broadcasting consumer of group 'g'"):
            shared.instance_for_consumer("g", "broadcast")
        shared.release_consumer(instance, "g")
        assert shared.instance_for_consumer("g", "broadcast") is instance


async def test_a_clustering_consumer_does_not_take_the_id_of_broadcasting_ones() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        shared = shared_of(client)
        shared.instance_for_consumer("b", "broadcast")
        shared.instance_for_consumer("g", "cluster")

        second = shared.instance_for_consumer("g", "cluster")

        assert second.client_id != "10.0.0.9@DEFAULT"


async def test_a_bad_namespace_is_refused() -> None:
    async with FakeCluster() as cluster, connected(cluster, namespace="a%b") as client:
        with pytest.raises(InvalidArgument, match="namespace"):
            client.producer()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
async def test_a_forked_process_cannot_use_it_and_takes_nothing_from_the_parent() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer()
        await producer.send("orders", b"x")

        told = told_by_child(lambda: client.producer("other"))

        assert "was made before this process was forked" in told
        assert (await producer.send("orders", b"x")).is_ok
        assert len({asked.channel for asked in cluster.sends}) == 1


async def test_a_client_that_is_closed_while_it_is_entered_leaves_nothing_behind() -> None:
    async with FakeCluster() as cluster:
        client = Client(cluster.namesrv)
        entering = asyncio.ensure_future(client.__aenter__())
        await asyncio.sleep(0)
        before = asyncio.all_tasks()

        await client.close()

        with pytest.raises(NotRunning, match="is closed"):
            await entering
        assert asyncio.all_tasks() <= before


async def test_whoever_gives_up_closing_leaves_nothing_behind() -> None:
    async with FakeCluster() as cluster:
        cluster.create("orders", queues=1)
        before = asyncio.all_tasks()
        client = Client(cluster.namesrv)
        await client.__aenter__()
        producer = client.producer()
        await producer.send("orders", b"x")
        cluster.a.on(RequestCode.UNREGISTER_CLIENT, None)
        closing = asyncio.ensure_future(client.close())
        await cluster.a.until(RequestCode.UNREGISTER_CLIENT)

        closing.cancel()
        await asyncio.wait((closing,))
        await asyncio.sleep(0)

        assert closing.cancelled()
        assert not {task for task in asyncio.all_tasks() - before if not task.done()}
        await until_gone(cluster)


async def until_gone(cluster: FakeCluster) -> None:
    while cluster.a.channels or cluster.name_servers[0].channels:
        await asyncio.sleep(0)


def test_names_differ_although_the_clock_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 5)

    assert len({shared._fresh_name() for _ in range(3)}) == 3
