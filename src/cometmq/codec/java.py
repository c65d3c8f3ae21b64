"""Java-isms that ended up in files and frames: string hashes and 31-bit checksums."""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

INT32_MIN = -(1 << 31)
INT32_MAX = (1 << 31) - 1
INT64_MIN = -(1 << 63)

_UTF16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


def string_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: signed 32 bits, over UTF-16 code units.

    A character beyond the basic plane counts as its two surrogates; a lone surrogate counts as
    itself, so every ``str`` has a hash.
    """
    units: bytes | memoryview
    if text.isascii():
        units = text.encode()
    else:
        units = memoryview(text.encode(_UTF16, "surrogatepass")).cast("H")
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def masked_crc32(data: ReadableBuffer) -> int:
    """Return the CRC-32 of ``data`` without its top bit, as every RocketMQ checksum is kept."""
    return zlib.crc32(data) & 0x7FFFFFFF


def index_hash(key: str) -> int:
    """Return the hash under which index files keep ``key``: never negative.

    The one hash without a positive twin, -2**31, becomes 0.
    """
    value = abs(string_hash(key))
    return value if value <= INT32_MAX else 0
