"""``cometmq broker``: run a broker in the foreground."""

from pathlib import Path

import click

from cometmq.broker.app import Broker
from cometmq.broker.broker_config import BrokerConfig
from cometmq.broker.config import BrokerNetworkSettings, BrokerSettings
from cometmq.cli.command import Command, Example
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
from cometmq.remoting.running import run
from cometmq.store.config import StoreSettings


@click.command(
    "broker",
    cls=Command,
    log_level=LogLevel.INFO,
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
@pass_frame
def command(frame: Frame, /, file: Path | None, is_printing: bool, **flags: str | None) -> None:
    """Run a broker until it is told to stop.

    SIGTERM and SIGINT tell it: it leaves the name servers, finishes what is in work and brings
    everything to disk. All of Apache's settings are accepted; -p shows them with their values and
    names those that have no effect here.
    """
    given = properties_of(file, path_key="brokerConfigPath")
    config = BrokerConfig.load(file=given, environment=frame.environment, flags=flags)
    if is_printing:
        show_settings(frame, config)
    else:
        run(lambda: Broker(config))
