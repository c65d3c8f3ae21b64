"""Verdicts on targets, what is printed, and results that survive to the next run."""

from pathlib import Path

from bench.broker_results import NOTHING, ResultFile, Series, Target, client_notes, judged


def series(ours: list[float], theirs: list[float]) -> Series:
    return {"ours": {"rate": ours}, "theirs": {"rate": theirs}}


def test_a_floor_is_missed_when_median_and_upper_quartile_are_below_it() -> None:
    target = Target("rate", "ours", "theirs", at_least=2.0)

    clear, mixed, good = (
        judged("row", series(ours, [10.0] * 5), [target], [])
        for ours in ([19.0] * 5, [10.0, 10.0, 19.0, 20.0, 20.0], [21.0] * 5)
    )

    assert (clear.is_missed, mixed.is_missed, good.is_missed) == (True, False, False)


def test_a_ceiling_is_missed_when_the_median_is_above_it() -> None:
    target = Target("rate", "ours", at_most=100.0)

    over, under = (judged("row", series([value], [1.0]), [target], []) for value in (101.0, 100.0))

    assert (over.is_missed, under.is_missed) == (True, False)


def test_ratios_are_taken_round_by_round() -> None:
    """A slow minute of the machine hits both sides of a round, and leaves its ratio alone."""
    target = Target("rate", "ours", "theirs")

    (verdict,) = judged("row", series([20.0, 2.0], [10.0, 1.0]), [target], []).verdicts

    assert (verdict.low, verdict.value, verdict.high) == (2.0, 2.0, 2.0)


def test_a_target_without_its_base_is_left_out() -> None:
    target = Target("rate", "ours", "absent", at_least=2.0)

    assert judged("row", series([1.0], [1.0]), [target], []).verdicts == ()


def limited(ours: float, nothing: float) -> Series:
    return {
        "ours": {"rate": [ours] * 3, "client_cores": [0.5] * 3},
        "theirs": {"rate": [10.0] * 3, "client_cores": [0.1] * 3},
        NOTHING: {"rate": [nothing] * 3, "client_cores": [0.6] * 3},
    }


def test_who_keeps_up_with_a_server_that_does_nothing_is_held_to_what_the_client_can_see() -> None:
    target = Target("rate", "ours", "theirs", at_least=2.0, at_least_when_limited=0.9)

    bound = judged("row", limited(15.0, 16.0), [target], [])
    free = judged("row", limited(15.0, 40.0), [target], [])
    slow = judged("row", limited(8.0, 8.0), [target], [])

    assert (bound.is_missed, free.is_missed, slow.is_missed) == (False, True, True)
    assert "client-bound" in str(bound.verdicts[0])
    assert "client-bound" not in str(free.verdicts[0])


def test_a_client_at_its_limit_is_named_beside_the_row() -> None:
    assert client_notes(limited(15.0, 16.0)) == ["the client is the limit of ours"]
    assert client_notes(limited(15.0, 40.0)) == []


def test_rows_of_an_earlier_run_are_found_again(tmp_path: Path) -> None:
    first = ResultFile("broker", folder=tmp_path)
    first.add(judged("good", series([1.0], [1.0]), [], []))
    first.add(
        judged("bad", series([1.0], [1.0]), [Target("rate", "ours", "theirs", at_least=2.0)], [])
    )

    second = ResultFile("broker", folder=tmp_path)
    second.load()

    assert list(second.rows) == ["good", "bad"]
    assert second.missed() == ["bad"]
