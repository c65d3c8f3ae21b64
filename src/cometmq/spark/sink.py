"""Writers that send the rows of a table or a stream to topics; the guide says what they promise.

A writer is made on the driver, checked there, and travels to the executors. Each task sends its
rows and returns when all of them are stored, so that a batch that Spark calls done is in the
brokers. What is sent again is told by its number, see ``sink_routing``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from cometmq import logs
from cometmq.errors import CometError, InvalidArgument, NotFound
from cometmq.spark import sink_options
from cometmq.spark.sink_options import SinkOptions
from cometmq.spark.sink_pins import (
    Document,
    Pin,
    PinFile,
    brokers_for,
    extended,
    is_astray,
    with_topics,
)
from cometmq.spark.sink_task import (
    Identity,
    SinkTask,
    own_wire,
    patient_route_of,
    route_of,
    writable_brokers,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

DRIVER_ROUTE_SECONDS_MAX = 3.0
"""On the driver a topic that is unknown is most likely a wrong name: it is said soon."""
TOPICS_LOOKED_AT_MAX = 64
"""Topics of a batch that are asked for new brokers when it is committed."""

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_log = logs.get_logger("cometmq.spark")


def batch_writer(
    options: Mapping[str, str],
    schema: StructType,
    overwrite: bool,  # as Spark calls it
) -> DataSourceArrowWriter:
    """The writer of ``df.write.format("rocketmq")``. Raises InvalidArgument, NotFound."""
    if overwrite:
        advice = "use mode('append')"
        raise InvalidArgument("mode", "what a topic holds cannot be overwritten", advice)
    parsed = sink_options.parse(options)
    sink_options.check_columns(schema, parsed.topic)
    brokers = {} if parsed.topic is None else {parsed.topic: _known_brokers(parsed, parsed.topic)}
    return BatchWriter(parsed, parsed.producer_id or uuid.uuid4().hex, brokers)


def stream_writer(
    options: Mapping[str, str],
    schema: StructType,
    overwrite: bool,  # noqa: ARG001  # all rows again in each batch: that can be done
) -> DataSourceStreamArrowWriter:
    """The writer of ``df.writeStream.format("rocketmq")``. Raises InvalidArgument, NotFound."""
    parsed = sink_options.parse(options)
    if parsed.producer_id is not None:
        advice = "leave it out: a query has an id of its own, which is in its checkpoint"
        raise InvalidArgument("producerId", "option 'producerId' is for batch writes", advice)
    sink_options.check_columns(schema, parsed.topic)
    if not parsed.checkpoint and _is_pinning(parsed):
        fact = "no option says where the checkpoint is, which keeps the brokers that rows went to"
        advice = "set it on the writer; a setting of the session alone is not known here"
        raise InvalidArgument("checkpointLocation", fact, advice)
    return StreamWriter(parsed, _pins(parsed))


@dataclass
class Written(WriterCommitMessage):
    """What a task says when it is done: how many it has sent, and to which brokers of topics."""

    partition: int
    messages: int
    brokers: Mapping[str, tuple[str, ...]]


class BatchWriter(DataSourceArrowWriter):
    """Sends the rows of one job."""

    def __init__(
        self, options: SinkOptions, job: str, brokers: Mapping[str, tuple[str, ...]]
    ) -> None:
        self._options = options
        self._job = job
        self._brokers = brokers

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of one task, on an executor."""
        context = TaskContext.get()
        assert context is not None
        identity = Identity(self._job, self._options.epoch, context.partitionId())
        return _send(self._options, identity, self._brokers, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of one micro-batch; ``pins`` say to which brokers of topics."""

    def __init__(self, options: SinkOptions, pins: Mapping[str, tuple[Pin, ...]]) -> None:
        self._options = options
        self._pins = pins

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of one task, on an executor."""
        context = TaskContext.get()
        assert context is not None
        query, batch = (context.getLocalProperty(name) for name in (_QUERY_ID, _BATCH_ID))
        assert query is not None, "Spark sets the query's id for every task of a stream"
        assert batch is not None, "Spark sets the batch's number for every task of a stream"
        pinned = {topic: brokers_for(pins, int(batch)) for topic, pins in self._pins.items()}
        fixed = {topic: brokers for topic, brokers in pinned.items() if brokers is not None}
        identity = Identity(query, int(batch), context.partitionId())
        return _send(self._options, identity, fixed, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All tasks are done: their brokers are fixed, and new ones take part from now on.

        Raises InvalidArgument when they are not fixed where Spark keeps its own notes.
        """
        _check_place(self._options)
        used = _used(messages)
        pins = with_topics(self._pins, used)
        wire = own_wire(self._options.connecting)
        topics = [] if self._options.brokers else sorted(used.keys() & pins.keys())
        try:
            for topic in topics[:TOPICS_LOOKED_AT_MAX]:
                live = writable_brokers(route_of(wire, topic))
                pins[topic] = extended(pins[topic], batchId, live)
        except CometError as error:
            _log.warning("new brokers are not looked for now: %s", error)
        self._keep(pins)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Fix the brokers of what is done: there it is recognised when the batch is run again."""
        self._keep(with_topics(self._pins, _used(messages)))

    def _keep(self, pins: dict[str, tuple[Pin, ...]]) -> None:
        """Note brokers in the checkpoint; where that fails, Spark will meet the same soon."""
        if pins == self._pins or self._options.brokers:
            return
        try:
            _save(self._options, pins)
        except OSError as error:
            _log.warning("brokers are not noted in the checkpoint: %s", error)


def _send(
    options: SinkOptions,
    identity: Identity,
    brokers: Mapping[str, tuple[str, ...]],
    batches: Iterator[Any],
) -> Written:
    task = SinkTask(options, identity, brokers, own_wire(options.connecting))
    return Written(identity.partition, task.run(batches), task.brokers)


def _used(messages: Sequence[WriterCommitMessage | None]) -> dict[str, tuple[str, ...]]:
    """The brokers of topics that tasks have sent to; a task that failed says nothing."""
    used: dict[str, tuple[str, ...]] = {}
    for message in messages:
        if isinstance(message, Written):
            used |= message.brokers
    return used


def _known_brokers(options: SinkOptions, topic: str) -> tuple[str, ...]:
    if options.brokers:
        return options.brokers
    wire = own_wire(options.connecting)
    brokers = writable_brokers(patient_route_of(wire, topic, seconds_max=DRIVER_ROUTE_SECONDS_MAX))
    if not brokers:
        raise NotFound("writable queue of topic", topic, "give the topic write permission")
    return brokers


def _pins(options: SinkOptions) -> dict[str, tuple[Pin, ...]]:
    """What the checkpoint says about topics; of the default topic said there now if it does not."""
    if options.brokers:
        return {}
    file = PinFile.at(options.checkpoint)
    pins = dict(file.load().topics) if file is not None else {}
    if options.topic is not None and options.topic not in pins:
        pins[options.topic] = (Pin(0, _known_brokers(options, options.topic)),)
        _save(options, pins)
    return pins


def _is_pinning(options: SinkOptions) -> bool:
    """Whether a batch that is run again rests on what the checkpoint says of brokers."""
    return options.is_idempotent and not options.brokers


def _check_place(options: SinkOptions) -> None:
    """Refuse a checkpoint in which Spark has no notes, though it is about to end a batch."""
    if options.checkpoint and _is_pinning(options) and is_astray(options.checkpoint):
        fact = f"'{options.checkpoint}' is not on this machine's disk for Spark"
        advice = "write it with its scheme, as in hdfs://host/path"
        raise InvalidArgument("checkpointLocation", fact, advice)


def _save(options: SinkOptions, pins: dict[str, tuple[Pin, ...]]) -> None:
    file = PinFile.at(options.checkpoint)
    if file is not None:
        file.save(Document(topics=pins))
