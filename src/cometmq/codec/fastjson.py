"""The JSON of RocketMQ's bodies and files: fastjson's dialect, read into types and written exactly.

``loads`` and ``dumps`` work on plain values; ``decode`` reads straight into a Struct and is as
forgiving as Java: unknown members are ignored, null counts as absent, numbers may come as text and
text as numbers, enums may come as their position.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from cometmq.codec.fastjson_reader import has_reference, loads
from cometmq.codec.fastjson_references import ObjectKey
from cometmq.codec.fastjson_writer import (
    Members,
    PrettyStyle,
    dumps,
    dumps_pretty,
    dumps_standard,
    java_double,
    wire_names,
)
from cometmq.errors import RemoteProtocolError

__all__ = [
    "Members",
    "ObjectKey",
    "PrettyStyle",
    "convert",
    "decode",
    "dumps",
    "dumps_pretty",
    "dumps_standard",
    "loads",
    "wire_names",
]

EXPANDED_VALUES_MAX = 1_000_000
"""How many values a document may have once its references are followed."""

REASON_CHARACTERS = 200
"""How much of a refusal's reason is kept; it may quote what the peer sent."""

T = TypeVar("T")
_Loosen = Callable[[Any], Any]


def decode(data: bytes | str, kind: type[T]) -> T:
    """Read a document into ``kind``; whatever does not fit raises ``RemoteProtocolError``."""
    if has_reference(data):
        value = loads(data)
        _refuse_expansion(value)
        return convert(value, kind)
    try:
        return cast("T", _decoder(cast("Any", kind)).decode(data))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return convert(loads(data), kind)


def convert(value: Any, kind: type[T]) -> T:
    """Turn what ``loads`` gave into ``kind``, as forgiving as ``decode``."""
    try:
        return msgspec.convert(_loosener(cast("Any", kind))(value), kind, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        name = getattr(kind, "__name__", str(kind))
        raise RemoteProtocolError(f"not a {name}: {str(error)[:REASON_CHARACTERS]}") from error


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, strict=False)


def _refuse_expansion(value: Any) -> None:
    """Refuse documents that contain themselves, and small ones that stand for huge ones.

    Twenty lines in which each refers twice to the one before are a million values to a reader
    that wants a tree.
    """
    sizes: dict[int, int] = {}

    def size(node: Any) -> int:
        if not isinstance(node, dict | list):
            return 1
        known = sizes.get(id(node))
        if known == 0:
            raise RemoteProtocolError("JSON refers to an object from inside that object")
        if known is None:
            sizes[id(node)] = 0
            children = node.values() if isinstance(node, dict) else node
            known = sizes[id(node)] = 1 + sum(map(size, children))
        return known

    try:
        expanded = size(value)
    except RecursionError as error:
        raise RemoteProtocolError("JSON is nested too deeply by its references") from error
    if expanded > EXPANDED_VALUES_MAX:
        raise RemoteProtocolError(f"JSON stands for {expanded} values by its references")


@functools.cache
def _loosener(kind: Any) -> _Loosen:
    return _loosener_of(inspect.type_info(kind))


def _loosener_of(info: inspect.Type) -> _Loosen:
    """Make the function that prepares a value for ``msgspec.convert`` to this type."""
    match info:
        case inspect.StructType():
            return _struct_loosener(info)
        case inspect.DictType():
            return _dict_loosener(_loosener_of(info.key_type), _loosener_of(info.value_type))
        case inspect.CollectionType():
            return _items_loosener(_loosener_of(info.item_type))
        case inspect.UnionType() if len(info.types) == 2:
            # None and something else: null was dropped one level up.
            return _loosener_of(next(t for t in info.types if not isinstance(t, inspect.NoneType)))
        case inspect.EnumType():
            return _position
        case inspect.StrType():
            return _text
        case _:
            return _unchanged


def _struct_loosener(info: inspect.StructType) -> _Loosen:
    known = {field.encode_name: _loosener_of(field.type) for field in info.fields}

    def loosen(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        members = {
            name: known[name](member)
            for name, member in value.items()
            if member is not None and name in known
        }
        return ObjectKey(members) if isinstance(value, ObjectKey) else members

    return loosen


def _dict_loosener(loosen_key: _Loosen, loosen_value: _Loosen) -> _Loosen:
    def loosen(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {loosen_key(k): loosen_value(v) for k, v in value.items() if v is not None}

    return loosen


def _items_loosener(loosen_item: _Loosen) -> _Loosen:
    def loosen(value: Any) -> Any:
        return [loosen_item(item) for item in value] if isinstance(value, list) else value

    return loosen


def _position(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return java_double(value)
    return str(value) if isinstance(value, int) else value


def _unchanged(value: Any) -> Any:
    return value
