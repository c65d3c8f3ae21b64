"""A program with one Spark session that reads and streams for ``bench.spark``.

It reads commands, one JSON object a line, and answers each with one line of JSON. It knows no
connector: which one is used, and how, is in the options of a command, so that ours, the one in
memory and Spark's own for Kafka are all driven by the same code, ours with ``cometmq.spark``'s
session and Kafka's with a plain one of the PySpark that is found on the path.

    python -m bench.spark_driver ours|plain MASTER
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

CONF: Mapping[str, str] = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
PLAIN_CONF: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
CLASS_PATH = "BENCH_SPARK_CLASS_PATH"
STREAM_S_MAX = 240
BODY_BYTES = 1024

Answer = dict[str, Any]


def made(kind: str, master: str) -> Any:
    """A session: ``ours`` as our users make it, ``plain`` as everybody does."""
    if kind == "ours":
        from cometmq.spark import session

        started = session(master, app_name="bench", conf=CONF)
    else:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master).appName("bench")
        jars = {"spark.driver.extraClassPath": os.environ.get(CLASS_PATH, "")}
        for key, value in {**CONF, **PLAIN_CONF, **jars}.items():
            builder = builder.config(key, value)
        started = builder.getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    return started


class Driver:
    """Obeys commands."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._knows_memory = False

    def hello(self) -> Answer:
        return {"version": self._spark.version}

    def count(self, source: str, options: Mapping[str, str]) -> Answer:
        """How many rows there are, counted by Spark."""
        return {"rows": self._frame(source, options).count()}

    def read(self, source: str, options: Mapping[str, str]) -> Answer:
        """Read everything and forget it."""
        began = time.perf_counter()
        self._frame(source, options).write.format("noop").mode("overwrite").save()
        return {"seconds": time.perf_counter() - began}

    def first(self, source: str, options: Mapping[str, str]) -> Answer:
        """One row, whichever comes first."""
        return {"rows": len(self._frame(source, options).head(1))}

    def plan(self, source: str, options: Mapping[str, str]) -> Answer:
        """Find out what there is to read, and divide it into tasks."""
        began = time.perf_counter()
        tasks = self._frame(source, options).rdd.getNumPartitions()
        return {"seconds": time.perf_counter() - began, "tasks": tasks}

    def stream(
        self,
        source: str,
        options: Mapping[str, str],
        select: Sequence[str],
        sink: str,
        sink_options: Mapping[str, str],
    ) -> Answer:
        """Stream everything there is now from source to sink.

        ``seconds`` is the time of micro-batches, ``whole_seconds`` has the start of the query too.
        """
        checkpoint = tempfile.mkdtemp(prefix="checkpoint-")
        began = time.perf_counter()
        frame = self._spark.readStream.format(source).options(**options).load()
        writer = frame.selectExpr(*select).writeStream.format(sink).options(**sink_options)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        try:
            if not query.awaitTermination(STREAM_S_MAX):
                raise TimeoutError(f"the query runs for more than {STREAM_S_MAX} s")
            whole = time.perf_counter() - began
        finally:
            query.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)
        return {"whole_seconds": whole, **progress_of(query.recentProgress)}

    def fill(self, sink: str, rows: int, sink_options: Mapping[str, str]) -> Answer:
        """Write rows as ``bench.spark_data`` makes them: a key and a body of its own each."""
        number = "cast(id as string)"
        frame = self._spark.range(rows).selectExpr(
            f"concat('key-', {number}) as key",
            f"cast(rpad(concat({number}, ' '), {BODY_BYTES}, 'x') as binary) as value",
        )
        began = time.perf_counter()
        frame.write.format(sink).options(**sink_options).save()
        return {"seconds": time.perf_counter() - began}

    def create(self, servers: str, topic: str, queues: int) -> Answer:
        """Make a topic of Kafka's: one that comes into being under writes can lose their order."""
        jvm = self._spark._jvm
        admin_package = jvm.org.apache.kafka.clients.admin
        settings = jvm.java.util.Properties()
        settings.setProperty("bootstrap.servers", servers)
        admin = admin_package.AdminClient.create(settings)
        try:
            topics = jvm.java.util.ArrayList()
            topics.add(admin_package.NewTopic(topic, queues, 1))
            admin.createTopics(topics).all().get()
        finally:
            admin.close()
        return {}

    def capture(self, options: Mapping[str, str], path: str) -> Answer:
        """Keep the first batch of our own reader for the source in memory."""
        from bench import spark_memory

        return spark_memory.capture(options, Path(path))

    def _frame(self, source: str, options: Mapping[str, str]) -> Any:
        if source == "memory":
            self._know_memory()
        return self._spark.read.format(source).options(**options).load()

    def _know_memory(self) -> None:
        """Tell Spark of the source in memory, which no program but this one has."""
        if not self._knows_memory:
            from bench import spark_memory

            self._spark.dataSource.register(spark_memory.MemorySource)
            self._knows_memory = True


def progress_of(batches: Sequence[Any]) -> Answer:
    """Rows and seconds of the micro-batches that had something to do."""
    busy = [batch for batch in map(_fields, batches) if batch["numInputRows"]]
    return {
        "rows": sum(batch["numInputRows"] for batch in busy),
        "seconds": sum(batch["durationMs"]["triggerExecution"] for batch in busy) / 1000,
        "batches": len(busy),
    }


def _fields(batch: Any) -> Mapping[str, Any]:
    """A progress event as a mapping, which some releases give as an object."""
    fields: Mapping[str, Any] = batch if isinstance(batch, dict) else json.loads(batch.json)
    return fields


def answers(driver: object, lines: Iterator[str]) -> Iterator[str]:
    """Obey line after line; what fails is answered too, and the next line is read."""
    for line in lines:
        asked = json.loads(line)
        obey: Callable[..., Answer] = getattr(driver, asked.pop("command"))
        try:
            answer = obey(**asked)
        except Exception as failure:
            answer = {"error": f"{type(failure).__name__}: {failure}"}
        yield json.dumps(answer)


def main() -> int:
    kind, master = sys.argv[1:3]
    # Whatever Spark prints by itself is no answer.
    said = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    spark = made(kind, master)
    try:
        for answer in answers(Driver(spark), iter(sys.stdin.readline, "")):
            print(answer, file=said, flush=True)
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
