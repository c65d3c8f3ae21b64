"""Routing of rows: by key, by queue, by turns; the same for the same rows and brokers."""

import itertools
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

from cometmq.client.core.queue_selection import by_key  # noqa: E402
from cometmq.errors import InvalidArgument  # noqa: E402
from cometmq.model.offsets import MessageQueue  # noqa: E402
from cometmq.spark.sink_routing import Plan, Router, queue_of  # noqa: E402
from cometmq.spark.sink_rows import rows_of  # noqa: E402

ONE = Plan("orders", ("broker-a",))
TWO = Plan("orders", ("broker-a", "broker-b"))


def rows(count: int, **columns: Any) -> Any:
    return rows_of(pa.record_batch({"body": [b"x"] * count, **columns}))


def routed(plan: Plan, table: Any, partition: int = 0) -> tuple[list[int], list[Any]]:
    order, runs = Router(plan, partition).order(table, np.arange(table.count))
    return order.tolist(), runs


def test_rows_without_a_wish_keep_their_order_and_take_turns_in_blocks() -> None:
    router = Router(TWO, 1)

    first = router.order(rows(2500), np.arange(2500))
    second = router.order(rows(10), np.arange(10))

    places = first[0].tolist()
    by_broker = [(run.broker, places[run.begin], run.end - run.begin) for run in first[1]]
    assert by_broker == [(0, 1024, 1024), (1, 0, 1024), (1, 2048, 452)]
    assert [run.broker for run in second[1]] == [0]


@pytest.mark.parametrize("queues", [1, 2, 3, 4, 6, 8, 12, 16, 24, 48])
def test_a_key_goes_to_the_queue_that_other_producers_choose(queues: int) -> None:
    keys = [f"key-{i}" for i in range(500)]
    order, runs = routed(ONE, rows(len(keys), orderingKey=keys))
    known = [MessageQueue("orders", "broker-a", number) for number in range(queues)]

    for run in runs:
        for place in order[run.begin : run.end]:
            assert queue_of(run.rank, queues, 0) == by_key(known, keys[place]).queue_id


@pytest.mark.parametrize("queues", [1, 2, 4, 8, 16])
def test_slots_of_one_queue_stand_side_by_side(queues: int) -> None:
    _, runs = routed(ONE, rows(4096, orderingKey=[str(i) for i in range(4096)]))

    found = [queue_of(run.rank, queues, 0) for run in runs]
    changes = sum(before != after for before, after in itertools.pairwise(found))

    assert changes == queues - 1
    assert set(found) == set(range(queues))


def test_rows_of_a_key_stay_in_order_and_on_one_broker() -> None:
    keys = [f"key-{i % 37}" for i in range(4000)]
    order, runs = routed(TWO, rows(len(keys), orderingKey=keys))
    seen: dict[str, list[tuple[int, int]]] = {}

    for run in runs:
        for place in order[run.begin : run.end]:
            seen.setdefault(keys[place], []).append((run.broker, place))

    for places in seen.values():
        assert len({broker for broker, _ in places}) == 1
        assert places == sorted(places)
    assert {places[0][0] for places in seen.values()} == {0, 1}


def test_brokers_of_keys_do_not_depend_on_where_rows_stand() -> None:
    keys = [f"key-{i}" for i in range(100)]
    forth, _ = brokers_of_keys(keys), None
    back = brokers_of_keys(keys[::-1])

    assert forth == back


def brokers_of_keys(keys: list[str]) -> dict[str, int]:
    order, runs = routed(TWO, rows(len(keys), orderingKey=keys), partition=5)
    return {keys[place]: run.broker for run in runs for place in order[run.begin : run.end]}


def test_a_queue_that_is_asked_for_counts_more_than_a_key() -> None:
    table = rows(3, orderingKey=["a", "a", "a"], queueId=pa.array([7, None, 0], pa.int32()))

    order, runs = routed(ONE, table)

    found = {order[run.begin]: queue_of(run.rank, 8, 0) for run in runs}
    assert found[0] == 7
    assert found[2] == 0
    assert len(runs) == 3


def test_a_queue_of_several_brokers_needs_a_broker() -> None:
    with pytest.raises(InvalidArgument, match="not of which broker"):
        routed(TWO, rows(1, queueId=[1]))
    with pytest.raises(InvalidArgument, match="has no broker 'broker-x'"):
        routed(TWO, rows(1, queueId=[1], brokerName=["broker-x"]))

    _, runs = routed(TWO, rows(2, queueId=[1, 1], brokerName=["broker-b", "broker-a"]))

    assert [run.broker for run in runs] == [0, 1]


def test_a_queue_that_is_not_there_is_refused() -> None:
    _, runs = routed(ONE, rows(1, queueId=[4]))

    with pytest.raises(InvalidArgument, match="asks for queue 4, and there are 4"):
        queue_of(runs[0].rank, 4, 0)


def test_some_rows_of_a_chunk_are_routed_like_the_same_rows_alone() -> None:
    keys = [f"key-{i}" for i in range(60)]
    places = np.arange(1, 60, 2)

    among, runs = Router(TWO, 0).order(rows(60, orderingKey=keys), places)
    alone, same = routed(TWO, rows(30, orderingKey=keys[1::2]))

    assert [(place - 1) // 2 for place in among.tolist()] == alone
    assert runs == same


def test_a_producer_is_another_one_when_brokers_are() -> None:
    assert ONE.producer_id("query", 3).startswith("spark.query.3.")
    assert ONE.producer_id("query", 3) != TWO.producer_id("query", 3)
    assert ONE.producer_id("query", 3) == Plan("else", ("broker-a",)).producer_id("query", 3)
