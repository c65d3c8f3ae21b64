"""What the programs that drive one client each for ``bench.client`` have in common.

A program reads commands, a line each with its options as ``name=value``, and answers each with one
line of JSON. The Java program (``bench/java/client``) understands the same lines.

``send``
    For ``window_ms``, keep ``in_flight`` sends under way: how many were acknowledged.
``pace``
    For ``window_ms``, send at a fixed ``rate``: how long acknowledgements took. A send that comes
    too late because of the one before counts from when it was due.
``consume``
    As a new ``group``, read ``topic`` from its first message on, for ``window_ms`` or up to
    ``backlog`` messages: how many were handled, with one message a call.

Counting starts ``settle_ms`` after the first message; by then routes and connections are there. CPU
is that of the whole process, all threads, between the begin and the end of counting.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from typing import Final, NamedTuple

Answer = dict[str, int]
Waits = Generator[float, None, Answer]
"""Says how many seconds to sleep, again and again, and at the end what was measured."""

TAG: Final = "bench"
GROUP: Final = "bench-producer"
SEND_TIMEOUT_MS: Final = 20_000
FIRST_MESSAGE_S_MAX: Final = 60.0
POLL_S: Final = 0.005


class Options(NamedTuple):
    """A command and what comes with it."""

    command: str
    values: Mapping[str, str]

    @classmethod
    def read(cls, line: str) -> "Options":
        command, *words = line.split()
        return cls(command, dict(word.split("=", 1) for word in words))

    def text(self, name: str) -> str:
        return self.values[name]

    def number(self, name: str) -> int:
        return int(self.values[name])

    @property
    def body(self) -> bytes:
        return b"x" * self.number("body")


Commands = Mapping[str, Callable[[Options], Answer]]


class Progress:
    """What a client has done so far, told by the code that drives it."""

    __slots__ = ("count", "failure")

    def __init__(self) -> None:
        self.count = 0
        self.failure: BaseException | None = None

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure


def window(progress: Progress, options: Options, *, count_max: int | None = None) -> Waits:
    """Measure from a while after the first message on, for a time or until all have come."""
    deadline = time.monotonic() + FIRST_MESSAGE_S_MAX
    while not progress.count:
        progress.check()
        if time.monotonic() >= deadline:
            raise TimeoutError(f"nothing happened within {FIRST_MESSAGE_S_MAX:g} s")
        yield POLL_S
    yield options.number("settle_ms") / 1000
    count, cpu_ns, began_ns = progress.count, time.process_time_ns(), time.perf_counter_ns()
    end_ns = began_ns + options.number("window_ms") * 1_000_000
    while time.perf_counter_ns() < end_ns and (count_max is None or progress.count < count_max):
        yield POLL_S
    ended_ns, spent_ns = time.perf_counter_ns(), time.process_time_ns() - cpu_ns
    done = progress.count - count
    progress.check()
    return {"count": done, "elapsed_ns": ended_ns - began_ns, "window_cpu_ns": spent_ns}


def slept(waits: Waits) -> Answer:
    """Sleep as often and as long as asked; for programs with threads."""
    while True:
        try:
            time.sleep(next(waits))
        except StopIteration as end:
            answer: Answer = end.value
            return answer


class Pacing:
    """Sends at a fixed rate: when they are due, and how long each took."""

    def __init__(self, options: Options) -> None:
        rate = options.number("rate")
        self.waits_ns: list[int] = []
        self._began_ns, self._cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        self.dues_ns = [
            self._began_ns + number * 1_000_000_000 // rate
            for number in range(rate * options.number("window_ms") // 1000)
        ]

    def done(self, since_ns: int) -> None:
        """Another is acknowledged, that was sent then."""
        self.waits_ns.append(time.perf_counter_ns() - since_ns)

    def answer(self) -> Answer:
        elapsed_ns = time.perf_counter_ns() - self._began_ns
        spent_ns = time.process_time_ns() - self._cpu_ns
        ranked = sorted(self.waits_ns)
        shares = {"p50_ns": 0.5, "p99_ns": 0.99, "p999_ns": 0.999}
        places = {name: ranked[int(len(ranked) * share)] for name, share in shares.items()}
        count = len(ranked)
        return {"count": count, "elapsed_ns": elapsed_ns, "window_cpu_ns": spent_ns, **places}


# For clients whose sends wait for their acknowledgement


def send_from_threads(send: Callable[[], object], options: Options) -> Answer:
    """As many threads as there are sends under way, each with one after the other."""
    progress, over, lock = Progress(), threading.Event(), threading.Lock()

    def work() -> None:
        try:
            while not over.is_set():
                send()
                with lock:
                    progress.count += 1
        except BaseException as failure:
            progress.failure = failure

    threads = [threading.Thread(target=work) for _ in range(options.number("in_flight"))]
    for thread in threads:
        thread.start()
    try:
        return slept(window(progress, options))
    finally:
        over.set()
        for thread in threads:
            thread.join()


def pace_one_by_one(send: Callable[[], object], options: Options) -> Answer:
    send()
    pacing = Pacing(options)
    for due_ns in pacing.dues_ns:
        since_ns = due_ns
        if (early_ns := due_ns - time.perf_counter_ns()) > 0:
            time.sleep(early_ns / 1e9)
            since_ns = time.perf_counter_ns()
        send()
        pacing.done(since_ns)
    return pacing.answer()


# The program


def serve(commands: Commands) -> None:
    """Obey until nothing more can be asked."""
    # Whatever a client prints by itself is no answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        options = Options.read(line)
        try:
            answer: Mapping[str, object] = commands[options.command](options)
        except Exception as failure:
            answer = {"error": f"{type(failure).__name__}: {failure}"}
        print(json.dumps(answer), file=answers, flush=True)
