"""What the driver decides for a batch query: its queues, its ranges, its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cometmq.spark.options import SourceOptions
from cometmq.spark.planning import Range, cut, rows_in, task_count
from cometmq.spark.positions import batch_ranges, wanted_queues
from cometmq.spark.schema import BODY, arrow_schema
from cometmq.spark.tasks import Task, TaskReader
from cometmq.spark.topology import BrokerTopology, FileTopology, Topology
from cometmq.spark.wire import wire_of

ROWS_PER_TASK_MAX: Final = 1_000_000
ROWS_NOT_WEIGHED: Final = 1024
"""So few rows cannot be too many bytes for a task."""
TOPICS_WEIGHED_MAX: Final = 64


def topology_of(options: SourceOptions) -> Topology:
    """Whom a query asks what there is."""
    if options.is_files_only:
        return FileTopology(options.store_paths)
    return BrokerTopology(wire_of(options.connecting))


def batch_tasks(options: SourceOptions, topology: Topology, ranges: Sequence[Range]) -> list[Task]:
    """The tasks of a batch query, all of about the same number of rows."""
    count = task_count(
        rows_in(ranges),
        row_bytes=mean_row_bytes(topology, ranges),
        cores=options.cores,
        least=options.task_count_min,
        rows_max=options.rows_per_task_max or ROWS_PER_TASK_MAX,
        bytes_max=options.bytes_per_task_max,
    )
    return [task_of(part, topology) for part in cut(ranges, count)]


def task_of(ranges: tuple[Range, ...], topology: Topology) -> Task:
    """A task with the addresses that it needs."""
    names = sorted({one.queue.broker_name for one in ranges})
    return Task(ranges, tuple((name, topology.address(name)) for name in names))


def batch_plan(options: SourceOptions) -> list[Task]:
    """Everything a batch query reads."""
    topology = topology_of(options)
    return batch_tasks(options, topology, batch_ranges(options, topology))


def topic_row_bytes(
    topology: Topology, ranges: Sequence[Range], *, rows_min: int = ROWS_NOT_WEIGHED
) -> dict[str, int]:
    """The size of messages of topics that have so many: of each the largest range is asked."""
    largest: dict[str, Range] = {}
    for one in ranges:
        known = largest.get(one.queue.topic)
        if known is None or one.rows > known.rows:
            largest[one.queue.topic] = one
    heavy = sorted(largest.values(), key=lambda one: (-one.rows, one.queue))
    return {
        one.queue.topic: topology.row_bytes(one)
        for one in heavy[:TOPICS_WEIGHED_MAX]
        if one.rows >= rows_min
    }


def mean_row_bytes(topology: Topology, ranges: Sequence[Range]) -> int:
    """The size of a message of these ranges, about; 0 when it does not matter."""
    sizes = topic_row_bytes(topology, ranges)
    rows = rows_in(ranges)
    whole = sum(one.rows * sizes.get(one.queue.topic, 0) for one in ranges)
    return whole // rows if rows else 0


def sampled_bodies(options: SourceOptions) -> list[bytes]:
    """The last messages of the queues a query reads, some of each."""
    topology = topology_of(options)
    bounds = wanted_queues(options, topology)
    filled = [queue for queue in sorted(bounds) if bounds[queue].end > bounds[queue].begin]
    bodies: list[bytes] = []
    reader = TaskReader(options, arrow_schema([BODY]))
    for number, queue in enumerate(filled):
        wanted = -(-(options.body_sample - len(bodies)) // (len(filled) - number))
        if wanted <= 0:
            break
        one = bounds[queue]
        part = Range(queue, max(one.begin, one.end - wanted), one.end)
        for batch in reader.read(task_of((part,), topology)):
            bodies += [body for body in batch.column(0).to_pylist() if body is not None]
    return bodies
