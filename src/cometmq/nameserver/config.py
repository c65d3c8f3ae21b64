"""How a name server is set up: Apache's keys, those that do something here and those that do not.

Connections, TLS and stopping are set by ``cometmq.remoting.config``; a name server's file holds the
keys of all of them.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from cometmq.remoting.config import NO_POOLS
from cometmq.settings import InertKey, Settings, setting, settings_class

ALWAYS_REFUSED = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")
"""Keys that cannot be changed while the server runs, whatever ``configBlackList`` says."""


_INERT_KEYS: Mapping[str, InertKey] = MappingProxyType(
    {
        "clientRequestThreadPoolNums": InertKey("8", NO_POOLS),
        "clientRequestThreadPoolQueueCapacity": InertKey("50000", NO_POOLS),
        "defaultThreadPoolNums": InertKey("16", NO_POOLS),
        "defaultThreadPoolQueueCapacity": InertKey("10000", NO_POOLS),
        "enableControllerInNamesrv": InertKey("false", "the controller is not part of CometMQ"),
        "unRegisterBrokerQueueCapacity": InertKey("3000", "a broker that leaves waits for nobody"),
    }
)


@settings_class
class NameServerSettings(Settings):
    """What the name server itself does."""

    accepted_without_effect: ClassVar[Mapping[str, InertKey]] = _INERT_KEYS

    rocketmq_home: Path | None = setting(
        None,
        environment=("ROCKETMQ_HOME",),
        doc="Installation directory of Apache RocketMQ; shown to who asks, needed for nothing.",
    )
    kv_config_path: Path = setting(
        factory=lambda: Path.home() / "namesrv" / "kvConfig.json",
        shown="~/namesrv/kvConfig.json",
        doc="File that keeps the settings by namespace.",
    )
    config_store_path: Path = setting(
        factory=lambda: Path.home() / "namesrv" / "namesrv.properties",
        shown="~/namesrv/namesrv.properties",
        doc="File that settings changed at run time are written to: that of -c, when given.",
    )
    config_black_list: tuple[str, ...] = setting(
        ("configBlackList", "configStorePath", "kvConfigPath"),
        doc="Keys that cannot be changed at run time, separated by semicolons.",
    )
    product_env_name: str = setting("center", doc="Name of the environment; shown to who asks.")
    cluster_test: bool = setting(False, doc="Whether this is a test cluster; shown to who asks.")
    order_message_enable: bool = setting(
        False, doc="Put the order configuration of a topic into its route."
    )
    return_order_topic_config_to_broker: bool = setting(
        True, doc="Tell a broker that registers the order configuration of all topics."
    )
    enable_all_topic_list: bool = setting(True, doc="Answer who asks for all topics.")
    enable_topic_list: bool = setting(
        True, doc="Answer who asks for the topics of a cluster or of units."
    )
    scan_not_active_broker_interval_ms: int = setting(
        10_000,
        key="scanNotActiveBrokerInterval",
        doc="Milliseconds between two looks for silent brokers.",
        minimum=1,
    )
    support_acting_master: bool = setting(
        False, doc="Show the lowest slave of a group without master as its master, for reading."
    )
    notify_min_broker_id_changed: bool = setting(
        False, doc="Tell the brokers of a group when its lowest id changes."
    )
    delete_topic_with_broker_registration: bool = setting(
        False, doc="Remove a broker's topics that are missing from its registration."
    )
    need_wait_for_service: bool = setting(
        False, doc="Answer no question for routes for a while after the start."
    )
    wait_seconds_for_service: int = setting(45, doc="How long that while is.", minimum=0)


@settings_class
class NameServerNetworkSettings(Settings):
    """Where the name server listens."""

    listen_port: int = setting(
        9876, doc="TCP port; 0 takes any that is free.", minimum=0, maximum=65535
    )
    bind_address: str = setting("0.0.0.0", doc="Address or host name to listen on.")  # noqa: S104


def refused_keys(settings: NameServerSettings, keys: Iterable[str]) -> tuple[str, ...]:
    """Those of ``keys`` that must not be changed at run time."""
    refused = {*ALWAYS_REFUSED, *settings.config_black_list}
    return tuple(key for key in keys if key in refused)
