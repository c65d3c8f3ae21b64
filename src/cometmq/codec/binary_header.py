"""The binary ("ROCKETMQ") form of a command's header.

::

    int16 code | uint8 language | int16 version | int32 opaque | int32 flag
    int32 n | remark UTF-8 (n = 0: none)
    int32 m | ext entries, m bytes in all: int16 k | name | int32 v | value

An empty value is written and read as empty text; Java reads it as null, which comes to the same for
every field. Text that UTF-8 cannot carry is replaced the way Java does it, in both directions.
"""

import struct
from typing import Final, NamedTuple

from cometmq.errors import LocalProtocolError, RemoteProtocolError

_FIXED: Final = struct.Struct(">hBhiii")
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
FIXED_BYTES: Final = _FIXED.size + 4
"""The smallest header: no remark, no ext fields."""


class Envelope(NamedTuple):
    """A header with its ext entries still as bytes."""

    code: int
    language: int
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext: bytes


def decode(header: bytes) -> Envelope:
    """Read a header; lengths that do not add up raise."""
    if len(header) < FIXED_BYTES:
        raise RemoteProtocolError(
            f"binary header of {len(header)} bytes is shorter than its fields"
        )
    code, language, version, opaque, flag, remark_bytes = _FIXED.unpack_from(header)
    position = _FIXED.size + remark_bytes
    if remark_bytes < 0 or position + 4 > len(header):
        raise RemoteProtocolError(f"binary header: remark of {remark_bytes} bytes does not fit")
    (ext_bytes,) = _INT.unpack_from(header, position)
    if ext_bytes < 0 or position + 4 + ext_bytes > len(header):
        raise RemoteProtocolError(f"binary header: ext fields of {ext_bytes} bytes do not fit")
    remark = header[_FIXED.size : position].decode("utf-8", "replace") if remark_bytes else None
    ext = header[position + 4 : position + 4 + ext_bytes]
    return Envelope(code, language, version, opaque, flag, remark, ext)


def parse_ext(entries: bytes) -> dict[str, str]:
    """The ext fields as text, in the order sent."""
    fields: dict[str, str] = {}
    position, end = 0, len(entries)
    while position < end:
        name, position = _text(entries, position, _SHORT)
        value, position = _text(entries, position, _INT)
        fields[name] = value
    return fields


def _text(entries: bytes, position: int, length_field: struct.Struct) -> tuple[str, int]:
    begin = position + length_field.size
    if begin > len(entries):
        raise RemoteProtocolError("binary header: an ext field ends before its length")
    (length,) = length_field.unpack_from(entries, position)
    if length < 0 or begin + length > len(entries):
        raise RemoteProtocolError(f"binary header: ext field of {length} bytes does not fit")
    # Java replaces malformed UTF-8 instead of failing; so do we, for the same clients.
    return entries[begin : begin + length].decode("utf-8", "replace"), begin + length


def encode(
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext: dict[str, str] | None,
) -> bytes:
    """Write a header. Codes above 32767 (the pop family) cannot be carried and are refused."""
    if not -32_768 <= code <= 32_767:
        raise LocalProtocolError(f"code {code} does not fit a binary header; send it as JSON")
    note = remark.encode("utf-8", "replace") if remark else b""
    entries = encode_ext(ext) if ext else b""
    return b"".join(
        (
            _FIXED.pack(code, language, version, opaque, flag, len(note)),
            note,
            _INT.pack(len(entries)),
            entries,
        )
    )


def encode_ext(ext: dict[str, str]) -> bytes:
    parts: list[bytes] = []
    for name, value in ext.items():
        key, text = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        if len(key) > 32_767:
            raise LocalProtocolError(f"ext field name of {len(key)} bytes: at most 32767 fit")
        parts += (_SHORT.pack(len(key)), key, _INT.pack(len(text)), text)
    return b"".join(parts)
