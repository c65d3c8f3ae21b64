"""Apache's own benchmark programs (``rocketmq-example`` 5.5.0) as clients of the brokers.

They print means over ten seconds, which is too coarse for rounds that alternate: so a program runs
for each broker, all but one stopped by a signal, and its messages are counted outside. Those of a
producer are at the ends of the queues; a consumer's are the bytes it reads. No program is stopped
for as long as three seconds, when its requests in flight would time out. What they print is read
for failures.
"""

import contextlib
import functools
import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.broker_cases import (
    CLIENT_TOPIC,
    CONSUME_TOPIC,
    MAIN,
    Bench,
    Case,
    Measured,
    alternate,
)
from bench.broker_results import Series, Target
from bench.broker_subject import APACHE, OURS, PURE, SUBJECTS, Subject, SubjectFailed
from bench.capacity import cpu_seconds
from bench.capacity_frames import QUEUES, Load
from tests.interop import java, maven
from tests.interop.cache import default_cache
from tests.interop.commands import tail
from tests.interop.processes import Process, Stoppable

PACKAGE = "org.apache.rocketmq.example.benchmark"
HEAP_MB = 512
PAUSE_SECONDS_MAX = 2.8
SETTLE_SECONDS = 0.15
BUSY_TIMEOUT_S = 60.0
BUSY_MESSAGES = 2_000
MANY_THREADS_MIN, OTHERWISE_MIN = 1.2, 0.9

# Their logging configuration gets in the way.
LEFT_OUT = re.compile(r"rocketmq-(auth|broker|store|namesrv|controller|tieredstore)-")
FAILURES = re.compile(r"(?:Failed|Consume Fail): (\d+)")


class Program(NamedTuple):
    """One of Apache's programs with its arguments; ``rate_min`` is relative to 4.9.7's."""

    name: str
    main: str
    arguments: tuple[str, ...]
    rate_min: float

    @property
    def is_consumer(self) -> bool:
        return self.main == "Consumer"

    @property
    def topic(self) -> str:
        return CONSUME_TOPIC if self.is_consumer else CLIENT_TOPIC


def client_cases() -> Iterator[Case]:
    for program in programs():
        targets = (
            Target("rate", OURS, APACHE, at_least=program.rate_min),
            Target("cpu_us", OURS, APACHE),
        )
        subjects = tuple(name for name in SUBJECTS if name != PURE)
        measure = functools.partial(measure_program, program=program)
        yield Case(program.name, subjects, measure, targets)


def programs() -> Iterator[Program]:
    for threads, rate_min in ((1, OTHERWISE_MIN), (64, MANY_THREADS_MIN)):
        for body in (128, 1024):
            arguments = ("-w", str(threads), "-s", str(body))
            yield Program(f"client producer {threads} {body}", "Producer", arguments, rate_min)
    batches = ("-w", "8", "-b", "16", "-s", "128")
    yield Program("client batch 8x16 128", "BatchProducer", batches, OTHERWISE_MIN)
    group = ("-g", "bench-consumer", "-p", "true")
    yield Program("client consumer 128", "Consumer", group, OTHERWISE_MIN)


class Client(Stoppable):
    """A running program, which can be made to pause."""

    def __init__(self, program: Program, subject: Subject, folder: Path) -> None:
        jars = sorted(maven.jars(default_cache(), "bench-5.5.0").glob("*.jar"))
        argv = java.command(
            ":".join(str(jar) for jar in jars if not LEFT_OUT.match(jar.name)),
            f"{PACKAGE}.{program.main}",
            ["-n", subject.namesrv, "-t", program.topic, "-ri", "1000", *program.arguments],
            home=folder,
            heap_mb=HEAP_MB,
            is_short_lived=False,
        )
        self._process = Process("client", argv, folder=folder)
        self.pid = self._process.pid
        self.subject = subject
        self.count = self._messages_sent if not program.is_consumer else self._messages_read
        self._topic = program.topic
        self._record_bytes = subject.record_bytes(CONSUME_TOPIC) if program.is_consumer else 0.0
        self._is_consumer = program.is_consumer

    def _messages_sent(self) -> float:
        return self.subject.message_count(self._topic)

    def _messages_read(self) -> float:
        """Nearly all a consumer reads are messages; answers' heads are some hundredths of it."""
        counters = Path(f"/proc/{self.pid}/io").read_text().splitlines()
        read = dict(line.split(": ") for line in counters)["rchar"]
        return int(read) / self._record_bytes

    def wait_until_busy(self) -> None:
        """Return once messages flow; what a consumer reads before it starts are its own classes."""
        if self._is_consumer:
            self._process.wait_until_printed("Consumer Started")
        began_with = self.count()
        deadline = time.monotonic() + BUSY_TIMEOUT_S
        while self.count() < began_with + BUSY_MESSAGES:
            if time.monotonic() >= deadline:
                raise SubjectFailed(f"the client does nothing:\n{tail(self._process.log())}")
            time.sleep(0.1)

    def pause(self) -> None:
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def failures(self) -> int:
        """How many requests it says have failed."""
        return failures_in(self._process.log())

    def stop(self) -> None:
        self._process.kill()


def failures_in(text: str) -> int:
    """The highest count of failures in what a program prints."""
    return max(map(int, FAILURES.findall(text)), default=0)


def measure_program(bench: Bench, names: Sequence[str], *, program: Program) -> Measured:
    subjects = [prepared(bench, name, program) for name in names]
    with contextlib.ExitStack() as stack:
        clients = []
        for number, subject in enumerate(subjects):
            folder = bench.folder / f"{program.name}-{number}".replace(" ", "-")
            clients.append(stack.enter_context(Client(program, subject, folder)))
        warm_up(clients, bench.pace.client_warm_up_seconds)
        seconds = bench.pace.client_window_seconds
        assert (len(names) - 1) * (seconds + 2 * SETTLE_SECONDS) < PAUSE_SECONDS_MAX
        measures = {
            client.subject.name: functools.partial(window, client, seconds) for client in clients
        }
        rounds = bench.pace.rounds if program.is_consumer else bench.pace.client_rounds
        series = alternate(measures, rounds)
        notes = [
            f"{client.failures()} requests of the client of {client.subject.name} failed"
            for client in clients
            if client.failures()
        ]
    if program.is_consumer:
        check_backlog(series, bench.pace.consume_messages)
    return Measured(series, notes)


def prepared(bench: Bench, name: str, program: Program) -> Subject:
    subject = bench.subject(name, MAIN)
    subject.wait_until_registered()
    bench.warm_up(subject, "send binary False", Load("send", "binary", 8, 8, 128), CLIENT_TOPIC)
    if program.is_consumer:
        bench.fill(subject, CONSUME_TOPIC, bench.pace.consume_messages // QUEUES, 128)
    return subject


def warm_up(clients: Sequence[Client], seconds: float) -> None:
    """All at the same time, since none may pause for long, and then none at all."""
    for client in clients:
        client.wait_until_busy()
    time.sleep(seconds * len(clients) / 2)
    for client in clients:
        client.pause()


def check_backlog(series: Series, messages: int) -> None:
    """A consumer that has nothing left shows no rate, and would pass for a slow one."""
    for name, figures in series.items():
        if min(figures["rate"]) < 0.1 * max(figures["rate"]):
            raise SubjectFailed(f"{name}: its consumer used up {messages:,} messages too early")


def window(client: Client, seconds: float) -> dict[str, float]:
    """What went through the broker while only this client ran."""
    client.resume()
    time.sleep(SETTLE_SECONDS)
    began, count, cpu, client_cpu = now(client)
    time.sleep(seconds)
    ended, count_after, cpu_after, client_cpu_after = now(client)
    client.pause()
    messages, spent = count_after - count, ended - began
    if not messages:
        raise SubjectFailed(f"{client.subject.name}: the client got nothing done")
    return {
        "rate": messages / spent,
        "cpu_us": (cpu_after - cpu) * 1e6 / messages,
        "server_cores": (cpu_after - cpu) / spent,
        "client_cores": (client_cpu_after - client_cpu) / spent,
        **client.subject.memory_mb(),
    }


def now(client: Client) -> tuple[float, float, float, float]:
    """The time, messages so far, and CPU seconds of the broker and of the client."""
    began = time.perf_counter()
    count = client.count()
    middle = (began + time.perf_counter()) / 2
    return middle, count, cpu_seconds(client.subject.pid), cpu_seconds(client.pid)
