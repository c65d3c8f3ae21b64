"""Message ids, the broker's and the clients'.

The broker's *offset id* says where the record lies: store host and physical offset. A client's
*unique id* (property ``UNIQ_KEY``) is made before the message is sent and stays with it over
retries. Both are written as upper-case hex::

    offset id   address 4 or 16, port 4, physical offset 8
    unique id   address 4 or 16, process id 2, loader hash 4, ms since the month began 4, counter 2

Unique ids of other clients need not look like this; to us they are opaque strings.
"""

import struct
import time
from collections.abc import Callable

import msgspec

from cometmq.codec.record import HOST_V4_BYTES, HOST_V6_BYTES, unpack_host
from cometmq.errors import LocalProtocolError, RemoteProtocolError

_OFFSET = struct.Struct(">q")
_UNIQUE_TAIL = struct.Struct(">HIIH")
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


class OffsetId(msgspec.Struct, frozen=True, gc=False):
    """Where a record lies: on which broker, and where in its commit log."""

    ip: str
    port: int
    physical_offset: int


class UniqueId(msgspec.Struct, frozen=True, gc=False):
    """The parts of a unique id made as Java makes them."""

    ip: bytes
    pid: int
    loader_hash: int
    month_ms: int
    counter: int


def encode_offset_id(host: bytes, physical_offset: int) -> str:
    """Return the id of the record at ``physical_offset``; ``host`` is the packed store host."""
    if len(host) not in (HOST_V4_BYTES, HOST_V6_BYTES):
        raise LocalProtocolError(f"a host takes 8 or 20 bytes, not {len(host)}")
    try:
        return (host + _OFFSET.pack(physical_offset)).hex().upper()
    except struct.error as error:
        raise LocalProtocolError(f"not a physical offset: {physical_offset}") from error


def decode_offset_id(text: str) -> OffsetId:
    """Return what an offset id says. Raises RemoteProtocolError when it is not one."""
    if len(text) not in (32, 56) or not _HEX_DIGITS.issuperset(text):
        raise RemoteProtocolError(f"not an offset message id: {text[:64]!r}")
    data = bytes.fromhex(text)
    ip, port = unpack_host(data[: -_OFFSET.size])
    (physical_offset,) = _OFFSET.unpack(data[-_OFFSET.size :])
    return OffsetId(ip, port, physical_offset)


def local_month(now_ms: int) -> tuple[int, int]:
    """Return begin and end, in ms, of the month of ``now_ms`` by the clock on the wall here."""
    year, month = time.localtime(now_ms / 1000)[:2]
    begin = time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))
    end = time.mktime((year, month + 1, 1, 0, 0, 0, 0, 0, -1))
    return int(begin * 1000), int(end * 1000)


class UniqueIds:
    """Makes unique ids for one process.

    Ids repeat only if the counter goes round within a millisecond, or when the clock is set back.
    ``month_of`` returns begin and end of the month around a time; Java counts from the local one.
    """

    def __init__(
        self,
        ip: bytes,
        pid: int,
        loader_hash: int,
        month_of: Callable[[int], tuple[int, int]] = local_month,
    ) -> None:
        if len(ip) not in (4, 16):
            raise LocalProtocolError(f"an address takes 4 or 16 bytes, not {len(ip)}")
        # The same for every id of the process: address, process id and loader hash.
        self._prefix = ip + struct.pack(">HI", pid & 0xFFFF, loader_hash & 0xFFFFFFFF)
        # Asked when the current month is over.
        self._month_of = month_of
        # The month the ids count from, half open.
        self._begin, self._end = 0, 0
        # Goes round after 65536 ids.
        self._counter = 0

    def next(self, now_ms: int) -> str:
        """Return a new id, 32 characters or 56 with an IPv6 address."""
        if not self._begin <= now_ms < self._end:
            self._begin, self._end = self._month_of(now_ms)
        tail = struct.pack(">IH", (now_ms - self._begin) & 0xFFFFFFFF, self._counter)
        self._counter = (self._counter + 1) & 0xFFFF
        return (self._prefix + tail).hex().upper()


def parse_unique_id(text: str) -> UniqueId | None:
    """Return the parts of an id laid out as Java's, None for any other. Never raises."""
    if len(text) not in (32, 56) or not _HEX_DIGITS.issuperset(text):
        return None
    data = bytes.fromhex(text)
    tail_begin = len(data) - _UNIQUE_TAIL.size
    pid, loader_hash, month_ms, counter = _UNIQUE_TAIL.unpack_from(data, tail_begin)
    return UniqueId(data[:tail_begin], pid, loader_hash, month_ms, counter)
