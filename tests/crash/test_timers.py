"""Processes killed while timed messages wait: each one comes, once, unless it was taken back."""

import contextlib
import multiprocessing
import shutil
from collections import Counter
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

import pytest

from cometmq.store.check import check
from cometmq.testing.clock import EPOCH_MS
from tests.crash.reading import read_all
from tests.crash.rounds import note, rounds
from tests.crash.timer_writer import AIMS, TOPIC, TimerGround, TimerPlan, run

ROUNDS_FULL = 300
SECONDS = 12.0
SERIES_ROUNDS = 8
"""Kills on one directory before a new one is begun."""
MESSAGES_MAX = 200
WAIT_SECONDS = 20.0
ALL_SECONDS = 30
"""By then every message is due."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.crash.timer_writer"])


class Series:
    """Kills on one directory, one after the other, and what was said meanwhile."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._clock_ms = EPOCH_MS
        self._next = 0
        # What was tried and what was answered; a kill in between leaves both open.
        self._said: dict[str, set[int]] = {
            what: set() for what in ("sending", "sent", "recalling", "recalled")
        }

    def kill(self, aim: str, chance: Random) -> bool:
        """Let a writer run and die; False when it came to its end before."""
        plan = TimerPlan(
            root=str(self.root),
            first=self._next,
            count=MESSAGES_MAX,
            clock_ms=self._clock_ms,
            seed=chance.randrange(2**32),
            aim=aim,
            nth=chance.randint(1, 4 if "page" in aim else 60),
        )
        ours, theirs = _context.Pipe(duplex=False)
        writer = _context.Process(target=run, args=(plan, theirs))
        writer.start()
        theirs.close()
        lines_max = chance.randint(1, 2 * MESSAGES_MAX) if aim == "any moment" else None
        last = self._listen(ours, writer, lines_max)
        writer.join(WAIT_SECONDS)
        assert writer.exitcode in (0, -9), writer.exitcode
        ours.close()
        return last != "closed"

    def _listen(self, ours: Connection, writer: BaseProcess, lines_max: int | None) -> str:
        """Note what a writer says until it ends, or is ended after so much; its last word."""
        last, count = "", 0
        with contextlib.suppress(EOFError, ConnectionResetError):
            while ours.poll(WAIT_SECONDS):
                last, *facts = ours.recv()
                count += 1
                if last == "time":
                    (self._clock_ms,) = facts
                elif facts:
                    self._said[last].add(facts[0])
                    self._next = max(self._next, facts[0] + 1)
                if count == lines_max:
                    writer.kill()
            raise AssertionError(f"nothing was said after {last}")
        return last

    def verify(self) -> None:
        """Let everything come, and hold it against what was said."""
        ground = TimerGround(self.root, self._clock_ms)
        ground.pass_time(ALL_SECONDS)
        found = Counter(int(item.body) for item in read_all(ground.store) if item.topic == TOPIC)
        self._clock_ms = ground.clock.now_ms()
        ground.close()
        report = check(self.root)
        assert report.is_consistent, str(report)
        said = self._said
        assert not [number for number, count in found.items() if count > 1], "came twice"
        assert not said["sent"] - said["recalling"] - set(found), "lost"
        assert not said["recalled"] & set(found), "taken back, and came"
        assert set(found) <= said["sending"], "never sent"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_what_was_sent_comes_once_whenever_the_process_is_killed(tmp_path: Path) -> None:
    series, rounds_left = None, 0
    for seed in rounds("timers", full=ROUNDS_FULL, seconds=SECONDS):
        chance = Random(seed)
        if series is None:
            series, rounds_left = Series(tmp_path / str(seed)), SERIES_ROUNDS
        aim = AIMS[seed % len(AIMS)]

        is_killed = series.kill(aim, chance)
        rounds_left -= 1
        if not rounds_left or chance.random() < 0.5:
            series.verify()

        note("timers", aim if is_killed else "aimed at what did not happen")
        if not rounds_left:
            shutil.rmtree(series.root)
            series = None
    if series is not None:
        series.verify()
