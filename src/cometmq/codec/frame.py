"""Length-prefixed frames: finding where each begins and ends.

::

    0        4        8            8+H            4+L
    | L      | T | H  | header     | body         |
    | int32  |1B | 3B | H bytes    | L-4-H bytes  |

``L`` counts everything after itself; ``T`` is the header's serialization (0 JSON, 1 binary).
"""

import struct
from typing import Final, NamedTuple

from cometmq.errors import LocalProtocolError, RemoteProtocolError
from cometmq.model.limits import FRAME_BYTES_MAX, HEADER_BYTES_MAX

PREFIX_BYTES: Final = 8
"""Length and header word; the header follows."""

_PREFIX = struct.Struct(">iI")

Buffer = bytes | bytearray | memoryview


class Frame(NamedTuple):
    """Where one frame lies in a buffer; half-open ranges ``[header, body)`` and ``[body, end)``."""

    serialization: int
    header: int
    body: int
    end: int


def locate(
    data: Buffer, begin: int, end: int, frame_bytes_max: int = FRAME_BYTES_MAX
) -> Frame | None:
    """The frame that starts at ``begin``, or None while bytes of it are missing.

    Impossible lengths raise as soon as the eight bytes of the prefix are there: nobody has to wait
    for (or keep) the rest of a frame that will be refused.
    """
    if end - begin < PREFIX_BYTES:
        if end - begin >= 4:
            _check_length(struct.unpack_from(">i", data, begin)[0], frame_bytes_max)
        return None
    length, word = _PREFIX.unpack_from(data, begin)
    _check_length(length, frame_bytes_max)
    header_bytes = word & HEADER_BYTES_MAX
    if header_bytes > length - 4:
        raise RemoteProtocolError(
            f"header of {header_bytes} bytes does not fit its frame of {length} bytes"
        )
    if begin + 4 + length > end:
        return None
    header = begin + PREFIX_BYTES
    return Frame(word >> 24, header, header + header_bytes, begin + 4 + length)


def prefix(serialization: int, header_bytes: int, body_bytes: int) -> bytes:
    """The eight bytes before a header."""
    length = 4 + header_bytes + body_bytes
    if header_bytes > HEADER_BYTES_MAX or length + 4 > FRAME_BYTES_MAX:
        raise LocalProtocolError(
            f"frame of {length + 4} bytes (header {header_bytes}) is above the limit of"
            f" {FRAME_BYTES_MAX} bytes that peers accept"
        )
    return _PREFIX.pack(length, serialization << 24 | header_bytes)


def _check_length(length: int, frame_bytes_max: int) -> None:
    if length < 4:
        raise RemoteProtocolError(f"frame length {length} is too small to hold a header word")
    if length + 4 > frame_bytes_max:
        raise RemoteProtocolError(
            f"frame of {length + 4} bytes is above the limit of {frame_bytes_max} bytes"
        )
