"""``cometmq version``: what is installed here."""

import click

from cometmq._version import __version__
from cometmq.cli.command import Command, Example
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.machine import this_machine


@click.command(
    "version",
    cls=Command,
    examples=(
        Example("For a bug report", "cometmq version"),
        Example("Which core is in use?", "cometmq version -o plain | grep core"),
    ),
)
@pass_frame
def command(frame: Frame) -> None:
    """Show the version and what it runs on.

    The core is "compiled" or "plain": the same functions, fast or in Python. The packages are
    optional; those that are missing have no version.
    """
    machine = this_machine()
    python = ".".join(map(str, machine.python))
    frame.show_record(
        {
            "version": __version__,
            "python": f"{python} {machine.implementation}",
            "platform": machine.platform,
            "core": machine.core,
            **{name: package.version for name, package in machine.packages.items()},
        }
    )
