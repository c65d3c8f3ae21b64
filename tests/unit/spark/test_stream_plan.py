"""Batches of a stream as the driver plans them, over restarts and with limits."""

import json
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from cometmq.errors import NotFound, RemoteProtocolError, Unreachable
from cometmq.spark.losses import MessagesLost
from cometmq.spark.offsets import StreamOffset
from cometmq.spark.options import parse
from cometmq.spark.planning import Range
from cometmq.spark.stream_plan import MISSING_SECONDS_MAX, SIZES_KEPT_SECONDS, StreamPlan
from cometmq.spark.topology import Bounds
from tests.unit.spark.topology_kit import Clock, FakeTopology, queue


def plan_of(topology: FakeTopology, clock: Clock | None = None, **given: str) -> StreamPlan:
    base = {"rocketmq.namesrv.addr": "127.0.0.1:9876", "subscribe": "orders"}
    return StreamPlan(parse({**base, **given}), topology, now=clock or Clock())


def stored(offset: dict[str, Any]) -> dict[str, Any]:
    """An offset as it comes back from a checkpoint."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def ranges(plan: StreamPlan, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
    return sorted(one for task in plan.tasks(stored(start), stored(end)) for one in task.ranges)


@pytest.fixture
def topology() -> FakeTopology:
    return FakeTopology({queue(0): (0, 10), queue(1): (5, 8)})


def test_a_stream_begins_at_the_end_and_stays_with_that(topology: FakeTopology) -> None:
    plan = plan_of(topology)

    first = plan.initial()
    topology.grow(queue(0), 20)

    assert plan.initial() == first
    assert first["q"] == {"orders/broker-a/0": 10, "orders/broker-a/1": 8}


def test_a_batch_reads_what_has_come_since_the_last(topology: FakeTopology) -> None:
    plan = plan_of(topology)
    start = plan.initial()
    topology.grow(queue(0), 13)

    end = plan.next(stored(start), is_limited=True)

    assert ranges(plan, start, end) == [Range(queue(0), 10, 13)]
    assert plan.next(stored(end), is_limited=True) == end


def test_a_failed_first_batch_is_run_again_from_where_it_began(topology: FakeTopology) -> None:
    """After the restart "latest" is behind what the batch was to read."""
    plan = plan_of(topology)
    start = plan.initial()
    topology.grow(queue(0), 13)
    end = plan.next(start, is_limited=True)

    topology.grow(queue(0), 99)
    again = plan_of(topology)
    start_again = again.initial()

    assert start_again["q"]["orders/broker-a/0"] == 99
    assert ranges(again, start_again, end) == [Range(queue(0), 10, 13)]
    assert again.next(stored(end), is_limited=True)["init"] == end["init"]


def test_a_batch_that_is_run_again_has_the_same_tasks_whatever_options_say_now(
    topology: FakeTopology,
) -> None:
    plan = plan_of(topology, startingOffsets="earliest", minPartitions="3")
    start = plan.initial()
    end = plan.next(start, is_limited=True)
    tasks = plan.tasks(start, end)

    again = plan_of(topology, startingOffsets="latest", minPartitions="7")

    assert len(tasks) == 3
    assert again.tasks(stored(again.initial()), stored(end)) == tasks


def test_queues_are_read_whole_unless_more_tasks_are_asked_for(topology: FakeTopology) -> None:
    topology.grow(queue(0), 1_000_000)
    plan = plan_of(topology, startingOffsets="earliest")
    start = plan.initial()

    end = plan.next(start, is_limited=True)

    assert end["plan"]["cut"] is False
    assert ranges(plan, start, end) == [Range(queue(0), 0, 1_000_000), Range(queue(1), 5, 8)]


def test_a_queue_that_is_new_is_read_from_its_first_message(topology: FakeTopology) -> None:
    plan = plan_of(topology)
    start = plan.initial()
    topology.grow(queue(2), 9, begin=4)
    topology.grow(queue(0, broker="broker-b"), 3)

    end = plan.next(start, is_limited=True)
    again = plan_of(topology)

    wanted = [Range(queue(2), 4, 9), Range(queue(0, broker="broker-b"), 0, 3)]
    assert ranges(plan, start, end) == sorted(wanted)
    assert ranges(again, again.initial(), end) == sorted(wanted)


def test_rows_of_a_batch_are_limited_in_proportion(topology: FakeTopology) -> None:
    topology.grow(queue(0), 900)
    topology.grow(queue(1), 105)
    plan = plan_of(topology, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    start = plan.initial()

    end = plan.next(start, is_limited=True)

    assert ranges(plan, start, end) == [Range(queue(0), 0, 9), Range(queue(1), 5, 6)]


def test_bytes_of_a_batch_are_limited_by_the_size_of_messages(topology: FakeTopology) -> None:
    topology.grow(queue(0), 100_000)
    topology.sizes["orders"] = 1000
    plan = plan_of(
        topology,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="none",
        maxBytesPerTrigger="50000",
    )
    start = plan.initial()

    end = plan.next(start, is_limited=True)

    assert sum(one.rows for one in ranges(plan, start, end)) == 50
    whole = plan.next(start, is_limited=False)
    assert sum(one.rows for one in ranges(plan, start, whole)) == 100_003


def test_few_large_messages_are_limited_by_bytes_too(topology: FakeTopology) -> None:
    topology.grow(queue(0), 100)
    topology.sizes["orders"] = 1_000_000
    plan = plan_of(topology, startingOffsets="earliest", maxBytesPerTrigger="10000000")
    start = plan.initial()

    end = plan.next(start, is_limited=True)

    assert sum(one.rows for one in ranges(plan, start, end)) == 10


def test_sizes_are_asked_for_now_and_then_only(topology: FakeTopology) -> None:
    clock = Clock()
    topology.grow(queue(0), 100)
    plan = plan_of(topology, clock, startingOffsets="earliest", maxBytesPerTrigger="1000")
    start = plan.initial()

    asked = []
    for seconds in (0, 1, SIZES_KEPT_SECONDS):
        clock.now += seconds
        plan.next(start, is_limited=True)
        asked.append(topology.weighings)

    assert asked == [2, 2, 4]  # of both queues


def test_large_messages_behind_small_ones_are_more_than_one_batch(topology: FakeTopology) -> None:
    """Judged by its first messages the whole topic would be one batch, of 20 MB instead of 1."""
    sizes = [50] * 40 + [100_000] * 200
    del topology.queues[queue(1)]
    topology.grow(queue(0), len(sizes))
    topology.row_bytes[queue(0)] = sizes
    plan = plan_of(topology, startingOffsets="earliest", maxBytesPerTrigger="1m")
    place = plan.initial()
    batches = []

    while (following := plan.next(place, is_limited=True)) != place:
        (one,) = ranges(plan, place, following)
        batches.append(sum(sizes[one.begin : one.end]))
        place = following

    assert sum(batches) == sum(sizes)
    assert max(batches) <= 1024 * 1024


def test_what_has_come_since_sizes_were_found_is_looked_at(topology: FakeTopology) -> None:
    topology.row_bytes[queue(0)] = [50] * 1000 + [100_000] * 1000
    del topology.queues[queue(1)]
    topology.grow(queue(0), 1000)
    plan = plan_of(topology, startingOffsets="earliest", maxBytesPerTrigger="1m")
    start = plan.initial()
    small = plan.next(start, is_limited=True)

    topology.grow(queue(0), 2000)
    large = plan.next(small, is_limited=True)

    assert [one.rows for one in ranges(plan, start, small)] == [1000]
    assert [one.rows for one in ranges(plan, small, large)] == [10]


def test_sizes_that_cannot_be_found_do_not_limit_and_are_looked_for_again(
    topology: FakeTopology, caplog: pytest.LogCaptureFixture
) -> None:
    topology.sizes["orders"] = 1000
    topology.grow(queue(0), 1000)
    plan = plan_of(topology, startingOffsets="earliest", maxBytesPerTrigger="1000")
    start = plan.initial()

    topology.weighing_error = Unreachable("b:1", "connection refused")
    unlimited = plan.next(start, is_limited=True)
    topology.weighing_error = None
    limited = plan.next(start, is_limited=True)

    assert sum(one.rows for one in ranges(plan, start, unlimited)) == 1003
    assert sum(one.rows for one in ranges(plan, start, limited)) == 1
    assert "the size of messages is not known" in caplog.text


def test_few_rows_wait_for_more_but_not_for_ever(topology: FakeTopology) -> None:
    clock = Clock()
    plan = plan_of(topology, clock, minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    start = plan.initial()
    topology.grow(queue(0), 12)

    clock.now += 9
    early = plan.next(start, is_limited=True)
    clock.now += 1
    late = plan.next(start, is_limited=True)
    topology.grow(queue(0), 17)

    assert early == start
    assert ranges(plan, start, late) == [Range(queue(0), 10, 12)]
    assert ranges(plan, late, plan.next(late, is_limited=True)) == [Range(queue(0), 12, 17)]


def test_a_query_that_ends_reads_what_was_there_when_it_began(topology: FakeTopology) -> None:
    plan = plan_of(topology, startingOffsets="earliest", minOffsetsPerTrigger="1000")
    plan.end_with_what_is_there()
    start = plan.initial()
    topology.grow(queue(0), 99)
    topology.grow(queue(7), 5)

    end = plan.next(start, is_limited=True)

    assert ranges(plan, start, end) == [Range(queue(0), 0, 10), Range(queue(1), 5, 8)]
    assert plan.next(end, is_limited=True) == end


def test_a_running_stream_outlives_servers_that_are_away(topology: FakeTopology) -> None:
    plan = plan_of(topology)
    start = plan.initial()
    topology.error = Unreachable("ns:9876", "connection refused")

    assert plan.next(start, is_limited=True) == start

    with pytest.raises(Unreachable):
        plan_of(topology).initial()


def test_a_topic_that_is_not_found_is_waited_for_and_then_taken_for_deleted(
    topology: FakeTopology,
) -> None:
    """Name servers forget it while its only broker is being restarted."""
    clock = Clock()
    plan = plan_of(topology, clock)
    start = plan.initial()
    waits = []

    for _ in range(2):
        topology.error = NotFound("topic", "orders")
        waits.append(plan.next(start, is_limited=True))
        clock.now += MISSING_SECONDS_MAX - 1
        waits.append(plan.next(start, is_limited=True))
        topology.error = None
        waits.append(plan.next(start, is_limited=True))
    topology.error = NotFound("topic", "orders")
    plan.next(start, is_limited=True)
    clock.now += MISSING_SECONDS_MAX

    assert waits == [start] * 6
    with pytest.raises(NotFound):
        plan.next(start, is_limited=True)


def test_queues_of_a_broker_that_is_away_stay_where_they_are(topology: FakeTopology) -> None:
    plan = plan_of(topology)
    start = plan.initial()
    del topology.queues[queue(1)]
    topology.grow(queue(0), 12)

    end = plan.next(start, is_limited=True)

    assert end["q"] == {"orders/broker-a/0": 12, "orders/broker-a/1": 8}


def test_a_queue_that_ends_before_what_was_read_is_a_loss(topology: FakeTopology) -> None:
    plan = plan_of(topology)
    start = plan.initial()
    topology.grow(queue(0), 20)
    end = plan.next(start, is_limited=True)
    topology.grow(queue(0), 3)

    with pytest.raises(MessagesLost, match="was the topic made anew"):
        plan.next(end, is_limited=True)


def test_a_loss_that_is_allowed_does_not_pass_over_what_comes_next(
    topology: FakeTopology,
) -> None:
    plan = plan_of(topology, failOnDataLoss="false")
    start = plan.initial()
    topology.grow(queue(0), 20)
    end = plan.next(start, is_limited=True)
    topology.grow(queue(0), 3)

    rewound = plan.next(stored(end), is_limited=True)
    topology.grow(queue(0), 5)
    after = plan.next(stored(rewound), is_limited=True)

    assert rewound["q"]["orders/broker-a/0"] == 3
    assert ranges(plan, end, rewound) == []
    assert ranges(plan, rewound, after) == [Range(queue(0), 3, 5)]


def test_a_queue_that_has_shrunk_before_anything_was_read_is_a_loss_too(
    topology: FakeTopology,
) -> None:
    plan = plan_of(topology)
    start = plan.initial()
    topology.grow(queue(0), 8)

    with pytest.raises(MessagesLost, match="offsets 8 to 9"):
        plan.next(start, is_limited=True)


def test_a_slave_that_lags_is_no_loss(topology: FakeTopology) -> None:
    plan = plan_of(topology)
    start = plan.initial()
    topology.queues[queue(0)] = Bounds(0, 7, is_certain=False)
    topology.grow(queue(1), 9)

    end = plan.next(start, is_limited=True)

    assert ranges(plan, start, end) == [Range(queue(1), 8, 9)]
    assert end["q"]["orders/broker-a/0"] == 10


def test_heads_are_reported_by_queue(topology: FakeTopology) -> None:
    plan = plan_of(topology)

    assert plan.heads() is None
    plan.initial()
    assert plan.heads() == {"v": 1, "q": {"orders/broker-a/0": 10, "orders/broker-a/1": 8}}


@pytest.mark.parametrize(
    "content", [{}, {"v": 2}, {"v": 1}, {"v": 1, "q": {"x": 1}, "init": {}, "plan": {}}]
)
def test_a_checkpoint_of_something_else_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError, match="checkpoint"):
        StreamOffset.from_json(content)
