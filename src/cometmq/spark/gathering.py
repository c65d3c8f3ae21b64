"""Many slices of one buffer made into one Arrow array: no loop in Python, and one copy.

An Arrow array of bytes is a buffer and ascending bounds. Over a log, the bounds ``begin 0, end 0,
begin 1, end 1, …`` describe the wanted slices in the even cells and what lies between them in the
odd ones; ``take`` of the even cells copies just those, in C++.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

_INDEXES: Final[Any] = np.arange(0, 2 * 65_536, 2, dtype=np.int32)
BUFFER_BYTES_MAX: Final = 2**31 - 1
"""Bounds have 32 bits; whoever has more cuts it first."""


def gather(buffer: Any, begins: Any, ends: Any, kind: Any = None) -> Any:
    """The slices ``[begins, ends)`` of an Arrow buffer as one array of bytes, or of ``kind``."""
    count = len(begins)
    kind = pa.binary() if kind is None else kind
    if not count:
        return pa.array([], kind)
    assert buffer.size <= BUFFER_BYTES_MAX, buffer.size
    bounds: Any = np.empty(2 * count, np.int32)
    bounds[0::2] = begins
    bounds[1::2] = ends
    cells = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(bounds), buffer])
    return cells.take(pa.array(even(count)))


def even(count: int) -> Any:
    """0, 2, 4, …: ``count`` numbers."""
    if count <= len(_INDEXES):
        return _INDEXES[:count]
    return np.arange(0, 2 * count, 2, dtype=np.int32)


def bytes_of(array: Any) -> Any:
    """The bytes of all elements of a gathered array, one after the other, for numpy."""
    buffers = array.buffers()
    if buffers[2] is None:
        return np.empty(0, np.uint8)
    bounds = bounds_of(array)
    return np.frombuffer(buffers[2], np.uint8, count=int(bounds[-1]))


def bounds_of(array: Any) -> Any:
    """Where each element of a gathered array begins, and where the last one ends."""
    if not len(array):
        return np.zeros(1, np.int32)
    assert array.offset == 0
    return np.frombuffer(array.buffers()[1], np.int32, count=len(array) + 1)


def fixed_rows(buffer: Any, begins: Any, width: int) -> Any:
    """``width`` bytes from each begin on, as rows of a matrix."""
    if not len(begins):
        return np.empty((0, width), np.uint8)
    gathered = gather(buffer, begins, begins + width)
    return bytes_of(gathered).reshape(len(begins), width)


def strings_of_width(rows: Any) -> Any:
    """A matrix of ASCII characters as an array of strings, one for each row."""
    count, width = rows.shape
    bounds = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    data = np.ascontiguousarray(rows)
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
