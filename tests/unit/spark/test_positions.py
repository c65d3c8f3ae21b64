"""Which queues a query reads, and from where to where."""

import json
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from cometmq.errors import InvalidArgument, NotFound
from cometmq.spark.losses import MessagesLost
from cometmq.spark.options import SourceOptions, parse
from cometmq.spark.planning import Range
from cometmq.spark.positions import batch_ranges, wanted_queues
from tests.unit.spark.topology_kit import FakeTopology, queue


def options(**given: Any) -> SourceOptions:
    base = {"rocketmq.namesrv.addr": "127.0.0.1:9876"}
    if not given.keys() & {"subscribePattern", "assign"}:
        base["subscribe"] = "orders"
    texts = {name: v if isinstance(v, str) else json.dumps(v) for name, v in given.items()}
    return parse({**base, **texts})


@pytest.fixture
def topology() -> FakeTopology:
    return FakeTopology({queue(0): (10, 50), queue(1): (0, 0), queue(0, "other"): (0, 5)})


def test_a_batch_reads_everything_there_is(topology: FakeTopology) -> None:
    assert batch_ranges(options(), topology) == [Range(queue(0), 10, 50)]


def test_offsets_of_queues_begin_and_end_a_batch(topology: FakeTopology) -> None:
    got = options(
        startingOffsets={"orders": {"broker-a": {"0": 12}}},
        endingOffsets={"orders": {"broker-a": {"0": 20}}},
    )

    assert batch_ranges(got, topology) == [Range(queue(0), 12, 20)]


def test_numbers_stand_for_places(topology: FakeTopology) -> None:
    topology.grow(queue(1), 9)
    topology.groups["g", queue(1)] = 4
    got = options(startingOffsets={"orders": {"broker-a": {"0": -1, "1": -3}}}, group="g")

    assert batch_ranges(got, topology) == [Range(queue(1), 4, 9)]


def test_a_group_that_was_never_there_begins_with_the_first(topology: FakeTopology) -> None:
    got = options(startingOffsets="committed", group="g")

    assert batch_ranges(got, topology) == [Range(queue(0), 10, 50)]


def test_times_begin_and_end_a_batch(topology: FakeTopology) -> None:
    topology.stored[queue(0)] = list(range(1000, 1040))
    got = options(
        startingTimestamp="1005",
        endingTimestamp="1010",
        startingOffsetsByTimestampStrategy="latest",
    )

    assert batch_ranges(got, topology) == [Range(queue(0), 15, 20)]


def test_a_time_that_no_message_has_reached_is_an_error_unless_latest_will_do(
    topology: FakeTopology,
) -> None:
    topology.stored[queue(0)] = [1000] * 40

    with pytest.raises(InvalidArgument, match="startingOffsetsByTimestampStrategy=latest"):
        batch_ranges(options(startingTimestamp="2000"), topology)
    late = options(startingTimestamp="2000", startingOffsetsByTimestampStrategy="latest")
    assert batch_ranges(late, topology) == []


def test_messages_that_are_gone_are_an_error_unless_that_is_allowed(
    topology: FakeTopology,
) -> None:
    start = {"orders": {"broker-a": {"0": 3}}}

    with pytest.raises(MessagesLost) as caught:
        batch_ranges(options(startingOffsets=start), topology)
    assert (caught.value.begin, caught.value.end) == (3, 10)
    allowed = options(startingOffsets=start, failOnDataLoss="false")
    assert batch_ranges(allowed, topology) == [Range(queue(0), 10, 50)]


def test_an_offset_behind_the_end_is_an_error(topology: FakeTopology) -> None:
    start = {"orders": {"broker-a": {"0": 51}}}

    with pytest.raises(InvalidArgument, match="was the topic made anew"):
        batch_ranges(options(startingOffsets=start), topology)


def test_an_end_that_is_not_there_names_its_own_option(topology: FakeTopology) -> None:
    got = options(endingOffsets={"orders": {"broker-a": {"0": 99}}})

    with pytest.raises(InvalidArgument) as caught:
        batch_ranges(got, topology)

    assert caught.value.argument == "endingOffsets"


def test_an_end_before_the_first_message_leaves_nothing_to_read(topology: FakeTopology) -> None:
    """Nothing is lost: what there is now was not asked for."""
    got = options(endingOffsets={"orders": {"broker-a": {"0": 5}}})

    assert batch_ranges(got, topology) == []


def test_patterns_match_whole_names_and_not_what_brokers_keep(topology: FakeTopology) -> None:
    for name in ("%RETRY%g", "%DLQ%g", "RMQ_SYS_TRACE_TOPIC", "orders2"):
        topology.grow(queue(0, name), 1)

    def topics(**given: str) -> set[str]:
        return {one.topic for one in wanted_queues(options(**given), topology)}

    assert topics(subscribePattern="order.") == {"orders"}
    assert topics(subscribePattern=".*") == {"orders", "orders2", "other"}
    assert topics(subscribePattern="%DLQ%.*") == {"%DLQ%g"}
    assert "RMQ_SYS_TRACE_TOPIC" in topics(subscribePattern=".*", isolation="raw")


def test_a_topic_that_brokers_keep_must_be_asked_for_twice(topology: FakeTopology) -> None:
    topology.grow(queue(0, "SCHEDULE_TOPIC_XXXX"), 3)

    with pytest.raises(InvalidArgument, match="read it with isolation=raw"):
        wanted_queues(options(subscribe="SCHEDULE_TOPIC_XXXX"), topology)
    raw = options(subscribe="SCHEDULE_TOPIC_XXXX", isolation="raw")
    assert list(wanted_queues(raw, topology)) == [queue(0, "SCHEDULE_TOPIC_XXXX")]


def test_only_assigned_queues_are_read(topology: FakeTopology) -> None:
    got = options(assign={"orders": {"broker-a": [0]}})

    assert list(wanted_queues(got, topology)) == [queue(0)]


@pytest.mark.parametrize(
    "given",
    [
        {"assign": {"orders": {"broker-a": [7]}}},
        {"startingOffsets": {"orders": {"broker-x": {"0": 1}}}},
    ],
)
def test_a_queue_that_does_not_exist_is_an_error(
    topology: FakeTopology, given: dict[str, Any]
) -> None:
    with pytest.raises(NotFound, match="no such queue"):
        batch_ranges(options(**given), topology)


def test_a_topic_that_does_not_exist_is_an_error(topology: FakeTopology) -> None:
    with pytest.raises(NotFound, match="no such topic: 'nothing'"):
        batch_ranges(options(subscribe="nothing"), topology)
