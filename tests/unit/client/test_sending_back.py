"""Giving messages back: to their broker, or as copies to the retry topic."""

import zlib
from typing import Any

import msgspec
import pytest

from cometmq.client.client import Client
from cometmq.client.core.message import Message, Mode, Source
from cometmq.client.core.value_codecs import BYTES
from cometmq.client.sending_back import DEAD_LETTER_LEVEL, SendingBack
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.send import ConsumerSendMsgBack
from cometmq.codec.properties import encode as encode_properties
from cometmq.codec.sysflag import COMPRESSED
from cometmq.remoting.routes import Answer
from tests.unit.client.consumer_kit import stored
from tests.unit.client.kit import FakeCluster, connected, refused

NO = refused(ResponseCode.SYSTEM_ERROR)


def message_of(
    properties: dict[str, str], *, topic: str = "ns%orders", broker: str = "broker-a", **fields: Any
) -> Message[bytes]:
    """A message of the namespace ``ns`` with these properties."""
    record = msgspec.structs.replace(
        stored(7, topic=topic), properties=encode_properties(properties).encode(), **fields
    )
    return Message(record, Source(broker, BYTES, "group", "ns", Mode.CONCURRENT))


def sending_back(client: Client, *, reconsume_max: int = -1) -> SendingBack:
    instance = client._require().main
    return SendingBack(instance, "ns%group", namespace="ns", reconsume_max=reconsume_max)


async def test_names_have_the_namespace_once_on_their_way_back() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("ns%orders")
        cluster.a.on(RequestCode.CONSUMER_SEND_MSG_BACK, Answer())
        retried = message_of({"UNIQ_KEY": "U", "RETRY_TOPIC": "ns%orders"}, topic="%RETRY%ns%group")

        assert await sending_back(client).send_back(message_of({"UNIQ_KEY": "U"}), 0)
        assert await sending_back(client).send_back(retried, 2)

        for asked in cluster.a.questions(RequestCode.CONSUMER_SEND_MSG_BACK):
            header = ConsumerSendMsgBack.from_ext(asked.command.ext_fields)
            assert (header.group, header.origin_topic) == ("ns%group", "ns%orders")
            assert header.max_reconsume_times == 16


async def test_names_have_the_namespace_once_in_copies() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("%RETRY%ns%group")
        message = message_of(
            {"UNIQ_KEY": "U", "RETRY_TOPIC": "ns%orders", "INSTANCE_ID": "ns"},
            topic="%RETRY%ns%group",
        )

        assert await sending_back(client).send_copy(message, is_dead=False)

        (sent,) = cluster.sends
        assert sent.send.topic == "%RETRY%ns%group"
        assert sent.send.producer_group == "CLIENT_INNER_PRODUCER"
        assert sent.properties["RETRY_TOPIC"] == "ns%orders"


async def test_a_copy_goes_to_another_broker_while_the_messages_own_is_away() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("%RETRY%ns%group", brokers="b")
        message = message_of({"UNIQ_KEY": "U"}, broker="broker-gone")

        assert await sending_back(client).send_back(message, 0)

        (sent,) = cluster.b.sends
        assert sent.send.reconsume_times == 1


async def test_a_copy_has_what_the_message_had_and_counts_once() -> None:
    packed = zlib.compress(b"text" * 100)
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("%RETRY%ns%group")
        message = message_of(
            {
                "UNIQ_KEY": "U",
                "ORIGIN_MESSAGE_ID": "first",
                "mine": "kept",
                "TRAN_MSG": "true",
                "DELAY": "9",
                "RECONSUME_TIME": "4",
                "MAX_RECONSUME_TIMES": "16",
            },
            body=packed,
            sys_flag=COMPRESSED,
            flag=5,
            reconsume_times=4,
        )

        assert await sending_back(client).send_copy(message, is_dead=False)

        (sent,) = cluster.sends
        assert sent.body == packed
        assert sent.send.sys_flag & COMPRESSED
        assert sent.send.flag == 5
        assert sent.send.reconsume_times == 5
        assert sent.properties == {
            "UNIQ_KEY": "U",
            "ORIGIN_MESSAGE_ID": "first",
            "mine": "kept",
            "RETRY_TOPIC": "ns%orders",
            "DELAY": "7",
        }


@pytest.mark.parametrize("reconsume_max", [0, 5])
async def test_a_dead_copy_says_that_it_came_too_often(reconsume_max: int) -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("%RETRY%ns%group")
        back = sending_back(client, reconsume_max=reconsume_max)
        cluster.a.on(RequestCode.CONSUMER_SEND_MSG_BACK, NO)

        assert await back.send_back(message_of({"UNIQ_KEY": "U"}), DEAD_LETTER_LEVEL)

        (sent,) = cluster.sends
        assert sent.send.reconsume_times == reconsume_max + 1
        assert sent.send.max_reconsume_times == reconsume_max


async def test_a_message_that_nobody_takes_is_not_safe() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("ns%orders")
        cluster.create("%RETRY%ns%group")
        cluster.a.on(RequestCode.CONSUMER_SEND_MSG_BACK, NO)
        cluster.a.on(RequestCode.SEND_MESSAGE_V2, NO)

        assert not await sending_back(client).send_back(message_of({"UNIQ_KEY": "U"}), 0)
