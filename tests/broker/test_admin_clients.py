"""Questions to consumers go through the broker, on the connections they have come in on."""

import socket
from collections.abc import Iterator

import pytest

from cometmq.codec import bodies, core
from cometmq.codec.bodies.clients import (
    ConsumerConnection,
    ConsumerData,
    HeartbeatData,
    ProducerData,
    ProducerTable,
)
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command, encode
from cometmq.codec.headers.send import SendMessageResponse
from cometmq.codec.record import parse_all
from cometmq.model.group import SubscriptionData
from cometmq.testing.local_cluster import BlockingCluster
from tests.broker.kit import Peer, connected

GROUP = "answering"
RUNNING_INFO = RequestCode.GET_CONSUMER_RUNNING_INFO
DIRECTLY = RequestCode.CONSUME_MESSAGE_DIRECTLY
RUNNING = {"consumerGroup": GROUP, "clientId": "c1"}


@pytest.fixture
def consumer(cluster: BlockingCluster) -> Iterator[Peer]:
    with connected(cluster.broker.address) as peer:
        wanted = (SubscriptionData("T", "*", sub_version=1),)
        data = HeartbeatData("c1", (), (ConsumerData(GROUP, subscription_data_set=wanted),))
        assert peer.ask(RequestCode.HEART_BEAT, {}, bodies.encode(data)).code == 0
        yield peer


def next_question(consumer: Peer) -> Command:
    while True:
        command = consumer.next_command()
        if command.code != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            return command


def test_an_answer_goes_back_to_whoever_asked(peer: Peer, consumer: Peer) -> None:
    asked = peer.tell(RUNNING_INFO, {**RUNNING, "jstackEnable": "true"}, flag=0)

    question = next_question(consumer)
    consumer.say(encode(question.answer(0, remark="as it is", body=b'{{"a":1}:2}')))
    answer = peer.next_command()

    assert (question.code, answer.opaque, answer.code) == (RUNNING_INFO, asked, 0)
    assert (answer.remark, answer.body) == ("as it is", b'{{"a":1}:2}')


def test_a_message_is_handed_to_one_consumer(peer: Peer, consumer: Peer, topic: str) -> None:
    sent = peer.send(topic, b"for you")
    message_id = core.read(sent, SendMessageResponse).msg_id
    peer.tell(DIRECTLY, {**RUNNING, "msgId": message_id, "topic": topic}, flag=0)

    question = next_question(consumer)
    consumer.say(encode(question.answer(0, body=b'{"consumeResult":"CR_SUCCESS"}')))

    (message,) = parse_all(question.body)
    assert (message.body, message.topic) == (b"for you", topic)
    assert peer.next_command().body == b'{"consumeResult":"CR_SUCCESS"}'


def test_a_consumer_that_goes_before_it_answers_is_told(peer: Peer, consumer: Peer) -> None:
    peer.tell(RUNNING_INFO, RUNNING, flag=0)
    next_question(consumer)

    consumer.socket.shutdown(socket.SHUT_RDWR)
    answer = peer.next_command()

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith(f"invoke consumer <{GROUP}> <c1> Exception: ")
    assert peer.ask(RUNNING_INFO, RUNNING).remark == f"The Consumer <{GROUP}> <c1> not online"


def test_who_is_connected_is_told_with_addresses(peer: Peer, consumer: Peer) -> None:
    listed = peer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": GROUP})
    mine = HeartbeatData("p1", (ProducerData("writing"),))
    peer.ask(RequestCode.HEART_BEAT, {}, bodies.encode(mine))
    producers = peer.ask(RequestCode.GET_ALL_PRODUCER_INFO)

    (connection,) = bodies.decode(ConsumerConnection, listed.body).connection_set
    assert connection.client_addr == f"127.0.0.1:{consumer.port}"
    (producer,) = bodies.decode(ProducerTable, producers.body).data["writing"]
    assert producer.remote_ip == f"/127.0.0.1:{peer.port}"
