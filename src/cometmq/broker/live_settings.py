"""All settings of one broker process, as they are now and as its file keeps them.

A change from outside is written to the file first, if the broker was started with one. Then it
takes effect, at once for the keys in ``LIVE_KEYS`` and with the next start for all others. What is
impossible is refused as a whole, and nothing has changed.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from cometmq.broker.broker_config import CLASSES, BrokerConfig, refuse_unsafe
from cometmq.broker.identity import Resolve, require_usable
from cometmq.clock import Clock
from cometmq.codec import java_properties
from cometmq.errors import SettingsError
from cometmq.model.topic import DataVersion
from cometmq.saved_file import DiskFiles, Files
from cometmq.settings import Row, Settings, describe, load, review_keys, shown_properties
from cometmq.store.retention import Retention

LIVE_KEYS: Final = frozenset(
    {
        # What topics, groups and clients ask each time.
        "autoCreateTopicEnable",
        "autoCreateSubscriptionGroup",
        "notifyConsumerIdsChangedEnable",
        "channelExpiredTimeout",
        "storeReplyMessageEnable",
        "useServerSideResetOffset",
        # What pulls ask each time.
        "litePullMessageEnable",
        "longPollingEnable",
        "shortPollingTimeMills",
        "slaveReadEnable",
        "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInMemory",
        "maxTransferBytesOnMessageInDisk",
        "maxTransferCountOnMessageInDisk",
        # What the store asks each time it flushes or cleans.
        "flushIntervalCommitLog",
        "flushCommitLogLeastPages",
        "flushCommitLogThoroughInterval",
        "flushIntervalConsumeQueue",
        "flushConsumeQueueLeastPages",
        "flushConsumeQueueThoroughInterval",
        "commitIntervalCommitLog",
        "commitCommitLogLeastPages",
        "commitCommitLogThoroughInterval",
        "fileReservedTime",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio",
        "diskSpaceWarningLevelRatio",
        "diskFreeBytesEnough",
        "cleanFileForciblyEnable",
        "cleanResourceInterval",
        "deleteFileBatchMax",
        "dispatchRecordsMax",
    }
)
"""Keys that take effect while the broker runs; ``on_change`` is who sees to it."""

ALWAYS_REFUSED: Final = frozenset(
    {
        "configBlackList",
        "brokerConfigPath",
        "storePathCommitLog",
        "readOnlyCommitLogStorePaths",
        "rocketmqHome",
        "bindAddress",
        "healthAddress",
        "healthPort",
    }
)
"""Keys that nobody changes from afar, whatever the file says: where files lie, who gets in, and
this list. So are secrets, paths, and all about TLS."""

_REFUSED_PREFIX: Final = "tls."


class Change(msgspec.Struct, frozen=True):
    """What became of a change: keys in effect, for the next start, without effect here."""

    applied: tuple[str, ...] = ()
    after_restart: tuple[str, ...] = ()
    without_effect: tuple[str, ...] = ()
    is_kept: bool = True

    @property
    def remark(self) -> str:
        """What whoever asked for it has to know; empty when everything is as expected."""
        parts = []
        if self.after_restart:
            parts.append(f"takes effect after a restart: {', '.join(self.after_restart)}")
        if self.without_effect:
            parts.append(f"has no effect here: {', '.join(self.without_effect)}")
        if not self.is_kept:
            parts.append("forgotten with the next start: the broker was started without -c")
        return "; ".join(parts)

    def __str__(self) -> str:
        return "; ".join(filter(None, (", ".join(self.applied), self.remark))) or "nothing"


class LiveSettings:
    """The settings of a running broker; one loop owns them.

    ``facts`` are values that the broker found out by itself, such as its address. Whoever is in
    ``on_change`` gets the settings that are in effect from now on.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        *,
        facts: Mapping[str, str] | None = None,
        files: Files | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        self.config = config
        self._resolve = resolve
        self.on_change: list[Callable[[BrokerConfig], None]] = []
        self.version = DataVersion(0, 0, clock.now_ms())
        self._clock = clock
        self._facts = dict(facts or {})
        self._files = files or DiskFiles()
        # What is not in effect but will be, by key.
        self._for_next_start: dict[str, str] = {}

    def refused(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Those of ``keys`` that must not be changed from outside."""
        refused = {*ALWAYS_REFUSED, *self.config.broker.config_black_list, *_SENSITIVE}
        return tuple(key for key in keys if key in refused or key.startswith(_REFUSED_PREFIX))

    def check(self, changes: Mapping[str, str]) -> Change:
        """What a change would do. Raises SettingsError when it cannot be made."""
        review = review_keys(changes, *CLASSES)
        for unknown in review.unknown:
            hint = f"did you mean '{unknown.suggestion}'?" if unknown.suggestion else ""
            raise SettingsError(unknown.key, "there is no such setting", hint)
        refuse_unsafe(changes)
        wanted = _with(self.config, changes)
        Retention(wanted.store)  # only to refuse hours that are none
        in_effect, texts = {**_texts(self.config), **self._facts}, _texts(wanted)
        differing = [key for key in changes if key in texts and texts[key] != in_effect.get(key)]
        return Change(
            applied=tuple(key for key in changes if key in LIVE_KEYS),
            after_restart=tuple(key for key in differing if key not in LIVE_KEYS),
            without_effect=tuple(review.without_effect),
            is_kept=self._path is not None,
        )

    def look_up(self, changes: Mapping[str, str]) -> None:
        """The part of ``check`` that blocks: raises SettingsError for an address that is none."""
        if (host := changes.get("brokerIP1")) is not None:
            require_usable(host, self._resolve)

    def save(self, changes: Mapping[str, str]) -> None:
        """Write changes to the file that the next start reads; blocks, OSError as it comes."""
        if self._path is not None:
            # The file itself, not a link to it, which would be replaced.
            path = self._path.resolve()
            self._files.replace(
                path, java_properties.changed(self._files.read(path) or b"", changes)
            )

    def apply(self, changes: Mapping[str, str]) -> None:
        """Have changes that were checked take effect, as far as they can."""
        live = {key: value for key, value in changes.items() if key in LIVE_KEYS}
        texts = _texts(_with(self.config, changes))
        inert = {key: value for key, value in changes.items() if key not in texts}
        config = _with(self.config, live)
        self.config = dataclasses.replace(config, given={**config.given, **live, **inert})
        later = {key: texts[key] for key in changes if key in texts and key not in live}
        self._for_next_start |= later
        self.version = self.version.advanced(self._clock.now_ms())
        for listener in self.on_change:
            listener(self.config)

    def shown(self) -> dict[str, str]:
        """All keys with their values, those of the next start included; no secrets."""
        shown = shown_properties(self.config.given, *self.config.parts)
        return dict(sorted({**shown, **self._facts, **self._for_next_start}.items()))

    @property
    def _path(self) -> Path | None:
        return self.config.broker.config_store_path


def _sensitive() -> frozenset[str]:
    rows = [row for part in CLASSES for row in describe(part)]
    inert = {
        key for part in CLASSES for key, it in part.accepted_without_effect.items() if it.secret
    }
    return frozenset(row.key for row in rows if row.secret or _is_path(row)) | inert


def _is_path(row: Row) -> bool:
    return isinstance(row.kind, type) and issubclass(row.kind, Path)


_SENSITIVE: Final = _sensitive()
"""Secrets would cross the network and lie in logs; a path could make us read or write anything."""


def _with(config: BrokerConfig, changes: Mapping[str, str]) -> BrokerConfig:
    """The same with other values. Raises SettingsError for an impossible one."""
    parts: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        part = getattr(config, field.name)
        if isinstance(part, Settings):
            parts[field.name] = load(type(part), file=changes, base=part).settings
    return dataclasses.replace(config, **parts)


def _texts(config: BrokerConfig) -> dict[str, str]:
    """All settings that do something here by key, as a file has them."""
    return {
        row.key: row.text(getattr(part, row.name))
        for part in config.parts
        for row in describe(type(part))
    }
