import asyncio

import pytest

from cometmq.cli.queue_names import QueueNames
from cometmq.errors import Ambiguous, InvalidArgument, NotFound
from cometmq.model.offsets import MessageQueue
from tests.unit.admin.fake_cluster import FakeCluster


def find(name: str, *, brokers: str = "a") -> MessageQueue:
    cluster = FakeCluster()
    cluster.on_route("orders", queues=4, brokers=brokers)
    return asyncio.run(QueueNames(cluster.admin, "orders").find(name))


def test_a_number_is_enough_where_a_topic_is_on_one_broker() -> None:
    assert find("3") == MessageQueue("orders", "broker-a", 3)


def test_a_queue_may_be_named_with_its_broker() -> None:
    assert find("broker-b/1", brokers="ab") == MessageQueue("orders", "broker-b", 1)


def test_a_number_is_not_enough_where_a_topic_is_on_several_brokers() -> None:
    with pytest.raises(Ambiguous) as caught:
        find("1", brokers="ab")

    assert caught.value.choices == ("broker-a/1", "broker-b/1")


@pytest.mark.parametrize("name", ["4", "broker-c/0"])
def test_a_queue_that_there_is_not_is_refused_with_those_that_there_are(name: str) -> None:
    with pytest.raises(NotFound) as caught:
        find(name)

    assert caught.value.next_step == "topic 'orders' has broker-a/0 to broker-a/3"


@pytest.mark.parametrize("name", ["", "x", "broker-a/", "/3", "-1", "broker-a/x"])
def test_what_is_no_queue_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        find(name)

    assert "BROKER/NUMBER" in caught.value.next_step


def test_all_queues_of_a_topic_are_found_with_one_question() -> None:
    cluster = FakeCluster()
    cluster.on_route("orders", queues=2, brokers="ab")
    names = QueueNames(cluster.admin, "orders")

    async def scenario() -> tuple[MessageQueue, ...]:
        await names.find("broker-a/0")
        return await names.all()

    found = asyncio.run(scenario())

    assert [(queue.broker_name, queue.queue_id) for queue in found] == [
        *(("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-b", 1))
    ]
    assert len(cluster.asked) == 1


def test_a_topic_with_one_queue_needs_no_name_for_it() -> None:
    cluster = FakeCluster()
    cluster.on_route("orders", queues=1, brokers="a")

    found = asyncio.run(QueueNames(cluster.admin, "orders").only())

    assert found == MessageQueue("orders", "broker-a", 0)


def test_the_only_queue_of_several_is_refused_with_all_of_them() -> None:
    cluster = FakeCluster()
    cluster.on_route("orders", queues=2, brokers="ab")

    with pytest.raises(InvalidArgument) as caught:
        asyncio.run(QueueNames(cluster.admin, "orders").only())

    assert caught.value.fact == "topic 'orders' has 4 queues"
    assert "broker-a/0 to broker-a/1, broker-b/0 to broker-b/1" in caught.value.next_step
