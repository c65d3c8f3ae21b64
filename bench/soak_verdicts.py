"""What a soak is held to, and whether it was met."""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench.soak_ledger import Ledger
from bench.soak_watch import Life, Sample, slope_mb

SLOPE_MB_MAX = 1.0
"""Of anonymous memory, in ten minutes."""
SLOPE_SPAN_S_MIN = 480.0
"""An allocator takes memory by the megabyte: over a shorter time one step looks like a leak."""
FILES_MORE_MAX = 3
"""Open files that a phase may have more than the same phase before: files roll at any time."""
STORE_FILES_MORE_MAX = 12
DELETED_S_MAX = 30.0
"""How long a file without a name may be held: until the pulls that read it have ended."""
LAG_MS_MAX = 45_000
"""A Java member that missed a notice looks for its queues every 20 s."""
PHASES = 4


class Verdict(NamedTuple):
    """One claim: what was found, and whether that is too much."""

    name: str
    found: str
    is_missed: bool

    def __str__(self) -> str:
        return f"{'MISSED' if self.is_missed else 'ok':6}  {self.name}: {self.found}"


class LagSample(NamedTuple):
    """The most overdue message at a time, and whether the broker had been up for a while."""

    lag_ms: float
    where: str
    is_settled: bool


def memory(lives: Sequence[Life], warm_up_s: float) -> Iterator[Verdict]:
    """The slope of each life that was long enough after its warm-up; of others it is only said."""
    for life in lives:
        samples = life.after(warm_up_s)
        if len(samples) < PHASES:
            continue
        span_s = samples[-1].age_s - samples[0].age_s
        slope, median = slope_mb(samples), statistics.median(s.anonymous_mb for s in samples)
        is_judged = span_s >= SLOPE_SPAN_S_MIN
        found = (
            f"{median:.1f} MB, {slope:+.2f} MB in 10 min over {span_s:.0f} s"
            f"{'' if is_judged else ' (too short to be judged)'}"
        )
        name = f"anonymous memory of life {life.number}"
        yield Verdict(name, found, is_judged and slope > SLOPE_MB_MAX)


def files(lives: Sequence[Life], warm_up_s: float) -> Iterator[Verdict]:
    """The last phase of every life against its first, by the median and kind by kind."""
    for life in lives:
        samples = life.after(warm_up_s)
        if len(samples) < 4 * PHASES:
            continue
        size = len(samples) // PHASES
        first, last = samples[:size], samples[-size:]
        texts, is_missed = [], False
        for kind, more_max in (
            ("sockets", FILES_MORE_MAX),
            ("store_files", STORE_FILES_MORE_MAX),
            ("other_files", 0),
        ):
            before, after = (_median(phase, kind) for phase in (first, last))
            texts.append(f"{kind.replace('_', ' ')} {before} to {after}")
            is_missed = is_missed or after - before > more_max
        yield Verdict(f"open files of life {life.number}", ", ".join(texts), is_missed)


def deleted(lives: Sequence[Life]) -> Verdict:
    """The longest time that a process held one file without a name."""
    longest_s, most = 0.0, 0
    for life in lives:
        since: dict[str, float] = {}  # when each of those held now was seen first
        for sample in life.samples:
            most = max(most, len(sample.deleted))
            since = {name: since.get(name, sample.age_s) for name in sample.deleted}
            longest_s = max(longest_s, *(sample.age_s - seen_s for seen_s in since.values()), 0.0)
    found = f"held for {longest_s:.0f} s at most, {most} at a time"
    return Verdict("deleted files", found, longest_s > DELETED_S_MAX)


def lag(samples: Sequence[LagSample]) -> Verdict:
    """Of all times the longest delay is said; judged are those when nothing had happened."""
    worst = max(samples, default=LagSample(0, "", True))
    settled = max((s for s in samples if s.is_settled), default=LagSample(0, "", True))
    found = (
        f"{settled.lag_ms / 1000:.1f} s {settled.where} at most,"
        f" {worst.lag_ms / 1000:.1f} s {worst.where} around outages"
    )
    return Verdict("lag", found, settled.lag_ms > LAG_MS_MAX)


def drained(ledger: Ledger) -> Verdict:
    left = {
        f"{entry.group} on {entry.topic}": len(entry.waiting)
        for entry in ledger.views.values()
        if entry.waiting
    }
    return Verdict("left at the end", str(left or "nothing"), bool(left))


def history(ledger: Ledger) -> Iterator[Verdict]:
    for judged in ledger.judged():
        entry = judged.view
        excused = ", ".join(f"{count} {kind}" for kind, count in judged.excused.items())
        found = f"{len(ledger.sends[entry.topic])} sent, {len(entry.receipts)} received"
        found += f" ({excused} around disturbances)" if excused else ""
        kinds = Counter(problem.kind for problem in judged.problems)
        found += "".join(f"; {count} {kind}" for kind, count in kinds.items())
        found += "".join(f"\n          {problem}" for problem in judged.problems[:5])
        yield Verdict(f"history of {entry.group} on {entry.topic}", found, bool(judged.problems))


def faults(ledger: Ledger) -> Verdict:
    shown = "".join(f"\n          {text}" for text in ledger.faults)
    return Verdict("faults", f"{ledger.fault_count}{shown}", bool(ledger.fault_count))


def complaints(lives: Sequence[Life]) -> Iterator[Verdict]:
    """Errors in the broker's log; warnings are shown, each kind once."""
    errors = [f"life {life.number}: {line}" for life in lives for line in life.errors]
    shown = "".join(f"\n          {line}" for line in errors[:10])
    yield Verdict("errors in the log", f"{len(errors)}{shown}", bool(errors))
    warnings = Counter(_shape(line) for life in lives for line in life.warnings)
    shown = "".join(f"\n          {count} x {text}" for text, count in warnings.most_common(10))
    yield Verdict("warnings in the log", f"{warnings.total()}{shown}", False)


def _shape(line: str) -> str:
    """A line without its numbers, so that lines of one kind are alike."""
    return "".join("#" if letter.isdigit() else letter for letter in line)[:160]


def _median(samples: Sequence[Sample], kind: str) -> int:
    counts: list[int] = [getattr(sample, kind) for sample in samples]
    return round(statistics.median(counts))
