"""All settings of one broker process, and what of Apache's it must not take in silence."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cometmq.broker.config import BrokerNetworkSettings, BrokerSettings
from cometmq.errors import SettingsError
from cometmq.remoting.config import (
    ChannelSettings,
    HealthSettings,
    ServerSettings,
    TlsClientSettings,
    TlsServerSettings,
)
from cometmq.settings import Bundle
from cometmq.store.config import StoreSettings

_ACCESS_CONTROL = "access control is not there yet, so anyone could do anything"
_SAFE_VALUES: Mapping[str, tuple[str, str]] = {
    "aclEnable": ("false", _ACCESS_CONTROL),
    "authenticationEnabled": ("false", _ACCESS_CONTROL),
    "authorizationEnabled": ("false", _ACCESS_CONTROL),
    "enableControllerMode": ("false", "there is no controller to ask who is master"),
    "enableDLegerCommitLog": ("false", "a log that DLedger wrote is another format"),
    "enableLmq": ("false", "messages are put into one queue only"),
    "enableMultiDispatch": ("false", "messages are put into one queue only"),
    "storeType": ("default", "there is no other store than that of files"),
}
"""Keys without effect for which another value than this would break a promise, and which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(Bundle):
    """What a broker is built from."""

    broker: BrokerSettings = field(default_factory=BrokerSettings)
    network: BrokerNetworkSettings = field(default_factory=BrokerNetworkSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    channel: ChannelSettings = field(default_factory=ChannelSettings)
    # Old Java clients send to the port two below without having asked whether anyone listens.
    server: ServerSettings = field(default_factory=lambda: ServerSettings(is_vip_enabled=True))
    tls: TlsServerSettings = field(default_factory=TlsServerSettings)
    tls_client: TlsClientSettings = field(default_factory=TlsClientSettings)
    health: HealthSettings = field(default_factory=HealthSettings)

    def __post_init__(self) -> None:
        refuse_unsafe(self.given)
        if not self.store.delay_levels.split():
            raise SettingsError(
                "messageDelayLevel", "has no level", "write a delay for each level, as 1s 5s 10s"
            )
        if not self.store.deletion_hours:
            raise SettingsError("deleteWhen", "has no hour", "write 00 to 23, as 04;16")


def refuse_unsafe(given: Mapping[str, str]) -> None:
    """Raise SettingsError for a setting that has no effect here but must not be passed over."""
    for key, (safe, reason) in _SAFE_VALUES.items():
        value = given.get(key, safe).strip()
        if value.lower() not in (safe, ""):
            raise SettingsError(
                key, f"'{value}' is not possible: {reason}", f"use '{safe}', or Apache's broker"
            )


CLASSES = BrokerConfig.classes()
"""Everything a broker's file may set."""
