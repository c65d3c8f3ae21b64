"""The kinds of command: with the global options, with examples in their help, loaded when needed.

Global options may stand before or after the sub-command and the last one wins, so they are options
of every command, and each writes into the frame as it is parsed. Logs are set up after all of them
are known, right before a command runs.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import click

from cometmq.cli.frame import Frame
from cometmq.cli.output import Format
from cometmq.logs import LogLevel, LogSettings
from cometmq.settings import Row, describe

_LOG_OPTIONS = ("level", "format", "file")


class Example(NamedTuple):
    """A command line that works as it stands, and what it is good for.

    One that ``stays_up`` is a server: it ends when it is told to. One that ``needs_cluster`` is
    for a cluster with a topic ``orders`` and a group ``billing`` that has consumed some of it, one
    that ``needs_store`` for a broker of 'cometmq up' that has kept some of that topic.
    """

    purpose: str
    line: str
    stays_up: bool = False
    needs_cluster: bool = False
    needs_store: bool = False


class LazyCommand(NamedTuple):
    """A command that is not imported yet: ``attribute`` in ``module``."""

    module: str
    summary: str
    attribute: str = "command"


class _Framed(click.Command):
    """What our commands and groups have in common."""

    def __init__(self, *args: Any, examples: Sequence[Example] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.params += _global_options()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        brief: dict[str, list[str]] = {}
        records = []
        for option in options:
            place = option.explained_by if isinstance(option, GlobalOption) else ""
            if place and place != ctx.command_path:
                brief.setdefault(place, []).append(option.opts[0])
            else:
                records.append(option.get_help_record(ctx))
        with formatter.section("Options"):
            formatter.write_dl([record for record in records if record is not None])
        for place, names in brief.items():
            formatter.write_paragraph()
            formatter.write_text(f"Also {', '.join(names)}: see '{place} --help'")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                indent = " " * formatter.current_indent
                for example in self.examples:
                    formatter.write(f"{indent}# {example.purpose}\n{indent}{example.line}\n")


class Command(_Framed):
    """A command that does something; ``log_level`` is how much it logs unless told otherwise."""

    def __init__(self, *args: Any, log_level: LogLevel = LogLevel.WARNING, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.log_level = log_level

    def invoke(self, ctx: click.Context) -> Any:
        frame = ctx.find_object(Frame)
        assert frame is not None
        frame.start_logs(self.log_level)
        return super().invoke(ctx)


class Group(_Framed, click.Group):
    """A command with verbs; called without one, it explains itself."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        _Framed.format_options(self, ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            self._refuse(ctx, args[0])
        return super().resolve_command(ctx, args)

    def _refuse(self, ctx: click.Context, name: str) -> NoReturn:
        import difflib

        error = click.UsageError(f"no such command '{name}'", ctx=ctx)
        similar = difflib.get_close_matches(name, self.list_commands(ctx))
        error.possibilities = similar  # type: ignore[attr-defined]
        raise error


class Starter(Group):
    """A command that has verbs and, called without one, runs itself: a server.

    Its function is called in both cases and returns at once when the context says that there is an
    ``invoked_subcommand``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, invoke_without_command=True, no_args_is_help=False, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return click.Group.parse_args(self, ctx, args)


class LazyGroup(Group):
    """A group that imports a command's module only when that command is called.

    Its help needs no import either: the summaries stand in the table.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        lazy = self.lazy[cmd_name]
        command = getattr(import_module(lazy.module), lazy.attribute)
        assert isinstance(command, click.Command), command
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        rows = [(name, lazy.summary) for name, lazy in self.lazy.items()]
        rows += [(name, command.get_short_help_str()) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class GlobalOption(click.Option):
    """An option of every command; its value goes to the frame and to no callback.

    The help of the command ``explained_by`` explains it, that of others only names it; empty means
    that all do.
    """

    def __init__(
        self,
        *names: str,
        store: Callable[[Frame, Any], None],
        explained_by: str = "cometmq",
        **facts: Any,
    ) -> None:
        self.explained_by = explained_by

        def callback(context: click.Context, _: click.Parameter, value: Any) -> None:
            frame = context.find_root().obj
            # While a shell completes a line there is a frame, and the line may name a cluster.
            if value is not None and frame is not None:
                store(frame, value)

        super().__init__(list(names), callback=callback, expose_value=False, **facts)


def _global_options() -> list[click.Parameter]:
    output = GlobalOption(
        "-o",
        "--output",
        type=click.Choice([form.value for form in Format]),
        metavar="FORM",
        explained_by="",
        help=f"Print as {_words([form.value for form in Format])}.  [default: table]",
        store=lambda frame, value: setattr(frame, "output", Format(value)),
    )
    debug = GlobalOption(
        "--debug",
        is_flag=True,
        default=None,
        help="Show a traceback with an error.",
        store=lambda frame, value: setattr(frame, "is_debug", value),
    )
    log = [_log_option(row) for row in describe(LogSettings) if row.name in _LOG_OPTIONS]
    return [output, *log, debug]


def _log_option(row: Row) -> GlobalOption:
    def store(frame: Frame, value: str) -> None:
        frame.log_flags[row.name] = value

    if not row.choices:
        return GlobalOption(row.option, metavar="FILE", help=row.doc, store=store)
    return GlobalOption(
        row.option,
        type=click.Choice(row.choices),
        metavar=row.name.upper(),
        help=f"{row.doc.removesuffix('.')}: {_words(row.choices)}.",
        store=store,
    )


def _words(choices: Sequence[str]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}"
