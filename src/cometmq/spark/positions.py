"""Which queues a query reads, and from where to where: options made into offsets."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cometmq.errors import InvalidArgument, NotFound
from cometmq.model.offsets import MessageQueue
from cometmq.model.system_names import is_system_topic
from cometmq.spark.losses import Losses
from cometmq.spark.options import COMMITTED, EARLIEST, LATEST, SourceOptions, Start
from cometmq.spark.planning import Range
from cometmq.spark.topology import Bounds, Topology

Offsets = dict[MessageQueue, int]


def wanted_queues(
    options: SourceOptions, topology: Topology, *, is_patient: bool = False
) -> dict[MessageQueue, Bounds]:
    """All queues a query reads, as they are now. Raises NotFound, InvalidArgument.

    Who is patient gets only those whose brokers answer.
    """
    if options.queues:
        return _assigned(options, topology, is_patient)
    found: dict[MessageQueue, Bounds] = {}
    for topic in options.topics:
        _refuse_hidden(topic, options)
        found |= topology.bounds(topic, is_patient=is_patient)
    if options.topic_pattern is not None:
        for topic in _matching(options, topology):
            try:
                found |= topology.bounds(topic, is_patient=is_patient)
            except NotFound:
                continue  # deleted since the list was made
    return found


def batch_ranges(options: SourceOptions, topology: Topology) -> list[Range]:
    """What a batch query reads."""
    bounds = wanted_queues(options, topology)
    begins = starting_offsets(options, topology, bounds, default=EARLIEST)
    ends = _resolved(options.end or Start(place=LATEST), options, topology, bounds, LATEST, "end")
    ranges = [Range(queue, begins[queue], ends[queue]) for queue in sorted(bounds)]
    return [one for one in ranges if one.rows > 0]


def starting_offsets(
    options: SourceOptions,
    topology: Topology,
    bounds: Mapping[MessageQueue, Bounds],
    *,
    default: int,
) -> Offsets:
    """Where a query begins in each queue; ``default`` is for those that options do not name."""
    start = options.start or Start(place=default)
    return _resolved(start, options, topology, bounds, default, "start")


def is_hidden(topic: str) -> bool:
    """Whether brokers keep a topic for themselves."""
    return is_system_topic(topic)


def _resolved(
    start: Start,
    options: SourceOptions,
    topology: Topology,
    bounds: Mapping[MessageQueue, Bounds],
    default: int,
    side: str,
) -> Offsets:
    if start.time_ms is not None:
        times = dict.fromkeys(bounds, start.time_ms)
        return _by_time(times, options, topology, bounds, default, side)
    if start.times is not None:
        _refuse_strangers(start.times, bounds)
        return _by_time(start.times, options, topology, bounds, default, side)
    if start.offsets is not None:
        _refuse_strangers(start.offsets, bounds)
    given = start.offsets or {}
    place = default if start.place is None else start.place
    wanted = {queue: given.get(queue, place) for queue in bounds}
    committed: Offsets = {}
    if COMMITTED in wanted.values():
        assert options.group is not None
        asked = [queue for queue, offset in wanted.items() if offset == COMMITTED]
        committed = topology.committed(options.group, asked)
    losses = Losses(is_fatal=options.is_loss_fatal)
    found: Offsets = {}
    for queue, one in bounds.items():
        found[queue] = _offset(queue, wanted[queue], one, committed.get(queue), side)
        if side == "start" and found[queue] < one.begin:
            reason = f"the queue begins at {one.begin}"
            losses.report(queue, found[queue], one.begin, reason)
            found[queue] = one.begin
    return found


def _offset(
    queue: MessageQueue, wanted: int, bounds: Bounds, committed: int | None, side: str
) -> int:
    if wanted == COMMITTED:  # a group that has not been there begins with what is there
        wanted = EARLIEST if committed is None or committed < 0 else committed
    if wanted == EARLIEST:
        return bounds.begin
    if wanted == LATEST:
        return bounds.end
    if wanted > bounds.end:
        fact = (
            f"offset {wanted} is behind the end of topic '{queue.topic}', queue"
            f" {queue.queue_id} of {queue.broker_name}, which ends at {bounds.end}"
        )
        raise InvalidArgument(f"{side}ingOffsets", fact, "was the topic made anew?")
    return wanted


def _by_time(
    times: Mapping[MessageQueue, int],
    options: SourceOptions,
    topology: Topology,
    bounds: Mapping[MessageQueue, Bounds],
    default: int,
    side: str,
) -> Offsets:
    found = topology.at_time({queue: times[queue] for queue in bounds if queue in times})
    offsets: Offsets = {}
    for queue, one in bounds.items():
        if queue not in found:
            offsets[queue] = one.begin if default == EARLIEST else one.end
            continue
        offset = min(max(found[queue], one.begin), one.end)
        if side == "start" and offset == one.end and options.is_late_start_error:
            fact = (
                f"topic '{queue.topic}', queue {queue.queue_id} of {queue.broker_name}, has"
                f" nothing that was stored at {times[queue]} or later"
            )
            advice = "begin at its end with startingOffsetsByTimestampStrategy=latest"
            raise InvalidArgument("startingTimestamp", fact, advice)
        offsets[queue] = offset
    return offsets


def _assigned(
    options: SourceOptions, topology: Topology, is_patient: bool
) -> dict[MessageQueue, Bounds]:
    found: dict[MessageQueue, Bounds] = {}
    for topic in sorted({queue.topic for queue in options.queues}):
        _refuse_hidden(topic, options)
        found |= topology.bounds(topic, is_patient=is_patient)
    if not is_patient:
        _refuse_strangers(dict.fromkeys(options.queues, 0), found)
    return {queue: found[queue] for queue in options.queues if queue in found}


def _matching(options: SourceOptions, topology: Topology) -> list[str]:
    assert options.topic_pattern is not None
    pattern = re.compile(options.topic_pattern)
    # Topics of groups (%RETRY%…, %DLQ%…) are read by who asks for them, not by who says ".*".
    is_special = options.topic_pattern.startswith("%") or options.is_raw
    return [
        topic
        for topic in topology.topics()
        if pattern.fullmatch(topic)
        and (options.is_raw or not is_hidden(topic))
        and (is_special or not topic.startswith("%"))
    ]


def _refuse_hidden(topic: str, options: SourceOptions) -> None:
    if is_hidden(topic) and not options.is_raw:
        fact = f"topic '{topic}' is one that brokers keep for themselves"
        raise InvalidArgument("subscribe", fact, "read it with isolation=raw")


def _refuse_strangers(
    named: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, Bounds]
) -> None:
    for queue in named:
        if queue not in bounds:
            known = ", ".join(f"{q.topic}/{q.broker_name}/{q.queue_id}" for q in list(bounds)[:8])
            name = f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
            raise NotFound("queue", name, f"there are: {known or 'none'}")
