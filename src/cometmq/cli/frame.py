"""What every command shares: where output goes, how errors look, how logs are set up.

One ``Frame`` lives as long as one invocation; commands take it with ``@pass_frame`` and hand it
what they found out. The global options fill it while the command line is parsed.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from cometmq import logs
from cometmq.cli.output import NO_COLOURS, Colours, Format, Printer, Record, Screen
from cometmq.cli.problems import Problem
from cometmq.logs import LogLevel, LogSettings, one_line
from cometmq.settings import load


@dataclass(slots=True)
class Frame:
    """One run of the program, as far as all commands are concerned."""

    environment: Mapping[str, str]
    output: Format | None = None
    is_debug: bool = False
    log_flags: dict[str, str] = field(default_factory=dict)
    cluster_flags: dict[str, Any] = field(default_factory=dict)

    @property
    def printer(self) -> Printer:
        return Printer(self.output or Format.TABLE, Screen.of(sys.stdout, self.environment))

    @property
    def has_colour_errors(self) -> bool:
        """Whether standard error is a terminal that wants colours."""
        return Screen.of(sys.stderr, self.environment).has_colour

    @property
    def is_on_terminal(self) -> bool:
        """Whether output goes to a terminal, which would obey what a message contains."""
        return self.printer.screen.width is not None

    @property
    def is_for_programs(self) -> bool:
        """Whether all fields are wanted, and not those that a person looks at."""
        return self.output in (Format.JSON, Format.YAML)

    def show_rows(
        self, rows: Sequence[Record], *, columns: Sequence[str], colours: Colours = NO_COLOURS
    ) -> None:
        """Print a list of things; tables show ``columns``, JSON and YAML every field."""
        self.write(self.printer.rows(rows, columns=columns, colours=colours))

    def show_record(self, record: Record, *, colours: Colours = NO_COLOURS) -> None:
        """Print one thing with its fields."""
        self.write(self.printer.record(record, colours=colours))

    def show_records(self, records: Sequence[Record]) -> None:
        """Print things with so many fields that each gets a block of its own."""
        self.write(self.printer.records(records))

    def write(self, text: str) -> None:
        """Print ``text`` as it is, colours included: they are only in it where they are wanted."""
        try:
            click.echo(text, nl=False, color=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise click.ClickException(f"cannot write the output: {error.strerror}") from error

    def complain(self, problem: Problem) -> None:
        """Say on standard error what went wrong: as JSON when that is the output, else as text."""
        screen = Screen.of(sys.stderr, self.environment)
        if self.output is Format.JSON:
            text = Printer(Format.JSON, screen).document(problem.as_record())
        else:
            label, rest = problem.as_text().split(":", maxsplit=1)
            text = (click.style(label, fg="red") if screen.has_colour else label) + f":{rest}\n"
        click.echo(text, nl=False, err=True, color=True)

    def warn(self, text: str) -> None:
        """Say on standard error what the user should know although the command goes on."""
        label = click.style("warning", fg="yellow") if self.has_colour_errors else "warning"
        click.echo(f"{label}: {one_line(text)}", err=True, color=True)

    def note(self, text: str) -> None:
        """Say something to a person on standard error; programs get nothing but the output."""
        if not self.is_for_programs:
            click.echo(one_line(text), err=True)

    def end_line(self) -> None:
        """After Ctrl-C: a terminal shows ^C, and what comes next shall not stand beside it."""
        if sys.stderr.isatty():
            click.echo(err=True)

    def start_logs(self, level: LogLevel) -> None:
        """Set up logging from flags and environment; ``level`` holds where neither names one."""
        loaded = load(
            LogSettings,
            flags=self.log_flags,
            environment=self.environment,
            base=LogSettings(level=level),
        )
        logs.configure(loaded.settings)


pass_frame = click.make_pass_decorator(Frame)
