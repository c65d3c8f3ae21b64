"""Texts of options as values: sizes, times, lists, maps of queues; errors name the option."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from cometmq.errors import InvalidArgument
from cometmq.model.offsets import MessageQueue

_SIZE: Final = re.compile(r"(\d+)\s*(b|k|kb|m|mb|g|gb|t|tb)?", re.IGNORECASE)
_SIZE_UNITS: Final = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SPAN: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?", re.IGNORECASE)
_SPAN_UNITS: Final = {
    "": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip
_SHOWN_CHARACTERS_MAX: Final = 80


def boolean(name: str, text: str) -> bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise InvalidArgument(name, f"option '{name}' is neither true nor false: '{text}'")


def count(name: str, text: str, minimum: int = 1) -> int:
    """A whole number of at least ``minimum``."""
    if text.isascii() and text.isdigit() and int(text) >= minimum:
        return int(text)
    raise InvalidArgument(name, f"option '{name}' is no number from {minimum} on: '{text}'")


def size(name: str, text: str) -> int:
    """Bytes: ``4096``, ``512k``, ``16m``, ``1g``."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        advice = "write it like 512k, 16m or 1g"
        raise InvalidArgument(name, f"option '{name}' is no number of bytes: '{text}'", advice)
    return int(match[1]) * _SIZE_UNITS[(match[2] or "").lower()[:1]]


def span_ms(name: str, text: str) -> int:
    """Milliseconds: ``250``, ``10s``, ``15m``, ``2h``."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        advice = "write it like 250ms, 10s, 15m or 2h"
        raise InvalidArgument(name, f"option '{name}' is no span of time: '{text}'", advice)
    return int(match[1]) * _SPAN_UNITS[(match[2] or "").lower()]


def choice(name: str, text: str, choices: tuple[str, ...]) -> str:
    if text.lower() in choices:
        return text.lower()
    known = ", ".join(choices)
    raise InvalidArgument(name, f"option '{name}' cannot be '{text}'", f"it can be: {known}")


def names(name: str, text: str) -> tuple[str, ...]:
    """Names with commas between them, each once."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise InvalidArgument(name, f"option '{name}' names nothing")
    return found


def pattern(name: str, text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidArgument(name, f"option '{name}' is no regular expression: {error}") from error
    return text


def queue_list(name: str, text: str) -> tuple[MessageQueue, ...]:
    """Queues as ``{"topic": {"broker": [0, 1]}}``."""
    found = [
        MessageQueue(topic, broker, queue)
        for topic, brokers in _object(name, text).items()
        for broker, queues in _inner(name, brokers).items()
        for queue in _numbers(name, queues)
    ]
    if not found:
        raise InvalidArgument(name, f"option '{name}' names no queue")
    return tuple(sorted(set(found)))


def queue_numbers(name: str, text: str) -> dict[MessageQueue, int]:
    """A number for each queue, as ``{"topic": {"broker": {"0": 23}}}``."""
    found: dict[MessageQueue, int] = {}
    for topic, brokers in _object(name, text).items():
        for broker, queues in _inner(name, brokers).items():
            for queue, number in _inner(name, queues).items():
                if not queue.isdigit() or type(number) is not int:
                    raise _not_queues(name, f'"{queue}": {number!r}')
                found[MessageQueue(topic, broker, int(queue))] = number
    if not found:
        raise InvalidArgument(name, f"option '{name}' names no queue")
    return found


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(name, f"option '{name}' is no JSON: {error}") from error
    return _inner(name, value)


def _inner(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _not_queues(name, repr(value))
    return dict(value)


def _numbers(name: str, value: Any) -> list[int]:
    is_list = isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)
    if not is_list:
        raise _not_queues(name, repr(value))
    return list(value)


def _not_queues(name: str, found: str) -> InvalidArgument:
    is_list = name == "assign"
    form = '{"topic": {"broker": [0, 1]}}' if is_list else '{"topic": {"broker": {"0": 23}}}'
    fact = f"option '{name}' does not say queues: {found[:_SHOWN_CHARACTERS_MAX]}"
    return InvalidArgument(name, fact, f"write {form}")
