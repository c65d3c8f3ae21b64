r"""What a broker makes of the property string of a send: what it asks for, and what is stored.

Most sends ask for nothing special: their properties are stored as they came, followed by the
broker's own. That case is one pass over the text; for the others ``Asks`` says what there is to do.
"""

import enum
from typing import NamedTuple

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


class Sent(NamedTuple):
    """``asks`` as a plain number, the unique key if there is one, and the bytes to store."""

    asks: int
    unique_key: str | None
    stored: bytes


_NAMES = {
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


def read(text: str, addition: bytes) -> Sent:
    """Look at the properties of a send, and append ``addition`` to them."""
    asks = 0
    unique_key = None
    for item in text.split(VALUE_END):
        name, _, value = item.partition(NAME_END)
        if not name or not value:
            continue
        asks |= _NAMES.get(name, 0)
        if name == Property.UNIQ_KEY:
            unique_key = value
        elif name == Property.WAIT and value.lower() != "true":
            asks |= Asks.NO_WAIT
        elif name.startswith(TRANSIENT_PREFIX):
            asks |= Asks.REWRITE
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return Sent(asks | Asks.NOT_TEXT, unique_key, b"")
    separator = b"" if not data or text.endswith(VALUE_END) else b"\x02"
    return Sent(int(asks), unique_key, data + separator + addition)
