"""Index files: from a message key to the places in the commit log where it may be found.

::

    header (40)   i64 begin timestamp, i64 end timestamp, i64 begin offset, i64 end offset,
                  i32 slots in use, i32 number of the next entry (the first one is 1)
    slots (4)     i32 number of the newest entry whose hash falls on the slot, 0 = none
    entries (20)  i32 key hash, i64 physical offset, i32 seconds since the begin timestamp,
                  i32 number of the next older entry of the same slot

Entry 0 exists as bytes but is never used, so a file for ``n`` entries holds ``n - 1``. Only hashes
are kept: a hit may be another key.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.codec.java import INT32_MAX
from cometmq.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

HEADER_BYTES: Final = 40
SLOT_BYTES: Final = 4
ENTRY_BYTES: Final = 20

_HEADER = struct.Struct(">qqqqii")
_SLOT = struct.Struct(">i")
_ENTRY = struct.Struct(">iqii")


class IndexHeader(msgspec.Struct, frozen=True, gc=False):
    """What a file covers; ``index_count`` is the number the next entry gets."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    slot_count: int = 0
    index_count: int = 1


class IndexEntry(msgspec.Struct, frozen=True, gc=False):
    """One key of one message; ``previous`` is the next older entry of the chain."""

    key_hash: int
    physical_offset: int
    seconds: int
    previous: int


def file_bytes(slots: int, entries: int) -> int:
    """Return the size of a file with so many slots and entries, the unused entry 0 included."""
    return entry_position(entries, slots)


def slot_position(key_hash: int, slots: int) -> int:
    """Return where the slot of a key hash lies in the file."""
    assert key_hash >= 0, key_hash
    return HEADER_BYTES + SLOT_BYTES * (key_hash % slots)


def entry_position(number: int, slots: int) -> int:
    """Return where an entry lies in a file with so many slots."""
    return HEADER_BYTES + SLOT_BYTES * slots + ENTRY_BYTES * number


def pack_header(header: IndexHeader) -> bytes:
    return _pack(_HEADER, *msgspec.structs.astuple(header))


def unpack_header(data: ReadableBuffer) -> IndexHeader:
    """Return the header of a file. A count of 0 or less, as in a fresh file, reads as 1."""
    header = IndexHeader(*_unpack(_HEADER, data, 0))
    if header.index_count > 0:
        return header
    return msgspec.structs.replace(header, index_count=1)


def pack_slot(number: int) -> bytes:
    return _pack(_SLOT, number)


def unpack_slot(data: ReadableBuffer, position: int) -> int:
    """Return the entry number a slot holds; ``is_linked`` tells whether it leads anywhere."""
    return _unpack(_SLOT, data, position)[0]


def pack_entry(entry: IndexEntry) -> bytes:
    return _pack(_ENTRY, *msgspec.structs.astuple(entry))


def unpack_entry(data: ReadableBuffer, position: int) -> IndexEntry:
    return IndexEntry(*_unpack(_ENTRY, data, position))


def is_linked(number: int, index_count: int) -> bool:
    """Tell whether a slot or ``previous`` value points to an entry; otherwise the chain ends.

    ``index_count`` itself still passes, as in Java, although that entry is not written yet. A
    reader must also stop at an entry that points to itself.
    """
    return 0 < number <= index_count


def seconds_since(begin_timestamp: int, store_timestamp: int) -> int:
    """Return the time field of an entry, given the begin timestamp the header has just then.

    A file that continues another one is born with the end timestamp of that file as its begin, so
    its first entry counts from there.
    """
    if begin_timestamp <= 0:
        return 0
    return min(max(0, store_timestamp - begin_timestamp) // 1000, INT32_MAX)


def key_text(topic: str, key: str) -> str:
    """Return what is hashed for a key (or unique key) of a message in ``topic``."""
    return f"{topic}#{key}"


def tag_text(topic: str, tag: str) -> str:
    """Return what is hashed for a tag; only 5.5 and later index tags."""
    return f"{topic}#T#{tag}"


def _pack(layout: struct.Struct, *values: int) -> bytes:
    try:
        return layout.pack(*values)
    except struct.error as error:
        raise LocalProtocolError(f"an index value does not fit into its field: {error}") from error


def _unpack(layout: struct.Struct, data: ReadableBuffer, position: int) -> tuple[int, ...]:
    assert position >= 0, position
    try:
        return layout.unpack_from(data, position)
    except struct.error as error:
        raise RemoteProtocolError(f"index file ends before {position + layout.size}") from error
