import click
import pytest
from click.testing import CliRunner

from cometmq.cli.app import app
from cometmq.cli.problems import ExitCode, Problem, problem_of
from cometmq.errors import (
    Ambiguous,
    CometError,
    InvalidArgument,
    MissingDependency,
    NotFound,
    Refused,
    RemoteProtocolError,
    RequestTimeout,
    SettingsError,
    Unreachable,
)


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (CometError("x"), ExitCode.FAILED),
        (RemoteProtocolError("x"), ExitCode.FAILED),
        (MissingDependency("lz4", "compress", "x"), ExitCode.FAILED),
        (SettingsError("k", "x"), ExitCode.USAGE),
        (NotFound("topic", "x"), ExitCode.NOT_FOUND),
        (Unreachable("h:1", "x"), ExitCode.UNREACHABLE),
        (click.UsageError("x"), ExitCode.USAGE),
        (click.ClickException("x"), ExitCode.FAILED),
        (FileNotFoundError(2, "No such file", "x"), ExitCode.NOT_FOUND),
        (ConnectionRefusedError(111, "Connection refused"), ExitCode.UNREACHABLE),
        (TimeoutError(), ExitCode.UNREACHABLE),
        (PermissionError(13, "Permission denied", "x"), ExitCode.FAILED),
        (KeyError("x"), ExitCode.FAILED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_every_kind_of_error_has_its_exit_code(error: Exception, exit_code: ExitCode) -> None:
    assert problem_of(error).exit_code is exit_code


def test_the_text_is_the_fact_and_then_the_next_step() -> None:
    problem = problem_of(NotFound("topic", "orders", "create it"))

    assert problem.as_text() == "error: no such topic: 'orders'\n  next: create it"
    assert Problem("fact", "", "Kind", ExitCode.FAILED).as_text() == "error: fact"


def test_a_peers_control_characters_do_not_reach_the_terminal() -> None:
    problem = problem_of(CometError("remark: a\x1b[2J\nerror: forged"))

    assert problem.as_text() == r"error: remark: a\x1b[2J\nerror: forged"


def test_the_record_has_the_same_facts() -> None:
    assert problem_of(NotFound("topic", "orders")).as_record() == {
        "error": {
            "fact": "no such topic: 'orders'",
            "next": "see 'cometmq topic ls --all'",
            "kind": "NotFound",
            "exit_code": 3,
        }
    }


def test_an_error_of_the_system_names_the_file() -> None:
    assert problem_of(FileNotFoundError(2, "gone", "/x")).fact == "no such file: '/x'"
    assert problem_of(PermissionError(13, "denied", "/x")).fact == "'/x': denied"
    assert problem_of(OSError(28, "full")).fact == "full"
    assert problem_of(TimeoutError()).fact == "TimeoutError"


def test_what_nobody_planned_for_is_one_line_and_a_way_to_the_traceback() -> None:
    problem = problem_of(KeyError("topic"))

    assert problem.fact == "unexpected KeyError: 'topic'"
    assert "--debug" in problem.next_step
    assert problem_of(RuntimeError()).fact == "unexpected RuntimeError"


@pytest.mark.parametrize(
    ("message", "fact"),
    [("No such option.", "no such option"), ("DATA is odd", "DATA is odd"), ("A b", "a b")],
)
def test_the_parsers_sentences_take_our_form(message: str, fact: str) -> None:
    assert problem_of(click.UsageError(message)).fact == fact


def test_the_choices_of_a_missing_argument_stand_on_its_line() -> None:
    result = CliRunner().invoke(app, ["completion"], prog_name="cometmq")

    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "error: missing argument 'SHELL'. Choose from: bash, zsh, fish",
        "  next: see 'cometmq completion --help'",
    ]


def test_who_gets_no_answer_is_told_where_to_look() -> None:
    problem = problem_of(RequestTimeout("10.0.1.1:10911", 5_000))

    assert problem.as_text() == (
        "error: no answer from 10.0.1.1:10911 within 5000 ms\n"
        "  next: is it well? see 'cometmq status'"
    )


def test_who_has_to_choose_is_told_the_option_for_it() -> None:
    problem = problem_of(Ambiguous("broker", ("broker-a", "broker-b")))

    assert problem.exit_code is ExitCode.USAGE
    assert problem.as_text() == (
        "error: there are 2 brokers: broker-a, broker-b\n"
        "  next: say which broker is meant, with --broker"
    )


def test_who_cannot_reach_a_broker_is_told_where_to_look() -> None:
    assert problem_of(Unreachable("h:1", "refused")).next_step == (
        "is it running? see 'cometmq status'"
    )


@pytest.mark.parametrize(
    ("advice", "words"),
    [
        ("use keys= for it", "use --key for it"),
        ("use delay_level= for it", "use --delay-level for it"),
        ("use wait_store= for it", "choose another name"),
        (
            "send less, or raise body_bytes_max here and maxMessageSize of the brokers",
            "send less: the command line sends no more in one message",
        ),
        ("choose a shorter name", "choose a shorter name"),
    ],
)
def test_advice_to_programs_is_put_in_words_of_the_command_line(advice: str, words: str) -> None:
    assert problem_of(InvalidArgument("x", "no", advice)).next_step == words


def test_an_option_is_only_like_another_by_its_letters() -> None:
    far = CliRunner().invoke(app, ["dlq", "replay", "g", "--yes"], prog_name="cometmq")
    near = CliRunner().invoke(app, ["topic", "ls", "--al"], prog_name="cometmq")

    assert far.stderr.splitlines() == [
        "error: no such option '--yes'",
        "  next: see 'cometmq dlq replay --help'",
    ]
    assert "did you mean '--all'?" in near.stderr


def test_a_setting_that_is_not_changed_from_afar_is_set_where_the_server_is_started() -> None:
    remark = "Can not update config in black list."

    problem = problem_of(Refused("a:1", "UPDATE_BROKER_CONFIG", 16, remark))

    assert problem.next_step == "set it where the server is started, by an option or in its file"
