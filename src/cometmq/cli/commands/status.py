"""``cometmq status``: is the cluster there, and is it well?"""

from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.command import Command, Example
from cometmq.cli.commands.cluster import (
    BROKER_COLUMNS,
    NAME_SERVER_COLUMNS,
    broker_row,
    name_server_rows,
)
from cometmq.cli.connection import ask, cluster_options, target_of
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.problems import ExitCode
from cometmq.cli.sections import Section, show_thing

if TYPE_CHECKING:
    from cometmq.admin import Admin
    from cometmq.admin.brokers import Cluster

_COLOURS = {"status": {"ok": "green", "warn": "yellow", "fail": "red"}}
_DISK_PERCENT_HIGH = 85.0
_BEHIND_BYTES_HIGH = 64 * 1024 * 1024


@click.command(
    "status",
    cls=Command,
    examples=(
        Example("Is it there, is it well?", "cometmq status", needs_cluster=True),
        Example("In a script", "cometmq status -o plain | grep '^status'", needs_cluster=True),
    ),
)
@click.pass_context
@cluster_options
@pass_frame
def command(frame: Frame, context: click.Context) -> None:
    """Is the cluster there, and is it well?

    The status is ok, warn (something is worth a look) or fail (a server does not answer, or there
    is no broker); "findings" says why. The exit code is 1 for fail, and 4 when no name server
    answers.
    """

    async def work(admin: "Admin") -> "tuple[Cluster, int, int]":
        cluster = await admin.cluster()
        topics = sum(topic.kind == "normal" for topic in await admin.topics.list())
        groups = 0
        if any(not broker.problem for broker in cluster.brokers):
            listed = await admin.groups.list()
            groups = sum(not group.is_system for group in listed.groups)
        return cluster, topics, groups

    target = target_of(frame)
    cluster, topics, groups = ask(frame, work)
    status, findings = judge(cluster)
    masters = [broker for broker in cluster.brokers if broker.is_master]
    facts: dict[str, Any] = {
        "status": status,
        "findings": findings,
        "namesrv": target.namesrv,
        "source": target.source,
        "clusters": list(cluster.clusters),
        "topics": topics,
        "groups": groups,
        "put_tps": round(sum(broker.put_tps or 0.0 for broker in masters), 2),
        "get_tps": round(sum(broker.get_tps or 0.0 for broker in cluster.brokers), 2),
    }
    shown = {name: value for name, value in facts.items() if value != []}
    sections = [
        Section(name="name_servers", rows=name_server_rows(cluster), columns=NAME_SERVER_COLUMNS),
        Section(
            name="brokers",
            rows=[broker_row(frame, broker) for broker in cluster.brokers],
            columns=BROKER_COLUMNS,
        ),
    ]
    show_thing(frame, facts, sections, shown=shown, colours=_COLOURS)
    context.exit(ExitCode.FAILED if status == "fail" else ExitCode.DONE)


def judge(cluster: "Cluster") -> tuple[str, list[str]]:
    """Whether a cluster is well, and what is not."""
    warnings: list[str] = []
    failures = [f"name server {s.address}: {s.problem}" for s in cluster.name_servers if s.problem]
    counts = {s.broker_count for s in cluster.name_servers if s.broker_count is not None}
    if len(counts) > 1:
        warnings.append(f"name servers know different numbers of brokers: {sorted(counts)}")
    if not cluster.brokers:
        failures.append("no broker is registered with the name server")
    with_master = {broker.broker_name for broker in cluster.brokers if broker.is_master}
    lonely = sorted({broker.broker_name for broker in cluster.brokers} - with_master)
    failures += [f"broker {name} has no master: it cannot be written to" for name in lonely]
    for broker in cluster.brokers:
        where = f"broker {broker.broker_name} at {broker.address}"
        if broker.problem:
            failures.append(f"{where}: {broker.problem}")
        if broker.is_active is False:
            warnings.append(f"{where} is not active")
        if (broker.disk_ratio or 0) * 100 > _DISK_PERCENT_HIGH:
            warnings.append(f"{where}: its disk is {broker.disk_ratio:.0%} full")
        if (broker.dispatch_behind_bytes or 0) > _BEHIND_BYTES_HIGH:
            warnings.append(f"{where}: {broker.dispatch_behind_bytes} bytes are not in queues yet")
    status = "fail" if failures else "warn" if warnings else "ok"
    return status, failures + warnings
