"""Plain data as YAML: enough for output, and nothing a reader could take for something else.

Strings stay bare only where every YAML reader, 1.1 or 1.2, reads them back as that string; all
others are double-quoted. So ``no``, ``1e3``, ``2026-01-01``, ``: x`` and an empty string are safe.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TypeGuard

Plain = None | bool | int | float | str | Sequence["Plain"] | Mapping[str, "Plain"]
"""What commands put out: scalars, lists and dicts of them."""

# A letter first (so no number, date or indicator), then characters that mean nothing to YAML.
_BARE = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_RESERVED = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def to_yaml(value: Plain) -> str:
    """``value`` as a YAML document, with a line break at its end."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Plain) -> list[str]:
    if isinstance(value, Mapping) and value:
        return [line for key, item in value.items() for line in _entry(key, item)]
    if is_list(value) and value:
        return [line for item in value for line in _item(item)]
    return [_scalar(value)]


def _entry(key: str, item: Plain) -> list[str]:
    head = f"{_text(key)}:"
    if _is_nested(item):
        return [head, *(f"  {line}" for line in _lines(item))]
    return [f"{head} {_scalar(item)}"]


def _item(item: Plain) -> list[str]:
    first, *rest = _lines(item)
    return [f"- {first}", *(f"  {line}" for line in rest)]


def _is_nested(value: Plain) -> bool:
    return bool(value) and (isinstance(value, Mapping) or is_list(value))


def is_list(value: Plain) -> TypeGuard[Sequence[Plain]]:
    """A string is a sequence too, but no list."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def _scalar(value: Plain) -> str:
    if isinstance(value, str):
        return _text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, int):
        return str(value)
    return "{}" if isinstance(value, Mapping) else "[]"


def _number(value: float) -> str:
    text = repr(value)
    # YAML 1.1 takes 1e+16 for a string: its floats need a dot and a signed exponent.
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    return text


def _text(text: str) -> str:
    if _BARE.fullmatch(text) and text.lower() not in _RESERVED:
        return text
    return '"' + "".join(_ESCAPES.get(c) or _escaped(c) for c in text) + '"'


def _escaped(c: str) -> str:
    if c.isprintable():
        return c
    code = ord(c)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
