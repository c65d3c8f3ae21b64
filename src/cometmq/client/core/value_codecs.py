"""Values and the bodies of messages: bytes, text, JSON, and JSON of declared types.

A *value codec* turns values of one type into bodies and back. ``codec_for`` finds the one for a
type; whoever wants another format writes a class with ``encode`` and ``decode``.
"""

import contextlib
import importlib
import re
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any, Final, Protocol, TypeVar, cast, get_args, overload

import msgspec

from cometmq.errors import CodecError, DecodeError, EncodeError, MissingDependency

T = TypeVar("T")

_PYDANTIC_MARK: Final = "__pydantic_validator__"
"""What pydantic's models and dataclasses have, and nothing else."""
_OWN_CODEC: Final = "give a codec: an object with encode(value) -> bytes and decode(body) -> value"
_ENCODER: Final = msgspec.json.Encoder()
_NULL: Final = b"null"
"""What msgspec writes for nan and infinities, as for None."""
_NOT_FINITE: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""How such a number begins in MessagePack, and by chance other things."""


class ValueCodec(Protocol[T]):
    """Turns values into bodies and back; whatever it raises reaches users as a CodecError.

    Both are called from any thread, also at the same time.
    """

    def encode(self, value: T, /) -> bytes:
        """The body that holds ``value``."""
        ...

    def decode(self, body: bytes, /) -> T:
        """The value in ``body``."""
        ...


class _BytesCodec:
    type_name = "bytes"

    def encode(self, value: bytes, /) -> bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise TypeError(f"it is {_name(type(value))} and not bytes")

    def decode(self, body: bytes, /) -> bytes:
        return body


class _TextCodec:
    type_name = "str"

    def encode(self, value: str, /) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"it is {_name(type(value))} and not str")
        return value.encode()

    def decode(self, body: bytes, /) -> str:
        return body.decode()


class _JsonCodec:
    """JSON as msgspec reads and writes it; ``instances`` is what a value to be sent must be."""

    def __init__(self, kind: Any, instances: type | None) -> None:
        self.type_name = "JSON" if kind is Any else _name(kind)
        self._instances = instances
        self.decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind).decode

    def encode(self, value: Any, /) -> bytes:
        if self._instances is not None and not isinstance(value, self._instances):
            raise TypeError(f"the codec is for {self.type_name}")
        body = _ENCODER.encode(value)
        if _NULL in body and _loses_a_number(value):
            raise ValueError("it has nan or an infinity, for which JSON has no form")
        return body


class _PydanticCodec:
    """JSON as pydantic reads and writes it."""

    def __init__(self, kind: Any, adapter: Any) -> None:
        self.type_name = _name(kind)
        self._adapter = adapter
        self._instances = kind if isinstance(kind, type) else None
        self.decode: Callable[[bytes], Any] = adapter.validate_json

    def encode(self, value: Any, /) -> bytes:
        # Pydantic itself would only warn, and write what it was given.
        if self._instances is not None and not isinstance(value, self._instances):
            raise TypeError(f"the codec is for {self.type_name}")
        return cast("bytes", self._adapter.dump_json(value))


BYTES: Final[ValueCodec[bytes]] = _BytesCodec()
"""The body as it is."""
TEXT: Final[ValueCodec[str]] = _TextCodec()
"""UTF-8."""
JSON: Final[ValueCodec[Any]] = _JsonCodec(Any, None)
"""Whatever JSON says: dict, list, str, int, float, bool or None."""


def msgspec_codec(kind: type[T]) -> ValueCodec[T]:
    """JSON that is checked and turned into ``kind``: a msgspec Struct, dataclass, TypedDict, ….

    Members that ``kind`` does not have are ignored. Raises CodecError for a type that msgspec does
    not know.
    """
    try:
        known = msgspec.inspect.type_info(kind)
    except Exception as error:  # besides its TypeError: whatever annotations can raise
        raise CodecError(_name(kind), str(error), _OWN_CODEC) from error
    if isinstance(known, msgspec.inspect.CustomType):
        raise CodecError(_name(kind), "JSON has no form for it", _OWN_CODEC)
    is_checkable = isinstance(known, msgspec.inspect.StructType | msgspec.inspect.DataclassType)
    return _JsonCodec(kind, getattr(kind, "__origin__", kind) if is_checkable else None)


def pydantic_codec(kind: type[T]) -> ValueCodec[T]:
    """JSON that pydantic checks and turns into ``kind``: a model, or whatever it has a schema for.

    Raises MissingDependency when pydantic is not installed, CodecError when it refuses ``kind``.
    """
    try:
        pydantic = importlib.import_module("pydantic")
    except ImportError as error:
        raise MissingDependency("pydantic", "", f"a codec for {_name(kind)}") from error
    try:
        return _PydanticCodec(kind, pydantic.TypeAdapter(kind))
    except pydantic.errors.PydanticUserError as error:
        raise CodecError(_name(kind), str(error), _OWN_CODEC) from error


@overload
def codec_for(kind: type[T]) -> ValueCodec[T]: ...
@overload
def codec_for(kind: ValueCodec[T]) -> ValueCodec[T]: ...
@overload
def codec_for(kind: object) -> ValueCodec[Any]: ...
def codec_for(kind: Any) -> ValueCodec[Any]:
    """The codec for values of a type; a codec is returned as it is.

    ``bytes`` is the body itself and ``str`` its text; everything else is JSON, which pydantic reads
    for its models and msgspec for all other types. Raises CodecError when there is none.
    """
    if kind is bytes:
        return BYTES
    if kind is str:
        return TEXT
    if kind is Any or kind is object:
        return JSON
    is_type = isinstance(kind, type) or hasattr(kind, "__origin__")
    if hasattr(kind, "encode") and hasattr(kind, "decode"):
        if is_type:
            raise CodecError(_name(kind), "this is the class of a codec", "give an object of it")
        return cast("ValueCodec[Any]", kind)
    return pydantic_codec(kind) if _needs_pydantic(kind) else msgspec_codec(kind)


def encode_value(value: object, codec: ValueCodec[Any] | None = None) -> bytes:
    """The body for ``value``, by ``codec`` or, without one, by what the value is.

    Bytes are taken as they are and text as UTF-8; numbers, lists, dicts, msgspec Structs,
    dataclasses and pydantic models become JSON. Raises EncodeError.
    """
    next_step = "send what its codec takes, or declare another codec"
    if codec is None:
        if type(value) is bytes:
            return value
        kind: Any = type(value)
        codec, next_step = _codec_by_value(kind), _OWN_CODEC
    try:
        return codec.encode(value)
    except Exception as error:  # a codec may be the user's and raise anything
        reason = str(error) or type(error).__name__
        raise EncodeError(_name(type(value)), reason, next_step) from error


def decode_error(message_id: str, codec: ValueCodec[Any], error: Exception) -> DecodeError:
    """What to raise when ``codec`` raised ``error`` over the body of a message."""
    type_name = getattr(codec, "type_name", type(codec).__name__)
    reason = str(error) or type(error).__name__
    return DecodeError(message_id, type_name, reason, "see its body, or declare another type")


@lru_cache(maxsize=256)
def _codec_by_value(kind: type) -> ValueCodec[Any]:
    """The codec for sending values of ``kind`` when none was declared."""
    if issubclass(kind, bytes | bytearray | memoryview):
        return BYTES
    if issubclass(kind, str):
        return TEXT
    if hasattr(kind, _PYDANTIC_MARK):
        return pydantic_codec(kind)
    if issubclass(kind, dict | list | tuple | int | float | msgspec.Struct) or is_dataclass(kind):
        return JSON
    raise EncodeError(
        _name(kind),
        "only bytes, text and what JSON can hold have a body of their own",
        f"turn it into one of these, or {_OWN_CODEC}",
    )


def _loses_a_number(value: object) -> bool:
    """Whether it has a number that became null. Most null is None: the first look is a quick one.

    The second writes it once more with Python's own JSON, which can refuse such numbers.
    """
    # What MessagePack cannot hold, such as large numbers, is left to the second look.
    with contextlib.suppress(Exception):
        if _NOT_FINITE.search(msgspec.msgpack.encode(value)) is None:
            return False
    import json

    try:
        json.dumps(msgspec.to_builtins(value), allow_nan=False, skipkeys=True)
    except ValueError:
        return True
    return False


def _needs_pydantic(kind: Any) -> bool:
    """Whether a type is one of pydantic's, or has one inside: ``list[Model]``."""
    return hasattr(kind, _PYDANTIC_MARK) or any(map(_needs_pydantic, get_args(kind)))


def _name(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) else str(kind)
