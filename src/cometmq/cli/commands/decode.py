"""``cometmq decode``: what bytes of RocketMQ's protocol and store mean."""

import sys
from collections.abc import Sequence

import click

from cometmq.cli import decoding
from cometmq.cli.command import Example, Group
from cometmq.cli.decoding import Fields
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.output import Format
from cometmq.errors import RemoteProtocolError
from cometmq.model.limits import FRAME_BYTES_MAX

INPUT_BYTES_MAX = 8 * FRAME_BYTES_MAX
"""Most that is read from standard input: enough for a capture or the end of a log file."""

_BODY_CHARACTERS_SHOWN = 400

# Given in the help and run by the tests: one of each kind, as short as they come.
_FRAME = "AAAAKgAAACZ7ImNvZGUiOjEwNSwiZXh0RmllbGRzIjp7InRvcGljIjoiVCJ9fQ=="
_RECORD = (
    "AAAAXtqjIKdYkyqsAAAAAAAAAAAAAAAAAAAABwAAAAAAABAAAAAAAAAAAZyou7XACgAABQAAwAAAAAGcqLu2un8AAAEA"
    "ACqfAAAAAAAAAAAAAAAAAAAAAmhpAVQAAA=="
)
_OFFSET_ID = "7F00000100002A9F0000000000001000"
_UNIQUE_ID = "0A0000050F2418B4AAC2105FCB5B0000"
_PROPERTIES = "54414753017061696402"


@click.group(
    "decode",
    cls=Group,
    examples=(Example("A frame from a packet capture", f"cometmq decode frame {_FRAME}"),),
)
def command() -> None:
    """Explain bytes of RocketMQ's protocol and store.

    DATA is hex or base64 (what could be either is taken for hex). Without DATA, or with "-", it
    is read from standard input, where it may also be the bytes themselves.
    """


@command.command(
    "frame",
    examples=(
        Example("A frame from a packet capture", f"cometmq decode frame {_FRAME}"),
        Example("What was asked?", f"cometmq decode frame {_FRAME} -o plain | grep name"),
    ),
)
@click.argument("data", required=False)
@pass_frame
def frames(frame: Frame, data: str | None) -> None:
    """Remoting frames: requests and responses, one after the other.

    Sends with short field names (a, b, c, ...) are shown with the long ones too, as "header".
    """
    _show(frame, *decoding.frames_in(_input(data)))


@command.command(
    "record",
    examples=(Example("A stored message", f"cometmq decode record {_RECORD}"),),
)
@click.argument("data", required=False)
@pass_frame
def records(frame: Frame, data: str | None) -> None:
    """Records of a commit log, which are also what a pull returns.

    Compressed bodies are shown uncompressed. The body of a pull response, as "decode frame -o json"
    shows it, is good input.
    """
    _show(frame, *decoding.records_in(_input(data)))


@command.command(
    "id",
    examples=(
        Example("Where does this message lie?", f"cometmq decode id {_OFFSET_ID}"),
        Example("Who sent it?", f"cometmq decode id {_UNIQUE_ID}"),
    ),
)
@click.argument("ids", nargs=-1)
@pass_frame
def message_ids(frame: Frame, ids: Sequence[str]) -> None:
    """Message ids: the broker's offset id or a client's unique id.

    An offset id says on which broker and where in its log a message lies, a unique id where and
    when it was made.
    """
    ids = ids or _standard_input().decode(errors="replace").split()
    _show(frame, [decoding.message_id(text) for text in ids])


@command.command(
    "properties",
    examples=(Example("A property string in hex", f"cometmq decode properties {_PROPERTIES}"),),
)
@click.argument("data", required=False)
@pass_frame
def properties(frame: Frame, data: str | None) -> None:
    """A property string: names and values of a message's properties."""
    frame.show_record(decoding.properties(_input(data)))


def _show(frame: Frame, found: list[Fields], fault: str = "") -> None:
    """Print what was understood, and fail when something was not."""
    if not found and not fault:
        raise click.UsageError("there is nothing to decode")
    if frame.output in (None, Format.TABLE):
        found = [_with_short_body(fields) for fields in found]
    if found:
        frame.show_records(found)
    if fault:
        raise RemoteProtocolError(fault)


def _with_short_body(fields: Fields) -> Fields:
    body = fields.get("body")
    if not isinstance(body, str) or len(body) <= _BODY_CHARACTERS_SHOWN:
        return fields
    hidden = len(body) - _BODY_CHARACTERS_SHOWN
    short = f"{body[:_BODY_CHARACTERS_SHOWN]}… ({hidden} more characters with -o json)"
    return {**fields, "body": short}


def _input(data: str | None) -> bytes:
    """The bytes meant by the argument, or else those on standard input."""
    if data not in (None, "-"):
        return _read(data)
    content = _standard_input()
    return _read(content.decode("ascii")) if _is_text(content) else content


def _read(text: str) -> bytes:
    data = decoding.bytes_of(text)
    if data is None:
        shown = text.strip()[:40]
        raise click.UsageError(f"DATA is neither hex nor base64: '{shown}'")
    return data


def _standard_input() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError("no DATA: give it as an argument or on standard input")
    content = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    if len(content) > INPUT_BYTES_MAX:
        raise click.UsageError(f"standard input has more than the {INPUT_BYTES_MAX} bytes allowed")
    return content


def _is_text(content: bytes) -> bool:
    return content.isascii() and all(
        c.isprintable() or c.isspace() for c in content.decode("ascii")
    )
