"""Delay levels: which there are, and how a message is put aside for one of them.

A message with a level is stored in a queue of its own topic, one queue per level; what it was sent
to is remembered in its properties. Brokers of all releases find it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.codec import properties
from cometmq.codec.codes import ResponseCode
from cometmq.codec.properties import Property
from cometmq.errors import BrokerError
from cometmq.model.topic import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.store.results import NewMessage

DELAY: Final = Property.DELAY.encode()
REAL_TOPIC: Final = Property.REAL_TOPIC.encode()
REAL_QUEUE_ID: Final = Property.REAL_QUEUE_ID.encode()
RECORD_CRC: Final = Property.CRC32.encode()

# With a level, times of one's own do not count. The checksum was that of another record.
_DROPPED: Final = {
    Property.TIMER_DELAY_SEC.encode(): None,
    Property.TIMER_DELAY_MS.encode(): None,
    Property.TIMER_DELIVER_MS.encode(): None,
    RECORD_CRC: None,
}
_SHOWN_CHARACTERS_MAX: Final = 40
_DIGITS_MAX: Final = 10


class DelayLevels:
    """The levels 1 to ``count``, each with its delay."""

    def __init__(self, delays_ms: tuple[int, ...]) -> None:
        self._delays_ms = delays_ms

    @property
    def count(self) -> int:
        return len(self._delays_ms)

    def delay_ms(self, level: int) -> int:
        """How long a message of a level that exists waits."""
        assert 1 <= level <= self.count, (level, self.count)
        return self._delays_ms[level - 1]

    def diverted(self, message: NewMessage, level: int) -> NewMessage:
        """The message as it is put aside; a level above the last one counts as the last.

        The message itself when there is nothing to wait for: no level, or no levels at all.
        """
        level = min(level, self.count)
        if level <= 0:
            return message
        changes = {
            **_DROPPED,
            DELAY: b"%d" % level,
            REAL_TOPIC: message.topic.encode(),
            REAL_QUEUE_ID: b"%d" % message.queue_id,
        }
        return msgspec.structs.replace(
            message,
            topic=SCHEDULE_TOPIC,
            queue_id=level - 1,
            properties=rewritten(message.properties, changes),
        )


def level_of(text: bytes) -> int:
    """The level that a property string asks for; 0 when it asks for none.

    Raises BrokerError for a level that is no number: delivered at once, such a message would be
    wrong, and nobody would notice.
    """
    value = properties.get(text, DELAY)
    if value is None:
        return 0
    digits = value[1:] if value[0] in "+-" else value
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
        shown = value[:_SHOWN_CHARACTERS_MAX]
        raise BrokerError(
            ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: delay level '{shown}'"
        )
    return max(int(value), 0)


def rewritten(text: bytes, changes: Mapping[bytes, bytes | None]) -> bytes:
    r"""A property string with some properties set, and those removed whose change is None.

    The others keep their place and their bytes. What is no property goes, and the last value of a
    repeated name stays, as when Java reads and writes it; the result ends with ``\x02``.
    """
    values: dict[bytes, bytes | None] = {}
    for item in text.split(b"\x02"):
        name, _, value = item.partition(b"\x01")
        if name and value:
            values[name] = value
    values.update(changes)
    return b"".join(
        b"%b\x01%b\x02" % (name, value) for name, value in values.items() if value is not None
    )
