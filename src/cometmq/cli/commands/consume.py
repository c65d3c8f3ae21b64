"""``cometmq consume``: print messages, with a group or without."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.client_run import with_client
from cometmq.cli.command import Command, Example
from cometmq.cli.completion import complete_groups, complete_topics
from cometmq.cli.connection import cluster_options
from cometmq.cli.describing import warn_of_outages
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.problems import Misuse
from cometmq.cli.times import DURATION
from cometmq.clock import SystemClock

if TYPE_CHECKING:
    from cometmq.admin import Admin
    from cometmq.aio import Client
    from cometmq.cli.consuming import Wanted
    from cometmq.client.core.message import Message

_SHOWN_AT_ONCE = 500
_WIDTHS = {"stored": 23, "queue": 10, "offset": 6, "tag": 6, "keys": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    wanted: "Wanted"
    group: str | None
    is_acknowledging: bool
    count: int | None
    idle_ms: int
    template: str | None


@click.command(
    "consume",
    cls=Command,
    examples=(
        Example("What is in a topic", "cometmq consume orders", needs_cluster=True),
        Example(
            "The first two, each in a form of your own",
            "cometmq consume orders --count 2 --template '{offset} {key}: {value}'",
            needs_cluster=True,
        ),
        Example(
            "What came in the last hour, as JSON lines",
            "cometmq consume orders --from '1h ago' -o json",
            needs_cluster=True,
        ),
        Example(
            "What a group would get next, without taking it away",
            "cometmq consume orders --group billing --ack none --count 1",
            needs_cluster=True,
        ),
        Example(
            "Copy a topic",
            "cometmq consume orders -o json | cometmq produce copy --format json",
            needs_cluster=True,
        ),
    ),
)
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--group", metavar="GROUP", shell_complete=complete_groups, help="As a member of this group."
)
@click.option(
    "--ack",
    type=click.Choice(["after-print", "none"]),
    default="after-print",
    show_default=True,
    metavar="MODE",
    help="With --group: 'after-print' tells the broker that a message is done when it was printed; "
    "'none' does not join the group but begins where it is, and moves nothing.",
)
@click.option("--follow", "-f", "is_following", is_flag=True, help="Wait for what comes later.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after so many.")
@click.option(
    "--from",
    "begin",
    metavar="PLACE",
    help="earliest, latest, an offset, or a time; with --group only where it has not begun yet.  "
    "[default: earliest; latest with --follow]",
)
@click.option("--until", "end", metavar="PLACE", help="End before this offset or time.")
@click.option("--tags", metavar="TAGS", help="Only messages with these: 'paid || refunded'.")
@click.option("--sql", metavar="CONDITION", help="With --group: only those that meet it.")
@click.option("--queue", metavar="QUEUE", help="Only this queue: BROKER/NUMBER or NUMBER.")
@click.option(
    "--template",
    metavar="TEXT",
    help="Print this for each, with {value}, {key}, {tag} and the like; \\n and \\t mean what they "
    "mean. An unknown field lists all of them.",
)
@click.option(
    "--idle",
    "idle_ms",
    type=DURATION,
    default="5s",
    show_default=True,
    metavar="TIME",
    help="With --group: end when nothing came for so long.",
)
@cluster_options
@pass_frame
def command(frame: Frame, /, **given: Any) -> None:
    """Print messages, with a group or without.

    Those of a queue come in the order they were stored. Without --group nothing is moved anywhere.
    It ends with the last message that is there now, unless --follow; Ctrl-C ends it at any time.
    With -o json each message is an object on a line, which 'cometmq produce --format json' takes. A
    value that is no text is base64 there, bytes in a table, and as it is in a template, unless that
    goes to a terminal.
    """
    wish = _wish(**given)
    show = _shower(frame, wish.template)
    try:
        shown = with_client(frame, lambda mq, admin: _consume(frame, mq, admin, wish, show))
    except KeyboardInterrupt:
        if not wish.wanted.is_following:  # else this is how it is ended
            raise
        frame.end_line()
        return
    if not shown and wish.template is None:  # who writes a template reads the output by program
        frame.note(_nothing(wish))


def _nothing(wish: _Wish) -> str:
    topic = wish.wanted.topic
    if wish.is_acknowledging:
        return f"nothing in topic '{topic}' for group '{wish.group}' within {wish.idle_ms} ms"
    return f"no such messages in topic '{topic}'; --follow waits for the next ones"


def _wish(
    *,
    topic: str,
    group: str | None,
    ack: str,
    is_following: bool,
    count: int | None,
    begin: str | None,
    end: str | None,
    idle_ms: int,
    template: str | None,
    **filters: str | None,
) -> _Wish:
    from cometmq.cli.consuming import Place, Wanted, place_of

    now_ms = SystemClock().now_ms()
    is_joining = group is not None and ack != "none"
    default = Place(end="last" if is_following and group is None else "first")
    first = default if begin is None else place_of("from", begin, now_ms)
    last = None if end is None else place_of("until", end, now_ms)
    if last is not None and last.end is not None:
        raise Misuse("--until is no offset and no time", "leave it out to read to the end")
    if last is not None and is_following:
        raise Misuse("--follow and --until exclude each other", "give one of them")
    if filters["sql"] and not is_joining:
        raise Misuse("--sql needs a group to read with", "name one with --group, or use --tags")
    if filters["sql"] and filters["tags"]:
        raise Misuse("--sql and --tags exclude each other", "give one of them")
    if is_joining and (filters["queue"] or last is not None or first.offset is not None):
        fact = "a member of a group cannot choose queues, offsets or an end"
        raise Misuse(fact, "leave --group out, or move it first: cometmq group reset")
    if begin is not None and group is not None and ack == "none":
        raise Misuse("--ack none begins where the group is", "leave --from out, or --group")
    wanted = Wanted(topic=topic, begin=first, end=last, is_following=is_following, **filters)
    return _Wish(
        wanted=wanted,
        group=group,
        is_acknowledging=is_joining,
        count=count,
        idle_ms=idle_ms,
        template=template,
    )


Show = Callable[[list[Any]], None]


def _shower(frame: Frame, text: str | None) -> Show:
    """What prints some messages."""
    from cometmq.cli.message_view import COLUMNS, Template, fields_of, row_of
    from cometmq.cli.row_stream import RowStream, write_bytes

    if text is not None:
        template = Template(text, is_for_terminal=frame.is_on_terminal)
        return lambda messages: write_bytes(b"".join(map(template.render, messages)))
    stream = RowStream[Any](
        frame,
        COLUMNS,
        fields=fields_of,
        row=lambda message, is_short: row_of(message, is_short=is_short),
        widths=_WIDTHS,
        right=frozenset({"offset"}),
    )
    return stream.show


async def _consume(frame: Frame, mq: "Client", admin: "Admin", wish: _Wish, show: Show) -> int:
    """How many were printed; who did not answer is told at the end."""
    from cometmq.cli.consuming import silent_brokers

    if not wish.is_acknowledging:
        outages = await silent_brokers(admin, wish.wanted)
        shown = await _print(mq, admin, wish, show, {out.broker_name for out in outages})
    else:
        shown = await _print_and_acknowledge(mq, admin, wish, show)
        is_over = shown != wish.count  # members wait for who does not answer, and for what is new
        outages = await silent_brokers(admin, wish.wanted) if is_over else ()
    warn_of_outages(frame, outages, has_field=False)
    return shown


async def _print_and_acknowledge(mq: "Client", admin: "Admin", wish: _Wish, show: Show) -> int:
    from cometmq.cli.consuming import consumed

    assert wish.group is not None
    messages = consumed(mq, admin, wish.wanted, wish.group, idle_ms=wish.idle_ms)
    shown = 0
    async with contextlib.aclosing(messages):
        async for message in messages:
            show([message])
            message.ack()
            shown += 1
            if shown == wish.count:
                break
    return shown


async def _print(
    mq: "Client", admin: "Admin", wish: _Wish, show: Show, without: Collection[str]
) -> int:
    """Print what is there in large parts, and what comes as soon as it comes."""
    from cometmq.cli.consuming import browsed

    messages = browsed(mq, admin, wish.wanted, wish.group, without=without)
    part: list[Message[bytes]] = []
    shown = 0
    async with (
        contextlib.aclosing(messages),
        contextlib.aclosing(_looking_ahead(messages)) as told_apart,
    ):
        async for message, is_more in told_apart:
            part.append(message)
            is_last = shown + len(part) == wish.count
            if is_last or not is_more or len(part) == _SHOWN_AT_ONCE:
                show(part)
                shown += len(part)
                part = []
            if is_last:
                break
    return shown


async def _looking_ahead(
    messages: "AsyncIterator[Message[bytes]]",
) -> "AsyncGenerator[tuple[Message[bytes], bool], None]":
    """Each message, and whether another one can be had without waiting."""
    coming: asyncio.Task[Message[bytes]] | None = None
    try:
        while True:
            if coming is None:
                coming = asyncio.ensure_future(anext(messages))
            try:
                message = await coming
            except StopAsyncIteration:
                return
            coming = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0)  # one turn: what is in memory comes at once
            yield message, coming.done() and coming.exception() is None
    finally:
        if coming is not None and not coming.done():
            coming.cancel()
            await asyncio.wait((coming,))
