"""``cometmq group reset`` and ``clone``: what changes where a group goes on."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.command import Command, Example
from cometmq.cli.completion import complete_brokers, complete_groups, complete_topics
from cometmq.cli.confirm import confirm, destroying
from cometmq.cli.connection import ask, cluster_options
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.problems import Misuse
from cometmq.cli.times import TIME
from cometmq.errors import NotFound

if TYPE_CHECKING:
    from cometmq.admin import Admin, Position
    from cometmq.admin.offsets import Move, Reset

_COLUMNS = (
    *("topic", "broker_name", "queue_id", "min_offset", "max_offset"),
    *("before", "after", "change"),
)
_RETRY_PREFIX = "%RETRY%"
_COLOURS = {"change": {"0": "bright_black"}}


@click.command(
    "reset",
    cls=Command,
    examples=(
        Example(
            "What would happen?",
            "cometmq group reset billing --topic orders --to-earliest --dry-run",
            needs_cluster=True,
        ),
        Example(
            "Once more what came in the last hour",
            "cometmq group reset billing --topic orders --to-time '1h ago' --yes",
            needs_cluster=True,
        ),
        Example(
            "Ten messages back in one queue",
            "cometmq group reset billing --topic orders --shift -10 --queue 0 --yes",
            needs_cluster=True,
        ),
    ),
)
@click.argument("group", shell_complete=complete_groups)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    shell_complete=complete_topics,
    help="This topic, or these; without it all that the group has consumed.",
)
@click.option("--to-earliest", is_flag=True, help="To the first message that is there.")
@click.option("--to-latest", is_flag=True, help="Behind the last one: only what comes from now on.")
@click.option("--to-time", type=TIME, metavar="TIME", help="To the first one stored at this time.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="To this offset.")
@click.option("--shift", type=int, metavar="N", help="So many messages on, or back with -N.")
@click.option("--broker", metavar="NAME", shell_complete=complete_brokers, help="Only on this one.")
@click.option("--queue", "queue_id", type=click.IntRange(0), metavar="N", help="Only this queue.")
@destroying
@cluster_options
@pass_frame
def reset_command(
    frame: Frame,
    /,
    group: str,
    topics: tuple[str, ...],
    broker: str | None,
    queue_id: int | None,
    is_dry_run: bool,
    is_sure: bool,
    **where: Any,
) -> None:
    """Move a group to other offsets.

    Exactly one of --to-earliest, --to-latest, --to-time, --to-offset and --shift says where to.
    What each queue had before and has after is shown first, and then asked about, unless --yes is
    given. Members that are connected follow within seconds. Brokers before 5.2 can move connected
    members by time only.
    """
    position = _position(where)

    async def plan(admin: "Admin") -> "list[Reset]":
        chosen = topics or await _topics_of(admin, group)
        await admin.groups.describe(group)  # a group that nobody knows is a slip of the keys
        return [
            await admin.offsets.plan(group, topic, position, broker=broker, queue_id=queue_id)
            for topic in chosen
        ]

    async def move(admin: "Admin") -> "list[Reset]":
        return [
            await admin.offsets.reset(
                group, done.moves[0].topic, position, broker=broker, queue_id=queue_id
            )
            for done in plans
        ]

    plans = ask(frame, plan)
    _carry_out(frame, group, plans, move, is_dry_run=is_dry_run, is_sure=is_sure)


@click.command(
    "clone",
    cls=Command,
    examples=(
        Example(
            "A second group that goes on where the first one is",
            "cometmq group clone billing audit --yes",
            needs_cluster=True,
        ),
    ),
)
@click.argument("source", shell_complete=complete_groups)
@click.argument("target", shell_complete=complete_groups)
@click.option("--topic", metavar="TOPIC", shell_complete=complete_topics, help="Only this topic.")
@destroying
@cluster_options
@pass_frame
def clone_command(
    frame: Frame, /, source: str, target: str, topic: str | None, is_dry_run: bool, is_sure: bool
) -> None:
    """Move a group to where another one is.

    TARGET goes to where SOURCE is, on all topics that SOURCE has consumed, or on one. TARGET is
    made when it is not there. What its queues had before and have after is shown first, and then
    asked about, unless --yes is given.
    """

    if source == target:
        raise Misuse(f"'{source}' is where it is already", "name another group as TARGET")

    async def plan(admin: "Admin") -> "list[Reset]":
        return [await admin.offsets.clone(source, target, topic, is_dry_run=True)]

    async def move(admin: "Admin") -> "list[Reset]":
        try:
            await admin.groups.configs(target)
        except NotFound:  # not every broker takes offsets of a group that it does not know
            await admin.groups.create(target, is_new=False)
        return [await admin.offsets.clone(source, target, topic)]

    plans = ask(frame, plan)
    _carry_out(frame, target, plans, move, is_dry_run=is_dry_run, is_sure=is_sure)


def _position(where: dict[str, Any]) -> "Position":
    """Where to; exactly one of the options must say it."""
    from cometmq.admin import Earliest, Latest, Offset, Shift, Time

    given = {
        name: value for name, value in where.items() if value is not None and value is not False
    }
    if len(given) != 1:
        names = "--to-earliest, --to-latest, --to-time, --to-offset or --shift"
        fact = f"{len(given)} places to move to" if given else "no place to move to"
        raise Misuse(f"{fact} are given" if given else f"{fact} is given", f"give one of {names}")
    ((name, value),) = given.items()
    match name:
        case "to_earliest":
            return Earliest()
        case "to_latest":
            return Latest()
        case "to_time":
            return Time(value)
        case "to_offset":
            return Offset(value)
        case _:
            return Shift(value)


async def _topics_of(admin: "Admin", group: str) -> list[str]:
    """All topics that a group has consumed, but not its retries.

    Of a group that has just begun, brokers know no offsets for some seconds; then those that its
    members subscribe to.
    """
    found = {queue.topic for queue in (await admin.groups.lag(group)).queues}
    if not _wanted(found):
        found = {one.topic for one in (await admin.groups.members(group)).subscriptions}
    topics = _wanted(found)
    if not topics:
        await admin.groups.configs(group)  # says so when there is no such group
        raise NotFound("offset", group, "the group has consumed nothing yet: name a --topic")
    return topics


def _wanted(topics: Iterable[str]) -> list[str]:
    return sorted(topic for topic in topics if not topic.startswith(_RETRY_PREFIX))


def _carry_out(
    frame: Frame,
    group: str,
    plans: "list[Reset]",
    move: Any,
    *,
    is_dry_run: bool,
    is_sure: bool,
) -> None:
    """Show a plan, ask about it, do it, and show what was done."""
    moves = [one for plan in plans for one in plan.moves]
    is_asking = not is_dry_run and not is_sure
    if is_dry_run or is_asking:
        if not (is_asking and frame.is_for_programs):
            _show(frame, group, moves, is_done=False)
        if is_dry_run:
            return
    changed = sum(one.is_change for one in moves)
    confirm(frame, f"move group '{group}' in {changed} of {len(moves)} queues", is_sure=is_sure)
    done = [one for reset in ask(frame, move) for one in reset.moves]
    if is_asking and not frame.is_for_programs:
        frame.note(f"moved group '{group}' in {changed} queues")
    else:
        _show(frame, group, done, is_done=True)


def _show(frame: Frame, group: str, moves: "Sequence[Move]", *, is_done: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "topic": one.topic,
            "broker_name": one.broker_name,
            "queue_id": one.queue_id,
            "min_offset": one.min_offset,
            "max_offset": one.max_offset,
            "before": one.before,
            "after": one.after,
            "change": None if one.before is None else one.after - one.before,
        }
        for one in moves
    ]
    if frame.is_for_programs:
        frame.show_record({"group": group, "is_done": is_done, "moves": rows})
        return
    frame.show_rows(rows, columns=_COLUMNS, colours=_COLOURS)
