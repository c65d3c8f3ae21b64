"""One thing with its parts: facts, and lists that each become a table below them.

In JSON and YAML the lists are fields beside the facts. With ``plain`` every line begins with the
name of its list, so that ``grep`` finds them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import click

from cometmq.cli.frame import Frame
from cometmq.cli.output import Colours, Format, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A list below the facts; ``shown`` are its rows as a table has them, ``rows`` if None."""

    name: str
    rows: Sequence[Record]
    columns: Sequence[str]
    shown: Sequence[Record] | None = None
    colours: Colours = field(default_factory=dict)

    @property
    def table_rows(self) -> Sequence[Record]:
        return self.rows if self.shown is None else self.shown


def show_thing(
    frame: Frame,
    facts: Record,
    sections: Sequence[Section],
    *,
    shown: Record | None = None,
    colours: Colours | None = None,
) -> None:
    """Print one thing; ``shown`` are its facts as a table has them.

    A section without rows has no table; in JSON it is an empty list.
    """
    if frame.is_for_programs:
        frame.show_record({**facts, **{section.name: section.rows for section in sections}})
        return
    facts = facts if shown is None else shown
    if facts:
        frame.show_record(facts, colours=colours or {})
    if frame.output is Format.PLAIN:
        for section in sections:
            rows = [{"": section.name, **row} for row in section.table_rows]
            frame.show_rows(rows, columns=("", *section.columns))
        return
    is_first = not facts
    for section in sections:
        if section.table_rows:
            frame.write(("" if is_first else "\n") + _heading(frame, section))
            frame.show_rows(section.table_rows, columns=section.columns, colours=section.colours)
            is_first = False


def _heading(frame: Frame, section: Section) -> str:
    text = f"{section.name.replace('_', ' ')} ({len(section.table_rows)})"
    return (click.style(text, fg="cyan") if frame.printer.screen.has_colour else text) + "\n"
