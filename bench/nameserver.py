"""Our name server beside Apache's, in one run: route queries, a large registration, memory, start.

16 connections with 32 queries in flight each, over a table of 1,000 topics on 10 brokers; rounds
alternate between the servers, the JVMs are warmed up first. Targets: at least 2 times the queries
of each Apache release, and no query waits longer than 20 ms while a broker registers 10,000 topics.

    python -m bench.nameserver [--quick] [--row PATTERN]
"""

import argparse
import contextlib
import fnmatch
import functools
import json
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench.load import Burst, connect, measured, read_frame, requests_per_second
from bench.memory import memory_mb
from bench.rounds import RESULTS, ROUNDS
from cometmq.codec import command, registration
from cometmq.codec.bodies.nameserver import RegisterBrokerBody
from cometmq.codec.bodies.topics import TopicConfigTable
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.nameserver import GetRouteInfoByTopic
from cometmq.codec.headers.registration import RegisterBroker
from cometmq.model.topic import DataVersion, TopicConfig
from tests.interop.apache import ApacheNameServer
from tests.interop.cache import default_cache
from tests.interop.nameserver import OurNameServer

TOPICS, BROKERS = 1_000, 10
CONNECTIONS, IN_FLIGHT = 16, 32
QUERY_RATIO_MIN = 2.0
STALL_MS_MAX = 20.0
LARGE_TOPICS = 10_000
WARM_UP_SECONDS = 20.0


class Subject(NamedTuple):
    """A running name server under test."""

    name: str
    address: str
    pid: int
    first_answer_seconds: float


def register_frame(broker: int, topics: int, version: int, counter: int = 1) -> bytes:
    """A full registration as a broker of that release sends it."""
    table = {
        f"topic-{number:05}": TopicConfig(
            topic_name=f"topic-{number:05}", read_queue_nums=8, write_queue_nums=8, attributes={}
        )
        for number in range(topics)
    }
    wrapper = TopicConfigTable(
        topic_config_table=table, data_version=DataVersion(counter=counter, timestamp=counter)
    )
    body = registration.encode(RegisterBrokerBody((), wrapper), version)
    header = RegisterBroker(
        f"broker-{broker}", f"127.0.0.1:{20_000 + broker}", "DefaultCluster",
        f"127.0.0.1:{30_000 + broker}", 0, False, registration.body_crc32(body), False,
    )  # fmt: skip
    return command.encode(command.request(RequestCode.REGISTER_BROKER, header, body=body))


def query_frames(connection: int) -> list[bytes]:
    """Queries for topics spread over the whole table, the same each time."""
    return [
        command.encode(
            command.request(
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                GetRouteInfoByTopic(f"topic-{(connection * IN_FLIGHT + n) * 7 % TOPICS:05}"),
                opaque=n,
            )
        )
        for n in range(IN_FLIGHT)
    ]


@contextlib.contextmanager
def subjects(folder: Path, versions: tuple[str, ...]) -> Iterator[list[Subject]]:
    """Our name server and Apache's, each with the same brokers registered."""
    with contextlib.ExitStack() as stack:
        running = [_start(stack, "ours", lambda: OurNameServer(folder / "ours"))]
        for version in versions:
            server = functools.partial(
                ApacheNameServer, default_cache(), version, folder / version, is_short_lived=False
            )
            running.append(_start(stack, f"Apache {version}", server))
        for subject in running:
            for broker in range(BROKERS):
                connection = stack.enter_context(connect(subject.address))
                connection.sendall(register_frame(broker, TOPICS, 513))
                assert b'"code":0' in read_frame(connection)
        yield running


def _start(
    stack: contextlib.ExitStack,
    name: str,
    start: Callable[[], ApacheNameServer | OurNameServer],
) -> Subject:
    began = time.perf_counter()
    server = start()
    stack.callback(server.process.kill)
    with connect(server.address) as connection:
        connection.sendall(query_frames(0)[0])
        read_frame(connection)
    return Subject(name, server.address, server.process.pid, time.perf_counter() - began)


def measure_queries(running: list[Subject], seconds: float) -> dict[str, list[float]]:
    """Queries per second of each subject, one figure a round, rounds alternating."""
    rates: dict[str, list[float]] = {subject.name: [] for subject in running}
    with contextlib.ExitStack() as stack:
        loads = []
        for subject in running:
            connections = [
                stack.enter_context(connect(subject.address)) for _ in range(CONNECTIONS)
            ]
            bursts = [measured(c, query_frames(n)) for n, c in enumerate(connections)]
            loads.append((subject.name, connections, bursts))
            if subject.name != "ours":
                requests_per_second(connections, bursts, min(WARM_UP_SECONDS, seconds * 10))
        for _ in range(ROUNDS):
            for name, connections, bursts in loads:
                rates[name].append(requests_per_second(connections, bursts, seconds))
    return rates


def longest_stall_ms(subject: Subject) -> float:
    """The longest wait of a query while a broker registers 10,000 topics."""
    frame = register_frame(99, LARGE_TOPICS, 513)
    with connect(subject.address) as broker, connect(subject.address) as client:
        burst = measured(client, query_frames(0)[:1])
        done = threading.Event()
        waits: list[float] = []
        watcher = threading.Thread(target=_watch, args=(client, burst, done, waits))
        watcher.start()
        time.sleep(0.2)
        broker.sendall(frame)
        assert b'"code":0' in read_frame(broker)
        done.set()
        watcher.join()
    return max(waits) * 1000


def _watch(client: socket.socket, burst: Burst, done: threading.Event, waits: list[float]) -> None:
    while not done.is_set():
        began = time.perf_counter()
        client.sendall(burst.requests)
        read_frame(client)
        waits.append(time.perf_counter() - began)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.nameserver", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short rounds, for a first look")
    parser.add_argument("--row", default="*", metavar="PATTERN", help="queries, stall or memory")
    chosen = parser.parse_args()
    seconds = 0.5 if chosen.quick else 3.0
    with (
        tempfile.TemporaryDirectory() as folder,
        subjects(Path(folder), ("4.9.7", "5.5.0")) as running,
    ):
        return report(running, seconds, chosen.row)


def report(running: list[Subject], seconds: float, pattern: str) -> int:
    results: dict[str, object] = {}
    missed = False
    if fnmatch.fnmatch("queries", pattern):
        rates = measure_queries(running, seconds)
        missed |= print_rates(rates)
        results["queries_per_second"] = rates
    if fnmatch.fnmatch("stall", pattern):
        stalls = [longest_stall_ms(running[0]) for _ in range(ROUNDS)]
        _, middle, high = statistics.quantiles(stalls, n=4, method="inclusive")
        is_missed = middle > STALL_MS_MAX and high > STALL_MS_MAX
        print(
            f"longest wait of a query while {LARGE_TOPICS} topics register: {middle:.1f} ms"
            f" (rounds {min(stalls):.1f} - {max(stalls):.1f}), target ≤ {STALL_MS_MAX:g}"
            f"{'  MISSED' if is_missed else ''}"
        )
        missed |= is_missed
        results["longest_wait_ms"] = stalls
    if fnmatch.fnmatch("memory", pattern):
        results["servers"] = print_memory(running)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "nameserver.json").write_text(json.dumps(results, indent=2) + "\n")
    return 1 if missed else 0


def print_rates(rates: dict[str, list[float]]) -> bool:
    """The table of queries; True when a target is missed."""
    missed = False
    print(f"route queries per second, {CONNECTIONS} connections x {IN_FLIGHT} in flight")
    for name, figures in rates.items():
        ratios = [ours / theirs for ours, theirs in zip(rates["ours"], figures, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        is_missed = name != "ours" and middle < QUERY_RATIO_MIN and high < QUERY_RATIO_MIN
        missed |= is_missed
        compared = "" if name == "ours" else f"ours is {middle:.2f} x ({low:.2f} - {high:.2f})"
        print(f"  {name:<14} {statistics.median(figures):>9.0f}  {compared}"
              f"{'  MISSED' if is_missed else ''}")  # fmt: skip
    return missed


def print_memory(running: list[Subject]) -> dict[str, object]:
    servers: dict[str, object] = {}
    for subject in running:
        anonymous, resident = memory_mb(subject.pid)
        print(
            f"  {subject.name:<14} anonymous {anonymous:6.0f} MB, resident {resident:6.0f} MB,"
            f" first answer after {subject.first_answer_seconds:.2f} s"
        )
        servers[subject.name] = {
            "anonymous_mb": anonymous,
            "resident_mb": resident,
            "first_answer_seconds": subject.first_answer_seconds,
        }
    return servers


if __name__ == "__main__":
    sys.exit(main())
