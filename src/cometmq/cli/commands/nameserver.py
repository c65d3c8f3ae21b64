"""``cometmq nameserver``: run a name server, or ask and change those that run."""

from pathlib import Path

import click

from cometmq.cli.command import Example, Starter
from cometmq.cli.commands.nameserver_verbs import config_command, kv_command
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.settings_options import (
    file_options,
    properties_of,
    settings_options,
    show_settings,
)
from cometmq.logs import LogLevel
from cometmq.nameserver.config import NameServerNetworkSettings, NameServerSettings
from cometmq.nameserver.live_settings import NameServerConfig
from cometmq.remoting.config import (
    ChannelSettings,
    HealthSettings,
    ServerSettings,
    TlsServerSettings,
)


@click.group(
    "nameserver",
    cls=Starter,
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
@click.pass_context
@pass_frame
def command(
    frame: Frame,
    context: click.Context,
    /,
    file: Path | None,
    is_printing: bool,
    **flags: str | None,
) -> None:
    """Run a name server until it is told to stop.

    SIGTERM and SIGINT tell it. Brokers register with it and clients ask it where topics are. All
    of Apache's settings are accepted; -p shows them with their values and names those that have no
    effect here. The commands below are for name servers that run.
    """
    if context.invoked_subcommand:
        return
    frame.start_logs(LogLevel.INFO)
    given = properties_of(file, path_key="configStorePath")
    config = NameServerConfig.load(file=given, environment=frame.environment, flags=flags)
    if is_printing:
        show_settings(frame, config)
        return
    # The name server itself is imported only where one is to run.
    from cometmq.nameserver.app import NameServer
    from cometmq.remoting.running import run

    run(lambda: NameServer(config))


command.add_command(kv_command)
command.add_command(config_command)
