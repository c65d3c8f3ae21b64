"""How the settings of a client are declared: a default, limits, RocketMQ's name, a sentence."""

import dataclasses
from typing import Any, Literal, TypeVar, get_args, get_origin

from cometmq.errors import SettingsError

S = TypeVar("S")


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """What is known of a setting besides its type; ``key`` is RocketMQ's name for it."""

    doc: str
    key: str = ""
    minimum: int | None = None
    maximum: int | None = None
    special: int | None = None
    """A value outside of the limits that is allowed, and means "no limit" or the like."""


def option(
    default: Any,
    doc: str,
    *,
    key: str = "",
    minimum: int | None = None,
    maximum: int | None = None,
    special: int | None = None,
) -> Any:
    """A field of a settings class."""
    about = Option(doc, key, minimum, maximum, special)
    return dataclasses.field(default=default, metadata={"option": about})


def option_of(field: "dataclasses.Field[Any]") -> Option:
    about = field.metadata["option"]
    assert isinstance(about, Option)
    return about


def checked(settings: S) -> S:
    """The settings, all within their limits and choices. Raises SettingsError for the first."""
    for field in dataclasses.fields(settings):  # type: ignore[arg-type]  # S is a dataclass
        about, value = option_of(field), getattr(settings, field.name)
        _check_choice(field.name, field.type, value)
        if value is None or about.minimum is None or value == about.special:
            continue
        if value < about.minimum or (about.maximum is not None and value > about.maximum):
            raise SettingsError(field.name, f"{value} is out of range", _range(about))
    return settings


def _check_choice(name: str, kind: Any, value: object) -> None:
    """Refuse a word that is none of those that the type of a setting names."""
    kinds = (kind,) if get_origin(kind) is Literal else get_args(kind)
    words = [word for one in kinds if get_origin(one) is Literal for word in get_args(one)]
    has_numbers = int in kinds
    if not words or value in words or (has_numbers and type(value) is int):
        return
    choices = " or ".join(map(repr, words)) + (", or a number" if has_numbers else "")
    raise SettingsError(name, f"{value!r} is no choice", f"it may be {choices}")


def _range(about: Option) -> str:
    text = f"at least {about.minimum}"
    if about.maximum is not None:
        text = f"it may be {about.minimum} to {about.maximum}"
    return text if about.special is None else f"{text}, or {about.special} for no limit"
