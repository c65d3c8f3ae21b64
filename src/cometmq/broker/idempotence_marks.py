"""The property by which a stored message tells who sent it, and as which of its messages.

::

    COMET_SEQ = producer ":" sequence ":" seal        seal: 8 hexadecimal digits

Properties travel: consumers hand messages on, delayed ones are stored twice, archives are replayed.
So a mark counts only where it was made. The seal is a checksum over the mark and the place of the
record (broker, topic, queue and queue offset), which a copy does not share.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from cometmq.codec import batch as batch_codec
from cometmq.codec import record
from cometmq.codec.batch import BatchItem
from cometmq.codec.properties import Property, find_value
from cometmq.codec.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN, Record
from cometmq.logs import get_logger
from cometmq.model.system_names import HALF_TOPIC, TIMER_TOPIC
from cometmq.model.topic import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cometmq.store import MessageStore
    from cometmq.store.results import NewMessage

PROPERTY: Final = "COMET_SEQ"

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""How much of the log is looked at in one piece."""

_HEAD: Final = struct.Struct(">ii")
_FIELD: Final = PROPERTY.encode() + b"\x01"
_REAL_TOPIC: Final = Property.REAL_TOPIC.encode() + b"\x01"
_REAL_QUEUE_ID: Final = Property.REAL_QUEUE_ID.encode() + b"\x01"
_VALUE: Final = re.compile(rb"(.+):([0-9]{1,19}):([0-9a-f]{8})", re.DOTALL)
_ASIDE: Final = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, TIMER_TOPIC})
"""Topics in which messages wait; whose they are is said by their properties."""

_log = get_logger(__name__)


class Marked(NamedTuple):
    """A record of an idempotent send: whose it is, and where it was meant to go."""

    producer_id: str
    sequence: int
    topic: str
    queue_id: int
    queue_offset: int
    begin: int
    end: int
    store_timestamp: int
    aside: tuple[str, int] | None
    """Topic and queue id in which it waits, if it does."""


class Marker:
    """Marks what a producer sends to one queue; ``message`` is what will be stored, or a batch."""

    def __init__(self, producer_id: str, message: NewMessage) -> None:
        self._producer = producer_id.encode()
        self._seal = _place_seal(
            message.topic.encode(), message.queue_id, message.store_host, self._producer
        )

    def marked(self, properties: bytes, sequence: int, queue_offset: int) -> bytes:
        """The properties with the mark behind them."""
        seal = crc32(b"%d %d" % (sequence, queue_offset), self._seal)
        separator = b"" if not properties or properties.endswith(b"\x02") else b"\x02"
        return b"%s%s%s%s:%d:%08x\x02" % (
            properties, separator, _FIELD, self._producer, sequence, seal
        )  # fmt: skip

    def batch(self, items: Sequence[BatchItem], sequence: int, queue_offset: int) -> bytes:
        """The body of a batch with a mark in each message; counts on from the numbers given.

        Raises LocalProtocolError when the properties of one get too long.
        """
        marked = self.marked
        return batch_codec.encode(
            BatchItem(item.flag, item.body, marked(item.properties, sequence + n, queue_offset + n))
            for n, item in enumerate(items)
        )

    def mark_bytes(self, sequence: int) -> int:
        """How long a mark is, at least."""
        return len(self.marked(b"", sequence, 0))


def count_messages(body: bytes | memoryview, count_max: int) -> int:
    """How many messages a batch says it has; a higher number than ``count_max`` when it is more.

    0 when it is none. What is in the messages is not looked at.
    """
    count = position = 0
    while position < len(body) and count <= count_max:
        size = int.from_bytes(body[position : position + 4], "big")
        position += size
        count += 1
        if not size or position > len(body):
            return 0
    return count


def mark_of(found: Record) -> Marked | None:
    """What a record says of its sender; None when it says nothing, or is a copy of one that did."""
    properties = found.properties
    value = find_value(properties, 0, len(properties), _FIELD)
    match = _VALUE.fullmatch(value)
    if match is None:
        return None
    producer, digits, written = match.groups()
    sequence = int(digits)
    seal = _place_seal(found.topic.encode(), found.queue_id, found.store_host, producer)
    if crc32(b"%d %d" % (sequence, found.queue_offset), seal) != int(written, 16):
        return None
    topic, queue_id, aside = found.topic, found.queue_id, None
    if topic in _ASIDE:
        aside = topic, queue_id
        topic = find_value(properties, 0, len(properties), _REAL_TOPIC).decode("utf-8", "replace")
        digits = find_value(properties, 0, len(properties), _REAL_QUEUE_ID)
        queue_id = int(digits) if digits.isdigit() and len(digits) < 10 else 0
    return Marked(
        producer.decode("utf-8", "replace"),
        sequence,
        topic,
        queue_id,
        found.queue_offset,
        found.physical_offset,
        found.physical_offset + found.size,
        found.store_timestamp,
        aside,
    )


def marks_since(store: MessageStore, begin: int) -> Iterator[Marked]:
    """The marks in the log from ``begin`` on, where a record must begin; for an idle store.

    Records without one are passed over without being read.
    """
    offset, end = begin, store.watermarks.committed
    limit = CHUNK_BYTES
    while offset < end:
        with store.read_raw(offset, limit) as view:
            data = bytes(view)
        marks, length = _marks_in(data)
        yield from marks
        if length:
            limit = CHUNK_BYTES
        elif len(data) == limit:
            limit *= 4  # a record larger than the piece
        else:
            _log.error("marks of idempotent sends: no record begins at %d of the log", offset)
            return
        offset += length


def _marks_in(data: bytes) -> tuple[list[Marked], int]:
    """The marks of the whole records in ``data``, and where the next record begins."""
    marks: list[Marked] = []
    position, next_mark = 0, data.find(_FIELD)
    while len(data) - position >= _HEAD.size:
        size, magic = _HEAD.unpack_from(data, position)
        if magic == MAGIC_BLANK and size >= _HEAD.size:
            return marks, position + size
        end = position + size
        if magic not in (MAGIC_V1, MAGIC_V2) or size < RECORD_BYTES_MIN or end > len(data):
            break
        if 0 <= next_mark < end:
            found = record.parse(data, position, with_body=False)
            mark = mark_of(found) if isinstance(found, Record) else None
            if mark is not None:
                marks.append(mark)
            next_mark = data.find(_FIELD, end)
        position = end
    return marks, position


def _place_seal(topic: bytes, queue_id: int, store_host: bytes, producer: bytes) -> int:
    return crc32(b"%s\0%d\0%s\0%s\0" % (topic, queue_id, store_host, producer))
