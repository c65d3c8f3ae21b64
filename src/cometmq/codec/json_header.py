"""The JSON form of a command's header: loose reading, strict writing.

Writing produces what Apache's own servers and clients produce: keys in alphabetical order, no
white space, every ext field a string. Go and C++ peers discard anything looser.
"""

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType

from cometmq.errors import RemoteProtocolError

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_NO_EXT: Final = msgspec.Raw(b"")


class Envelope(msgspec.Struct, gc=False):
    """A header with its ext fields still as JSON text: most handlers never need the dictionary."""

    code: _Int32
    language: str | int | None = "JAVA"
    version: _Int32 = 0
    opaque: _Int32 = 0
    flag: _Int32 = 0
    remark: str | None = None
    ext: msgspec.Raw = msgspec.field(default=_NO_EXT, name="extFields")


class _Written(msgspec.Struct, gc=False):
    """A header as it is written; what is UNSET is left out."""

    code: int
    ext: dict[str, str] | msgspec.Struct | UnsetType = msgspec.field(name="extFields")
    flag: int
    language: str
    opaque: int
    remark: str | UnsetType
    form: str = msgspec.field(name="serializeTypeCurrentRPC")
    version: int


_envelope = msgspec.json.Decoder(Envelope, strict=False)
_texts = msgspec.json.Decoder(dict[str, str])
_scalars = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text = msgspec.json.Decoder(str)
_encode: Final = msgspec.json.Encoder().encode


def decode(header: bytes) -> Envelope:
    """Read a header as any known client writes it; what cannot be read raises."""
    try:
        return _envelope.decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # Java decodes bytes with replacement characters, so a C++ client that puts text of another
        # encoding into a property gets through there; it must here.
        repaired = header.decode("utf-8", "replace").encode()
        if repaired == header:
            raise RemoteProtocolError(f"JSON header cannot be read: {error}") from error
    return decode(repaired)


def parse_ext(written: bytes) -> dict[str, str]:
    """The ext fields as text, in the order sent; numbers and booleans as they were written."""
    try:
        return _texts.decode(written)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _parse_loose_ext(written)


def _parse_loose_ext(written: bytes) -> dict[str, str]:
    try:
        scalars = _scalars.decode(written.decode("utf-8", "replace"))
        return {
            name: text
            for name, value in scalars.items()
            if (text := _scalar_text(value)) is not None
        }
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RemoteProtocolError(f"extFields cannot be read: {error}") from error


def _scalar_text(value: msgspec.Raw) -> str | None:
    written = bytes(value)
    if written[:1] == b'"':
        return _text.decode(written)
    # Objects and arrays too are taken as they were written: that is what Java's map holds then.
    return None if written == b"null" else written.decode()


def encode(
    code: int,
    language: str,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext: dict[str, str] | msgspec.Struct | None,
) -> bytes:
    """Write a header; ``ext`` None leaves ``extFields`` out, an empty one is written as ``{}``.

    A struct in its place has one text, or none, for each ext field.
    """
    fields = UNSET if ext is None else ext
    note = UNSET if remark is None else remark
    try:
        return _encode(_Written(code, fields, flag, language, opaque, note, "JSON", version))
    except UnicodeEncodeError:
        # Half of a surrogate pair has no UTF-8; Java writes a question mark for it, and so do we.
        texts = msgspec.to_builtins(ext)
        repaired = None if ext is None else {_encodable(k): _encodable(v) for k, v in texts.items()}
        encodable = None if remark is None else _encodable(remark)
        return encode(code, language, version, opaque, flag, encodable, repaired)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
