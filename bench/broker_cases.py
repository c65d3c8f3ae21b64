"""What ``bench.broker`` measures: rows, each with the loads it puts on the brokers and its targets.

Rows under Apache's own clients are in ``broker_clients``.
"""

import contextlib
import functools
import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.broker_results import NOTHING, Series, Target, client_notes
from bench.broker_subject import (
    APACHE,
    OURS,
    PURE,
    SEND_TOPIC,
    SUBJECTS,
    GeneratorProcess,
    Place,
    Sink,
    Subject,
    SubjectFailed,
    name_server,
)
from bench.capacity_frames import QUEUES, Load

SEND_MIN, PULL_MIN, PURE_MIN = 2.0, 1.5, 1.0
CLIENT_BOUND_MIN = 0.9
CPU_MAX = 1 / 3
ANONYMOUS_MB_MAX = 100.0
FIRST_ACK_SECONDS_MAX = 1.0

REFUSED_SHARE_MAX = 0.05
"""A broker that is busy may refuse some; they do not count. More is another measurement."""

GLANCE_SECONDS = 0.05
MEMORY_MESSAGES = 1_000_000
TOPICS = (1, 100, 1_000)
CONNECTIONS = (1, 50, 500)
IN_FLIGHT_SHARED = 500

PULL_TOPIC = "bench-pull"
CLIENT_TOPIC = "bench-client"
CONSUME_TOPIC = "bench-consume"
GROWTH_TOPIC = "bench-growth"

MAIN = Place(
    "main",
    (SEND_TOPIC, CLIENT_TOPIC, CONSUME_TOPIC, f"{PULL_TOPIC}-128", f"{PULL_TOPIC}-1024"),
    {},
)
# Small queue files: thousands of the usual size would be more than some disks have.
GROWTH = Place(
    "growth",
    (SEND_TOPIC, *(f"{GROWTH_TOPIC}-{number:04}" for number in range(TOPICS[-1]))),
    {"mappedFileSizeConsumeQueue": str(20 * 30_000)},
)

FILLING = Load("send", "binary", 8, 8, 128, batch=32)


class Pace(NamedTuple):
    """How long things take in a full run, and in a quick one."""

    rounds: int = 5
    window_seconds: float = 1.2
    ceiling_seconds: float = 0.4
    warm_up_seconds: float = 20.0
    warm_up_again_seconds: float = 3.0
    start_rounds: int = 5
    backlog_per_queue: int = 40_000
    client_rounds: int = 9
    client_window_seconds: float = 1.0
    client_warm_up_seconds: float = 8.0
    consume_messages: int = 12_000_000  # 17 s of the fastest consumer so far


FULL = Pace()
QUICK = Pace(
    rounds=3,
    window_seconds=0.3,
    ceiling_seconds=0.15,
    warm_up_seconds=6.0,
    warm_up_again_seconds=0.7,
    start_rounds=2,
    backlog_per_queue=10_000,
    client_rounds=4,
    client_window_seconds=0.5,
    client_warm_up_seconds=3.0,
    consume_messages=1_200_000,
)


class Measured(NamedTuple):
    series: Series
    notes: list[str]


class Case(NamedTuple):
    """One row of the report; ``subjects`` are those it makes sense for."""

    name: str
    subjects: tuple[str, ...]
    measure: Callable[["Bench", Sequence[str]], Measured]
    targets: tuple[Target, ...] = ()


class Bench:
    """The brokers of one run, started when needed and kept until the end."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack, pace: Pace) -> None:
        self.folder = folder
        self.pace = pace
        self._stack = stack
        self.generator = stack.enter_context(GeneratorProcess())
        self._name_servers: dict[tuple[str, str], str] = {}
        self._subjects: dict[tuple[str, str], Subject] = {}
        self._warmed: set[tuple[Subject, str]] = set()
        self._sinks: dict[int, Sink] = {}

    def subject(self, name: str, place: Place) -> Subject:
        key = (name, place.name)
        if key not in self._subjects:
            self._subjects[key] = self._stack.enter_context(self.started(name, place))
        return self._subjects[key]

    def started(self, name: str, place: Place, folder_name: str = "broker") -> Subject:
        """A new broker, with the name server of its place; the caller ends it."""
        root = self.folder / f"{place.name}-{name}".replace(" ", "-").replace(",", "")
        key = (name, place.name)
        if key not in self._name_servers:
            server = name_server(name, root / "namesrv")
            self._stack.callback(server.process.kill)
            self._name_servers[key] = server.address
        folder = root / folder_name
        folder.mkdir(parents=True)
        return Subject(name, folder, place, self._name_servers[key])

    def warm_up(self, subject: Subject, kind: str, load: Load, topic: str) -> None:
        """Load a JVM until it has compiled what it does; later kinds of load need less."""
        if (subject, kind) in self._warmed:
            return
        seconds = 0.5
        if subject.is_jvm:
            is_first = all(warmed is not subject for warmed, _ in self._warmed)
            pace = self.pace
            seconds = pace.warm_up_seconds if is_first else pace.warm_up_again_seconds
        self._warmed.add((subject, kind))
        self.generator.load(subject, load, topic, seconds=seconds)

    def window(self, subject: Subject, load: Load, topic: str) -> dict[str, float]:
        """One measured load; sends that were answered must be in the store afterwards."""
        is_checked = load.kind == "send" and load.topics == 1
        before = subject.settled_count(topic) if is_checked else 0
        figures = self.generator.load(subject, load, topic, seconds=self.pace.window_seconds)
        answered = int(figures.pop("answered")) * load.batch
        if is_checked:
            stored = subject.settled_count(topic) - before - 1
            share = stored / answered
            if not 1 - REFUSED_SHARE_MAX <= share <= 1:
                raise SubjectFailed(
                    f"{subject.name}, {load}: {stored} messages stored of {answered} answered"
                )
            figures["rate"] *= share
            figures["cpu_us"] /= share
        return {**figures, **subject.memory_mb()}

    def ceiling(self, load: Load, answer_bytes: int) -> dict[str, float]:
        """What the generator does against a server that does nothing."""
        size = round(answer_bytes / 50) * 50
        if size not in self._sinks:
            self._sinks[size] = self._stack.enter_context(Sink(size))
        seconds = self.pace.ceiling_seconds
        figures = self.generator.load(self._sinks[size], load, SEND_TOPIC, seconds=seconds)
        del figures["answered"]
        return figures

    def answer_bytes(self, subject: Subject, load: Load, topic: str) -> int:
        """How long the subject's answers to such a load are."""
        figures = self.generator.load(subject, load, topic, seconds=GLANCE_SECONDS)
        return int(figures["answer_bytes"])

    def fill(self, subject: Subject, topic: str, per_queue: int, body: int) -> None:
        """Put at least so many messages into each queue, if they are not there."""
        while min(subject.max_offsets(topic)) < per_queue:
            load = FILLING._replace(body=body)
            self.generator.load(subject, load, topic, seconds=0.3 if per_queue < 50_000 else 1.0)

    def touch_queues(self, subject: Subject, load: Load, topic: str) -> None:
        """Send until every queue has got something: files are made before, not while measuring."""
        seconds, answered = 0.5, 0
        while answered < 2 * load.topics * QUEUES:
            # Each load begins anew: it is the last one that comes round.
            answered = int(self.generator.load(subject, load, topic, seconds=seconds)["answered"])
            seconds = min(2 * seconds, 16.0)
        subject.settled_count(SEND_TOPIC)


def alternate(measures: Mapping[str, Callable[[], Mapping[str, float]]], rounds: int) -> Series:
    """Every measure once a round."""
    series: Series = {name: {} for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            for figure, value in measure().items():
                series[name].setdefault(figure, []).append(value)
    return series


def capacity_cases() -> Iterator[Case]:
    shapes = ((1, 1), (1, 64), (8, 32), (64, 1))
    for body, header, (connections, in_flight) in itertools.product(
        (128, 1024), ("json", "binary"), shapes
    ):
        yield capacity_case(Load("send", header, connections, in_flight, body))
    for batch, header, shape, body in (
        (16, "json", (1, 1), 128),
        (16, "json", (8, 8), 128),
        (32, "json", (8, 8), 128),
        (32, "binary", (8, 8), 128),
        (32, "json", (8, 8), 1024),
    ):
        yield capacity_case(Load("send", header, *shape, body, batch=batch))
    for header, shape, body in (
        ("json", (1, 1), 128),
        ("json", (1, 8), 128),
        ("json", (8, 8), 128),
        ("json", (64, 1), 128),
        ("binary", (1, 8), 128),
        ("binary", (8, 8), 128),
        ("json", (8, 8), 1024),
    ):
        yield capacity_case(Load("pull", header, *shape, body))


def capacity_case(load: Load) -> Case:
    is_json = load.header == "json"
    rate_min = PULL_MIN if load.kind == "pull" else SEND_MIN
    # Batches are shown without a target: Apache's programs with batches have one.
    is_batch = load.batch > 1
    targets = [
        Target(
            "rate",
            OURS,
            APACHE,
            at_least=None if is_batch else rate_min,
            at_least_when_limited=None if is_batch else CLIENT_BOUND_MIN,
        ),
        Target("cpu_us", OURS, APACHE, at_most=None if is_batch else CPU_MAX),
    ]
    if is_json:
        targets.append(Target("rate", PURE, APACHE, at_least=None if is_batch else PURE_MIN))
    subjects = SUBJECTS if is_json else tuple(name for name in SUBJECTS if name != PURE)
    measure = functools.partial(measure_capacity, load=load)
    return Case(row_name(load), subjects, measure, tuple(targets))


def row_name(load: Load) -> str:
    """``send json 8x32 128``, ``batch16 json 8x8 128``, ``pull binary 8x8 128``."""
    kind = f"batch{load.batch}" if load.batch > 1 else load.kind
    return f"{kind} {load.header} {load.connections}x{load.in_flight} {load.body}"


def measure_capacity(bench: Bench, names: Sequence[str], *, load: Load) -> Measured:
    topic = SEND_TOPIC
    if load.kind == "pull":
        topic = f"{PULL_TOPIC}-{load.body}"
        load = load._replace(backlog=bench.pace.backlog_per_queue)
    measures = {}
    answer_bytes = 0
    for name in names:
        subject = bench.subject(name, MAIN)
        if load.kind == "pull":
            bench.fill(subject, topic, load.backlog, load.body)
        kind = f"{load.kind} {load.header} {load.batch > 1}"
        bench.warm_up(subject, kind, load._replace(connections=8, in_flight=8), topic)
        answer_bytes = max(answer_bytes, bench.answer_bytes(subject, load, topic))
        measures[name] = functools.partial(bench.window, subject, load, topic)
    measures[NOTHING] = functools.partial(bench.ceiling, load, answer_bytes)
    series = alternate(measures, bench.pace.rounds)
    return Measured(series, client_notes(series))


# What many topics and many connections cost


def growth_cases() -> Iterator[Case]:
    subjects = tuple(name for name in SUBJECTS if name != PURE)
    loads = {
        count: Load("send", "json", count, IN_FLIGHT_SHARED // count, 128) for count in CONNECTIONS
    }
    measure = functools.partial(measure_growth, place=MAIN, loads=loads, noun="connection")
    yield Case("connections", subjects, measure, growth_targets(CONNECTIONS, "connection"))
    loads = {count: Load("send", "json", 8, 32, 128, topics=count) for count in TOPICS}
    measure = functools.partial(measure_growth, place=GROWTH, loads=loads, noun="topic")
    yield Case("topics", subjects, measure, growth_targets(TOPICS, "topic"))


def growth_targets(counts: tuple[int, ...], noun: str) -> tuple[Target, ...]:
    """No limits: how dear the most are, to be read beside Apache's."""
    return tuple(
        Target("cpu_us", variant(name, count, noun), variant(name, counts[0], noun))
        for name in SUBJECTS
        for count in counts[1:]
    )


def variant(subject: str, count: int, noun: str) -> str:
    return f"{subject}, {count:,} {noun}{'s' * (count > 1)}"


def measure_growth(
    bench: Bench, names: Sequence[str], *, place: Place, loads: Mapping[int, Load], noun: str
) -> Measured:
    measures = {}
    for name in names:
        subject = bench.subject(name, place)
        for count, load in loads.items():
            topic = SEND_TOPIC if load.topics == 1 else GROWTH_TOPIC
            bench.warm_up(subject, "send json False", load, topic)
            if load.topics > 1:
                bench.touch_queues(subject, load, topic)
            work = functools.partial(bench.window, subject, load, topic)
            measures[variant(name, count, noun)] = work
    return Measured(alternate(measures, bench.pace.rounds), [])


# Memory and start


def memory_case() -> Case:
    target = Target("anonymous_mb", OURS, at_most=ANONYMOUS_MB_MAX)
    subjects = tuple(name for name in SUBJECTS if name != PURE)
    return Case("memory after 1M messages", subjects, measure_memory, (target,))


def measure_memory(bench: Bench, names: Sequence[str]) -> Measured:
    load = Load("send", "json", 8, 32, 128)
    series: Series = {}
    for subject in (bench.subject(name, MAIN) for name in names):
        while (sent := subject.message_count(SEND_TOPIC)) < MEMORY_MESSAGES:
            bench.generator.load(subject, load, SEND_TOPIC, seconds=2.0)
        memory = subject.memory_mb()
        series[subject.name] = {name: [value] for name, value in memory.items()}
        series[subject.name]["messages"] = [float(sent)]
    return Measured(series, [])


def start_case() -> Case:
    target = Target("first_ack_seconds", OURS, at_most=FIRST_ACK_SECONDS_MAX)
    return Case("start to first acknowledged send", SUBJECTS, measure_start, (target,))


def measure_start(bench: Bench, names: Sequence[str]) -> Measured:
    """Empty stores, the name server already running."""
    numbers = itertools.count()

    def started(name: str) -> dict[str, float]:
        place = Place("start", (SEND_TOPIC,), {})
        with bench.started(name, place, f"broker-{next(numbers)}") as subject:
            figures = {"first_ack_seconds": subject.first_ack_seconds, **subject.memory_mb()}
        time.sleep(0.2)
        return figures

    measures = {name: functools.partial(started, name) for name in names}
    series = alternate(measures, bench.pace.start_rounds)
    for folder in bench.folder.glob("start-*"):
        for store in folder.glob("broker-*"):
            shutil.rmtree(store, ignore_errors=True)
    return Measured(series, [])
