"""Things printed as they come: under one heading, as JSON lines, as YAML documents or as rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import click

from cometmq.cli.frame import Frame
from cometmq.cli.output import Format, Record, cell, harmless, to_json
from cometmq.cli.table import display_width
from cometmq.cli.yaml_writer import to_yaml

_GAP = "  "

T = TypeVar("T")


class RowStream(Generic[T]):
    """Prints in one ``-o`` form.

    ``fields`` gives all of a thing, ``row`` what the columns show of it, short (for tables) or
    not. Columns begin as wide as ``widths`` says and grow: what comes later is not known yet.
    """

    def __init__(
        self,
        frame: Frame,
        columns: Sequence[str],
        *,
        fields: Callable[[T], Record],
        row: Callable[[T, bool], Record],
        widths: Mapping[str, int],
        right: frozenset[str] = frozenset(),
    ) -> None:
        self._frame = frame
        self._columns = tuple(columns)
        self._fields = fields
        self._row = row
        self._right = right
        self._form = frame.output or Format.TABLE
        self._screen = frame.printer.screen
        self._widths = {name: max(widths.get(name, 0), len(name)) for name in columns}
        self._has_heading = False

    def show(self, things: Sequence[T]) -> None:
        """Print some at once. Raises BrokenPipeError when nobody reads any more."""
        if things:
            self._frame.write("".join(self._texts(things)))

    def _texts(self, things: Sequence[T]) -> list[str]:
        match self._form:
            case Format.JSON:
                is_unicode = self._screen.is_unicode
                return [
                    to_json(self._fields(thing), is_unicode=is_unicode, indent=None)
                    for thing in things
                ]
            case Format.YAML:
                return [f"---\n{to_yaml(self._fields(thing))}" for thing in things]
            case Format.PLAIN:
                rows = [self._row(thing, False) for thing in things]
                return ["\t".join(cell(row[c], "") for c in self._columns) + "\n" for row in rows]
            case Format.TABLE:
                return self._table([self._row(thing, True) for thing in things])

    def _table(self, rows: Sequence[Record]) -> list[str]:
        cells = [{name: cell(row[name]) for name in self._columns} for row in rows]
        for row in cells:
            for name, text in row.items():
                self._widths[name] = max(self._widths[name], display_width(text))
        lines = [self._line(row) for row in cells]
        if not self._has_heading:
            self._has_heading = True
            heading = self._line({name: name.upper().replace("_", " ") for name in self._columns})
            lines.insert(0, click.style(heading, bold=True) if self._screen.has_colour else heading)
        return [f"{line}\n" for line in lines]

    def _line(self, row: Mapping[str, str]) -> str:
        parts = []
        for name in self._columns:
            padding = " " * (self._widths[name] - display_width(row[name]))
            parts.append(padding + row[name] if name in self._right else row[name] + padding)
        return _GAP.join(parts).rstrip()


def write_value(frame: Frame, data: bytes) -> None:
    """Print what a message contains, as it is, or harmless where that is a terminal."""
    write_bytes(harmless(data) if frame.is_on_terminal else data)


def write_bytes(data: bytes) -> None:
    """Print bytes as they are. Raises BrokenPipeError when nobody reads any more."""
    try:
        click.echo(data, nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise click.ClickException(f"cannot write the output: {error.strerror}") from error
