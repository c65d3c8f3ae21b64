"""Streams of topics: limits, failures in mid-batch, queues that come while a stream runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from cometmq import Client
from cometmq.model.offsets import MessageQueue
from tests.spark.servers import Servers

QUERY_SECONDS_MAX = 120


class Stream:
    """A query on a topic that ends when everything is read, and can be run again."""

    def __init__(self, spark: Any, namesrv: str, topic: str, checkpoint: Path) -> None:
        self._spark = spark
        self._namesrv = namesrv
        self._topic = topic
        self._checkpoint = checkpoint
        self.batches: list[list[str]] = []
        self.progress: list[Any] = []

    @property
    def bodies(self) -> list[str]:
        return [body for batch in self.batches for body in batch]

    def run(self, *, failing_batch: int | None = None, **options: str) -> None:
        """Read what is there now; the batch of this number fails before it is handled."""

        def handle(frame: Any, number: int) -> None:
            rows = [row.body for row in frame.select("body").collect()]
            if number == failing_batch:
                raise RuntimeError("this batch fails on purpose")
            self.batches.append(rows)

        reader = self._spark.readStream.format("rocketmq")
        reader = reader.option("rocketmq.namesrv.addr", self._namesrv)
        given = {"subscribe": self._topic, "bodyFormat": "string", **options}
        writer = reader.options(**given).load().writeStream.foreachBatch(handle)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(QUERY_SECONDS_MAX), "the query does not end"
        finally:
            query.stop()
            self.progress = list(query.recentProgress)

    def run_and_fail(self, **options: Any) -> str:
        with pytest.raises(StreamingQueryException) as caught:
            self.run(**options)
        return str(caught.value)

    def offsets(self, batch: int) -> dict[str, Any]:
        """What Spark has in its checkpoint as the end of a batch."""
        lines = (self._checkpoint / "offsets" / str(batch)).read_text().splitlines()
        found: dict[str, Any] = json.loads(lines[-1])
        return found


@pytest.fixture
def stream(spark: Any, servers: Servers, topic: str, tmp_path: Path) -> Stream:
    servers.create_topic(topic, queues=2)
    return Stream(spark, servers.namesrv, topic, tmp_path / "checkpoint")


@pytest.fixture
def send(servers: Servers, topic: str) -> Callable[..., None]:
    """``send(0, 5)``: messages ``m-0`` to ``m-4``, in the topic's queues by turns."""

    def send_numbers(begin: int, end: int, *, queues: int = 2) -> None:
        with Client(servers.namesrv) as client, client.producer("spark-tests") as producer:
            for number in range(begin, end):
                queue = MessageQueue(topic, servers.broker.name, number % queues)
                producer.send(topic, b"m-%d" % number, queue=queue)

    return send_numbers


def numbered(begin: int, end: int) -> list[str]:
    return sorted(f"m-{number}" for number in range(begin, end))


def test_a_stream_reads_what_is_there_and_later_what_has_come(
    stream: Stream, send: Callable[..., None]
) -> None:
    send(0, 40)

    stream.run(startingOffsets="earliest")
    first = stream.bodies
    send(40, 50)
    stream.run(startingOffsets="earliest")

    assert sorted(first) == numbered(0, 40)
    assert sorted(stream.bodies) == numbered(0, 50)


def test_a_first_batch_that_fails_loses_nothing(stream: Stream, send: Callable[..., None]) -> None:
    """Spark asks again where a stream begins, when "latest" is somewhere else already."""
    send(0, 10)

    failed = stream.run_and_fail(startingOffsets="earliest", failing_batch=0)
    send(10, 30)
    stream.run(startingOffsets="latest")

    assert "on purpose" in failed
    assert sorted(stream.bodies) == numbered(0, 30)


def test_batches_have_no_more_rows_than_allowed(stream: Stream, send: Callable[..., None]) -> None:
    send(0, 50)

    stream.run(startingOffsets="earliest", maxOffsetsPerTrigger="20")

    assert [len(batch) for batch in stream.batches] == [20, 20, 10]
    assert sorted(stream.bodies) == numbered(0, 50)
