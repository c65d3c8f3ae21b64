"""Requests to lock and unlock queues, as recorded and as made up."""

import asyncio
import json

import pytest

from cometmq.broker.handlers.locks import LockHandlers
from cometmq.broker.handlers.reading import QUICK_BODY_BYTES
from cometmq.broker.queue_locks import QueueLocks
from cometmq.codec import bodies, core
from cometmq.codec.bodies.queues import LockBatchAnswer, LockBatchBody
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.routes import Routes
from cometmq.testing import FakeClock
from tests.golden.wire_frames import frames
from tests.unit.broker.fake_channel import FakeChannel, Reply, request

Q0, Q1 = (MessageQueue("T", "broker-a", number) for number in range(2))


class Place:
    """A broker as far as locks go."""

    def __init__(self) -> None:
        self.locks = QueueLocks(FakeClock(), 60_000)
        self.routes = Routes()
        LockHandlers(self.locks).add_to(self.routes)

    def ask(self, command: Command) -> Reply:
        [reply] = FakeChannel().ask(self.routes, command)
        return reply

    def lock(self, client_id: str, *queues: MessageQueue) -> tuple[MessageQueue, ...]:
        body = bodies.encode(LockBatchBody("G", client_id, queues))
        reply = self.ask(request(RequestCode.LOCK_BATCH_MQ, body=body))
        assert reply.code == ResponseCode.SUCCESS
        return bodies.decode(LockBatchAnswer, reply.body).lock_ok_mq_set

    def unlock(self, client_id: str, *queues: MessageQueue) -> Reply:
        body = bodies.encode(LockBatchBody("G", client_id, queues))
        return self.ask(request(RequestCode.UNLOCK_BATCH_MQ, body=body))


@pytest.fixture
def place() -> Place:
    return Place()


def test_the_answer_lists_the_queues_that_are_locked_for_the_caller(place: Place) -> None:
    assert place.lock("c1", Q0) == (Q0,)

    assert place.lock("c2", Q0, Q1) == (Q1,)
    assert place.lock("c2", Q0) == ()


def test_unlocked_queues_can_be_locked_by_others(place: Place) -> None:
    place.lock("c1", Q0)

    reply = place.unlock("c1", Q0)

    assert (reply.code, reply.body) == (ResponseCode.SUCCESS, b"")
    assert place.lock("c2", Q0) == (Q0,)


def test_the_end_of_a_connection_leaves_locks_alone(place: Place) -> None:
    channel = FakeChannel()
    body = bodies.encode(LockBatchBody("G", "c1", (Q0,)))
    channel.ask(place.routes, request(RequestCode.LOCK_BATCH_MQ, body=body))

    channel.close()

    assert place.lock("c2", Q0) == ()


@pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
@pytest.mark.parametrize(
    "body", [b"{}", b'{"consumerGroup":"G"}', b'{"clientId":"c1","consumerGroup":""}']
)
def test_locks_need_a_group_and_a_client(place: Place, code: RequestCode, body: bytes) -> None:
    reply = place.ask(request(code, body=body))

    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert reply.remark == "locks need consumerGroup and clientId"


@pytest.mark.parametrize("body", [b"", b"no json", b'{"mqSet":7}', b'{"mqSet":[{"topic":"T"}]}'])
def test_a_body_that_is_none_is_refused(place: Place, body: bytes) -> None:
    reply = place.ask(request(RequestCode.LOCK_BATCH_MQ, body=body))

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark


def test_absurd_names_are_refused(place: Place) -> None:
    queue = MessageQueue("T" * 1025, "broker-a", 0)
    body = bodies.encode(LockBatchBody("G", "c1", (queue,)))

    reply = place.ask(request(RequestCode.LOCK_BATCH_MQ, body=body))

    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert reply.remark == "name of 1025 characters: at most 1024"
    assert len(place.locks) == 0


def test_a_request_for_very_many_queues_is_read_aside(place: Place) -> None:
    queues = tuple(MessageQueue("T", "broker-a", number) for number in range(1024))
    body = bodies.encode(LockBatchBody("G", "c1", queues))
    assert len(body) > QUICK_BODY_BYTES
    channel = FakeChannel()

    async def scenario() -> None:
        place.routes.dispatch(channel, [request(RequestCode.LOCK_BATCH_MQ, body=body)])
        await channel.finish()

    asyncio.run(scenario())

    [reply] = channel.replies
    assert bodies.decode(LockBatchAnswer, reply.body).lock_ok_mq_set == queues


@pytest.mark.parametrize("source", ["cpp-0.4.4", "go-v2", "java-4.9.7", "java-5.5.0"])
@pytest.mark.parametrize("server_version", ["4.9.7", "5.5.0"])
def test_recorded_locks_are_granted_and_given_back(
    place: Place, source: str, server_version: str
) -> None:
    found = [
        frame
        for frame in frames(source)
        if frame.code in (41, 42) and frame.kind == "request" and frame.version == server_version
    ]
    assert {frame.code for frame in found} == {41, 42}
    for frame in found:
        [command], _ = core.decode_frames(frame.raw)
        asked = json.loads(frame.body)

        reply = place.ask(command)

        assert reply.code == ResponseCode.SUCCESS, frame.label
        if frame.code == 41:
            assert json.loads(reply.body)["lockOKMQSet"] == asked["mqSet"], frame.label
            assert place.locks.has_lock(asked["consumerGroup"]), frame.label
