"""What Spark does once so that its classes can be kept: what nearly every program with topics does.

A source in Python is read as a table and as a stream, as our own is, but without any server.
"""

import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from cometmq.spark.spark_session import session

CONF = {"spark.ui.enabled": "false", "spark.log.level": "OFF"}
ROWS = 100
STREAM_SECONDS_MAX = 60
END_SECONDS_MAX = 120


class Numbers(DataSource):
    """Some numbers."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "`number` bigint, `text` string"

    def reader(self, schema: StructType) -> "NumberReader":  # noqa: ARG002
        return NumberReader()


class NumberReader(DataSourceReader):
    """Gives them as one Arrow batch."""

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002
        numbers = range(ROWS)
        columns = [pa.array(numbers, pa.int64()), pa.array(map(str, numbers), pa.string())]
        yield pa.record_batch(columns, names=["number", "text"])


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="cometmq-classes-") as folder:
        warm_up(folder)


def warm_up(folder: str) -> None:
    spark = session("local[2]", conf={**CONF, "spark.sql.warehouse.dir": folder})
    spark.dataSource.register(Numbers)
    numbers = spark.read.format("numbers").load()
    numbers.head(1)
    numbers.where("number > 3").groupBy("text").count().collect()
    numbers.write.format("noop").mode("overwrite").save()
    stream = spark.readStream.format("rate").load().writeStream.format("noop")
    query = stream.option("checkpointLocation", f"{folder}/stream").trigger(availableNow=True)
    query.start().awaitTermination(STREAM_SECONDS_MAX)
    process = spark.sparkContext._gateway.proc
    spark.stop()
    process.stdin.close()  # what tells the JVM to end, and only then it writes
    process.wait(END_SECONDS_MAX)


if __name__ == "__main__":
    main()
