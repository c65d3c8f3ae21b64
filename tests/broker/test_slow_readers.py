"""A client that asks and never reads is held back, then dropped; others do not notice."""

import contextlib
import re
import socket
import time
from collections.abc import Iterator

import pytest

from cometmq.codec.codes import ResponseCode
from cometmq.testing.local_cluster import BlockingCluster, LocalCluster
from tests.broker.kit import Peer, bodies_of, complaints, connected, frame, pull_ext, stored_at

pytestmark = pytest.mark.slow

TOPIC = "backlog"
BODY = bytes(range(256)) * 128  # an answer has as many of them as fit into 256 KiB
MIB = 1024 * 1024
STALLED_SECONDS_MAX = 1
UNREAD_BYTES_MAX = 8 * MIB
PULLS = 2_000


@contextlib.contextmanager
def backlog_of(**settings: int) -> Iterator[BlockingCluster]:
    """A cluster with more messages than a client gets with one answer."""
    with LocalCluster(settings={"stalledSecondsMax": STALLED_SECONDS_MAX, **settings}) as cluster:
        cluster.create_topic(TOPIC, queues=1)
        with connected(cluster.broker.address) as peer:
            for number in range(64):
                assert stored_at(peer.send(TOPIC, BODY)) == number
        yield cluster


@contextlib.contextmanager
def deaf(cluster: BlockingCluster) -> Iterator[Peer]:
    """A client with little room for what it does not read."""
    with connected(cluster.broker.address) as peer:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        yield peer


def slowest_request(peer: Peer, seconds: float) -> float:
    """How long the slowest of the requests of another client takes meanwhile."""
    slowest, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.monotonic()
        assert stored_at(peer.send("others")) >= 0
        assert len(bodies_of(peer.pull(TOPIC))) > 1
        slowest = max(slowest, time.monotonic() - begun)
    return slowest


def test_who_does_not_read_is_held_back_then_dropped(caplog: pytest.LogCaptureFixture) -> None:
    with (
        backlog_of() as cluster,
        deaf(cluster) as client,
        connected(cluster.broker.address) as other,
    ):
        for opaque in range(PULLS):
            client.say(frame(11, pull_ext(TOPIC), opaque=opaque))
            if opaque < 200:  # so that the broker does not get them all with one read
                assert other.is_served()

        slowest = slowest_request(other, STALLED_SECONDS_MAX + 1)

        (line,) = complaints(caplog)
        assert line == (
            f"peer=127.0.0.1:{client.port} connection dropped:"
            f" left answers unread for {STALLED_SECONDS_MAX} s"
        )
        assert slowest < 0.5
        assert len(client.until_closed()) < 32 * MIB, "most pulls were never carried out"
        assert other.is_served()


def test_who_asks_for_everything_at_once_is_dropped_before_much_is_unread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        backlog_of(writeBufferBytesMax=UNREAD_BYTES_MAX) as cluster,
        deaf(cluster) as client,
        connected(cluster.broker.address) as other,
    ):
        client.say(b"".join(frame(11, pull_ext(TOPIC), opaque=n) for n in range(PULLS)))

        slowest = slowest_request(other, STALLED_SECONDS_MAX + 1)

        (line,) = complaints(caplog)
        assert "connection dropped" in line
        unread = re.search(r"has (\d+) bytes of answers unread", line)
        assert unread is None or int(unread[1]) < UNREAD_BYTES_MAX + 2 * MIB
        assert slowest < 0.5
        assert other.is_served()


def test_who_reads_slowly_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    opaques = range(40)
    with backlog_of() as cluster, deaf(cluster) as client:
        for opaque in opaques:
            client.say(frame(11, pull_ext(TOPIC), opaque=opaque))
        answers = []
        for _ in opaques:
            time.sleep(STALLED_SECONDS_MAX / 20)  # is what slow means
            answers.append(client.next_command())

    assert [answer.opaque for answer in answers] == list(opaques)
    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    assert not [line for line in complaints(caplog) if "dropped" in line]
