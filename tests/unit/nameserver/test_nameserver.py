"""A name server over a real connection: every request it serves, asked as a client asks."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cometmq.codec import bodies, core, java_properties, registration
from cometmq.codec.bodies.nameserver import RegisterBrokerBody, TopicList
from cometmq.codec.bodies.topics import TopicConfigTable
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.nameserver import (
    AddWritePermOfBroker,
    AddWritePermOfBrokerResponse,
    DeleteKVConfig,
    DeleteTopicInNamesrv,
    GetBrokerMemberGroup,
    GetKVConfig,
    GetKVConfigResponse,
    GetKVListByNamespace,
    GetRouteInfoByTopic,
    GetTopicsByCluster,
    PutKVConfig,
    RegisterTopicInNamesrv,
    WipeWritePermOfBroker,
    WipeWritePermOfBrokerResponse,
)
from cometmq.codec.headers.registration import (
    BrokerHeartbeat,
    QueryDataVersion,
    QueryDataVersionResponse,
    RegisterBroker,
    RegisterBrokerResponse,
    UnregisterBroker,
)
from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.nameserver.app import NameServer
from cometmq.nameserver.config import NameServerNetworkSettings, NameServerSettings
from cometmq.nameserver.live_settings import NameServerConfig
from cometmq.remoting.channel import Channel
from cometmq.remoting.client import connect
from cometmq.remoting.config import HealthSettings
from cometmq.testing import FakeClock

Place = tuple[str, str, str, str, int]
BROKER: Place = ("broker-a", "10.0.0.1:10911", "DefaultCluster", "10.0.0.1:10912", 0)
VERSION = DataVersion(counter=1, timestamp=1, state_version=0)


@asynccontextmanager
async def name_server(
    folder: Path,
    clock: FakeClock | None = None,
    health: HealthSettings | None = None,
    **settings: object,
) -> AsyncIterator[NameServer]:
    config = NameServerConfig(
        nameserver=NameServerSettings(
            kv_config_path=folder / "kvConfig.json",
            config_store_path=folder / "namesrv.properties",
            **settings,  # type: ignore[arg-type]
        ),
        network=NameServerNetworkSettings(listen_port=0, bind_address="127.0.0.1"),
        health=health or HealthSettings(),
    )
    server = NameServer(config, clock=clock)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def client_of(server: NameServer) -> AsyncIterator[Channel]:
    channel = await connect(f"127.0.0.1:{server.port}")
    try:
        yield channel
    finally:
        channel.close()


def topics(*names: str, queues: int = 4) -> dict[str, TopicConfig]:
    return {
        name: TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues, attributes={}
        )
        for name in names
    }


async def register(
    channel: Channel,
    *names: str,
    broker: Place = BROKER,
    queues: int = 4,
    version: DataVersion = VERSION,
) -> Command:
    table = TopicConfigTable(topic_config_table=topics(*names, queues=queues), data_version=version)
    body = registration.encode(RegisterBrokerBody((), table), 513)
    header = RegisterBroker(*broker)
    header.body_crc32 = registration.body_crc32(body)
    return await channel.request(RequestCode.REGISTER_BROKER, header, body, timeout_ms=5000)


async def route_of(channel: Channel, topic: str) -> Command:
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    return await channel.request(code, GetRouteInfoByTopic(topic), timeout_ms=5000)


def test_a_registered_topic_has_a_route_until_its_brokers_connection_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as server, client_of(server) as client:
            async with client_of(server) as broker:
                answer = await register(broker, "orders", "bills")
                assert answer.code == ResponseCode.SUCCESS

                found = await route_of(client, "orders")
                assert found.code == ResponseCode.SUCCESS
                route = json.loads(found.body)
                assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:10911"}
                assert route["queueDatas"][0]["readQueueNums"] == 4

            while (gone := await route_of(client, "orders")).code == ResponseCode.SUCCESS:
                await asyncio.sleep(0.01)
            assert gone.code == ResponseCode.TOPIC_NOT_EXIST

    asyncio.run(scenario())


def test_an_unknown_topic_is_answered_with_words_that_help(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as server, client_of(server) as client:
            missed = await route_of(client, "orders")

            assert missed.code == ResponseCode.TOPIC_NOT_EXIST
            assert missed.remark == (
                "No topic route info in name server for the topic: orders (0 brokers registered"
                " here; start a broker and check its namesrvAddr)"
            )

    asyncio.run(scenario())


def test_a_damaged_registration_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as server, client_of(server) as broker:
            header = RegisterBroker(*BROKER, False, 12345)
            code = RequestCode.REGISTER_BROKER

            refused = await broker.request(code, header, b"{}", timeout_ms=5000)

            assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")

    asyncio.run(scenario())


def test_a_slave_is_told_where_its_master_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            name_server(tmp_path) as server,
            client_of(server) as master,
            client_of(server) as slave,
        ):
            await register(master, "orders", "bills")
            place = ("broker-a", "10.0.0.2:10911", "DefaultCluster", "10.0.0.2:10912", 1)

            answer = await register(slave, "orders", "bills", broker=place)

            told = core.read(answer, RegisterBrokerResponse)
            assert (told.master_addr, told.ha_server_addr) == ("10.0.0.1:10911", "10.0.0.1:10912")
            header = GetBrokerMemberGroup("DefaultCluster", "broker-a")
            code = RequestCode.GET_BROKER_MEMBER_GROUP
            group = await slave.request(code, header, timeout_ms=5000)
            assert b'{0:"10.0.0.1:10911",1:"10.0.0.2:10911"}' in group.body

    asyncio.run(scenario())


def test_a_silent_broker_is_dropped_and_a_heartbeat_keeps_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        async with name_server(tmp_path, clock) as server, client_of(server) as client:
            async with client_of(server) as broker:
                await register(broker, "orders", "bills")
                clock.advance(100)
                beat = BrokerHeartbeat("DefaultCluster", "10.0.0.1:10911", "broker-a")
                await broker.request(RequestCode.BROKER_HEARTBEAT, beat, timeout_ms=5000)
                clock.advance(100)
                server.scan()
                assert (await route_of(client, "orders")).code == ResponseCode.SUCCESS

                clock.advance(30)
                server.scan()

                assert (await route_of(client, "orders")).code == ResponseCode.TOPIC_NOT_EXIST
                while broker.is_open:
                    await asyncio.sleep(0.01)

    asyncio.run(scenario())


def test_a_broker_asks_whether_it_must_register_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as server, client_of(server) as broker:
            await register(broker, "orders", "bills")
            header = QueryDataVersion("broker-a", "10.0.0.1:10911", "DefaultCluster", 0)
            code = RequestCode.QUERY_DATA_VERSION

            same = await broker.request(code, header, bodies.encode(VERSION), timeout_ms=5000)
            newer = bodies.encode(DataVersion(counter=2, timestamp=1, state_version=0))
            other = await broker.request(code, header, newer, timeout_ms=5000)

            assert core.read(same, QueryDataVersionResponse).changed is False
            assert core.read(other, QueryDataVersionResponse).changed is True
            assert bodies.decode(DataVersion, same.body).counter == 1

    asyncio.run(scenario())


def test_an_unregistered_broker_is_gone_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as server, client_of(server) as broker:
            await register(broker, "orders", "bills")
            header = UnregisterBroker("broker-a", "10.0.0.1:10911", "DefaultCluster", 0)

            await broker.request(RequestCode.UNREGISTER_BROKER, header, timeout_ms=5000)

            assert (await route_of(broker, "orders")).code == ResponseCode.TOPIC_NOT_EXIST
            info = await broker.request(RequestCode.GET_BROKER_CLUSTER_INFO, timeout_ms=5000)
            assert b"broker-a" not in info.body

    asyncio.run(scenario())


def test_topic_lists_and_deletion(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as server, client_of(server) as broker:
            await register(broker, "orders", "bills")

            async def listed(code: RequestCode, header: object = None) -> TopicList:
                answer = await broker.request(code, header, timeout_ms=5000)  # type: ignore[arg-type]
                assert answer.code == ResponseCode.SUCCESS
                return bodies.decode(TopicList, answer.body)

            everything = await listed(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            assert set(everything.topic_list) == {"orders", "bills"}
            cluster = GetTopicsByCluster("DefaultCluster")
            in_cluster = await listed(RequestCode.GET_TOPICS_BY_CLUSTER, cluster)
            assert set(in_cluster.topic_list) == {"orders", "bills"}
            system = await listed(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
            assert set(system.topic_list) == {"DefaultCluster", "broker-a"}
            for code in (RequestCode.GET_UNIT_TOPIC_LIST, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST):
                assert (await listed(code)).topic_list == ()

            delete = DeleteTopicInNamesrv("orders")
            await broker.request(RequestCode.DELETE_TOPIC_IN_NAMESRV, delete, timeout_ms=5000)
            left = await listed(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            assert left.topic_list == ("bills",)

            queues = {"brokerName": "broker-a", "perm": 6, "readQueueNums": 2, "writeQueueNums": 2}
            body = json.dumps({"queueDatas": [queues]}).encode()
            header = RegisterTopicInNamesrv("by-hand")
            code = RequestCode.REGISTER_TOPIC_IN_NAMESRV
            await broker.request(code, header, body, timeout_ms=5000)
            assert (await route_of(broker, "by-hand")).code == ResponseCode.SUCCESS

    asyncio.run(scenario())


def test_write_permission_is_taken_and_given_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as server, client_of(server) as broker:
            await register(broker, "orders", "bills")

            async def permission() -> int:
                route = json.loads((await route_of(broker, "orders")).body)
                return int(route["queueDatas"][0]["perm"])

            wipe = WipeWritePermOfBroker("broker-a")
            wiped = await broker.request(
                RequestCode.WIPE_WRITE_PERM_OF_BROKER, wipe, timeout_ms=5000
            )
            assert core.read(wiped, WipeWritePermOfBrokerResponse).wipe_topic_count == 2
            assert await permission() == 4

            add = AddWritePermOfBroker("broker-a")
            added = await broker.request(RequestCode.ADD_WRITE_PERM_OF_BROKER, add, timeout_ms=5000)
            assert core.read(added, AddWritePermOfBrokerResponse).add_topic_count == 2
            assert await permission() == 6

    asyncio.run(scenario())


def test_kv_configuration_survives_a_restart(tmp_path: Path) -> None:
    async def ask(channel: Channel, code: RequestCode, header: object) -> Command:
        return await channel.request(code, header, timeout_ms=5000)  # type: ignore[arg-type]

    async def scenario() -> None:
        async with name_server(tmp_path) as server, client_of(server) as client:
            await ask(client, RequestCode.PUT_KV_CONFIG, PutKVConfig("ns", "k", "v"))
            await ask(client, RequestCode.PUT_KV_CONFIG, PutKVConfig("ns", "gone", "x"))
            await ask(client, RequestCode.DELETE_KV_CONFIG, DeleteKVConfig("ns", "gone"))
        async with name_server(tmp_path) as server, client_of(server) as client:
            kept = await ask(client, RequestCode.GET_KV_CONFIG, GetKVConfig("ns", "k"))
            gone = await ask(client, RequestCode.GET_KV_CONFIG, GetKVConfig("ns", "gone"))
            listed = await ask(
                client, RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespace("ns")
            )

            assert core.read(kept, GetKVConfigResponse).value == "v"
            assert gone.code == ResponseCode.QUERY_NOT_FOUND
            assert gone.remark == "No config item, Namespace: ns Key: gone"
            assert json.loads(listed.body) == {"table": {"k": "v"}}

    asyncio.run(scenario())


def test_order_configuration_is_part_of_the_route_when_enabled(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path, order_message_enable=True) as server:
            async with client_of(server) as broker:
                put = PutKVConfig("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
                await broker.request(RequestCode.PUT_KV_CONFIG, put, timeout_ms=5000)
                answer = await register(broker, "orders", "bills")

                route = json.loads((await route_of(broker, "orders")).body)

                assert route["orderTopicConf"] == "broker-a:4"
                assert json.loads(answer.body) == {"table": {"orders": "broker-a:4"}}

    asyncio.run(scenario())


def test_settings_are_shown_changed_and_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as server, client_of(server) as client:

            async def update(text: bytes) -> Command:
                code = RequestCode.UPDATE_NAMESRV_CONFIG
                return await client.request(code, None, text, timeout_ms=5000)

            changed = await update(b"enableAllTopicList=false\nuseEpollNativeSelector=true\n")
            refused = await update(b"kvConfigPath=/elsewhere\n")
            impossible = await update(b"waitSecondsForService=soon\n")
            shown = await client.request(RequestCode.GET_NAMESRV_CONFIG, timeout_ms=5000)
            listing = await client.request(
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, timeout_ms=5000
            )

            assert changed.code == ResponseCode.SUCCESS
            assert refused.code == ResponseCode.NO_PERMISSION
            assert refused.remark == "Can not update config in black list."
            assert impossible.code == ResponseCode.SYSTEM_ERROR
            settings = java_properties.loads(shown.body)
            assert settings["enableAllTopicList"] == "false"
            assert settings["useEpollNativeSelector"] == "true"
            assert settings["kvConfigPath"] == str(tmp_path / "kvConfig.json")
            assert (listing.code, listing.remark) == (ResponseCode.SYSTEM_ERROR, "disable")
        kept = java_properties.loads((tmp_path / "namesrv.properties").read_bytes())
        assert kept["enableAllTopicList"] == "false"

    asyncio.run(scenario())


def test_a_large_registration_lets_queries_through(tmp_path: Path) -> None:
    """10,000 topics are applied in slices; a query sent meanwhile is answered before the end."""

    async def scenario() -> None:
        async with (
            name_server(tmp_path) as server,
            client_of(server) as broker,
            client_of(server) as client,
        ):
            await register(broker, "orders", "bills")
            order: list[str] = []
            many = tuple(f"topic-{number}" for number in range(10_000))
            place = ("broker-b", "10.0.0.9:10911", "DefaultCluster", "10.0.0.9:10912", 0)

            async def registering() -> None:
                await register(broker, *many, broker=place)
                order.append("registered")

            async def asking() -> None:
                while "registered" not in order:
                    await route_of(client, "orders")
                    order.append("asked")

            await asyncio.gather(registering(), asking())

            assert order.index("registered") > 1

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [63, 317, 513])
def test_routes_are_written_in_the_dialect_of_the_asking_client(
    tmp_path: Path, version: int
) -> None:
    async def scenario() -> None:
        async with name_server(tmp_path) as server, client_of(server) as broker:
            await register(broker, "orders", "bills")
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            header = (
                b'{"code":105,"language":"GO","version":%d,"opaque":1,"flag":0,'
                b'"extFields":{"topic":"orders"}}' % version
            )
            writer.write(
                (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
            )
            size = int.from_bytes(await reader.readexactly(4), "big")
            frame = await reader.readexactly(size)
            writer.close()

            assert (b'{"0":"10.0.0.1:10911"}' in frame) == (version >= 401)
            assert (b'{0:"10.0.0.1:10911"}' in frame) == (version < 401)

    asyncio.run(scenario())


def test_probes_and_metrics_are_served_on_a_port_of_their_own(tmp_path: Path) -> None:
    async def get(port: int, path: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        return answer

    async def scenario() -> None:
        health = HealthSettings(port=0)
        async with name_server(tmp_path, health=health) as server, client_of(server) as broker:
            await register(broker, "orders", "bills")
            await route_of(broker, "orders")
            await route_of(broker, "nothing")

            ready = await get(server.health_port, "/readyz")
            metrics = await get(server.health_port, "/metrics")

            assert ready.startswith(b"HTTP/1.1 200 ")
            for line in (
                b"cometmq_nameserver_brokers 1",
                b"cometmq_nameserver_topics 2",
                b"cometmq_nameserver_route_queries_total 2",
                b"cometmq_nameserver_route_misses_total 1",
            ):
                assert line in metrics

    asyncio.run(scenario())


def test_a_large_body_that_is_slow_to_read_does_not_keep_others_waiting(tmp_path: Path) -> None:
    """Single quotes force the slow reader; half a megabyte of them would block for a second."""

    async def scenario() -> None:
        async with (
            name_server(tmp_path) as server,
            client_of(server) as hostile,
            client_of(server) as client,
        ):
            order: list[str] = []
            body = b"{'filterServerList':[" + b"'x'," * 120_000 + b"'x']}"
            header = RegisterBroker(*BROKER)

            async def attacking() -> None:
                code = RequestCode.REGISTER_BROKER
                await hostile.request(code, header, body, timeout_ms=60_000)
                order.append("attacked")

            async def asking() -> None:
                while "attacked" not in order:
                    await route_of(client, "orders")
                    order.append("asked")

            await asyncio.gather(attacking(), asking())

            assert order.count("asked") > 3

            version = QueryDataVersion("broker-a", "10.0.0.1:10911", "DefaultCluster", 0)
            code = RequestCode.QUERY_DATA_VERSION
            refused = await client.request(code, version, body, timeout_ms=5000)
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "make no sense" in str(refused.remark)

    asyncio.run(scenario())


def test_registrations_of_one_connection_are_taken_in_order(tmp_path: Path) -> None:
    """A large one is read on a thread; a small one sent after it must not overtake it."""

    async def scenario() -> None:
        async with name_server(tmp_path) as server, client_of(server) as broker:
            many = tuple(f"topic-{number}" for number in range(2_000))
            newer = DataVersion(counter=2, timestamp=2, state_version=0)

            await asyncio.gather(
                register(broker, *many, queues=4),
                register(broker, "topic-0", "topic-1", queues=8, version=newer),
            )

            route = json.loads((await route_of(broker, "topic-0")).body)
            assert route["queueDatas"][0]["readQueueNums"] == 8

    asyncio.run(scenario())
