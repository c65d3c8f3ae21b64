"""Reading fastjson's dialect: JSON with bare, single-quoted, integer and object keys, and ``$ref``.

Standard JSON takes msgspec's parser, which is some fifty times faster; only what it refuses is
read here, character by character.
"""

import re
from typing import Any, NoReturn

import msgspec

from cometmq.codec.fastjson_references import (
    ObjectKey,
    Reference,
    is_flat,
    is_reference,
    put_in_place,
    put_keys_in_place,
)
from cometmq.errors import RemoteProtocolError
from cometmq.model.limits import JSON_DEPTH_MAX

EXCERPT_CHARACTERS = 24

_BLANK = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?\d+(?:(\.\d+)?([eE][+-]?\d+)?)", re.ASCII)
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_INTEGER = re.compile(r"-?\d+", re.ASCII)
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_SURROGATE = re.compile("[\ud800-\udfff]")

_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"} | {
    character: character for character in "\"'\\/"
}
_LITERALS: dict[str, Any] = {"true": True, "false": False, "null": None}


def loads(data: bytes | str) -> Any:
    """Read one document; objects become dicts in document order, repeated keys keep the last.

    Quoted keys stay text, bare integer keys become ``int``, objects as keys become ``ObjectKey``.
    Half a surrogate pair becomes ``?``, which is what Java writes for it. References to an
    enclosing object give a structure that contains itself. Anything malformed raises
    ``RemoteProtocolError``.
    """
    if not has_reference(data):
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
        else:
            _refuse_depth(data, value)
            return value
    return _Reader(_text(data)).document()


def has_reference(data: bytes | str) -> bool:
    """Whether the document may contain a reference as fastjson writes it."""
    return "$ref" in data if isinstance(data, str) else b"$ref" in data


def _text(data: bytes | str) -> str:
    if isinstance(data, str):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"JSON is not UTF-8: byte {error.start}") from error


def _refuse_depth(data: bytes | str, value: Any) -> None:
    """The fast parser allows more than we do; few documents have enough brackets to care."""
    braces = (
        data.count("{") + data.count("[")
        if isinstance(data, str)
        else (data.count(b"{") + data.count(b"["))
    )
    if braces <= JSON_DEPTH_MAX:
        return
    level = [value]
    for _ in range(JSON_DEPTH_MAX):
        level = [child for parent in level for child in _children(parent)]
    if any(isinstance(child, dict | list) for child in level):
        raise RemoteProtocolError(f"JSON is nested more than {JSON_DEPTH_MAX} levels deep")


def _children(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._enclosing: list[Any] = []
        """Objects and lists that are open, the outermost first."""
        self._references: list[Reference] = []
        self._referring: dict[int, tuple[dict[Any, Any], int]] = {}
        """Objects by identity with references among their keys, and where the last one stands."""

    def document(self) -> Any:
        value = self._value(None)
        self._blank()
        if self._position != len(self._text):
            self._fail("more text after the document")
        for reference in self._references:
            put_in_place(value, reference)
        for holder, position in self._referring.values():
            put_keys_in_place(value, holder, position)
        return value

    def _value(self, key: Any) -> Any:
        """Read what stands under ``key`` of the innermost open object or list."""
        self._blank()
        first = self._text[self._position : self._position + 1]
        if first == "{":
            return self._object_or_reference(key)
        if first == "[":
            return self._list()
        if first in _PLAIN:
            return self._string(first)
        if first == "-" or first.isdigit():
            return self._number()
        name = _NAME.match(self._text, self._position)
        if name is None or name.group() not in _LITERALS:
            self._fail("expected a value")
        self._position = name.end()
        return _LITERALS[name.group()]

    def _object_or_reference(self, key: Any) -> Any:
        begin = self._position
        value = self._object()
        if self._enclosing and is_reference(value):
            outer = self._enclosing[-2] if len(self._enclosing) > 1 else None
            holder = self._enclosing[-1]
            self._references.append(Reference(value["$ref"], begin, holder, key, outer))
        return value

    def _object(self) -> dict[Any, Any]:
        members: dict[Any, Any] = {}
        self._open(members)
        if not self._skip("}"):
            while True:
                key = self._key(members)
                if not self._skip(":"):
                    self._fail("expected ':'")
                members[key] = self._value(key)
                if self._skip("}"):
                    break
                if not self._skip(","):
                    self._fail("expected ',' or '}'")
        self._enclosing.pop()
        return members

    def _list(self) -> list[Any]:
        items: list[Any] = []
        self._open(items)
        if not self._skip("]"):
            while True:
                items.append(self._value(len(items)))
                if self._skip("]"):
                    break
                if not self._skip(","):
                    self._fail("expected ',' or ']'")
        self._enclosing.pop()
        return items

    def _open(self, container: Any) -> None:
        self._position += 1
        self._enclosing.append(container)
        if len(self._enclosing) > JSON_DEPTH_MAX:
            self._fail(f"nested more than {JSON_DEPTH_MAX} levels deep")

    def _key(self, members: dict[Any, Any]) -> Any:
        self._blank()
        first = self._text[self._position : self._position + 1]
        if first in _PLAIN:
            return self._string(first)
        if first == "{":
            return self._object_key(members)
        integer = _INTEGER.match(self._text, self._position)
        if integer is not None:
            self._position = integer.end()
            return self._integer(integer.group())
        name = _NAME.match(self._text, self._position)
        if name is None:
            self._fail("expected a key")
        self._position = name.end()
        return name.group()

    def _object_key(self, members: dict[Any, Any]) -> ObjectKey:
        begin = self._position
        key = ObjectKey(self._object())
        if not is_flat(key):
            self._fail("a key holds an object or a list")
        if is_reference(key):
            self._referring[id(members)] = (members, begin)
        return key

    def _number(self) -> int | float:
        number = _NUMBER.match(self._text, self._position)
        if number is None:
            self._fail("expected a number")
        self._position = number.end()
        if number.group(1) is None and number.group(2) is None:
            return self._integer(number.group())
        value = float(number.group())
        if value in (float("inf"), float("-inf")):
            self._fail("number out of range")
        return value

    def _integer(self, digits: str) -> int:
        # Python refuses to convert thousands of digits; no Java type holds more than 20.
        if len(digits) > 40:
            self._fail("number out of range")
        return int(digits)

    def _string(self, quote: str) -> str:
        """Read a string; raw control characters pass, as they do in fastjson."""
        plain = _PLAIN[quote]
        parts: list[str] = []
        self._position += 1
        while True:
            run = plain.match(self._text, self._position)
            assert run is not None
            parts.append(run.group())
            self._position = run.end() + 1
            if run.end() == len(self._text):
                self._fail("string without end")
            if self._text[run.end()] == quote:
                break
            parts.append(self._escape())
        return whole_characters("".join(parts))

    def _escape(self) -> str:
        letter = self._text[self._position : self._position + 1]
        self._position += 1
        if letter == "u":
            digits = _HEX4.match(self._text, self._position)
            if digits is None:
                self._fail("expected four hexadecimal digits")
            self._position = digits.end()
            return chr(int(digits.group(), 16))
        if letter not in _ESCAPES:
            self._fail("unknown escape")
        return _ESCAPES[letter]

    def _blank(self) -> None:
        blank = _BLANK.match(self._text, self._position)
        assert blank is not None
        self._position = blank.end()

    def _skip(self, character: str) -> bool:
        self._blank()
        found = self._text.startswith(character, self._position)
        self._position += found
        return found

    def _fail(self, fact: str) -> NoReturn:
        begin = max(0, self._position - EXCERPT_CHARACTERS // 2)
        excerpt = self._text[begin : begin + EXCERPT_CHARACTERS]
        raise RemoteProtocolError(f"JSON at position {self._position}: {fact}, near {excerpt!r}")


def whole_characters(text: str) -> str:
    """Join surrogate pairs that came as escapes; a lone half becomes ``?``, as in Java's bytes."""
    if _SURROGATE.search(text) is None:
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _SURROGATE.sub("?", joined)
