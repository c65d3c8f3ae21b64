"""The batch reader that Spark asks for tasks, and for the rows of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cometmq.errors import InvalidArgument
from cometmq.spark.batch_plan import batch_tasks, topology_of
from cometmq.spark.bodies import check_body_type
from cometmq.spark.options import SourceOptions
from cometmq.spark.positions import batch_ranges
from cometmq.spark.pushdown import Pushed
from cometmq.spark.schema import BODY, COLUMNS, arrow_type
from cometmq.spark.tasks import Task, TaskReader


def batch_reader(options: SourceOptions, schema: StructType) -> DataSourceReader:
    """The reader of a query with ``options``."""
    kind = PushingReader if options.is_pushing_down else BatchReader
    return kind(options, checked_schema(schema))


class BatchReader(DataSourceReader):
    """Reads what is in topics now."""

    def __init__(self, options: SourceOptions, schema: Any) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(task) for task in self._tasks(Pushed())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        task = partition.value
        if task is None:  # Spark's own partition, when there is nothing to read
            return iter(())
        return TaskReader(self._options, self._schema).read(task)

    def _tasks(self, pushed: Pushed) -> list[Task]:
        topology = topology_of(self._options)
        ranges = batch_ranges(self._options, topology)
        return batch_tasks(self._options, topology, pushed.narrowed(ranges, topology))


class PushingReader(BatchReader):
    """The same with filters that Spark pushes down; Spark refuses readers that can, by default."""

    def __init__(self, options: SourceOptions, schema: Any) -> None:
        super().__init__(options, schema)
        self._pushed = Pushed()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take what narrows ranges; Spark looks at every row all the same."""
        self._pushed = Pushed.of(filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(task) for task in self._tasks(self._pushed)]


def checked_schema(schema: StructType) -> Any:
    """The Arrow schema of a query; one that a user gives must have our names and types."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    for field in wanted:
        if field.name not in COLUMNS:
            known = ", ".join(COLUMNS)
            raise InvalidArgument("schema", f"no such column: '{field.name}'", f"there: {known}")
        ddl, kind = COLUMNS[field.name][0], arrow_type(field.name)
        is_body = field.name == BODY and (
            pa.types.is_struct(field.type) or pa.types.is_string(field.type)
        )
        if not is_body and field.type != kind:
            fact = f"column '{field.name}' is {ddl}, not {field.type}"
            raise InvalidArgument("schema", fact, "leave the schema out, and cast with select")
        if is_body:
            check_body_type(field.type)
    return wanted
