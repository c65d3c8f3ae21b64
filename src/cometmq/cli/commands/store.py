"""``cometmq store``: look into a store directory without opening it."""

import base64
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from cometmq.cli import decoding
from cometmq.cli.command import Example, Group
from cometmq.cli.decoding import Fields
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.output import Format, Record, to_json
from cometmq.cli.problems import ExitCode
from cometmq.cli.progress import progress_line
from cometmq.cli.settings_options import read_properties
from cometmq.cli.times import local_time, parse_time
from cometmq.codec import index_entry, record
from cometmq.codec.checkpoint import Checkpoint
from cometmq.settings import load
from cometmq.store.check import Finding, Report, Severity, check
from cometmq.store.check.reading import ReadOnlyFiles
from cometmq.store.config import StoreSettings
from cometmq.store.inspection import Inspection, QueueStat, StoreStat, require_store

ROWS_AT_ONCE: Final = 500
"""So many messages are printed at a time; a table has its headings above each such part."""

_BODY_CHARACTERS_SHOWN = 200
_WEIGHTS = list(Severity)
_COLOURS = {"severity": {"error": "red", "recoverable": "yellow"}}
_FINDING_COLUMNS = ("severity", "kind", "path", "position", "text")
_QUEUE_COLUMNS = ("topic", "queue_id", "min_offset", "max_offset", "messages", "files")
_MESSAGE_COLUMNS = (
    *("physical_offset", "topic", "queue_id", "queue_offset"),
    *("size", "store_time", "tags", "keys"),
)


@click.group(
    "store",
    cls=Group,
    examples=(
        Example(
            "What did 'cometmq up' keep?",
            "cometmq store stat ~/.local/share/cometmq/store",
            needs_store=True,
        ),
    ),
)
def command() -> None:
    """Look into a store directory without opening it.

    DIR is what RocketMQ calls storePathRootDir, written by CometMQ or by Apache's broker: the
    directory with commitlog, consumequeue and index in it. Sizes are found from the files. Nothing
    is written or locked.
    """


def _directory(function: Any) -> Any:
    """The directory, and the file with the settings it was written with."""
    option = click.option(
        "-c",
        "--config",
        "file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The broker's settings: where the log lies if not in DIR, and the delay levels.",
    )
    argument = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
    return argument(option(function))


@command.command(
    "check",
    examples=(
        Example(
            "The store of 'cometmq up', after it ended",
            "cometmq store check ~/.local/share/cometmq/store",
            needs_store=True,
        ),
        Example(
            "In a script",
            "cometmq store check ~/.local/share/cometmq/store -o plain && echo consistent",
            needs_store=True,
        ),
    ),
)
@_directory
@click.pass_context
@pass_frame
def check_command(
    frame: Frame, context: click.Context, /, directory: Path, file: Path | None
) -> None:
    """Is this directory consistent?

    Every message is read, with its checksum, its queue entry and its index entries. Where things
    contradict each other is an "error"; what is "recoverable" was left by a kill and is mended
    when the store is opened; a "note" is odd but harmless. The exit code is 1 when there is an
    error. No broker should be running on DIR.
    """
    settings = _settings(file)
    require_store(directory, settings or StoreSettings(), ReadOnlyFiles())
    with progress_line("checking") as progress:
        report = check(directory, settings, progress=progress)
    by_weight = sorted(report.findings, key=lambda finding: _WEIGHTS.index(finding.severity))
    findings = [_finding(finding, directory) for finding in by_weight]
    if frame.output in (Format.JSON, Format.YAML):
        frame.show_record({**_summary(report), "findings": findings})
    elif findings:
        frame.show_rows(findings, columns=_FINDING_COLUMNS, colours=_COLOURS)
    if frame.output in (None, Format.TABLE):
        frame.write("\n" if findings else "")
        frame.show_record(_summary(report))
    context.exit(ExitCode.DONE if report.is_consistent else ExitCode.FAILED)


@command.command(
    "stat",
    examples=(
        Example(
            "Which queues are there, and how long are they?",
            "cometmq store stat ~/.local/share/cometmq/store -o plain",
            needs_store=True,
        ),
    ),
)
@_directory
@pass_frame
def stat_command(frame: Frame, /, directory: Path, file: Path | None) -> None:
    """What is in this directory?

    Where the log begins and ends, the bounds of each queue, the index files, the checkpoint and
    the disk. "abort" is true when the store is open just now or was never closed. Nothing is
    verified. With -o plain only the queues are printed.
    """
    stat = Inspection(directory, _settings(file)).stat()
    queues = [_queue(queue) for queue in stat.queues]
    if frame.output in (Format.JSON, Format.YAML):
        indexes = [_index(index.name, index.header) for index in stat.indexes]
        frame.show_record(
            {**_stat(directory, stat, _time), "index_files": indexes, "queues": queues}
        )
        return
    if frame.output is not Format.PLAIN:
        frame.show_record(_stat(directory, stat, _local_time))
        frame.write("\n" if queues else "")
    if queues:
        frame.show_rows(queues, columns=_QUEUE_COLUMNS)


@command.command(
    "dump",
    examples=(
        Example(
            "The first three messages of a topic",
            "cometmq store dump ~/.local/share/cometmq/store --topic orders --count 3 --body text",
            needs_store=True,
        ),
        Example(
            "All of them, as JSON lines",
            "cometmq store dump ~/.local/share/cometmq/store --count 0 -o json",
            needs_store=True,
        ),
    ),
)
@_directory
@click.option("--topic", metavar="TOPIC", help="Only messages of this topic.")
@click.option("--queue", "queue_id", type=int, metavar="N", help="Only messages of this queue.")
@click.option(
    "--offset", type=int, metavar="N", help="Begin at this position of the log, not at its first."
)
@click.option(
    "--count",
    type=click.IntRange(min=0),
    default=32,
    show_default=True,
    metavar="N",
    help="Print so many messages; 0 for all.",
)
@click.option(
    "--body",
    type=click.Choice(["text", "hex"]),
    metavar="FORM",
    help="Print the body too, uncompressed, as text or hex.",
)
@pass_frame
def dump_command(
    frame: Frame,
    /,
    directory: Path,
    file: Path | None,
    topic: str | None,
    queue_id: int | None,
    offset: int | None,
    count: int,
    body: str | None,
) -> None:
    """The messages of the log, in the order in which they were stored.

    With -o json each message is an object on a line of its own, with all its fields and its body;
    a body that is no text is base64 unless --body says otherwise.
    """
    wanted = (
        found
        for found in Inspection(directory, _settings(file)).records(offset)
        if topic in (None, found.topic) and queue_id in (None, found.queue_id)
    )
    limited = islice(wanted, count) if count else wanted
    shown = _show_messages(
        frame, (_message(found, body) for found in limited), has_body=body is not None
    )
    if not shown:
        frame.note("no such messages in the log")
    elif shown == count and next(wanted, None) is not None:
        frame.note("there are more: --count 0 shows all")


def _settings(file: Path | None) -> StoreSettings | None:
    return None if file is None else load(StoreSettings, file=read_properties(file)).settings


def _show_messages(frame: Frame, messages: Iterator[Fields], *, has_body: bool) -> int:
    """How many there were."""
    columns = (*_MESSAGE_COLUMNS, "body") if has_body else _MESSAGE_COLUMNS
    part = list(islice(messages, ROWS_AT_ONCE))
    shown = 0
    while True:
        shown += len(part)
        if frame.output is Format.JSON:
            is_unicode = frame.printer.screen.is_unicode
            lines = (to_json(row, is_unicode=is_unicode, indent=None) for row in part)
            frame.write("".join(lines))
        else:
            if not frame.is_for_programs:
                part = [{**row, "store_time": _in_this_zone(row["store_time"])} for row in part]
            is_table = frame.output in (None, Format.TABLE)
            frame.show_rows(_with_short_bodies(part) if is_table else part, columns=columns)
        part = list(islice(messages, ROWS_AT_ONCE))
        if not part:
            return shown


def _with_short_bodies(rows: Iterable[Fields]) -> list[Record]:
    """Rows for a table, where a long body would push all else off the screen."""
    short: list[Record] = []
    for row in rows:
        body = str(row["body"])
        hidden = len(body) - _BODY_CHARACTERS_SHOWN
        if hidden > 0:
            body = f"{body[:_BODY_CHARACTERS_SHOWN]}… ({hidden} more characters with -o json)"
        short.append({**row, "body": body})
    return short


def _message(found: record.Record, form: str | None) -> Fields:
    ((fields,), _) = decoding.records_in(record.encode(found))
    properties = fields["properties"]
    assert isinstance(properties, dict)
    named = {"tags": properties.get("TAGS"), "keys": properties.get("KEYS")}
    if form is None:
        return {**fields, **named}
    text, encoding = str(fields["body"]), fields["body_encoding"]
    content = base64.b64decode(text) if encoding == "base64" else text.encode()
    shown = content.hex() if form == "hex" else content.decode(errors="replace")
    return {**fields, **named, "body_encoding": "hex" if form == "hex" else "utf-8", "body": shown}


def _finding(finding: Finding, directory: Path) -> Record:
    path = finding.path
    if path.is_relative_to(directory):
        path = path.relative_to(directory)
    return {
        "severity": finding.severity.value,
        "kind": finding.kind.value,
        "path": str(path),
        "position": finding.position,
        "text": finding.text,
    }


def _summary(report: Report) -> Record:
    return {
        "directory": str(report.root),
        "consistent": report.is_consistent,
        "abort": report.is_killed,
        "errors": report.count(Severity.ERROR),
        "recoverable": report.count(Severity.RECOVERABLE),
        "notes": report.count(Severity.NOTE),
        "not_shown": report.dropped or None,
        "log_begin": report.log_begin,
        "log_end": report.log_end,
        "messages": report.records,
        "queues": report.queues,
        "queue_entries": report.entries,
        "index_files": report.index_files,
        "index_entries": report.index_entries,
    }


def _stat(directory: Path, stat: StoreStat, time: Callable[[int], str | None]) -> Record:
    layout = stat.layout
    queue_files = sum(queue.files for queue in stat.queues)
    index_bytes = index_entry.file_bytes(layout.index_slots, layout.index_entries)
    return {
        "directory": str(directory),
        "abort": stat.is_killed,
        "log": {
            "begin": stat.log_begin,
            "end": stat.log_end,
            **_files(len(layout.log_files), layout.log_file_bytes),
        },
        "queue": {"count": len(stat.queues), **_files(queue_files, layout.queue_file_bytes)},
        "index": {
            "entries": sum(index.entries for index in stat.indexes),
            "slots": layout.index_slots,
            "entries_per_file": layout.index_entries - 1,
            **_files(len(stat.indexes), index_bytes),
        },
        "checkpoint": None if stat.checkpoint is None else _checkpoint(stat.checkpoint, time),
        "disk": {"used_percent": stat.disk.percent, "free_bytes": stat.disk.free},
    }


def _checkpoint(times: Checkpoint, time: Callable[[int], str | None]) -> Record:
    return {
        "log": time(times.log_timestamp),
        "queues": time(times.queue_timestamp),
        "index": time(times.index_timestamp),
    }


def _files(count: int, file_bytes: int) -> Record:
    return {"files": count, "file_bytes": file_bytes, "bytes": count * file_bytes}


def _queue(queue: QueueStat) -> Record:
    return {
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "min_offset": queue.min_offset,
        "max_offset": queue.max_offset,
        "messages": queue.max_offset - queue.min_offset,
        "files": queue.files,
    }


def _index(name: str, header: index_entry.IndexHeader) -> Record:
    return {
        "name": name,
        "entries": header.index_count - 1,
        "slots_used": header.slot_count,
        "begin_time": _time(header.begin_timestamp),
        "end_time": _time(header.end_timestamp),
        "begin_offset": header.begin_offset,
        "end_offset": header.end_offset,
    }


def _local_time(timestamp_ms: int) -> str | None:
    return local_time(timestamp_ms) or _time(timestamp_ms)


def _in_this_zone(text: Any) -> str:
    """A time that was told in UTC; what is no time, because it is damaged, stays as it is."""
    return local_time(parse_time(str(text), 0)) or str(text)


def _time(timestamp_ms: int) -> str | None:
    if not timestamp_ms:
        return None
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError):
        return f"{timestamp_ms} ms"
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
