"""``cometmq topic ls``, ``describe`` and ``stats``: asking, without changing anything."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.command import Command, Example
from cometmq.cli.completion import complete_topics
from cometmq.cli.connection import ask, cluster_options
from cometmq.cli.describing import (
    attributes_text,
    outage_rows,
    perm_name,
    time_field,
    warn_of_outages,
)
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.output import Record
from cometmq.cli.sections import Section, show_thing

if TYPE_CHECKING:
    from cometmq.admin import Admin
    from cometmq.admin.topics import QueueStats, Topic, TopicName, TopicStats

KINDS = ("normal", "retry", "dlq", "system")
QUEUE_COLUMNS = (
    *("broker_name", "queue_id", "min_offset", "max_offset", "messages", "last_update"),
)
_BROKER_COLUMNS = (
    *("broker_name", "address", "read_queues", "write_queues", "perm", "is_ordered"),
    *("filter_type", "sys_flag", "attributes"),
)
_STATS_COLUMNS = ("topic", "queues", "messages", "put_tps", "last_update", "problem")
_TOPICS_AT_ONCE = 16


@click.command(
    "ls",
    cls=Command,
    examples=(
        Example("My topics", "cometmq topic ls", needs_cluster=True),
        Example("All of them, RocketMQ's own too", "cometmq topic ls --all", needs_cluster=True),
        Example("Some, as JSON", "cometmq topic ls 'ord*' -o json", needs_cluster=True),
    ),
)
@click.argument("pattern", required=False)
@click.option("--all", "is_all", is_flag=True, help="Those for retries, dead letters and RocketMQ.")
@click.option(
    "--kind", type=click.Choice(KINDS), metavar="KIND", help=f"Only these: {', '.join(KINDS)}."
)
@click.option("--cluster", metavar="NAME", help="Only topics of this cluster.")
@cluster_options
@pass_frame
def ls_command(
    frame: Frame, /, pattern: str | None, is_all: bool, kind: str | None, cluster: str | None
) -> None:
    """List topics.

    PATTERN chooses by name, with * and ?. Retry and dead-letter topics of groups and those of
    RocketMQ itself are left out unless --all or --kind asks for them.
    """
    topics = ask(frame, lambda admin: admin.topics.list(cluster=cluster))
    wanted = (kind,) if kind else KINDS if is_all else KINDS[:1]
    chosen = [
        topic
        for topic in topics
        if topic.kind in wanted and (pattern is None or fnmatchcase(topic.name, pattern))
    ]
    rows = [{"name": topic.name, "kind": topic.kind.value} for topic in chosen]
    frame.show_rows(rows, columns=("name", "kind"))
    if not chosen:
        _say_why_none(frame, topics, is_choosing=bool(pattern or kind or is_all))


def _say_why_none(frame: Frame, topics: "Sequence[TopicName]", *, is_choosing: bool) -> None:
    fact = "no such topic" if is_choosing else "there is no topic yet: 'produce' makes one"
    hidden = f"; {len(topics)} others are shown with --all" if topics else ""
    frame.note(f"{fact}{hidden}")


@click.command(
    "describe",
    cls=Command,
    examples=(
        Example("Queues, brokers, groups", "cometmq topic describe orders", needs_cluster=True),
    ),
)
@click.argument("topic", shell_complete=complete_topics)
@cluster_options
@pass_frame
def describe_command(frame: Frame, /, topic: str) -> None:
    """Everything about a topic.

    Its settings on each broker, who consumes it, and its queues: offsets from min_offset to below
    max_offset are there; last_update is when the last message was stored.
    """
    found = ask(frame, lambda admin: admin.topics.describe(topic))
    facts: dict[str, Any] = {
        "name": found.name,
        "kind": found.kind.value,
        "messages": found.stats.message_count,
        "put_tps": _rounded(found.stats.put_tps),
        "last_update": time_field(frame, last_update_ms(found.stats)),
        "read_queues": sum(one.read_queues for one in found.brokers),
        "write_queues": sum(one.write_queues for one in found.brokers),
        "order_config": found.route.order_config,
        "groups": list(found.groups),
    }
    # An empty line would say less than no line: only 5.x knows the rate, only some have an order.
    shown = {name: value for name, value in facts.items() if value not in (None, [])}
    sections = [
        Section(
            name="brokers",
            rows=_brokers(found),
            columns=_BROKER_COLUMNS,
            shown=[shown_broker(row) for row in _brokers(found)],
        ),
        Section(
            name="queues",
            rows=[queue_record(frame, queue) for queue in found.stats.queues],
            columns=QUEUE_COLUMNS,
        ),
        Section(name="outages", rows=outage_rows(found.outages), columns=(), shown=[]),
    ]
    show_thing(frame, facts, sections, shown=shown)
    warn_of_outages(frame, found.outages)


@click.command(
    "stats",
    cls=Command,
    examples=(
        Example("All my topics", "cometmq topic stats", needs_cluster=True),
        Example("One", "cometmq topic stats orders -o json", needs_cluster=True),
    ),
)
@click.argument("topics", nargs=-1, metavar="[TOPIC]...", shell_complete=complete_topics)
@click.option("--all", "is_all", is_flag=True, help="Those for retries, dead letters and RocketMQ.")
@cluster_options
@pass_frame
def stats_command(frame: Frame, /, topics: tuple[str, ...], is_all: bool) -> None:
    """How full and how busy topics are.

    Messages that are there, messages per second that arrive (brokers before 5.0 do not tell), and
    when the last one came. Without a TOPIC all of them.
    """
    stats = ask(frame, lambda admin: _all_stats(admin, topics, is_all))
    rows = [
        {
            "topic": one.topic,
            "queues": len(one.queues),
            "messages": one.message_count,
            "put_tps": _rounded(one.put_tps),
            "last_update": time_field(frame, last_update_ms(one)),
            "outages": outage_rows(one.outages),
        }
        for one in stats
    ]
    frame.show_rows(rows, columns=_STATS_COLUMNS)
    warn_of_outages(frame, {out.address: out for one in stats for out in one.outages}.values())


async def _all_stats(admin: "Admin", topics: Sequence[str], is_all: bool) -> "list[TopicStats]":
    import asyncio

    from cometmq.errors import NotFound

    known = [one for one in await admin.topics.list() if is_all or one.kind == "normal"]
    room = asyncio.Semaphore(_TOPICS_AT_ONCE)

    async def stats(topic: str) -> "TopicStats | None":
        async with room:
            try:
                return await admin.topics.stats(topic)
            except NotFound:
                if topics:
                    raise
                return None  # it was deleted since it was listed

    found = await asyncio.gather(*map(stats, topics or [one.name for one in known]))
    return [one for one in found if one is not None]


def queue_record(frame: Frame, queue: "QueueStats") -> Record:
    """A queue and what it holds."""
    return {
        "broker_name": queue.broker_name,
        "queue_id": queue.queue_id,
        "min_offset": queue.min_offset,
        "max_offset": queue.max_offset,
        "messages": queue.message_count,
        "last_update": time_field(frame, queue.last_update_ms),
    }


def last_update_ms(stats: "TopicStats") -> int | None:
    """When the last message of a topic came, as far as its brokers know."""
    return max((queue.last_update_ms for queue in stats.queues), default=None)


def _brokers(topic: "Topic") -> list[dict[str, Any]]:
    routes = {entry.broker_name: entry for entry in topic.route.brokers}
    rows: list[dict[str, Any]] = []
    for one in topic.brokers:
        route = routes.get(one.broker_name)
        rows.append(
            {
                "cluster": route.cluster if route else None,
                **broker_record(one),
                "addresses": {str(n): a for n, a in route.addresses.items()} if route else {},
            }
        )
    return rows


def broker_record(one: Any) -> dict[str, Any]:
    """The settings of a topic on one broker."""
    return {
        "broker_name": one.broker_name,
        "address": one.address,
        "read_queues": one.read_queues,
        "write_queues": one.write_queues,
        "perm": perm_name(one.perm),
        "is_ordered": one.is_ordered,
        "filter_type": one.filter_type,
        "sys_flag": one.sys_flag,
        "attributes": one.attributes,
    }


def shown_broker(record: dict[str, Any]) -> dict[str, Any]:
    """The same for a table, without what nobody has changed."""
    filter_type, flags = record["filter_type"], record["sys_flag"]
    return {
        **record,
        "is_ordered": record["is_ordered"] or None,
        "filter_type": None if filter_type == "SINGLE_TAG" else filter_type,
        "sys_flag": flags or None,
        "attributes": attributes_text(record["attributes"]),
    }


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 2)
