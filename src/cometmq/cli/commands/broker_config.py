"""``cometmq broker config``: the settings of brokers that run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.assignments import assignments, wanted_values
from cometmq.cli.command import Command, Example, Group
from cometmq.cli.completion import complete_brokers
from cometmq.cli.confirm import dry_run_option
from cometmq.cli.connection import ask, cluster_options
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.output import Record

if TYPE_CHECKING:
    from cometmq.admin import Admin
    from cometmq.admin.brokers import ConfigChange


@click.group(
    "config",
    cls=Group,
    examples=(
        Example(
            "How long are messages kept?",
            "cometmq broker config get fileReservedTime",
            needs_cluster=True,
        ),
    ),
)
def command() -> None:
    """The settings of brokers that run."""


@command.command(
    "get",
    cls=Command,
    examples=(
        Example("All of them", "cometmq broker config get", needs_cluster=True),
        Example(
            "Two of them",
            "cometmq broker config get brokerName fileReservedTime",
            needs_cluster=True,
        ),
    ),
)
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option(
    "--broker",
    metavar="NAME",
    shell_complete=complete_brokers,
    help="Of this broker, by name or address; needed when there are several.",
)
@cluster_options
@pass_frame
def get_command(frame: Frame, /, keys: tuple[str, ...], broker: str | None) -> None:
    """The settings of a broker, all of them or some."""

    async def work(admin: "Admin") -> tuple[str, dict[str, str]]:
        name = broker or await _only_broker(admin)
        config = await admin.brokers.config(name)
        return config.address, wanted_values(config.values, keys, config.address)

    address, values = ask(frame, work)
    rows: list[Record] = [
        {"key": key, "value": value, "server": address} for key, value in values.items()
    ]
    frame.show_rows(rows, columns=("key", "value"))


@command.command(
    "set",
    cls=Command,
    examples=(
        Example(
            "Keep messages for a week",
            "cometmq broker config set fileReservedTime=168",
            needs_cluster=True,
        ),
    ),
)
@click.argument("changes", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option(
    "--broker", metavar="NAME", shell_complete=complete_brokers, help="Of this broker only."
)
@click.option("--cluster", metavar="NAME", help="Of all masters of this cluster.")
@dry_run_option
@cluster_options
@pass_frame
def set_command(
    frame: Frame,
    /,
    changes: tuple[str, ...],
    broker: str | None,
    cluster: str | None,
    is_dry_run: bool,
) -> None:
    """Change settings of brokers while they run.

    Those of all masters of the cluster, or of the one that --broker names; nothing is changed when
    one of them does not have such a setting. CometMQ's brokers say what waits for a restart.
    Apache's accept a value that makes no sense and go on with the one of before; look with 'cometmq
    broker config get'.
    """
    wanted = assignments(changes)

    async def work(admin: "Admin") -> "tuple[dict[str, dict[str, str]], Sequence[ConfigChange]]":
        where: dict[str, Any] = {"broker": broker, "cluster": cluster}
        before = {}
        for place in await admin.brokers.set_config(wanted, **where, is_dry_run=True):
            config = await admin.brokers.config(place.address)
            wanted_values(config.values, tuple(wanted), config.address)  # Apache's accept every key
            before[config.address] = config.values
        if is_dry_run:
            return before, ()
        return before, await admin.brokers.set_config(wanted, **where)

    before, done = ask(frame, work)
    remarks = {change.address: change.remark for change in done}
    rows: list[Record] = [
        {
            "key": key,
            "before": values.get(key),
            "after": value,
            "server": address,
            "is_done": not is_dry_run,
            "remark": remarks.get(address) or None,
        }
        for address, values in before.items()
        for key, value in wanted.items()
    ]
    frame.show_rows(rows, columns=("key", "before", "after", "server", "is_done", "remark"))


async def _only_broker(admin: "Admin") -> str:
    from cometmq.errors import Ambiguous, NotFound

    names = sorted({broker.broker_name for broker in await admin.brokers.list()})
    if not names:
        raise NotFound("broker", "any", "is a broker registered?")
    if len(names) > 1:
        raise Ambiguous("broker", tuple(names))
    return names[0]
