"""What ``bench.client`` measures: rows, the clients in each, and the targets."""

import functools
import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from bench.broker_cases import alternate
from bench.broker_results import Series, Target
from bench.client_subject import BODIES, Clients

IN_FLIGHT = 64
THREADS = 8
RATE = 500

AIO, PLAIN, BLOCKING = "asyncio", "asyncio, plain", "blocking"
CPP, CPP_THREADS = "C++ wrapper", f"C++ wrapper, {THREADS} threads"
JAVA, JAVA_SYNC = "Java", "Java, sync"
BLOCKING_THREADS = f"blocking, {THREADS} threads"

AHEAD_MIN = 1.0
PRODUCER_MIN, CONSUMER_MIN, CONSUMER_PLAIN_MIN = 0.5, 0.5, 0.25
"""Messages per CPU second, to Java's."""

SERVER_LIMITED_CORES = 0.9


class Pace(NamedTuple):
    """How long things take in a full run, and in a quick one."""

    rounds: int = 5
    settle_ms: int = 250
    window_ms: int = 1000
    pace_ms: int = 2000
    warm_up_ms: int = 30_000
    warm_up_again_ms: int = 12_000
    backlog: int = 400_000


FULL = Pace()
QUICK = Pace(
    rounds=3,
    settle_ms=150,
    window_ms=400,
    pace_ms=800,
    warm_up_ms=14_000,
    warm_up_again_ms=5_000,
    backlog=150_000,
)


class Way(NamedTuple):
    """How a client is used: one of the programs, and what it is asked."""

    driver: str
    in_flight: int = 1
    mode: str = "async"

    @property
    def options(self) -> dict[str, object]:
        return {"in_flight": self.in_flight, "mode": self.mode}


class Case(NamedTuple):
    """One row of the report: a command, and who obeys it."""

    name: str
    command: str
    body: int
    ways: Mapping[str, Way]
    targets: tuple[Target, ...] = ()


MANY = {
    AIO: Way("asyncio", IN_FLIGHT),
    PLAIN: Way("asyncio plain", IN_FLIGHT),
    BLOCKING_THREADS: Way("blocking", THREADS),
    CPP: Way("cpp", 1, "sync"),
    CPP_THREADS: Way("cpp", THREADS, "sync"),
    JAVA: Way("java", IN_FLIGHT),
}
ONE = {
    AIO: Way("asyncio"),
    BLOCKING: Way("blocking"),
    CPP: Way("cpp", 1, "sync"),
    JAVA_SYNC: Way("java", 1, "sync"),
}
READERS = {
    AIO: Way("asyncio"),
    PLAIN: Way("asyncio plain"),
    BLOCKING: Way("blocking"),
    CPP: Way("cpp"),
    JAVA: Way("java"),
}
PACED = {**ONE, JAVA: Way("java")}

MANY_TARGETS = (
    Target("rate", AIO, CPP, at_least=AHEAD_MIN),
    Target("rate", AIO, CPP_THREADS, at_least=AHEAD_MIN),
    Target("per_cpu_s", AIO, JAVA, at_least=PRODUCER_MIN),
    Target("per_cpu_s", PLAIN, JAVA),
)
READER_TARGETS = (
    Target("rate", AIO, CPP, at_least=AHEAD_MIN),
    Target("per_cpu_s", AIO, JAVA, at_least=CONSUMER_MIN),
    Target("per_cpu_s", PLAIN, JAVA, at_least=CONSUMER_PLAIN_MIN),
)


def cases() -> Iterator[Case]:
    for body in BODIES:
        yield Case(f"producer {IN_FLIGHT} {body}", "send", body, MANY, MANY_TARGETS)
        yield Case(f"consumer {body}", "consume", body, READERS, READER_TARGETS)
        shown = (Target("rate", AIO, CPP), Target("per_cpu_s", AIO, JAVA_SYNC))
        yield Case(f"producer 1 {body}", "send", body, ONE, shown)
        yield Case(f"pace {RATE} {body}", "pace", body, PACED, (Target("p99_ms", AIO, JAVA),))


class Measured(NamedTuple):
    series: Series
    notes: list[str]


class Bench:
    """Puts the clients of a row to work, round after round."""

    def __init__(self, clients: Clients, pace: Pace) -> None:
        self.pace = pace
        self._clients = clients
        self._warmed: set[str] = set()
        self._groups = itertools.count(1)

    def measure(self, case: Case, names: Sequence[str]) -> Measured:
        options = self._options(case)
        for name in names:
            self._warm_up(case, case.ways[name], options)
        measures = {
            name: functools.partial(self._once, case, case.ways[name], options) for name in names
        }
        series = alternate(measures, self.pace.rounds)
        return Measured(series, server_notes(series))

    def forget(self) -> None:
        """Start with new clients, after one of them has failed."""
        self._clients.stop_all()
        self._warmed.clear()

    def _options(self, case: Case) -> dict[str, object]:
        pace, server = self.pace, self._clients.server
        timing = {"settle_ms": pace.settle_ms, "window_ms": pace.window_ms}
        if case.command == "consume":
            topic, backlog = server.backlog(case.body, pace.backlog)
            return {"topic": topic, "backlog": backlog, **timing}
        if case.command == "pace":
            timing = {"rate": RATE, "window_ms": pace.pace_ms}
        return {"topic": server.send_topic(case.body), "body": case.body, **timing}

    def _once(self, case: Case, way: Way, options: Mapping[str, object]) -> dict[str, float]:
        own = {"group": f"bench-reader-{next(self._groups)}"} if case.command == "consume" else {}
        return self._clients.measure(way.driver, case.command, {**options, **way.options, **own})

    def _warm_up(self, case: Case, way: Way, options: Mapping[str, object]) -> None:
        """Let a JVM compile what it does; other kinds of work after the first need less."""
        kind = case.command if case.command == "consume" else way.mode
        if way.driver != "java" or kind in self._warmed:
            return
        left_ms = self.pace.warm_up_again_ms if self._warmed else self.pace.warm_up_ms
        self._warmed.add(kind)
        if case.command != "consume":
            # As fast as it can, also where it will be told to be slow.
            fast = {"settle_ms": 0, "window_ms": left_ms, "in_flight": IN_FLIGHT, "mode": way.mode}
            self._clients.measure(way.driver, "send", {**options, **fast})
            return
        while left_ms > 0:  # one reader after the other: each has only so much to read
            self._once(case, way, options)
            left_ms -= self.pace.settle_ms + self.pace.window_ms


def server_notes(series: Series) -> list[str]:
    """Where the broker, not the client, was what could do no more."""
    return [
        f"the broker is the limit of {name}"
        for name, figures in series.items()
        if statistics.median(figures["server_cores"]) > SERVER_LIMITED_CORES
    ]
