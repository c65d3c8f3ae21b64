"""The books of a soak: what was sent, who got it, what disturbed them, and what went wrong.

Every topic has one list of sends, and every group that reads it a view with rules of its own. A
view may excuse some kinds of problems near disturbances of some kinds, and only there.
"""

import enum
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cometmq.testing.history import History, Problem, ProblemKind, Received, Rules, Sent

EXCUSED_MS = 60_000
"""How long after a disturbance its traces may be seen: clients look for queues every 20 s."""
SETTLED_MS = 30_000
"""How long after an outage clients may still fail, or be behind."""
FAULTS_SHOWN_MAX = 20

Excuses = Mapping[ProblemKind, frozenset["Cause"]]


class Cause(enum.StrEnum):
    """What disturbs clients: all of them, or those of one group."""

    RESTART = "restart"
    KILL = "kill"
    REBALANCE = "rebalance"
    RESET = "reset"


OUTAGES = frozenset({Cause.RESTART, Cause.KILL})


class Disturbance(NamedTuple):
    """Something that happened on purpose; of no group in particular when ``group`` is empty."""

    cause: Cause
    begin_ms: float
    end_ms: float
    group: str = ""


@dataclass(slots=True)
class View:
    """One group's sight of one topic."""

    topic: str
    group: str
    rules: Rules
    excuses: Excuses
    receipts: list[Received] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    waiting: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By key, what is acknowledged and not handled yet: when it was sent, and when it is due."""


def view(topic: str, group: str, rules: Rules, excuses: Excuses | None = None) -> View:
    return View(topic, group, rules, excuses or {})


class Judged(NamedTuple):
    """What a view's history shows: what is wrong, and how much was excused by its causes."""

    view: View
    problems: list[Problem]
    excused: Counter[ProblemKind]


class Ledger:
    """Everything that is known; one thread writes. Times are in milliseconds since 1970."""

    def __init__(self, views: Iterable[View], now_ms: Callable[[], float]) -> None:
        self.views = {(entry.topic, entry.group): entry for entry in views}
        self.sends: dict[str, dict[str, Sent]] = defaultdict(dict)
        self.disturbances: list[Disturbance] = []
        self.faults: list[str] = []
        self.fault_count = 0
        self.counts: Counter[str] = Counter()
        self.now_ms = now_ms
        self._by_topic: dict[str, list[View]] = defaultdict(list)
        for entry in self.views.values():
            self._by_topic[entry.topic].append(entry)
        self._down_since_ms: float | None = None
        self._numbers = itertools.count()

    # --- what happens

    def next_key(self, sender: str) -> str:
        """A key that no other message has."""
        return f"{sender}-{next(self._numbers)}"

    def sent(self, record: Sent, *, delay_ms: float = 0, begin_ms: float | None = None) -> None:
        """A send, acknowledged or not; what is delayed is due only later.

        ``begin_ms`` is for a record that does not tell: it was not sent before.
        """
        self.sends[record.topic][record.key] = record
        self.counts["acknowledged" if record.is_acknowledged else "unknown outcome"] += 1
        if not record.is_acknowledged:
            return
        now_ms = self.now_ms()
        sent_ms = record.begin_ms or begin_ms or now_ms
        for entry in self._by_topic[record.topic]:
            if record.key not in entry.done:
                entry.waiting[record.key] = (sent_ms, now_ms + delay_ms)

    def received(self, group: str, receipt: Received, *, is_done: bool = True) -> None:
        entry = self.views[receipt.topic, group]
        entry.receipts.append(receipt)
        self.counts["received"] += 1
        if is_done:
            entry.done.add(receipt.key)
            entry.waiting.pop(receipt.key, None)

    def went_down(self) -> None:
        self._down_since_ms = self.now_ms()

    def came_back(self, cause: Cause) -> None:
        assert self._down_since_ms is not None
        self.disturbances.append(Disturbance(cause, self._down_since_ms, self.now_ms()))
        self._down_since_ms = None

    def disturbed(self, cause: Cause, group: str, begin_ms: float) -> None:
        self.disturbances.append(Disturbance(cause, begin_ms, self.now_ms(), group))

    def fault(self, text: str) -> None:
        """Something that must not be, whatever the history says."""
        self.fault_count += 1
        if len(self.faults) < FAULTS_SHOWN_MAX:
            self.faults.append(text)

    def failed(self, what: str, error: object) -> None:
        """A request failed: a fault unless the broker was just down."""
        if self.is_settled():
            self.fault(f"{what}: {error}")
        else:
            self.counts["failed near an outage"] += 1

    # --- how it stands

    def is_settled(self) -> bool:
        """Whether the broker is up, and was for long enough that nothing may fail any more."""
        if self._down_since_ms is not None:
            return False
        back_ms = max((d.end_ms for d in self.disturbances if d.cause in OUTAGES), default=0)
        return self.now_ms() - back_ms > SETTLED_MS

    def waiting_count(self) -> int:
        return sum(len(entry.waiting) for entry in self.views.values())

    def oldest_ms(self, group: str = "") -> float:
        """When the oldest message was sent that somebody, or the group, waits for; else now."""
        sent = (
            sent_ms
            for entry in self.views.values()
            if group in ("", entry.group)
            for sent_ms, _ in entry.waiting.values()
        )
        return min(sent, default=self.now_ms())

    def lag_ms(self) -> tuple[float, str]:
        """How long the message is overdue that is so most, and where."""
        now_ms = self.now_ms()
        overdue = (
            (now_ms - min(due_ms for _, due_ms in entry.waiting.values()), _name(entry))
            for entry in self.views.values()
            if entry.waiting
        )
        return max(overdue, default=(0.0, ""))

    # --- the verdict

    def judged(self) -> Iterator[Judged]:
        for entry in self.views.values():
            sends = self.sends[entry.topic].values()
            found = History([*sends, *entry.receipts]).problems(entry.rules)
            kept: list[Problem] = []
            excused: Counter[ProblemKind] = Counter()
            for problem in found:
                if self.is_excused(entry, problem):
                    excused[problem.kind] += 1
                else:
                    kept.append(problem)
            yield Judged(entry, kept, excused)

    def is_excused(self, entry: View, problem: Problem) -> bool:
        """Whether every receipt but the first came shortly after something that explains it."""
        causes = entry.excuses.get(problem.kind, frozenset())
        later = sorted(receipt.begin_ms or 0 for receipt in problem.receipts)[1:]
        return bool(causes and later) and all(
            any(
                disturbance.begin_ms <= at_ms <= disturbance.end_ms + EXCUSED_MS
                for disturbance in self.disturbances
                if disturbance.cause in causes and disturbance.group in ("", entry.group)
            )
            for at_ms in later
        )


def _name(entry: View) -> str:
    return f"{entry.group} on {entry.topic}"
