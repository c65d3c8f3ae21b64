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
RANGES_WEIGHED: Final = 8
"""Ranges of all topics that are looked at, but one of each topic at least."""
TOPIC_PLACES: Final = 16
"""Places of a topic that are looked at, when there are few topics and few ranges."""
RANGE_PLACES_MIN: Final = 4


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


def topic_row_sizes(
    topology: Topology, ranges: Sequence[Range], *, rows_min: int = ROWS_NOT_WEIGHED
) -> dict[str, list[int]]:
    """Sizes of messages of each topic, at several places of its largest ranges.

    Those of a topic are asked whose largest range has ``rows_min`` rows; the more topics, the fewer
    places of each.
    """
    by_topic: dict[str, list[Range]] = {}
    for one in sorted(ranges, key=lambda one: (-one.rows, one.queue)):
        by_topic.setdefault(one.queue.topic, []).append(one)
    heavy = [some for some in by_topic.values() if some[0].rows >= rows_min][:TOPICS_WEIGHED_MAX]
    count = max(1, RANGES_WEIGHED // max(len(heavy), 1))
    found: dict[str, list[int]] = {}
    for some in heavy:
        weighed = some[:count]
        places = max(RANGE_PLACES_MIN, TOPIC_PLACES // max(len(weighed), len(heavy)))
        found[some[0].queue.topic] = [
            size for one in weighed for size in topology.row_sizes(one, places)
        ]
    return found


def topic_row_bytes(
    topology: Topology, ranges: Sequence[Range], *, rows_min: int = ROWS_NOT_WEIGHED
) -> dict[str, int]:
    """The size of messages where they are largest, for who must not have too many bytes.

    By the mean, a topic that goes on with larger messages would be more than wanted. Topics of
    which no message was found are left out.
    """
    sizes = topic_row_sizes(topology, ranges, rows_min=rows_min)
    return {topic: max(some) for topic, some in sizes.items() if some}


def mean_row_bytes(topology: Topology, ranges: Sequence[Range]) -> int:
    """The size of a message of these ranges, about; 0 when it does not matter."""
    sizes = topic_row_sizes(topology, ranges)
    means = {topic: sum(some) // len(some) for topic, some in sizes.items() if some}
    rows = rows_in(ranges)
    whole = sum(one.rows * means.get(one.queue.topic, 0) for one in ranges)
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
