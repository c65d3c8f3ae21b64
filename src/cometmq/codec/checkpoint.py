"""The ``checkpoint`` file: up to which store time the parts of a store are known to be on disk.

Five i64 at the start of a 4096-byte page; 4.x knows the first three and leaves the others 0. No
value can be trusted to be complete: brokers write the page now and then, not with every message.

Store times go back when a clock is set back, so we also say it by position, in a part of the page
that Apache neither reads nor writes::

    64   8 bytes "CometMQ1"
    72   i64 x 3, a copy of the first three fields: they differ once Apache has written the page
    96   i64 log position before which everything is on disk
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PAGE_BYTES: Final = 4096

_FIELDS = struct.Struct(">qqqqq")
_POSITION = struct.Struct(">8sqqqq")
_POSITION_AT = 64
_MARK = b"CometMQ1"


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """Times are store times of messages: last one in the log, in a queue, in a full index file."""

    log_timestamp: int = 0
    queue_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirmed_offset: int = 0


def pack(checkpoint: Checkpoint, position: int | None = None) -> bytes:
    """Return the whole page; ``position`` is that of the log, see above."""
    page = bytearray(PAGE_BYTES)
    times = (checkpoint.log_timestamp, checkpoint.queue_timestamp, checkpoint.index_timestamp)
    try:
        _FIELDS.pack_into(page, 0, *msgspec.structs.astuple(checkpoint))
        if position is not None:
            _POSITION.pack_into(page, _POSITION_AT, _MARK, *times, position)
    except struct.error as error:
        raise LocalProtocolError(f"a checkpoint value does not fit: {error}") from error
    return bytes(page)


def unpack_position(data: ReadableBuffer) -> int | None:
    """Return the log position of a page that we were the last to write; None of any other."""
    try:
        mark, *times, position = _POSITION.unpack_from(data, _POSITION_AT)
        fields = _FIELDS.unpack_from(data)
    except struct.error:
        return None
    return position if mark == _MARK and tuple(times) == fields[:3] and position >= 0 else None


def unpack(data: ReadableBuffer) -> Checkpoint:
    """Return the fields of a page; the rest of it is not looked at."""
    try:
        return Checkpoint(*_FIELDS.unpack_from(data))
    except struct.error as error:
        raise RemoteProtocolError("checkpoint is shorter than its five fields") from error
