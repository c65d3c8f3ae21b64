"""Requests and replies, on both sides."""

import asyncio
from typing import Any

import msgspec
import pytest

from cometmq.client.core.message import Message, Source
from cometmq.client.core.send_budget import TIMED_OUT
from cometmq.client.core.value_codecs import BYTES
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.reply import PushReplyMessageToClient
from cometmq.codec.properties import encode as encode_properties
from cometmq.codec.record import Record, pack_host
from cometmq.errors import InvalidArgument, NoReply, SendFailed
from cometmq.remoting.routes import Answer
from tests.unit.client.kit import CLUSTER, Asked, FakeCluster, Node, connected, refused

SEND = RequestCode.SEND_MESSAGE_V2
REPLY = RequestCode.SEND_REPLY_MESSAGE_V2
REPLY_TOPIC = f"{CLUSTER}_REPLY_TOPIC"


class Replier:
    """Lets a broker push a reply to whoever sends it a request: ``body``, or what was asked.

    When it is early, the request itself is never answered.
    """

    def __init__(
        self, cluster: FakeCluster, node: Node, body: bytes | None = None, *, is_early: bool = False
    ) -> None:
        self._cluster = cluster
        self._body = body
        self._is_early = is_early
        self._pushes: list[asyncio.Task[int]] = []
        node.on(SEND, self._take)

    async def codes(self) -> list[int]:
        """How the asker has answered each reply."""
        return await asyncio.gather(*self._pushes)

    def _take(self, asked: Asked) -> Answer | None:
        self._pushes.append(asyncio.ensure_future(self._push(asked)))
        return None if self._is_early else self._cluster.stored(asked)

    async def _push(self, asked: Asked) -> int:
        correlation_id = asked.properties["CORRELATION_ID"]
        text = encode_properties({"CORRELATION_ID": correlation_id, "MSG_TYPE": "reply"})
        hosts = ("10.0.0.1:1", "10.0.0.2:2")
        header = PushReplyMessageToClient(
            "g", REPLY_TOPIC, "TBW102", 4, 0, 0, 1, 0, *hosts, 2, text
        )
        body = asked.body if self._body is None else self._body
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        return (await asked.channel.request(code, header, body, timeout_ms=1_000)).code


def request_message(**properties: str) -> Message[bytes]:
    record = msgspec.structs.replace(
        _RECORD, properties=encode_properties({"UNIQ_KEY": "U", **properties}).encode()
    )
    return Message(record, Source("broker-b", BYTES))


_RECORD = Record(
    size=100,
    magic=0,
    body_crc=0,
    queue_id=0,
    flag=0,
    queue_offset=0,
    physical_offset=0,
    sys_flag=0,
    born_timestamp=0,
    born_host=pack_host("10.0.0.1", 1),
    store_timestamp=0,
    store_host=pack_host("10.0.0.2", 2),
    reconsume_times=0,
    prepared_transaction_offset=0,
    body=b"?",
    topic="questions",
    properties=b"",
)


# --- asking


async def test_a_request_is_answered_by_a_reply() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("questions", queues=1)
        replier = Replier(cluster, cluster.a, b'{"n":7}')

        reply = await client.producer().request("questions", b"?", tag="t", reply_type=dict)

        properties = cluster.a.sends[0].properties
        assert reply.value == {"n": 7}
        assert properties["REPLY_TO_CLIENT"] == client.client_id
        assert (properties["TTL"], properties["TAGS"]) == ("3000", "t")
        assert await replier.codes() == [0]


async def test_the_broker_knows_the_asker_before_the_request() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("questions", queues=1)
        Replier(cluster, cluster.a, b"!")

        await client.producer("askers").request("questions", b"?")

        beat = next(asked for asked in cluster.a.asked if asked.code == RequestCode.HEART_BEAT)
        assert cluster.a.asked.index(beat) < cluster.a.asked.index(cluster.a.sends[0])
        assert b'"askers"' in beat.body


async def test_brokers_of_the_reply_topic_know_the_asker_too() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("questions", queues=1, brokers="a")
        cluster.create(REPLY_TOPIC, queues=1)
        Replier(cluster, cluster.a, b"!")
        producer = client.producer()

        await producer.request("questions", b"?")

        assert cluster.b.questions(RequestCode.HEART_BEAT)
        assert set(producer.topics()) == {"questions", REPLY_TOPIC}


async def test_a_reply_that_comes_before_the_answer_counts() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("questions", queues=1)
        Replier(cluster, cluster.a, b"!", is_early=True)

        reply = await client.producer().request("questions", b"?")

        assert reply.body == b"!"
        assert len(cluster.a.sends) == 1


async def test_no_reply_in_time_is_an_error_of_its_own() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("questions", queues=1)

        with pytest.raises(NoReply, match="'questions' within 20 ms"):
            await client.producer().request("questions", b"?", timeout_ms=20)


async def test_a_request_that_is_not_stored_fails_as_a_send_does() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("questions", queues=1)
        cluster.a.on(SEND, refused(ResponseCode.MESSAGE_ILLEGAL))

        with pytest.raises(SendFailed):
            await client.producer().request("questions", b"?")


async def test_a_request_that_no_broker_has_confirmed_fails_as_a_send_does() -> None:
    """Nobody can say that it was stored, which NoReply would."""
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("questions", queues=1)
        cluster.a.on(SEND, None)

        with pytest.raises(SendFailed) as caught:
            await client.producer().request("questions", b"?", timeout_ms=30)

        assert caught.value.code == TIMED_OUT
        assert caught.value.may_be_stored


async def test_many_requests_each_get_their_own_reply() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("questions", queues=1)
        Replier(cluster, cluster.a)
        producer = client.producer()

        replies = await asyncio.gather(
            *(producer.request("questions", b"%d" % number) for number in range(10))
        )

        assert [reply.body for reply in replies] == [b"%d" % number for number in range(10)]


async def test_many_requests_at_once_greet_brokers_once() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("questions", queues=1)
        Replier(cluster, cluster.a)
        producer = client.producer()
        await client._require().routes.find("questions")
        await client._require().main.heartbeat()
        count = len(cluster.a.questions(RequestCode.HEART_BEAT))

        await asyncio.gather(*(producer.request("questions", b"?") for _ in range(20)))

        assert len(cluster.a.questions(RequestCode.HEART_BEAT)) <= count + 2


@pytest.mark.slow
async def test_greeting_brokers_takes_half_of_the_time_at_most() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("questions", queues=1)
        cluster.a.on(RequestCode.HEART_BEAT, None)
        Replier(cluster, cluster.a, b"!")

        reply = await client.producer().request("questions", b"?", timeout_ms=600)

        assert reply.body == b"!"


async def test_the_namespace_is_not_in_the_error() -> None:
    async with FakeCluster() as cluster, connected(cluster, namespace="ns") as client:
        cluster.create("ns%questions", queues=1)

        with pytest.raises(NoReply) as caught:
            await client.producer().request("questions", b"?", timeout_ms=20)

        assert caught.value.topic == "questions"


async def test_a_cancelled_request_leaves_nothing_behind() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("questions", queues=1)
        cluster.a.on(SEND, None)
        asking = asyncio.ensure_future(client.producer().request("questions", b"?"))
        await cluster.a.until(SEND)

        asking.cancel()

        with pytest.raises(asyncio.CancelledError):
            await asking
        names = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}  # type: ignore[union-attr]
        assert not any("Watched.send" in name for name in names)


# --- replying


async def test_a_reply_says_what_the_request_said() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster, namespace="ns") as client:
        cluster.create(REPLY_TOPIC, queues=1)
        question = request_message(
            CORRELATION_ID="c-1", REPLY_TO_CLIENT="asker", TTL="500", CLUSTER=CLUSTER
        )

        result = await client.producer().reply(question, {"n": 7})

        (asked,) = cluster.b.questions(REPLY)
        properties: dict[str, Any] = asked.properties
        assert result.is_ok
        assert asked.send.topic == REPLY_TOPIC
        assert asked.body == b'{"n":7}'
        assert (properties["CORRELATION_ID"], properties["REPLY_TO_CLIENT"]) == ("c-1", "asker")
        assert (properties["TTL"], properties["MSG_TYPE"]) == ("500", "reply")


async def test_a_reply_goes_elsewhere_when_its_broker_cannot_reach_the_asker() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create(REPLY_TOPIC, queues=1)
        cluster.b.on(REPLY, refused(ResponseCode.SYSTEM_ERROR, "channel not found"))
        question = request_message(CORRELATION_ID="c", REPLY_TO_CLIENT="asker", CLUSTER=CLUSTER)

        result = await client.producer().reply(question, b"!")

        assert result.queue.broker_name == "broker-a"
        assert len(cluster.b.questions(REPLY)) == 1


@pytest.mark.parametrize("missing", ["CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"])
async def test_only_requests_can_be_replied_to(missing: str) -> None:
    properties = {"CLUSTER": CLUSTER, "CORRELATION_ID": "c", "REPLY_TO_CLIENT": "asker"}
    del properties[missing]
    async with FakeCluster() as cluster, connected(cluster) as client:
        with pytest.raises(InvalidArgument, match=missing):
            await client.producer().reply(request_message(**properties), b"!")
