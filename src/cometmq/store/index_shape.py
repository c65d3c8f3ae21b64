"""How many slots an index file has: it does not say, but its content tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.codec import index_entry

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_CHUNK_BYTES = 64 * 1024
_ENTRY_WORDS = index_entry.ENTRY_BYTES // index_entry.SLOT_BYTES


def index_slots_of(data: ReadableBuffer) -> int | None:
    """How many slots an index file was made with, to be seen from what is in it.

    The header says how many slots are in use. Behind the last of these only zeros come until the
    first entry, which lies one unused entry behind the slots. None when that leads nowhere: a
    file without entries, or a damaged one.
    """
    with memoryview(data) as view:
        if view.nbytes < index_entry.HEADER_BYTES:
            return None
        header = index_entry.unpack_header(view)
        if header.index_count <= 1:
            return None
        position = _nonzero_position(view, header.slot_count)
        most = (position - index_entry.entry_position(1, 0)) // index_entry.SLOT_BYTES
        # The first entry may begin with zeros itself, or be nothing else.
        likely = (most - zeros for zeros in range(_ENTRY_WORDS + 1))
        return next((n for n in likely if n > 0 and has_index_slots(view, n)), None)


def has_index_slots(data: ReadableBuffer, slots: int) -> bool:
    """Whether an index file can have so many slots: its newest entry then begins a chain."""
    newest = index_entry.unpack_header(data).index_count - 1
    if newest < 1:
        return True
    with memoryview(data) as view:
        position = index_entry.entry_position(newest, slots)
        if position + index_entry.ENTRY_BYTES > view.nbytes:
            return False
        key_hash = index_entry.unpack_entry(view, position).key_hash
        if key_hash < 0:
            return False
        return index_entry.unpack_slot(view, index_entry.slot_position(key_hash, slots)) == newest


def _nonzero_position(view: memoryview, number: int) -> int:
    """Where the four bytes lie, behind the header, that are not zero for the n-th time from 0."""
    position = index_entry.HEADER_BYTES
    while position < view.nbytes:
        with view[position : position + _CHUNK_BYTES] as chunk:
            values = chunk[: chunk.nbytes // 4 * 4].cast("i").tolist()
        used = len(values) - values.count(0)
        if used > number:
            indexes = (index for index, value in enumerate(values) if value)
            for _ in range(number):
                next(indexes)
            return position + 4 * next(indexes)
        number -= used
        position += _CHUNK_BYTES
    return -1
