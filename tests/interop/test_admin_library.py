"""``cometmq.admin`` with our servers and both of Apache's releases: one suite for all three."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cometmq.admin import Admin
from cometmq.admin.message import Message
from cometmq.admin.messages import ConsumptionState
from cometmq.admin.positions import Earliest, Latest, Offset, Shift, Time
from cometmq.codec import bodies, core, properties
from cometmq.codec.bodies.clients import (
    ConsumeDirectlyResult,
    ConsumerData,
    ConsumeResult,
    ConsumerRunningInfo,
    HeartbeatData,
    ProcessQueueInfo,
)
from cometmq.codec.bodies.offsets import ResetOffsetBody
from cometmq.codec.codes import RequestCode
from cometmq.codec.command import Command
from cometmq.codec.headers.send import SendMessageResponse, SendMessageV2
from cometmq.codec.sysflag import COMPRESSED
from cometmq.errors import (
    AlreadyExists,
    ConnectionLost,
    NotFound,
    Refused,
    RequestTimeout,
    Unreachable,
    Unsupported,
)
from cometmq.model.group import SubscriptionData
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.channel import Channel
from cometmq.remoting.client import connect
from cometmq.remoting.routes import Answer, Routes
from tests.interop.apache import ApacheCluster
from tests.interop.broker import OurBroker
from tests.interop.nameserver import OurNameServer

pytestmark = [pytest.mark.interop, pytest.mark.slow]

OURS = "ours"
OLD = "4.9.7"
QUEUES = 2
TIMEOUT_MS = 10_000
SOON_S = 20.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Target:
    """A name server and one broker, ``broker-a``, of ``release``."""

    release: str
    namesrv: str
    broker: str

    @property
    def is_old(self) -> bool:
        return self.release == OLD


@pytest.fixture(scope="module")
def our_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder: Path = tmp_path_factory.mktemp("admin-library")
    with OurNameServer(folder / "namesrv") as namesrv:
        with OurBroker(folder / "broker", namesrv=namesrv.address) as broker:
            yield Target(OURS, namesrv.address, broker.address)


@pytest.fixture(params=[OURS, OLD, "5.5.0"])
def target(request: pytest.FixtureRequest) -> Target:
    if request.param == OURS:
        ours: Target = request.getfixturevalue("our_servers")
        return ours
    get: Callable[[str], ApacheCluster] = request.getfixturevalue("apache_cluster")
    cluster = get(request.param)
    return Target(request.param, cluster.namesrv.address, cluster.broker.address)


def run(scenario: Callable[..., Any], *arguments: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(100):
            await scenario(*arguments)

    asyncio.run(bounded())


# --- what the scenarios use


async def send(
    target: Target, topic: str, count: int, *, first: int = 0, sys_flag: int = 0
) -> list[str]:
    """Messages ``first`` to ``first + count``, in turn to each queue; returns their offset ids."""
    channel = await connect(target.broker)
    ids = []
    for number in range(first, first + count):
        text = properties.encode(
            {"KEYS": f"key-{number} every", "TAGS": "A", "UNIQ_KEY": unique_key(topic, number)}
        )
        header = SendMessageV2(
            "senders",
            topic,
            "TBW102",
            4,
            number % QUEUES,
            sys_flag,
            now_ms(),
            0,
            text,
            0,
            False,
            0,
            False,
        )
        code, text_body = RequestCode.SEND_MESSAGE_V2, f"message {number}".encode()
        answer = await channel.request(code, header, text_body, timeout_ms=TIMEOUT_MS)
        assert answer.code == 0, answer.remark
        ids.append(core.read(answer, SendMessageResponse).msg_id)
    channel.close()
    return ids


def unique_key(topic: str, number: int) -> str:
    return f"{abs(hash(topic)) & 0xFFFFFFFF:016X}{number << 32:016X}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def until(what: str, is_so: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SOON_S
    while not await is_so():
        assert time.monotonic() < deadline, f"still not so: {what}"
        await asyncio.sleep(POLL_S)


async def indexed(admin: Admin, topic: str, count: int) -> None:
    """Brokers build queues and index a moment after they have answered."""

    async def is_there() -> bool:
        return len(await admin.messages.by_key(topic, "every")) == count

    await until(f"{count} messages of {topic} in the index", is_there)


class Member:
    """A consumer that is asked things by its broker and does not consume."""

    def __init__(self, group: str, topic: str, client_id: str, expression: str = "*") -> None:
        self._group = group
        self._topic = topic
        self._expression = expression
        self.client_id = client_id
        self.resets: list[dict[int, int]] = []
        self.given: list[bytes] = []

    @property
    def routes(self) -> Routes:
        routes = Routes()
        routes.add(RequestCode.GET_CONSUMER_RUNNING_INFO, self._tell)
        routes.add(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume)
        routes.add(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset)
        routes.add(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, lambda channel, command: None)
        return routes

    @property
    def heartbeat(self) -> bytes:
        data = ConsumerData(self._group, subscription_data_set=(self._subscription,))
        return bodies.encode(HeartbeatData(self.client_id, consumer_data_set=(data,)))

    @property
    def _subscription(self) -> SubscriptionData:
        is_all = self._expression == "*"
        tags = () if is_all else (self._expression,)
        return SubscriptionData(self._topic, self._expression, tags, sub_version=now_ms())

    def _tell(self, channel: Channel, command: Command) -> Answer:
        queue = MessageQueue(self._topic, "broker-a", 0)
        info = ConsumerRunningInfo(
            {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
            (self._subscription,),
            {queue: ProcessQueueInfo(3, cached_msg_count=2)},
        )
        return Answer(body=bodies.encode(info))

    def _consume(self, channel: Channel, command: Command) -> Answer:
        self.given.append(command.body)
        result = ConsumeDirectlyResult(consume_result=ConsumeResult.CR_SUCCESS, spent_time_mills=7)
        return Answer(body=bodies.encode(result))

    def _reset(self, channel: Channel, command: Command) -> None:
        table = bodies.decode(ResetOffsetBody, command.body).offset_table
        self.resets.append({queue.queue_id: offset for queue, offset in table.items()})


@contextlib.asynccontextmanager
async def joined(target: Target, *members: Member) -> AsyncIterator[None]:
    channels = []
    for member in members:
        channel = await connect(target.broker, member.routes)
        channels.append(channel)
        answer = await channel.request(
            RequestCode.HEART_BEAT, body=member.heartbeat, timeout_ms=TIMEOUT_MS
        )
        assert answer.code == 0, answer.remark
    try:
        yield
    finally:
        for channel in channels:
            channel.close()


# --- servers


async def the_cluster(target: Target) -> None:
    async with Admin(f"127.0.0.1:1;{target.namesrv}") as admin:

        async def is_told() -> bool:
            return not any(state.problem for state in await admin.brokers.states())

        await until("brokers tell how they are: 4.9 does not at once", is_told)
        cluster = await admin.cluster()
        topics = {topic.name: topic.kind.value for topic in await admin.topics.list()}
        groups = {group.name: group.is_system for group in (await admin.groups.list()).groups}

        assert [server.broker_count for server in cluster.name_servers] == [None, 1]
        (broker,) = cluster.brokers
        assert (broker.broker_name, broker.address) == ("broker-a", target.broker)
        assert (broker.is_master, broker.problem) == (True, "")
        assert broker.version == ("5.5.0" if target.release == OURS else target.release)
        assert broker.log_max_offset is not None
        assert broker.disk_ratio is not None
        assert topics["broker-a"] == topics["TBW102"] == topics["DefaultCluster"] == "system"
        assert groups["TOOLS_CONSUMER"]


def test_the_cluster_is_shown_and_a_dead_name_server_passed_over(target: Target) -> None:
    run(the_cluster, target)


async def settings(target: Target) -> None:
    async with Admin(target.namesrv) as admin:
        is_ours = target.release == OURS
        changes = {"flushIntervalCommitLog": "432"} | ({"maxIndexNum": "1000"} if is_ours else {})
        (changed,) = await admin.brokers.set_config(changes, broker="broker-a")
        assert (changed.broker_name, changed.address) == ("broker-a", target.broker)
        assert changed.remark == ("takes effect after a restart: maxIndexNum" if is_ours else "")
        assert (await admin.brokers.config(target.broker)).values["flushIntervalCommitLog"] == "432"
        with pytest.raises(Refused) as caught:
            await admin.name_servers.set_config({"kvConfigPath": "elsewhere"})
        assert caught.value.response_code == 16
        await admin.name_servers.set_config({"clusterTest": "false"})
        (config,) = await admin.name_servers.config()
        assert config.values["clusterTest"] == "false"

        for told in (
            await admin.brokers.clean_expired_queues(),
            await admin.brokers.clean_unused_topics(),
            await admin.brokers.delete_expired_log(),
        ):
            assert told == (target.broker,)
        with pytest.raises(Unreachable):
            await admin.brokers.state("127.0.0.1:1")


def test_settings_are_changed_and_tidying_is_done(target: Target) -> None:
    run(settings, target)


async def keys_and_values(target: Target) -> None:
    async with Admin(target.namesrv) as admin:
        await admin.name_servers.set_value("admin-library", "k", "v")
        assert await admin.name_servers.values("admin-library") == {"k": "v"}
        assert await admin.name_servers.value("admin-library", "k") == "v"
        await admin.name_servers.delete_value("admin-library", "k")
        with pytest.raises(NotFound):
            await admin.name_servers.value("admin-library", "k")


def test_keys_and_values_come_and_go(target: Target) -> None:
    run(keys_and_values, target)


async def what_old_releases_lack(target: Target) -> None:
    async with Admin(target.namesrv) as admin:
        if target.is_old:
            with pytest.raises(Unsupported, match=r"RocketMQ 4\.9\.7 at .* lacks the state of"):
                await admin.brokers.replication("broker-a")
            with pytest.raises(Unsupported, match="lacks attributes of topics"):
                await admin.topics.create("attributed", attributes={"message.type": "NORMAL"})
        else:
            assert (await admin.brokers.replication("broker-a")).is_master
            if target.release == OURS:
                with pytest.raises(Unsupported, match=r"\d+ wait in all \(timerCongestNum"):
                    await admin.brokers.pending_timers("broker-a")
            else:
                assert isinstance(await admin.brokers.pending_timers("broker-a"), dict)


def test_what_a_release_lacks_is_said_in_one_line(target: Target) -> None:
    run(what_old_releases_lack, target)


# --- a broker that hangs


HANGING_TIMEOUT_MS = 1000


async def a_broker_hangs(first: Target, second: OurBroker) -> None:
    async with Admin(first.namesrv) as admin:
        await admin.topics.create("orders", queues=QUEUES)
        for group in ("billing", "doomed", "copy"):
            await admin.groups.create(group, retry_max=5)
        await send(first, "orders", 2)
        await send(Target(OURS, first.namesrv, second.address), "orders", 2, first=2)
        await indexed(admin, "orders", 4)
        await admin.offsets.reset("billing", "orders", Latest())
        ours = await admin.messages.get(unique_key("orders", 0), "orders")
        theirs = await admin.messages.get(unique_key("orders", 2), "orders")
        assert (ours.broker_name, theirs.broker_name) == ("broker-a", "broker-b")

        os.kill(second.process.pid, signal.SIGSTOP)
        try:
            async with Admin(first.namesrv, timeout_ms=HANGING_TIMEOUT_MS) as hasty:
                await nobody_is_told_half_of_it(hasty, second.address, ours, theirs)
        finally:
            os.kill(second.process.pid, signal.SIGCONT)

        await until("broker-b answers", lambda: has_answered(admin, second.address))
        assert {on.retry_max for on in await admin.groups.configs("billing")} == {5}
        assert {queue.offset for queue in (await admin.groups.lag("billing")).queues} == {1}
        assert await admin.groups.delete("doomed") == ("broker-a", "broker-b")
        with pytest.raises(NotFound):
            await admin.groups.delete("doomed")


async def nobody_is_told_half_of_it(
    admin: Admin, hanging: str, ours: Message, theirs: Message
) -> None:
    calls: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: admin.offsets.reset("billing", "orders", Earliest()),
        lambda: admin.offsets.clone("billing", "copy", "orders"),
        lambda: admin.groups.update("billing", retry_max=9),
        lambda: admin.groups.delete("doomed"),
        lambda: admin.topics.delete("orders"),
        lambda: admin.messages.get(theirs.message_id, "orders"),
        lambda: admin.messages.by_key("orders", "key-2"),
        lambda: admin.topics.groups("orders"),
    )
    for call in calls:
        with pytest.raises(Unreachable, match=f"cannot reach {hanging}: broker-b: no answer"):
            await call()
    assert await admin.messages.get(ours.message_id, "orders") == ours
    (of_ours,) = await admin.messages.consumption(ours)
    (of_theirs,) = await admin.messages.consumption(theirs)
    assert of_ours.state is ConsumptionState.CONSUMED
    assert of_theirs.state is ConsumptionState.UNKNOWN


async def has_answered(admin: Admin, broker: str) -> bool:
    try:
        await admin.brokers.state(broker)
    except (RequestTimeout, Unreachable, ConnectionLost):
        return False
    return True


def test_a_broker_that_hangs_is_named_and_nothing_is_changed_elsewhere(tmp_path: Path) -> None:
    with OurNameServer(tmp_path / "namesrv") as namesrv:
        settings = {"brokerName": "broker-b"}
        with (
            OurBroker(tmp_path / "a", namesrv=namesrv.address) as first,
            OurBroker(tmp_path / "b", namesrv=namesrv.address, settings=settings) as second,
        ):
            target = Target(OURS, namesrv.address, first.address)
            run(a_broker_hangs, target, second)


async def a_damaged_body(target: Target, topic: str) -> None:
    """A body that says it is compressed and is not, between two that are as they should be."""
    async with Admin(target.namesrv) as admin:
        await admin.topics.create(topic, queues=QUEUES)
        await send(target, topic, 1)
        await send(target, topic, 1, first=2, sys_flag=COMPRESSED)
        await send(target, topic, 1, first=4)
        await indexed(admin, topic, 3)

        browsed = [message async for message in admin.messages.browse(topic)]
        page = await admin.messages.page(topic, "broker-a", 0, 0)
        (found,) = await admin.messages.by_key(topic, "key-2")

        assert [message.body for message in browsed] == [b"message 0", b"message 2", b"message 4"]
        assert [message.body_problem is None for message in browsed] == [True, False, True]
        assert len(page.messages) == 3
        assert (found.body, "damaged" in (found.body_problem or "")) == (b"message 2", True)


def test_a_damaged_body_hides_no_other_message(target: Target, topic: str) -> None:
    run(a_damaged_body, target, topic)


# --- topics


async def life_of_a_topic(target: Target, topic: str) -> None:
    async with Admin(target.namesrv) as admin:
        (made,) = await admin.topics.create(topic, queues=QUEUES)
        assert (made.read_queues, made.write_queues, made.perm) == (QUEUES, QUEUES, 6)
        with pytest.raises(AlreadyExists):
            await admin.topics.create(topic)
        with pytest.raises(Refused, match="illegal characters"):
            await admin.topics.create("not a name!")

        await send(target, topic, 10)
        await indexed(admin, topic, 10)
        found = await admin.topics.describe(topic)
        assert [(q.queue_id, q.min_offset, q.max_offset) for q in found.stats.queues] == [
            (0, 0, 5),
            (1, 0, 5),
        ]

        (changed,) = await admin.topics.update(topic, read_queues=4, perm=4)
        assert (changed.read_queues, changed.write_queues, changed.perm) == (4, QUEUES, 4)
        assert [queue.queue_id for queue in (await admin.topics.stats(topic)).queues] == [
            0,
            1,
            2,
            3,
        ]

        assert await admin.topics.delete(topic) == ("broker-a",)
        with pytest.raises(NotFound):
            await admin.topics.describe(topic)
        assert topic not in {one.name for one in await admin.topics.list()}


def test_a_topic_is_made_filled_changed_and_deleted(target: Target, topic: str) -> None:
    run(life_of_a_topic, target, topic)


async def an_ordered_topic(target: Target, topic: str) -> None:
    async with Admin(target.namesrv) as admin:
        await admin.topics.create(topic, queues=3, is_ordered=True)
        assert await admin.name_servers.order_config(topic) == "broker-a:3"
        (changed,) = await admin.topics.update(topic, is_ordered=False)
        assert not changed.is_ordered
        assert await admin.name_servers.order_config(topic) is None
        await admin.topics.update(topic, is_ordered=True)
        await admin.topics.delete(topic)
        assert await admin.name_servers.order_config(topic) is None


def test_an_ordered_topic_is_known_to_the_name_server(target: Target, topic: str) -> None:
    run(an_ordered_topic, target, topic)


async def write_permission(target: Target, topic: str) -> None:
    async with Admin(target.namesrv) as admin:
        await admin.topics.create(topic)
        try:
            (taken,) = await admin.name_servers.wipe_write_permission("broker-a")
            assert taken.topic_count > 0
            assert (await admin.topics.route(topic)).brokers[0].perm == 4
        finally:
            await admin.name_servers.add_write_permission("broker-a")
        assert (await admin.topics.route(topic)).brokers[0].perm == 6


def test_permission_to_write_is_taken_and_given_back(target: Target, topic: str) -> None:
    run(write_permission, target, topic)


# --- messages


async def finding(target: Target, topic: str) -> None:
    async with Admin(target.namesrv) as admin:
        await admin.topics.create(topic, queues=QUEUES)
        ids = await send(target, topic, 6)
        await indexed(admin, topic, 6)

        message = await admin.messages.get(ids[3])
        assert (message.body, message.queue_id, message.queue_offset) == (b"message 3", 1, 1)
        assert (message.broker_name, message.offset_id) == ("broker-a", ids[3])
        assert message.keys == ("key-3", "every")
        assert await admin.messages.get(unique_key(topic, 3), topic) == message
        assert await admin.messages.by_key(topic, "key-3") == (message,)
        assert await admin.messages.at(topic, "broker-a", 1, 1) == message
        place = message.physical_offset
        assert await admin.messages.at_physical("broker-a", place) == message
        entries = await admin.messages.entries(topic, "broker-a", 1, 1, count=1)
        assert [entry.physical_offset for entry in entries] == [place]

        with pytest.raises(NotFound):
            await admin.messages.get(unique_key(topic, 99), topic)
        with pytest.raises(NotFound):
            await admin.messages.at(topic, "broker-a", 1, 99)
        with pytest.raises(NotFound):
            await admin.messages.at_physical("broker-a", place + 1)


def test_a_message_is_found_in_every_way(target: Target, topic: str) -> None:
    run(finding, target, topic)


async def browsing(target: Target, topic: str) -> None:
    async with Admin(target.namesrv) as admin:
        await admin.topics.create(topic, queues=QUEUES)
        await send(target, topic, 5)
        await asyncio.sleep(0.05)
        between = now_ms()
        await asyncio.sleep(0.05)
        await send(target, topic, 100, first=5)
        await until_stored(admin, topic, 105)

        everything = [m.body async for m in admin.messages.browse(topic)]
        later = [m.body async for m in admin.messages.browse(topic, begin=Time(between))]
        few = [m.body async for m in admin.messages.browse(topic, queue_id=1, limit=2)]

        assert everything == [b"message %d" % number for number in range(105)]
        assert later == everything[5:]
        assert few == [b"message 1", b"message 3"]


async def until_stored(admin: Admin, topic: str, count: int) -> None:
    async def is_so() -> bool:
        return (await admin.topics.stats(topic)).message_count == count

    await until(f"{count} messages in {topic}", is_so)


def test_a_topic_is_browsed_in_the_order_of_storing(target: Target, topic: str) -> None:
    run(browsing, target, topic)


async def tracing(target: Target, topic: str) -> None:
    async with Admin(target.namesrv) as admin:
        key = unique_key(topic, 1)
        report = f"Pub\x01{now_ms()}\x01R\x01PG\x01{topic}\x01{key}\x01A\x01k\x01h\x015\x013\x010"
        await admin.topics.create(topic, queues=QUEUES)
        channel = await connect(target.broker)
        text = properties.encode({"KEYS": key, "UNIQ_KEY": unique_key(topic, 2)})
        header = SendMessageV2("tracer", topic, "TBW102", 4, 0, 0, now_ms(), 0, text, 0)
        code, sent = RequestCode.SEND_MESSAGE_V2, f"{report}\x01OFFSET\x01true\x02".encode()
        await channel.request(code, header, sent, timeout_ms=TIMEOUT_MS)
        channel.close()

        async def is_there() -> bool:
            return bool(await admin.messages.trace(key, topic=topic))

        await until("the report in the index", is_there)
        (record,) = await admin.messages.trace(key, topic=topic)
        assert (record.kind.value, record.group, record.is_success) == ("sent", "PG", True)


def test_a_trace_is_read_from_the_topic_of_reports(target: Target, topic: str) -> None:
    run(tracing, target, topic)


async def statistics(target: Target, topic: str) -> None:
    async with Admin(target.namesrv) as admin:
        await admin.topics.create(topic, queues=QUEUES)
        with pytest.raises(NotFound):
            await admin.brokers.statistic("TOPIC_PUT_NUMS", f"{topic}-never", "broker-a")
        await send(target, topic, 3)
        (found,) = await admin.brokers.statistics("TOPIC_PUT_NUMS", topic)
        assert (found.broker_name, found.key) == ("broker-a", topic)


def test_statistics_are_there_once_something_happened(target: Target, topic: str) -> None:
    run(statistics, target, topic)


# --- groups and offsets


async def life_of_a_group(target: Target, topic: str) -> None:
    group = f"GID_{topic}"
    async with Admin(target.namesrv) as admin:
        (made,) = await admin.groups.create(group, retry_max=3, is_broadcast_enabled=False)
        assert (made.retry_max, made.is_broadcast_enabled, made.is_consume_enabled) == (
            3,
            False,
            True,
        )
        with pytest.raises(AlreadyExists):
            await admin.groups.create(group)
        (changed,) = await admin.groups.update(group, is_consume_enabled=False)
        assert (changed.retry_max, changed.is_consume_enabled) == (3, False)

        found = await admin.groups.describe(group)
        assert found.membership.members == ()
        assert await admin.groups.delete(group) == ("broker-a",)
        with pytest.raises(NotFound):
            await admin.groups.describe(group)
        names = {one.name for one in await admin.topics.list()}
        assert names.isdisjoint({f"%RETRY%{group}", f"%DLQ%{group}"})


def test_a_group_is_made_changed_and_deleted_with_its_topics(target: Target, topic: str) -> None:
    run(life_of_a_group, target, topic)


async def moving(target: Target, topic: str) -> None:
    group = f"GID_{topic}"
    async with Admin(target.namesrv) as admin:
        await admin.topics.create(topic, queues=QUEUES)
        await admin.groups.create(group)
        await send(target, topic, 10)
        await asyncio.sleep(0.05)
        between = now_ms()
        await asyncio.sleep(0.05)
        await send(target, topic, 10, first=10)
        await indexed(admin, topic, 20)

        async def offsets() -> list[int]:
            lag = await admin.groups.lag(group, topic)
            return [queue.offset for queue in lag.queues]

        plan = await admin.offsets.plan(group, topic, Latest())
        assert [move.after for move in plan.moves] == [10, 10]
        await admin.offsets.reset(group, topic, Latest())
        assert await offsets() == [10, 10]
        assert (await admin.groups.lag(group, topic)).lag == 0
        await admin.offsets.reset(group, topic, Earliest())
        assert await offsets() == [0, 0]
        await admin.offsets.reset(group, topic, Time(between))
        # 4.9 finds the message before a time that lies between two.
        assert await offsets() == ([4, 4] if target.is_old else [5, 5])
        await admin.offsets.reset(group, topic, Offset(7))
        assert await offsets() == [7, 7]
        moved = await admin.offsets.reset(group, topic, Shift(-2), broker="broker-a", queue_id=1)
        assert [(move.before, move.after) for move in moved.moves] == [(7, 5)]
        assert await offsets() == [7, 5]

        await admin.groups.create(f"{group}_2")
        await admin.offsets.clone(group, f"{group}_2", topic)
        copied = await admin.groups.lag(f"{group}_2", topic)
        assert [queue.offset for queue in copied.queues] == [7, 5]
        assert {group, f"{group}_2"} <= set(await admin.topics.groups(topic))
        delays = await admin.groups.delay(group, topic)
        assert [delay.queue_id for delay in delays] == [0, 1]
        backlog = {one.group: one.lag for one in await admin.brokers.backlog("broker-a")}
        assert backlog[group] == 8


def test_a_group_without_members_is_moved_anywhere(target: Target, topic: str) -> None:
    run(moving, target, topic)


async def live_members(target: Target, topic: str) -> None:
    group = f"GID_{topic}"
    one, two = Member(group, topic, "one@1"), Member(group, topic, "two@2", "B")
    async with Admin(target.namesrv) as admin:
        await admin.topics.create(topic, queues=QUEUES)
        await admin.groups.create(group)
        await send(target, topic, 10)
        await indexed(admin, topic, 10)

        async with joined(target, one, two):
            membership = await admin.groups.members(group)
            assert [member.client_id for member in membership.members] == ["one@1", "two@2"]
            assert {member.language for member in membership.members} == {"PYTHON"}
            assert topic in {subscription.topic for subscription in membership.subscriptions}
            problems = await admin.groups.inconsistencies(group)
            assert f"topic '{topic}': two@2 wants 'B' but one@1 wants '*'" in problems
            info = await admin.clients.running_info(group, "two@2")
            assert [(queue.commit_offset, queue.cached_count) for queue in info.queues] == [(3, 2)]

            message = await admin.messages.at(topic, "broker-a", 0, 0)
            done = await admin.messages.consume_directly(message, group, "one@1")
            assert (done.outcome, done.spent_ms) == ("CR_SUCCESS", 7)
            assert len(one.given) == 1
            with pytest.raises(NotFound):
                await admin.messages.consume_directly(message, group, "nobody")

        async def is_empty() -> bool:
            return (await admin.groups.members(group)).members == ()

        await until("both members gone", is_empty)


def test_members_are_asked_through_their_broker(target: Target, topic: str) -> None:
    run(live_members, target, topic)


async def moving_members(target: Target, topic: str) -> None:
    group = f"GID_{topic}"
    member = Member(group, topic, "one@1")
    async with Admin(target.namesrv) as admin:
        await admin.topics.create(topic, queues=QUEUES)
        await admin.groups.create(group)
        await send(target, topic, 10)
        await indexed(admin, topic, 10)

        async with joined(target, member):
            await admin.offsets.reset(group, topic, Latest())
            if target.is_old:
                # Told to the member, which is to store it; ours here does not.
                await until("the member was told", lambda: told(member))
                assert member.resets == [{0: 5, 1: 5}]
                with pytest.raises(Unsupported, match="moving connected members to exact"):
                    await admin.offsets.reset(group, topic, Offset(2))
            else:
                await admin.offsets.reset(group, topic, Offset(2))
                assert await admin.offsets.get(group, topic, "broker-a", 1) == 2

        message = await admin.messages.at(topic, "broker-a", 0, 1)
        states = {one.group: one.state for one in await admin.messages.consumption(message)}
        assert states[group] is ConsumptionState.CONSUMED


async def told(member: Member) -> bool:
    return bool(member.resets)


def test_a_group_with_members_is_moved_as_far_as_its_broker_can(target: Target, topic: str) -> None:
    run(moving_members, target, topic)
