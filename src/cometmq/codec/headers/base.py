"""What all headers share: field kinds, and the way from ext fields to a struct and back.

A header travels as ``extFields``, a map of text to text. A concrete header is a ``Header`` whose
attributes are the fields in snake case; the wire name is the attribute in camel case unless the
class says otherwise. A field is optional exactly when its type admits ``None``.

=========== ===================================== =====================================
kind        read from                             written as
=========== ===================================== =====================================
``str``     any text, the empty one included      itself
``I32``     decimal digits with a sign, in range  decimal
``I64``     the same with 64 bits                 decimal
``bool``    ``true`` in any case; the rest is     ``true`` or ``false``
            false, so ``1`` is false
LooseBool   as ``bool``, but ``1`` is true        ``true`` or ``false``
Rare        any text                              itself
enum        by value, as the enum decides         its value
=========== ===================================== =====================================
"""

import functools
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar, cast, get_args

import msgspec

from cometmq.codec.codes import RequestCode
from cometmq.errors import LocalProtocolError, RemoteProtocolError

I32_MIN, I32_MAX = -(2**31), 2**31 - 1
I64_MIN, I64_MAX = -(2**63), 2**63 - 1

I32 = Annotated[int, msgspec.Meta(ge=I32_MIN, le=I32_MAX)]
I64 = Annotated[int, msgspec.Meta(ge=I64_MIN, le=I64_MAX)]
LooseBool = Annotated[bool, "the text 1 counts as true"]
Rare = Annotated[str, "the short ways of both cores leave a header that has it to the general one"]

BASE_FIELDS = frozenset({"bname", "ns", "nsd", "oway", "lo"})
"""Fields that Java clients (4.9.7 and later) add to nearly every request.

Broker name, namespace and whether it was already wrapped, one-way, and "this broker only". They
steer static topics, so no header but the sends' carries them; they stay in the command's own ext
fields, where a signature needs them.
"""

_SHOWN_CHARACTERS_MAX = 40
SMALL_INTEGERS = {str(number): number for number in range(1024)}
"""Most numbers in headers, by how they are written."""
_DIGITS_MAX = 40

_Read = Callable[[str], Any]
_astuple = msgspec.structs.astuple


class Header(msgspec.Struct, gc=False, forbid_unknown_fields=False, rename="camel"):
    """Ext fields of one kind of request or answer, typed.

    Attributes stand in the order of RocketMQ's own header, required ones first, and hot code
    constructs headers positionally: the order is part of the interface.
    """

    requests: ClassVar[tuple[RequestCode, ...]] = ()
    """The requests that carry this header."""

    answers: ClassVar[tuple[RequestCode, ...]] = ()
    """The requests that are answered with this header."""

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """Read the fields of this header; fields it does not know are ignored.

        Empty text in an optional field that is not a ``str`` counts as absent. Raises
        ``RemoteProtocolError`` when a required field is missing or a number is none.
        """
        get = ext.get
        values: list[Any] = []
        for field in fields(cls):
            # Unpacked because this is run for every request: attribute access would double it.
            _, wire_name, is_required, is_absent_when_empty, kind, read, _, _ = field
            text = get(wire_name)
            if text is None or (is_absent_when_empty and not text):
                if is_required:
                    raise RemoteProtocolError(f"{_place(cls, field)} is missing")
                values.append(None)
            elif kind is _TEXT:
                values.append(text)
            else:
                try:
                    values.append(read(text))
                except ValueError as error:
                    raise RemoteProtocolError(_refusal(cls, field, text)) from error
        return cls(*values)

    def to_ext(self) -> dict[str, str]:
        """Write the fields in order, every value as text, without those that are ``None``.

        Raises ``LocalProtocolError`` for a required field that is ``None`` and for a number that
        does not fit.
        """
        ext: dict[str, str] = {}
        for field, value in zip(fields(type(self)), msgspec.structs.astuple(self), strict=True):
            _, wire_name, is_required, _, kind, _, write, _ = field
            if value is None:
                if is_required:
                    raise LocalProtocolError(f"{_place(type(self), field)} is missing")
            elif kind is _TEXT:
                ext[wire_name] = value
            else:
                try:
                    ext[wire_name] = write(value)
                except ValueError as error:
                    raise LocalProtocolError(_refusal(type(self), field, value)) from error
        return ext


HeaderT = TypeVar("HeaderT", bound=Header)


def request(*codes: RequestCode) -> Callable[[type[HeaderT]], type[HeaderT]]:
    """Class decorator: requests with these codes carry this header."""

    def declare(header: type[HeaderT]) -> type[HeaderT]:
        header.requests = codes
        return header

    return declare


def response(*codes: RequestCode) -> Callable[[type[HeaderT]], type[HeaderT]]:
    """Class decorator: requests with these codes are answered with this header."""

    def declare(header: type[HeaderT]) -> type[HeaderT]:
        header.answers = codes
        return header

    return declare


class FieldKind(Enum):
    """What a field holds; the compiled core knows all of them but ``ENUM`` and ``RARE``."""

    TEXT = "text"
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"
    LOOSE_BOOL = "loose bool"
    ENUM = "enum"
    RARE = "rare text"


_TEXT = FieldKind.TEXT  # looked up once: reading a member of an Enum class is slow
_RARE = FieldKind.RARE


class _Kind(NamedTuple):
    kind: FieldKind
    read: Callable[[str], Any]
    write: Callable[[Any], str]
    noun: str


class Field(NamedTuple):
    """One field of a header class, ready for reading and writing."""

    attribute: str
    wire_name: str
    is_required: bool
    is_absent_when_empty: bool
    kind: FieldKind
    read: Callable[[str], Any]
    write: Callable[[Any], str]
    noun: str


@functools.cache
def fields(header: type[Header]) -> tuple[Field, ...]:
    """The fields of a header class, in the order of its constructor."""
    return tuple(_field(info) for info in msgspec.structs.fields(header))


class Texts(msgspec.Struct, gc=False):
    """Ext fields as the texts that came: those of one header class, but for rare ones."""

    header: ClassVar[type[Header]]


@functools.cache
def exact_texts(header: type[Header]) -> type[Texts]:
    """The texts of a header class; read from JSON, they refuse fields of other names."""
    table = fields(header)
    usual = [field for field in table if field.kind is not _RARE]
    assert usual == list(table[: len(usual)]), "rare fields come last"
    exact = msgspec.defstruct(
        f"Exact{header.__name__}Texts",
        [(field.attribute, str | None, None) for field in usual],
        bases=(Texts,),
        rename={field.attribute: field.wire_name for field in usual},
        forbid_unknown_fields=True,
        gc=False,
    )
    texts = cast("type[Texts]", exact)
    texts.header = header
    return texts


class TextForm(NamedTuple):
    """A header class as the texts that travel: the short ways of the plain core, made once.

    ``make`` is a struct with the same fields, all of them text, whose JSON is the ext fields.
    ``converted`` are the fields that are no text: position, whether it is required, what its usual
    texts stand for, the rules for all others, and the way back. ``required`` are the positions of
    texts that must be there.
    """

    header: type[Header]
    make: type[msgspec.Struct]
    decode: Callable[[bytes], msgspec.Struct]
    converted: tuple[tuple[int, bool, _Read, _Read, Callable[[Any], str]], ...]
    required: tuple[int, ...]

    def read_json(self, written: bytes) -> Header | None:
        """The header in these ext fields; None when ``from_ext`` must decide, or say what is wrong.

        Without a dictionary in between, and with most numbers looked up, this takes half as long.
        """
        try:
            texts = self.decode(written)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        return self.read(texts)

    def read(self, texts: msgspec.Struct) -> Header | None:
        """The header in texts of ``make`` or in its exact ones; None as in ``read_json``."""
        values = list(_astuple(texts))
        try:
            for position, is_required, find, read, _ in self.converted:
                text = values[position]
                if text:
                    value = find(text)
                    values[position] = read(text) if value is None else value
                elif is_required or text is not None:
                    return None
        except ValueError:
            return None
        for position in self.required:
            if values[position] is None:
                return None
        return self.header(*values)

    def write(self, header: Header) -> msgspec.Struct | dict[str, str]:
        """What JSON is made of: a struct of texts. Refuses what ``to_ext`` refuses."""
        values = list(_astuple(header))
        try:
            for position, is_required, _, _, write in self.converted:
                value = values[position]
                if value is not None:
                    values[position] = write(value)
                elif is_required:
                    return header.to_ext()
        except ValueError:
            return header.to_ext()
        for position in self.required:
            if values[position] is None:
                return header.to_ext()
        return self.make(*values)


@functools.cache
def text_form(header: type[Header]) -> TextForm:
    """The text form of a header class."""
    table = fields(header)
    make = msgspec.defstruct(
        f"{header.__name__}Texts",
        [(field.attribute, str | None, None) for field in table],
        rename={field.attribute: field.wire_name for field in table},
        omit_defaults=True,
        gc=False,
    )
    converted = tuple(
        (position, field.is_required, _USUAL_TEXTS[field.kind].get, field.read, field.write)
        for position, field in enumerate(table)
        if field.kind not in (_TEXT, _RARE)
    )
    required = tuple(
        position
        for position, field in enumerate(table)
        if field.is_required and field.kind is _TEXT
    )
    return TextForm(header, make, msgspec.json.Decoder(make).decode, converted, required)


def _field(info: msgspec.structs.FieldInfo) -> Field:
    choices = get_args(info.type)
    is_required = type(None) not in choices
    declared = info.type if is_required else choices[0]
    return Field(
        info.name,
        info.encode_name,
        is_required,
        not is_required and declared not in (str, Rare),
        *_kind(declared),
    )


def _kind(declared: Any) -> _Kind:
    if isinstance(declared, type) and issubclass(declared, Enum):
        return _Kind(FieldKind.ENUM, declared, lambda member: str(member.value), declared.__name__)
    return _KINDS[declared]


def _refusal(header: type[Header], field: Field, value: str | int) -> str:
    text = str(value)
    shown = text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "…"
    return f"{_place(header, field)} is no {field.noun}: '{shown}'"


def _place(header: type[Header], field: Field) -> str:
    # Of all wire names only the letters of the V2 sends need an explanation.
    explained = f" ({field.attribute})" if len(field.wire_name) == 1 else ""
    return f"{_subject(header)}: field '{field.wire_name}'{explained}"


def _subject(header: type[Header]) -> str:
    if header.requests:
        return header.requests[0].name
    if header.answers:
        return f"answer to {header.answers[0].name}"
    return header.__name__


def _integer_kind(kind: FieldKind, low: int, high: int, noun: str) -> _Kind:
    def read(text: str) -> int:
        small = SMALL_INTEGERS.get(text)
        if small is not None:
            return small
        # int() alone would also take blanks, underscores, digits of other scripts, and megabytes.
        digits = text if text.isdigit() else text[1:] if text[:1] in ("-", "+") else ""
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
            raise ValueError("not a decimal number")
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"not within {low} and {high}")
        return value

    def write(value: int) -> str:
        if not low <= value <= high:
            raise ValueError(f"not within {low} and {high}")
        return str(value)

    return _Kind(kind, read, write, noun)


def _read_boolean(text: str) -> bool:
    return text.lower() == "true"


def _read_loose_boolean(text: str) -> bool:
    return text == "1" or text.lower() == "true"


def _write_boolean(value: bool) -> str:
    return "true" if value else "false"


_USUAL_TEXTS: dict[FieldKind, dict[str, Any]] = {
    FieldKind.INT32: SMALL_INTEGERS,
    FieldKind.INT64: SMALL_INTEGERS,
    FieldKind.BOOL: {"true": True, "false": False},
    FieldKind.LOOSE_BOOL: {"true": True, "false": False},
    FieldKind.ENUM: {},
}
"""Looked up before the rules are asked: most numbers are small, and most flags are written so."""

_KINDS: dict[Any, _Kind] = {
    str: _Kind(FieldKind.TEXT, str, str, "text"),
    I32: _integer_kind(FieldKind.INT32, I32_MIN, I32_MAX, "32-bit integer"),
    I64: _integer_kind(FieldKind.INT64, I64_MIN, I64_MAX, "64-bit integer"),
    bool: _Kind(FieldKind.BOOL, _read_boolean, _write_boolean, "boolean"),
    LooseBool: _Kind(FieldKind.LOOSE_BOOL, _read_loose_boolean, _write_boolean, "boolean"),
    Rare: _Kind(FieldKind.RARE, str, str, "text"),
}
