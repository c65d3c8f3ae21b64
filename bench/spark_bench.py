"""Puts Spark to work for ``bench.spark``, row after row and round after round.

Servers and drivers are started when a row needs them and kept until the end: those that wait cost
nothing. Sides take turns, so no two of them ever work at the same time.
"""

import contextlib
import functools
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import spark_kafka
from bench.broker_cases import alternate
from bench.broker_results import Series
from bench.capacity import cpu_seconds
from bench.spark_cases import (
    COPY,
    FIRST,
    KAFKA,
    LOG,
    MANY_QUEUES,
    MANY_TOPICS,
    MEMORY,
    OURS,
    PEER_TUNED,
    PLAN,
    READ,
    SENT_COLUMNS,
    STREAM,
    Case,
    Pace,
    Way,
)
from bench.spark_data import MANY_SIZES, QUEUES, Cluster
from bench.spark_subject import Driver, SubjectFailed
from cometmq.spark import class_archive
from tests.interop.cache import Cache

ROWS, STREAM_ROWS, OUT = "rows", "stream-rows", "out"
MANY = tuple(f"many-{number}" for number in range(MANY_TOPICS))

Figures = dict[str, float]


class Bench:
    """Everything that runs, and how it is asked."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack, pace: Pace, cache: Cache) -> None:
        self.pace = pace
        self._folder = folder
        self._stack = stack
        self._cache = cache
        self._drivers: dict[tuple[str, str], Driver] = {}
        self._captured: dict[str, dict[str, str]] = {}
        self._started = 0
        self._has_class_archive = False

    def measure(self, case: Case, names: Sequence[str]) -> Series:
        """Warm up and measure the ways ``names`` of a row in turns."""
        work = {READ: self._read, STREAM: self._stream, COPY: self._copy, PLAN: self._plan}
        measures: dict[str, Callable[[], Figures]] = {}
        for name in names:
            way = case.ways[name]
            if case.work == FIRST:
                measures[name] = functools.partial(self._first, way)
                continue
            # A row may need rates of the source in memory, which no stream has.
            do = self._read if way.source == MEMORY else work[case.work]
            measures[name] = functools.partial(do, way)
            if do == self._read:
                self._check_count(way)
        if case.work == FIRST:
            return alternate(measures, self.pace.first_rounds)
        alternate(measures, self.pace.warm_ups)
        return alternate(measures, self.pace.rounds)

    def forget(self) -> None:
        """Start with new drivers, after one of them has failed."""
        while self._drivers:
            self._drivers.popitem()[1].stop()

    # The work

    def _read(self, way: Way) -> Figures:
        return self._asked(
            way, self.pace.rows, "read", source=self._format(way), options=self._options(way)
        )

    def _check_count(self, way: Way) -> None:
        """Spark must count as many rows as were written."""
        found = self._driver(way).ask("count", source=self._format(way), options=self._options(way))
        if found["rows"] != self.pace.rows:
            raise SubjectFailed(f"{way.source}: {found['rows']} rows, not {self.pace.rows}")

    def _stream(self, way: Way) -> Figures:
        options = {**self._options(way, STREAM_ROWS), "startingOffsets": "earliest"}
        return self._streamed(way, options=options, select=["*"], sink="noop", sink_options={})

    def _copy(self, way: Way) -> Figures:
        """Topic to topic; each row must arrive, and only once where the sink promises that."""
        start = {"startingOffsets": "earliest"}
        if way.side == KAFKA:
            self._started += 1
            out = f"{OUT}-{self._started}"
            self._driver(way).ask("create", servers=self.kafka.address, topic=out, queues=QUEUES)
            return self._streamed(
                way,
                options={**self._options(way, STREAM_ROWS), **start},
                select=["key", "value"],
                sink="kafka",
                sink_options={"kafka.bootstrap.servers": self.kafka.address, "topic": out},
            )
        before = self.cluster.message_count(OUT)
        sent = way._replace(columns=",".join(SENT_COLUMNS))
        figures = self._streamed(
            way,
            options={**self._options(sent, STREAM_ROWS), **start},
            select=list(SENT_COLUMNS),
            sink="rocketmq",
            sink_options={"rocketmq.namesrv.addr": self.cluster.name_servers, "topic": OUT},
        )
        self.cluster.wait_for_count(OUT, before + self.pace.stream_rows)
        return figures

    def _streamed(self, way: Way, **options: Any) -> Figures:
        return self._asked(
            way, self.pace.stream_rows, "stream", source=self._format(way), **options
        )

    def _first(self, way: Way) -> Figures:
        """From the start of a program to its first row."""
        options = self._options(way)  # the server is started before the clock
        if way.has_archive:
            self._have_class_archive()
        began = time.perf_counter()
        with self._new_driver(way) as driver:
            answer = driver.ask("first", source=self._format(way), options=options)
            seconds = time.perf_counter() - began
        if answer["rows"] != 1:
            raise SubjectFailed(f"{way.source}: no row at all")
        return {"first_row_s": seconds, "cpu_s": answer["cpu_s"]}

    def _plan(self, way: Way) -> Figures:
        options = {
            "rocketmq.namesrv.addr": self.many.name_servers,
            "subscribe": ",".join(MANY),
            **self._source_options(way, self.many),
        }
        answer = self._driver(way).ask("plan", source=self._format(way), options=options)
        return {
            "plan_s": answer["seconds"], "cpu_s": answer["cpu_s"], "tasks": answer["tasks"]
        }  # fmt: skip

    def _asked(self, way: Way, rows: int, command: str, **options: Any) -> Figures:
        """Rates and costs of a command that goes through ``rows`` rows."""
        driver, server_pid = self._driver(way), self._server_pid(way)
        began = cpu_seconds(server_pid)
        answer = driver.ask(command, **options)
        server_cpu_s = cpu_seconds(server_pid) - began
        if answer.get("rows", rows) != rows:
            raise SubjectFailed(f"{way.source}: {answer['rows']} rows, not {rows}")
        figures = {
            "rate": rows / answer["seconds"],
            "cpu_us": answer["cpu_s"] * 1e6 / rows,
            "server_cpu_us": server_cpu_s * 1e6 / rows,
        }
        if "whole_seconds" in answer:
            figures["start_s"] = answer["whole_seconds"] - answer["seconds"]
        return figures

    # Who does it

    @functools.cached_property
    def cluster(self) -> Cluster:
        topics = {ROWS: self.pace.rows, STREAM_ROWS: self.pace.stream_rows}
        return self._stack.enter_context(Cluster(self._folder / "ours", topics, empty=(OUT,)))

    @functools.cached_property
    def many(self) -> Cluster:
        """A broker with very many queues, one message in each."""
        topics = dict.fromkeys(MANY, MANY_QUEUES)
        folder = self._folder / "many"
        return self._stack.enter_context(
            Cluster(folder, topics, queues=MANY_QUEUES, sizes=MANY_SIZES)
        )

    @functools.cached_property
    def kafka(self) -> spark_kafka.Kafka:
        server = spark_kafka.Kafka(self._cache, self._folder / "kafka")
        self._stack.enter_context(server)
        driver = self._driver_of(KAFKA, "local[2]")
        for topic, rows in ((ROWS, self.pace.rows), (STREAM_ROWS, self.pace.stream_rows)):
            driver.ask("create", servers=server.address, topic=topic, queues=QUEUES)
            options = {"kafka.bootstrap.servers": server.address, "topic": topic}
            driver.ask("fill", sink="kafka", rows=rows, sink_options=options)
        return server

    def _server_pid(self, way: Way) -> int:
        return self.kafka.pid if way.side == KAFKA else self.cluster.pid

    def _driver(self, way: Way) -> Driver:
        return self._driver_of(way.side, way.master)

    def _driver_of(self, side: str, master: str) -> Driver:
        if (side, master) not in self._drivers:
            if not self._drivers:
                self._stack.callback(self.forget)
            driver = self._new_driver(Way("", side, master=master))
            self._drivers[side, master] = driver
            driver.ask("hello")
        return self._drivers[side, master]

    def _new_driver(self, way: Way) -> Driver:
        self._started += 1
        folder = self._folder / f"driver-{self._started}"
        if way.side == KAFKA:
            return Driver("plain", way.master, folder, spark_kafka.environment(self._cache))
        if not way.has_archive:
            return Driver(OURS, way.master, folder, {class_archive.SWITCH: "off"})
        return Driver(OURS, way.master, folder)

    def _have_class_archive(self) -> None:
        """Make one as users do, before the clock runs."""
        if self._has_class_archive:
            return
        made = subprocess.run(
            [sys.executable, "-m", "cometmq.spark.class_archive"],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise SubjectFailed(f"no class archive: {made.stderr.strip()}")
        self._has_class_archive = True

    # How it is asked

    def _format(self, way: Way) -> str:
        if way.side == KAFKA:
            return "kafka"
        return "memory" if way.source == MEMORY else "rocketmq"

    def _options(self, way: Way, topic: str = ROWS) -> dict[str, str]:
        if way.side == KAFKA:
            tuned = spark_kafka.TUNED if way.source == PEER_TUNED else {}
            return {
                "kafka.bootstrap.servers": self.kafka.address, "subscribe": topic, **tuned
            }  # fmt: skip
        if way.source == MEMORY:
            return self._memory(way)
        columns = {"columns": way.columns} if way.columns else {}
        return {
            "rocketmq.namesrv.addr": self.cluster.name_servers,
            "subscribe": topic,
            **self._source_options(way, self.cluster),
            **columns,
        }

    def _source_options(self, way: Way, cluster: Cluster) -> dict[str, str]:
        if way.source == LOG:
            return {"source": "log", "storePath": str(cluster.store_path)}
        return {"source": "broker"}

    def _memory(self, way: Way) -> dict[str, str]:
        """The source in memory, with a batch of our reader and as many tasks as that has."""
        if way.columns not in self._captured:
            path = self._folder / f"batch-{len(self._captured)}.arrow"
            options: Mapping[str, str] = self._options(way._replace(source=LOG))
            found = self._driver(way).ask("capture", options=options, path=str(path))
            self._captured[way.columns] = {
                "path": str(path), "rows": str(self.pace.rows), "tasks": str(found["tasks"])
            }  # fmt: skip
        return self._captured[way.columns]
