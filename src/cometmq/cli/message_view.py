"""Messages as people and scripts see them: fields, one line each, or a template of the user's.

Field names are the same for every command that shows messages. ``value`` is the body as text
where it is text, else base64, and ``value_encoding`` says which.
"""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import click

from cometmq.cli.frame import Frame
from cometmq.cli.output import Format, Record, harmless
from cometmq.cli.times import iso_time
from cometmq.client.core.checks import RESERVED_PROPERTIES
from cometmq.codec.properties import Property
from cometmq.errors import CometError
from cometmq.logs import one_line

VALUE_CHARACTERS_SHOWN: Final = 200
BINARY_BYTES_SHOWN: Final = 24

COLUMNS: Final = ("stored", "queue", "offset", "tag", "keys", "value")
"""What a table of messages shows: a line must leave room for the value."""

_SYSTEM: Final = RESERVED_PROPERTIES | {
    value for name, value in vars(Property).items() if not name.startswith("_")
}


class Stored(Protocol):
    """What messages of the client and of the admin library have in common."""

    @property
    def broker_name(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def physical_offset(self) -> int: ...
    @property
    def message_id(self) -> str: ...
    @property
    def offset_id(self) -> str: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def body(self) -> bytes: ...
    @property
    def properties(self) -> Mapping[str, str]: ...
    @property
    def born_ms(self) -> int: ...
    @property
    def born_host(self) -> str: ...
    @property
    def stored_ms(self) -> int: ...
    @property
    def store_host(self) -> str: ...
    @property
    def reconsume_times(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Content:
    """The body of a message; ``problem`` says why it is shown as it is stored."""

    body: bytes
    problem: str | None = None

    @property
    def text(self) -> str | None:
        """The body as text, None when it is none."""
        try:
            text = self.body.decode()
        except UnicodeDecodeError:
            return None
        # Control characters, other than those of texts, are the mark of binary data.
        is_text = text.isprintable() or not _CONTROL.search(text)
        return text if is_text else None

    def as_line(self) -> str:
        """Short, on one line, without anything that a terminal would obey."""
        text = self.text
        if text is None:
            shown = self.body[:BINARY_BYTES_SHOWN].hex(" ")
            more = " …" if len(self.body) > BINARY_BYTES_SHOWN else ""
            return f"({len(self.body)} bytes) {shown}{more}"
        hidden = len(text) - VALUE_CHARACTERS_SHOWN
        if hidden > 0:
            return f"{one_line(text[:VALUE_CHARACTERS_SHOWN])}… ({hidden} more characters)"
        return one_line(text)

    def as_fields(self) -> dict[str, str | int | None]:
        """All of it."""
        text = self.text
        return {
            "value": base64.b64encode(self.body).decode() if text is None else text,
            "value_encoding": "base64" if text is None else "utf-8",
            "value_bytes": len(self.body),
            "value_problem": self.problem,
        }


_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")


def content_of(message: Any) -> Content:
    """The body of a message of either kind; what cannot be decompressed is shown as it is."""
    try:
        return Content(message.body, getattr(message, "body_problem", None))
    except CometError as error:
        return Content(message.record.body, str(error))


def topic_of(message: Any) -> str:
    """The topic that it was read from."""
    read_from = getattr(message, "delivered_from", None)
    return read_from if isinstance(read_from, str) else str(message.topic)


def fields_of(message: Stored) -> dict[str, Any]:
    """Everything that is known of a message."""
    properties = message.properties
    own = user_properties(properties)
    system = {name: value for name, value in properties.items() if name in _SYSTEM}
    return {
        "topic": topic_of(message),
        "broker_name": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_id": message.offset_id,
        "stored": iso_time(message.stored_ms),
        "born": iso_time(message.born_ms),
        "born_host": message.born_host,
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "tag": properties.get(Property.TAGS),
        "keys": list(message.keys),
        "ordering_key": properties.get(Property.SHARDING_KEY),
        "properties": own,
        "system_properties": system,
        **content_of(message).as_fields(),
    }


def user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Those that a sender has chosen, without RocketMQ's own."""
    return {name: value for name, value in properties.items() if name not in _SYSTEM}


def row_of(message: Stored, *, is_short: bool = True) -> Record:
    """One line of a table; ``is_short`` cuts long values."""
    content = content_of(message)
    return {
        "stored": table_time(message.stored_ms),
        "queue": f"{message.broker_name}/{message.queue_id}",
        "offset": message.queue_offset,
        "tag": message.properties.get(Property.TAGS),
        "keys": " ".join(message.keys),
        "value": content.as_line() if is_short else content.as_fields()["value"],
    }


def show_messages(frame: Frame, messages: Sequence[Stored]) -> None:
    """Print some messages: a table of them, or all their fields."""
    if frame.output in (Format.JSON, Format.YAML):
        frame.show_rows([fields_of(message) for message in messages], columns=())
        return
    is_table = frame.output is not Format.PLAIN
    frame.show_rows([row_of(one, is_short=is_table) for one in messages], columns=COLUMNS)


def table_time(ms: int) -> str | None:
    """A time without its zone, for tables."""
    time = iso_time(ms)
    return None if time is None else time[:23].replace("T", " ")


# --- templates

_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\0": "\0", "\\\\": "\\"}
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|\\[nt0\\]|[{}]")
Piece = Callable[[Stored], bytes]


def _text(read: Callable[[Stored], object]) -> Piece:
    def piece(message: Stored) -> bytes:
        found = read(message)
        return b"" if found is None else str(found).encode("utf-8", "replace")

    return piece


_TEMPLATE_FIELDS: Mapping[str, Piece] = {
    "value": lambda message: content_of(message).body,
    "key": _text(lambda m: m.keys[0] if m.keys else ""),
    "keys": _text(lambda m: " ".join(m.keys)),
    "tag": _text(lambda m: m.properties.get(Property.TAGS)),
    "topic": _text(topic_of),
    "broker": _text(lambda m: m.broker_name),
    "queue": _text(lambda m: m.queue_id),
    "offset": _text(lambda m: m.queue_offset),
    "id": _text(lambda m: m.message_id),
    "stored": _text(lambda m: iso_time(m.stored_ms)),
    "stored_ms": _text(lambda m: m.stored_ms),
    "born": _text(lambda m: iso_time(m.born_ms)),
    "born_ms": _text(lambda m: m.born_ms),
    "born_host": _text(lambda m: m.born_host),
    "retries": _text(lambda m: m.reconsume_times),
    "bytes": _text(lambda m: len(content_of(m).body)),
}
TEMPLATE_HELP: Final = ", ".join(_TEMPLATE_FIELDS) + " and property.NAME"


class Template:
    r"""``{key} {value}`` with the fields of a message; ``\n`` and ``\t`` mean what they mean.

    Raises click.BadParameter for a field that there is not.
    """

    def __init__(self, text: str, *, is_for_terminal: bool = False) -> None:
        self._pieces = list(_pieces(text, harmless if is_for_terminal else bytes))

    def render(self, message: Stored) -> bytes:
        """The message, with a line break at its end.

        Its value is the bytes that it is; for a terminal, what would command it is escaped, and
        what the template itself says is not.
        """
        return b"".join(piece(message) for piece in self._pieces) + b"\n"


def _pieces(text: str, clean: Callable[[bytes], bytes]) -> "Sequence[Piece]":
    pieces: list[Piece] = []
    position = 0
    for match in _PIECE.finditer(text):
        pieces.append(_constant(text[position : match.start()]))
        pieces.append(_piece(match, clean))
        position = match.end()
    pieces.append(_constant(text[position:]))
    return pieces


def _piece(match: "re.Match[str]", clean: Callable[[bytes], bytes]) -> Piece:
    found = match.group()
    if found in ("{{", "}}"):
        return _constant(found[0])
    if found.startswith("\\"):
        return _constant(_ESCAPES[found])
    name = match.group(1)
    if name is None:
        raise _bad_template(f"a '{found}' stands alone; write '{found}{found}' for the sign")
    field = _field(name)
    return lambda message: clean(field(message))


def _field(name: str) -> Piece:
    if name.startswith("property."):
        wanted = name.removeprefix("property.")
        return _text(lambda message: message.properties.get(wanted))
    if name not in _TEMPLATE_FIELDS:
        raise _bad_template(f"no such field: '{name}'; there are {TEMPLATE_HELP}")
    return _TEMPLATE_FIELDS[name]


def _constant(text: str) -> Piece:
    data = text.encode("utf-8", "surrogateescape")
    return lambda _: data


def _bad_template(fact: str) -> click.BadParameter:
    return click.BadParameter(fact, param_hint="'--template'")
