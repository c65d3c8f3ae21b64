"""Extension of a consume queue: what does not fit into 20 bytes.

::

    i16 size              of the whole unit
    i64 tags code
    i64 store timestamp   of the message
    i16 bitmap length, bitmap

The queue entry then holds the unit's address in place of a tags code. A file ends with the size -1;
the rest of it is unused.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.codec.java import INT32_MIN, INT64_MIN
from cometmq.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

UNIT_BYTES_MIN: Final = 20
UNIT_BYTES_MAX: Final = 32_767

END_MARKER: Final = b"\xff\xff"
END_BYTES_MIN: Final = 4
"""A unit is only written where this much stays free behind it for the end marker."""

_UNIT = struct.Struct(">hqqh")
_SIZE = struct.Struct(">h")
_END = -1


class ExtensionUnit(msgspec.Struct, frozen=True, gc=False):
    """One unit; ``bitmap`` says which consumers' expressions matched."""

    tags_code: int
    store_timestamp: int
    bitmap: bytes = b""

    @property
    def size(self) -> int:
        return UNIT_BYTES_MIN + len(self.bitmap)


def encode(unit: ExtensionUnit) -> bytes:
    """Return the bytes. Raises LocalProtocolError when the unit is too large for its size field."""
    try:
        head = _UNIT.pack(unit.size, unit.tags_code, unit.store_timestamp, len(unit.bitmap))
    except struct.error as error:
        raise LocalProtocolError(f"not a queue extension unit: {error}") from error
    return head + unit.bitmap


def parse(data: ReadableBuffer, position: int = 0) -> ExtensionUnit | None:
    """Return the unit at ``position``, or None at the end marker of a file."""
    assert position >= 0, position
    with memoryview(data) as view:
        present = view.nbytes - position
        if present < _SIZE.size:
            raise RemoteProtocolError(
                f"no queue extension unit at {position}: {present} bytes left"
            )
        (size,) = _SIZE.unpack_from(view, position)
        if size == _END:
            return None
        if not UNIT_BYTES_MIN <= size <= present:
            raise RemoteProtocolError(f"queue extension unit of {size} bytes, {present} are there")
        _, tags_code, store_timestamp, bitmap_length = _UNIT.unpack_from(view, position)
        if bitmap_length != size - UNIT_BYTES_MIN:
            raise RemoteProtocolError(f"bitmap of {bitmap_length} bytes in a unit of {size}")
        bitmap = bytes(view[position + UNIT_BYTES_MIN : position + size])
    return ExtensionUnit(tags_code, store_timestamp, bitmap)


def is_address(tags_code: int) -> bool:
    """Tell whether a queue entry's tags code is an address; no Java hash is."""
    return tags_code < INT32_MIN


def address_to_tags_code(offset: int) -> int:
    """Return what a queue entry holds for the unit at ``offset`` of the extension."""
    address = INT64_MIN + offset
    if offset < 0 or not is_address(address):
        raise LocalProtocolError(f"{offset} is not an offset in a queue extension")
    return address


def tags_code_to_address(tags_code: int) -> int:
    """Return the offset in the extension that a queue entry points to."""
    if not is_address(tags_code):
        raise RemoteProtocolError(f"tags code {tags_code} is not a queue extension address")
    return tags_code - INT64_MIN
