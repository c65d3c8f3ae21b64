"""``cometmq group delete``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.command import Command, Example
from cometmq.cli.completion import complete_groups
from cometmq.cli.confirm import confirm, destroying
from cometmq.cli.connection import ask, cluster_options
from cometmq.cli.frame import Frame, pass_frame
from cometmq.errors import CometError, NotFound

if TYPE_CHECKING:
    from cometmq.admin import Admin


class HasMembers(CometError):
    """A group that would come back: ``count`` members are connected."""

    def __init__(self, group: str, count: int) -> None:
        super().__init__(group, count)
        self.group = group
        self.count = count
        members = "a connected member" if count == 1 else f"{count} connected members"
        self.fact = f"group '{group}' has {members}: it would be back with the next heartbeat"
        self.next_step = f"stop them first: see 'cometmq group connections {group}'"


@click.command(
    "delete",
    cls=Command,
    examples=(
        Example(
            "What would be lost?", "cometmq group delete billing --dry-run", needs_cluster=True
        ),
    ),
)
@click.argument(
    "groups", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_groups
)
@click.option("--cluster", metavar="NAME", help="Only in this cluster.")
@click.option("--keep-offsets", is_flag=True, help="Leave where it was, for when it comes back.")
@click.option("--keep-topics", is_flag=True, help="Leave its retries and dead letters.")
@click.option("--if-exists", is_flag=True, help="A group that is not there is no error.")
@destroying
@cluster_options
@pass_frame
def delete_command(
    frame: Frame,
    /,
    groups: tuple[str, ...],
    cluster: str | None,
    keep_offsets: bool,
    keep_topics: bool,
    if_exists: bool,
    is_dry_run: bool,
    is_sure: bool,
) -> None:
    """Delete groups with their offsets.

    Their retries and dead letters go, too. A group with members that are connected is not deleted:
    it would come back with their next heartbeat.
    """
    where: dict[str, Any] = {
        "cluster": cluster,
        "keep_offsets": keep_offsets,
        "keep_topics": keep_topics,
    }
    found = ask(frame, lambda admin: _lost(admin, groups, where, if_exists))
    for row in found:
        if row["members"]:
            raise HasMembers(row["group"], row["members"])
    if found and not is_dry_run:
        for row in found:
            frame.note(
                f"group '{row['group']}' has a lag of {row['lag']} "
                f"and {row['dead_letters']} dead letters"
            )
        names = ", ".join(f"'{row['group']}'" for row in found)
        confirm(frame, f"delete group {names}", is_sure=is_sure)

        async def delete(admin: "Admin") -> None:
            for row in found:
                row["brokers"] = list(await admin.groups.delete(row["group"], **where))

        ask(frame, delete)
    elif not found:
        frame.note("there is no such group: nothing was to be deleted")
    rows = [{**row, "is_deleted": not is_dry_run} for row in found]
    if not frame.is_for_programs:
        rows = [{**row, "brokers": " ".join(row["brokers"])} for row in rows]
    columns = ("group", "members", "lag", "dead_letters", "brokers", "is_deleted")
    if rows or frame.is_for_programs:
        frame.show_rows(rows, columns=columns)


async def _lost(
    admin: "Admin", groups: Sequence[str], where: dict[str, Any], if_exists: bool
) -> list[dict[str, Any]]:
    """What deleting these groups would take away."""
    found = []
    for group in groups:
        try:
            known = await admin.groups.describe(group)
            names = await admin.groups.delete(group, **where, is_dry_run=True)
        except NotFound as error:
            if if_exists and error.kind == "group":
                continue
            raise
        try:
            letters = (await admin.topics.stats(f"%DLQ%{group}")).queues
        except NotFound:
            letters = ()
        found.append(
            {
                "group": group,
                "members": sum(
                    not set(names).isdisjoint(one.brokers) for one in known.membership.members
                ),
                "lag": sum(one.lag for one in known.lag.queues if one.broker_name in names),
                "dead_letters": sum(
                    one.message_count for one in letters if one.broker_name in names
                ),
                "brokers": sorted(names),
            }
        )
    return found
