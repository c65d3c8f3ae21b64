"""Measuring: alternating rounds, medians, spread, targets, and results as JSON.

Absolute times are noise on a shared machine, so every row is measured next to its floor in the same
round and reported as a ratio. A target is missed when the median *and* the upper quartile of the
ratios miss it: one bad round is not a verdict.
"""

import fnmatch
import gc
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

ROUNDS = 5
RESULTS = Path(__file__).parent / "results"


class Row(NamedTuple):
    """One thing measured against its floor; ``ratio_max`` is its target, if it has one."""

    name: str
    work: Callable[[], object]
    floor: Callable[[], object]
    ratio_max: float | None = None


class Result(NamedTuple):
    name: str
    ratio: float
    ratio_low: float
    ratio_high: float
    nanoseconds: float
    ratio_max: float | None

    @property
    def is_missed(self) -> bool:
        if self.ratio_max is None:
            return False
        return self.ratio > self.ratio_max and self.ratio_high > self.ratio_max


def seconds_per_call(work: Callable[[], object], calls: int) -> float:
    repeat = [None] * calls
    gc.disable()
    try:
        began = time.perf_counter()
        for _ in repeat:
            work()
        return (time.perf_counter() - began) / calls
    finally:
        gc.enable()


def calls_for(work: Callable[[], object], seconds: float) -> int:
    """How many calls fill ``seconds``, found by doubling."""
    calls = 1
    while (spent := seconds_per_call(work, calls) * calls) < seconds / 4:
        calls *= 2
    return max(1, int(calls * seconds / max(spent, 1e-9)))


def measure(row: Row, seconds: float) -> Result:
    """Median ratio over alternating rounds, with its quartiles."""
    work_calls, floor_calls = calls_for(row.work, seconds), calls_for(row.floor, seconds)
    ratios, costs = [], []
    for _ in range(ROUNDS):
        floor = seconds_per_call(row.floor, floor_calls)
        cost = seconds_per_call(row.work, work_calls)
        ratios.append(cost / floor)
        costs.append(cost)
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Result(row.name, middle, low, high, statistics.median(costs) * 1e9, row.ratio_max)


def run(benchmark: str, rows: Iterable[Row], *, pattern: str, seconds: float) -> int:
    """Measure, print a table, keep the results as JSON; exit status 1 when a target is missed."""
    print(f"{benchmark}: {ROUNDS} alternating rounds, ratio to the floor of the same run")
    print(f"{'row':<44} {'ratio':>7} {'quartiles':>15} {'ns':>9} {'target':>7}")
    results = []
    for row in rows:
        if fnmatch.fnmatch(row.name, pattern):
            results.append(measure(row, seconds))
            print(line(results[-1]), flush=True)
    if not results:
        print(f"error: no row matches '{pattern}'", file=sys.stderr)
        return 2
    save(benchmark, results)
    return 1 if any(result.is_missed for result in results) else 0


def line(result: Result) -> str:
    target = "" if result.ratio_max is None else f"≤ {result.ratio_max:g}"
    verdict = "  MISSED" if result.is_missed else ""
    spread = f"{result.ratio_low:.2f} - {result.ratio_high:.2f}"
    return (
        f"{result.name:<44} {result.ratio:>7.2f} {spread:>15} {result.nanoseconds:>9.0f}"
        f" {target:>7}{verdict}"
    )


def save(benchmark: str, results: list[Result]) -> None:
    RESULTS.mkdir(exist_ok=True)
    document = {
        "benchmark": benchmark,
        "machine": {"python": platform.python_version(), "system": platform.platform()},
        "rows": [result._asdict() for result in results],
    }
    path = RESULTS / f"{benchmark}.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    print(f"results: bench/results/{path.name}")
