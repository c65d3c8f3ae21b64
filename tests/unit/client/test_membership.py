"""Who reads which queue: rebalances of one member."""

import asyncio

import pytest

from cometmq.client.client import Client
from cometmq.client.core.strategies import Average
from cometmq.client.core.subscriptions import subscription
from cometmq.client.membership import Membership
from cometmq.codec import bodies
from cometmq.codec.bodies.clients import (
    Connection,
    ConsumerConnection,
    ConsumerData,
    ConsumerIdList,
)
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.model.group import SubscriptionData
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.routes import Answer
from tests.unit.client.consumer_kit import QueueCluster, queue, until
from tests.unit.client.kit import connected, refused


class Owner:
    """Notes what comes and goes."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.refused: set[int] = set()
        self.kept: set[int] = set()
        self.changes: list[tuple[str, int, int]] = []

    async def queue_added(self, queue: MessageQueue) -> bool:
        self.log.append(f"+{queue.queue_id}")
        return queue.queue_id not in self.refused

    async def queue_removed(self, queue: MessageQueue) -> bool:
        self.log.append(f"-{queue.queue_id}")
        return queue.queue_id not in self.kept

    def queues_changed(
        self, topic: str, known: tuple[MessageQueue, ...], mine: tuple[MessageQueue, ...]
    ) -> None:
        self.changes.append((topic, len(known), len(mine)))


def member(
    client: Client, owner: Owner, *, mode: str = "cluster", topic: str = "orders"
) -> Membership:
    instance = client._require().main
    made = Membership(
        instance,
        "group",
        mode=mode,  # type: ignore[arg-type]
        strategy=Average(),
        owner=owner,
    )
    made.subscribe(subscription(topic, version_ms=1))

    class Consumer:
        group = "group"

        def consumer_data(self) -> ConsumerData:
            return ConsumerData("group", subscription_data_set=tuple(made.subscriptions.values()))

        def topics(self) -> tuple[str, ...]:
            return tuple(made.subscriptions)

        def wake_rebalance(self) -> None:
            made.wake()

        async def persist(self) -> None:
            pass

    instance.consumers["group"] = Consumer()  # type: ignore[assignment]
    return made


async def test_a_member_takes_its_share_and_greets_before_it_asks_who_is_there() -> None:
    owner = Owner()
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=4)
        cluster.broker.members.add("zzz")  # after us in the list
        membership = member(client, owner)

        assert await membership.rebalance()

        codes = [asked.code for asked in cluster.a.asked]
        assert codes.index(RequestCode.HEART_BEAT) < codes.index(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP
        )
    assert membership.queues == {queue(0), queue(1)}
    assert owner.changes == [("orders", 4, 2)]


async def test_queues_in_both_shares_are_left_alone() -> None:
    owner = Owner()
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=4)
        membership = member(client, owner)
        await membership.rebalance()
        owner.log.clear()
        cluster.broker.members.add("zzz")

        await membership.rebalance()

    assert owner.log == ["-2", "-3"]
    assert membership.queues == {queue(0), queue(1)}


async def test_a_list_that_nobody_can_give_changes_nothing() -> None:
    owner = Owner()
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=2)
        membership = member(client, owner)
        await membership.rebalance()
        cluster.a.on(RequestCode.GET_CONSUMER_LIST_BY_GROUP, refused(ResponseCode.SYSTEM_ERROR))

        assert not await membership.rebalance()

    assert len(membership.queues) == 2


async def test_a_member_that_is_not_in_the_list_greets_again_and_then_gives_everything() -> None:
    owner = Owner()
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=2)
        membership = member(client, owner)
        await membership.rebalance()
        beats = len(cluster.a.questions(RequestCode.HEART_BEAT))
        others = Answer(body=bodies.encode(ConsumerIdList(("somebody else",))))
        cluster.a.on(RequestCode.GET_CONSUMER_LIST_BY_GROUP, others)

        await membership.rebalance()

        assert len(cluster.a.questions(RequestCode.HEART_BEAT)) > beats
    assert membership.queues == frozenset()


@pytest.mark.slow
async def test_what_could_not_be_done_is_tried_again() -> None:
    owner = Owner()
    owner.refused = {1}
    async with QueueCluster() as cluster, connected(cluster, rebalance_gap_ms=1) as client:
        cluster.create("orders", queues=2)
        membership = member(client, owner)
        assert not await membership.rebalance()
        assert membership.queues == {queue(0)}
        owner.refused = set()
        membership.start()

        await until(lambda: len(membership.queues) == 2)
        await membership.stop()


async def test_a_topic_that_is_left_takes_its_queues_along() -> None:
    owner = Owner()
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=2)
        membership = member(client, owner)
        await membership.rebalance()
        membership.unsubscribe("orders")
        owner.kept = {1}

        assert not await membership.rebalance()

    assert membership.queues == {queue(1)}


async def test_broadcasting_members_have_all_queues_and_ask_nobody() -> None:
    owner = Owner()
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=3)
        cluster.broker.members.add("zzz")
        membership = member(client, owner, mode="broadcast")

        await membership.rebalance()

        assert not cluster.a.questions(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    assert len(membership.queues) == 3


async def test_many_notices_are_one_rebalance() -> None:
    owner = Owner()
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        membership = member(client, owner)
        await membership.rebalance()
        membership.start()
        asked = len(cluster.a.questions(RequestCode.GET_CONSUMER_LIST_BY_GROUP))

        for _ in range(50):
            membership.wake()
        await cluster.a.until(RequestCode.GET_CONSUMER_LIST_BY_GROUP, asked + 1)
        for _ in range(50):
            membership.wake()
        await membership.stop()

        assert len(cluster.a.questions(RequestCode.GET_CONSUMER_LIST_BY_GROUP)) == asked + 1


async def test_a_queue_that_its_owner_has_let_go_comes_anew() -> None:
    owner = Owner()
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        membership = member(client, owner)
        await membership.rebalance()
        membership.forget(queue(0))

        await membership.rebalance()

    assert owner.log == ["+0", "+0"]


async def test_an_id_that_is_used_twice_and_other_subscriptions_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    owner = Owner()
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        own_id = client.client_id
        both = ConsumerConnection(
            (Connection(own_id, "10.0.0.1:1"), Connection(own_id, "10.0.0.2:1")),
            {"orders": SubscriptionData("orders", "paid", sub_version=2)},
        )
        cluster.a.on(RequestCode.GET_CONSUMER_CONNECTION_LIST, Answer(body=bodies.encode(both)))

        await member(client, owner).rebalance()

    assert "is used from several addresses: 10.0.0.1:1, 10.0.0.2:1" in caplog.text
    assert "another member subscribes 'paid', this one '*'" in caplog.text


async def test_a_suspended_member_keeps_what_it_has() -> None:
    owner = Owner()
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        membership = member(client, owner)
        membership.is_suspended = True

        assert await membership.rebalance()

    assert owner.log == []


async def test_a_queue_that_is_let_go_while_others_still_come_is_given_anew() -> None:
    """Or nobody would read it: its owner has let it go, and the member counts it as its own."""
    owner = Owner()
    slow = asyncio.Event()
    begin = owner.queue_added

    async def added(queue: MessageQueue) -> bool:
        if queue.queue_id == 1:
            await slow.wait()
        return await begin(queue)

    owner.queue_added = added  # type: ignore[method-assign]
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=2)
        membership = member(client, owner)
        rebalancing = asyncio.create_task(membership.rebalance())
        await until(lambda: owner.log == ["+0"])

        membership.forget(queue(0))
        slow.set()
        await rebalancing
        assert membership.queues == {queue(1)}
        await membership.rebalance()

        assert membership.queues == {queue(0), queue(1)}


async def test_what_was_to_be_tried_again_is_not_after_the_end() -> None:
    owner = Owner()
    owner.refused = {0}
    async with QueueCluster() as cluster, connected(cluster, rebalance_gap_ms=0) as client:
        cluster.create("orders", queues=1)
        membership = member(client, owner)
        assert not await membership.rebalance()
        assert membership.is_to_be_tried_again

        await membership.stop()

        assert not membership.is_to_be_tried_again
