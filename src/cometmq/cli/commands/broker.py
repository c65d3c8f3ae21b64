"""``cometmq broker``: run a broker in the foreground, or ask and change one that runs."""

from pathlib import Path

import click

from cometmq.broker.broker_config import BrokerConfig
from cometmq.broker.config import BrokerNetworkSettings, BrokerSettings
from cometmq.cli.command import Example, Starter
from cometmq.cli.commands.broker_config import command as config_command
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.settings_options import (
    file_options,
    properties_of,
    settings_options,
    show_settings,
)
from cometmq.logs import LogLevel
from cometmq.remoting.config import (
    ChannelSettings,
    HealthSettings,
    ServerSettings,
    TlsClientSettings,
    TlsServerSettings,
)
from cometmq.store.config import StoreSettings


@click.group(
    "broker",
    cls=Starter,
    examples=(
        Example("With a name server on this machine", "cometmq broker -n 127.0.0.1:9876", True),
        Example("What would be in effect?", "cometmq broker --listen-port 10921 -p"),
    ),
)
@file_options(
    "Settings in RocketMQ's properties format, such as the broker.conf of Apache's broker.",
)
@settings_options(
    BrokerNetworkSettings,
    HealthSettings,
    BrokerSettings,
    StoreSettings,
    TlsServerSettings,
    TlsClientSettings,
    ServerSettings,
    ChannelSettings,
    letters={"namesrv_addr": "-n"},
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
    """Run a broker until it is told to stop.

    SIGTERM and SIGINT tell it: it leaves the name servers, finishes what is in work and brings
    everything to disk. All of Apache's settings are accepted; -p shows them with their values and
    names those that have no effect here. The command below is for brokers that run.
    """
    if context.invoked_subcommand:
        return
    frame.start_logs(LogLevel.INFO)
    given = properties_of(file, path_key="brokerConfigPath")
    config = BrokerConfig.load(file=given, environment=frame.environment, flags=flags)
    if is_printing:
        show_settings(frame, config)
        return
    # The broker itself is imported only where one is to run.
    from cometmq.broker.app import Broker
    from cometmq.remoting.running import run

    run(lambda: Broker(config))


command.add_command(config_command)
