"""Java-isms that ended up in files and frames: string hashes and 31-bit checksums."""

from __future__ import annotations

import functools
import sys
import zlib
from operator import mul
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import ReadableBuffer

INT32_MIN = -(1 << 31)
INT32_MAX = (1 << 31) - 1
INT64_MIN = -(1 << 63)

_UTF16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"

_BLOCK_UNITS = 64
_POWER_OF_BLOCK = tuple(pow(31, units, 1 << 32) for units in range(_BLOCK_UNITS + 1))
"""What a hash is multiplied with when so many units follow."""
_POWERS = _POWER_OF_BLOCK[-2::-1]
"""What the units of a block are multiplied with: the last one counts as it is."""
_TAIL_UNITS = 6
_CACHED_UNITS_MAX = 192


def string_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: signed 32 bits, over UTF-16 code units.

    A character beyond the basic plane counts as its two surrogates; a lone surrogate counts as
    itself, so every ``str`` has a hash.
    """
    if text.isascii():
        return _signed(_ascii_hash(text.encode()))
    return _signed(_hash(memoryview(text.encode(_UTF16, "surrogatepass")).cast("H")))


def masked_crc32(data: ReadableBuffer) -> int:
    """Return the CRC-32 of ``data`` without its top bit, as every RocketMQ checksum is kept."""
    return zlib.crc32(data) & 0x7FFFFFFF


def index_hash(key: str) -> int:
    """Return the hash under which index files keep ``key``: never negative.

    The one hash without a positive twin, -2**31, becomes 0.
    """
    value = string_hash(key)
    return abs(value) if value != INT32_MIN else 0


def ascii_index_hash(key: bytes) -> int:
    """Return ``index_hash`` of a key that is ASCII and at hand as bytes."""
    value = _ascii_hash(key)
    return value if value <= INT32_MAX else -value & INT32_MAX


def _ascii_hash(text: bytes) -> int:
    # The unique keys that a producer makes in a quarter of a second differ in the last six digits
    # only, so the hash of what is before them is nearly always there already. Long heads would
    # fill the memory.
    if _TAIL_UNITS < len(text) <= _CACHED_UNITS_MAX:
        a, b, c, d, e, f = text[-_TAIL_UNITS:]
        tail = ((((a * 31 + b) * 31 + c) * 31 + d) * 31 + e) * 31 + f
        return _head_hash(text[:-_TAIL_UNITS]) + tail & 0xFFFFFFFF
    return _hash(text)


def _hash(units: Sequence[int]) -> int:
    """The polynomial in 31 that the units are the coefficients of; its low 32 bits."""
    value = 0
    for begin in range(0, len(units), _BLOCK_UNITS):
        block = units[begin : begin + _BLOCK_UNITS]
        # One pass in C for many units: a loop over them takes twice as long.
        powers = _POWERS[_BLOCK_UNITS - len(block) :]
        value = (value * _POWER_OF_BLOCK[len(block)] + sum(map(mul, block, powers))) & 0xFFFFFFFF
    return value


@functools.lru_cache(maxsize=1024)
def _head_hash(head: bytes) -> int:
    return _hash(head) * _POWER_OF_BLOCK[_TAIL_UNITS]


def _signed(value: int) -> int:
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value
