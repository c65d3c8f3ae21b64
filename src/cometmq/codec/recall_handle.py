"""The handle with which a producer takes a timer message back.

It is the URL-safe base64 of ``v1 <topic> <broker name> <time> <unique key>``. The time is the one
stored with the timer message plus one millisecond, so that the recall is seen after the message.
"""

import base64
import binascii

import msgspec

from cometmq.errors import LocalProtocolError, RemoteProtocolError

_FORMAT = "v1"
_SEPARATOR = " "
_TIMESTAMP_MS_MAX = 2**63 - 1
_TIMESTAMP_DIGITS_MAX = len(str(_TIMESTAMP_MS_MAX))
_SHOWN_CHARACTERS_MAX = 40


class RecallHandle(msgspec.Struct, frozen=True, gc=False):
    """Which message to take back: on which broker, due when, under which unique key."""

    topic: str
    broker_name: str
    timestamp_ms: int
    unique_key: str


def encode(handle: RecallHandle) -> str:
    """The text for the ``recallHandle`` field.

    Raises ``LocalProtocolError`` when a part could not be read back: it is empty, contains a blank
    or is no time.
    """
    if not 0 <= handle.timestamp_ms <= _TIMESTAMP_MS_MAX:
        raise LocalProtocolError(f"{handle.timestamp_ms} is no time for a recall handle")
    parts = (handle.topic, handle.broker_name, str(handle.timestamp_ms), handle.unique_key)
    for part in parts:
        if not part or _SEPARATOR in part:
            raise LocalProtocolError(f"'{part}' cannot be part of a recall handle")
    try:
        plain = _SEPARATOR.join((_FORMAT, *parts)).encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"recall handle is not text: {handle}") from error
    return base64.urlsafe_b64encode(plain).decode("ascii")


def decode(text: str) -> RecallHandle:
    """Read a handle, with or without padding; ``RemoteProtocolError`` for anything else."""
    parts = _plain(text).split(_SEPARATOR)
    if len(parts) < 5 or parts[0] != _FORMAT:
        raise _refusal(f"does not have the five parts of format {_FORMAT}", text)
    topic, broker_name, timestamp, unique_key = parts[1:5]
    if not (topic and broker_name and unique_key):
        raise _refusal("has an empty part", text)
    return RecallHandle(topic, broker_name, _timestamp_ms(timestamp, text), unique_key)


def _plain(text: str) -> str:
    try:
        digits = text.rstrip("=").encode("ascii")
        padded = digits + b"=" * (-len(digits) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8")
    except (binascii.Error, UnicodeError) as error:
        raise _refusal("is not base64 of text", text) from error


def _timestamp_ms(part: str, text: str) -> int:
    if part.isascii() and part.isdigit() and len(part) <= _TIMESTAMP_DIGITS_MAX:
        timestamp_ms = int(part)
        if timestamp_ms <= _TIMESTAMP_MS_MAX:
            return timestamp_ms
    raise _refusal("has no time", text)


def _refusal(fact: str, text: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"recall handle {fact}: '{text[:_SHOWN_CHARACTERS_MAX]}'")
