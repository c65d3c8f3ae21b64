"""``cometmq nameserver kv`` and ``nameserver config``: what name servers that run have kept.

Name servers do not talk to each other: a change is made on all of them.
"""

from typing import TYPE_CHECKING

import click

from cometmq.cli.assignments import assignments, wanted_values
from cometmq.cli.command import Command, Example, Group
from cometmq.cli.confirm import confirm, destroying, dry_run_option
from cometmq.cli.connection import ask, cluster_options
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.output import Record

if TYPE_CHECKING:
    from cometmq.admin import Admin

_ORDER = "ORDER_TOPIC_CONFIG"


@click.group(
    "kv",
    cls=Group,
    examples=(Example("Ordered topics", f"cometmq nameserver kv ls {_ORDER}", needs_cluster=True),),
)
def kv_command() -> None:
    """Values that name servers keep, by NAMESPACE and KEY.

    RocketMQ itself keeps the queues of ordered topics there, in the namespace ORDER_TOPIC_CONFIG.
    """


@kv_command.command(
    "ls",
    cls=Command,
    examples=(Example("Ordered topics", f"cometmq nameserver kv ls {_ORDER}", needs_cluster=True),),
)
@click.argument("namespace")
@cluster_options
@pass_frame
def ls_command(frame: Frame, /, namespace: str) -> None:
    """All values of a namespace."""
    values = ask(frame, lambda admin: admin.name_servers.values(namespace))
    rows: list[Record] = [
        {"namespace": namespace, "key": key, "value": value} for key, value in values.items()
    ]
    frame.show_rows(rows, columns=("key", "value"))
    if not rows:
        frame.note(f"nobody has written anything into namespace '{namespace}'")


@kv_command.command(
    "get",
    cls=Command,
    examples=(
        Example(
            "One value",
            "cometmq nameserver kv set APP colour blue && cometmq nameserver kv get APP colour",
            needs_cluster=True,
        ),
    ),
)
@click.argument("namespace")
@click.argument("key")
@cluster_options
@pass_frame
def get_command(frame: Frame, /, namespace: str, key: str) -> None:
    """One value."""
    value = ask(frame, lambda admin: admin.name_servers.value(namespace, key))
    frame.show_record({"namespace": namespace, "key": key, "value": value})


@kv_command.command(
    "set",
    cls=Command,
    examples=(Example("Write", "cometmq nameserver kv set APP colour blue", needs_cluster=True),),
)
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
@dry_run_option
@cluster_options
@pass_frame
def set_command(frame: Frame, /, namespace: str, key: str, value: str, is_dry_run: bool) -> None:
    """Write a value on every name server."""

    async def work(admin: "Admin") -> str | None:
        before = await admin.name_servers.find_value(namespace, key)
        if not is_dry_run:
            await admin.name_servers.set_value(namespace, key, value)
        return before

    before = ask(frame, work)
    frame.show_record(
        {
            "namespace": namespace,
            "key": key,
            "before": before,
            "after": value,
            "is_done": not is_dry_run,
        }
    )


@kv_command.command(
    "delete",
    cls=Command,
    examples=(
        Example(
            "Away with it",
            "cometmq nameserver kv set APP old 1 && cometmq nameserver kv delete APP old --yes",
            needs_cluster=True,
        ),
    ),
)
@click.argument("namespace")
@click.argument("key")
@destroying
@cluster_options
@pass_frame
def delete_command(
    frame: Frame, /, namespace: str, key: str, is_dry_run: bool, is_sure: bool
) -> None:
    """Delete a value on every name server."""
    value = ask(frame, lambda admin: admin.name_servers.value(namespace, key))
    if not is_dry_run:
        confirm(frame, f"delete {namespace}/{key} (it is '{value}')", is_sure=is_sure)
        ask(frame, lambda admin: admin.name_servers.delete_value(namespace, key))
    frame.show_record(
        {"namespace": namespace, "key": key, "value": value, "is_deleted": not is_dry_run}
    )


@click.group(
    "config",
    cls=Group,
    examples=(
        Example("What are they set to?", "cometmq nameserver config get", needs_cluster=True),
    ),
)
def config_command() -> None:
    """The settings of name servers that run."""


@config_command.command(
    "get",
    cls=Command,
    examples=(
        Example("All of them", "cometmq nameserver config get", needs_cluster=True),
        Example("One", "cometmq nameserver config get listenPort -o json", needs_cluster=True),
    ),
)
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option("--server", metavar="ADDRESS", help="Of this name server; without it of each.")
@cluster_options
@pass_frame
def get_config_command(frame: Frame, /, keys: tuple[str, ...], server: str | None) -> None:
    """Settings of every name server, or of one; all or some."""
    configs = ask(frame, lambda admin: admin.name_servers.config(server))
    rows: list[Record] = [
        {"key": key, "value": value, "server": config.address}
        for config in configs
        for key, value in wanted_values(config.values, keys, config.address).items()
    ]
    columns = ("key", "value") if len(configs) == 1 else ("key", "value", "server")
    frame.show_rows(rows, columns=columns)


@config_command.command(
    "set",
    cls=Command,
    examples=(
        Example(
            "Tell clients the order of topics",
            "cometmq nameserver config set orderMessageEnable=true",
            needs_cluster=True,
        ),
    ),
)
@click.argument("changes", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option("--server", metavar="ADDRESS", help="On this name server only.")
@dry_run_option
@cluster_options
@pass_frame
def set_config_command(
    frame: Frame, /, changes: tuple[str, ...], server: str | None, is_dry_run: bool
) -> None:
    """Change settings of every name server, or of one, while they run.

    Nothing is changed when one of them does not have such a setting.
    """
    wanted = assignments(changes)

    async def work(admin: "Admin") -> dict[str, dict[str, str]]:
        before = {one.address: one.values for one in await admin.name_servers.config(server)}
        for address, values in before.items():
            wanted_values(values, tuple(wanted), address)  # servers themselves accept every key
        if not is_dry_run:
            await admin.name_servers.set_config(wanted, server)
        return before

    rows: list[Record] = [
        {
            "key": key,
            "before": values.get(key),
            "after": value,
            "server": address,
            "is_done": not is_dry_run,
        }
        for address, values in ask(frame, work).items()
        for key, value in wanted.items()
    ]
    frame.show_rows(rows, columns=("key", "before", "after", "server", "is_done"))
