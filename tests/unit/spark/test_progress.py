"""How far a stream is, told to brokers that are there, away, gone or somewhere else."""

import pytest

pytest.importorskip("pyarrow")

from cometmq.errors import Refused, Unreachable
from cometmq.spark.offsets import StreamOffset
from cometmq.spark.progress import REST_SECONDS, REST_SECONDS_MAX, Progress
from tests.unit.spark.topology_kit import Clock, FakeTopology, queue

A, B = queue(0), queue(0, broker="broker-b")


@pytest.fixture
def topology() -> FakeTopology:
    return FakeTopology({A: (0, 10), B: (0, 10)})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(topology: FakeTopology, clock: Clock) -> Progress:
    return Progress("g", topology, now=clock)


def at(a: int, b: int) -> StreamOffset:
    return StreamOffset({A: a, B: b}, {A: 0, B: 0})


def test_progress_is_published_and_never_goes_back(
    topology: FakeTopology, progress: Progress
) -> None:
    topology.groups["g", B] = 7

    progress.publish(at(0, 0))
    progress.publish(at(5, 6))
    progress.publish(at(4, 9))

    assert topology.commits == [{A: 5}, {B: 9}]


def test_nothing_is_asked_when_nothing_has_moved(
    topology: FakeTopology, progress: Progress
) -> None:
    progress.publish(at(5, 6))
    tries = topology.tries

    progress.publish(at(5, 6))

    assert topology.tries == tries


def test_progress_that_cannot_be_published_stops_nothing(
    topology: FakeTopology, progress: Progress, clock: Clock
) -> None:
    topology.error = Unreachable("broker", "connection refused")

    progress.publish(at(5, 0))
    assert topology.commits == []
    topology.error = None
    clock.now += REST_SECONDS
    progress.publish(at(5, 0))

    assert topology.commits == [{A: 5}, {B: 0}]


@pytest.mark.parametrize("away", ["broker-a", "broker-b"])
def test_a_broker_that_is_away_does_not_keep_others_from_being_told(
    topology: FakeTopology, progress: Progress, away: str
) -> None:
    topology.away = {away}
    there = B if away == "broker-a" else A

    progress.publish(at(5, 5))
    progress.publish(at(6, 6))

    assert topology.commits == [{there: 5}, {there: 6}]


def test_a_broker_that_is_away_is_left_alone_for_longer_and_longer(
    topology: FakeTopology, progress: Progress, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    topology.away = {"broker-a", "broker-b"}
    tried_at = []
    for second in range(200):
        tries = topology.tries
        progress.publish(at(5, 5))
        if topology.tries > tries:
            tried_at.append(second)
        clock.now += 1

    assert tried_at == [0, 5, 15, 35, 75, 135, 195]
    assert REST_SECONDS_MAX == 60
    assert len(caplog.records) == 2  # one for each broker

    topology.away = set()
    clock.now += REST_SECONDS_MAX
    progress.publish(at(5, 5))
    assert topology.commits == [{A: 5}, {B: 5}]


def test_tools_find_the_group_on_each_broker_that_has_progress(
    topology: FakeTopology, progress: Progress
) -> None:
    topology.groups["g", B] = 10

    progress.publish(at(5, 5))
    progress.publish(at(6, 6))
    progress.publish(at(7, 11))

    assert topology.introductions == [("g", "broker-a"), ("g", "broker-b")]


def test_progress_is_published_where_tools_may_not_find_it(
    topology: FakeTopology, clock: Clock
) -> None:
    class Reserved(FakeTopology):
        def introduce(self, group: str, broker_name: str) -> None:
            super().introduce(group, broker_name)
            raise Refused(broker_name, "HEART_BEAT", 16, "no permission")

    reserved = Reserved({A: (0, 10)})
    progress = Progress("g", reserved, now=clock)

    progress.publish(StreamOffset({A: 5}, {A: 0}))
    progress.publish(StreamOffset({A: 6}, {A: 0}))

    assert reserved.commits == [{A: 5}, {A: 6}]
    assert len(reserved.introductions) == 1
