"""Work that is done again and again."""

import asyncio
import logging

import pytest

from cometmq.client.background import Repeater
from cometmq.errors import Unreachable
from cometmq.remoting.running import Background


class Work:
    """Counts its calls; the first ones raise what they were given."""

    def __init__(self, *errors: Exception) -> None:
        self.count = 0
        self._errors = list(errors)
        self._called = asyncio.Condition()

    async def __call__(self) -> None:
        self.count += 1
        async with self._called:
            self._called.notify_all()
        if self._errors:
            raise self._errors.pop(0)

    async def until(self, count: int) -> None:
        async with self._called:
            await self._called.wait_for(lambda: self.count >= count)


async def test_it_is_done_at_intervals() -> None:
    background, work = Background(), Work()

    Repeater("work", work, interval_ms=1).start(background)
    await work.until(3)

    assert work.count >= 3
    await background.stop()


async def test_waking_does_it_at_once() -> None:
    background, work = Background(), Work()
    repeater = Repeater("work", work, interval_ms=3_600_000)
    repeater.start(background)

    repeater.wake()
    await work.until(1)
    repeater.wake()
    await work.until(2)

    assert work.count == 2
    await background.stop()


async def test_the_first_time_may_come_sooner() -> None:
    background, work = Background(), Work()

    Repeater("work", work, interval_ms=3_600_000, first_ms=1).start(background)
    await work.until(1)

    assert work.count == 1
    await background.stop()


async def test_a_failure_stops_nothing_and_a_lasting_one_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background = Background()
    work = Work(*(Unreachable("x:1", "down") for _ in range(3)), ValueError("a bug"))

    Repeater("looking", work, interval_ms=1).start(background)
    await work.until(6)

    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(warnings) == 1
    assert "looking failed, going on: cannot reach x:1: down" in warnings[0].getMessage()
    assert len(errors) == 1
    await background.stop()


async def test_a_problem_that_changes_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    background = Background()
    work = Work(Unreachable("x:1", "down"), Unreachable("y:1", "down"))

    Repeater("work", work, interval_ms=1).start(background)
    await work.until(3)

    assert len(caplog.records) == 2
    await background.stop()
