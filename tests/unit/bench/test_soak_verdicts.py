"""What a soak calls a miss: memory that grows, files that stay open, messages that wait."""

import random
from collections.abc import Callable

from bench.soak_verdicts import (
    LAG_MS_MAX,
    LagSample,
    Verdict,
    complaints,
    deleted,
    files,
    lag,
    memory,
)
from bench.soak_watch import Life, Sample, slope_mb

PERIOD_S = 2
WARM_UP_S = 120


def life(
    memory_mb: Callable[[float], float] = lambda _: 30.0,
    *,
    seconds: int = 900,
    sockets: Callable[[float], int] = lambda _: 20,
    others: Callable[[float], int] = lambda _: 11,
    without_name: Callable[[float], str] = lambda _: "",
) -> Life:
    """A process of which something is a function of its age, and all else stays as it is."""
    lived = Life(1, 1234, 0.0)
    for age_s in range(0, seconds, PERIOD_S):
        nameless = tuple(without_name(age_s).split())
        lived.samples.append(
            Sample(age_s, memory_mb(age_s), sockets(age_s), 40, others(age_s), nameless)
        )
    return lived


def noise(seed: int, leak_mb: float = 0) -> Callable[[float], float]:
    """Half a megabyte more or less at any time, as an allocator has it, and a leak in 10 min."""
    dice = random.Random(seed)
    return lambda age_s: dice.uniform(29.5, 30.5) + leak_mb * age_s / 600


def only(verdicts: list[Verdict]) -> Verdict:
    (verdict,) = verdicts
    return verdict


class TestMemory:
    def test_a_planted_leak_is_caught(self) -> None:
        """1.5 MB in ten minutes, hidden in noise that is nearly as large."""
        for seed in range(20):
            verdict = only(list(memory([life(noise(seed, leak_mb=1.5))], WARM_UP_S)))

            assert verdict.is_missed, f"seed {seed}: {verdict}"

    def test_noise_alone_is_no_leak(self) -> None:
        for seed in range(20):
            verdict = only(list(memory([life(noise(seed))], WARM_UP_S)))

            assert not verdict.is_missed, f"seed {seed}: {verdict}"

    def test_what_a_process_takes_while_it_warms_up_does_not_count(self) -> None:
        warming = life(lambda age_s: 20.0 + min(age_s, WARM_UP_S) / 10)

        assert not only(list(memory([warming], WARM_UP_S))).is_missed
        assert only(list(memory([warming], 0))).is_missed

    def test_a_short_life_is_shown_and_not_judged(self) -> None:
        leaking = life(lambda age_s: 20.0 + age_s, seconds=300)

        verdict = only(list(memory([leaking], WARM_UP_S)))

        assert not verdict.is_missed
        assert "too short" in verdict.found

    def test_the_slope_is_in_megabytes_in_ten_minutes(self) -> None:
        growing = life(lambda age_s: 20.0 + age_s / 300)

        assert round(slope_mb(growing.samples), 6) == 2.0
        assert slope_mb(growing.samples[:1]) == 0.0


class TestFiles:
    def test_a_descriptor_that_stays_open_now_and_then_is_caught(self) -> None:
        leaking = life(others=lambda age_s: 11 + int(age_s) // 300)

        assert only(list(files([leaking], WARM_UP_S))).is_missed
        assert not only(list(files([life()], WARM_UP_S))).is_missed

    def test_connections_that_come_and_go_are_none(self) -> None:
        busy = life(sockets=lambda age_s: 20 + int(age_s) // PERIOD_S % 5)
        leaking = life(sockets=lambda age_s: 20 + int(age_s) // 100)

        assert not only(list(files([busy], WARM_UP_S))).is_missed
        assert only(list(files([leaking], WARM_UP_S))).is_missed

    def test_deleted_files_may_be_held_for_a_moment_only(self) -> None:
        brief = life(without_name=lambda age_s: "a" if int(age_s) % 60 < 10 else "")
        one_after_the_other = life(without_name=lambda age_s: f"file-{age_s // 10:.0f}")
        lasting = life(without_name=lambda age_s: f"a b-{age_s}" if age_s > 600 else "")

        assert not deleted([brief]).is_missed
        assert not deleted([one_after_the_other]).is_missed
        assert deleted([lasting]).is_missed


class TestLag:
    def test_it_counts_once_the_broker_has_been_up_for_a_while(self) -> None:
        late = LagSample(LAG_MS_MAX + 1, "somewhere", is_settled=False)

        assert not lag([late]).is_missed
        assert lag([late._replace(is_settled=True)]).is_missed

    def test_nothing_observed_is_no_lag(self) -> None:
        assert not lag([]).is_missed


def test_an_error_in_the_log_is_a_miss_and_a_warning_is_shown() -> None:
    calm, worried, failing = Life(1, 1, 0.0), Life(2, 2, 0.0), Life(3, 3, 0.0)
    worried.warnings += ["file 1 kept", "file 2 kept"]
    failing.errors.append("flush failed")

    errors, warnings = complaints([calm, worried, failing])

    assert errors.is_missed
    assert "life 3: flush failed" in errors.found
    assert not warnings.is_missed
    assert "2 x file # kept" in warnings.found
