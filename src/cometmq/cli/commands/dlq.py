"""``cometmq dlq``: dead letters, which are messages that a group could not handle."""

import sys
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.client_run import with_client
from cometmq.cli.command import Example, Group
from cometmq.cli.completion import complete_groups, complete_topics
from cometmq.cli.confirm import confirm, destroying, dry_run_option
from cometmq.cli.connection import ask, cluster_options
from cometmq.cli.describing import warn_of_outages
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.problems import Misuse
from cometmq.cli.times import iso_time, local_time
from cometmq.errors import Unreachable

if TYPE_CHECKING:
    from cometmq.admin import Admin
    from cometmq.admin.message import Message
    from cometmq.aio import Client
    from cometmq.cli.dead_letters import DeadLetterTopic

_LS_COLUMNS = ("group", "pending", "messages", "last", "topic")
_PEEK_COLUMNS = ("stored", "origin_topic", "reconsume_times", "tag", "keys", "value")
_REPLAY_COLUMNS = ("message_id", "stored", "keys", "to")


@click.group(
    "dlq",
    cls=Group,
    examples=(
        Example("Who has dead letters?", "cometmq dlq ls", needs_cluster=True),
        Example(
            "Look at some, and at what would be sent again",
            "cometmq dlq peek billing --count 3 && cometmq dlq replay billing --dry-run",
            needs_cluster=True,
        ),
    ),
)
def command() -> None:
    """Dead letters: look at them, send them again.

    They are messages that a group has failed to handle too often. They lie in the topic %DLQ%GROUP.
    Which of them are dealt with, sent again or given up, is kept as the group's offset on that
    topic; the others are pending.
    """


def _group_argument(function: Any) -> Any:
    return click.argument("group", shell_complete=complete_groups)(function)


@command.command(
    "ls", examples=(Example("Who has dead letters?", "cometmq dlq ls", needs_cluster=True),)
)
@click.option("--pending", "is_pending", is_flag=True, help="Only groups with pending ones.")
@cluster_options
@pass_frame
def ls_command(frame: Frame, /, is_pending: bool) -> None:
    """Groups that have dead letters, and how many of them are pending."""
    everyone = ask(frame, _all)
    found = [one for one in everyone if one.pending_count or not is_pending]
    rows = [_summary(frame, one) for one in found]
    if rows or frame.is_for_programs:
        frame.show_rows(rows, columns=_LS_COLUMNS)
    else:
        frame.note("no group has dead letters")
    outages = {out.address: out for one in everyone for out in one.outages}
    warn_of_outages(frame, outages.values(), has_field=False)


async def _all(admin: "Admin") -> "list[DeadLetterTopic]":
    from cometmq.cli.dead_letters import dead_letters, group_names

    return [await dead_letters(admin, group) for group in await group_names(admin)]


def _summary(frame: Frame, found: "DeadLetterTopic") -> dict[str, Any]:
    last = iso_time(found.last_ms) if frame.is_for_programs else local_time(found.last_ms)
    return {
        "group": found.group,
        "topic": found.topic,
        "messages": found.message_count,
        "pending": found.pending_count,
        "last": last,
        "queues": [
            {
                "broker_name": queue.broker_name,
                "queue_id": queue.queue_id,
                "min_offset": queue.min_offset,
                "max_offset": queue.max_offset,
                "place": queue.place,
            }
            for queue in found.queues
        ],
    }


@command.command(
    "peek",
    examples=(Example("The first few", "cometmq dlq peek billing --count 3", needs_cluster=True),),
)
@_group_argument
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="So many.",
)
@click.option("--all", "is_all", is_flag=True, help="Also those that are dealt with.")
@cluster_options
@pass_frame
def peek_command(frame: Frame, /, group: str, count: int, is_all: bool) -> None:
    """Print pending dead letters of GROUP.

    The oldest come first, and nothing is moved.
    """
    from cometmq.cli.message_view import fields_of

    found, letters = ask(frame, lambda admin: _peeked(admin, group, count, is_all))
    if frame.is_for_programs:
        rows = [{**fields_of(one), **_origin(one)} for one in found]
        frame.show_rows(rows, columns=())
    elif found:
        frame.show_rows([_peek_row(one) for one in found], columns=_PEEK_COLUMNS)
    else:
        frame.note(f"group '{group}' has no pending dead letters")
    warn_of_outages(frame, letters.outages, has_field=False)


async def _peeked(
    admin: "Admin", group: str, count: int, is_all: bool
) -> "tuple[list[Message], DeadLetterTopic]":
    from cometmq.cli.dead_letters import dead_letters, letters_of

    letters = await dead_letters(admin, group)
    found: list[Message] = []
    async for message in letters_of(admin, letters, is_all=is_all):
        if len(found) == count:
            break
        found.append(message)
    return found, letters


def _origin(message: "Message") -> dict[str, Any]:
    from cometmq.cli.dead_letters import origin_of

    return {"origin_topic": origin_of(message)}


def _peek_row(message: "Message") -> dict[str, Any]:
    from cometmq.cli.message_view import row_of

    return {**row_of(message), **_origin(message), "reconsume_times": message.reconsume_times}


@command.command(
    "replay",
    examples=(
        Example("What would be sent?", "cometmq dlq replay billing --dry-run", needs_cluster=True),
        Example("Three of them", "cometmq dlq replay billing --count 3", needs_cluster=True),
    ),
)
@_group_argument
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="At most so many.")
@click.option(
    "--key", "keys", multiple=True, metavar="KEY", help="Only those with this key; repeat it."
)
@click.option(
    "--to",
    "topic",
    metavar="TOPIC",
    shell_complete=complete_topics,
    help="Send them there.  [default: where each came from]",
)
@click.option("--all", "is_all", is_flag=True, help="Also those that are dealt with.")
@dry_run_option
@cluster_options
@pass_frame
def replay_command(frame: Frame, /, group: str, **given: Any) -> None:
    """Send pending dead letters of GROUP to where they came from.

    The oldest come first. Every group that consumes such a topic gets them, not only GROUP. They
    keep value, keys, tag and properties but have a new id; the property REPLAY_OF has the old one
    and REPLAY_GROUP the group.

    Each that was sent is dealt with: the next replay goes on behind it, also after an error or
    Ctrl-C. Only when this program is killed, up to 32 of them are sent twice. With --key or --all
    nothing counts as dealt with, and who repeats it sends them again.
    """
    done = with_client(frame, lambda mq, admin: _replay(frame, mq, admin, group, **given))
    if not done:
        frame.note("nothing to send")
    elif not given["is_dry_run"]:
        frame.note(f"sent {done} again")


async def _replay(
    frame: Frame,
    mq: "Client",
    admin: "Admin",
    group: str,
    *,
    count: int | None,
    keys: tuple[str, ...],
    topic: str | None,
    is_all: bool,
    is_dry_run: bool,
) -> int:
    from cometmq.cli.dead_letters import (
        Places,
        dead_letters,
        letters_of,
        origin_of,
        replay,
        send_again,
    )
    from cometmq.cli.row_stream import RowStream

    stream = RowStream[dict[str, Any]](
        frame,
        _REPLAY_COLUMNS,
        fields=lambda row: row,
        row=lambda row, _: _replay_row(row),
        widths={"message_id": 32, "stored": 23, "keys": 8},
    )
    producer = mq.producer()

    async def act(message: "Message") -> None:
        if is_dry_run:
            to = topic or origin_of(message)
        else:
            to = await send_again(producer, message, group, topic)
        stream.show([_replayed(message, to, is_sent=not is_dry_run)])

    letters = await dead_letters(admin, group)
    warn_of_outages(frame, letters.outages, has_field=False)
    is_moving = not (keys or is_all or is_dry_run)
    return await replay(
        letters_of(admin, letters, is_all=is_all),
        Places(admin, letters) if is_moving else None,
        lambda message: not keys or bool(set(keys).intersection(message.keys)),
        act,
        count,
    )


def _replay_row(fields: dict[str, Any]) -> dict[str, Any]:
    stored = (fields["stored"] or "")[:23].replace("T", " ")
    return {**fields, "stored": stored, "keys": " ".join(fields["keys"])}


def _replayed(message: "Message", to: str | None, *, is_sent: bool) -> dict[str, Any]:
    return {
        "message_id": message.message_id,
        "stored": iso_time(message.stored_ms),
        "keys": list(message.keys),
        "broker_name": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "to": to,
        "is_sent": is_sent,
    }


@command.command(
    "purge",
    examples=(
        Example(
            "Give them up, but keep the messages",
            "cometmq dlq purge billing --move --yes",
            needs_cluster=True,
        ),
        Example(
            "What would be deleted?",
            "cometmq dlq purge billing --delete --dry-run",
            needs_cluster=True,
        ),
    ),
)
@_group_argument
@click.option("--move", "is_move", is_flag=True, help="Move the group behind them; they stay.")
@click.option("--delete", "is_delete", is_flag=True, help="Delete the topic with all of them.")
@destroying
@cluster_options
@pass_frame
def purge_command(
    frame: Frame, /, group: str, is_move: bool, is_delete: bool, is_dry_run: bool, is_sure: bool
) -> None:
    """Be done with the dead letters of GROUP.

    It asks how, unless --move or --delete says so. After --move none is pending, and 'cometmq dlq
    peek --all' still shows them until they expire. After --delete they are gone; the topic comes
    again with the next dead letter.
    """
    from cometmq.cli.dead_letters import dead_letters

    if is_move and is_delete:
        raise Misuse("--move and --delete exclude each other", "give one of them")
    letters = ask(frame, lambda admin: dead_letters(admin, group))
    for out in letters.outages:  # half of a purge would look like a whole one
        reason = f"{out.broker_name}: {out.reason}"
        raise Unreachable(out.address, reason, "nothing was changed; do it again once it is there")
    way = "move" if is_move else "delete" if is_delete else _asked_way(letters)
    if not is_dry_run:
        confirm(frame, _at_stake(letters, way), is_sure=is_sure)
        ask(frame, lambda admin: _purge(admin, letters, way))
    frame.show_record(
        {
            "group": group,
            "topic": letters.topic,
            "way": way,
            "messages": letters.message_count,
            "pending": letters.pending_count,
            "is_done": not is_dry_run,
        }
    )


def _asked_way(letters: "DeadLetterTopic") -> str:
    """Which way a person wants, who has to be there for that."""
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise Misuse("it is not said what becomes of them", "add --move or --delete")
    question = (
        f"{letters.pending_count} of {letters.message_count} dead letters are pending: "
        "move the group behind them, or delete the topic"
    )
    answer: str = click.prompt(
        question, type=click.Choice(["move", "delete"]), default="move", err=True
    )
    return answer


def _at_stake(letters: "DeadLetterTopic", way: str) -> str:
    if way == "delete":
        return f"delete topic '{letters.topic}' with {letters.message_count} messages"
    return f"give up {letters.pending_count} pending dead letters of group '{letters.group}'"


async def _purge(admin: "Admin", letters: "DeadLetterTopic", way: str) -> None:
    from cometmq.cli.dead_letters import move_place

    # Before a topic goes, too: some releases keep offsets, and a new topic begins with 0.
    await move_place(admin, letters, to_end=way == "move")
    if way == "delete":
        await admin.topics.delete(letters.topic)
