"""Ranges, tasks and limits: what must hold whatever the queues look like."""

from hypothesis import given
from hypothesis import strategies as st

from cometmq.model.offsets import MessageQueue
from cometmq.spark.planning import (
    Range,
    admit,
    cut,
    pack,
    rows_in,
    rows_of_bytes,
    spread,
    task_count,
)

QUEUES = [MessageQueue(topic, "broker-a", queue) for topic in ("a", "b") for queue in range(4)]

_ranges = st.dictionaries(
    st.sampled_from(QUEUES), st.tuples(st.integers(0, 50), st.integers(0, 40)), max_size=8
).map(lambda made: [Range(q, begin, begin + rows) for q, (begin, rows) in made.items()])
_counts = st.integers(1, 20)
_backlogs = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 10**9), min_size=1)


def offsets_in(ranges: list[Range] | tuple[Range, ...]) -> list[tuple[MessageQueue, int]]:
    return [(one.queue, offset) for one in ranges for offset in range(one.begin, one.end)]


@given(_ranges, _counts)
def test_cutting_gives_every_row_to_one_task_and_tasks_differ_by_one_row(
    ranges: list[Range], count: int
) -> None:
    tasks = cut(ranges, count)

    assert sorted(offsets_in([one for task in tasks for one in task])) == sorted(offsets_in(ranges))
    sizes = [rows_in(task) for task in tasks]
    assert len(tasks) == min(count, rows_in(ranges))
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert all(one.rows > 0 for task in tasks for one in task)


@given(_ranges, _counts)
def test_packing_leaves_every_queue_whole(ranges: list[Range], count: int) -> None:
    tasks = pack(ranges, count)

    assert sorted(one for task in tasks for one in task) == sorted(r for r in ranges if r.rows)
    assert len(tasks) <= count
    assert all(task for task in tasks)


@given(_ranges, _counts, st.randoms())
def test_plans_do_not_depend_on_the_order_of_ranges(
    ranges: list[Range], count: int, random: st.DataObject
) -> None:
    shuffled = list(ranges)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert cut(ranges, count) == cut(shuffled, count)
    assert pack(ranges, count) == pack(shuffled, count)


def test_a_queue_is_cut_where_half_of_all_rows_are() -> None:
    first, second = QUEUES[:2]

    tasks = cut([Range(first, 0, 6), Range(second, 10, 14)], 2)

    assert tasks == [(Range(first, 0, 5),), (Range(first, 5, 6), Range(second, 10, 14))]


def test_the_largest_queues_are_divided_first() -> None:
    ranges = [Range(QUEUES[n], 0, rows) for n, rows in enumerate([1, 5, 4, 2])]

    tasks = pack(ranges, 2)

    assert [rows_in(task) for task in tasks] == [6, 6]


@given(_backlogs, st.integers(1, 10**9))
def test_admitted_rows_are_the_limit_and_never_more_than_waits(
    backlogs: dict[MessageQueue, int], limit: int
) -> None:
    admitted = admit(backlogs, limit)

    assert admitted.keys() == backlogs.keys()
    assert all(0 <= admitted[queue] <= backlogs[queue] for queue in backlogs)
    assert sum(admitted.values()) == min(limit, sum(backlogs.values()))


def test_queues_give_in_proportion_to_what_waits() -> None:
    backlogs = {QUEUES[0]: 900, QUEUES[1]: 100}

    assert admit(backlogs, 10) == {QUEUES[0]: 9, QUEUES[1]: 1}


@given(st.integers(0, 10**7), st.integers(1, 64), st.none() | st.integers(1, 100))
def test_no_task_has_more_rows_or_bytes_than_allowed(
    rows: int, cores: int, least: int | None
) -> None:
    count = task_count(
        rows, row_bytes=1000, cores=cores, least=least, rows_max=50_000, bytes_max=40_000_000
    )

    assert 1 <= count <= max(rows, 1)
    assert rows <= 40_000 * count
    if least is not None and rows >= least:
        assert count >= least


def test_few_rows_are_one_task() -> None:
    limits = {"row_bytes": 0, "cores": 8, "rows_max": 10**6, "bytes_max": 10**9}

    assert task_count(100, least=None, **limits) == 1
    assert task_count(100, least=4, **limits) == 4
    assert task_count(100_000, least=None, **limits) == 8


def test_bytes_limit_rows_by_the_size_of_their_topic() -> None:
    backlogs = {QUEUES[0]: 100, QUEUES[4]: 100}

    assert rows_of_bytes(backlogs, {"a": 10, "b": 30}, 2000) == 100
    assert rows_of_bytes(backlogs, {"a": 10, "b": 30}, 4000) == 200
    assert rows_of_bytes(backlogs, {}, 1) == 200  # nobody knows: no limit
    assert rows_of_bytes(backlogs, {"a": 10**6}, 1) == 1


@given(st.integers(0, 200), st.integers(1, 20), st.integers(1, 10))
def test_places_are_spread_from_the_first_rows_of_a_range_to_its_last(
    count: int, places: int, rows: int
) -> None:
    wanted = Range(QUEUES[0], 5, 5 + count)

    parts = spread(wanted, places, rows)

    assert len(parts) <= places
    assert all(one.rows == min(rows, count) for one in parts)
    assert parts == sorted(parts)
    if count:
        assert parts[0].begin == wanted.begin
    if len(parts) > 1:
        assert parts[-1].end == wanted.end


def test_a_range_of_few_rows_is_looked_at_whole() -> None:
    wanted = Range(QUEUES[0], 0, 10)

    assert spread(wanted, 4, 8) == [Range(QUEUES[0], 0, 8), Range(QUEUES[0], 2, 10)]
    assert spread(Range(QUEUES[0], 0, 0), 4, 8) == []
