"""How a settings class is written, and the table made of it."""

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform, overload

from cometmq.settings._row import Row

_METADATA = "cometmq.setting"

T = TypeVar("T")


class InertKey(NamedTuple):
    """A key that changes nothing here: what Apache has for it, and why it does nothing.

    What a file says for a ``secret`` one is not shown.
    """

    default: str
    reason: str
    secret: bool = False


class Settings:
    """Base of every settings class, which is made with ``@settings_class`` of ``setting`` fields.

    Values are checked on construction too, so an instance never holds an impossible one. A class
    with a rule across fields extends ``__post_init__`` and raises ``SettingsError`` itself.
    """

    __slots__ = ()

    prefix: ClassVar[str] = ""
    """Stands before the field's name in key, variable and option: ``log`` makes ``--log-level``."""

    accepted_without_effect: ClassVar[Mapping[str, InertKey]] = {}
    """RocketMQ keys that may stand in a file and change nothing here."""

    def __post_init__(self) -> None:
        for row in describe(type(self)):
            row.check(getattr(self, row.name), called=row.name)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings_class(cls: type[T]) -> type[T]:
    """Make a frozen dataclass with slots and keyword-only fields."""
    return dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)


@overload
def setting(
    default: T,
    *,
    doc: str,
    key: str = ...,
    environment: Sequence[str] = ...,
    minimum: float | None = ...,
    maximum: float | None = ...,
    separator: str = ...,
    secret: bool = ...,
) -> T: ...


@overload
def setting(
    *,
    factory: Callable[[], T],
    shown: str,
    doc: str,
    key: str = ...,
    environment: Sequence[str] = ...,
    minimum: float | None = ...,
    maximum: float | None = ...,
    separator: str = ...,
    secret: bool = ...,
) -> T: ...


def setting(
    default: Any = dataclasses.MISSING,
    *,
    factory: Any = dataclasses.MISSING,
    secret: bool = False,
    **facts: Any,
) -> Any:
    """A field of a settings class.

    ``key`` is RocketMQ's name for it (default: the field's own name in camel case);
    ``environment`` names further variables that are read, after ``COMETMQ_…``; ``separator``
    splits a tuple. A default that depends on the machine comes from ``factory`` and appears in
    help and reference as ``shown``. A ``secret`` is never printed.
    """
    metadata = {_METADATA: {**facts, "secret": secret}}
    if factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=factory, repr=not secret, metadata=metadata)
    return dataclasses.field(default=default, repr=not secret, metadata=metadata)


def describe(cls: type[Settings]) -> tuple[Row, ...]:
    """One row per setting of ``cls``, in the order of the class."""
    assert dataclasses.is_dataclass(cls), f"{cls.__name__} is not a dataclass"
    hints = typing.get_type_hints(cls)
    return tuple(_row(cls, spec, hints[spec.name]) for spec in dataclasses.fields(cls))


def _row(cls: type[Settings], spec: "dataclasses.Field[Any]", hint: Any) -> Row:
    assert _METADATA in spec.metadata, f"{cls.__name__}.{spec.name} is not made with setting()"
    facts = dict(spec.metadata[_METADATA])
    full_name = f"{cls.prefix}_{spec.name}" if cls.prefix else spec.name
    first, *rest = full_name.split("_")
    has_factory = spec.default_factory is not dataclasses.MISSING
    return Row(
        name=spec.name,
        type=hint,
        key=facts.pop("key", first + "".join(word.capitalize() for word in rest)),
        option="--" + full_name.replace("_", "-"),
        variables=(f"COMETMQ_{full_name.upper()}", *facts.pop("environment", ())),
        default=None if has_factory else spec.default,
        **facts,
    )
