"""Replies reach the client that waits for them; exact answers when they cannot."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.handlers import reply as reply_handlers
from cometmq.broker.handlers.reply import PUSH_TIMEOUT_MS, ReplyHandlers
from cometmq.codec import properties
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.reply import PushReplyMessageToClient
from cometmq.codec.headers.send import SendMessage, SendMessageV2
from cometmq.errors import ConnectionLost, RequestTimeout, TooManyRequests
from cometmq.remoting.routes import Routes
from tests.golden.wire_frames import frames
from tests.unit.broker.answering_channel import AnsweringChannel
from tests.unit.broker.client_kit import producing
from tests.unit.broker.data_path import DataPath, sending
from tests.unit.broker.fake_channel import FakeChannel, Reply, request
from tests.unit.broker.tables import broker_settings, recorded_requests

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
CLIENT_ID = "10.0.0.5@p1"
PROPERTIES = {
    "MSG_TYPE": "reply",
    "REPLY_TO_CLIENT": CLIENT_ID,
    "UNIQ_KEY": "7F000001073A30946E094CD097170025",
    "TTL": "8000",
    "CORRELATION_ID": "b0b40995",
}


class ReplyPath:
    """A broker's sending, with the handlers of replies; the requester is a producer here."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.path = DataPath(folder)
        chosen = broker_settings(**settings)
        self.routes = Routes()
        handlers = ReplyHandlers(
            self.path.store,
            self.path.plans,
            self.path.clients,
            settings=chosen,
            clock=self.path.clock,
        )
        handlers.add_to(self.routes)

    def requester(self, client_id: str = CLIENT_ID, **answers: Any) -> AnsweringChannel:
        channel = AnsweringChannel("127.0.0.1:40007", **answers)
        self.path.clients.heartbeat(channel, producing(client_id), language=0, version=407)
        return channel

    def reply(self, *, kind: type[SendMessage] = SendMessageV2, **changes: Any) -> Reply:
        text = changes.pop("text", properties.encode(PROPERTIES))
        body = changes.pop("body", b"answer")
        header, _ = sending(kind=kind, topic=REPLY_TOPIC, text=text, **changes)
        is_short = isinstance(header, SendMessageV2)
        code = RequestCode.SEND_REPLY_MESSAGE_V2 if is_short else RequestCode.SEND_REPLY_MESSAGE
        channel = FakeChannel()
        assert channel.ask(self.routes, request(code, header, body)) == []
        asyncio.run(channel.finish())
        self.path.loop.turn()
        (reply,) = channel.replies
        return reply


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ReplyPath]:
    place = ReplyPath(tmp_path)
    with place.path:
        yield place


@pytest.mark.parametrize("kind", [SendMessage, SendMessageV2])
def test_a_reply_goes_to_whoever_waits_for_it_and_is_stored(
    place: ReplyPath, kind: type[SendMessage]
) -> None:
    requester = place.requester()

    reply = place.reply(kind=kind)

    (asked,) = requester.asked
    assert (asked.code, asked.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"answer")
    assert requester.timeout_ms == PUSH_TIMEOUT_MS
    (stored,) = place.path.stored(REPLY_TOPIC)
    assert stored.body == b"answer"
    assert (reply.code, reply.remark) == (ResponseCode.SUCCESS, None)
    assert reply.ext == {
        "msgId": f"{place.path.identity.message_id_prefix}{stored.physical_offset:016X}",
        "queueId": "0",
        "queueOffset": "0",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_the_requester_is_told_what_the_sender_wrote(place: ReplyPath) -> None:
    requester = place.requester()

    place.reply(sys_flag=1, flag=7, reconsume_times=0, unit_mode=False)

    header = requester.asked[0].header
    assert isinstance(header, PushReplyMessageToClient)
    now_ms = place.path.clock.now_ms()
    assert header.to_ext() == {
        "producerGroup": "writers",
        "topic": REPLY_TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "1",
        "bornTimestamp": "1700000000000",
        "flag": "7",
        "bornHost": "127.0.0.1:40001",
        "storeHost": "127.0.0.1:10911",
        "storeTimestamp": str(now_ms),
        "properties": header.properties,
        "reconsumeTimes": "0",
        "unitMode": "false",
    }
    told = properties.decode(header.properties or "")
    assert told.items() >= {**PROPERTIES, "PUSH_REPLY_TIME": str(now_ms)}.items()


def test_a_reply_without_a_body_is_handed_on_and_not_stored(place: ReplyPath) -> None:
    requester = place.requester()

    reply = place.reply(body=b"")

    assert (reply.code, reply.ext["msgId"]) == (ResponseCode.SUCCESS, "0")
    assert requester.asked[0].body == b""
    assert place.path.stored(REPLY_TOPIC) == []


def test_a_reply_need_not_be_stored(tmp_path: Path) -> None:
    place = ReplyPath(tmp_path, store_reply_message_enable=False)
    place.requester()

    with place.path:
        reply = place.reply()

        assert reply.code == ResponseCode.SUCCESS
        assert (reply.ext["msgId"], reply.ext["queueOffset"]) == ("0", "0")
        assert place.path.stored(REPLY_TOPIC) == []


@pytest.mark.parametrize(
    "error",
    [
        RequestTimeout("127.0.0.1:40007", 10_000),
        ConnectionLost("127.0.0.1:40007", "gone"),
        TooManyRequests("127.0.0.1:40007", 64),
    ],
)
def test_a_requester_that_cannot_be_told_is_an_error_but_the_reply_is_stored(
    place: ReplyPath, error: Exception
) -> None:
    place.requester(error=error)

    reply = place.reply()

    words = f"push reply message to {CLIENT_ID}fail."
    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, words)
    assert len(place.path.stored(REPLY_TOPIC)) == 1


def test_a_requester_that_refuses_is_an_error(place: ReplyPath) -> None:
    place.requester(code=1)

    reply = place.reply()

    words = f"push reply message to {CLIENT_ID}fail."
    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, words)


def test_a_requester_that_is_not_there_is_an_error(place: ReplyPath) -> None:
    place.requester("somebody else")

    reply = place.reply()

    words = f"push reply message fail, channel of <{CLIENT_ID}> not found."
    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, words)


def test_a_reply_to_nobody_is_an_error(place: ReplyPath) -> None:
    reply = place.reply(text="")

    words = "reply message properties[REPLY_TO_CLIENT] is null"
    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, words)


def test_what_may_not_be_sent_is_no_reply_either(place: ReplyPath) -> None:
    requester = place.requester()

    reply = place.reply(queue_id=99)

    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert requester.asked == []
    assert place.path.stored(REPLY_TOPIC) == []


def test_a_reply_that_the_store_does_not_take_is_handed_on(place: ReplyPath) -> None:
    requester = place.requester()
    place.path.store.close()

    reply = place.reply()

    assert (reply.code, reply.ext["msgId"]) == (ResponseCode.SUCCESS, "0")
    assert len(requester.asked) == 1


class MuteChannel(AnsweringChannel):
    """Acknowledges nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:40007")
        self.acknowledge = asyncio.Event()

    async def request(self, code: int, *parts: Any, **options: Any) -> Command:
        await self.acknowledge.wait()
        return Command(0)


@pytest.mark.parametrize("limit", ["PENDING_MAX", "PENDING_BYTES_MAX"])
def test_no_more_replies_wait_than_the_limit_and_refused_ones_are_not_stored(
    place: ReplyPath, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(reply_handlers, limit, {"PENDING_MAX": 2, "PENDING_BYTES_MAX": 13}[limit])
    header, _ = sending(kind=SendMessageV2, topic=REPLY_TOPIC, text=properties.encode(PROPERTIES))
    kept: list[Command] = []

    async def reply_together() -> list[Reply]:
        requester = MuteChannel()
        place.path.clients.heartbeat(requester, producing(CLIENT_ID), language=0, version=407)
        channels = [FakeChannel() for _ in range(3)]
        for channel in channels:
            kept.append(request(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"answer"))
            channel.ask(place.routes, kept[-1])
        finishing = [asyncio.create_task(channel.finish()) for channel in channels]
        await asyncio.wait(finishing, return_when=asyncio.FIRST_COMPLETED)
        assert [len(command.body) for command in kept] == [0, 0, 6]
        requester.acknowledge.set()
        await asyncio.gather(*finishing)
        return [channel.replies[0] for channel in channels]

    first, second, refused = asyncio.run(reply_together())
    place.path.loop.turn()

    assert first.code == second.code == ResponseCode.SUCCESS
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert refused.remark == (
        "[REJECTREQUEST]2 replies of 12 bytes wait for requesters that have not acknowledged"
        " them, try later"
    )
    assert len(place.path.stored(REPLY_TOPIC)) == 2
    place.requester()
    assert place.reply().code == ResponseCode.SUCCESS


@pytest.mark.slow  # reads all recordings
def test_recorded_replies_are_handed_on_as_apache_does(place: ReplyPath) -> None:
    requester = place.requester()
    channel = FakeChannel()
    asked = recorded_requests(RequestCode.SEND_REPLY_MESSAGE_V2)

    channel.ask(place.routes, *asked)
    asyncio.run(channel.finish())

    assert len(asked) > 4
    assert {reply.code for reply in channel.replies} == {ResponseCode.SUCCESS}
    recorded = next(f for f in frames("java-5.5.0") if f.code == 326 and f.sender == "server")
    assert recorded.body == requester.asked[0].body == b"reply to request"
