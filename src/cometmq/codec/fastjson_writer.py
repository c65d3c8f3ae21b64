"""Writing JSON as fastjson does, byte for byte.

===================  ========================================================================
Python               JSON
===================  ========================================================================
Struct               object, members in alphabetical order of their wire names, None left out
dict                 object in the order of the dict, None left out; keys as the style says
list                 a Java list
tuple                a Java set or array of primitives, which fastjson indents differently
set, frozenset       refused: their order would change from run to run
bytes                base64
float                as ``Double.toString`` writes it; not a number and infinity as null
Enum                 the name of the member, or its number when it is an integer too
===================  ========================================================================

Keys that are text are quoted. Integers are bare (form 1) and Structs or dicts are written as
objects in key position (form 2); neither is JSON, and both are what Java's readers expect.
"""

import base64
import enum
import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

from cometmq.errors import LocalProtocolError

_CONTROLS = {"\b": r"\b", "\t": r"\t", "\n": r"\n", "\f": r"\f", "\r": r"\r"}
_QUOTED = _CONTROLS | {'"': r"\"", "\\": r"\\"}


class PrettyStyle(enum.Enum):
    """Which library wrote (and will read) a configuration file."""

    FASTJSON_1 = "fastjson 1"
    """Releases up to 5.3: keys that are not text follow on the line of the brace."""
    FASTJSON_2 = "fastjson 2"
    """Release 5.5: every key begins a line."""


class Members(dict[str, Any]):
    """An object that stands for a Struct: its lists are laid out as those of a Struct are."""

    __slots__ = ()


def dumps(value: Any, *, only_standard_keys: bool = False) -> bytes:
    """Write compactly, as the bodies of frames are written.

    With ``only_standard_keys`` a key that is not text is refused (``LocalProtocolError``): the
    reader of that body does not know the dialect.
    """
    return _encoded(_Compact(_BODY if not only_standard_keys else _STANDARD_BODY), value)


def dumps_standard(value: Any) -> bytes:
    """Write compact standard JSON: all keys quoted and sorted, nothing but ASCII.

    Java calls this ``BrowserCompatible``; route data is written so for clients from 4.9.4 on.
    """
    return _encoded(_Compact(_BROWSER), value)


def dumps_pretty(value: Any, style: PrettyStyle) -> bytes:
    """Write as configuration files are written: one member a line, one TAB for each level."""
    return _encoded(_Pretty1() if style is PrettyStyle.FASTJSON_1 else _Pretty2(), value)


def _encoded(writer: "_Compact", value: Any) -> bytes:
    try:
        writer.write(value, 0)
    except RecursionError as error:
        raise LocalProtocolError("a value to be written as JSON contains itself") from error
    # Half a surrogate pair becomes '?', as in Java.
    return "".join(writer.parts).encode(errors="replace")


@dataclass(frozen=True, slots=True)
class _Dialect:
    special: re.Pattern[str]
    escape: Callable[[re.Match[str]], str]
    has_bare_keys: bool = True
    has_quoted_integers: bool = False
    is_sorted: bool = False

    def quote(self, text: str) -> str:
        return '"' + self.special.sub(self.escape, text) + '"'


def _escape_upper(match: re.Match[str]) -> str:
    character = match.group()
    return _QUOTED.get(character) or f"\\u{ord(character):04X}"


def _escape_lower(match: re.Match[str]) -> str:
    character = match.group()
    return _QUOTED.get(character) or f"\\u{ord(character):04x}"


def _escape_browser(match: re.Match[str]) -> str:
    character = match.group()
    if character == "/":
        return r"\/"
    if ord(character) <= 0xFFFF:
        return _escape_upper(match)
    high, low = divmod(ord(character) - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04X}\\u{0xDC00 + low:04X}"


_FASTJSON_1_SPECIAL = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029]')
_BODY = _Dialect(_FASTJSON_1_SPECIAL, _escape_upper)
_STANDARD_BODY = _Dialect(_FASTJSON_1_SPECIAL, _escape_upper, has_bare_keys=False)
_BROWSER = _Dialect(
    re.compile('["/\\\\\x00-\x1f]|[^\x00-\x7e]'),
    _escape_browser,
    has_bare_keys=False,
    has_quoted_integers=True,
    is_sorted=True,
)
_FASTJSON_2_BODY = _Dialect(re.compile('["\\\\\x00-\x1f]'), _escape_lower)


class _Compact:
    """Writes without blanks; the pretty writers change only where lines break."""

    def __init__(self, dialect: _Dialect) -> None:
        self._dialect = dialect
        self.parts: list[str] = []

    def write(self, value: Any, level: int) -> None:
        if isinstance(value, str):
            self.parts.append(self._dialect.quote(value))
        elif isinstance(value, dict):
            self._object(value, level)
        elif isinstance(value, msgspec.Struct):
            self._bean(value, level)
        elif isinstance(value, list | tuple):
            self._sequence(value, level, is_member=False)
        else:
            self.parts.append(self._atom(value))

    def _atom(self, value: Any) -> str:
        if value is None:
            return "null"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return int.__repr__(value)
        if isinstance(value, float):
            return java_double(value)
        if isinstance(value, enum.Enum):
            return self._dialect.quote(value.name)
        if isinstance(value, bytes):
            return self._dialect.quote(base64.b64encode(value).decode())
        raise LocalProtocolError(f"JSON has no form for a {type(value).__name__}")

    def _bean(self, value: msgspec.Struct, level: int) -> None:
        present = [
            (name, member)
            for attribute, name in wire_names(type(value))
            if (member := getattr(value, attribute)) is not None
        ]
        self.parts.append("{")
        for index, (name, member) in enumerate(present):
            self._before_member(index, level + 1)
            self.parts.append(f'"{name}":')
            self._member(member, level + 1)
        self._after_members(len(present), level)
        self.parts.append("}")

    def _member(self, value: Any, level: int) -> None:
        if isinstance(value, list | tuple):
            self._sequence(value, level, is_member=True)
        else:
            self.write(value, level)

    def _object(self, value: dict[Any, Any], level: int) -> None:
        present = [(key, member) for key, member in value.items() if member is not None]
        if self._dialect.is_sorted:
            present.sort(key=_sort_key)
        write_member = self._member if isinstance(value, Members) else self.write
        self.parts.append("{")
        for index, (key, member) in enumerate(present):
            if isinstance(key, str):
                self._before_member(index, level + 1)
            else:
                self._before_bare_key(index, level + 1)
            self._key(key, level + 1)
            self.parts.append(":")
            write_member(member, level + 1)
        self._after_members(len(present), level)
        self.parts.append("}")

    def _key(self, key: Any, level: int) -> None:
        if isinstance(key, str):
            self.parts.append(self._dialect.quote(key))
        elif isinstance(key, int) and self._dialect.has_quoted_integers:
            self.parts.append(f'"{int.__repr__(key)}"')
        elif isinstance(key, int | dict | msgspec.Struct) and self._dialect.has_bare_keys:
            self.write(key, level)
        else:
            raise LocalProtocolError(f"a {type(key).__name__} cannot be a key here")

    def _sequence(self, value: list[Any] | tuple[Any, ...], level: int, *, is_member: bool) -> None:
        breaks = self._breaks_lines(value, is_member=is_member)
        self.parts.append("[")
        for index, item in enumerate(value):
            if breaks:
                self._before_member(index, level + 1)
            elif index:
                self.parts.append(",")
            self.write(item, level + 1 if breaks else level)
        if breaks:
            self._after_items(len(value), level)
        self.parts.append("]")

    def _before_member(self, index: int, level: int) -> None:
        del level
        if index:
            self.parts.append(",")

    def _before_bare_key(self, index: int, level: int) -> None:
        self._before_member(index, level)

    def _after_members(self, count: int, level: int) -> None:
        """Called before the closing brace."""

    def _after_items(self, count: int, level: int) -> None:
        self._after_members(count, level)

    def _breaks_lines(self, value: list[Any] | tuple[Any, ...], *, is_member: bool) -> bool:
        del value, is_member
        return False


class _Pretty1(_Compact):
    def __init__(self) -> None:
        super().__init__(_BODY)

    def _before_member(self, index: int, level: int) -> None:
        self.parts.append((",\n" if index else "\n") + "\t" * level)

    def _before_bare_key(self, index: int, level: int) -> None:
        del level
        if index:
            self.parts.append(",")

    def _after_members(self, count: int, level: int) -> None:
        if count:
            self.parts.append("\n" + "\t" * level)

    def _breaks_lines(self, value: list[Any] | tuple[Any, ...], *, is_member: bool) -> bool:
        del is_member
        return isinstance(value, list)


class _Pretty2(_Pretty1):
    def __init__(self) -> None:
        super().__init__()
        self._dialect = _FASTJSON_2_BODY

    def _before_bare_key(self, index: int, level: int) -> None:
        self._before_member(index, level)

    def _breaks_lines(self, value: list[Any] | tuple[Any, ...], *, is_member: bool) -> bool:
        if not value:
            return is_member
        return not (isinstance(value[0], int) and (is_member or isinstance(value, tuple)))

    def _after_items(self, count: int, level: int) -> None:
        if not count:
            self.parts.append("\n" + "\t" * (level + 1))
        self.parts.append("\n" + "\t" * level)


def _sort_key(member: tuple[Any, Any]) -> tuple[bool, int, bytes]:
    key = member[0]
    if isinstance(key, int):
        return False, key, b""
    return True, 0, str(key).encode("utf-16-be", "surrogatepass")


@functools.cache
def wire_names(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Attribute and wire name of every member of a Struct, in the order of writing."""
    names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return tuple(sorted(names, key=lambda pair: pair[1]))


def java_double(value: float) -> str:
    """Write a number as ``Double.toString`` does: ``0.0``, ``1.5``, ``1.0E10``, ``1.0E-5``."""
    if not math.isfinite(value):
        return "null"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = f"{Decimal(repr(value)):f}"
        return text if "." in text else text + ".0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exponent + len(digits) - 1}"
