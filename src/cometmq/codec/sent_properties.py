r"""What a broker makes of the property string of a send: what it asks for, and what is stored.

Most sends ask for nothing special: their properties are stored as they came, followed by the
broker's own. That case is one pass over the text; for the others ``Asks`` says what there is to do.
"""

import enum
from typing import TypeAlias

from cometmq.codec.properties import NAME_END, TRANSIENT_PREFIX, VALUE_END, Property


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
    separator = b"" if not data or text.endswith(VALUE_END) else b"\x02"
    return asks, unique_key, data + separator + addition


def _has_transient(text: str) -> bool:
    items = (item.partition(NAME_END) for item in text.split(VALUE_END))
    return any(name.startswith(TRANSIENT_PREFIX) and value for name, _, value in items)
