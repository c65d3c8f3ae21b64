"""What ``bench.broker`` reports: figures of every round, ratios to targets, a table and JSON.

A target is missed when the median and the upper quartile of its ratios both miss it, as in the
other benchmarks: one bad round is no verdict.

Nobody can be faster than the client that measures it. A server that does nothing is measured in
every round, too; a subject that keeps up with it has shown all that the client can see, and is held
to what is asked of rows in which the client is the limit.
"""

import json
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.rounds import RESULTS

Series = dict[str, dict[str, list[float]]]
"""Figures by subject and name, one a round."""

HEADINGS = (
    f"{'':<34} {'messages/s':>11} {'quartiles':>19} {'CPU s/M':>8} {'p50 ms':>8} {'p99':>8}"
    f" {'p99.9':>8} {'anon MB':>8} {'RSS MB':>7} {'client':>7}"
)
CLIENT_LIMITED_CORES = 0.9
KEEPS_UP_MIN = 0.9

NOTHING = "a server that does nothing"
"""The subject whose rate is the client's own limit."""


class Target(NamedTuple):
    """A figure of ``work`` divided by that of ``base``, or by itself when there is no base.

    ``at_least_when_limited`` replaces ``at_least`` where ``work`` keeps up with ``NOTHING``.
    """

    figure: str
    work: str
    base: str = ""
    at_least: float | None = None
    at_most: float | None = None
    at_least_when_limited: float | None = None


class Verdict(NamedTuple):
    """How a target was met: the median of all rounds, and the quartiles around it."""

    name: str
    value: float
    low: float
    high: float
    at_least: float | None
    at_most: float | None

    @property
    def is_missed(self) -> bool:
        if self.at_least is not None:
            return self.value < self.at_least and self.high < self.at_least
        if self.at_most is not None:
            return self.value > self.at_most and self.high > self.at_most
        return False

    def __str__(self) -> str:
        limit = ""
        if self.at_least is not None:
            limit = f"  ≥ {self.at_least:.3g}"
        elif self.at_most is not None:
            limit = f"  ≤ {self.at_most:.3g}"
        verdict = "  MISSED" if self.is_missed else ""
        return (
            f"{self.name:<52} {self.value:>8.2f} ({self.low:.2f} - {self.high:.2f}){limit}{verdict}"
        )


class RowResult(NamedTuple):
    name: str
    series: Series
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_missed(self) -> bool:
        return any(verdict.is_missed for verdict in self.verdicts)


def judged(name: str, series: Series, targets: Sequence[Target], notes: Sequence[str]) -> RowResult:
    """The targets whose subjects were measured."""
    verdicts = [
        verdict_of(target, series)
        for target in targets
        if target.work in series and (not target.base or target.base in series)
    ]
    return RowResult(name, series, tuple(verdicts), tuple(notes))


def verdict_of(target: Target, series: Series) -> Verdict:
    values = list(series[target.work][target.figure])
    name = f"{target.figure}: {target.work}"
    if target.base:
        bases = series[target.base][target.figure]
        values = [work / base for work, base in zip(values, bases, strict=True)]
        name += f" / {target.base}"
    low, middle, high = quartiles(values)
    at_least = target.at_least
    if target.at_least_when_limited is not None and keeps_up(target.work, series):
        at_least = target.at_least_when_limited
        name += ", client-bound"
    return Verdict(name, middle, low, high, at_least, target.at_most)


def keeps_up(subject: str, series: Series) -> bool:
    """Whether it is as fast as a server that does nothing, as far as the client can tell."""
    if NOTHING not in series:
        return False
    pairs = zip(series[subject]["rate"], series[NOTHING]["rate"], strict=True)
    return statistics.median(rate / ceiling for rate, ceiling in pairs) >= KEEPS_UP_MIN


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile; a single value is all three."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def client_notes(series: Series) -> list[str]:
    """Where the generator, not the broker, was what could do no more."""
    return [
        f"the client is the limit of {subject}"
        for subject, figures in series.items()
        if subject != NOTHING
        and (
            statistics.median(figures["client_cores"]) > CLIENT_LIMITED_CORES
            or keeps_up(subject, series)
        )
    ]


def show(result: RowResult) -> None:
    print(f"{result.name}")
    for subject, figures in result.series.items():
        print(f"  {subject:<32} {figures_line(figures)}".rstrip())
    for verdict in result.verdicts:
        print(f"    {verdict}")
    for note in result.notes:
        print(f"    note: {note}")
    print(end="", flush=True)


def figures_line(figures: Mapping[str, Sequence[float]]) -> str:
    def column(name: str, width: int, digits: int) -> str:
        values = figures.get(name)
        return f"{statistics.median(values):>{width},.{digits}f}" if values else " " * width

    rates = figures.get("rate")
    if not rates:
        shown = (f"{name} {statistics.median(values):,.3g}" for name, values in figures.items())
        return ", ".join(shown)
    low, _, high = quartiles(rates)
    spread = f"{low:,.0f} - {high:,.0f}"
    cells = [column("rate", 11, 0), f"{spread:>19}", column("cpu_us", 8, 2)]
    cells += [column(name, 8, 2) for name in ("p50_ms", "p99_ms", "p999_ms")]
    cells += [column("anonymous_mb", 8, 0), column("resident_mb", 7, 0)]
    cells += [column("client_cores", 7, 2)]
    return " ".join(cells)


class ResultFile:
    """Rows measured so far, as JSON: saved after each, so that a run can be taken up again."""

    def __init__(self, name: str, *, folder: Path = RESULTS) -> None:
        self._path = folder / f"{name}.json"
        self._name = name
        self.rows: dict[str, dict[str, Any]] = {}

    def load(self) -> None:
        """Keep what an earlier run has measured."""
        if self._path.is_file():
            rows = json.loads(self._path.read_text())["rows"]
            self.rows = {row["name"]: row for row in rows}

    def add(self, result: RowResult) -> None:
        self.rows[result.name] = {
            "name": result.name,
            "is_missed": result.is_missed,
            "series": result.series,
            "verdicts": [
                {**verdict._asdict(), "is_missed": verdict.is_missed} for verdict in result.verdicts
            ],
            "notes": result.notes,
        }
        self._save()

    def _save(self) -> None:
        self._path.parent.mkdir(exist_ok=True)
        document = {
            "benchmark": self._name,
            "machine": {"python": platform.python_version(), "system": platform.platform()},
            "rows": list(self.rows.values()),
        }
        unfinished = self._path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(document, indent=2) + "\n")
        unfinished.rename(self._path)

    def missed(self) -> list[str]:
        return [name for name, row in self.rows.items() if row["is_missed"]]

    def __str__(self) -> str:
        return f"bench/results/{self._path.name}"
