"""Messages to be sent, read from what a person gives: an argument, lines, JSON lines, files.

A JSON line is an object. ``value`` is the message: text as it is, anything else as JSON. What
``consume -o json`` prints can be sent again as it stands: the fields that tell where a message lay
are left out.
"""

import base64
import binascii
import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from cometmq.cli.times import DURATION_HINT, TIME_HINT, parse_duration, parse_time
from cometmq.errors import CometError

LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""A line that is longer is no line of a text."""

_FIELDS: Final = (
    *("value", "value_encoding", "key", "keys", "tag", "properties"),
    *("delay", "delay_level", "deliver_at", "ordering_key", "queue"),
)
_TOLD_BY_CONSUME: Final = frozenset(
    {
        *("topic", "broker_name", "queue_id", "queue_offset", "physical_offset", "message_id"),
        *("offset_id", "stored", "stored_ms", "born", "born_ms", "born_host", "store_host"),
        *("reconsume_times", "value_bytes", "value_problem", "system_properties", "group"),
    }
)


class BadInput(CometError):
    """Something that was to be sent cannot be: ``where`` it stands, and why."""

    def __init__(self, where: str, reason: str, next_step: str = "") -> None:
        super().__init__(where, reason, next_step)
        self.where = where
        self.reason = reason
        self.fact = f"{where}: {reason}"
        self.next_step = next_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message that is to be sent; ``where`` says which line or file it is."""

    where: str
    value: bytes = b""
    keys: tuple[str, ...] = ()
    tag: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    delay_ms: int | None = None
    delay_level: int | None = None
    deliver_at_ms: int | None = None
    ordering_key: str | None = None
    queue: str | None = None

    @property
    def is_delayed(self) -> bool:
        return not (self.delay_ms is self.delay_level is self.deliver_at_ms is None)


def text_draft(where: str, line: bytes, base: Draft) -> Draft:
    """A line as it stands."""
    return replace(base, where=where, value=line)


def file_draft(path: Path, base: Draft) -> Draft:
    """The whole content of a file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"file '{path}'", error.strerror or str(error), "check the path") from error
    return replace(base, where=f"file '{path}'", value=content)


def json_draft(where: str, line: bytes, base: Draft, now_ms: Callable[[], int]) -> Draft:
    """A JSON line; what it does not say is as in ``base``."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        advice = 'write an object such as {"value": "hello", "key": "k1"} on each line'
        raise BadInput(where, f"not JSON: {error}", advice) from error
    if not isinstance(found, dict):
        raise BadInput(where, "JSON, but no object", 'write {"value": …}, or use --format lines')
    return _Reader(where, found, now_ms).draft(base)


class _Reader:
    """Takes the fields of one JSON line."""

    def __init__(self, where: str, found: dict[str, Any], now_ms: Callable[[], int]) -> None:
        self._where = where
        self._found = found
        self._now_ms = now_ms

    def draft(self, base: Draft) -> Draft:
        for name in self._found:
            if name not in _FIELDS and name not in _TOLD_BY_CONSUME:
                raise self._unknown(name)
        if "value" not in self._found:
            raise self._bad("it has no 'value'", "give each line one")
        delay = self._delay()
        changes: dict[str, Any] = {
            "where": self._where,
            "value": self._value(),
            "keys": self._keys() or base.keys,
            "properties": {**base.properties, **self._properties()},
        }
        for name in ("tag", "ordering_key"):
            if (text := self._text(name)) is not None:
                changes[name] = text
        if (queue := self._found.get("queue")) is not None:
            changes["queue"] = str(queue)
        if delay:
            # A line that says when replaces all that the options say about it.
            changes |= {"delay_ms": None, "delay_level": None, "deliver_at_ms": None, **delay}
        return replace(base, **changes)

    def _value(self) -> bytes:
        value = self._found["value"]
        encoding = self._found.get("value_encoding") or "utf-8"
        if encoding == "base64" and isinstance(value, str):
            try:
                return base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError) as error:
                raise self._bad(f"'value' is not base64: {error}") from error
        if encoding != "utf-8":
            raise self._bad(f"'value_encoding' is {encoding!r}", "use utf-8 or base64")
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise self._bad("'value' has half a character in it (a lone surrogate)") from error

    def _keys(self) -> tuple[str, ...]:
        key, keys = self._found.get("key"), self._found.get("keys")
        if key is not None and keys:
            raise self._bad("it has both 'key' and 'keys'", "give one of them")
        found = (key,) if key is not None else keys or ()
        if isinstance(found, str):
            found = found.split()
        if not all(isinstance(one, str | int) and not isinstance(one, bool) for one in found):
            raise self._bad("'keys' is no list of texts")
        return tuple(map(str, found))

    def _properties(self) -> dict[str, str]:
        found = self._found.get("properties") or {}
        if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
            raise self._bad("'properties' is no object whose values are texts")
        return found

    def _delay(self) -> dict[str, int]:
        given = {
            name: self._found[name]
            for name in ("delay", "delay_level", "deliver_at")
            if self._found.get(name) is not None
        }
        if len(given) > 1:
            raise self._bad(f"it has both {' and '.join(map(repr, given))}", "give one of them")
        for name, value in given.items():
            if name == "delay_level":
                if type(value) is not int:
                    raise self._bad(f"'delay_level' is {value!r}", "give a number from 1 to 18")
                return {"delay_level": value}
            is_delay = name == "delay"
            read = parse_duration(str(value)) if is_delay else self._moment(str(value))
            if read is None:
                hint = DURATION_HINT if is_delay else TIME_HINT
                raise self._bad(f"'{name}' is {value!r}", hint)
            return {"delay_ms" if is_delay else "deliver_at_ms": read}
        return {}

    def _moment(self, text: str) -> int | None:
        return parse_time(text, self._now_ms())

    def _text(self, name: str) -> str | None:
        value = self._found.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self._bad(f"'{name}' is no text but {value!r}")

    def _unknown(self, name: str) -> BadInput:
        similar = difflib.get_close_matches(name, _FIELDS, 1)
        advice = f"did you mean '{similar[0]}'? " if similar else ""
        return self._bad(f"no such field: '{name}'", f"{advice}there are: {', '.join(_FIELDS)}")

    def _bad(self, reason: str, next_step: str = "") -> BadInput:
        return BadInput(self._where, reason, next_step)
