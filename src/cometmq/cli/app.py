"""The program: its commands, and the one place where an exception becomes an exit code."""

import os
import sys
import traceback
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TextIO

import click

from cometmq._version import __version__
from cometmq.cli.command import Example, LazyCommand, LazyGroup
from cometmq.cli.frame import Frame
from cometmq.cli.output import Format
from cometmq.cli.problems import ExitCode, problem_of


class App(LazyGroup):
    """The root command. Nothing but ``SystemExit`` leaves its ``main``."""

    def main(self, args: Any = None, prog_name: Any = None, *_: Any, **extra: Any) -> Any:
        """Run with ``args`` (default: the process's) and exit; ``extra`` is for click's runner."""
        if "_COMETMQ_COMPLETE" in os.environ:
            self._complete(args, prog_name, extra)
        arguments = sys.argv[1:] if args is None else list(args)
        sys.exit(self.run(arguments, prog_name=prog_name or "cometmq"))

    def _complete(self, args: Any, prog_name: Any, extra: dict[str, Any]) -> None:
        """Answer a shell; the line that is being typed is no place for complaints."""
        frame = Frame(environment=os.environ)
        try:
            super().main(args, prog_name, **{"obj": frame, **extra})
        except (KeyboardInterrupt, Exception):
            sys.exit(ExitCode.FAILED)

    def run(self, arguments: Sequence[str], *, prog_name: str = "cometmq") -> int:
        """Run one command line and return its exit code, whatever happens."""
        frame = Frame(environment=os.environ)
        try:
            return self._run(frame, list(arguments), prog_name)
        except (KeyboardInterrupt, click.Abort):
            frame.end_line()
            return ExitCode.INTERRUPTED
        except BrokenPipeError:
            _settle(sys.stdout)
            _settle(sys.stderr)
            return ExitCode.OUTPUT_CLOSED
        except Exception as error:
            # A command line that did not parse may not have got as far as its -o.
            frame.output = frame.output or _wanted_output(arguments)
            return _report(frame, error)

    def _run(self, frame: Frame, arguments: list[str], prog_name: str) -> int:
        try:
            with self.make_context(prog_name, arguments, obj=frame) as context:
                self.invoke(context)
        except click.exceptions.Exit as leaving:
            return leaving.exit_code
        return ExitCode.DONE


def _report(frame: Frame, error: Exception) -> ExitCode:
    problem = problem_of(error)
    _settle(sys.stdout)
    try:
        if frame.is_debug:
            traceback.print_exception(error)
        frame.complain(problem)
    except OSError:
        _settle(sys.stderr)
    return problem.exit_code


def _settle(stream: TextIO | None) -> None:
    """Flush ``stream``, or send what it still holds nowhere.

    Else the interpreter would try again on its way out, complain in its own words and spoil the
    exit code.
    """
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _wanted_output(arguments: Sequence[str]) -> Format | None:
    """The ``-o`` in ``arguments``, found without understanding the rest of them."""
    wanted = None
    for argument, following in pairwise([*arguments, ""]):
        if argument == "--":
            break
        if argument in ("-o", "--output"):
            value = following
        elif argument.startswith("--output="):
            value = argument.removeprefix("--output=")
        elif argument.startswith("-o"):
            value = argument.removeprefix("-o")
        else:
            continue
        wanted = Format(value) if value in list(Format) else wanted
    return wanted


def _print_version(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not context.resilient_parsing:
        click.echo(f"cometmq {__version__}")
        context.exit()


COMMANDS = {
    "up": LazyCommand("cometmq.cli.commands.up", "Run a name server and a broker in one process."),
    "broker": LazyCommand("cometmq.cli.commands.broker", "Run a broker until it is told to stop."),
    "nameserver": LazyCommand(
        "cometmq.cli.commands.nameserver", "Run a name server until it is told to stop."
    ),
    "status": LazyCommand("cometmq.cli.commands.status", "Is the cluster there, and is it well?"),
    "cluster": LazyCommand(
        "cometmq.cli.commands.cluster", "Clusters: which servers there are and how they are doing."
    ),
    "topic": LazyCommand(
        "cometmq.cli.commands.topic", "Topics: list, make, change them, look into them."
    ),
    "group": LazyCommand(
        "cometmq.cli.commands.group",
        "Consumer groups: who is in them, how far they are.",
    ),
    "context": LazyCommand(
        "cometmq.cli.commands.context", "Clusters by name, so that nobody types an address twice."
    ),
    "completion": LazyCommand(
        "cometmq.cli.commands.completion",
        "Print a script that makes a shell complete our commands.",
    ),
    "produce": LazyCommand("cometmq.cli.commands.produce", "Send messages, one or many."),
    "consume": LazyCommand(
        "cometmq.cli.commands.consume", "Print messages, with a group or without."
    ),
    "request": LazyCommand("cometmq.cli.commands.request", "Send a request and print its reply."),
    "message": LazyCommand(
        "cometmq.cli.commands.message", "Find a message, and what became of it."
    ),
    "dlq": LazyCommand("cometmq.cli.commands.dlq", "Dead letters: look at them, send them again."),
    "delay": LazyCommand("cometmq.cli.commands.delay", "Messages that wait for their time."),
    "top": LazyCommand("cometmq.cli.commands.top", "Watch rates, lag, connections and disks."),
    "version": LazyCommand("cometmq.cli.commands.version", "Show the version and what it runs on."),
    "doctor": LazyCommand(
        "cometmq.cli.commands.doctor",
        "Check this machine and its cluster for what gets in the way.",
    ),
    "decode": LazyCommand(
        "cometmq.cli.commands.decode", "Explain bytes of RocketMQ's protocol and store."
    ),
    "store": LazyCommand(
        "cometmq.cli.commands.store", "Look into a store directory without opening it."
    ),
}

app = App(
    name="cometmq",
    help="""Apache RocketMQ's messaging system in Python: same wire protocol, same store format.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 unreachable.""",
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version and exit.",
        )
    ],
    examples=(
        Example("A name server and a broker, to try things", "cometmq up", stays_up=True),
        Example("What is installed, as JSON", "cometmq version -o json"),
        Example("Is this machine fit for a broker?", "cometmq doctor"),
    ),
)
