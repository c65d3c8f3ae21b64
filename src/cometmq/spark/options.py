"""The options of the source, each declared once: name, default, meaning, and how its text is read.

Spark hands over options as text, with names in any case. What cannot be used is refused here, on
the driver and before anything is read.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cometmq.errors import InvalidArgument
from cometmq.model.offsets import MessageQueue
from cometmq.spark import option_values as values
from cometmq.spark.connecting import CONNECTION_OPTIONS, NAME_SERVERS, Connecting
from cometmq.spark.schema import check_body_format

EARLIEST: Final = -2
LATEST: Final = -1
COMMITTED: Final = -3
"""What stands for these places among offsets of queues."""

NO_LIMIT: Final = "none"
_SOURCES: Final = ("auto", "broker", "log")
_PLACES: Final = {"earliest": EARLIEST, "latest": LATEST, "committed": COMMITTED}


class Option(NamedTuple):
    """One option: ``use`` says which queries have it."""

    default: str
    use: str
    meaning: str


OPTIONS: Final[dict[str, Option]] = {
    **{name: Option(default, "all", doc) for name, (default, doc) in CONNECTION_OPTIONS.items()},
    "subscribe": Option("", "all", "Topics, with commas between them."),
    "subscribePattern": Option("", "all", "Regular expression that whole names of topics match."),
    "assign": Option("", "all", 'Queues: `{"topic": {"broker": [0, 1]}}`.'),
    "source": Option("auto", "all", "Where bytes come from: `auto`, `broker` or `log`."),
    "storePath": Option("", "all", "Store directories that executors see, with commas between."),
    "startingOffsets": Option(
        "latest, batch: earliest",
        "all",
        "`earliest`, `latest`, `committed`, or for each queue"
        ' `{"topic": {"broker": {"0": 23, "1": -1}}}`: -1 latest, -2 earliest, -3 committed.',
    ),
    "startingTimestamp": Option("", "all", "Begin with what was stored from then on (ms)."),
    "startingOffsetsByTimestamp": Option("", "all", "The same for each queue, as JSON."),
    "startingOffsetsByTimestampStrategy": Option(
        "error", "all", "When a queue has nothing from that time on: `error`, or begin at `latest`."
    ),
    "endingOffsets": Option("latest", "batch", "`latest`, or offsets of queues as JSON."),
    "endingTimestamp": Option("", "batch", "End before what was stored from then on (ms)."),
    "endingOffsetsByTimestamp": Option("", "batch", "The same for each queue, as JSON."),
    "maxOffsetsPerTrigger": Option("2000000", "stream", "Rows of one micro-batch, or `none`."),
    "maxBytesPerTrigger": Option("1g", "stream", "Bytes of one micro-batch, about, or `none`."),
    "minOffsetsPerTrigger": Option("none", "stream", "Wait until so many rows are there."),
    "maxTriggerDelay": Option("15m", "stream", "But no longer than this."),
    "minPartitions": Option(
        "number of cores",
        "all",
        "Tasks at least; a stream splits queues only if it is set.",
    ),
    "maxRecordsPerPartition": Option(
        "1000000", "all", "Rows of one task at most; a stream splits queues only if it is set."
    ),
    "maxBytesPerPartition": Option("256m", "batch", "Bytes of one task at most, about."),
    "pull.maxMsgNums": Option("4096", "broker", "Messages to ask for in one pull."),
    "pull.maxBytes": Option("8m", "broker", "Bytes to ask for in one pull."),
    "arrow.rowsPerBatch": Option("4096", "all", "Rows of one Arrow batch."),
    "arrow.bytesPerBatch": Option("16m", "all", "Bytes of one Arrow batch, about."),
    "columns": Option("all", "all", "Columns to read, with commas between them."),
    "includeProperties": Option("true", "all", "Whether there is the map of all properties."),
    "bodyFormat": Option("binary", "all", "What the body is read as: `binary`, `string`, `json`."),
    "bodySchema": Option(
        "inferred", "all", "Fields of JSON bodies, as DDL: `id long, price double`."
    ),
    "bodySample": Option("200", "all", "Messages that an inferred schema is judged by."),
    "tags": Option("*", "all", "Only messages with these tags: `paid || sent`."),
    "sql92": Option("", "broker", "Only messages whose properties fit this expression."),
    "failOnDataLoss": Option("true", "all", "Fail when messages of a range are gone."),
    "group": Option("", "all", "Group for `committed`, and whose progress a stream publishes."),
    "commitOffsets": Option("true", "stream", "Publish progress; needs `group`."),
    "verifyCrc": Option("sample", "log", "Checksums of bodies: `none`, `sample` or `all`."),
    "isolation": Option("committed", "all", "`raw` shows topics that brokers keep for themselves."),
    "pushdown": Option("false", "batch", "Let `where` on offsets, queues and times read less."),
}
"""Every option of the source."""

_LATER: Final = {
    "archivePath": "reading from an archive",
    "adaptiveLimit": "limits that adapt to the time of the last batch",
}
_ALWAYS_THERE: Final = frozenset({"path"})  # Spark adds it for load("…")


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin (or end): one place, a time, or a number for each queue.

    Of ``place``, ``time_ms``, ``offsets`` and ``times`` exactly one is given.
    """

    place: int | None = None
    time_ms: int | None = None
    offsets: dict[MessageQueue, int] | None = None
    times: dict[MessageQueue, int] | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a query asks for. It travels to executors; secrets are not in its text."""

    connecting: Connecting
    topics: tuple[str, ...]
    topic_pattern: str | None
    queues: tuple[MessageQueue, ...]
    source: str
    store_paths: tuple[str, ...]
    start: Start | None
    is_late_start_error: bool
    end: Start | None
    rows_per_trigger_max: int | None
    bytes_per_trigger_max: int | None
    rows_per_trigger_min: int | None
    trigger_delay_max_ms: int
    task_count_min: int | None
    rows_per_task_max: int | None
    bytes_per_task_max: int
    pull_count: int
    pull_bytes: int
    batch_rows: int
    batch_bytes: int
    columns: tuple[str, ...]
    with_properties: bool
    body_format: str
    body_schema: str | None = field(repr=False)
    body_sample: int
    tags: frozenset[str]
    sql: str | None
    is_loss_fatal: bool
    group: str | None
    is_committing: bool
    verify: str
    is_raw: bool
    is_pushing_down: bool

    @property
    def is_files_only(self) -> bool:
        """Whether there is nobody to ask: everything is in the files then."""
        return not self.connecting.name_servers

    @property
    def cores(self) -> int:
        return os.cpu_count() or 1


def parse(given: Mapping[str, str]) -> SourceOptions:
    """Read options. Raises InvalidArgument, with a suggestion for a name that is not known."""
    options = {name.lower(): text for name, text in given.items()}
    _refuse_unknown(given)
    source = _source(options)
    is_files_only = source == "log" and "storepath" in options and NAME_SERVERS not in options
    connecting = Connecting.of(options, is_needed=not is_files_only)
    reader = _Reader(options)
    topics, pattern, queues = _subscription(reader, is_files_only)
    start = _start(reader, "starting")
    if start is not None and _uses_groups(start) and not reader.has("group"):
        advice = "set option 'group' to the group whose offsets are meant"
        raise InvalidArgument("group", "'committed' offsets belong to a group", advice)
    if is_files_only and (reader.has("group") or reader.has("sql92")):
        name = "group" if reader.has("group") else "sql92"
        raise InvalidArgument(name, f"option '{name}' needs a broker", f"set '{NAME_SERVERS}'")
    return SourceOptions(
        connecting=connecting,
        topics=topics,
        topic_pattern=pattern,
        queues=queues,
        source=source,
        store_paths=reader.optional("storePath", values.names, ()),
        start=start,
        is_late_start_error=reader.choice("startingOffsetsByTimestampStrategy", ("error", "latest"))
        == "error",
        end=_end(reader),
        rows_per_trigger_max=reader.limit("maxOffsetsPerTrigger", values.count),
        bytes_per_trigger_max=reader.limit("maxBytesPerTrigger", values.size),
        rows_per_trigger_min=reader.limit("minOffsetsPerTrigger", values.count),
        trigger_delay_max_ms=reader.value("maxTriggerDelay", values.span_ms),
        task_count_min=reader.optional("minPartitions", values.count, None),
        rows_per_task_max=reader.optional("maxRecordsPerPartition", values.count, None),
        bytes_per_task_max=reader.value("maxBytesPerPartition", values.size),
        pull_count=reader.value("pull.maxMsgNums", values.count),
        pull_bytes=reader.value("pull.maxBytes", values.size),
        batch_rows=reader.value("arrow.rowsPerBatch", values.count),
        batch_bytes=reader.value("arrow.bytesPerBatch", values.size),
        columns=reader.optional("columns", values.names, ()),
        with_properties=reader.value("includeProperties", values.boolean),
        body_format=reader.value("bodyFormat", lambda _, text: check_body_format(text)),
        body_schema=options.get("bodyschema"),
        body_sample=reader.value("bodySample", values.count),
        tags=_tags(options.get("tags", "*")),
        sql=_sql(options),
        is_loss_fatal=reader.value("failOnDataLoss", values.boolean),
        group=options.get("group"),
        is_committing=reader.value("commitOffsets", values.boolean),
        verify=reader.choice("verifyCrc", ("none", "sample", "all")),
        is_raw=reader.choice("isolation", ("committed", "raw")) == "raw",
        is_pushing_down=reader.value("pushdown", values.boolean),
    )


class _Reader:
    """Options by name, read with their defaults."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def has(self, name: str) -> bool:
        return name.lower() in self._options

    def value(self, name: str, read: Callable[[str, str], Any]) -> Any:
        return read(name, self._options.get(name.lower(), OPTIONS[name].default))

    def optional(self, name: str, read: Callable[[str, str], Any], default: Any) -> Any:
        text = self._options.get(name.lower())
        return default if text is None else read(name, text)

    def limit(self, name: str, read: Callable[[str, str], int]) -> int | None:
        text = self._options.get(name.lower(), OPTIONS[name].default)
        return None if text.lower() == NO_LIMIT else read(name, text)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        text = self._options.get(name.lower(), OPTIONS[name].default)
        return values.choice(name, text, choices)


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in OPTIONS}
    later = {name.lower(): purpose for name, purpose in _LATER.items()}
    for name in given:
        if name.lower() in later:
            raise InvalidArgument(name, f"option '{name}': {later[name.lower()]} is not there yet")
        if name.lower() == "path":
            advice = "name topics with option 'subscribe', and leave load() empty"
            raise InvalidArgument(name, f"a topic has no path: '{given[name]}'", advice)
        if name.lower() not in known:
            close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
            advice = f"did you mean '{known[close[0]]}'?" if close else "see the reference of Spark"
            raise InvalidArgument(name, f"no such option of the source: '{name}'", advice)


def _source(options: Mapping[str, str]) -> str:
    text = options.get("source", "auto").lower()
    if text == "archive":
        advice = f"it can be: {', '.join(_SOURCES)}"
        raise InvalidArgument("source", "reading from an archive is not there yet", advice)
    return values.choice("source", text, _SOURCES)


def _subscription(
    reader: _Reader, is_files_only: bool
) -> tuple[tuple[str, ...], str | None, tuple[MessageQueue, ...]]:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if reader.has(name)]
    if not given and is_files_only:
        return (), ".*", ()
    if len(given) != 1:
        fact = f"options {' and '.join(given)} exclude each other" if given else "no topic is named"
        advice = "set exactly one of subscribe, subscribePattern, assign"
        raise InvalidArgument("subscribe", fact, advice)
    return (
        reader.optional("subscribe", values.names, ()),
        reader.optional("subscribePattern", values.pattern, None),
        reader.optional("assign", values.queue_list, ()),
    )


def _start(reader: _Reader, side: str) -> Start | None:
    names = (f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp")
    given = [name for name in names if reader.has(name)]
    if len(given) > 1:
        fact = f"options {' and '.join(given)} exclude each other"
        raise InvalidArgument(given[0], fact, "set one of them")
    if not given:
        return None
    offsets, time, times = names
    return reader.optional(given[0], {offsets: _place, time: _time, times: _times}[given[0]], None)


def _end(reader: _Reader) -> Start | None:
    end = _start(reader, "ending")
    if end is not None and (end.place not in (None, LATEST) or _uses_groups(end)):
        advice = "it can be 'latest', or offsets of queues"
        raise InvalidArgument("endingOffsets", "a range cannot end there", advice)
    return end


def _place(name: str, text: str) -> Start:
    if text.lower() in _PLACES:
        return Start(place=_PLACES[text.lower()])
    if not text.lstrip().startswith("{"):
        advice = f"write {', '.join(_PLACES)}, or offsets of queues as JSON"
        raise InvalidArgument(name, f"option '{name}' is no place in a queue: '{text}'", advice)
    offsets = values.queue_numbers(name, text)
    for queue, offset in offsets.items():
        if offset < COMMITTED:
            fact = f"option '{name}': {offset} is no offset of {queue.topic}/{queue.queue_id}"
            raise InvalidArgument(name, fact, "-1 is latest, -2 earliest, -3 committed")
    return Start(offsets=offsets)


def _time(name: str, text: str) -> Start:
    return Start(time_ms=values.count(name, text, 0))


def _times(name: str, text: str) -> Start:
    return Start(times=values.queue_numbers(name, text))


def _uses_groups(start: Start) -> bool:
    return start.place == COMMITTED or COMMITTED in (start.offsets or {}).values()


def _tags(text: str) -> frozenset[str]:
    """The wanted tags; none for all."""
    tags = frozenset(part.strip() for part in text.split("||") if part.strip())
    return frozenset() if not tags or "*" in tags else tags


def _sql(options: Mapping[str, str]) -> str | None:
    text = options.get("sql92")
    if text is not None and "tags" in options:
        raise InvalidArgument("sql92", "tags and sql92 exclude each other", "set one of them")
    if text is not None and options.get("source", "auto").lower() == "log":
        advice = "read with source=broker, which lets the broker filter"
        raise InvalidArgument("sql92", "files cannot be filtered by an expression", advice)
    return text
