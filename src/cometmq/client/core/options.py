"""How the settings of a client are declared: a default, limits, RocketMQ's name, a sentence."""

import dataclasses
from os import PathLike
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

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
    """The settings, all of their types and within their limits and choices.

    Raises SettingsError for the first that is not.
    """
    for field in dataclasses.fields(settings):  # type: ignore[arg-type]  # S is a dataclass
        about, value = option_of(field), getattr(settings, field.name)
        _check_kind(field.name, field.type, value)
        if value is None or about.minimum is None or value == about.special:
            continue
        if value < about.minimum or (about.maximum is not None and value > about.maximum):
            raise SettingsError(field.name, f"{value} is out of range", _range(about))
    return settings


def _check_kind(name: str, declared: Any, value: object) -> None:
    """Refuse what is of none of the types, and none of the words, that a setting is declared with.

    Text that looks like a number, and anything that Python takes for true, are not converted:
    ``"no"`` would mean yes.
    """
    kinds = get_args(declared) if _is_union(declared) else (declared,)
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if value in words or any(_is_of(kind, value) for kind in kinds):
        return
    if words:
        choices = " or ".join(map(repr, words)) + (", or a number" if int in kinds else "")
        raise SettingsError(name, f"{value!r} is no choice", f"it may be {choices}")
    wanted = " or ".join(_NAMES.get(_bare(kind), _OWN_KIND) for kind in kinds)
    raise SettingsError(name, f"{value!r} is of the wrong type", f"it must be {wanted}")


_NAMES: Final = {
    bool: "True or False",
    int: "a whole number",
    str: "text",
    PathLike: "a path",
    NoneType: "None",
}
_OWN_KIND: Final = "an object with the methods that its documentation names"


def _is_union(declared: Any) -> bool:
    return get_origin(declared) in (Union, UnionType)


def _is_of(kind: Any, value: object) -> bool:
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if _bare(kind) in _NAMES:
        return isinstance(value, _bare(kind))
    if get_origin(kind) is Literal:
        return False  # words are compared
    return _has_members(kind, value)


def _bare(kind: Any) -> Any:
    """A type without what it is of: ``PathLike`` for ``PathLike[str]``."""
    return get_origin(kind) or kind


def _has_members(protocol: Any, value: object) -> bool:
    """Whether an object, and not only its class, has what a protocol names."""
    members = (name for name in vars(protocol) if not name.startswith("_"))
    return not isinstance(value, type) and all(hasattr(value, name) for name in members)


def _range(about: Option) -> str:
    text = f"at least {about.minimum}"
    if about.maximum is not None:
        text = f"it may be {about.minimum} to {about.maximum}"
    return text if about.special is None else f"{text}, or {about.special} for no limit"
