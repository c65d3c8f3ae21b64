"""Answers that are written again and again, taken apart: what stays the same, what goes between.

The quick ways for sends and pulls do not know what an answer looks like. They are given one by the
general writer, made of sample facts, and write others by putting facts between its pieces.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from operator import add
from typing import Final, NamedTuple

MESSAGE_ID, UNIQUE_KEY, OPAQUE, NOTHING = range(4)
"""What may follow a piece; from ``NUMBER`` on a number, the first, the second and so on."""

NUMBER: Final = 8

SAMPLE_OPAQUE: Final = 1_333_777_111
SAMPLE_NUMBERS: Final = (1_444_777_222, 2_555_777_333_444, 3_666_777_444_555)
SAMPLE_ID: Final = "~id~"
SAMPLE_KEY: Final = "~key~"


_PREFIX: Final = struct.Struct(">II")
_PREFIX_BYTES: Final = 8


class Piece(NamedTuple):
    """Bytes of an answer that are always the same, and what follows them."""

    literal: bytes
    kind: int


def cut(frame: bytes, serialization: int) -> list[Piece]:
    """Take apart an answer that was made of the samples; not all of them need to be in it."""
    opaque = struct.pack(">i", SAMPLE_OPAQUE) if serialization else b"%d" % SAMPLE_OPAQUE
    marks: Mapping[int, bytes] = {
        MESSAGE_ID: SAMPLE_ID.encode(),
        UNIQUE_KEY: SAMPLE_KEY.encode(),
        OPAQUE: opaque,
        **{NUMBER + index: b"%d" % number for index, number in enumerate(SAMPLE_NUMBERS)},
    }
    places = sorted(
        (frame.index(mark), kind, len(mark)) for kind, mark in marks.items() if mark in frame
    )
    found, position = [], 0
    for place, kind, size in places:
        found.append(Piece(frame[position:place], kind))
        position = place + size
    return [*found, Piece(frame[position:], NOTHING)]


def json_writer(
    pieces: Sequence[Piece], kinds: Sequence[int], forms: Mapping[int, str] | None = None
) -> Callable[[tuple[str | int, ...], int], bytes]:
    """What writes heads in JSON, from facts of these kinds in this order and the body's size.

    ``forms`` say how facts of some kinds are written, as ``%`` wants it.
    """
    assert [kind for _, kind in pieces] == [*kinds, NOTHING], pieces
    # Each form of a fact is ASCII, so that characters are bytes.
    first, *others = (literal for literal, _ in pieces)
    literals = [literal.decode("latin-1") for literal in (first[_PREFIX_BYTES:], *others)]
    shown = [(forms or {}).get(kind, "%s") for kind in kinds]
    text = "".join(map(add, (literal.replace("%", "%%") for literal in literals), [*shown, ""]))

    def write(facts: tuple[str | int, ...], body_bytes: int) -> bytes:
        head = (text % facts).encode("latin-1")
        return _PREFIX.pack(len(head) + 4 + body_bytes, len(head)) + head

    return write
