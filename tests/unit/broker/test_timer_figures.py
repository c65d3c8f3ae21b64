"""What is told about timed messages."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.broker.delay.timer_figures import TimerFigures
from tests.unit.broker.timer_ground import Ground


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(tmp_path)
    yield ground
    ground.close()


def figures(ground: Ground) -> dict[str, str]:
    return dict(TimerFigures(ground.timers, ground.clock).figures())


def test_nothing_waits_where_nothing_was_sent(ground: Ground) -> None:
    ground.run_out()

    assert set(figures(ground).values()) == {"0"}
    assert TimerFigures(ground.timers, ground.clock).check().read_timestamp == 0
    assert TimerFigures(ground.timers, ground.clock).metrics().timing_count == {}


def test_messages_wait_until_they_are_delivered(ground: Ground) -> None:
    for seconds in (5, 5, 60):
        ground.send_in(seconds)
    unread = figures(ground)["timerOffsetBehind"]
    ground.run_out()
    waiting = ground.timers.waiting_count
    ground.pass_time(10)

    assert (unread, figures(ground)["timerOffsetBehind"]) == ("3", "0")
    assert (waiting, ground.timers.waiting_count) == (3, 1)
    assert figures(ground)["timerCongestNum"] == "1"


def test_what_is_entered_and_what_is_put_again_is_counted(ground: Ground) -> None:
    for seconds in (5, 5, 60):
        ground.send_in(seconds)
    ground.run_out()
    entered = ground.timers.entered_count, ground.timers.put_count
    ground.pass_time(10)

    assert entered == (3, 0)
    assert (ground.timers.entered_count, ground.timers.put_count) == (3, 2)


def test_a_message_that_is_parked_half_way_is_entered_and_put_twice(tmp_path: Path) -> None:
    ground = Ground(tmp_path, timer_roll_window_slot=10)
    ground.send_in(15)

    ground.pass_time(20)

    assert (ground.timers.entered_count, ground.timers.put_count) == (2, 2)
    ground.close()


def test_those_that_waited_before_a_restart_count(ground: Ground) -> None:
    ground.send_in(60)
    ground.run_out()

    ground.restart()

    assert ground.timers.waiting_count == 1
    assert TimerFigures(ground.timers, ground.clock).check().queue_offset == 1


def test_a_recalled_one_does_not_wait(ground: Ground) -> None:
    ground.send_in(60, key="K")
    out_ms = (ground.clock.now_ms() + 60_000 - 1) // 1000 * 1000
    ground.recall(out_ms, "K")

    ground.run_out()

    assert ground.timers.waiting_count == 0


def test_delivery_that_is_late_says_by_how_much(ground: Ground) -> None:
    ground.send_in(5)
    ground.run_out()

    ground.clock.advance(25)

    assert 15 <= int(figures(ground)["timerReadBehind"]) <= 25
    ground.run_out()
    assert figures(ground)["timerReadBehind"] == "0"
