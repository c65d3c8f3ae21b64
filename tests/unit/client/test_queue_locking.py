"""Locks of queues: who is asked, what counts as ours, and what is given back."""

from cometmq.client.queue_locking import QueueLocking
from cometmq.codec import bodies
from cometmq.codec.bodies.queues import LockBatchAnswer, LockBatchBody
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.routes import Answer
from tests.unit.client.kit import Asked, FakeCluster, connected, refused

A0, A1 = (MessageQueue("orders", "broker-a", number) for number in range(2))
B0 = MessageQueue("orders", "broker-b", 0)


def granting(*queues: MessageQueue) -> Answer:
    return Answer(body=bodies.encode(LockBatchAnswer(queues)))


def asked_for(asked: Asked) -> LockBatchBody:
    return bodies.decode(LockBatchBody, asked.body)


async def test_each_broker_is_asked_once_for_all_its_queues() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders")
        cluster.a.on(RequestCode.LOCK_BATCH_MQ, granting(A0))
        cluster.b.on(RequestCode.LOCK_BATCH_MQ, granting(B0))
        instance = client._require().main
        locking = QueueLocking(instance, "group")

        answers = await locking.lock([A0, A1, B0])

        assert answers == {A0: True, A1: False, B0: True}
        (question,) = cluster.a.questions(RequestCode.LOCK_BATCH_MQ)
        assert asked_for(question) == LockBatchBody("group", instance.client_id, (A0, A1))


async def test_a_broker_that_cannot_be_asked_says_nothing_about_its_queues() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders")
        cluster.a.on(RequestCode.LOCK_BATCH_MQ, refused(ResponseCode.SYSTEM_ERROR))
        cluster.b.on(RequestCode.LOCK_BATCH_MQ, granting(B0))
        locking = QueueLocking(client._require().main, "group")

        assert await locking.lock([A0, B0]) == {B0: True}
        assert await locking.lock([MessageQueue("orders", "nobody", 0)]) == {}


async def test_what_is_held_is_known_until_it_is_lost_or_given_back() -> None:
    async with FakeCluster("a") as cluster, connected(cluster) as client:
        cluster.create("orders")
        cluster.a.on(RequestCode.LOCK_BATCH_MQ, granting(A0, A1), granting(A1))
        cluster.a.on(RequestCode.UNLOCK_BATCH_MQ, Answer())
        locking = QueueLocking(client._require().main, "group")

        await locking.lock([A0, A1])
        assert locking.held == {A0, A1}
        await locking.lock([A0, A1])
        assert locking.held == {A1}
        await locking.unlock_last(1)

        assert locking.held == set()
        (question,) = cluster.a.questions(RequestCode.UNLOCK_BATCH_MQ)
        assert asked_for(question).mq_set == (A1,)
        assert not question.command.is_oneway


async def test_a_lock_whose_answer_was_lost_may_be_ours_and_is_given_back() -> None:
    async with FakeCluster("a") as cluster, connected(cluster) as client:
        cluster.create("orders")
        cluster.a.on(RequestCode.LOCK_BATCH_MQ, refused(ResponseCode.SYSTEM_ERROR))
        locking = QueueLocking(client._require().main, "group")

        await locking.lock([A0])

        assert locking.held == {A0}


async def test_nobody_waits_for_the_answer_to_an_unlock_in_passing() -> None:
    async with FakeCluster("a") as cluster, connected(cluster) as client:
        cluster.create("orders")
        cluster.a.on(RequestCode.UNLOCK_BATCH_MQ, None)
        locking = QueueLocking(client._require().main, "group")

        await locking.unlock([A0])

        (question,) = await cluster.a.until(RequestCode.UNLOCK_BATCH_MQ)
        assert question.command.is_oneway


async def test_locks_go_to_the_vip_port_and_unlocks_in_passing_do_not() -> None:
    """As Java's clients do it: what is answered goes to the port two below the broker's."""
    async with (
        FakeCluster("a", have_vip_ports=True) as cluster,
        connected(cluster, is_vip_channel=True) as client,
    ):
        cluster.create("orders")
        cluster.a.on(RequestCode.LOCK_BATCH_MQ, granting(A0))
        cluster.a.on(RequestCode.UNLOCK_BATCH_MQ, Answer())
        locking = QueueLocking(client._require().main, "group")

        assert await locking.lock([A0]) == {A0: True}
        await locking.unlock([A0])
        await cluster.a.until(RequestCode.UNLOCK_BATCH_MQ)
        await locking.lock([A0])
        await locking.unlock_last(1)

        lock, _ = cluster.a.questions(RequestCode.LOCK_BATCH_MQ)
        in_passing, answered = cluster.a.questions(RequestCode.UNLOCK_BATCH_MQ)
        assert in_passing.command.is_oneway
        assert not answered.command.is_oneway
        assert in_passing.channel.local == cluster.a.address
        assert lock.channel.local == answered.channel.local == cluster.a.vip_address
