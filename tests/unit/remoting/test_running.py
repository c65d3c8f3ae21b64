"""Running a server program: its background tasks, signals, and the end."""

import asyncio
import os
import signal

import pytest

from cometmq.remoting.running import Background, BackgroundTaskDied, loop_factory, run
from tests.unit.remoting.kit import warnings_in


class Program:
    """A service that notes what happens to it; ``work`` runs in the background."""

    def __init__(self, signal_number: int | None = None, error: Exception | None = None) -> None:
        self.background = Background()
        self.happened: list[str] = []
        self._signal_number = signal_number
        self._error = error

    async def start(self) -> None:
        self.happened.append("started")
        if self._signal_number is not None:
            os.kill(os.getpid(), self._signal_number)
        if self._error is not None:
            self.background.spawn("worker", self._fail(self._error))

    async def stop(self) -> None:
        await self.background.stop()
        self.happened.append("stopped")

    async def _fail(self, error: Exception) -> None:
        raise error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_program_cleanly(number: int) -> None:
    program = Program(number)

    run(lambda: program)

    assert program.happened == ["started", "stopped"]


def test_a_task_that_dies_takes_its_program_down_loudly(caplog: pytest.LogCaptureFixture) -> None:
    program = Program(error=ZeroDivisionError("by nothing"))

    with pytest.raises(BackgroundTaskDied, match="'worker' died: ZeroDivisionError: by nothing"):
        run(lambda: program)

    assert program.happened == ["started", "stopped"]
    assert warnings_in(caplog) == ["background task 'worker' died"]


def test_what_a_watching_task_says_is_told_as_it_stands(caplog: pytest.LogCaptureFixture) -> None:
    """It is no fault in here, so that there is nothing to log, nor to wrap."""
    death = BackgroundTaskDied("worker", RuntimeError("killed"))
    program = Program(error=death)

    with pytest.raises(BackgroundTaskDied) as caught:
        run(lambda: program)

    assert caught.value is death
    assert program.happened == ["started", "stopped"]
    assert warnings_in(caplog) == []


def test_a_program_that_cannot_start_is_stopped_all_the_same() -> None:
    """What it has opened so far must not stay open."""

    class Stillborn(Program):
        async def start(self) -> None:
            await super().start()
            raise PermissionError("port 80")

    program = Stillborn()

    with pytest.raises(PermissionError, match="port 80"):
        run(lambda: program)

    assert program.happened == ["started", "stopped"]


def test_programs_run_on_uvloop_where_it_is_installed() -> None:
    loop = loop_factory()()
    loop.close()

    assert type(loop).__module__.startswith("uvloop")


async def test_a_task_may_end_by_itself() -> None:
    background = Background()
    done = asyncio.Event()

    async def work() -> None:
        done.set()

    background.spawn("short", work())
    await done.wait()
    death = asyncio.ensure_future(background.wait_for_death())
    await asyncio.sleep(0)

    assert not death.done()
    death.cancel()


async def test_stopping_cancels_what_runs_and_waits_for_it() -> None:
    background = Background()
    begun = asyncio.Event()
    happened: list[str] = []

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            happened.append("tidied up")

    background.spawn("long", work())
    await begun.wait()
    await background.stop()

    assert happened == ["tidied up"]
