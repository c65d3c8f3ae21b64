"""What ``bench.spark`` measures: rows of the report, who does the work in each, and the targets."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bench.broker_results import Target

OURS, KAFKA = "ours", "kafka"
"""Sides: our broker and PySpark, or Kafka's broker and the PySpark of its connector."""

MEMORY, LOG, BROKER = "in memory", "log", "broker"
PEER, PEER_TUNED = "Kafka", "Kafka, tuned"
LOG_ONE_CORE = "log, local[1]"
BROKER_ARCHIVE = "broker, class archive"
HEADER_COLUMNS = "topic,queueId,queueOffset,storeTimestamp"
SENT_COLUMNS = ("body", "keys", "tags")

LOG_MIN, HEADER_MIN, BROKER_MIN, SINK_MIN = 0.35, 0.65, 0.25, 0.08
"""Rows a second, to those of the source in memory."""

LOG_TO_PEER_MIN, BROKER_TO_PEER_MIN, SINK_TO_PEER_MIN = 1.5, 0.7, 1.0
FIRST_ROW_MAX = 1.0
SCALING_MIN = 1.3

MANY_TOPICS, MANY_QUEUES = 10, 1000


class Pace(NamedTuple):
    """How much is done in a full run, and in a quick one."""

    rounds: int = 5
    first_rounds: int = 3
    warm_ups: int = 3
    rows: int = 600_000
    stream_rows: int = 200_000


FULL = Pace()
QUICK = Pace(rounds=3, first_rounds=1, warm_ups=2, rows=100_000, stream_rows=50_000)


class Way(NamedTuple):
    """One way to do the work of a row: on which side, from which source, with which columns.

    ``has_archive`` is whether our session finds an archive of Spark's classes, which somebody must
    have asked for.
    """

    source: str
    side: str = OURS
    columns: str = ""
    master: str = "local[2]"
    has_archive: bool = False


class Case(NamedTuple):
    """One row of the report; ``work`` names a command of ``bench.spark_driver``."""

    name: str
    work: str
    ways: Mapping[str, Way]
    targets: tuple[Target, ...] = ()


READ, STREAM, COPY, FIRST, PLAN = "read", "stream", "copy", "first", "plan"

PEERS = {PEER: Way(PEER, KAFKA)}
IN_MEMORY = {MEMORY: Way(MEMORY)}
BOTH = {LOG: Way(LOG), BROKER: Way(BROKER)}

ALL_TARGETS = (
    Target("rate", LOG, MEMORY, at_least=LOG_MIN),
    Target("rate", BROKER, MEMORY, at_least=BROKER_MIN),
    Target("rate", LOG, PEER, at_least=LOG_TO_PEER_MIN),
    Target("rate", BROKER, PEER, at_least=BROKER_TO_PEER_MIN),
    Target("rate", LOG, PEER_TUNED),
    Target("rate", PEER, MEMORY),
)
COPY_TARGETS = (
    Target("rate", LOG, MEMORY, at_least=SINK_MIN),
    Target("rate", BROKER, MEMORY, at_least=SINK_MIN),
    Target("rate", LOG, PEER, at_least=SINK_TO_PEER_MIN),
    Target("rate", BROKER, PEER, at_least=SINK_TO_PEER_MIN),
)


def cases() -> Iterator[Case]:
    tuned = {PEER_TUNED: Way(PEER_TUNED, KAFKA)}
    yield Case("all columns", READ, {**IN_MEMORY, **BOTH, **PEERS, **tuned}, ALL_TARGETS)
    header = {
        MEMORY: Way(MEMORY, columns=HEADER_COLUMNS),
        LOG: Way(LOG, columns=HEADER_COLUMNS),
    }
    header_targets = (Target("rate", LOG, MEMORY, at_least=HEADER_MIN),)
    yield Case("header columns", READ, header, header_targets)
    stream_targets = (Target("rate", LOG, PEER), Target("rate", BROKER, PEER))
    yield Case("stream", STREAM, {**BOTH, **PEERS}, stream_targets)
    yield Case("topic to topic", COPY, {**IN_MEMORY, **BOTH, **PEERS}, COPY_TARGETS)
    scaled = {LOG_ONE_CORE: Way(LOG, master="local[1]"), LOG: Way(LOG)}
    scaling_targets = (Target("rate", LOG, LOG_ONE_CORE, at_least=SCALING_MIN),)
    yield Case("one core and two", READ, scaled, scaling_targets)
    first_targets = (
        Target("first_row_s", LOG, PEER, at_most=FIRST_ROW_MAX),
        Target("first_row_s", BROKER, PEER, at_most=FIRST_ROW_MAX),
        Target("first_row_s", BROKER_ARCHIVE, PEER),
    )
    quick = {BROKER_ARCHIVE: Way(BROKER, has_archive=True)}
    yield Case("first row", FIRST, {**BOTH, **quick, **PEERS}, first_targets)
    yield Case(f"planning {MANY_TOPICS * MANY_QUEUES} queues", PLAN, BOTH)
