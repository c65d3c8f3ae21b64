import time

import pytest

from cometmq.clock import Clock, SystemClock
from cometmq.testing.clock import EPOCH_MS, FakeClock


def test_both_clocks_can_stand_where_a_clock_is_wanted() -> None:
    clocks: list[Clock] = [SystemClock(), FakeClock()]

    for clock in clocks:
        assert isinstance(clock.now_ms(), int)
        assert isinstance(clock.monotonic(), float)


def test_the_system_clock_tells_the_machines_time() -> None:
    before_ms, before = time.time() * 1000, time.monotonic()

    clock = SystemClock()

    assert before_ms - 1 <= clock.now_ms() <= time.time() * 1000 + 1
    assert before <= clock.monotonic() <= time.monotonic()


def test_a_fake_clock_stands_still_until_it_is_advanced() -> None:
    clock = FakeClock()
    start = clock.monotonic()

    assert (clock.now_ms(), clock.monotonic()) == (EPOCH_MS, start)

    clock.advance(1.5)

    assert clock.now_ms() == EPOCH_MS + 1500
    assert clock.monotonic() == start + 1.5


def test_many_small_steps_add_up_exactly() -> None:
    clock = FakeClock(now_ms=0)
    start = clock.monotonic()

    for _ in range(1000):
        clock.advance(0.001)

    assert clock.now_ms() == 1000
    assert clock.monotonic() - start == 1.0


def test_turning_the_wall_clock_leaves_the_monotonic_time_alone() -> None:
    clock = FakeClock(now_ms=10_000)
    start = clock.monotonic()

    clock.set_back(4)

    assert clock.now_ms() == 6_000
    assert clock.monotonic() == start


def test_time_cannot_be_advanced_backwards() -> None:
    clock = FakeClock()

    with pytest.raises(ValueError, match="set_back"):
        clock.advance(-1)
