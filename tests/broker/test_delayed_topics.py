"""Delayed messages whose topic is deleted while they wait."""

import pytest

from cometmq.codec import bodies
from cometmq.codec.bodies.topics import TopicConfigTable
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.testing import FakeClock, LocalCluster
from tests.broker.kit import SUBSCRIPTION, SUSPEND, Peer, bodies_of, connected, pull_ext

BY_LEVEL, BY_TIME = "DELAY\x011\x02", "TIMER_DELAY_MS\x012000\x02"
ALL_WAYS = (BY_LEVEL, BY_TIME)


def put_aside(peer: Peer, topic: str, body: bytes) -> None:
    for way in ALL_WAYS:
        assert peer.send(topic, body, i=way, e="0").code == ResponseCode.SUCCESS


def delete(peer: Peer, topic: str) -> None:
    answer = peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def await_bodies(peer: Peer, topic: str, count: int) -> list[bytes]:
    """As many messages of queue 0 as there have to be; each pull waits for more."""
    got: list[bytes] = []
    flags = str(SUSPEND | SUBSCRIPTION)
    while len(got) < count:
        ext = pull_ext(topic, queueOffset=str(len(got)), sysFlag=flags, suspendTimeoutMillis="5000")
        got += bodies_of(peer.ask(RequestCode.PULL_MESSAGE, ext))
    return got


def topic_names(peer: Peer) -> set[str]:
    answer = peer.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    return set(bodies.decode(TopicConfigTable, answer.body).topic_config_table)


@pytest.mark.slow
@pytest.mark.parametrize("topic", ["orders", "%RETRY%billing"])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_deleted_topic_does_not_come_back_with_what_waited_for_it(topic: str, end: str) -> None:
    clock = FakeClock()
    with LocalCluster(clock=clock) as cluster:
        cluster.create_topic("marks")
        with connected(cluster.broker.address) as peer:
            put_aside(peer, topic, b"old")
            put_aside(peer, "marks", b"mark")  # due after the others
            delete(peer, topic)

        getattr(cluster.broker, end)()
        clock.advance(5)
        cluster.broker.start()
        with connected(cluster.broker.address) as peer:
            assert await_bodies(peer, "marks", 2) == [b"mark", b"mark"]
            assert topic not in topic_names(peer)
        cluster.broker.restart()

        with connected(cluster.broker.address) as peer:
            assert topic not in topic_names(peer)
            assert peer.max_offset(topic) == 0


@pytest.mark.slow
def test_a_topic_made_anew_gets_only_what_is_sent_to_it_since() -> None:
    clock = FakeClock()
    with LocalCluster(clock=clock) as cluster:
        cluster.create_topic("orders")
        with connected(cluster.broker.address) as peer:
            put_aside(peer, "orders", b"old")
            delete(peer, "orders")
            cluster.create_topic("orders")
            put_aside(peer, "orders", b"new")

            clock.advance(5)

            assert await_bodies(peer, "orders", 2) == [b"new", b"new"]
            assert peer.max_offset("orders") == 2


@pytest.mark.slow
def test_a_topic_that_a_kill_has_lost_is_there_when_its_message_is_due() -> None:
    clock = FakeClock()
    with LocalCluster(clock=clock) as cluster:
        with connected(cluster.broker.address) as peer:
            put_aside(peer, "orders", b"first")
        cluster.broker.kill()
        for path in (cluster.broker.folder).rglob("topics.json*"):
            path.unlink()  # it was not saved yet

        clock.advance(5)
        cluster.broker.start()

        with connected(cluster.broker.address) as peer:
            assert await_bodies(peer, "orders", 2) == [b"first", b"first"]
            assert "orders" in topic_names(peer)
