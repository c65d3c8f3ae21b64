"""``cometmq topic delete``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.command import Command, Example
from cometmq.cli.completion import complete_topics
from cometmq.cli.confirm import confirm, destroying
from cometmq.cli.connection import ask, cluster_options
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.sizes import counted_messages
from cometmq.errors import NotFound

if TYPE_CHECKING:
    from cometmq.admin import Admin


@click.command(
    "delete",
    cls=Command,
    examples=(
        Example("What would be lost?", "cometmq topic delete orders --dry-run", needs_cluster=True),
        Example(
            "In a script", "cometmq topic delete refunds --yes --if-exists", needs_cluster=True
        ),
    ),
)
@click.argument(
    "topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics
)
@click.option("--cluster", metavar="NAME", help="Only in this cluster.")
@click.option("--if-exists", is_flag=True, help="A topic that is not there is no error.")
@destroying
@cluster_options
@pass_frame
def delete_command(
    frame: Frame,
    /,
    topics: tuple[str, ...],
    cluster: str | None,
    if_exists: bool,
    is_dry_run: bool,
    is_sure: bool,
) -> None:
    """Delete topics with their messages.

    Asks before it does so, unless --yes is given. Offsets of groups for the topic are forgotten.
    """
    found = ask(frame, lambda admin: _lost(admin, topics, cluster, if_exists))
    if found and not is_dry_run:
        if not is_sure:
            for row in found:
                readers = f"; groups: {', '.join(row['groups'])}" if row["groups"] else ""
                frame.note(
                    f"topic '{row['topic']}' has {counted_messages(row['messages'])}{readers}"
                )
        names = ", ".join(f"'{row['topic']}'" for row in found)
        confirm(frame, f"delete topic {names} with all messages", is_sure=is_sure)

        async def work(admin: "Admin") -> None:
            for row in found:
                row["brokers"] = list(await admin.topics.delete(row["topic"], cluster=cluster))

        ask(frame, work)
    elif not found:
        frame.note("there is no such topic: nothing was to be deleted")
    rows = [{**row, "is_deleted": not is_dry_run} for row in found]
    if rows or frame.is_for_programs:
        columns = ("topic", "messages", "groups", "brokers", "is_deleted")
        shown = [
            {**row, "groups": " ".join(row["groups"]), "brokers": " ".join(row["brokers"])}
            for row in rows
        ]
        frame.show_rows(rows if frame.is_for_programs else shown, columns=columns)


async def _lost(
    admin: "Admin", topics: Sequence[str], cluster: str | None, if_exists: bool
) -> list[dict[str, Any]]:
    """What deleting these topics would take away."""
    found = []
    for topic in topics:
        try:
            names = await admin.topics.delete(topic, cluster=cluster, is_dry_run=True)
            stats = await admin.topics.stats(topic)
        except NotFound as error:
            if if_exists and error.kind == "topic":
                continue
            raise
        known = await admin.brokers.list(cluster=cluster)
        masters = [one for one in known if one.is_master and one.broker_name in names]
        readers = (await admin.topics.groups_on(masters, topic)).whole()
        queues = [queue for queue in stats.queues if queue.broker_name in names]
        found.append(
            {
                "topic": topic,
                "messages": sum(queue.message_count for queue in queues),
                "groups": sorted({group for _, groups in readers for group in groups}),
                "brokers": sorted(names),
            }
        )
    return found
