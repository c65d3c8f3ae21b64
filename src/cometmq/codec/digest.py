"""What queues and index need to know of the records in a stretch of the commit log.

The walk is the same everywhere: dispatching, recovery and replication differ only in what they do
with the digests and with the way a walk ended.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from cometmq.codec import properties as message_properties
from cometmq.codec.index_entry import key_text, tag_text
from cometmq.codec.java import index_hash
from cometmq.codec.properties import Property
from cometmq.codec.queue_entry import tags_code
from cometmq.codec.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Blank, Record, parse, peek
from cometmq.errors import RemoteProtocolError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Digest: TypeAlias = tuple[str, int, int, int, int, int, int, int, tuple[int, ...]]
"""Topic, queue id, queue offset, physical offset, size, sys flag, store timestamp, tags code, and
the key hashes for the index: unique key, keys, tag, in this order."""

_UNIQUE_KEY: Final = Property.UNIQ_KEY.encode()
_KEYS: Final = Property.KEYS.encode()
_TAGS: Final = Property.TAGS.encode()
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_SYS_FLAG_POSITION: Final = 36
_STORE_TIMESTAMP_POSITION: Final = 56
_BORN_V6_EXTRA: Final = 12
_HEAD_BYTES: Final = 8

SECTOR_BYTES: Final = 512
"""What a disk writes whole or not at all."""


class Ending(enum.IntEnum):
    """Why a walk stopped where it did."""

    END = 0
    """At the end of the data, or at the limit."""
    BLANK = 1
    """At the filler that ends a file."""
    BROKEN = 2
    """At bytes that are no record, or not the record that belongs there."""
    INCOMPLETE = 3
    """At a record that goes on behind the end of the data."""


class Walk(NamedTuple):
    """Digests of the records found, where the walk stopped, and why."""

    digests: list[Digest]
    position: int
    ending: Ending


def walked(digests: list[Digest], position: int, ending: int) -> Walk:
    """Return the result of the compiled walk, which knows endings as numbers."""
    return Walk(digests, position, Ending(ending))


def walk(
    data: ReadableBuffer, begin: int, end: int, base: int, limit: int, check_crc: bool
) -> Walk:
    """Digest the records in ``data[begin:end]``, at most ``limit`` of them.

    ``base`` is the physical offset of ``data[0]``, where a file begins; a record that names another
    offset than its own ends the walk as broken. With ``check_crc`` bodies must have their checksum
    and no sector of the properties, which have none, may be all zeros: after a power cut that is
    what was never written.
    """
    digests: list[Digest] = []
    position = begin
    with memoryview(data) as whole, whole[:end] as view:
        while position < end and len(digests) < limit:
            if end - position < _HEAD_BYTES:
                return Walk(digests, position, Ending.INCOMPLETE)
            record = _record_at(view, position, check_crc)
            if isinstance(record, Ending):
                return Walk(digests, position, record)
            is_misplaced = record.physical_offset != base + position
            if "\0" in record.topic:
                return Walk(digests, position, Ending.BROKEN)
            if is_misplaced or (check_crc and _has_lost_sector(view, position, record)):
                return Walk(digests, position, Ending.BROKEN)
            digests.append(_digest(record))
            position += record.size
    return Walk(digests, position, Ending.END)


def key_hash(topic: str, key: str) -> int:
    """Return the hash under which the index keeps a key of a topic's message."""
    return index_hash(key_text(topic, key))


def tag_hash(topic: str, tag: str) -> int:
    """Return the hash under which the index keeps a tag of a topic's message."""
    return index_hash(tag_text(topic, tag))


def hashes_of(topic: str, unique_key: str | None, keys: str | None, tags: str | None) -> list[int]:
    """The hashes a message is indexed under, in the order of its entries."""
    hashes = [key_hash(topic, unique_key)] if unique_key else []
    if keys:
        hashes += [key_hash(topic, key) for key in keys.split(" ") if key]
    if tags:
        hashes.append(tag_hash(topic, tags))
    return hashes


def store_timestamp(data: ReadableBuffer, position: int) -> int:
    """Return the store time of the record at ``position``, which is taken to be one."""
    (sys_flag,) = _INT32.unpack_from(data, position + _SYS_FLAG_POSITION)
    extra = _BORN_V6_EXTRA if sys_flag & 0x10 else 0
    value: int = _INT64.unpack_from(data, position + _STORE_TIMESTAMP_POSITION + extra)[0]
    return value


def _record_at(view: memoryview, position: int, check_crc: bool) -> Record | Ending:
    size, magic = peek(view, position)
    if magic == MAGIC_BLANK:
        return Ending.BLANK
    try:
        record = parse(view, position, check_crc=check_crc, with_body=False)
    except RemoteProtocolError:
        is_cut = size > view.nbytes - position and magic in (MAGIC_V1, MAGIC_V2)
        return Ending.INCOMPLETE if is_cut else Ending.BROKEN
    return Ending.BLANK if isinstance(record, Blank) else record


def _has_lost_sector(view: memoryview, position: int, record: Record) -> bool:
    """Tell whether a disk sector that lies in the properties, or ends them, is all zeros."""
    end = position + record.size
    begin = end - len(record.properties)
    first = -(-begin // SECTOR_BYTES) * SECTOR_BYTES
    return any(
        not any(view[sector : min(sector + SECTOR_BYTES, end)])
        for sector in range(first, end, SECTOR_BYTES)
    )


def _digest(record: Record) -> Digest:
    topic = record.topic
    unique_key = message_properties.get(record.properties, _UNIQUE_KEY)
    keys = message_properties.get(record.properties, _KEYS)
    tags = message_properties.get(record.properties, _TAGS)
    return (
        topic,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.size,
        record.sys_flag,
        record.store_timestamp,
        tags_code(tags),
        tuple(hashes_of(topic, unique_key, keys, tags)),
    )
