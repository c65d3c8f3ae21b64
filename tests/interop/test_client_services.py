"""Our Python client with brokers and tools: transactions, traces, and what brokers ask of it.

All brokers are started at once; their waits are as short as they can be set.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from cometmq.admin import Admin
from cometmq.client.client import Client
from cometmq.client.core.message import Message
from cometmq.client.core.results import LocalState
from cometmq.codec import bodies as json_bodies
from cometmq.codec.bodies.offsets import ConsumerOffsetTable
from cometmq.codec.codes import RequestCode
from cometmq.codec.trace import TraceKind
from tests.interop import asking, membership
from tests.interop.admin_shell import AdminShell
from tests.interop.apache import VERSIONS as APACHE
from tests.interop.apache import ApacheBroker
from tests.interop.broker import OurBroker
from tests.interop.broker_fixtures import Programs
from tests.interop.cache import Cache
from tests.interop.clients import Event
from tests.interop.feature_shell import FeatureProgram
from tests.interop.mqadmin import VERSIONS as TOOLS
from tests.interop.nameserver import OurNameServer

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

OURS = "ours"
SETTINGS: Mapping[str, str] = {"traceTopicEnable": "true"}
# A half message is asked about after a second; an end that was told is written down at once.
TRANSACTIONS: Mapping[str, str] = {
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "transactionOpBatchInterval": "100",
}
SOON_S = 30.0
POLL_S = 0.05

Shells = Callable[[str], AdminShell]


@dataclass(frozen=True, slots=True)
class Target:
    """One broker of ``release`` and the name server that knows it."""

    release: str
    namesrv: str
    broker: OurBroker | ApacheBroker

    def create_topic(self, topic: str, *, queues: int = 2) -> None:
        asking.create_topic(self.broker.address, topic, queues=queues)
        asking.wait_until_known([self.namesrv], topic)


@pytest.fixture(scope="module")
def targets(cache: Cache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Target]]:
    folder = tmp_path_factory.mktemp("client-services")
    with ExitStack() as stack, ThreadPoolExecutor() as pool:

        def start(release: str) -> Target:
            return stack.enter_context(_Started(cache, release, folder / release)).target

        yield {target.release: target for target in pool.map(start, (OURS, *APACHE))}


class _Started:
    """The servers of one release, which are killed in the end: nobody opens their stores again."""

    def __init__(self, cache: Cache, release: str, folder: Path) -> None:
        self._namesrv = OurNameServer(folder / "namesrv")
        self._broker: OurBroker | ApacheBroker
        try:
            where: dict[str, Any] = {"namesrv": self._namesrv.address}
            if release == OURS:
                self._broker = OurBroker(folder / "broker", settings=SETTINGS, **where)
            else:
                settings = {**SETTINGS, **TRANSACTIONS}
                path = folder / "broker"
                self._broker = ApacheBroker(cache, release, path, settings=settings, **where)
        except BaseException:
            self._namesrv.stop()
            raise
        self.target = Target(release, self._namesrv.address, self._broker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.kill()
        self._namesrv.stop()


@pytest.fixture(params=[OURS, *APACHE])
def target(request: pytest.FixtureRequest, targets: dict[str, Target]) -> Target:
    return targets[request.param]


@pytest.fixture(params=APACHE)
def apaches(request: pytest.FixtureRequest, targets: dict[str, Target]) -> Target:
    """Where there are transactions."""
    return targets[request.param]


def run(scenario: Callable[..., Any], *arguments: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(100):
            await scenario(*arguments)

    asyncio.run(bounded())


# --- transactions


def test_transactions_end_as_their_local_parts_or_their_checks_say(
    apaches: Target, topic: str
) -> None:
    run(end_transactions, apaches, topic)


async def end_transactions(target: Target, topic: str) -> None:
    target.create_topic(topic)
    asked: list[str] = []

    def check(message: Message[str]) -> LocalState:
        asked.append(message.value)
        assert message.topic == topic
        return LocalState.COMMIT if message.tag == "good" else LocalState.ROLLBACK

    def raising(_: object) -> LocalState:
        raise ValueError("nobody knows how this ended")

    async def committing(_: object) -> LocalState:
        return LocalState.COMMIT

    async with Client(target.namesrv) as mq:
        producer = mq.transaction_producer(f"PG_{topic}", check, codec=str)
        commit = await producer.send(topic, "committed", local=committing)
        await producer.send(topic, "dropped", local=lambda _: LocalState.ROLLBACK)
        await producer.send(topic, "good", local=lambda _: LocalState.UNKNOWN, tag="good")
        await producer.send(topic, "bad", local=raising, tag="bad")

        await until(lambda: sorted(asked) == ["bad", "good"], "both are asked for")
        await until_stored(target, topic, {"committed", "good"})
        assert commit.state is LocalState.COMMIT
        # Whoever is told an end does not ask again.
        await asyncio.sleep(1.5)
        assert sorted(asked) == ["bad", "good"]
        assert await stored(target, topic) == ["committed", "good"]


def test_a_producer_answers_for_another_that_is_gone(apaches: Target, topic: str) -> None:
    run(take_over_transactions, apaches, topic)


async def take_over_transactions(target: Target, topic: str) -> None:
    target.create_topic(topic)
    asked: list[Message[bytes]] = []

    def check(message: Message[bytes]) -> LocalState:
        asked.append(message)
        return LocalState.COMMIT

    async with Client(target.namesrv) as mq:
        producer = mq.transaction_producer(f"PG_{topic}", lambda _: LocalState.UNKNOWN)
        left = await producer.send(topic, b"left", local=lambda _: LocalState.UNKNOWN, keys="k1")

    async with Client(target.namesrv) as mq:
        mq.transaction_producer(f"PG_{topic}", check, topics=[topic])
        await until_stored(target, topic, {"left"})

    assert {message.message_id for message in asked} == {left.sent.message_id}
    assert (asked[0].keys, asked[0].topic) == (("k1",), topic)
    assert asked[0].transaction_id == left.sent.transaction_id


# --- what brokers and tools ask of a consumer


def test_tools_see_a_consumer_let_it_handle_a_message_and_send_it_back(
    target: Target, admin_shell: Shells, topic: str
) -> None:
    run(serve_tools, target, admin_shell, topic)


async def serve_tools(target: Target, admin_shell: Shells, topic: str) -> None:
    group, handled = f"G_{topic}", Counter[str]()

    def handle(message: Message[str]) -> None:
        handled[message.value] += 1
        if message.value == "bad" and handled["bad"] > 1:
            raise ValueError("no ledger")

    target.create_topic(topic)
    async with Client(target.namesrv, rebalance_gap_ms=0, persist_interval_ms=100) as mq:
        consumer = mq.consumer(group, codec=str, start="first", pull_hold_ms=500)
        consumer.subscribe(topic)
        await consumer.start(handle)
        producer = mq.producer()
        sent = {name: (await producer.send(topic, name)).offset_id for name in ("good", "bad")}
        await until(lambda: handled == Counter(good=1, bad=1), "both are handled")
        # Tools look for a group through its retry topic, which name servers learn of a bit later.
        retry = f"%RETRY%{group}"
        await asyncio.to_thread(asking.wait_until_known, [target.namesrv], retry)

        for tool in TOOLS:
            mqadmin = Tool(admin_shell(tool), tool, target.namesrv, group)
            await mqadmin.looks_at(consumer.client_id, topic)
            await mqadmin.hands_over(sent["good"], consumer.client_id, topic, "CR_SUCCESS")
            await mqadmin.hands_over(sent["bad"], consumer.client_id, topic, "CR_THROW_EXCEPTION")
        assert handled == Counter(good=3, bad=3)

        # 4.9.7 resets no group that has not stored an offset for each queue.
        await until(lambda: committed(target, topic, group) == 2, "offsets are stored")
        handled.clear()
        mqadmin = Tool(admin_shell(TOOLS[0]), TOOLS[0], target.namesrv, group)
        said = await mqadmin("resetOffsetByTime", "-t", topic, "-s", "0")
        assert said.count(target.broker.name) == 2, said
        await until(lambda: min(handled["good"], handled["bad"]) == 1, "both are handled again")


@dataclass(frozen=True, slots=True)
class Tool:
    """Apache's tool of one release, asked about one group."""

    shell: AdminShell
    release: str
    namesrv: str
    group: str

    async def __call__(self, verb: str, *argv: str) -> str:
        where = ("-n", self.namesrv, "-g", self.group)
        return await asyncio.to_thread(self.shell, verb, *where, *argv)

    async def looks_at(self, client_id: str, topic: str) -> None:
        connections = await self("consumerConnection")
        assert client_id in connections, connections
        assert "PYTHON" in connections, connections
        assert_described(await self("consumerStatus", "-i", client_id, "-s"), topic, queues=2)
        overview = await self("consumerStatus")
        assert "Rebalance OK" in overview, overview

    async def hands_over(self, offset_id: str, client_id: str, topic: str, outcome: str) -> None:
        more = ("-t", topic) if self.release == "5.5.0" else ()
        said = await self("queryMsgById", "-i", offset_id, "-d", client_id, *more)
        assert f"consumeResult={outcome}" in said, said


def assert_described(status: str, topic: str, *, queues: int) -> None:
    """What ``consumerStatus`` shows of one consumer is all there."""
    properties, _, rest = status.partition("#Consumer Subscription#")
    subscriptions, _, rest = rest.partition("#Consumer Offset#")
    offsets, _, rest = rest.partition("#Consumer MQ Detail#")
    assert "PROP_CONSUME_TYPE" in properties, status
    assert topic in subscriptions, status
    assert len(re.findall(rf"^{topic} ", offsets, re.MULTILINE)) == queues, status
    assert "#Consumer RT&TPS#" in rest, status
    assert "#Consumer jstack#" in rest, status


# --- traces


def test_traces_of_python_can_be_read_by_all_tools(
    target: Target, admin_shell: Shells, topic: str
) -> None:
    run(trace, target, admin_shell, topic)


async def trace(target: Target, admin_shell: Shells, topic: str) -> None:
    target.create_topic(topic)
    group, producers = f"G_{topic}", f"PG_{topic}"
    async with Client(target.namesrv) as mq:
        consumer = mq.consumer(group, start="first", is_traced=True)
        consumer.subscribe(topic)
        done = asyncio.Event()

        async def handle(_: Message[bytes]) -> None:
            done.set()

        await consumer.start(handle)
        producer = mq.producer(producers, is_traced=True)
        sent = await producer.send(topic, b"traced", tag="a", keys="k1")
        async with asyncio.timeout(SOON_S):
            await done.wait()

    for tool in TOOLS:
        shell = admin_shell(tool)
        is_shown = partial(shows_trace, shell, target, sent.message_id, producers, group)
        await asyncio.to_thread(asking.wait_until, is_shown, f"{tool} shows the trace")
    async with Admin(target.namesrv) as admin:
        records = await admin.messages.trace(sent.message_id)
    assert {record.kind for record in records} == {
        TraceKind.SENT,
        TraceKind.RECEIVED,
        TraceKind.CONSUMED,
    }


def shows_trace(
    tool: AdminShell, target: Target, message_id: str, producers: str, group: str
) -> bool:
    said = tool("queryMsgTraceById", "-n", target.namesrv, "-i", message_id)
    lines = [line.split() for line in said.splitlines()]
    return all(
        any(line[:2] == [kind, who] and "success" in line for line in lines)
        for kind, who in (("Pub", producers), ("Sub", group))
    )


# --- request and reply


def test_python_and_java_reply_to_each_other(
    targets: dict[str, Target], program: Programs, topic: str
) -> None:
    run(ask_each_other, targets["5.5.0"], program("java-5.5.0"), topic)


async def ask_each_other(target: Target, java: FeatureProgram, topic: str) -> None:
    """Java answers with what it was asked in capitals; so does Python."""
    for_java, for_python = f"{topic}_java", f"{topic}_python"
    where = {"namesrv": target.namesrv}
    for name in (for_java, for_python):
        target.create_topic(name)
    membership.join_and_leave(target.broker.address, f"G_{for_java}")
    asking.wait_until_known([target.namesrv], f"%RETRY%G_{for_java}")

    async def call(verb: str, **options: Any) -> list[Event]:
        return await asyncio.to_thread(java.call, verb, **options)

    async with Client(target.namesrv) as mq:
        producer = mq.producer()
        consumer = mq.consumer(f"G_{for_python}", codec=str, start="first")
        consumer.subscribe(for_python)

        async def answer(message: Message[str]) -> None:
            await producer.reply(message, message.value.upper())

        await consumer.start(answer)
        await call("answer", name=topic, group=f"G_{for_java}", topic=for_java, **where)
        try:
            reply = await producer.request(for_java, "to java", reply_type=str, timeout_ms=20_000)
            asked = {"mode": "sync", "bodies": ["to python"], "topic": for_python, **where}
            (event,) = await call("request", **asked)
        finally:
            await call("stop", name=topic, inBackground=True)

    assert reply.value == "TO JAVA"
    assert event.get("body") == "TO PYTHON", event


# --- helpers


async def until(is_so: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(SOON_S):
            while not is_so():
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise AssertionError(f"not within {SOON_S} s: {what}") from None


async def until_stored(target: Target, topic: str, bodies: set[str]) -> None:
    async with asyncio.timeout(SOON_S):
        while not bodies <= set(await stored(target, topic)):
            await asyncio.sleep(POLL_S)


def committed(target: Target, topic: str, group: str) -> int:
    """How many messages a group has done with, in all queues."""
    answer = asking.ask_well(target.broker.address, RequestCode.GET_ALL_CONSUMER_OFFSET)
    table = json_bodies.decode(ConsumerOffsetTable, answer.body).offset_table
    return sum(table.get(f"{topic}@{group}", {}).values())


async def stored(target: Target, topic: str) -> list[str]:
    """Bodies of all messages of a topic."""
    async with Admin(target.namesrv) as admin:
        messages = [message async for message in admin.messages.browse(topic)]
    return sorted(message.body.decode() for message in messages)
