"""``cometmq group ls``, ``describe``, ``lag`` and ``connections``: asking, changing nothing."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.command import Command, Example
from cometmq.cli.completion import complete_groups, complete_topics
from cometmq.cli.connection import ask, cluster_options
from cometmq.cli.describing import attributes_text, outage_rows, time_field, warn_of_outages
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.output import Record
from cometmq.cli.sections import Section, show_thing

if TYPE_CHECKING:
    from cometmq.admin import Admin
    from cometmq.admin.clients import Client
    from cometmq.admin.groups import Group, GroupLag, GroupOnBroker, QueueLag
    from cometmq.admin.servers import Outage

_MEMBER_COLUMNS = ("client_id", "address", "language", "version", "brokers")
_SUBSCRIPTION_COLUMNS = ("topic", "expression", "expression_type")
_TOPIC_COLUMNS = ("topic", "queues", "lag", "last_consumed")
_QUEUE_COLUMNS = (
    *("topic", "broker_name", "queue_id", "offset", "max_offset", "lag"),
    *("in_flight", "last_consumed"),
)
_BROKER_COLUMNS = (
    *("broker_name", "address", "is_consume_enabled", "is_broadcast_enabled"),
    *("is_orderly", "retry_queues", "retry_max", "consume_timeout_minutes", "attributes"),
)


@click.command(
    "ls",
    cls=Command,
    examples=(
        Example("My groups", "cometmq group ls", needs_cluster=True),
        Example("Some, for a script", "cometmq group ls 'bill*' -o plain", needs_cluster=True),
    ),
)
@click.argument("pattern", required=False)
@click.option("--all", "is_all", is_flag=True, help="RocketMQ's own too.")
@click.option("--cluster", metavar="NAME", help="Only groups of this cluster.")
@cluster_options
@pass_frame
def ls_command(frame: Frame, /, pattern: str | None, is_all: bool, cluster: str | None) -> None:
    """List groups.

    All that some broker has settings of. PATTERN chooses by name, with * and ?.
    """
    found = ask(frame, lambda admin: admin.groups.list(cluster=cluster))
    chosen = [
        group
        for group in found.groups
        if (is_all or not group.is_system) and (pattern is None or fnmatchcase(group.name, pattern))
    ]
    rows: list[Record] = [
        {
            "name": group.name,
            "kind": "system" if group.is_system else "normal",
            "brokers": _listed(frame, group.brokers),
        }
        for group in chosen
    ]
    frame.show_rows(rows, columns=("name", "kind", "brokers"))
    warn_of_outages(frame, found.outages, has_field=False)
    if not chosen:
        hidden = f"; {len(found.groups)} others are shown with --all" if found.groups else ""
        nothing = f"there is no group yet: a consumer makes one{hidden}"
        frame.note(nothing if pattern is None else f"no group is like '{pattern}'")


@click.command(
    "describe",
    cls=Command,
    examples=(
        Example("Members, lag, settings", "cometmq group describe billing", needs_cluster=True),
    ),
)
@click.argument("group", shell_complete=complete_groups)
@click.option("--queues", "has_queues", is_flag=True, help="The lag of each queue, too.")
@cluster_options
@pass_frame
def describe_command(frame: Frame, /, group: str, has_queues: bool) -> None:
    """Everything about a group.

    Its members, what they subscribe, how far they are. Members that contradict each other (other
    topics, other tags) are shown as problems: RocketMQ then delivers what the last one asked for,
    and messages get lost. To find that out, every member that is connected is asked.
    """

    async def work(admin: "Admin") -> "tuple[Group, tuple[str, ...]]":
        found = await admin.groups.describe(group)
        problems = dict.fromkeys(found.membership.problems)
        if found.membership.members:
            problems |= dict.fromkeys(await admin.groups.inconsistencies(group))
        return found, tuple(problems)

    found, problems = ask(frame, work)
    membership, lag = found.membership, found.lag
    facts: dict[str, Any] = {
        "name": found.name,
        "kind": "system" if found.is_system else "normal",
        "consume_type": membership.consume_type or None,
        "message_model": membership.message_model or None,
        "consume_from_where": membership.consume_from_where or None,
        "member_count": len(membership.members),
        # Without any offset stored nobody knows: members that have just begun have not told yet.
        "lag": lag.lag if lag.queues else None,
        "consume_tps": round(lag.consume_tps, 2),
        "problems": list(problems),
    }
    shown = {name: value for name, value in facts.items() if value not in (None, [])}
    show_thing(frame, facts, _sections(frame, found, has_queues), shown=shown)
    if not frame.is_for_programs:
        for problem in problems:
            frame.warn(problem)
    warn_of_outages(frame, found.outages)


def _sections(frame: Frame, found: "Group", has_queues: bool) -> list[Section]:
    queues = [_queue(frame, queue) for queue in found.lag.queues]
    return [
        Section(
            name="members",
            rows=[_member(frame, member) for member in found.membership.members],
            columns=_MEMBER_COLUMNS,
        ),
        Section(
            name="subscriptions",
            rows=[
                {"topic": s.topic, "expression": s.expression, "expression_type": s.expression_type}
                for s in found.membership.subscriptions
            ],
            columns=_SUBSCRIPTION_COLUMNS,
        ),
        Section(name="topics", rows=_by_topic(frame, found.lag), columns=_TOPIC_COLUMNS),
        Section(
            name="queues",
            rows=queues,
            columns=_QUEUE_COLUMNS,
            shown=queues if has_queues else [],
        ),
        Section(
            name="brokers",
            rows=[_broker(one) for one in found.brokers],
            columns=_BROKER_COLUMNS,
            shown=[_shown_broker(one) for one in found.brokers],
        ),
        Section(name="outages", rows=outage_rows(found.outages), columns=(), shown=[]),
    ]


@click.command(
    "lag",
    cls=Command,
    examples=(
        Example("All groups, the furthest first", "cometmq group lag", needs_cluster=True),
        Example("Queue by queue", "cometmq group lag billing --topic orders", needs_cluster=True),
    ),
)
@click.argument("group", required=False, shell_complete=complete_groups)
@click.option("--topic", metavar="TOPIC", shell_complete=complete_topics, help="Only this topic.")
@cluster_options
@pass_frame
def lag_command(frame: Frame, /, group: str | None, topic: str | None) -> None:
    """How far groups are behind.

    In messages that they have still to consume. With a GROUP queue by queue; last_consumed is when
    the last message it consumed was stored. Without one a line for each group and topic, the
    furthest behind first.
    """
    if group is None:
        _show_all_lags(frame, topic)
        return

    async def work(admin: "Admin") -> "GroupLag":
        from cometmq.errors import NotFound

        found = await admin.groups.lag(group, topic)
        if not found.queues and not found.outages:
            await admin.groups.configs(group)  # says so when there is no such group
            where = f" on '{topic}'" if topic else ""
            raise NotFound("offset", group, f"the group has consumed nothing yet{where}")
        return found

    found = ask(frame, work)
    rows = [_queue(frame, queue) for queue in found.queues]
    if frame.is_for_programs:
        facts: Record = {
            "group": found.group,
            "lag": found.lag,
            "consume_tps": round(found.consume_tps, 2),
            "queues": rows,
            "outages": outage_rows(found.outages),
        }
        frame.show_record(facts)
        return
    frame.show_rows(rows, columns=_QUEUE_COLUMNS)
    warn_of_outages(frame, found.outages)


def _show_all_lags(frame: Frame, topic: str | None) -> None:
    async def work(admin: "Admin") -> "tuple[list[GroupLag], tuple[Outage, ...]]":
        return await all_lags(admin)

    lags, outages = ask(frame, work)
    rows = [
        {"group": lag.group, **row, "consume_tps": round(lag.consume_tps, 2)}
        for lag in lags
        for row in _by_topic(frame, lag)
        if topic in (None, row["topic"])
    ]
    rows.sort(key=lambda row: (-row["lag"], row["group"], row["topic"]))
    frame.show_rows(rows, columns=("group", "topic", "queues", "lag", "last_consumed"))
    warn_of_outages(frame, outages, has_field=False)
    if not rows:
        where = f" of topic '{topic}'" if topic else ""
        frame.note(f"no group has consumed anything{where} yet")


async def all_lags(admin: "Admin") -> "tuple[list[GroupLag], tuple[Outage, ...]]":
    """How far each group is that some broker knows, a few of them asked at a time."""
    import asyncio

    listed = await admin.groups.list()
    room = asyncio.Semaphore(8)

    async def lag(group: str) -> "GroupLag":
        async with room:
            return await admin.groups.lag(group)

    lags = await asyncio.gather(*(lag(one.name) for one in listed.groups))
    return list(lags), listed.outages


@click.command(
    "connections",
    cls=Command,
    examples=(Example("Who consumes?", "cometmq group connections billing", needs_cluster=True),),
)
@click.argument("group", shell_complete=complete_groups)
@click.option(
    "--producers-of",
    "topic",
    metavar="TOPIC",
    shell_complete=complete_topics,
    help="Producers of this group that know this topic, instead of consumers.",
)
@cluster_options
@pass_frame
def connections_command(frame: Frame, /, group: str, topic: str | None) -> None:
    """Who is connected.

    The consumers of a group, or its producers. No line when nobody is.
    """

    async def work(admin: "Admin") -> "tuple[tuple[Client, ...], tuple[Outage, ...]]":
        if topic is not None:
            return await admin.clients.producers(group, topic), ()
        found = await admin.groups.members(group)
        if not found.members and not found.outages:
            await admin.groups.configs(group)  # says so when there is no such group
        return found.members, found.outages

    members, outages = ask(frame, work)
    frame.show_rows([_member(frame, one) for one in members], columns=_MEMBER_COLUMNS)
    warn_of_outages(frame, outages, has_field=False)
    if not members:
        frame.note(f"nobody of group '{group}' is connected")


def _member(frame: Frame, member: "Client") -> Record:
    return {
        "client_id": member.client_id,
        "address": member.address,
        "language": member.language,
        "version": member.version,
        "brokers": _listed(frame, member.brokers),
    }


def _queue(frame: Frame, queue: "QueueLag") -> dict[str, Any]:
    return {
        "topic": queue.topic,
        "broker_name": queue.broker_name,
        "queue_id": queue.queue_id,
        "offset": queue.offset,
        "max_offset": queue.max_offset,
        "lag": queue.lag,
        "in_flight": queue.in_flight,
        "last_consumed": time_field(frame, queue.last_consumed_ms),
    }


def _by_topic(frame: Frame, lag: "GroupLag") -> list[dict[str, Any]]:
    topics = sorted({queue.topic for queue in lag.queues})
    own = {topic: [queue for queue in lag.queues if queue.topic == topic] for topic in topics}
    return [
        {
            "topic": topic,
            "queues": len(queues),
            "lag": sum(queue.lag for queue in queues),
            "last_consumed": time_field(frame, max(queue.last_consumed_ms for queue in queues)),
        }
        for topic, queues in own.items()
    ]


def _broker(one: "GroupOnBroker") -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__struct_fields__}


def _shown_broker(one: "GroupOnBroker") -> dict[str, Any]:
    """The same for a table, where only what is unusual needs room."""
    return {
        **_broker(one),
        "is_consume_enabled": None if one.is_consume_enabled else False,
        "is_broadcast_enabled": None if one.is_broadcast_enabled else False,
        "is_orderly": one.is_orderly or None,
        "attributes": attributes_text(one.attributes),
    }


def _listed(frame: Frame, names: Iterable[str]) -> Any:
    return list(names) if frame.is_for_programs else " ".join(names)
