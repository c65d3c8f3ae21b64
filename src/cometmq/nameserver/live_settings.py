"""All settings of one name server process, as they are now and as they are kept.

A change from outside takes effect at once where the name server itself is concerned; what the
network was set up with (ports, TLS, limits) is kept for the next start and said so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from cometmq.codec import java_properties
from cometmq.nameserver.config import (
    NameServerNetworkSettings,
    NameServerSettings,
    refused_keys,
)
from cometmq.nameserver.kv_config import DiskFiles, Files
from cometmq.remoting.config import (
    ChannelSettings,
    HealthSettings,
    ServerSettings,
    TlsServerSettings,
)
from cometmq.settings import Bundle, describe, load, shown_properties


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig(Bundle):
    """What a name server is built from."""

    nameserver: NameServerSettings = field(default_factory=NameServerSettings)
    network: NameServerNetworkSettings = field(default_factory=NameServerNetworkSettings)
    channel: ChannelSettings = field(default_factory=ChannelSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    tls: TlsServerSettings = field(default_factory=TlsServerSettings)
    health: HealthSettings = field(default_factory=HealthSettings)


CLASSES = NameServerConfig.classes()
"""Everything a name server's file may set."""


class Update(msgspec.Struct, frozen=True):
    """What became of a change: keys in effect, keys for the next start, keys nobody knows."""

    applied: tuple[str, ...]
    after_restart: tuple[str, ...]
    unknown: tuple[str, ...]

    def __str__(self) -> str:
        parts = [", ".join(self.applied) or "nothing"]
        if self.after_restart:
            parts.append(f"after a restart: {', '.join(self.after_restart)}")
        if self.unknown:
            parts.append(f"unknown and ignored: {', '.join(self.unknown)}")
        return "; ".join(parts)


class LiveSettings:
    """The settings of a running name server; one loop owns them."""

    def __init__(self, config: NameServerConfig, files: Files | None = None) -> None:
        self._config = config
        self._nameserver = config.nameserver
        self._changed: dict[str, str] = {}  # for the next start
        self._files = files or DiskFiles()

    @property
    def nameserver(self) -> NameServerSettings:
        return self._nameserver

    def refused(self, keys: Mapping[str, str]) -> tuple[str, ...]:
        """Those of ``keys`` that must not be changed from outside."""
        return refused_keys(self._nameserver, keys)

    def update(self, changes: Mapping[str, str]) -> Update:
        """Take changes over; SettingsError, and nothing changed, for an impossible value."""
        own = {row.key for row in describe(NameServerSettings)}
        others = {row.key for part in CLASSES[1:] for row in describe(part)}
        inert = {key for part in CLASSES for key in part.accepted_without_effect}
        updated = load(NameServerSettings, file=changes, base=self._nameserver).settings
        for part, current in zip(CLASSES[1:], self._config.parts[1:], strict=True):
            load(part, file=changes, base=current)  # only to refuse what is impossible
        self._nameserver = updated
        kept = {key: value for key, value in changes.items() if key in others | inert}
        self._changed |= kept
        return Update(
            tuple(key for key in changes if key in own),
            tuple(kept),
            tuple(key for key in changes if key not in own | others | inert),
        )

    def as_properties(self) -> dict[str, str]:
        """All keys with their values, those of the next start included."""
        parts = (self._nameserver, *self._config.parts[1:])
        return {**shown_properties(self._config.given, *parts), **self._changed}

    def save(self) -> None:
        """Write the file that the next start reads; blocks."""
        content = java_properties.dumps(self.as_properties())
        self._files.replace(self._nameserver.config_store_path, content)
