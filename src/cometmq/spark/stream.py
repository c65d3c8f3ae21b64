"""The stream reader as Spark asks for it; what it decides is in ``stream_plan``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from cometmq.errors import InvalidArgument
from cometmq.spark.batch_plan import topology_of
from cometmq.spark.offsets import StreamOffset
from cometmq.spark.options import SourceOptions
from cometmq.spark.progress import Progress
from cometmq.spark.stream_plan import StreamPlan
from cometmq.spark.tasks import TaskReader
from cometmq.spark.topology import BrokerTopology, Topology


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as they grow. A copy of it, without connections, goes to executors."""

    def __init__(self, options: SourceOptions, schema: Any) -> None:
        if options.end is not None:
            advice = "a stream has no end; use trigger(availableNow=True), or spark.read"
            raise InvalidArgument("endingOffsets", "a stream cannot have an end", advice)
        self._options = options
        self._schema = schema
        self._made_topology: Topology | None = None
        self._made_plan: StreamPlan | None = None
        self._made_progress: Progress | None = None

    def __getstate__(self) -> tuple[SourceOptions, Any]:
        return self._options, self._schema

    def __setstate__(self, state: tuple[SourceOptions, Any]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    # --- beside the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._plan.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.rows_per_trigger_max is not None:
            return ReadMaxRows(options.rows_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._plan.end_with_what_is_there()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        # What lies before the start is done, and here Spark says so for the last batch too.
        self._publish(start)
        return self._plan.next(start, is_limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._plan.heads()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(task) for task in self._plan.tasks(start, end)]

    def commit(self, end: dict[str, Any]) -> None:
        self._publish(end)

    # --- on executors

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return TaskReader(self._options, self._schema).read(partition.value)

    @property
    def _topology(self) -> Topology:
        if self._made_topology is None:
            self._made_topology = topology_of(self._options)
        return self._made_topology

    @property
    def _plan(self) -> StreamPlan:
        if self._made_plan is None:
            self._made_plan = StreamPlan(self._options, self._topology)
        return self._made_plan

    def _publish(self, done: dict[str, Any]) -> None:
        options = self._options
        if options.group is None or not options.is_committing or options.is_files_only:
            return
        if self._made_progress is None:
            # The plan's own: it hears of other addresses whenever a batch is planned.
            topology = self._topology
            assert isinstance(topology, BrokerTopology), topology
            self._made_progress = Progress(options.group, topology)
        self._made_progress.publish(StreamOffset.from_json(done))
