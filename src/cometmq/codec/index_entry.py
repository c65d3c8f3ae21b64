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
import sys
from array import array
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.codec.java import INT32_MAX
from cometmq.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import ReadableBuffer, WriteableBuffer

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
    if begin_timestamp <= 0 or store_timestamp <= begin_timestamp:
        return 0
    seconds = (store_timestamp - begin_timestamp) // 1000
    return min(seconds, INT32_MAX)


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


# On whole files, for every message or every entry: plain integers, nothing made on the way.


def put_header(
    data: WriteableBuffer,
    begin_timestamp: int,
    end_timestamp: int,
    begin_offset: int,
    end_offset: int,
    slot_count: int,
    index_count: int,
) -> None:
    """Write the header of a file."""
    try:
        _HEADER.pack_into(
            data,
            0,
            begin_timestamp,
            end_timestamp,
            begin_offset,
            end_offset,
            slot_count,
            index_count,
        )
    except struct.error as error:
        raise LocalProtocolError(f"not an index header: {error}") from error


def put_into(
    data: WriteableBuffer,
    slots: int,
    number: int,
    key_hash: int,
    physical_offset: int,
    seconds: int,
) -> bool:
    """Write entry ``number``, then make it the newest of its slot; tell whether that was empty.

    ``number`` must be higher than all before: a slot that leads to it or beyond was left by a
    writer that was killed, and counts as empty.
    """
    return put_entries(data, slots, number, (key_hash,), physical_offset, seconds) == 1


def put_entries(
    data: WriteableBuffer,
    slots: int,
    number: int,
    hashes: Sequence[int],
    physical_offset: int,
    seconds: int,
) -> int:
    """Write entries for all hashes of one message from ``number`` on; how many slots were empty.

    ``seconds`` is the time field of the first. The very first entry of a file sets the begin
    timestamp, so the others of its message count from there.
    """
    assert number > 0, number
    empty = 0
    position = HEADER_BYTES + SLOT_BYTES * slots + ENTRY_BYTES * number
    try:
        for key_hash in hashes:
            assert 0 <= key_hash <= INT32_MAX, key_hash
            slot = HEADER_BYTES + SLOT_BYTES * (key_hash % slots)
            (previous,) = _SLOT.unpack_from(data, slot)
            if not 0 < previous < number:
                previous = 0
                empty += 1
            _ENTRY.pack_into(data, position, key_hash, physical_offset, seconds, previous)
            _SLOT.pack_into(data, slot, number)
            if number == 1:
                seconds = 0
            number += 1
            position += ENTRY_BYTES
    except struct.error as error:
        raise LocalProtocolError(f"not an index entry, or no room for it: {error}") from error
    return empty


def find(
    data: ReadableBuffer,
    slots: int,
    count: int,
    key_hash: int,
    begin_timestamp: int,
    begin_ms: int,
    end_ms: int,
    limit: int,
) -> list[int]:
    """Return physical offsets of entries with the hash and a time in range, newest first.

    A message that has the key twice is found once.
    ``count`` is the number of the next entry, ``begin_timestamp`` the one of the header. Times are
    known to the second, rounded down. The walk ends at the first entry before ``begin_ms``, as in
    Java, and after ``count`` steps in any case: damaged chains may run in circles.
    """
    found: list[int] = []
    first = HEADER_BYTES + SLOT_BYTES * slots
    try:
        number = _SLOT.unpack_from(data, HEADER_BYTES + SLOT_BYTES * (key_hash % slots))[0]
        for _ in range(count):
            if not 0 < number < count or len(found) >= limit:
                break
            entry_hash, physical_offset, seconds, previous = _ENTRY.unpack_from(
                data, first + ENTRY_BYTES * number
            )
            time_ms = begin_timestamp + seconds * 1000
            if seconds < 0:
                break
            is_wanted = entry_hash == key_hash and begin_ms <= time_ms <= end_ms
            if is_wanted and found[-1:] != [physical_offset]:
                found.append(physical_offset)
            if previous == number or time_ms < begin_ms:
                break
            number = previous
    except struct.error as error:
        raise RemoteProtocolError(f"index file ends before entry {count}: {error}") from error
    return found


def relink(data: WriteableBuffer, slots: int, count: int) -> int:
    """Make slots and chains anew from the hashes of entries 1 to ``count`` - 1; slots then in use.

    Writes only what is different: pages that are right already stay clean. Hashes must not be
    negative, see ``valid_count``.
    """
    newest = array("i", bytes(SLOT_BYTES * slots))
    with memoryview(data) as view:
        first = entry_position(1, slots)
        with view[first : entry_position(count, slots)] as entries:
            position = first + ENTRY_BYTES - SLOT_BYTES
            for number, entry in enumerate(_ENTRY.iter_unpack(entries), 1):
                slot = entry[0] % slots
                if entry[3] != newest[slot]:
                    _SLOT.pack_into(view, position, newest[slot])
                newest[slot] = number
                position += ENTRY_BYTES
        used = slots - newest.count(0)
        if sys.byteorder == "little":
            newest.byteswap()
        content = newest.tobytes()
        with view[HEADER_BYTES : HEADER_BYTES + len(content)] as head:
            if head != content:
                head[:] = content
    return used


def valid_count(
    data: ReadableBuffer, slots: int, count: int, begin_offset: int, end_offset: int
) -> int:
    """Return the number of the first entry that cannot be real; at most ``count``.

    Physical offsets lie in ``[begin_offset, end_offset)`` and never fall; hashes and times are not
    negative. Zeros are an entry that was not written, or whose page was lost.
    """
    number = 1
    with (
        memoryview(data) as view,
        view[entry_position(1, slots) : entry_position(count, slots)] as entries,
    ):
        for key_hash, physical_offset, seconds, _ in _ENTRY.iter_unpack(entries):
            if key_hash < 0 or seconds < 0 or not begin_offset <= physical_offset < end_offset:
                break
            if key_hash == physical_offset == 0:
                break
            begin_offset = physical_offset
            number += 1
    return number
