"""Aligned text for people: rows under headings, or one record as a list of its fields.

A table that does not fit the terminal first wraps its widest cells; when the columns would become
too narrow to read, each row turns into a block of ``field value`` lines. Nothing is cut off. Into a
pipe everything goes out at its natural width.
"""

import unicodedata
from collections.abc import Callable, Mapping, Sequence

Row = Mapping[str, str]
Paint = Callable[[str, str], str]
"""``paint(column, text)`` adds colour; headings and field names come as column ``""``."""

BLANK = "-"
"""What stands in a table where there is nothing."""

_GAP = "  "
_COLUMN_MIN = 12


def unpainted(_column: str, text: str) -> str:
    """The paint of a screen without colours."""
    return text


def render_rows(
    rows: Sequence[Row],
    columns: Sequence[str],
    *,
    width: int | None,
    right: frozenset[str] = frozenset(),
    paint: Paint = unpainted,
) -> list[str]:
    """Lines of a table; ``width`` None means unlimited, ``right`` names right-aligned columns."""
    headings = {column: column.upper().replace("_", " ") for column in columns}
    natural = {
        column: max(display_width(row[column]) for row in [headings, *rows]) for column in columns
    }
    widths = _fit(natural, width)
    if widths is None:
        return _blocks(rows, columns, width=width, paint=paint)
    lines = _table_row(headings, widths, right, lambda _, text: paint("", text))
    for row in rows:
        lines += _table_row(row, widths, right, paint)
    return lines


def render_record(fields: Row, *, width: int | None, paint: Paint = unpainted) -> list[str]:
    """Lines of ``field value``, long values wrapped below themselves."""
    name_width = max((display_width(name) for name in fields), default=0)
    room = None if width is None else width - name_width - len(_GAP)
    if room is not None and room < _COLUMN_MIN:
        room = None
    lines = []
    for name, value in fields.items():
        first, *rest = wrap(value, room)
        lines.append(paint("", _pad(name, name_width)) + _GAP + paint(name, first))
        lines += [" " * name_width + _GAP + paint(name, more) for more in rest]
    return [line.rstrip() for line in lines]


def display_width(text: str) -> int:
    """Columns of a terminal that ``text`` takes."""
    if text.isascii():
        return len(text)
    return sum(_char_width(c) for c in text)


def wrap(text: str, width: int | None) -> list[str]:
    """``text`` in pieces of at most ``width`` columns, broken after blanks where there are any."""
    if width is None or display_width(text) <= width:
        return [text]
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if display_width(joined) <= width:
            lines[-1] = joined
            continue
        pieces = _chop(word, width)
        lines[-1:] = pieces if not lines[-1] else [lines[-1], *pieces]
    return lines


def _chop(word: str, width: int) -> list[str]:
    pieces = [""]
    for c in word:
        if display_width(pieces[-1]) + _char_width(c) > width:
            pieces.append("")
        pieces[-1] += c
    return pieces


def _char_width(c: str) -> int:
    if unicodedata.combining(c):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


def _fit(natural: Mapping[str, int], width: int | None) -> dict[str, int] | None:
    """Widths that fit, taken from the widest columns first; None when that is not readable."""
    widths = dict(natural)
    if width is None or not widths:
        return widths
    excess = sum(widths.values()) + len(_GAP) * (len(widths) - 1) - width
    while excess > 0:
        widest = max(widths, key=lambda column: widths[column])
        if widths[widest] <= _COLUMN_MIN:
            return None
        widths[widest] -= 1
        excess -= 1
    return widths


def _table_row(
    row: Row, widths: Mapping[str, int], right: frozenset[str], paint: Paint
) -> list[str]:
    cells = {column: wrap(row[column], width) for column, width in widths.items()}
    height = max((len(cell) for cell in cells.values()), default=0)
    lines = []
    for i in range(height):
        parts = []
        for column, width in widths.items():
            text = cells[column][i] if i < len(cells[column]) else ""
            padding = " " * (width - display_width(text))
            painted = paint(column, text) if text else ""
            parts.append(padding + painted if column in right else painted + padding)
        lines.append(_GAP.join(parts).rstrip())
    return lines


def _blocks(
    rows: Sequence[Row], columns: Sequence[str], *, width: int | None, paint: Paint
) -> list[str]:
    lines: list[str] = []
    for row in rows:
        fields = {column: row[column] for column in columns if row[column] != BLANK}
        lines += [*render_record(fields, width=width, paint=paint), ""]
    return lines[:-1]


def _pad(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))
