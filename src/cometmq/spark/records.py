"""Records in a buffer as columns of numbers: where each begins, and what its head says.

The buffer is a stretch of the log or what pulls have brought; ``codec.record`` draws the layout. A
head is laid out in one of eight ways (hosts of 8 or 20 bytes, length of the topic in one byte or
two). Nearly always all records of a buffer are alike; if not, they are decoded by layout.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cometmq.codec.record import MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from cometmq.errors import RemoteProtocolError
from cometmq.spark.gathering import fixed_rows

_HOSTS_BYTES: Final = ((8, 8), (20, 8), (8, 20), (20, 20))
"""Born host and store host, by the two IPv6 bits of the sys flag."""


def _head(born: int, store: int) -> Any:
    return np.dtype(
        [
            ("size", ">i4"),
            ("magic", ">i4"),
            ("body_crc", ">i4"),
            ("queue_id", ">i4"),
            ("flag", ">i4"),
            ("queue_offset", ">i8"),
            ("physical_offset", ">i8"),
            ("sys_flag", ">i4"),
            ("born_timestamp", ">i8"),
            ("born_host", "u1", (born,)),
            ("store_timestamp", ">i8"),
            ("store_host", "u1", (store,)),
            ("reconsume_times", ">i4"),
            ("prepared_transaction_offset", ">i8"),
            ("body_length", ">i4"),
        ]
    )


_HEADS: Final = tuple(_head(born, store) for born, store in _HOSTS_BYTES)
_COMMON: Final = _HEADS[0]
"""Up to the sys flag all heads are alike, and no record is shorter than the shortest head."""
_SIZE: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one buffer, in the order in which they are wanted.

    ``heads`` are read by the shortest layout: beyond the sys flag they are right only where
    ``layouts`` is 0 or 1.
    """

    buffer: Any
    positions: Any
    heads: Any
    layouts: Any
    """The number of the layout of each record: twice the IPv6 bits, plus one for a long topic."""

    @classmethod
    def at(cls, buffer: Any, positions: Any, sizes: Any = None) -> Records:
        """The records that begin at ``positions`` of an Arrow buffer and have these sizes.

        Raises RemoteProtocolError when one of them is no record, or goes on behind the buffer.
        """
        positions = np.asarray(positions, np.int64)
        if len(positions) and int(positions.max()) + RECORD_BYTES_MIN > buffer.size:
            raise RemoteProtocolError(f"a record begins at the end of {buffer.size} bytes")
        heads = fixed_rows(buffer, positions, _COMMON.itemsize).view(_COMMON).reshape(-1)
        magic, size = heads["magic"], heads["size"]
        is_long = magic == MAGIC_V2
        is_wrong = ~(is_long | (magic == MAGIC_V1)) | (size < RECORD_BYTES_MIN)
        is_wrong |= positions + size > buffer.size
        if sizes is not None:
            is_wrong |= size != sizes
        if is_wrong.any():
            raise _no_record(positions, heads, int(np.argmax(is_wrong)))
        layouts = (heads["sys_flag"] >> 4 & 3) * 2 + is_long
        return cls(buffer, positions, heads, layouts)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def queue_offsets(self) -> Any:
        return self.heads["queue_offset"].astype(np.int64)

    def kept(self, which: Any) -> Records:
        """Those that a mask, a slice or an array of numbers chooses."""
        return Records(self.buffer, self.positions[which], self.heads[which], self.layouts[which])

    def alike(self) -> Iterator[tuple[Any, Uniform]]:
        """The records by layout, and the places of each group; None when all are in one."""
        if not len(self):
            return
        first = int(self.layouts[0])
        if (self.layouts == first).all():
            yield None, self._uniform(first)
            return
        for layout in np.unique(self.layouts):
            places = np.flatnonzero(self.layouts == layout)
            yield places, self.kept(places)._uniform(int(layout))

    def _uniform(self, layout: int) -> Uniform:
        kind = _HEADS[layout >> 1]
        heads = self.heads
        if kind is not _COMMON:
            if (heads["size"] < kind.itemsize + 3).any():
                raise _no_record(self.positions, heads, 0)
            heads = fixed_rows(self.buffer, self.positions, kind.itemsize).view(kind).reshape(-1)
        return Uniform(self.buffer, self.positions, heads, 2 if layout & 1 else 1)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Records of one layout."""

    buffer: Any
    positions: Any
    heads: Any
    topic_length_bytes: int

    def __len__(self) -> int:
        return len(self.positions)

    def bodies(self) -> tuple[Any, Any]:
        """Where bodies begin and end. Raises RemoteProtocolError for a length that cannot be."""
        head_bytes = self.heads.dtype.itemsize
        length = self.heads["body_length"]
        room = self.heads["size"] - (head_bytes + self.topic_length_bytes + 2)
        is_wrong = (length < 0) | (length > room)
        if is_wrong.any():
            raise _no_record(self.positions, self.heads, int(np.argmax(is_wrong)))
        begins = self.positions + head_bytes
        return begins, begins + length

    def properties(self) -> tuple[Any, Any]:
        """Where property strings begin and end; their lengths and the topics' must fit."""
        data = np.frombuffer(self.buffer, np.uint8)
        _, at = self.bodies()
        ends = self.positions + self.heads["size"]
        topics = data[at].astype(np.int64)
        if self.topic_length_bytes == 2:
            topics = topics << 8 | data[at + 1]
        at = at + self.topic_length_bytes + topics
        is_wrong = at + 2 > ends
        if not is_wrong.any():
            length = data[at].astype(np.int64) << 8 | data[at + 1]
            is_wrong = at + 2 + length != ends
        if is_wrong.any():
            raise _no_record(self.positions, self.heads, int(np.argmax(is_wrong)))
        return at + 2, ends


def walk(data: Any) -> Any:
    """Where the records of a pulled body begin. Raises RemoteProtocolError if the sizes break.

    Runs of records of one size, which many topics consist of, are found in one step.
    """
    end = len(data)
    positions: list[int] = []
    at = 0
    unpack = _SIZE.unpack_from
    last = end - RECORD_BYTES_MIN
    while at < end:
        if at > last:
            raise RemoteProtocolError(f"{end - at} bytes after the last record of a pull")
        size = unpack(data, at)[0]
        if size < RECORD_BYTES_MIN:
            raise RemoteProtocolError(f"record of {size} bytes at {at} of a pull")
        positions.append(at)
        at += size
    if at > end:
        raise RemoteProtocolError(f"the last record of a pull lacks {at - end} bytes")
    return np.array(positions, np.int64)


def _no_record(positions: Any, heads: Any, place: int) -> RemoteProtocolError:
    head = heads[place]
    magic, size = int(head["magic"]) & 0xFFFFFFFF, int(head["size"])
    at = int(positions[place])
    return RemoteProtocolError(f"no record at {at}: magic is {magic:#010x}, size {size}")
