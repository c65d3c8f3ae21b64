"""What is remembered of producers, and what is made of it when the log is cut somewhere."""

import msgspec
import pytest

from cometmq.broker.idempotence_table import RUN_COUNT_MAX, ProducerTable, Run
from cometmq.codec.codes import ResponseCode
from cometmq.errors import BrokerError

EPOCH = 1 << 32
BYTES = 100


def table(*, producers_max: int = 10, runs_max: int = 4) -> ProducerTable:
    return ProducerTable(
        producers_max=producers_max, runs_max=runs_max, expiry_ms=1000, idle_ms=100
    )


def run(first: int, count: int = 1, *, at: int | None = None, queue_id: int = 0) -> Run:
    """Messages of 100 bytes, stored where their sequence says unless ``at`` says otherwise."""
    begin = first % EPOCH * BYTES if at is None else at
    return Run(first, count, queue_id, begin // BYTES, begin, begin + count * BYTES)


def noted(*runs: Run, runs_max: int = 4) -> ProducerTable:
    filled = table(runs_max=runs_max)
    for item in runs:
        filled.note("orders", "p", item, 5)
    return filled


def runs_of(filled: ProducerTable) -> list[Run]:
    producer = filled.get("orders", "p")
    assert producer is not None
    return list(producer.runs)


def test_sends_directly_behind_each_other_are_one_run() -> None:
    assert runs_of(noted(run(0, 2), run(2), run(3, 5))) == [run(0, 8)]


@pytest.mark.parametrize(
    "second",
    [
        run(2, at=900),
        run(2, queue_id=1),
        run(2, RUN_COUNT_MAX),
        msgspec.structs.replace(run(2), aside=("SCHEDULE_TOPIC_XXXX", 2)),
        run(EPOCH, at=200),
    ],
)
def test_others_are_not(second: Run) -> None:
    assert runs_of(noted(run(0, 2), second)) == [run(0, 2), second]


def test_only_the_last_runs_are_kept() -> None:
    runs = [run(number, at=number * 1000) for number in range(10)]

    assert runs_of(noted(*runs)) == runs[-4:]


def test_a_producer_that_begins_again_is_taken_as_it_is() -> None:
    filled = noted(run(0, 10), run(0, at=5000))

    assert runs_of(filled) == [run(0, at=5000)]


class TestSnapshot:
    @pytest.mark.parametrize(
        ("end", "offset", "last", "count"),
        [
            (10_000, 10_000, 39, 3),
            (4000, 3000, 19, 2),
            (3000, 3000, 19, 2),
            (2500, 2500, 19, 2),
            (2000, 2000, 19, 2),
            (1999, 1000, 9, 1),
            (1000, 1000, 9, 1),
        ],
    )
    def test_it_is_what_was_known_then(self, end: int, offset: int, last: int, count: int) -> None:
        runs = (run(0, 10), run(10, 10, queue_id=1), run(20, 20, at=3000))
        filled = noted(*runs)

        snapshot = filled.snapshot(end)

        assert snapshot.offset == offset
        (entry,) = snapshot.entries
        assert (entry.last, entry.runs) == (last, runs[:count])

    def test_who_had_sent_nothing_by_then_is_not_in_it(self) -> None:
        assert noted(run(0, 10, at=500)).snapshot(500).entries == []

    def test_nor_is_who_had_but_nobody_knows_any_more_how_much(self) -> None:
        runs = [run(number, at=number * 1000) for number in range(10)]

        assert noted(*runs).snapshot(3000).entries == []

    def test_it_is_restored_as_it_was(self) -> None:
        filled = noted(run(0, 2), run(2, at=900))
        filled.note("orders", "q", run(0, at=1000), 6)
        again = noted(run(7))

        again.restore(filled.snapshot(5000))

        assert again.snapshot(5000) == filled.snapshot(5000)
        assert len(again) == 2


class TestRoom:
    def test_when_it_is_full_the_one_used_longest_ago_goes_and_only_if_it_is_idle(self) -> None:
        filled = table(producers_max=2)
        filled.note("orders", "a", run(0), 0)
        filled.note("orders", "b", run(0), 1)
        filled.note("orders", "a", run(1), 2)

        with pytest.raises(BrokerError) as refused:
            filled.require_room(100)
        filled.require_room(101)

        assert refused.value.response_code == ResponseCode.PRODUCERS_FULL
        assert filled.get("orders", "b") is None
        assert filled.get("orders", "a") is not None

    def test_who_repeats_something_is_not_idle(self) -> None:
        filled = table(producers_max=2)
        filled.note("orders", "a", run(0), 0)
        filled.note("orders", "b", run(0), 1)

        filled.touch("orders", "a", 90)
        filled.require_room(150)

        assert filled.get("orders", "a") is not None
        assert filled.get("orders", "b") is None

    def test_one_goes_for_one_that_comes(self) -> None:
        filled = table(producers_max=3)
        for name in "abc":
            filled.note("orders", name, run(0), 0)

        filled.require_room(500)

        assert len(filled) == 2

    def test_while_there_is_room_only_those_go_that_have_expired(self) -> None:
        filled = table()
        for used_ms, name in enumerate("abc"):
            filled.note("orders", name, run(0), used_ms)

        filled.require_room(999)
        assert len(filled) == 3
        filled.require_room(1001)

        assert len(filled) == 1
        assert filled.get("orders", "c") is not None

    def test_what_the_log_says_is_taken_in_any_case(self) -> None:
        filled = table(producers_max=2)
        for name in "abc":
            filled.note("orders", name, run(0), 0)

        assert len(filled) == 2
        assert filled.get("orders", "a") is None
