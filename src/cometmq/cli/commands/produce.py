"""``cometmq produce``: send messages, one or many."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.client_run import with_client
from cometmq.cli.command import Command, Example
from cometmq.cli.completion import complete_topics
from cometmq.cli.connection import cluster_options, explained, target_of
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.message_lines import BadInput, Draft, file_draft, json_draft, text_draft
from cometmq.cli.problems import Misuse
from cometmq.cli.progress import CountLine
from cometmq.cli.sizes import human_bytes
from cometmq.cli.times import DURATION, TIME
from cometmq.clock import SystemClock
from cometmq.logs import LogLevel

if TYPE_CHECKING:
    from cometmq.admin import Admin
    from cometmq.aio import Client
    from cometmq.cli.bulk_send import Sent, Tally
    from cometmq.cli.output import Record

_COLUMNS = ("message_id", "queue", "offset", "status")
_WIDTHS = {"message_id": 32, "queue": 10, "offset": 6}
_NUMBER = "{n}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be sent, and how fast."""

    values: tuple[str, ...]
    files: tuple[Path, ...]
    form: str
    base: Draft
    count: int | None
    rate: float | None
    batch: int
    in_flight: int
    is_quiet: bool

    @property
    def whole(self) -> int | None:
        """How many messages there will be, if that is known."""
        if self.values and not self.files:
            return len(self.values) * (self.count or 1)
        return len(self.files) if self.files and self.form == "file" else self.count


def _properties(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise click.BadParameter(f"'{text}' is no property; write NAME=VALUE")
        found[name] = value
    return found


def _keys(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    for text in given:
        if text.split() != [text]:  # RocketMQ puts blanks between several keys
            fact = f"key '{text}' is blank or has blanks in it"
            raise Misuse(fact, "give one without any; repeat --key for several")
    return given


def message_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What can be said of a message beside its value; see ``base_draft``."""
    options = (
        click.option(
            "--key",
            "keys",
            multiple=True,
            metavar="KEY",
            callback=_keys,
            help="To find it by; repeat it for more.",
        ),
        click.option("--tag", metavar="TAG", help="What consumers choose by."),
        click.option(
            "--property",
            "properties",
            multiple=True,
            metavar="NAME=VALUE",
            callback=_properties,
            help="A property of your own; repeat it for more.",
        ),
        click.option("--ordering-key", metavar="KEY", help="Equal keys go to one queue, in order."),
        click.option("--queue", metavar="QUEUE", help="To this queue: BROKER/NUMBER or NUMBER."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command(
    "produce",
    cls=Command,
    log_level=LogLevel.ERROR,  # what failed is told as its result
    examples=(
        Example("One message", "cometmq produce orders hello --key order-1", needs_cluster=True),
        Example(
            "A message per line",
            "printf 'one\\ntwo\\n' | cometmq produce orders --tag paid --quiet 2>&1",
            needs_cluster=True,
        ),
        Example(
            "JSON lines, each with its own key and tag",
            """echo '{"value": {"id": 7}, "key": "7", "tag": "paid"}' | """
            "cometmq produce orders --format json",
            needs_cluster=True,
        ),
        Example("In ten minutes", "cometmq produce orders later --delay 10m", needs_cluster=True),
        Example(
            "Some load: 20 messages, 100 in a second",
            "cometmq produce orders 'order {n}' --count 20 --rate 100 --quiet 2>&1",
            needs_cluster=True,
        ),
    ),
)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "json", "file"]),
    metavar="FORM",
    help="How input is read: 'lines' (a message each), 'json' (an object each: value, key, keys, "
    "tag, properties, delay, delay_level, deliver_at, ordering_key, queue) or 'file' (all of it is "
    "one message).  [default: lines; file for --file]",
)
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Read this instead of standard input; all VALUEs are then paths, too.",
)
@message_options
@click.option("--delay", "delay_ms", type=DURATION, metavar="TIME", help="Deliver so much later.")
@click.option(
    "--delay-level", type=click.IntRange(1, 18), metavar="N", help="By the broker's table."
)
@click.option("--deliver-at", "deliver_at_ms", type=TIME, metavar="TIME", help="Deliver then.")
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    help="Send each VALUE so often, {n} in it being the number; of input, the first so many.",
)
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="Per second."
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    metavar="N",
    help="Messages per request; a batch goes to one queue.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(1, 10_000),
    default=64,
    show_default=True,
    metavar="N",
    help="Requests under way; with 1 messages are stored in the order of the input.",
)
@click.option("--quiet", "-q", "is_quiet", is_flag=True, help="Print no line per message.")
@cluster_options
@pass_frame
def command(frame: Frame, /, topic: str, **given: Any) -> None:
    """Send messages, one or many.

    Each VALUE is one for TOPIC; without any, each line of standard input. Empty lines are passed
    over. Messages with one ordering key, or for one queue, are stored in the order of the input.
    When a message cannot be sent the others still are; then the exit code is 1 and the error names
    the lines. With -o json each result is an object on a line.
    """
    wish = _wish(**given)
    if not wish.values and not wish.files and sys.stdin.isatty():
        click.echo("a message per line, Ctrl-D ends", err=True)
    tally, seconds = with_client(frame, lambda mq, admin: _produce(frame, mq, admin, topic, wish))
    if not tally.sent_count and not tally.failures:
        frame.note("nothing was sent: the input had no message in it")
    elif wish.is_quiet or tally.sent_count > 1:
        click.echo(_summary(tally, seconds), err=True)
    with explained(target_of(frame)):
        tally.check()


def _wish(
    *,
    values: tuple[str, ...],
    files: tuple[Path, ...],
    form: str | None,
    count: int | None,
    rate: float | None,
    batch: int,
    in_flight: int,
    is_quiet: bool,
    **message: Any,
) -> Wish:
    times = ("delay_ms", "delay_level", "deliver_at_ms")
    if sum(message[name] is not None for name in times) > 1:
        raise Misuse("--delay, --delay-level and --deliver-at exclude each other", "give one")
    if files:
        files, values = (*files, *map(Path, values)), ()
    if values and form is not None:
        raise Misuse("--format is for input, but a VALUE was given", "leave one of them out")
    return Wish(
        values=values,
        files=files,
        form=form or ("file" if files else "lines"),
        base=Draft(where="", **message),
        count=count,
        rate=rate,
        batch=batch,
        in_flight=in_flight,
        is_quiet=is_quiet,
    )


async def _produce(
    frame: Frame, mq: "Client", admin: "Admin", topic: str, wish: Wish
) -> "tuple[Tally, float]":
    from cometmq.cli.bulk_send import BulkSend, Pace
    from cometmq.cli.queue_names import QueueNames

    clock = asyncio.get_running_loop().time
    stream = _stream(frame)
    stored = 0
    with CountLine("sending", wish.whole, is_alone=wish.is_quiet) as progress:

        def report(sent: "Sequence[Sent]") -> None:
            nonlocal stored
            stored += len(sent)
            if not wish.is_quiet:
                stream.show(sent)
                if wish.whole == 1 and sent and sent[0].recall_handle:
                    frame.note(f"to take it back: cometmq delay cancel {sent[0].recall_handle}")
            progress.add(len(sent))

        sending = BulkSend(
            mq.producer(send_timeout_ms=target_of(frame).timeout_ms),
            topic,
            find_queue=QueueNames(admin, topic).find,
            report=report,
            pace=Pace(wish.rate, clock),
            in_flight_max=wish.in_flight,
            batch=wish.batch,
        )
        began = clock()
        try:
            tally = await sending.run(_drafts(wish))
        except asyncio.CancelledError:  # Ctrl-C
            progress.close()
            told = f"the first {stored} are stored, and perhaps some after them"
            frame.note(f"interrupted: {told if stored else 'nothing is known to be stored'}")
            raise
        return tally, clock() - began


def _stream(frame: Frame) -> Any:
    from cometmq.cli.row_stream import RowStream

    return RowStream(
        frame,
        _COLUMNS,
        fields=_fields,
        row=lambda sent, _: _row(sent),
        widths=_WIDTHS,
        right=frozenset({"offset"}),
    )


def _fields(sent: "Sent") -> "Record":
    return {
        "input": sent.where,
        "topic": sent.queue.topic,
        "broker_name": sent.queue.broker_name,
        "queue_id": sent.queue.queue_id,
        "queue_offset": sent.queue_offset,
        "message_id": sent.message_id,
        "offset_id": sent.offset_id or None,
        "status": sent.status,
        "recall_handle": sent.recall_handle,
    }


def _row(sent: "Sent") -> "Record":
    return {
        "message_id": sent.message_id,
        "queue": f"{sent.queue.broker_name}/{sent.queue.queue_id}",
        "offset": sent.queue_offset,
        "status": sent.status,
    }


# --- input


async def _drafts(wish: Wish) -> "AsyncIterator[Draft | BadInput]":
    if wish.values:
        for repeated in _repeated(wish):
            yield repeated
        return
    number = 0
    async for draft in _from_files(wish) if wish.files else _from_input(wish):
        if number == wish.count:
            return
        yield draft
        number += 1


def _repeated(wish: Wish) -> Iterator[Draft]:
    for number in range(1, (wish.count or 1) + 1):
        for place, value in enumerate(wish.values, 1):
            text, keys = value, wish.base.keys
            if wish.count is not None:
                text = text.replace(_NUMBER, str(number))
                keys = tuple(key.replace(_NUMBER, str(number)) for key in keys)
            where = f"value {place}" if wish.count is None else f"value {place}, number {number}"
            data = text.encode("utf-8", "surrogateescape")
            yield replace(wish.base, where=where, value=data, keys=keys)


async def _from_input(wish: Wish) -> "AsyncIterator[Draft | BadInput]":
    from cometmq.cli.input_lines import chunks_of, lines_of

    descriptor = sys.stdin.fileno()
    if wish.form == "file":
        content = b"".join([chunk async for chunk in chunks_of(descriptor)])
        yield replace(wish.base, where="standard input", value=content)
        return
    number = 0
    async for line in lines_of(descriptor):
        number += 1
        if line.strip():
            yield _read(f"line {number}", line, wish)


async def _from_files(wish: Wish) -> "AsyncIterator[Draft | BadInput]":
    for path in wish.files:
        try:
            whole = file_draft(path, wish.base)
        except BadInput as error:
            yield error
            continue
        if wish.form == "file":
            yield whole
            continue
        for number, line in enumerate(whole.value.split(b"\n"), 1):
            if line.strip():
                yield _read(f"file '{path}' line {number}", line.removesuffix(b"\r"), wish)


def _read(where: str, line: bytes, wish: Wish) -> Draft | BadInput:
    try:
        if wish.form == "json":
            return json_draft(where, line, wish.base, SystemClock().now_ms)
        return text_draft(where, line, wish.base)
    except BadInput as error:
        return error


def _summary(tally: "Tally", seconds: float) -> str:
    noun = "message" if tally.sent_count == 1 else "messages"
    rate = tally.sent_count / max(seconds, 1e-9)
    size = human_bytes(tally.sent_bytes)
    return f"sent {tally.sent_count} {noun}, {size}, in {seconds:.2f} s: {rate:.0f}/s"
