"""What queues and index need to know of the records in a stretch of the commit log.

The walk is the same everywhere: dispatching, recovery and replication differ only in what they do
with the digests and with the way a walk ended.
"""

from __future__ import annotations

import enum
import functools
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from cometmq.codec import properties as message_properties
from cometmq.codec.index_entry import key_text, tag_text
from cometmq.codec.java import ascii_index_hash, index_hash
from cometmq.codec.properties import KEYS_MARK, TAGS_MARK, Property, find_value
from cometmq.codec.queue_entry import tags_code
from cometmq.codec.record import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    Blank,
    Record,
    parse,
    peek,
)
from cometmq.codec.sysflag import BORN_HOST_V6, STORE_HOST_V6
from cometmq.errors import RemoteProtocolError
from cometmq.model.limits import PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX

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

_USUAL_HEAD: Final = struct.Struct(">ii4xi4xqqi16xq20xi")
"""Of a record with IPv4 hosts, up to its body: size, magic, queue id, queue offset, physical
offset, sys flag, store timestamp, body length."""
_USUAL_HEAD_BYTES: Final = _USUAL_HEAD.size
_HOSTS_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
_UNIQUE_KEY_MARK: Final = b"UNIQ_KEY\x01"
_CACHED_TAG_BYTES_MAX: Final = 64

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


def usual_digest(data: bytes, position: int, base: int) -> Digest | None:
    """Digest the record at ``position`` if it is of the usual kind; None leaves it to ``walk``.

    Usual are a complete record of version 1, from and on IPv4 hosts, and nothing odd about it. It
    is read without making a ``Record``, which the plain core would spend half of a dispatch on.
    """
    room = len(data) - position
    if room < RECORD_BYTES_MIN:
        return None
    (
        size, magic, queue_id, queue_offset, physical_offset, sys_flag, stored, body_bytes
    ) = _USUAL_HEAD.unpack_from(data, position)  # fmt: skip
    if (
        magic != MAGIC_V1
        or physical_offset != base + position
        or sys_flag & _HOSTS_V6
        or size > room
        or not 0 <= body_bytes <= size - RECORD_BYTES_MIN
    ):
        return None
    topic_begin = position + _USUAL_HEAD_BYTES + body_bytes + 1
    topic_end = topic_begin + data[topic_begin - 1]
    begin, end = topic_end + 2, position + size
    if begin > end or topic_end - topic_begin > TOPIC_BYTES_MAX:
        return None
    properties_bytes = data[topic_end] << 8 | data[topic_end + 1]
    if properties_bytes != end - begin or properties_bytes > PROPERTIES_BYTES_MAX:
        return None
    topic_bytes = data[topic_begin:topic_end]
    topic = _topic(topic_bytes)
    if topic is None:
        return None
    code, hashes = usual_hashes(
        topic_bytes,
        find_value(data, begin, end, _UNIQUE_KEY_MARK),
        find_value(data, begin, end, KEYS_MARK),
        find_value(data, begin, end, TAGS_MARK),
    )
    return (
        topic, queue_id, queue_offset, physical_offset, size, sys_flag, stored, code, hashes
    )  # fmt: skip


def usual_hashes(
    topic: bytes, unique_key: bytes, keys: bytes, tags: bytes
) -> tuple[int, tuple[int, ...]]:
    """Return tags code and key hashes of a message with these properties; empty ones are none."""
    code = 0
    hashes: tuple[int, ...] = (_key_hash(topic, unique_key),) if unique_key else ()
    if keys:
        hashes += tuple([_key_hash(topic, key) for key in keys.split(b" ") if key])
    if tags:
        is_short = len(tags) <= _CACHED_TAG_BYTES_MAX
        code, tag = _known_tag_hashes(topic, tags) if is_short else _tag_hashes(topic, tags)
        hashes += (tag,)
    return code, hashes


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


@functools.lru_cache(maxsize=256)
def _topic(data: bytes) -> str | None:
    """The name in these bytes, or None when it cannot be one."""
    try:
        topic = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in topic else topic


def _key_hash(topic: bytes, key: bytes) -> int:
    text = topic + b"#" + key
    if text.isascii():
        return ascii_index_hash(text)
    return key_hash(topic.decode(), key.decode("utf-8", "replace"))


def _tag_hashes(topic: bytes, tags: bytes) -> tuple[int, int]:
    """Tags code, and the hash for the index."""
    text = tags.decode("utf-8", "replace")
    return tags_code(text), tag_hash(topic.decode(), text)


_known_tag_hashes = functools.lru_cache(maxsize=1024)(_tag_hashes)


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
