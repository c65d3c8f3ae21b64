"""A remoting command: what a frame carries, and the frames made from it.

Reading keeps the ext fields as the bytes that came: handlers of send and pull take their typed
header straight from them (``codec.core``), everyone else asks for ``ext_fields`` once. Nothing is
re-serialised on the way, so unknown fields survive for the signature check.
"""

import enum
import struct

import msgspec

from cometmq.codec import binary_header, json_header
from cometmq.codec.codes import VERSION, LanguageCode, language_from
from cometmq.codec.frame import PREFIX_BYTES, Buffer, Frame, locate, prefix
from cometmq.codec.headers.base import Header, Texts
from cometmq.codec.usual_json import DECODERS, START_BYTES
from cometmq.errors import RemoteProtocolError
from cometmq.model.limits import FRAME_BYTES_MAX, HEADER_BYTES_MAX

LANGUAGE = LanguageCode.PYTHON
"""What we say of ourselves; a code every peer knows."""

_LANGUAGES: dict[str | int | None, int] = {
    language.name: int(language) for language in LanguageCode
}
"""By name as it is usually written; ``language_from`` knows the rest."""

_unpack_prefix = struct.Struct(">iI").unpack_from


class Serialization(enum.IntEnum):
    """How a header is written; the body is never affected."""

    JSON = 0
    ROCKETMQ = 1


class CommandFlag(enum.IntFlag):
    RESPONSE = 1
    ONEWAY = 2


class Command(msgspec.Struct, gc=False):
    """One request or response.

    ``code`` is a request code, or a response code when ``is_response``. ``ext`` is private to the
    codecs: wire bytes, texts, a dictionary, or None when the header has no ext fields. So are
    ``header``, the typed form where it is already there (ask ``codec.core.read``), and ``written``,
    the whole header as it came where the ext fields are texts.
    """

    code: int
    language: int = LANGUAGE
    version: int = VERSION
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    serialization: int = Serialization.JSON
    ext: dict[str, str] | bytes | Texts | None = None
    body: bytes = b""
    header: Header | None = None
    written: bytes = b""

    @property
    def is_response(self) -> bool:
        return self.flag & 1 == 1

    @property
    def is_oneway(self) -> bool:
        """True for a request that must never be answered, not even with an error."""
        return self.flag & 3 == 2

    @property
    def ext_fields(self) -> dict[str, str]:
        """All ext fields as text, unknown ones included, in the order sent."""
        ext = self.ext
        if isinstance(ext, dict):
            return ext
        if ext is None:
            return {}
        if isinstance(ext, Texts):
            fields = json_header.parse_ext(bytes(json_header.decode(self.written).ext))
            self.written = b""
        elif self.serialization == 0:
            fields = json_header.parse_ext(ext)
        else:
            fields = binary_header.parse_ext(ext)
        self.ext = fields
        return fields

    def answer(
        self,
        code: int,
        remark: str | None = None,
        *,
        header: Header | None = None,
        body: bytes = b"",
    ) -> "Command":
        """The response to this request, in the serialization the peer chose."""
        return Command(
            code,
            opaque=self.opaque,
            flag=CommandFlag.RESPONSE,
            remark=remark,
            serialization=self.serialization,
            ext=None if header is None else header.to_ext(),
            body=body,
        )


def request(
    code: int,
    header: Header | None = None,
    *,
    opaque: int = 0,
    body: bytes = b"",
    oneway: bool = False,
    serialization: Serialization = Serialization.JSON,
) -> Command:
    """A request of ours; the connection that sends it sets ``opaque``."""
    return Command(
        code,
        opaque=opaque,
        flag=CommandFlag.ONEWAY if oneway else 0,
        serialization=serialization,
        ext=None if header is None else header.to_ext(),
        body=body,
    )


def decode_frames(
    data: Buffer, begin: int = 0, end: int | None = None, frame_bytes_max: int = FRAME_BYTES_MAX
) -> tuple[list[Command], int]:
    """Every complete frame in ``data[begin:end]``, and the position after the last of them.

    A broken frame raises RemoteProtocolError only when it comes first: what was good before it is
    returned (and may be answered), and the next call meets the broken one.
    """
    position = begin
    stop = len(data) if end is None else end
    commands: list[Command] = []
    found = True
    while found:
        # Whole frames with a JSON header, which most are, without the steps in between; whatever
        # is different about a frame is for ``decode_next`` to tell.
        while stop - position >= PREFIX_BYTES:
            length, header_bytes = _unpack_prefix(data, position)
            frame_end = position + 4 + length
            body = position + PREFIX_BYTES + header_bytes
            # Another serialization shows as a very long header: it is the topmost byte of the word.
            if header_bytes > HEADER_BYTES_MAX or not body <= frame_end <= stop:
                break
            if length + 4 > frame_bytes_max:
                break
            try:
                header = bytes(data[position + PREFIX_BYTES : body])
                commands.append(decode_json(header, bytes(data[body:frame_end])))
            except RemoteProtocolError:
                break
            position = frame_end
        found, position = decode_next(data, position, stop, frame_bytes_max, commands)
    return commands, position


def decode_next(
    data: Buffer, position: int, stop: int, frame_bytes_max: int, commands: list[Command]
) -> tuple[bool, int]:
    """Append the command at ``position`` if its frame is complete; was it, and where to go on."""
    try:
        frame = locate(data, position, stop, frame_bytes_max)
        if frame is None:
            return False, position
        commands.append(decode_frame(data, frame))
    except RemoteProtocolError:
        if not commands:
            raise
        return False, position
    return True, frame.end


def decode_frame(data: Buffer, frame: Frame) -> Command:
    """The command in a located frame; its values share no memory with ``data``."""
    header = bytes(data[frame.header : frame.body])
    body = bytes(data[frame.body : frame.end])
    if frame.serialization == 0:
        return decode_json(header, body)
    if frame.serialization == 1:
        code, language, version, opaque, flag, remark, entries = binary_header.decode(header)
        return Command(code, language, version, opaque, flag, remark, 1, entries or None, body)
    raise RemoteProtocolError(f"unknown header serialization {frame.serialization}")


def decode_json(header: bytes, body: bytes) -> Command:
    """The command with this JSON header, read the short way if it is a usual one."""
    decode_usual = DECODERS.get(header[:START_BYTES])
    if decode_usual is not None:
        try:
            usual = decode_usual(header)
            language = _LANGUAGES[usual.language]
        except (msgspec.MsgspecError, ValueError, KeyError, RecursionError):
            pass  # not so usual
        else:
            return Command(
                usual.code,
                language,
                usual.version,
                usual.opaque,
                usual.flag,
                usual.remark,
                0,
                usual.ext,
                body,
                None,
                header,
            )
    return decode_any_json(header, body)


def decode_any_json(header: bytes, body: bytes) -> Command:
    """The command with this JSON header, whatever is in it."""
    got = json_header.decode(header)
    ext = bytes(got.ext)
    written = got.language
    language = _LANGUAGES.get(written)
    if language is None:
        language = LanguageCode.OTHER if written is None else language_from(written)
    return Command(
        got.code,
        language,
        got.version,
        got.opaque,
        got.flag,
        got.remark,
        0,
        None if ext == b"null" else ext or None,
        body,
    )


def encode(command: Command) -> bytes:
    """The whole frame."""
    return encode_head(command, len(command.body)) + command.body


def encode_head(command: Command, body_bytes: int) -> bytes:
    """Everything before the body, for answers whose body leaves as slices of the mapped log."""
    ext = None if command.ext is None else command.ext_fields
    fields = command.version, command.opaque, command.flag, command.remark, ext
    if command.serialization == Serialization.JSON:
        header = json_header.encode(command.code, language_name(command.language), *fields)
    else:
        header = binary_header.encode(command.code, command.language, *fields)
    return prefix(command.serialization, len(header), body_bytes) + header


def language_name(code: int) -> str:
    """The enum name of a language code; an unknown one is written as OTHER."""
    try:
        return LanguageCode(code).name
    except ValueError:
        return LanguageCode.OTHER.name
