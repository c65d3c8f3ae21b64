"""``{"$ref": path}`` in fastjson documents: noted while reading, put in place at the end.

The meaning of the relative references follows fastjson's writer (its reader has them crossed):
``@`` is the object or list that holds the reference, ``..`` is the one around that, ``$`` is the
whole document. A path goes down from there: ``$.table.name[0]``, with a backslash before every
character of a name that is neither letter nor digit.
"""

import re
from dataclasses import dataclass
from typing import Any, NoReturn

from cometmq.errors import RemoteProtocolError

_STEP = re.compile(
    r"\.((?:[^.\[\\]|\\.)+)|\[(\d{1,9})\]|\[\"([^\"]*)\"\]|\['([^']*)'\]", re.ASCII | re.DOTALL
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_INDEX = re.compile(r"-?\d{1,19}", re.ASCII)


class ObjectKey(dict[str, Any]):
    """A JSON object in key position: hashable, its members are text, numbers or booleans.

    ``msgspec.convert`` turns it into a frozen Struct as it does with any dict. Nobody changes one
    after it was made.
    """

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a reference stands: at ``holder[key]``, with ``outer`` around the holder."""

    path: str
    position: int
    holder: Any
    key: Any
    outer: Any


def is_reference(value: Any) -> bool:
    """Whether the object is nothing but a reference."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("$ref"), str)


def is_flat(members: dict[Any, Any]) -> bool:
    """Whether the object can be a key: neither objects nor lists inside."""
    return not any(isinstance(value, dict | list) for value in members.values())


def put_in_place(root: Any, reference: Reference) -> None:
    """Replace one reference by what it refers to; ``RemoteProtocolError`` if there is nothing.

    References must come in document order: one that leads to a later reference is refused, and
    fastjson never writes such a thing.
    """
    # The key may have come again with another value, and the last one counts.
    if is_reference(reference.holder[reference.key]):
        reference.holder[reference.key] = _target(root, reference)


def put_keys_in_place(root: Any, holder: dict[Any, Any], position: int) -> None:
    """Replace the references among the keys of ``holder``, keeping the order of its members."""
    members = [(_key_target(root, key, position), value) for key, value in holder.items()]
    holder.clear()
    holder.update(members)


def _target(root: Any, reference: Reference) -> Any:
    if reference.path == "@":
        return reference.holder
    if reference.path == "..":
        if reference.outer is None:
            _fail(reference.path, reference.position)
        return reference.outer
    return _follow(root, reference.path, reference.position)


def _key_target(root: Any, key: Any, position: int) -> Any:
    if not isinstance(key, ObjectKey) or not is_reference(key):
        return key
    target = _follow(root, key["$ref"], position)
    if not isinstance(target, dict) or not is_flat(target):
        _fail(key["$ref"], position)
    return ObjectKey(target)


def _follow(root: Any, path: str, position: int) -> Any:
    value, end = root, 1
    if path[:1] != "$":
        _fail(path, position)
    while end < len(path):
        step = _STEP.match(path, end)
        if step is None:
            _fail(path, position)
        try:
            value = _child(value, step)
        except LookupError:
            _fail(path, position)
        end = step.end()
    if is_reference(value):
        _fail(path, position)
    return value


def _child(value: Any, step: re.Match[str]) -> Any:
    escaped, index, *quoted = step.groups()
    name = next(filter(None, quoted), "") if escaped is None else _ESCAPED.sub(r"\1", escaped)
    if isinstance(value, list) and index is not None:
        return value[int(index)]
    if not isinstance(value, dict):
        raise LookupError(step.group())
    if index is not None:
        return value[int(index)]
    if name not in value and _INDEX.fullmatch(name):
        return value[int(name)]
    return value[name]


def _fail(path: str, position: int) -> NoReturn:
    raise RemoteProtocolError(f"JSON at position {position}: reference {path[:40]!r} leads nowhere")
