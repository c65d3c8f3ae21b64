"""Targets for what crosses a connection: frames, headers, signatures, batches, compression."""

import copy
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from cometmq.codec import batch, command, compression, core, frame, headers, signature, sysflag
from cometmq.codec.command import Command
from cometmq.codec.headers import Header
from fuzz.checks import Refused, attempt, attempt_to_write, require_same

_HEADER_TYPES: tuple[type[Header], ...] = tuple(
    dict.fromkeys((*headers.REQUEST_HEADERS.values(), *headers.RESPONSE_HEADERS.values()))
)
_SHARES = 8
_PIECE_BYTES = (1, 7, 64)
_DECOMPRESSED_BYTES_MAX = 64 * 1024

_Decode = Callable[[bytearray], tuple[list[Command], int]]
_Drained = tuple[list[Command], Refused | None, int]


def frames(data: bytes) -> None:
    """Bytes of a connection, arriving at once or in pieces; whatever was read can be written."""
    whole = _drain(command.decode_frames, [data])
    for piece_bytes in (max(1, len(data)), *_PIECE_BYTES[len(data) > 256 :]):
        pieces = [data[i : i + piece_bytes] for i in range(0, len(data), piece_bytes)]
        drained = _drain(core.decode_frames, pieces)
        require_same(_comparable(drained), _comparable(whole), f"pieces of {piece_bytes} bytes")
    for found in whole[0]:
        _write_again(found)


def header(data: bytes) -> None:
    """One header, its serialization in the first byte, read as a type it has and as some others.

    Which others depends on the bytes: in the course of a run it is every type there is.
    """
    found = _command_of(data)
    if found is None:
        return
    compiled, plain = found
    others = _HEADER_TYPES[zlib.crc32(data) % _SHARES :: _SHARES]
    for header_type in dict.fromkeys((*_own_types(plain.code), *others)):
        # A copy each: falling back to the plain rules leaves a dictionary in place of the bytes.
        typed = attempt(core.read, copy.copy(compiled), header_type)
        expected = attempt(core.plain_read, plain, header_type)
        require_same(typed, expected, header_type.__name__)
        if isinstance(typed, Header):
            _write_header(typed, plain)


def signed(data: bytes) -> None:
    """One header as in ``header``: its signature, and one of our own over the same fields."""
    found = _command_of(data)
    if found is None:
        return
    ext = attempt(lambda: found[1].ext_fields)
    if isinstance(ext, Refused):
        return
    signature.verify(ext, data, "secret", found[1].version)
    ours = {**ext, signature.SIGNATURE: signature.sign("secret", signature.content(ext, data))}
    assert signature.verify(ours, data, "secret", found[1].version), "our own signature"


def batches(data: bytes) -> None:
    """The body of a batch send."""
    items = attempt(batch.decode, data)
    assert batch.looks_like_batch(data) == (not isinstance(items, Refused) and bool(items))
    if not isinstance(items, Refused):
        require_same(batch.decode(batch.encode(items)), items, "written again")


def compressed(data: bytes) -> None:
    """A compressed body; bits 0 to 2 of the first byte are the compression bits of the sys flag."""
    flag = sysflag.COMPRESSED | (data[0] & 7) << 8 if data else 0
    kind = attempt(sysflag.compression_type, flag)
    if kind is None or isinstance(kind, Refused):
        return
    plain = attempt(compression.decompress, data[1:], kind, _DECOMPRESSED_BYTES_MAX)
    if isinstance(plain, Refused):
        return
    assert len(plain) <= _DECOMPRESSED_BYTES_MAX, len(plain)
    again = compression.compress(plain, kind)
    assert compression.decompress(again, kind, _DECOMPRESSED_BYTES_MAX) == plain


def _drain(decode: _Decode, pieces: list[bytes]) -> _Drained:
    """Read as a connection does: commands so far, why it had to end, bytes that wait for more."""
    buffer = bytearray()
    commands: list[Command] = []
    for piece in pieces:
        buffer += piece
        while True:
            found = attempt(decode, buffer)
            if isinstance(found, Refused):
                return commands, found, 0
            more, position = found
            del buffer[:position]
            commands += more
            if not more:
                break
    return commands, None, len(buffer)


def _comparable(drained: _Drained) -> Any:
    commands, refused, left = drained
    return [_values(found) for found in commands], refused, left


def _values(found: Command) -> dict[str, Any]:
    """The values of a command; a language is as good as its number.

    Ext fields are compared as fields: cores keep them in different forms, beside the header as it
    was written.
    """
    values = msgspec.structs.asdict(found)
    del values["header"], values["written"]
    return values | {"language": int(found.language), "ext": _ext(found)}


def _ext(found: Command) -> dict[str, str] | Refused | None:
    return None if found.ext is None else _fields(found)


def _fields(found: Command) -> dict[str, str] | Refused:
    """The ext fields, without turning the command's own into a dictionary."""
    fields = copy.copy(found)
    return attempt(lambda: fields.ext_fields)


def _write_again(found: Command) -> None:
    fields = _fields(found)
    if isinstance(fields, Refused):
        return
    written = attempt_to_write(command.encode, copy.copy(found))
    if isinstance(written, Refused):
        # Bytes that are no UTF-8 become U+FFFD, which takes three of them: too many, perhaps.
        assert "\ufffd" in repr((fields, found.remark)), written
        return
    commands, position = core.decode_frames(written)
    assert position == len(written), (position, len(written))
    (again,) = commands
    require_same(
        _values(again),
        _values(found),
        "command written again",
    )


def _command_of(data: bytes) -> tuple[Command, Command] | None:
    """The command with this header, from the compiled and from the plain reader."""
    serialization, content = data[:1], data[1:]
    if not serialization:
        return None
    whole = frame.prefix(serialization[0] & 1, len(content), 0) + content
    compiled, plain = attempt(core.decode_frames, whole), attempt(command.decode_frames, whole)
    if isinstance(compiled, Refused) or isinstance(plain, Refused):
        require_same(compiled, plain, "refusal")
        return None
    for found, expected in zip(compiled[0], plain[0], strict=True):
        require_same(_values(found), _values(expected), "command")
        return found, expected
    raise AssertionError("a whole frame was taken for an incomplete one")


def _own_types(code: int) -> Iterator[type[Header]]:
    for types in (headers.REQUEST_HEADERS, headers.RESPONSE_HEADERS):
        yield from (header_type for key, header_type in types.items() if key == code)


def _write_header(typed: Header, origin: Command) -> None:
    for serialization in (0, 1):
        numbers = (serialization, origin.code, origin.opaque, origin.flag)
        head = attempt_to_write(core.encode_head, *numbers, origin.remark, typed, 0)
        plain_head = attempt_to_write(core.plain_encode_head, *numbers, origin.remark, typed, 0)
        require_same(head, plain_head, f"head with {type(typed).__name__}")
    require_same(_read_back(typed, origin), typed, "header written again")


def _read_back(typed: Header, origin: Command) -> Header:
    # As JSON: the binary form has no empty text.
    head = core.encode_head(0, origin.code, origin.opaque, origin.flag, origin.remark, typed, 0)
    commands, _ = core.decode_frames(head)
    return core.read(commands[0], type(typed))
