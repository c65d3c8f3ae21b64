"""Times of the last minute, whenever the program was started."""

from cometmq.broker.recent_times import RecentTimes
from cometmq.testing import FakeClock

BOUNDS = (0.001, 0.01, 0.1, 1.0)


def test_without_any_there_is_nothing_to_tell() -> None:
    recent = RecentTimes(BOUNDS, FakeClock()).last_minute()

    assert (recent.count, recent.largest, recent.quantile(0.99)) == (0, 0.0, 0.0)


def test_what_was_observed_at_any_time_of_the_minute_counts() -> None:
    clock = FakeClock()
    times = RecentTimes(BOUNDS, clock)
    for number in range(5):
        times.observe(0.002 * (number + 1))
        clock.advance(10)

    recent = times.last_minute()

    assert (recent.count, recent.largest) == (5, 0.01)
    assert recent.count_to(0.01) == 5


def test_what_was_observed_earlier_is_forgotten_bit_by_bit() -> None:
    clock = FakeClock()
    times = RecentTimes(BOUNDS, clock)
    times.observe(0.5)
    clock.advance(40)
    times.observe(0.02)
    before = times.last_minute()
    clock.advance(21)
    after = times.last_minute()
    clock.advance(3600)
    late = times.last_minute()

    assert (before.count, before.largest) == (2, 0.5)
    assert (after.count, after.largest) == (1, 0.02)
    assert late.count == 0


def test_a_long_time_of_observing_takes_no_more_memory_than_a_minute() -> None:
    clock = FakeClock()
    times = RecentTimes(BOUNDS, clock)
    for _ in range(1000):
        times.observe(0.5)
        clock.advance(10)
    times.observe(0.02)

    assert times.last_minute().count == 6
