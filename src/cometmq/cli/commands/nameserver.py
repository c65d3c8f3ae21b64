"""``cometmq nameserver``: run a name server."""

from pathlib import Path

import click

from cometmq.cli.command import Command, Example
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.settings_options import (
    file_options,
    properties_of,
    settings_options,
    show_settings,
)
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
@file_options(
    "Settings in RocketMQ's properties format; the file is also where changes are kept.",
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
    given = properties_of(file, path_key="configStorePath")
    config = NameServerConfig.load(file=given, environment=frame.environment, flags=flags)
    if is_printing:
        show_settings(frame, config)
    else:
        run(lambda: NameServer(config))
