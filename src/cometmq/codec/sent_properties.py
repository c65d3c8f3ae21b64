r"""What a broker makes of the property string of a send: what it asks for, and what is stored.

Most sends ask for nothing special: their properties are stored as they came, followed by the
broker's own. That case is one pass over the text; for the others ``Asks`` says what there is to do.
"""

import enum
from typing import TypeAlias

from cometmq.codec.properties import (
    KEYS_MARK,
    NAME_END,
    TAGS_MARK,
    TRANSIENT_PREFIX,
    VALUE_END,
    Property,
    find_value,
)


class Asks(enum.IntFlag):
    """What the properties of a send ask of the broker, beyond being stored."""

    DELAY = 1
    TIMER = 2
    TRANSACTION = 4
    NO_WAIT = 8
    """``WAIT`` is not ``true``: the producer does not care whether the message is on disk."""
    REWRITE = 16
    """Something is there that the broker sets itself or never stores."""
    NOT_TEXT = 32
    """The text has no UTF-8 form."""


Sent: TypeAlias = tuple[int, str | None, bytes]
"""``asks`` as a plain number, the unique key if there is one, and the bytes to store."""

Marks: TypeAlias = tuple[bytes, bytes]
"""What a message can be found by besides its unique key: keys and tags, empty without any."""

_UNIQUE_KEY = -1
_WAIT = -2
_MEANINGS = {
    Property.UNIQ_KEY: _UNIQUE_KEY,
    Property.WAIT: _WAIT,
    Property.DELAY: int(Asks.DELAY),
    Property.TIMER_DELAY_SEC: int(Asks.TIMER),
    Property.TIMER_DELAY_MS: int(Asks.TIMER),
    Property.TIMER_DELIVER_MS: int(Asks.TIMER),
    Property.TRAN_MSG: int(Asks.TRANSACTION),
    Property.MSG_REGION: int(Asks.REWRITE),
    Property.TRACE_ON: int(Asks.REWRITE),
    Property.CLUSTER: int(Asks.REWRITE),
    Property.POP_CK: int(Asks.REWRITE),
}
"""The names to look at, and what they ask for whatever their value."""

REWRITTEN = frozenset(name for name, meaning in _MEANINGS.items() if meaning == Asks.REWRITE)
"""Names that are never stored as they came: the broker sets these itself or leaves them out."""

_UNIQUE_KEY_MARK = Property.UNIQ_KEY + NAME_END
_VALUE_END = ord(VALUE_END)
_UNKNOWN = (b"unknown", b"")
_KNOWN_CHARACTERS_MAX = 128
_KNOWN_MAX = 1024
_known: dict[str, Marks | None] = {}
"""The properties besides the unique key are often the same for all messages of a producer: what was
found in them is kept. There is a bound to how many they are, and to how long."""

_NO_WAIT = int(Asks.NO_WAIT)  # plain numbers: operators of a Flag take a microsecond each
_REWRITE = int(Asks.REWRITE)


def read(text: str, addition: bytes) -> Sent:
    """Look at the properties of a send, and append ``addition`` to them."""
    asks = 0
    unique_key = None
    for item in text.split(VALUE_END):
        name, _, value = item.partition(NAME_END)
        meaning = _MEANINGS.get(name, 0)
        if not meaning or not value:
            continue
        if meaning == _UNIQUE_KEY:
            unique_key = value
        elif meaning != _WAIT:
            asks |= meaning
        elif value != "true" and value.lower() != "true":
            asks |= _NO_WAIT
    if TRANSIENT_PREFIX in text and _has_transient(text):
        asks |= _REWRITE
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return asks | int(Asks.NOT_TEXT), unique_key, b""
    return asks, unique_key, extended(data, addition)


def extended(data: bytes, addition: bytes) -> bytes:
    """Properties as they came, and ``addition`` behind them."""
    return data + addition if not data or data[-1] == _VALUE_END else data + b"\x02" + addition


def usual(text: str) -> tuple[str, Marks] | None:
    """The unique key and the other keys of a send that asks for nothing more than to be stored.

    None when there is no unique key, when it asks for more, and when that is not soon told: what
    there is, ``read`` says. To wait for the disk, or not to, is nothing more.
    """
    begin = text.find(_UNIQUE_KEY_MARK)
    value_begin = begin + len(_UNIQUE_KEY_MARK)
    end = text.find(VALUE_END, value_begin)
    if begin < 0 or end <= value_begin:
        return None
    others = text[end + 1 :]
    if begin:
        if text[begin - 1] != VALUE_END:
            return None
        others = text[:begin] + others
    marks = _known.get(others, _UNKNOWN)
    if marks is _UNKNOWN:
        marks = _look_at(others)
    return None if marks is None else (text[value_begin:end], marks)


def _look_at(text: str) -> Marks | None:
    """Keys and tags in properties without a unique key; None when they ask for something."""
    asks, unique_key, data = read(text, b"")
    marks = None
    if not asks & ~_NO_WAIT and unique_key is None:
        size = len(data)
        marks = find_value(data, 0, size, KEYS_MARK), find_value(data, 0, size, TAGS_MARK)
    if len(text) <= _KNOWN_CHARACTERS_MAX:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[text] = marks
    return marks


def _has_transient(text: str) -> bool:
    items = (item.partition(NAME_END) for item in text.split(VALUE_END))
    return any(name.startswith(TRANSIENT_PREFIX) and value for name, _, value in items)
