"""What a command found out, in the form its caller asked for.

Field names are the same in every form and do not change between releases: JSON and YAML hold all
fields, ``table`` and ``plain`` those a person wants. ``plain`` is for ``cut`` and ``awk``: no
headings, one row per line, fields separated by one tab, no colours, nothing wrapped.
"""

import enum
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

import click

from cometmq.cli.table import BLANK, Paint, render_record, render_rows, unpainted
from cometmq.cli.yaml_writer import Plain, is_list, to_yaml
from cometmq.logs import one_line

Record = Mapping[str, Plain]
Colours = Mapping[str, Mapping[str, str]]
"""Column to text to colour: ``{"status": {"fail": "red"}}``."""

NO_COLOURS: Colours = {}

# C1 controls, which some terminals obey as they do ESC, and what turns the direction of text.
_COMMANDING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Format(enum.StrEnum):
    """The forms of ``-o``."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Screen:
    """What output goes to: its width (None: as wide as needed), colours, and character set."""

    width: int | None = None
    has_colour: bool = False
    is_unicode: bool = True

    @classmethod
    def of(cls, stream: TextIO | None, environment: Mapping[str, str]) -> "Screen":
        """Only a terminal has a width, and it has colours unless the user said otherwise."""
        is_unicode = "utf" in (getattr(stream, "encoding", None) or "utf-8").lower()
        if stream is None or not stream.isatty():
            return cls(is_unicode=is_unicode)
        is_plain = bool(environment.get("NO_COLOR")) or environment.get("TERM") == "dumb"
        import shutil  # with its archives it costs more than all else here

        width = shutil.get_terminal_size().columns
        return cls(width=width, has_colour=not is_plain, is_unicode=is_unicode)


@dataclass(frozen=True, slots=True)
class Printer:
    """Renders results for one ``-o`` form and one screen."""

    form: Format
    screen: Screen

    def rows(
        self, rows: Sequence[Record], *, columns: Sequence[str], colours: Colours = NO_COLOURS
    ) -> str:
        """A list of things; ``columns`` are those that ``table`` and ``plain`` show.

        A table leaves out a column in which no row has anything to say.
        """
        if self.form in (Format.JSON, Format.YAML):
            return self.document(rows)
        blank = "" if self.form is Format.PLAIN else BLANK
        texts = [{column: cell(row.get(column), blank) for column in columns} for row in rows]
        if self.form is Format.PLAIN:
            return _joined("\t".join(text.values()) for text in texts)
        filled = [c for c in columns if not texts or any(text[c] != blank for text in texts)]
        paint = self._paint(colours)
        right = _numeric(rows, columns)
        return _joined(
            render_rows(texts, filled, width=self.screen.width, right=right, paint=paint)
        )

    def record(self, record: Record, *, colours: Colours = NO_COLOURS) -> str:
        """One thing with its fields; nested ones appear as ``outer.inner`` in tables."""
        if self.form in (Format.JSON, Format.YAML):
            return self.document(record)
        blank = "" if self.form is Format.PLAIN else BLANK
        texts = {one_line(name): cell(value, blank) for name, value in flatten(record).items()}
        if self.form is Format.PLAIN:
            return _joined(f"{name}\t{text}" for name, text in texts.items())
        paint = self._paint(colours)
        return _joined(render_record(texts, width=self.screen.width, paint=paint))

    def records(self, records: Sequence[Record]) -> str:
        """Things with many fields each: a list in JSON and YAML, else one block after the other."""
        if self.form in (Format.JSON, Format.YAML):
            return self.document(records)
        return "\n".join(self.record(record) for record in records)

    def document(self, value: Plain) -> str:
        """``value`` as JSON or YAML, whichever is wanted; JSON where neither is."""
        if self.form is Format.YAML:
            return to_yaml(finite(value))
        return to_json(value, is_unicode=self.screen.is_unicode)

    def _paint(self, colours: Colours) -> Paint:
        if not self.screen.has_colour:
            return unpainted

        def paint(column: str, text: str) -> str:
            if not column:
                return click.style(text, bold=True)
            colour = colours.get(column, {}).get(text)
            return click.style(text, fg=colour) if colour else text

        return paint


def to_json(value: Plain, *, is_unicode: bool = True, indent: int | None = 2) -> str:
    """``value`` as JSON with a line break at its end; what is not finite becomes null.

    JSON lets some characters stand as they are that a terminal would obey. They are escaped.
    """
    text = json.dumps(finite(value), indent=indent, ensure_ascii=not is_unicode)
    if is_unicode and not _is_encodable(text):
        return to_json(value, is_unicode=False, indent=indent)
    return _COMMANDING.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def cell(value: Plain, blank: str = BLANK) -> str:
    """``value`` on one line: a peer's control characters must not reach the terminal."""
    if value is None or value == "":
        return blank
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping) or is_list(value):
        return one_line(to_json(value, indent=None).rstrip("\n"))
    return one_line(str(value))


def harmless(data: bytes) -> bytes:
    """``data`` for a terminal: text and its line breaks stay, what would command it is escaped."""
    text = data.decode("utf-8", "backslashreplace")
    return "".join(c if c in "\n\t" else one_line(c) for c in text).encode()


def flatten(record: Record, prefix: str = "") -> dict[str, Plain]:
    """``{"a": {"b": 1}}`` as ``{"a.b": 1}``; lists of scalars are joined, others numbered."""
    flat: dict[str, Plain] = {}
    for name, value in record.items():
        full_name = f"{prefix}{name}"
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{full_name}.") or {full_name: None}
        elif is_list(value):
            if any(isinstance(item, Mapping) or is_list(item) for item in value):
                numbered = {str(i): item for i, item in enumerate(value)}
                flat |= flatten(numbered, f"{full_name}.")
            else:
                flat[full_name] = ", ".join(cell(item) for item in value)
        else:
            flat[full_name] = value
    return flat


def finite(value: Plain) -> Plain:
    """``value`` without NaN and infinities, which JSON cannot say."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if is_list(value):
        return [finite(item) for item in value]
    return value


def _joined(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _numeric(rows: Sequence[Record], columns: Sequence[str]) -> frozenset[str]:
    """Columns that hold numbers and nothing else: they are aligned at the right."""

    def is_number(value: Plain) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    filled = {c: [row[c] for row in rows if row.get(c) is not None] for c in columns}
    return frozenset(c for c, values in filled.items() if values and all(map(is_number, values)))


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which only escapes can carry
        return False
    return True
