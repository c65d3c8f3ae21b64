"""What a client answers its broker, with members that do as they are told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any

import msgspec
import pytest

from cometmq.client import answering
from cometmq.client.core.settings import ClientSettings
from cometmq.client.instance import Instance
from cometmq.client.name_servers import NameServers
from cometmq.client.routes import Routes as TopicRoutes
from cometmq.codec import bodies
from cometmq.codec.bodies.clients import (
    ConsumeDirectlyResult,
    ConsumerData,
    ConsumeResult,
    ConsumerRunningInfo,
)
from cometmq.codec.bodies.offsets import (
    ConsumerStatusBody,
    QueueOffsetForCpp,
    ResetOffsetBody,
    ResetOffsetBodyForCpp,
)
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.clients import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatus,
    NotifyConsumerIdsChanged,
)
from cometmq.codec.headers.offsets import ResetOffset
from cometmq.codec.headers.reply import PushReplyMessageToClient
from cometmq.codec.headers.transaction import CheckTransactionState
from cometmq.codec.properties import decode as decode_properties
from cometmq.codec.properties import encode as encode_properties
from cometmq.codec.record import MAGIC_V1, Record, assemble, pack_host, record_bytes, unpack_host
from cometmq.codec.sysflag import BORN_HOST_V6, COMPRESSED
from cometmq.errors import BrokerError
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.channel import Channel
from cometmq.remoting.connections import Connections
from cometmq.remoting.routes import Answer, Routes
from cometmq.remoting.server import Server
from cometmq.testing import FakeClock

LOOPBACK = "127.0.0.1"
GROUP = "billing"
TOPIC = "orders"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
HELLO = RequestCode.HEART_BEAT
FENCE = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT


class FakeProducer:
    """Remembers which transactions were asked for."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.checks: list[tuple[str, CheckTransactionState, Record]] = []

    def topics(self) -> Collection[str]:
        return ()

    def check_transaction(self, address: str, request: CheckTransactionState, half: Record) -> None:
        self.checks.append((address, request, half))


class FakeConsumer:
    """Answers what it is told to; what takes time waits for ``gate``."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.gate = asyncio.Event()
        self.gate.set()
        self.wakes = 0
        self.resets: list[tuple[str, Mapping[MessageQueue, int]]] = []
        self.consumed: list[tuple[Record, str]] = []
        self.stacks: list[bool] = []
        self.problem: Exception | None = None

    def topics(self) -> Collection[str]:
        return (TOPIC,)

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(self.group)

    def wake_rebalance(self) -> None:
        self.wakes += 1

    async def persist(self) -> None:
        return None

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        await self.gate.wait()
        self.resets.append((topic, offsets))

    def offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        return {QUEUE: 7} if topic in ("", TOPIC) else {}

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        self.stacks.append(with_stacks)
        return ConsumerRunningInfo({"PROP_CLIENT_VERSION": "V5_5_0"})

    async def consume_directly(self, message: Record, broker_name: str) -> ConsumeDirectlyResult:
        self.consumed.append((message, broker_name))
        await self.gate.wait()
        if self.problem is not None:
            raise self.problem
        return ConsumeDirectlyResult(consume_result=ConsumeResult.CR_SUCCESS, spent_time_mills=3)


class Scene(msgspec.Struct):
    """A client and its broker; ``broker`` is the broker's end of their connection."""

    instance: Instance
    producer: FakeProducer
    consumer: FakeConsumer
    broker: Channel
    address: str

    async def ask(self, code: RequestCode, header: Any = None, body: bytes = b"") -> Command:
        return await self.broker.request(code, header, body, timeout_ms=5_000)

    async def tell(self, code: RequestCode, header: Any = None, body: bytes = b"") -> None:
        """Something one-way; it has been dealt with at the end, for requests come in order."""
        self.broker.oneway(code, header, body)
        await self.ask(FENCE, GetConsumerStatus("", ""))


@contextlib.asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    ends: list[Channel] = []

    def hello(channel: Channel, _: Command) -> Answer:
        ends.append(channel)
        return Answer()

    routes = Routes()
    routes.add(HELLO, hello)
    server = Server(routes)
    await server.start(LOOPBACK, 0)
    instance = make_instance()
    producer, consumer = FakeProducer("payers"), FakeConsumer(GROUP)
    instance.producers[producer.group] = producer
    address = f"{LOOPBACK}:{server.ports[0]}"
    try:
        await instance.ask(address, HELLO)
        instance.consumers[consumer.group] = consumer
        yield Scene(instance, producer, consumer, ends[0], address)
    finally:
        await instance.stop()
        await server.stop()


def make_instance() -> Instance:
    name_servers = NameServers(("127.0.0.1:1",), Connections(owner="client"))
    return Instance(
        "10.0.0.9@1#2",
        settings=ClientSettings(),
        routes=TopicRoutes(name_servers, timeout_ms=100),
        clock=FakeClock(now_ms=5_000),
    )


def stored(**properties: str) -> bytes:
    """A record as brokers send it."""
    text, body = encode_properties(properties).encode(), b"hello"
    host = pack_host("10.0.1.1", 10911)
    size = record_bytes(len(body), len(TOPIC), len(text), 0)
    head = (size, MAGIC_V1, TOPIC.encode(), body, len(body), text)
    return assemble(*head, 2, 11, 4_096, 1_000, 900, host, host, 0, 0, 0, 0)


# --- transactions


async def test_a_check_goes_to_the_producer_of_the_messages_group() -> None:
    async with scene() as it:
        header = CheckTransactionState(11, 4_096, "ID", "TX")

        await it.tell(RequestCode.CHECK_TRANSACTION_STATE, header, stored(PGROUP="payers"))

        ((address, request, half),) = it.producer.checks
        assert address == it.address
        assert (request.tran_state_table_offset, request.commit_log_offset) == (11, 4_096)
        assert half.body == b"hello"


@pytest.mark.parametrize(
    "body", [stored(PGROUP="strangers"), stored(), b"", b"rubbish", stored(PGROUP="payers") * 2]
)
async def test_a_check_that_nobody_can_answer_is_passed_over(body: bytes) -> None:
    async with scene() as it:
        await it.tell(
            RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionState(1, 2, "ID", "TX"), body
        )

        assert it.producer.checks == []


# --- members


async def test_a_change_of_members_wakes_every_consumer() -> None:
    async with scene() as it:
        await it.tell(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChanged("whichever")
        )

        assert it.consumer.wakes == 1


# --- offsets


@pytest.mark.parametrize(
    "body",
    [
        bodies.encode(ResetOffsetBody({QUEUE: 42})),
        bodies.encode(ResetOffsetBodyForCpp((QueueOffsetForCpp(TOPIC, "broker-a", 0, 42),))),
        b'{"offsetTable":[[{"topic":"orders","brokerName":"broker-a","queueId":0},42]]}',
    ],
    ids=["java", "cpp", "go"],
)
async def test_a_reset_is_understood_in_every_dialect(body: bytes) -> None:
    async with scene() as it:
        await it.tell(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffset(TOPIC, GROUP, 0), body)

        assert it.consumer.resets == [(TOPIC, {QUEUE: 42})]


@pytest.mark.parametrize(("group", "body"), [("others", b"{}"), (GROUP, b"[1"), (GROUP, b"")])
async def test_a_reset_that_is_not_for_us_or_not_readable_changes_nothing(
    group: str, body: bytes
) -> None:
    async with scene() as it:
        await it.tell(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffset(TOPIC, group, 0), body)

        assert it.consumer.resets == []


async def test_a_reset_that_takes_long_holds_nothing_up_and_survives_its_connection() -> None:
    async with scene() as it:
        it.consumer.gate.clear()
        body = bodies.encode(ResetOffsetBody({QUEUE: 42}))
        await it.tell(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffset(TOPIC, GROUP, 0), body)

        it.instance.connections.forget(it.address, "test")
        await asyncio.sleep(0)
        assert it.consumer.resets == []
        it.consumer.gate.set()
        await asyncio.sleep(0)

        assert len(it.consumer.resets) == 1


@pytest.mark.parametrize(
    ("topic", "group", "offsets"),
    [(TOPIC, GROUP, {QUEUE: 7}), ("", GROUP, {QUEUE: 7}), ("else", GROUP, {}), (TOPIC, "who", {})],
)
async def test_offsets_in_memory_are_told(
    topic: str, group: str, offsets: Mapping[MessageQueue, int]
) -> None:
    async with scene() as it:
        answer = await it.ask(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatus(topic, group)
        )

        assert answer.code == ResponseCode.SUCCESS
        assert bodies.decode(ConsumerStatusBody, answer.body).message_queue_table == offsets


# --- what a consumer does


@pytest.mark.parametrize("stacks", [True, False, None])
async def test_a_consumer_says_what_it_is_doing(stacks: bool | None) -> None:
    async with scene() as it:
        header = GetConsumerRunningInfo(GROUP, "10.0.0.9@1#2", stacks)

        answer = await it.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)

        info = bodies.decode(ConsumerRunningInfo, answer.body)
        assert info.properties == {"PROP_CLIENT_VERSION": "V5_5_0"}
        assert it.consumer.stacks == [bool(stacks)]


@pytest.mark.parametrize(
    ("code", "header"),
    [
        (RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfo("gone", "id")),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectly("gone")),
    ],
)
async def test_a_group_that_is_not_here_is_refused_in_javas_words(
    code: RequestCode, header: Any
) -> None:
    async with scene() as it:
        answer = await it.ask(code, header, stored())

        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "The Consumer Group <gone> not exist in this consumer"


async def test_a_message_is_handed_to_the_handler_at_once() -> None:
    async with scene() as it:
        header = ConsumeMessageDirectly(GROUP, "id", "ID", "broker-a")

        answer = await it.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, stored(TAGS="a"))

        result = bodies.decode(ConsumeDirectlyResult, answer.body)
        assert result.consume_result is ConsumeResult.CR_SUCCESS
        ((message, broker_name),) = it.consumer.consumed
        assert (message.body, message.queue_offset, broker_name) == (b"hello", 11, "broker-a")


async def test_a_handler_that_takes_long_lets_others_be_answered() -> None:
    async with scene() as it:
        it.consumer.gate.clear()
        slow = asyncio.ensure_future(
            it.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectly(GROUP), stored())
        )

        quick = await it.ask(
            RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfo(GROUP, "id")
        )

        assert quick.code == ResponseCode.SUCCESS
        assert not slow.done()
        it.consumer.gate.set()
        assert (await slow).code == ResponseCode.SUCCESS


async def test_more_slow_requests_than_the_limit_are_refused_until_one_is_done() -> None:
    async with scene() as it:
        it.consumer.gate.clear()
        code, header = RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectly(GROUP)
        waiting = [
            asyncio.ensure_future(it.ask(code, header, stored()))
            for _ in range(answering.SLOW_REQUESTS_MAX)
        ]
        await asyncio.sleep(0)

        refused = await it.ask(code, header, stored())
        it.consumer.gate.set()
        answers = await asyncio.gather(*waiting)
        after = await it.ask(code, header, stored())

        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert {answer.code for answer in (*answers, after)} == {ResponseCode.SUCCESS}


@pytest.mark.parametrize("body", [b"", b"rubbish"])
async def test_a_message_that_cannot_be_read_is_refused(body: bytes) -> None:
    async with scene() as it:
        answer = await it.ask(
            RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectly(GROUP), body
        )

        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark


async def test_a_failure_inside_of_a_member_is_told_and_frees_its_place() -> None:
    async with scene() as it:
        it.consumer.problem = BrokerError(ResponseCode.NO_PERMISSION, "no ledger")
        code, header = RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectly(GROUP)

        answers = [
            await it.ask(code, header, stored()) for _ in range(answering.SLOW_REQUESTS_MAX + 1)
        ]

        assert {answer.remark for answer in answers} == {"no ledger"}


# --- replies


def pushed(properties: str | None, **changes: Any) -> PushReplyMessageToClient:
    header = PushReplyMessageToClient(
        "repliers", "c_REPLY_TOPIC", "TBW102", 4, 1, 0, 900, 5, "10.0.2.1:700", "10.0.1.1:10911",
        1_000, properties,
    )  # fmt: skip
    return msgspec.structs.replace(header, **changes)


async def test_a_reply_reaches_who_waits_for_it() -> None:
    async with scene() as it:
        waiting = it.instance.replies.expect("C1")
        text = encode_properties({"CORRELATION_ID": "C1", "TAGS": "a"})

        answer = await it.ask(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed(text.removesuffix("\x02")), b"pong"
        )

        reply = await waiting
        assert answer.code == ResponseCode.SUCCESS
        assert (reply.body, reply.topic, reply.flag) == (b"pong", "c_REPLY_TOPIC", 5)
        assert decode_properties(reply.properties) == {
            "CORRELATION_ID": "C1",
            "TAGS": "a",
            "ARRIVE_TIME": "5000",
        }
        assert unpack_host(reply.born_host) == ("10.0.2.1", 700)


async def test_a_reply_keeps_its_compression_and_hosts_of_all_kinds_are_taken() -> None:
    async with scene() as it:
        waiting = it.instance.replies.expect("C1")
        text = encode_properties({"CORRELATION_ID": "C1"})
        header = pushed(text, sys_flag=COMPRESSED, born_host="[::2]:700", store_host="/box:1")

        await it.ask(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, b"squeezed")

        reply = await waiting
        assert reply.sys_flag == COMPRESSED | BORN_HOST_V6
        assert unpack_host(reply.born_host) == ("::2", 700)
        assert unpack_host(reply.store_host) == ("0.0.0.0", 0)


@pytest.mark.parametrize("properties", [None, encode_properties({"CORRELATION_ID": "LATE"})])
async def test_a_reply_that_nobody_waits_for_is_taken_all_the_same(properties: str | None) -> None:
    async with scene() as it:
        answer = await it.ask(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed(properties), b"pong")

        assert answer.code == ResponseCode.SUCCESS


async def test_a_reply_without_its_header_is_refused_in_javas_words() -> None:
    async with scene() as it:
        answer = await it.ask(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, None, b"pong")

        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "process reply message fail"


# --- everything else


async def test_what_a_client_does_not_answer_is_refused() -> None:
    async with scene() as it:
        answer = await it.ask(RequestCode.PULL_MESSAGE)

        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == " request type 11 not supported"


async def test_an_unknown_request_that_is_one_way_is_passed_over() -> None:
    async with scene() as it:
        await it.tell(RequestCode.PULL_MESSAGE)

        assert it.broker.is_open
