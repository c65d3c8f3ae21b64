"""``cometmq cluster``: which servers there are and how they are doing."""

from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.command import Command, Example, Group
from cometmq.cli.connection import ask, cluster_options
from cometmq.cli.describing import time_field
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.output import Record
from cometmq.cli.sections import Section, show_thing

if TYPE_CHECKING:
    from cometmq.admin import Admin
    from cometmq.admin.brokers import BrokerState, Cluster

BROKER_COLUMNS = (
    *("broker_name", "role", "address", "version", "put_tps", "get_tps"),
    *("put_today", "get_today", "disk_percent", "booted", "problem"),
)
NAME_SERVER_COLUMNS = ("address", "brokers", "problem")


@click.group(
    "cluster",
    cls=Group,
    examples=(Example("All servers", "cometmq cluster describe", needs_cluster=True),),
)
def command() -> None:
    """Clusters: which servers there are and how they are doing."""


@command.command(
    "ls",
    cls=Command,
    examples=(Example("Which clusters are there?", "cometmq cluster ls", needs_cluster=True),),
)
@cluster_options
@pass_frame
def ls_command(frame: Frame) -> None:
    """List the clusters that the name servers know."""
    brokers = ask(frame, lambda admin: admin.brokers.list())
    names = sorted({broker.cluster for broker in brokers})
    rows: list[Record] = []
    for name in names:
        own = [broker for broker in brokers if broker.cluster == name]
        rows.append(
            {
                "name": name,
                "broker_names": len({broker.broker_name for broker in own}),
                "masters": sum(broker.is_master for broker in own),
                "slaves": sum(not broker.is_master for broker in own),
            }
        )
    frame.show_rows(rows, columns=("name", "broker_names", "masters", "slaves"))
    if not rows:
        frame.note("no broker is registered with the name server")


@command.command(
    "describe",
    cls=Command,
    examples=(
        Example("All servers", "cometmq cluster describe", needs_cluster=True),
        Example(
            "All that brokers tell, for a script",
            "cometmq cluster describe DefaultCluster -o json",
            needs_cluster=True,
        ),
    ),
)
@click.argument("name", required=False)
@cluster_options
@pass_frame
def describe_command(frame: Frame, /, name: str | None) -> None:
    """All servers of a cluster and how they are doing.

    Those of the cluster NAME, or of all. Rates are messages per second over the last ten seconds;
    put_today and get_today count since midnight. With -o json a broker's "values" are all it tells
    about itself, by RocketMQ's keys.
    """

    async def work(admin: "Admin") -> "tuple[Cluster, tuple[BrokerState, ...]]":
        cluster = await admin.cluster()
        if name is not None:
            await admin.brokers.list(cluster=name)  # says so when there is none
        return cluster, tuple(b for b in cluster.brokers if name in (None, b.cluster))

    cluster, brokers = ask(frame, work)
    show_thing(
        frame,
        {"clusters": [one for one in cluster.clusters if name in (None, one)]},
        [
            Section(
                name="name_servers", rows=name_server_rows(cluster), columns=NAME_SERVER_COLUMNS
            ),
            Section(
                name="brokers",
                rows=[{**broker_row(frame, one), "values": dict(one.values)} for one in brokers],
                columns=BROKER_COLUMNS,
                colours={"role": {"master": "green"}},
            ),
        ],
    )


def name_server_rows(cluster: "Cluster") -> list[Record]:
    """Name servers as records."""
    return [
        {"address": one.address, "brokers": one.broker_count, "problem": one.problem or None}
        for one in cluster.name_servers
    ]


def broker_row(frame: Frame, state: "BrokerState") -> dict[str, Any]:
    """A broker and how it is doing, as a record."""
    return {
        "cluster": state.cluster,
        "broker_name": state.broker_name,
        "broker_id": state.broker_id,
        "role": "master" if state.is_master else "slave",
        "address": state.address,
        "version": state.version or None,
        "is_active": state.is_active,
        "put_tps": _rounded(state.put_tps),
        "get_tps": _rounded(state.get_tps),
        "put_today": state.put_today_count,
        "get_today": state.get_today_count,
        "put_yesterday": state.put_yesterday_count,
        "get_yesterday": state.get_yesterday_count,
        "disk_percent": None if state.disk_ratio is None else round(state.disk_ratio * 100, 1),
        "log_min_offset": state.log_min_offset,
        "log_max_offset": state.log_max_offset,
        "dispatch_behind_bytes": state.dispatch_behind_bytes,
        "unflushed_bytes": state.unflushed_bytes,
        "booted": time_field(frame, state.booted_ms),
        "earliest_message": time_field(frame, state.earliest_message_ms),
        "problem": state.problem or None,
    }


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 2)
