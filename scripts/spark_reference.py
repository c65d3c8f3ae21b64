"""Writes docs/reference/spark.md: ``python -m scripts.spark_reference``.

Options and columns come from the modules that declare them; only what no code says is written here.
"""

import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

from cometmq.spark.connecting import CONNECTION_OPTIONS
from cometmq.spark.options import OPTIONS
from cometmq.spark.schema import COLUMNS
from cometmq.spark.sink_options import COLUMNS as SINK_COLUMNS
from cometmq.spark.sink_options import SINK_OPTIONS

PAGE = Path(__file__).parents[1] / "docs/reference/spark.md"
LINE_CHARACTERS = 110
DEFAULTS_IN_WORDS = {"all", "inferred"}

SOURCE_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "What to read": ("subscribe", "subscribePattern", "assign", "tags", "sql92", "isolation"),
    "Where to begin and to end": (
        *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
        *("startingOffsetsByTimestampStrategy", "endingOffsets", "endingTimestamp"),
        *("endingOffsetsByTimestamp", "failOnDataLoss", "group", "commitOffsets"),
    ),
    "Rows": ("columns", "includeProperties", "bodyFormat", "bodySchema", "bodySample", "pushdown"),
    "Ways to the bytes": (
        *("source", "storePath", "verifyCrc", "pull.maxMsgNums", "pull.maxBytes"),
        *("arrow.rowsPerBatch", "arrow.bytesPerBatch"),
    ),
    "Batches and tasks": (
        *("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
        *("minPartitions", "maxRecordsPerPartition", "maxBytesPerPartition"),
    ),
}
"""Headings, and the options of the source below each; a test claims that none is left out."""

COLUMN_MEANINGS: Mapping[str, str] = {
    "topic": "topic",
    "brokerName": "broker that has the queue; from files alone, the name of their directory",
    "queueId": "queue",
    "queueOffset": "place in the queue; with topic, broker and queue it names one message",
    "msgId": "the broker's id: store host and place in the log",
    "uniqKey": "the sender's id (`UNIQ_KEY`), the same for all copies of one send",
    "keys": "keys, with spaces between them",
    "tags": "tag",
    "body": "body, decompressed; its type is that of `bodyFormat`",
    "properties": "all properties, with those that have a column of their own",
    "bornTimestamp": "when it was sent, by the sender's clock",
    "storeTimestamp": "when it was stored, by the broker's clock",
    "bornHost": "who sent it, as `address:port`",
    "storeHost": "who stored it, as `address:port`",
    "flag": "the sender's own number",
    "sysFlag": "flags of the protocol: compression, transactions, address lengths",
    "reconsumeTimes": "how often consumers have handed it back",
    "physicalOffset": "place in the commit log",
    "preparedTransactionOffset": "place of the half message that this one completes, else 0",
    "delayLevel": "delay level that it was sent with, or null",
    "originTopic": "topic of a retried or delayed message before that, or null",
    "originMsgId": "its broker's id before that, or null",
}

SINK_COLUMN_MEANINGS: Mapping[str, str] = {
    "topic": "where the row goes; without it, or where it is null, option `topic` says so",
    "body": "**needed**; null and empty ones are refused, as every broker does",
    "keys": "keys: several as an array, or with spaces between them",
    "tags": "tag",
    "properties": "further properties; those that brokers and clients set themselves are left out,"
    " so the map of a message that was read can be sent on",
    "orderingKey": "rows with the same one go to the same queue, in their order",
    "queueId": "queue to send to, instead of `orderingKey`",
    "brokerName": "broker of that queue; needed with `queueId` when several have the topic",
    "deliverAt": "time of delivery, as a timestamp or in milliseconds; null is at once",
}

INTRODUCTION = """\
# Spark

*This page is made from the code by `python -m scripts.spark_reference`.*

`format("rocketmq")` reads and writes topics, in batches and in streams. [Topics as
tables](../guides/spark-tables.md), [Exactly once from topic to topic](../guides/spark-streams.md)
and [On a cluster](../guides/spark-cluster.md) are where to begin. It needs PySpark 4.2 or later,
pyarrow, numpy (`pip install 'cometmq[spark]'`) and Java 17 or later.

Names of options are taken in any case. One that does not exist is refused with a suggestion.
Sizes are written like `512k`, `16m`, `1g`, spans of time like `250ms`, `10s`, `15m`, `2h`; a
plain number is bytes or milliseconds.

## Session

`cometmq.spark.session(master="local[*]", *, app_name="cometmq", conf=None, ship_package=None)`
returns a `SparkSession` that is [set up for
topics](../guides/spark-cluster.md#what-the-session-sets). It is a convenience:
`format("rocketmq")` works in every session whose Python has this package.
"""

CONNECTION = """
## Connection

Of source and sink. Keys come from these options, else from `credentialsFile`, else from the
environment; a file and the environment are read on each machine, so that no secret travels.
Secrets are not shown in plans, logs or Spark's pages.
"""

SOURCE = """
## Source

Of `spark.read` and `spark.readStream`. The column *For* says which queries an option is for:
*broker* and *log* mean those that read [from there](../guides/spark-tables.md#ways-to-the-bytes).
"""

NOTES: Mapping[str, str] = {
    "What to read": "Exactly one of `subscribe`, `subscribePattern` and `assign` is set. Who reads"
    " files alone may leave all three out: that is everything in them. Patterns leave out"
    " `%RETRY%…` and `%DLQ%…`, unless they begin with `%`.",
    "Where to begin and to end": "At most one of the starting options is set, and one of the ending"
    " ones. A stream that has a checkpoint goes on from there, whatever the starting options say.",
    "Batches and tasks": "A stream that is not told to split queues reads each by one task, in"
    " order.",
}

SCHEMA = """
## Columns of the source

`columns` chooses some of them, and then nothing else is decoded. A schema of your own may be
given with `.schema(…)` when it has these names and types.
"""

SINK = """
## Sink

Of `df.write` (mode `append`; another one is refused) and `df.writeStream` (output modes `append`
and `complete`; Spark does not have `update` for sinks in Python, use `foreachBatch`).
"""

SINK_SCHEMA = """
## Columns of the sink

Other columns are refused. A message gets the unique key of its row: it is the same when the row
is sent again.
"""

ERRORS_INTRODUCTION = """
## Errors

Spark wraps what Python raises: `AnalysisException` when a query is planned,
`StreamingQueryException` when a stream fails, `PythonException` when a task does. The text below is
inside.
"""

ERRORS: tuple[tuple[str, str, str], ...] = (
    (
        "`SparkSetupError`",
        "Spark needs Java 17 or newer; PySpark is too old",
        "install what it says",
    ),
    (
        "`MissingDependency`",
        "pyspark, pyarrow or numpy is not installed",
        "`pip install 'cometmq[spark]'`",
    ),
    (
        "`InvalidArgument`",
        "no such option, no such column, a value that cannot be",
        "it suggests the name that was meant",
    ),
    (
        "`Unreachable`",
        "no name server answers; a broker does not, for longer than it is waited for",
        "look at the address, start the server",
    ),
    (
        "`NotFound`",
        "topic, queue or store directory",
        "create it; for `source=log`, set `storePath`",
    ),
    (
        "`MessagesLost`",
        "messages of a range are gone, and which",
        "read on without them: `failOnDataLoss=false`",
    ),
    (
        "`Unsupported`",
        "the broker does not tell how far its log may be read",
        "`source=broker`, or the files alone",
    ),
    ("`DamagedStore`", "the files contradict each other", "`cometmq store check`"),
    (
        "`RemoteProtocolError`",
        "bytes are not what they must be; a checkpoint is of another release",
        "see what it names",
    ),
    (
        "`Refused`",
        "a broker refused a send or a pull, with its code",
        "see the remark, and [the codes of repeated sends](extensions.md#idempotent-sends)",
    ),
    (
        "`SendFailed`",
        "a broker was away for longer than `sendTimeout`",
        "start it; the batch is sent again",
    ),
)


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION, CONNECTION, _pairs(CONNECTION_OPTIONS), SOURCE]
    for title, names in SOURCE_SECTIONS.items():
        parts.append(f"\n### {title}\n")
        if title in NOTES:
            parts.append(f"\n{textwrap.fill(NOTES[title], LINE_CHARACTERS)}\n")
        parts.append(_source_table(names))
    sink = {name: SINK_OPTIONS[name] for name in SINK_OPTIONS if name not in CONNECTION_OPTIONS}
    parts += [SCHEMA, _schema_table(), SINK, _pairs(sink), SINK_SCHEMA, _sink_schema_table()]
    parts += [ERRORS_INTRODUCTION, _table(("Error", "Says", "What to do"), ERRORS)]
    return "".join(parts)


def _source_table(names: Iterable[str]) -> str:
    rows = [
        (f"`{name}`", _default(option.default), option.use, option.meaning)
        for name, option in ((name, OPTIONS[name]) for name in names)
    ]
    return _table(("Option", "Default", "For", "Meaning"), rows)


def _pairs(options: Mapping[str, tuple[str, str]]) -> str:
    rows = [(f"`{name}`", _default(default), doc) for name, (default, doc) in options.items()]
    return _table(("Option", "Default", "Meaning"), rows)


def _schema_table() -> str:
    rows = [(f"`{name}`", f"`{ddl}`", COLUMN_MEANINGS[name]) for name, (ddl, _) in COLUMNS.items()]
    return _table(("Column", "Type", "Holds"), rows)


def _sink_schema_table() -> str:
    rows = [
        (f"`{name}`", ", ".join(f"`{kind}`" for kind in kinds), SINK_COLUMN_MEANINGS[name])
        for name, kinds in SINK_COLUMNS.items()
    ]
    return _table(("Column", "Type", "Meaning"), rows)


def _default(text: str) -> str:
    if not text:
        return "-"
    return text if " " in text or text in DEFAULTS_IN_WORDS else f"`{text}`"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    shown = [" | ".join(map(_cell, line)) for line in (head, *rows)]
    first, *others = (f"| {line} |\n" for line in shown)
    return "".join(["\n", first, "|---" * len(head), "|\n", *others])


def _cell(text: str) -> str:
    """Text without bars; those in code are written so that GitHub and the site show them alike."""
    spans = re.sub(r"`([^`]*\|[^`]*)`", r"<code>\1</code>", text)
    return spans.replace("|", "&#124;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
