"""Processes killed at random moments and at aimed ones: what they were promised is there.

A killed process loses nothing it has written, so synchronous and asynchronous flush promise the
same here; what may go wrong is that the kill leaves something half done. ``test_power_cuts`` takes
memory away as well.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from cometmq.store.check import check
from tests.crash.aim import Aim, Moment
from tests.crash.fast_clock import FastClock
from tests.crash.ledger import Ledger
from tests.crash.nursery import Nursery
from tests.crash.rounds import note, rounds
from tests.crash.sizes import small
from tests.crash.writer import Plan

ROUNDS_FULL = 240
SECONDS = 16.0
SERIES_ROUNDS = 12
"""Kills on one directory before a new one is begun."""
MESSAGES_MAX = 250
RECOVERY_SECONDS_MAX = 0.02
MOMENTS: tuple[Moment, ...] = ("before", "within", "after")

Change = dict[str, Any]


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("nursery")) as started:
        yield started


def aimed(chance: Random, kinds: str, path: str, stage: str = "", nth_max: int = 4) -> Aim:
    kind = chance.choice(kinds.split())
    nth = chance.randint(1, nth_max)
    return Aim(kind=kind, path=path, stage=stage, nth=nth, moment=chance.choice(MOMENTS))


KINDS: dict[str, Callable[[Random], Change]] = {
    "random moment, sync": lambda chance: {"is_sync": True},
    "random moment, async": lambda chance: {"is_sync": False},
    "log file roll": lambda chance: {
        "aim": aimed(chance, "create allocate sync", "*/commitlog/*", "run", nth_max=2)
    },
    "queue file": lambda chance: {
        "aim": aimed(chance, "create allocate sync", "*/consumequeue/*", "run", nth_max=4)
    },
    "index file": lambda chance: {
        "aim": aimed(chance, "create allocate sync", "*/index/*", "run", nth_max=2)
    },
    "checkpoint": lambda chance: {"aim": aimed(chance, "write sync", "*/checkpoint", nth_max=3)},
    "cleaning": lambda chance: {
        "is_cleaning": True,
        "clean_chance": 0.3,
        # Log files are removed on a thread, perhaps when cleaning is over.
        "aim": aimed(chance, "*", "*", "clean", nth_max=12)
        if chance.random() < 0.5
        else aimed(chance, "remove", "*/commitlog/*", nth_max=2),
    },
    "recovery": lambda chance: {"aim": aimed(chance, "*", "*", "open", nth_max=8)},
    "recovery, random moment": lambda chance: {},
    "close": lambda chance: {
        "reopen_chance": 0.3,
        "aim": aimed(chance, "*", "*", "close", nth_max=12),
    },
}
"""Kinds of kills; those without an aim are killed from outside."""


class Series:
    """Kills on one directory, one after the other."""

    def __init__(self, nursery: Nursery, root: Path) -> None:
        self._nursery = nursery
        self.root = root
        self._clock_ms = time.time_ns() // 1_000_000
        self.ledger = Ledger()

    def kill(self, kind: str, chance: Random) -> bool:
        """Let a writer run and die; False when it came to its end because the aim was off."""
        if kind.startswith("recovery"):
            self.kill("random moment, async", chance)
        first = self.ledger.next_number
        plan = Plan(
            root=str(self.root),
            first=first,
            count=MESSAGES_MAX,
            clock_ms=self._clock_ms,
            seed=chance.randrange(2**32),
            is_sync=chance.random() < 0.5,
        )
        plan = msgspec.structs.replace(plan, **KINDS[kind](chance))
        child = self._nursery.start(plan)
        if kind.startswith("random"):
            lines = child.watch(lines_max=chance.randint(1, MESSAGES_MAX))
        elif kind == "recovery, random moment":
            lines = child.watch(seconds_max=RECOVERY_SECONDS_MAX * chance.random())
        else:
            lines = child.watch()
        self.ledger.note(lines, first, is_cleaning=plan.is_cleaning)
        return "closed" not in lines[-1:]

    def verify(self) -> None:
        report = check(self.root, small())
        assert report.is_consistent, str(report)
        self.ledger.verify(self.root, clock=FastClock(self._clock_ms))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_what_was_acknowledged_outlives_the_process(nursery: Nursery, tmp_path: Path) -> None:
    series, rounds_left = None, 0
    for seed in rounds("kills", full=ROUNDS_FULL, seconds=SECONDS):
        chance = Random(seed)
        if series is None:
            series, rounds_left = Series(nursery, tmp_path / str(seed)), SERIES_ROUNDS
        kind = list(KINDS)[seed % len(KINDS)]

        is_killed = series.kill(kind, chance)
        rounds_left -= 1
        if not rounds_left or chance.random() < 0.6:
            series.verify()

        note("kills", kind if is_killed else "aimed at what did not happen")
        if not rounds_left:
            shutil.rmtree(series.root)
            series = None
    if series is not None:
        series.verify()
