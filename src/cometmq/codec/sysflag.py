"""The ``sysFlag`` word of a message: what the system, not the user, says about it.

::

    bit 0       body is compressed
    bit 1       topic filters by several tags
    bits 2-3    transaction: none, prepared, commit, rollback
    bit 4, 5    born host, store host is IPv6
    bit 6, 7    inner batch must be unwrapped, is an inner batch (5.x)
    bits 8-10   how the body is compressed (5.x); 0 is the zlib of 4.x

Code that touches every message uses the plain integers; an ``IntFlag`` costs a function call for
each operator.
"""

import enum

from cometmq.errors import RemoteProtocolError

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_MASK = 0x700
BROKER_FLAGS = BORN_HOST_V6 | STORE_HOST_V6 | NEED_UNWRAP | INNER_BATCH
"""Bits that only a broker sets: a record with a false one cannot be read."""


class SysFlag(enum.IntFlag):
    """Single bits and the two-bit transaction types, for code that prints or builds flags.

    ``ROLLBACK`` is both transaction bits, hence also the mask: ask ``transaction_type`` instead of
    testing ``PREPARED`` or ``COMMIT`` alone.
    """

    COMPRESSED = COMPRESSED
    MULTI_TAGS = MULTI_TAGS
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = TRANSACTION_MASK
    BORN_HOST_V6 = BORN_HOST_V6
    STORE_HOST_V6 = STORE_HOST_V6
    NEED_UNWRAP = NEED_UNWRAP
    INNER_BATCH = INNER_BATCH


class TransactionType(enum.IntEnum):
    """What a record is to its transaction; the values are the bits of the flag."""

    NONE = 0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = TRANSACTION_MASK


class CompressionType(enum.IntEnum):
    """How a body is compressed; the values are the bits of the flag."""

    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300


_TRANSACTION_TYPES = {int(kind): kind for kind in TransactionType}
_COMPRESSION_TYPES = {int(kind): kind for kind in CompressionType} | {0: CompressionType.ZLIB}


def transaction_type(sys_flag: int) -> TransactionType:
    """Return the transaction type; every flag has one."""
    return _TRANSACTION_TYPES[sys_flag & TRANSACTION_MASK]


def with_transaction_type(sys_flag: int, kind: TransactionType) -> int:
    """Return the flag with its transaction type replaced."""
    return sys_flag & ~TRANSACTION_MASK | kind


def compression_type(sys_flag: int) -> CompressionType | None:
    """Return how the body is compressed, or None when it is not.

    Raises RemoteProtocolError for the numbers 4 to 7, which no release has given a meaning.
    """
    if not sys_flag & COMPRESSED:
        return None
    kind = _COMPRESSION_TYPES.get(sys_flag & COMPRESSION_MASK)
    if kind is None:
        raise RemoteProtocolError(f"unknown compression type in sysFlag {sys_flag:#x}")
    return kind


def with_compression(sys_flag: int, kind: CompressionType) -> int:
    """Return the flag saying that the body is compressed with ``kind``."""
    return sys_flag & ~COMPRESSION_MASK | COMPRESSED | kind
