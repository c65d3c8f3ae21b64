"""Reading a settings class from flags, environment and file, and writing it back."""

import difflib
import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cometmq.settings._declare import Settings, describe
from cometmq.settings._row import Row

S = TypeVar("S", bound=Settings)

_NOTHING: Mapping[str, Any] = {}


class Origin(enum.StrEnum):
    """Where a value came from, strongest first."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """Settings and, by field name, where each value came from."""

    settings: S
    origins: Mapping[str, Origin]


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """A key of a file that no settings class knows, and the one that was probably meant."""

    key: str
    suggestion: str | None

    def __str__(self) -> str:
        hint = f" (did you mean '{self.suggestion}'?)" if self.suggestion else ""
        return f"unknown setting '{self.key}' is ignored{hint}"


@dataclass(frozen=True, slots=True)
class KeyReview:
    """What a file says to nobody: unknown keys, and known ones (key to reason) without effect."""

    unknown: tuple[UnknownKey, ...]
    without_effect: Mapping[str, str]


def load(
    cls: type[S],
    *,
    flags: Mapping[str, object] = _NOTHING,
    environment: Mapping[str, str] = _NOTHING,
    file: Mapping[str, str] = _NOTHING,
    base: S | None = None,
) -> Loaded[S]:
    """Build a ``cls`` from all sources; the first of flags, environment, file, default wins.

    ``flags`` is by field name, None meaning "not given"; texts among them are parsed. An empty
    environment variable counts as not set. ``base`` replaces the defaults. Raises
    ``SettingsError`` for an impossible value, naming it as the user wrote it. Keys of ``file``
    that belong to other classes are not looked at: that is ``review_keys``.
    """
    rows = describe(cls)
    assert flags.keys() <= {row.name for row in rows}, sorted(flags)
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for row in rows:
        origin, called, value = _find(row, flags, environment, file)
        origins[row.name] = origin
        if origin is not Origin.DEFAULT:
            values[row.name] = _checked(row, value, called)
        elif base is not None:
            values[row.name] = getattr(base, row.name)
    return Loaded(cls(**values), origins)


def _find(
    row: Row, flags: Mapping[str, object], environment: Mapping[str, str], file: Mapping[str, str]
) -> tuple[Origin, str, object]:
    if flags.get(row.name) is not None:
        return Origin.FLAG, row.option, flags[row.name]
    for variable in row.variables:
        if environment.get(variable):
            return Origin.ENVIRONMENT, variable, environment[variable]
    if row.key in file:
        return Origin.FILE, row.key, file[row.key]
    return Origin.DEFAULT, "", None


def _checked(row: Row, value: object, called: str) -> Any:
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        return row.parse(value, called=called)
    row.check(value, called=called)
    return value


def review_keys(keys: Iterable[str], *classes: type[Settings]) -> KeyReview:
    """Sort out the ``keys`` of a file that is read by all of ``classes``."""
    effective = {row.key for cls in classes for row in describe(cls)}
    without_effect = {
        key: inert.reason for cls in classes for key, inert in cls.accepted_without_effect.items()
    }
    keys = tuple(keys)
    candidates = {key.lower(): key for key in [*without_effect, *sorted(effective)]}
    unknown = (key for key in keys if key not in effective and key not in without_effect)
    return KeyReview(
        unknown=tuple(UnknownKey(key, _suggestion(key, candidates)) for key in unknown),
        without_effect={
            key: without_effect[key]
            for key in keys
            if key in without_effect and key not in effective
        },
    )


def _suggestion(key: str, candidates: Mapping[str, str]) -> str | None:
    close = difflib.get_close_matches(key.lower(), candidates, n=1)
    return candidates[close[0]] if close else None


def as_properties(settings: Settings) -> dict[str, str]:
    """``settings`` by RocketMQ key, as a properties file would hold them; secrets are left out."""
    rows = describe(type(settings))
    return {row.key: row.text(getattr(settings, row.name)) for row in rows if not row.secret}
