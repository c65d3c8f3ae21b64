"""Registration: what name servers hear, and how a broker behaves when they do not listen."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.config import BrokerNetworkSettings, BrokerSettings
from cometmq.broker.identity import resolve_identity
from cometmq.broker.registration import Pace, Registrar
from cometmq.codec import bodies, core, registration
from cometmq.codec.bodies.nameserver import KVTable
from cometmq.codec.bodies.topics import TopicConfigTable
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.nameserver import GetRouteInfoByTopic
from cometmq.codec.headers.registration import (
    QueryDataVersionResponse,
    RegisterBroker,
    UnregisterBroker,
)
from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.nameserver.app import NameServer
from cometmq.nameserver.config import NameServerNetworkSettings, NameServerSettings
from cometmq.nameserver.live_settings import NameServerConfig
from cometmq.remoting.channel import Channel
from cometmq.remoting.client import connect
from cometmq.remoting.routes import Answer, Routes
from cometmq.remoting.server import Server
from cometmq.testing import FakeClock

LOOPBACK = "127.0.0.1"
QUICK = Pace(period=600, gap=0.0, retry_first=0.001, retry_max=0.004)
"""Only what a test causes makes a broker register."""
RESTLESS = Pace(period=0.001, gap=0.0, retry_first=0.001, retry_max=0.001)


class FakeTopics:
    """A table of topics that a test changes."""

    def __init__(self, *names: str) -> None:
        self.configs = {name: TopicConfig(name, attributes={}) for name in names}
        self.version = DataVersion(1, 0, 1)

    def add(self, name: str) -> None:
        self.configs[name] = TopicConfig(name, attributes={})
        self.version = self.version.advanced(2)

    def table(self) -> TopicConfigTable:
        return TopicConfigTable(self.version, dict(self.configs))


class FakeNameServer:
    """A name server that remembers what it was told and answers as a test wants."""

    def __init__(self) -> None:
        self.requests: list[Command] = []
        self.answer = Answer()
        self.is_version_changed = True
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        # On these nothing comes any more, as when a firewall has forgotten them.
        self.dead: frozenset[Channel] = frozenset()
        routes = Routes()
        routes.add(RequestCode.REGISTER_BROKER, self._register)
        routes.add(RequestCode.UNREGISTER_BROKER, self._note)
        routes.add(RequestCode.QUERY_DATA_VERSION, self._query)
        self.server = Server(routes)

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.server.ports[0]}"

    def of(self, code: RequestCode) -> list[Command]:
        return [command for command in self.requests if command.code == code]

    @property
    def registrations(self) -> list[Command]:
        return self.of(RequestCode.REGISTER_BROKER)

    def topics(self, index: int = -1) -> list[str]:
        """The topics of one of the registrations."""
        command = self.registrations[index]
        body = registration.decode(command.body, command.version)
        return list(body.topic_config_serialize_wrapper.topic_config_table)

    async def _register(self, channel: Channel, command: Command) -> Answer | None:
        self.requests.append(command)
        await self.may_answer.wait()
        return None if channel in self.dead else self.answer

    def _note(self, channel: Channel, command: Command) -> Answer:
        self.requests.append(command)
        return Answer()

    def _query(self, channel: Channel, command: Command) -> Answer:
        self.requests.append(command)
        return Answer(header=QueryDataVersionResponse(self.is_version_changed))


@asynccontextmanager
async def name_servers(count: int = 1) -> AsyncIterator[list[FakeNameServer]]:
    servers = [FakeNameServer() for _ in range(count)]
    for server in servers:
        await server.server.start(LOOPBACK, 0)
    try:
        yield servers
    finally:
        for server in servers:
            server.may_answer.set()
            await server.server.stop()


def registrar_of(
    *addresses: str,
    topics: FakeTopics | None = None,
    pace: Pace = QUICK,
    on_order: Callable[[Collection[str]], None] | None = None,
    **settings: object,
) -> Registrar:
    broker = BrokerSettings(
        broker_name="broker-a",
        broker_ip1="10.0.0.1",
        namesrv_addr=addresses,
        **settings,  # type: ignore[arg-type]
    )
    return Registrar(
        broker,
        resolve_identity(broker, BrokerNetworkSettings(), 10911),
        topics or FakeTopics("orders", "bills"),
        clock=FakeClock(),
        on_order=on_order,
        pace=pace,
    )


@asynccontextmanager
async def running(registrar: Registrar) -> AsyncIterator[None]:
    await registrar.register_now()
    task = asyncio.create_task(registrar.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await registrar.unregister()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await scenario

    asyncio.run(bounded())


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_every_name_server_hears_who_and_where_and_all_topics() -> None:
    async def scenario() -> None:
        async with name_servers(2) as servers:
            registrar = registrar_of(*(server.address for server in servers))

            assert await registrar.register_now()

            for server in servers:
                (command,) = server.registrations
                said = core.read(command, RegisterBroker)
                assert (said.broker_name, said.broker_addr) == ("broker-a", "10.0.0.1:10911")
                assert (said.cluster_name, said.broker_id) == ("DefaultCluster", 0)
                assert said.ha_server_addr == "10.0.0.1:10912"
                assert said.body_crc32 == registration.body_crc32(command.body)
                assert said.enable_acting_master is False
                assert server.topics() == ["orders", "bills"]
            assert [state.problem for state in registrar.states] == ["", ""]
            await registrar.unregister()

    run(scenario())


def test_a_compressed_registration_is_readable_by_name_servers_of_4_x() -> None:
    async def scenario() -> None:
        async with name_servers() as (server,):
            registrar = registrar_of(server.address, compressed_register=True)

            await registrar.register_now()

            (command,) = server.registrations
            assert core.read(command, RegisterBroker).compressed is True
            assert command.body[0] == 0x78
            table = registration.decode(command.body, 407).topic_config_serialize_wrapper
            assert [topic.attributes for topic in table.topic_config_table.values()] == [None, None]
            await registrar.unregister()

    run(scenario())


@pytest.mark.parametrize(("allowed", "told"), [(4, 4), (2, 2), (0, 0), (6, 6), (7, 6)])
def test_what_the_broker_does_not_allow_no_topic_allows(allowed: int, told: int) -> None:
    async def scenario() -> None:
        async with name_servers() as (server,):
            registrar = registrar_of(server.address, broker_permission=allowed)

            await registrar.register_now()

            (command,) = server.registrations
            table = registration.decode(command.body, 513).topic_config_serialize_wrapper
            assert {topic.perm for topic in table.topic_config_table.values()} == {told}
            await registrar.unregister()

    run(scenario())


def test_a_name_server_that_is_named_twice_hears_it_once() -> None:
    async def scenario() -> None:
        async with name_servers() as (server,):
            registrar = registrar_of(server.address, server.address)

            await registrar.register_now()

            assert len(server.registrations) == 1
            await registrar.unregister()

    run(scenario())


def test_without_name_servers_a_broker_says_that_nobody_can_find_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        registrar = registrar_of()

        assert not await registrar.register_now()
        assert not await registrar.register_now()

        assert warnings_of(caplog) == [
            "no name server is set, so clients cannot find this broker (namesrvAddr)"
        ]
        await registrar.run()
        await registrar.unregister()

    run(scenario())


def test_changes_are_told_soon_and_many_at_once_as_one() -> None:
    async def scenario() -> None:
        topics = FakeTopics("orders", "bills")
        async with name_servers() as (server,):
            registrar = registrar_of(server.address, topics=topics)
            async with running(registrar):
                for number in range(100):
                    topics.add(f"topic-{number}")
                    registrar.mark([object()])

                await until(lambda: len(server.registrations) == 2)

                assert len(server.topics()) == 102

    run(scenario())


def test_what_changes_while_a_name_server_thinks_is_told_afterwards() -> None:
    async def scenario() -> None:
        topics = FakeTopics("orders", "bills")
        async with name_servers() as (server,):
            registrar = registrar_of(server.address, topics=topics)
            async with running(registrar):
                server.may_answer.clear()
                topics.add("first")
                registrar.mark()
                await until(lambda: len(server.registrations) == 2)
                for name in ("second", "third"):
                    topics.add(name)
                    registrar.mark()
                server.may_answer.set()

                await until(lambda: len(server.registrations) == 3)

                assert server.topics(1)[2:] == ["first"]
                assert server.topics(2)[2:] == ["first", "second", "third"]

    run(scenario())


def test_a_broker_registers_again_and_again() -> None:
    async def scenario() -> None:
        async with name_servers() as (server,):
            async with running(registrar_of(server.address, pace=RESTLESS)):
                await until(lambda: len(server.registrations) >= 3)

            assert not server.of(RequestCode.QUERY_DATA_VERSION)

    run(scenario())


def test_with_forcing_off_it_asks_first_and_registers_what_is_new() -> None:
    async def scenario() -> None:
        async with name_servers() as (server,):
            server.is_version_changed = False
            registrar = registrar_of(server.address, pace=RESTLESS, force_register=False)
            async with running(registrar):
                await until(lambda: len(server.of(RequestCode.QUERY_DATA_VERSION)) >= 3)
                assert len(server.registrations) == 1

                server.is_version_changed = True
                await until(lambda: len(server.registrations) >= 2)

    run(scenario())


def test_one_connection_carries_all_registrations() -> None:
    async def scenario() -> None:
        async with name_servers() as (server,):
            async with running(registrar_of(server.address, pace=RESTLESS)):
                await until(lambda: len(server.registrations) >= 3)

                assert len(server.server.channels) == 1

    run(scenario())


def test_a_name_server_that_is_down_does_not_keep_the_others_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with name_servers() as (server,):
            registrar = registrar_of(f"{LOOPBACK}:1", server.address)
            async with running(registrar):
                await until(lambda: registrar.states[1].is_registered)

                down, up = registrar.states
                assert (down.is_registered, down.registered_ms) == (False, None)
                assert "Connection refused" in down.problem
                assert up.registered_ms == FakeClock().now_ms()
                assert registrar.is_registered
                registrar.mark()
                await until(lambda: len(server.registrations) == 2)

            (warning,) = warnings_of(caplog)
            assert warning == (
                f"name_server={LOOPBACK}:1 not registered, trying again: cannot reach {LOOPBACK}:1:"
                " Connection refused"
            )

    run(scenario())


def test_a_lost_connection_is_made_again_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        caplog.set_level(logging.INFO, "cometmq.broker")
        async with name_servers() as (server,):
            registrar = registrar_of(server.address)
            async with running(registrar):
                for channel in server.server.channels:
                    channel.close("the name server restarts")

                await until(lambda: len(server.registrations) == 2)
                await until(lambda: registrar.is_registered)

        texts = [r.getMessage() for r in caplog.records if r.name == "cometmq.broker"]
        assert [text.split(" ", 1)[1] for text in texts] == [
            "registered with 2 topics",
            "not registered, trying again: the connection ended",
            "registered with 2 topics",
            "unregistered",
        ]

    run(scenario())


@pytest.mark.slow
def test_a_connection_on_which_nothing_comes_any_more_is_replaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with name_servers() as (server,):
            registrar = registrar_of(server.address, register_timeout_ms=100)
            async with running(registrar):
                server.dead = frozenset(server.server.channels)
                registrar.mark()

                await until(lambda: not server.dead.intersection(server.server.channels))
                await until(lambda: registrar.is_registered)

        (warning,) = warnings_of(caplog)
        assert warning.endswith("within 100 ms")

    run(scenario())


@pytest.mark.slow
def test_a_connection_on_which_something_came_is_kept() -> None:
    """Its name server is slow: if it lost the connection, it would forget the broker."""

    async def scenario() -> None:
        async with name_servers() as (server,):
            registrar = registrar_of(server.address, register_timeout_ms=500, force_register=False)
            await registrar.register_now()
            before = frozenset(server.server.channels)
            server.may_answer.clear()

            assert not await registrar.register_now()

            assert server.requests[-2].code == RequestCode.QUERY_DATA_VERSION
            server.may_answer.set()
            assert await registrar.register_now()
            assert frozenset(server.server.channels) == before
            await registrar.unregister()

    run(scenario())


def test_a_refused_registration_is_tried_again_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with name_servers() as (server,):
            server.answer = Answer(ResponseCode.SYSTEM_ERROR, remark="register broker failed")
            registrar = registrar_of(server.address)
            async with running(registrar):
                await until(lambda: len(server.registrations) >= 4)
                assert not registrar.is_registered
                server.answer = Answer()
                await until(lambda: registrar.is_registered)

        (warning,) = warnings_of(caplog)
        assert warning.endswith("not registered, trying again: code 1: register broker failed")

    run(scenario())


def test_a_name_server_that_never_answers_holds_a_start_up_no_longer_than_it_may() -> None:
    async def scenario() -> None:
        async with name_servers() as (server,):
            server.may_answer.clear()
            registrar = registrar_of(server.address, register_timeout_ms=20)

            assert not await registrar.register_now()

            assert "no answer" in registrar.states[0].problem

    run(scenario())


def test_topics_that_any_name_server_orders_are_ordered() -> None:
    async def scenario() -> None:
        said: list[Collection[str]] = []
        async with name_servers(3) as servers:
            servers[0].answer = Answer(body=bodies.encode(KVTable({"orders": "broker-a:4"})))
            servers[1].answer = Answer(body=bodies.encode(KVTable({"bills": "broker-a:1"})))
            registrar = registrar_of(*(s.address for s in servers), on_order=said.append)

            await registrar.register_now()

            assert set().union(*said) == {"orders", "bills"}
            await registrar.unregister()

    run(scenario())


def test_a_topic_is_not_ordered_by_what_name_servers_said_earlier() -> None:
    """Who ends the order of a topic takes it out of all of them, and then tells the broker."""

    async def scenario() -> None:
        said: list[Collection[str]] = []
        async with name_servers(2) as servers:
            for server in servers:
                server.answer = Answer(body=bodies.encode(KVTable({"orders": "broker-a:4"})))
            registrar = registrar_of(*(s.address for s in servers), on_order=said.append)
            await registrar.register_now()
            assert said == [{"orders"}, {"orders"}]
            for server in servers:
                server.answer = Answer(body=bodies.encode(KVTable({})))

            registrar.mark()
            await registrar.register_now()

            assert said[2:] == [set(), set()]
            await registrar.unregister()

    run(scenario())


def test_a_name_server_without_order_configuration_changes_nothing() -> None:
    async def scenario() -> None:
        said: list[Collection[str]] = []
        async with name_servers() as (server,):
            registrar = registrar_of(server.address, on_order=said.append)

            await registrar.register_now()

            assert said == []
            await registrar.unregister()

    run(scenario())


def test_a_broker_that_goes_says_so_everywhere_and_is_silent_afterwards() -> None:
    async def scenario() -> None:
        async with name_servers(2) as servers:
            registrar = registrar_of(*(server.address for server in servers))
            await registrar.register_now()
            task = asyncio.create_task(registrar.run())

            await registrar.unregister()
            registrar.mark()
            await task

            for server in servers:
                assert len(server.registrations) == 1
                (command,) = server.of(RequestCode.UNREGISTER_BROKER)
                said = core.read(command, UnregisterBroker)
                assert (said.broker_name, said.broker_addr) == ("broker-a", "10.0.0.1:10911")
                assert (said.cluster_name, said.broker_id) == ("DefaultCluster", 0)
                await until(lambda server=server: not server.server.channels)  # type: ignore[misc]

    run(scenario())


def test_a_broker_that_goes_waits_for_a_registration_in_work() -> None:
    """Else the name server might take it in again after the good-bye."""

    async def scenario() -> None:
        async with name_servers() as (server,):
            registrar = registrar_of(server.address)
            async with running(registrar):
                server.may_answer.clear()
                registrar.mark()
                await until(lambda: len(server.registrations) == 2)
                leaving = asyncio.create_task(registrar.unregister())
                await asyncio.sleep(0)
                assert not server.of(RequestCode.UNREGISTER_BROKER)

                server.may_answer.set()
                await leaving

                assert server.requests[-1].code == RequestCode.UNREGISTER_BROKER

    run(scenario())


def test_a_broker_that_never_reached_a_name_server_leaves_at_once() -> None:
    async def scenario() -> None:
        registrar = registrar_of(f"{LOOPBACK}:1")
        await registrar.register_now()

        await registrar.unregister()

        assert not registrar.is_registered

    run(scenario())


def test_many_topics_are_written_beside_the_loop_and_once_for_all() -> None:
    async def scenario() -> None:
        topics = FakeTopics(*(f"topic-{number}" for number in range(600)))
        async with name_servers(2) as servers:
            registrar = registrar_of(*(server.address for server in servers), topics=topics)

            await registrar.register_now()

            assert [len(server.topics()) for server in servers] == [600, 600]
            await registrar.unregister()

    run(scenario())


def test_our_own_name_server_has_the_routes_until_the_broker_goes(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = NameServerConfig(
            nameserver=NameServerSettings(
                kv_config_path=tmp_path / "kv.json", config_store_path=tmp_path / "ns.properties"
            ),
            network=NameServerNetworkSettings(listen_port=0, bind_address=LOOPBACK),
        )
        server = NameServer(config)
        await server.start()
        client = await connect(f"{LOOPBACK}:{server.port}")
        code, header = RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoByTopic("orders")
        registrar = registrar_of(f"localhost:{server.port}")
        async with running(registrar):
            found = await client.request(code, header, timeout_ms=5000)
            assert b"10.0.0.1:10911" in found.body

            await registrar.unregister()

            gone = await client.request(code, header, timeout_ms=5000)
            assert gone.code == ResponseCode.TOPIC_NOT_EXIST
        client.close()
        await server.stop()

    run(scenario())
