"""Topics are deleted, widened and narrowed while clients use them; nobody is left in the dark."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from cometmq.admin import Admin
from cometmq.codec import bodies, core
from cometmq.codec.bodies.topics import TopicConfigList, TopicConfigTable, TopicStatsTable
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.offsets import OffsetResponse
from cometmq.model.route import TopicRoute
from cometmq.model.topic import TopicConfig
from cometmq.testing import LocalCluster
from cometmq.testing.local_cluster import BlockingCluster
from tests.broker.kit import SUBSCRIPTION, SUSPEND, Peer, bodies_of, connected, pull_ext, stored_at

TOPIC = "orders"
SENDERS = 3
SENT_BEFORE_MIN = 200


@pytest.fixture(scope="module")
def strict() -> Iterator[BlockingCluster]:
    """A cluster whose broker makes no topic for senders."""
    with LocalCluster(settings={"autoCreateTopicEnable": "false"}) as running:
        yield running


def delete(peer: Peer, topic: str = TOPIC) -> None:
    answer = peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def change(peer: Peer, *topics: TopicConfig) -> None:
    body = bodies.encode(TopicConfigList(topics))
    answer = peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def commit(peer: Peer, topic: str, offset: int) -> None:
    ext = {"consumerGroup": "consumers", "topic": topic, "queueId": "0"}
    answer = peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**ext, "commitOffset": str(offset)})
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def committed(peer: Peer, topic: str) -> int | None:
    ext = {"consumerGroup": "consumers", "topic": topic, "queueId": "0"}
    answer = peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, {**ext, "setZeroIfNotFound": "false"})
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return core.read(answer, OffsetResponse).offset


def topic_names(peer: Peer) -> set[str]:
    answer = peer.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    return set(bodies.decode(TopicConfigTable, answer.body).topic_config_table)


def hold_pull(peer: Peer, topic: str) -> int:
    """Pull what does not exist yet, ready to wait; the opaque of the request."""
    flags = str(SUSPEND | SUBSCRIPTION)
    ext = pull_ext(topic, sysFlag=flags, suspendTimeoutMillis="20000")
    return peer.tell(RequestCode.PULL_MESSAGE, ext, flag=0)


def test_whoever_waits_for_messages_of_a_topic_is_told_when_it_is_deleted(
    strict: BlockingCluster,
) -> None:
    strict.create_topic(TOPIC)
    with connected(strict.broker.address) as waiting, connected(strict.broker.address) as admin:
        opaque = hold_pull(waiting, TOPIC)
        assert waiting.max_offset(TOPIC) == 0  # answered in order: the pull is held by now

        delete(admin)
        told = waiting.next_command()

        assert (told.opaque, told.code) == (opaque, ResponseCode.TOPIC_NOT_EXIST)
        assert told.remark == f"topic[{TOPIC}] not exist, apply first please!"
        assert waiting.is_served()


@pytest.mark.slow
def test_senders_and_readers_of_a_deleted_topic_are_told_so_and_nothing_else(
    strict: BlockingCluster,
) -> None:
    strict.create_topic(TOPIC)
    outcomes: dict[int, list[Command]] = {number: [] for number in range(SENDERS + 1)}

    def use(number: int) -> None:
        with connected(strict.broker.address) as peer:
            while not outcomes[number] or outcomes[number][-1].code in (0, 19):
                if number == SENDERS:
                    offset = str(sum(len(bodies_of(got)) for got in outcomes[number]))
                    outcomes[number].append(peer.pull(TOPIC, queueOffset=offset))
                else:
                    outcomes[number].append(peer.send(TOPIC))

    threads = [threading.Thread(target=use, args=(number,)) for number in outcomes]
    for thread in threads:
        thread.start()
    while sum(map(len, outcomes.values())) < SENT_BEFORE_MIN:
        time.sleep(0.001)
    with connected(strict.broker.address) as admin:
        delete(admin)
        for thread in threads:
            thread.join(10)

        last = [answers[-1].code for answers in outcomes.values()]
        assert last == [ResponseCode.TOPIC_NOT_EXIST] * (SENDERS + 1)
        strict.create_topic(TOPIC)
        assert admin.max_offset(TOPIC) == 0
        assert stored_at(admin.send(TOPIC)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_deleted_topic_stays_deleted_after_a_restart(end: str) -> None:
    with LocalCluster() as cluster:
        for topic in (TOPIC, "kept"):
            cluster.create_topic(topic)
        with connected(cluster.broker.address) as peer:
            for topic in ("kept", TOPIC, "kept", TOPIC):
                peer.send(topic)
                peer.pull(topic)  # makes the group
                commit(peer, topic, 1)
            delete(peer)

        getattr(cluster.broker, end)()
        cluster.broker.start()

        with connected(cluster.broker.address) as peer:
            names = topic_names(peer)
            assert TOPIC not in names
            assert "kept" in names
            assert peer.max_offset(TOPIC) == 0
            assert peer.max_offset("kept") == 2
            if end == "stop":
                assert (committed(peer, TOPIC), committed(peer, "kept")) == (None, 1)


def route_of(cluster: BlockingCluster, topic: str) -> TopicRoute | None:
    with connected(cluster.namesrv) as peer:
        ext = {"topic": topic, "acceptStandardJsonOnly": "true"}
        answer = peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext)
    return None if answer.code else bodies.decode(TopicRoute, answer.body)


def test_name_servers_know_a_list_of_topics_when_it_is_answered(cluster: BlockingCluster) -> None:
    with connected(cluster.broker.address) as admin:
        change(admin, TopicConfig("list-a", 3, 2), TopicConfig("list-b", 1, 1))

        route = route_of(cluster, "list-a")

    assert route is not None
    (queues,) = route.queue_datas
    assert (queues.read_queue_nums, queues.write_queue_nums) == (3, 2)
    assert route_of(cluster, "list-b") is not None


def test_the_order_of_a_topic_can_be_ended(cluster: BlockingCluster, peer: Peer) -> None:
    """Also for good: the broker would take it from the name server again."""

    async def scenario() -> None:
        async with Admin(cluster.namesrv) as admin:
            (made,) = await admin.topics.create("in-order", queues=2, is_ordered=True)

            (changed,) = await admin.topics.update("in-order", is_ordered=False)

            assert (made.is_ordered, changed.is_ordered) == (True, False)
            assert await admin.name_servers.order_config("in-order") is None
            # Another registration, and with it another answer of the name server.
            change(peer, TopicConfig("another", 1, 1))
            (kept,) = await admin.topics.configs("in-order")
            assert not kept.is_ordered

    asyncio.run(scenario())


def test_a_topic_is_narrowed_without_losing_anything(cluster: BlockingCluster, peer: Peer) -> None:
    """First nobody writes to the last queues, then they are drained, then nobody reads them."""
    topic = "narrowed"
    change(peer, TopicConfig(topic, 4, 4))
    for queue_id in range(4):
        stored_at(peer.send(topic, b"%d" % queue_id, e=str(queue_id)))

    change(peer, TopicConfig(topic, 4, 2))
    # A producer that has not heard of it yet may go on: the queue is read still.
    assert stored_at(peer.send(topic, b"late", e="3")) == 1
    drained = [bodies_of(peer.pull(topic, queueId=str(queue_id))) for queue_id in range(4)]
    change(peer, TopicConfig(topic, 2, 2))

    assert drained == [[b"0"], [b"1"], [b"2"], [b"3", b"late"]]
    assert peer.send(topic, b"too late", e="3").code == ResponseCode.INVALID_PARAMETER
    assert peer.pull(topic, queueId="3").code == ResponseCode.INVALID_PARAMETER
    assert peer.max_offset(topic, 3) == 2
    change(peer, TopicConfig(topic, 4, 4))
    assert bodies_of(peer.pull(topic, queueId="3")) == [b"3", b"late"]


def test_statistics_tell_what_is_there_while_senders_send(
    cluster: BlockingCluster, topic: str
) -> None:
    with contextlib.ExitStack() as stack:
        sender = stack.enter_context(connected(cluster.broker.address))
        admin = stack.enter_context(connected(cluster.broker.address))
        counts = []
        for _ in range(20):
            sender.send(topic)
            answer = admin.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
            table = bodies.decode(TopicStatsTable, answer.body).offset_table
            counts.append(sum(bounds.max_offset for bounds in table.values()))

    assert counts == list(range(1, 21))
