"""What one client id says to brokers: heartbeats, farewells, and how it asks."""

import asyncio
from typing import Any

import msgspec
import pytest

from cometmq.client.client import Client
from cometmq.client.instance import Instance
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.offsets import GetMaxOffset, OffsetResponse
from cometmq.errors import AlreadyExists, Refused, Unreachable
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.remoting.routes import Answer
from tests.unit.client.kit import V4_9_7, FakeCluster, connected, refused

HEARTBEAT = RequestCode.HEART_BEAT


def main_of(client: Client) -> Instance:
    return client._require().main


def groups_in(body: bytes) -> set[str]:
    beat: dict[str, Any] = msgspec.json.decode(body)
    return {producer["groupName"] for producer in beat["producerDataSet"]}


async def test_a_heartbeat_names_the_client_and_all_groups() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders")
        client.producer("one")
        client.producer("two")
        await main_of(client).routes.find("orders")

        assert await main_of(client).heartbeat()

        beat = cluster.a.questions(HEARTBEAT)[-1]
        assert groups_in(beat.body) == {"CLIENT_INNER_PRODUCER", "one", "two"}
        assert msgspec.json.decode(beat.body)["clientID"] == client.client_id


async def test_without_members_there_is_no_heartbeat() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders")
        await main_of(client).routes.find("orders")

        assert not await main_of(client).heartbeat()
        assert not cluster.a.asked


async def test_producers_greet_masters_only() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        data = BrokerData("broker-a", {0: cluster.a.address, 1: cluster.b.address}, "east")
        cluster.topics["orders"] = TopicRoute((data,), (QueueData("broker-a", 1, 1, 6),))
        client.producer()
        await main_of(client).routes.find("orders")

        await main_of(client).heartbeat()

        assert cluster.a.questions(HEARTBEAT)
        assert not cluster.b.asked


async def test_a_broker_that_is_down_does_not_keep_the_others_from_hearing() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders")
        await cluster.a.stop()
        client.producer()
        await main_of(client).routes.find("orders")

        assert await main_of(client).heartbeat()
        assert cluster.b.questions(HEARTBEAT)


async def test_a_broker_that_comes_back_is_greeted_at_once() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer()
        await producer.send("orders", b"x")
        before = len(await cluster.a.until(HEARTBEAT))
        for channel in cluster.a.channels:
            channel.drop("the test restarts it")
        while main_of(client).connections.find(cluster.a.address) is not None:
            await asyncio.sleep(0)

        await producer.send("orders", b"x")

        assert await cluster.a.until(HEARTBEAT, before + 1)


async def test_only_the_broker_that_comes_back_is_greeted() -> None:
    """One that breaks its connections all the time must not make work for all others."""
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders")
        producer = client.producer()
        await asyncio.gather(*(producer.send("orders", b"x") for _ in range(4)))
        for broker in (cluster.a, cluster.b):
            await broker.until(HEARTBEAT)
        instance = main_of(client)
        others = len(cluster.b.questions(HEARTBEAT))

        for _ in range(3):
            count = len(cluster.a.questions(HEARTBEAT))
            instance.connections.forget(cluster.a.address, "the test")
            await instance.connections.channel(cluster.a.address)
            await cluster.a.until(HEARTBEAT, count + 1)

        assert len(cluster.b.questions(HEARTBEAT)) == others


async def test_a_broker_that_hangs_up_on_everybody_is_not_greeted_for_ever() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders")
        cluster.a.on(HEARTBEAT, lambda asked: asked.channel.drop("as told"))
        instance = main_of(client)
        await instance.routes.find("orders")
        client.producer()

        await instance.heartbeat()
        await instance.heartbeat()
        for _ in range(50):
            await asyncio.sleep(0)

        assert len(cluster.a.questions(HEARTBEAT)) <= 4


async def test_a_broker_that_is_down_for_long_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders")
        cluster.a.on(HEARTBEAT, refused(ResponseCode.SYSTEM_BUSY))
        instance = main_of(client)
        await instance.routes.find("orders")
        client.producer()

        for _ in range(3):
            assert not await instance.heartbeat()
        cluster.a.on(HEARTBEAT, Answer())
        assert await instance.heartbeat()

        told = [record.message for record in caplog.records if "heartbeat" in record.message]
        assert len(told) == 1


async def test_the_release_of_a_broker_is_learned_from_heartbeats() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders")
        cluster.a.version = V4_9_7
        client.producer()
        instance = main_of(client)
        await instance.routes.find("orders")
        assert instance.version_of(cluster.a.address) is None

        version = await instance.version(cluster.a.address, timeout_ms=1_000)
        await instance.version(cluster.a.address, timeout_ms=1_000)

        assert version == instance.version_of(cluster.a.address) == V4_9_7
        assert len(cluster.a.questions(HEARTBEAT)) == 1


async def test_what_is_not_accepted_is_a_refusal_in_the_brokers_words() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        code = RequestCode.GET_MAX_OFFSET
        cluster.a.on(code, refused(ResponseCode.SYSTEM_ERROR, " broken "))
        header = GetMaxOffset("orders", 0)
        instance = main_of(client)

        with pytest.raises(Refused, match="refuses GET_MAX_OFFSET with code 1: broken"):
            await instance.ask(cluster.a.address, code, header)
        answer = await instance.ask(cluster.a.address, code, header, accept=(0, 1))

        assert answer.code == 1


async def test_a_refusal_says_what_to_do_next() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        code = RequestCode.GET_MAX_OFFSET
        cluster.a.on(code, refused(ResponseCode.TOPIC_NOT_EXIST))

        with pytest.raises(Refused, match="code 17: no; create the topic"):
            await main_of(client).ask(cluster.a.address, code, GetMaxOffset("orders", 0))


async def test_telling_needs_no_answer_and_is_signed() -> None:
    keys = {"access_key": "ak", "secret_key": "sk"}
    async with FakeCluster() as cluster, connected(cluster, **keys) as client:
        code = RequestCode.GET_MAX_OFFSET

        await main_of(client).tell(cluster.a.address, code, GetMaxOffset("orders", 0))

        (asked,) = await cluster.a.until(code)
        assert asked.command.is_oneway
        assert asked.command.ext_fields["AccessKey"] == "ak"


async def test_the_vip_port_is_two_below() -> None:
    async with FakeCluster() as cluster:
        async with connected(cluster) as client:
            assert main_of(client).vip("h:10911") == "h:10911"
        async with connected(cluster, is_vip_channel=True) as client:
            assert main_of(client).vip("h:10911") == "h:10909"
            assert main_of(client).vip("[::1]:10911") == "[::1]:10909"


async def test_a_group_has_one_producer() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        producer = client.producer("shop")

        with pytest.raises(AlreadyExists, match="shop"):
            main_of(client).add_producer(producer)


async def test_a_broker_that_has_gone_is_let_go() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster, route_interval_ms=10) as client:
        cluster.create("orders", queues=1)
        producer = client.producer()
        for _ in range(2):
            await producer.send("orders", b"x")
        instance = main_of(client)
        assert set(instance.connections.addresses) == {cluster.a.address, cluster.b.address}

        cluster.create("orders", queues=1, brokers="a")
        while cluster.b.address in instance.connections.addresses:
            await asyncio.sleep(0.001)

        assert instance.routes.table.master("broker-b") is None
        assert instance.version_of(cluster.b.address) is None


async def test_asking_a_closed_client_says_that_it_is_closed() -> None:
    async with FakeCluster() as cluster:
        async with connected(cluster) as client:
            instance = main_of(client)

        with pytest.raises(Unreachable, match="this client is closed"):
            await instance.ask(cluster.a.address, RequestCode.GET_MAX_OFFSET)


async def test_answers_are_whole_commands() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.a.on(RequestCode.GET_MAX_OFFSET, Answer(header=OffsetResponse(42)))

        answer = await main_of(client).ask(
            cluster.a.address, RequestCode.GET_MAX_OFFSET, GetMaxOffset("orders", 0)
        )

        assert OffsetResponse.from_ext(answer.ext_fields).offset == 42
