"""A Spark source that has everything in memory: one Arrow batch, given again and again.

It is what nobody who brings rows into Spark from Python can beat: the same schema, batches and
tasks as our reader, and nothing to fetch or decode. The batch is the first one of our own reader.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


class MemorySource(DataSource):  # type: ignore[misc]
    """Options: ``path`` of a captured batch, ``rows`` in all, ``tasks`` that share them."""

    @classmethod
    def name(cls) -> str:
        return "memory"

    def schema(self) -> str:
        return Path(self.options["path"]).with_suffix(".ddl").read_text()

    def reader(self, schema: StructType) -> "MemoryReader":  # noqa: ARG002
        return MemoryReader(
            Path(self.options["path"]), int(self.options["rows"]), int(self.options["tasks"])
        )


class MemoryPartition(InputPartition):  # type: ignore[misc]
    """So many rows for one task."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


class MemoryReader(DataSourceReader):  # type: ignore[misc]
    """Gives the batch as often as its rows are wanted."""

    def __init__(self, path: Path, rows: int, tasks: int) -> None:
        self._path = path
        self._rows = rows
        self._tasks = tasks

    def partitions(self) -> Sequence[MemoryPartition]:
        return [MemoryPartition(rows) for rows in shares(self._rows, self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, MemoryPartition)
        with pa.OSFile(str(self._path)) as file:
            batch = pa.ipc.open_file(file).get_batch(0)
        yield from repeated(batch, partition.rows)


def repeated(batch: Any, rows: int) -> Iterator[Any]:
    """The batch again and again, the last time only as much of it as is left."""
    while rows > 0:
        piece = batch if rows >= batch.num_rows else batch.slice(0, rows)
        rows -= piece.num_rows
        yield piece


def shares(rows: int, tasks: int) -> list[int]:
    """Rows for each task, as equal as can be."""
    small, more = divmod(rows, tasks)
    return [small + (number < more) for number in range(tasks)]


def capture(options: Mapping[str, str], path: Path) -> dict[str, Any]:
    """Keep the first batch that our reader gives for ``options``, and its schema as DDL."""
    from cometmq.spark.source import RocketMQSource

    source = RocketMQSource(dict(options))
    ddl = source.schema()
    reader = source.reader(StructType.fromDDL(ddl))
    partitions = reader.partitions()
    batch = next(iter(reader.read(partitions[0])))
    keep(batch, ddl, path)
    return {"rows": batch.num_rows, "bytes": batch.nbytes, "tasks": len(partitions)}


def keep(batch: Any, ddl: str, path: Path) -> None:
    path.with_suffix(".ddl").write_text(ddl)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
