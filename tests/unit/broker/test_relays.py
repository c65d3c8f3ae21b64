"""Questions to consumers: passed on as they came, answered as the consumers answer, or not."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.broker.handlers.relays import RELAYS_MAX
from cometmq.codec import core, record
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command, Serialization
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.clients import ConsumeMessageDirectly, GetConsumerRunningInfo
from cometmq.codec.message_id import encode_offset_id
from cometmq.errors import ConnectionLost, RequestTimeout, TooManyRequests
from tests.unit.broker.client_kit import consuming
from tests.unit.broker.data_path import TOPIC
from tests.unit.broker.fake_channel import FakeChannel, Reply, request
from tests.unit.broker.services_kit import Services, opened
from tests.unit.broker.tables import BROKER, recorded_requests

RUNNING_INFO = RequestCode.GET_CONSUMER_RUNNING_INFO
DIRECTLY = RequestCode.CONSUME_MESSAGE_DIRECTLY


class Consumer(FakeChannel):
    """A consumer that is asked; ``answer`` is what it says, or what happens instead."""

    def __init__(self, answer: Command | Exception | None = None) -> None:
        super().__init__("10.0.0.1:1")
        self.answer = answer
        self.asked: list[tuple[int, Header | None, bytes]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def request(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int,
        serialization: Serialization = Serialization.JSON,
    ) -> Command:
        self.asked.append((code, header, body))
        await self.may_answer.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or Command(ResponseCode.SUCCESS, body=b"fine")


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    yield from opened(tmp_path)


def joined(services: Services, consumer: Consumer, version: int = 407) -> Consumer:
    services.beat(consuming("c1", "G", {TOPIC: "*"}), consumer, version=version)
    return consumer


def running_info(services: Services, client_id: str = "c1") -> Reply:
    return services.ask(RUNNING_INFO, GetConsumerRunningInfo("G", client_id, True))


def directly(services: Services, message_id: str | None) -> Reply:
    return services.ask(DIRECTLY, ConsumeMessageDirectly("G", "c1", message_id, topic=TOPIC))


def test_the_question_and_the_answer_are_passed_on_as_they_are(services: Services) -> None:
    answer = Command(ResponseCode.SUCCESS, remark="not set any response code", body=b"{a:{}}")
    consumer = joined(services, Consumer(answer))

    reply = running_info(services)

    assert consumer.asked == [(RUNNING_INFO, GetConsumerRunningInfo("G", "c1", True), b"")]
    assert (reply.code, reply.remark, reply.body) == (0, answer.remark, answer.body)


def test_what_a_consumer_refuses_is_refused_with_its_words(services: Services) -> None:
    joined(services, Consumer(Command(ResponseCode.SYSTEM_ERROR, remark="no such group")))

    reply = running_info(services)

    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, "no such group")


@pytest.mark.parametrize(("group", "client_id"), [("G", "c2"), ("other", "c1"), ("G", "")])
def test_a_consumer_that_is_not_there_is_not_online(
    services: Services, group: str, client_id: str
) -> None:
    joined(services, Consumer())

    reply = services.ask(RUNNING_INFO, GetConsumerRunningInfo(group, client_id))

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark == f"The Consumer <{group}> <{client_id}> not online"


def test_a_consumer_of_an_old_release_is_not_asked(services: Services) -> None:
    consumer = joined(services, Consumer(), version=61)

    reply = running_info(services)

    assert consumer.asked == []
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "too low to finish" in (reply.remark or "")


@pytest.mark.parametrize(
    ("problem", "code", "words"),
    [
        (RequestTimeout("10.0.0.1:1", 10_000), 207, "consumer <G> <c1> Timeout: "),
        (ConnectionLost("10.0.0.1:1", "reset"), 1, "invoke consumer <G> <c1> Exception: "),
        (TooManyRequests("10.0.0.1:1", 9), 1, "invoke consumer <G> <c1> Exception: "),
    ],
    ids=["silent", "gone", "busy"],
)
def test_a_consumer_that_does_not_answer_is_told(
    services: Services, problem: Exception, code: int, words: str
) -> None:
    joined(services, Consumer(problem))

    reply = running_info(services)

    assert reply.code == code
    assert (reply.remark or "").startswith(words)
    assert str(problem) in (reply.remark or "")


def test_not_more_consumers_are_asked_at_a_time_than_the_limit(services: Services) -> None:
    consumer = joined(services, Consumer())
    consumer.may_answer.clear()
    question = request(RUNNING_INFO, GetConsumerRunningInfo("G", "c1"))

    async def ask_too_many() -> list[Reply]:
        tasks = [asyncio.create_task(services.answer_to(question)) for _ in range(RELAYS_MAX + 1)]
        while len(consumer.asked) < RELAYS_MAX:
            await asyncio.sleep(0)
        consumer.may_answer.set()
        return [*await asyncio.gather(*tasks), await services.answer_to(question)]

    replies = asyncio.run(ask_too_many())

    assert [reply.code for reply in replies].count(ResponseCode.SYSTEM_BUSY) == 1
    assert replies[-1].code == ResponseCode.SUCCESS


# --- consuming directly


def test_the_message_is_loaded_by_its_id_and_handed_over(services: Services) -> None:
    services.send(b"first")
    services.send(b"second")
    offset = services.stored()[1].physical_offset
    consumer = joined(services, Consumer())

    reply = directly(services, encode_offset_id(services.identity.store_host, offset))

    ((code, header, body),) = consumer.asked
    assert (code, reply.body) == (DIRECTLY, b"fine")
    (message,) = record.parse_all(body)
    assert message.body == b"second"
    assert isinstance(header, ConsumeMessageDirectly)
    assert (header.broker_name, header.topic) == (BROKER, TOPIC)
    assert (header.topic_sys_flag, header.group_sys_flag) == (0, 0)


def test_a_message_that_is_not_there_cannot_be_consumed(services: Services) -> None:
    consumer = joined(services, Consumer())

    reply = directly(services, encode_offset_id(services.identity.store_host, 4711))

    assert consumer.asked == []
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark == "can not find message by the offset, 4711"


@pytest.mark.parametrize("message_id", [None, "", "no id", "7F0000010000"])
def test_an_id_that_is_none_is_refused(services: Services, message_id: str | None) -> None:
    consumer = joined(services, Consumer())

    reply = directly(services, message_id)

    assert consumer.asked == []
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark


@pytest.mark.parametrize("code", [RUNNING_INFO, DIRECTLY], ids=lambda code: code.name)
def test_recorded_requests_reach_the_consumer_they_name(
    services: Services, code: RequestCode
) -> None:
    asked = recorded_requests(code)

    for command in asked:
        said = core.read(command, ConsumeMessageDirectly)  # both have the names
        services.clock.advance(1.0)
        who = consuming(said.client_id or "", said.consumer_group)
        consumer = Consumer()
        services.beat(who, consumer, version=513)
        reply = services.put_through(command)
        if code is RUNNING_INFO:
            assert (reply.code, len(consumer.asked)) == (ResponseCode.SUCCESS, 1)
        else:
            assert (reply.remark or "").startswith("can not find message by the offset, ")

    assert asked
