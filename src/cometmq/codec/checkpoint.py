"""The ``checkpoint`` file: up to which store time the parts of a store are known to be on disk.

Five i64 at the start of a 4096-byte page; 4.x knows the first three and leaves the others 0. No
value can be trusted to be complete: brokers write the page now and then, not with every message.
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


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """Times are store times of messages: last one in the log, in a queue, in a full index file."""

    log_timestamp: int = 0
    queue_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirmed_offset: int = 0


def pack(checkpoint: Checkpoint) -> bytes:
    """Return the whole page."""
    try:
        fields = _FIELDS.pack(*msgspec.structs.astuple(checkpoint))
    except struct.error as error:
        raise LocalProtocolError(f"a checkpoint value does not fit: {error}") from error
    return fields.ljust(PAGE_BYTES, b"\0")


def unpack(data: ReadableBuffer) -> Checkpoint:
    """Return the fields of a page; the rest of it is not looked at."""
    try:
        return Checkpoint(*_FIELDS.unpack_from(data))
    except struct.error as error:
        raise RemoteProtocolError("checkpoint is shorter than its five fields") from error
