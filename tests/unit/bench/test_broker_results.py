"""Verdicts on targets, what is printed, and results that survive to the next run."""

from pathlib import Path

from bench.broker_results import ResultFile, Series, Target, client_notes, judged


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


def test_a_generator_near_its_ceiling_is_named_as_the_limit() -> None:
    figures: Series = {
        "fast": {"rate": [90.0], "client_cores": [0.5]},
        "slow": {"rate": [10.0], "client_cores": [0.1]},
    }

    notes = client_notes(figures, 100.0)

    assert notes[1:] == ["the client is the limit of fast"]


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
