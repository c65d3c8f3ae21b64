"""``cometmq nameserver``: run a name server."""

from pathlib import Path

import click

from cometmq.cli.command import Command, Example
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.settings_options import read_properties, settings_options, show_settings
from cometmq.logs import LogLevel
from cometmq.nameserver.app import NameServer
from cometmq.nameserver.config import NameServerNetworkSettings, NameServerSettings
from cometmq.nameserver.live_settings import NameServerConfig
from cometmq.remoting.config import (
    ChannelSettings,
    HealthSettings,
    ServerSettings,
    TlsServerSettings,
)
from cometmq.remoting.running import run


@click.command(
    "nameserver",
    cls=Command,
    log_level=LogLevel.INFO,
    examples=(
        Example("On the usual port", "cometmq nameserver", stays_up=True),
        Example("What would be in effect?", "cometmq nameserver --listen-port 9877 -p"),
    ),
)
@click.option(
    "-c",
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings in RocketMQ's properties format; the file is also where changes are kept.",
)
@click.option(
    "-p", "--print-settings", "is_printing", is_flag=True, help="Print all settings and exit."
)
@settings_options(
    NameServerNetworkSettings,
    HealthSettings,
    NameServerSettings,
    TlsServerSettings,
    ServerSettings,
    ChannelSettings,
)
@pass_frame
def command(frame: Frame, /, file: Path | None, is_printing: bool, **flags: str | None) -> None:
    """Run a name server until it is told to stop.

    SIGTERM and SIGINT tell it. Brokers register with it and clients ask it where topics are. All
    of Apache's settings are accepted; -p shows them with their values and names those that have no
    effect here.
    """
    given = dict(read_properties(file))
    if file is not None:
        given.setdefault("configStorePath", str(file.absolute()))
    config = NameServerConfig.load(file=given, environment=frame.environment, flags=flags)
    if is_printing:
        show_settings(frame, config)
    else:
        run(lambda: NameServer(config))
