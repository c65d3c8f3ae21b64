"""Clients under measurement, each in a process of its own, and the broker they talk to.

Clients share one core, the broker and its name server have another: what a client is given is then
the same for all, and what the broker does costs the client nothing.
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench import store_subject
from bench.broker_subject import (
    OURS,
    SEND_TOPIC,
    GeneratorProcess,
    Place,
    Subject,
    name_server,
)
from bench.capacity import cpu_seconds
from bench.capacity_frames import QUEUES, Load
from bench.memory import memory_mb
from tests.interop import cpp, java, requirements
from tests.interop.cache import default_cache
from tests.interop.processes import Stoppable

JAVA_VERSION = "4.9.8"
JAVA_HEAP_MB = 512
BODIES = (128, 1024)
FILL_SECONDS = 0.5

DRIVERS = ("asyncio", "asyncio plain", "blocking", "cpp", "java")
"""The programs; a plain one runs without the compiled core."""


class Driver(store_subject.Subject):
    """A running client that obeys the commands of ``bench.client_driver``."""

    @property
    def pid(self) -> int:
        return self._popen.pid


def cores() -> tuple[int, int] | None:
    """One for the broker and one for the clients, or None where there is only one."""
    usable = sorted(os.sched_getaffinity(0))
    return (usable[0], usable[-1]) if len(usable) > 1 else None


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """Whatever is started here stays on that core, with all its threads."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def started(name: str, folder: Path) -> Driver:
    """One of ``DRIVERS``; everything it writes is below ``folder``."""
    # Clients of every language like to write log files below the home folder.
    settings = {"HOME": str(folder), "COMETMQ_PURE": "1" if name.endswith("plain") else "0"}
    if name == "java":
        argv = java_command(folder)
    elif name == "cpp":
        settings["PYTHONPATH"] = str(cpp.packages(default_cache()))
        argv = [sys.executable, "-m", "bench.client_cpp"]
    else:
        argv = [sys.executable, "-m", "bench.client_ours", name.split()[0]]
    # ``env`` becomes the program, so that CPU and memory are those of the program.
    return Driver(
        name, ["env", *(f"{key}={value}" for key, value in settings.items()), *argv], folder
    )


def java_command(folder: Path) -> list[str]:
    """Apache's client in a JVM that may get as fast as it can."""
    requirements.need("java", "javac")
    return java.command(
        java.compiled(
            default_cache(), f"client-{JAVA_VERSION}", "client", root=store_subject.SOURCES
        ),
        "cometmq.bench.ClientBench",
        [],
        home=folder,
        heap_mb=JAVA_HEAP_MB,
        is_short_lived=False,
    )


class Server(Stoppable):
    """Our broker with its name server, and topics with backlogs for consumers."""

    def __init__(self, folder: Path) -> None:
        topics = (
            SEND_TOPIC,
            *(f"bench-{kind}-{body}" for kind in ("send", "read") for body in BODIES),
        )
        self._stack = contextlib.ExitStack()
        try:
            naming = name_server(OURS, folder / "namesrv")
            self._stack.callback(naming.process.kill)
            place = folder / "broker"
            place.mkdir(parents=True)
            broker = Subject(OURS, place, Place("main", topics, {}), naming.address)
            self._broker = self._stack.enter_context(broker)
            self._broker.wait_until_registered()
        except BaseException:
            self._stack.close()
            raise
        self.namesrv = naming.address

    def send_topic(self, body: int) -> str:
        return f"bench-send-{body}"

    def backlog(self, body: int, messages: int) -> tuple[str, int]:
        """A topic with at least so many messages, and how many it has."""
        topic = f"bench-read-{body}"
        load = Load("send", "binary", 8, 8, body, batch=32)
        with GeneratorProcess() as generator:
            while min(self._broker.max_offsets(topic)) * QUEUES < messages:
                generator.load(self._broker, load, topic, seconds=FILL_SECONDS)
        return topic, self._broker.message_count(topic)

    def cpu_seconds(self) -> float:
        return cpu_seconds(self._broker.pid)

    def stop(self) -> None:
        self._stack.close()


class Clients:
    """The clients of one run, started when needed and kept until the end."""

    def __init__(self, folder: Path, server: Server, core: int) -> None:
        self.server = server
        self._folder = folder
        self._core = core
        self._running: dict[str, Driver] = {}
        self._started_count = 0

    def measure(self, name: str, command: str, options: Mapping[str, object]) -> dict[str, float]:
        """Have a client do something; figures in the names of ``bench.broker_results``."""
        driver = self._driver(name)
        server_cpu, began = self.server.cpu_seconds(), time.perf_counter()
        answer = driver.ask(command, namesrv=self.server.namesrv, **options)
        spent = time.perf_counter() - began
        server_cores = (self.server.cpu_seconds() - server_cpu) / spent
        memory = memory_mb(driver.pid)
        return {
            **figures_of(driver.name, answer),
            "server_cores": server_cores,
            "anonymous_mb": memory.anonymous,
            "resident_mb": memory.resident,
        }

    def _driver(self, name: str) -> Driver:
        if name not in self._running:
            self._started_count += 1
            folder = self._folder / f"{name}-{self._started_count}".replace(" ", "-")
            with on_core(self._core):
                self._running[name] = started(name, folder)
        return self._running[name]

    def stop_all(self) -> None:
        """End them; whoever is needed again starts anew."""
        while self._running:
            self._running.popitem()[1].kill()


def figures_of(name: str, answer: Mapping[str, int]) -> dict[str, float]:
    """Rates and costs from what a client has counted."""
    count, seconds = answer["count"], answer["elapsed_ns"] / 1e9
    cpu_s = answer["window_cpu_ns"] / 1e9
    if not count or not cpu_s:
        raise store_subject.SubjectFailed(f"{name}: {count} messages with {cpu_s:g} s of CPU")
    waits = {
        f"{p}_ms": answer[f"{p}_ns"] / 1e6 for p in ("p50", "p99", "p999") if f"{p}_ns" in answer
    }
    return {
        "rate": count / seconds,
        "cpu_us": cpu_s * 1e6 / count,
        "per_cpu_s": count / cpu_s,
        "client_cores": cpu_s / seconds,
        **waits,
    }
