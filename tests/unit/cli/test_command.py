"""The frame's promises, in-process: options, help, errors, lazily loaded commands."""

import io
import json
import logging
import sys
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner, Result

from cometmq import logs
from cometmq.cli.app import App, app
from cometmq.cli.command import Command, Example, Group, LazyCommand, LazyGroup
from cometmq.cli.frame import Frame, pass_frame
from cometmq.errors import CometError, NotFound
from cometmq.logs import LogLevel
from scripts.cli_reference import commands


def program(action: Callable[[Frame], None], **facts: object) -> App:
    """A program whose commands ``run`` and ``group run`` do ``action``."""

    @click.command("run", cls=Command, **facts)
    @pass_frame
    def run(frame: Frame) -> None:
        action(frame)

    root = App(name="cometmq", lazy={}, context_settings={"help_option_names": ["-h", "--help"]})
    root.add_command(run)
    root.add_command(Group("group", commands={"run": run}))
    return root


def invoke(root: click.Command, *arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(root, arguments, prog_name="cometmq", env=environment)


def fail_with(error: BaseException) -> App:
    def action(_: Frame) -> None:
        raise error

    return program(action)


show = program(lambda frame: frame.show_record({"a": 1}))


@pytest.mark.parametrize(
    "line",
    [
        "-o json run",
        "run -o json",
        "run --output=json",
        "-o yaml run -o json",
        "group -o json run",
        "group run -ojson",
    ],
)
def test_the_form_of_the_output_may_be_asked_for_anywhere_and_the_last_wins(line: str) -> None:
    result = invoke(show, *line.split())

    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"a": 1}


def test_an_error_goes_to_standard_error_with_fact_and_next_step() -> None:
    result = invoke(fail_with(NotFound("topic", "orders", "create it")), "run")

    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr == "error: no such topic: 'orders'\n  next: create it\n"


def test_an_error_is_json_when_the_output_is() -> None:
    result = invoke(fail_with(NotFound("topic", "orders")), "run", "-o", "json")

    assert result.exit_code == 3
    assert result.stdout == ""
    assert json.loads(result.stderr)["error"]["fact"] == "no such topic: 'orders'"


def test_a_bug_shows_no_traceback_unless_it_is_asked_for() -> None:
    broken = fail_with(KeyError("topic"))

    quiet, loud = invoke(broken, "run"), invoke(broken, "run", "--debug")

    assert quiet.exit_code == loud.exit_code == 1
    assert quiet.stderr.splitlines()[0] == "error: unexpected KeyError: 'topic'"
    assert "Traceback" not in quiet.stderr
    assert loud.stderr.startswith("Traceback (most recent call last):")
    assert "error: unexpected KeyError: 'topic'" in loud.stderr


def test_debug_shows_where_an_expected_error_came_from_too() -> None:
    result = invoke(fail_with(CometError("no")), "--debug", "run")

    assert "Traceback" in result.stderr
    assert result.stderr.endswith("error: no\n")


def test_after_ctrl_c_a_terminal_begins_a_new_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows ^C where it was pressed, and the shell's prompt would stand beside it."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)

    code = fail_with(KeyboardInterrupt()).run(["run"])

    assert (code, terminal.getvalue()) == (130, "\n")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()], ids=repr)
def test_an_interrupt_ends_quietly(error: BaseException) -> None:
    result = invoke(fail_with(error), "run")

    assert (result.exit_code, result.output) == (130, "")


@pytest.mark.parametrize(
    ("line", "fact", "next_step"),
    [
        ("rum", "no such command 'rum'", "did you mean 'run'? see 'cometmq --help'"),
        ("zzz", "no such command 'zzz'", "see 'cometmq --help'"),
        ("group rnu", "no such command 'rnu'", "did you mean 'run'? see 'cometmq group --help'"),
        ("run extra", "got unexpected extra argument (extra)", "see 'cometmq run --help'"),
        ("--log-levle x run", None, "did you mean '--log-level'? see 'cometmq --help'"),
    ],
)
def test_a_mistake_in_the_command_line_is_explained(
    line: str, fact: str | None, next_step: str
) -> None:
    result = invoke(show, *line.split())

    first, second = result.stderr.splitlines()
    assert result.exit_code == 2
    assert fact is None or first == f"error: {fact}"
    assert second == f"  next: {next_step}"


@pytest.mark.parametrize(
    "line", ["-o json rum", "rum -ojson", "--output=json rum", "run x -o json"]
)
def test_a_mistake_is_explained_in_json_even_before_the_option_was_reached(line: str) -> None:
    result = invoke(show, *line.split())

    assert result.exit_code == 2
    assert json.loads(result.stderr)["error"]["kind"] == "Usage"


@pytest.mark.parametrize("line", ["rum -- -o json", "rum -o xml", "rum -o"])
def test_what_is_no_form_of_output_does_not_change_the_form_of_errors(line: str) -> None:
    assert invoke(show, *line.split()).stderr.startswith("error: no such command 'rum'")


def test_a_group_without_a_verb_explains_itself() -> None:
    for line in ("", "group"):
        result = invoke(show, *line.split())

        assert result.exit_code == 0
        assert result.stdout == invoke(show, *line.split(), "-h").stdout
        assert "Commands:\n  run" in result.stdout


def test_help_has_examples_and_says_where_the_global_options_are() -> None:
    root = program(lambda _: None, examples=(Example("Do it", "cometmq run"),))

    text = invoke(root, "run", "--help").stdout

    assert "Examples:\n  # Do it\n  cometmq run\n" in text
    assert "-o, --output FORM" in text
    assert "Also --log-level, --log-format, --log-file, --debug: see 'cometmq --help'" in text
    assert "  --log-level LEVEL " in invoke(root, "--help").stdout


def log_something(_: Frame) -> None:
    logger = logs.get_logger("cometmq.test")
    logger.info("a detail")
    logger.warning("a warning")


def test_logs_go_to_standard_error_and_not_into_the_output() -> None:
    result = invoke(program(log_something), "run")

    assert result.stdout == ""
    assert result.stderr.endswith("WARNING cometmq.test a warning\n")
    assert "a detail" not in result.stderr


def test_a_server_may_log_more_than_a_tool_unless_the_user_says_otherwise() -> None:
    server = program(log_something, log_level=LogLevel.INFO)

    assert "a detail" in invoke(server, "run").stderr
    assert "a detail" not in invoke(server, "run", "--log-level", "error").stderr


def test_log_options_may_stand_after_the_command() -> None:
    result = invoke(program(log_something), "run", "--log-level=info", "--log-format", "json")

    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert [line["message"] for line in lines] == ["a detail", "a warning"]


def test_the_environment_sets_up_logs_and_flags_win() -> None:
    def logged(*arguments: str) -> str:
        return invoke(program(log_something), *arguments, COMETMQ_LOG_LEVEL="info").stderr

    assert "a detail" in logged("run")
    assert "a detail" not in logged("run", "--log-level=error")


def test_a_bad_variable_is_a_mistake_of_the_user() -> None:
    result = invoke(show, "run", COMETMQ_LOG_LEVEL="lots")

    assert result.exit_code == 2
    assert result.stderr.startswith("error: setting 'COMETMQ_LOG_LEVEL': 'lots' is none of: debug,")


def test_logging_is_set_up_only_when_a_command_runs() -> None:
    before = list(logging.getLogger("cometmq").handlers)

    invoke(show, "--help")

    assert logging.getLogger("cometmq").handlers == before


def test_a_lazy_command_is_described_in_the_table_as_in_its_own_help() -> None:
    groups: list[LazyGroup] = [app]

    for group in groups:
        for name, lazy in group.lazy.items():
            command = group.get_command(click.Context(group), name)
            assert command is not None
            assert command.name == name
            assert lazy.summary == (command.help or "").splitlines()[0]
            groups += [command] if isinstance(command, LazyGroup) else []
    assert len(groups) > 2


def test_a_lazy_command_is_not_imported_for_the_help() -> None:
    root = App(name="x", lazy={"gone": LazyCommand("cometmq.no_such_module", "Not there.")})

    assert "gone  Not there." in invoke(root, "--help").stdout
    assert invoke(root, "gone").stderr.startswith("error: unexpected ModuleNotFoundError")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("cometmq ver", "plain,version"), ("cometmq -o json decode pro", "plain,properties")],
)
def test_a_shell_can_complete_commands(typed: str, offered: str) -> None:
    words = typed.split()

    result = invoke(
        app,
        _COMETMQ_COMPLETE="bash_complete",
        COMP_WORDS=typed,
        COMP_CWORD=str(len(words) - 1),
    )

    assert result.stdout.splitlines() == [offered]


def test_no_summary_in_a_list_of_commands_is_cut_short() -> None:
    """On a terminal of 80 columns, beside a name of up to ten letters."""
    below_the_root = [command for _, command in commands(app)][1:]

    summaries = [command.get_short_help_str(limit=64) for command in below_the_root]

    assert [summary for summary in summaries if summary.endswith("...")] == []
