import io
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner

from cometmq.cli.app import App
from cometmq.cli.command import Command
from cometmq.cli.confirm import confirm, destroying
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.problems import ExitCode, Misuse, problem_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Terminal]:
    """``terminal("y\\n")``: somebody is there and will answer; what is asked is returned."""

    def sit_down(answer: str) -> Terminal:
        asked = Terminal()
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        monkeypatch.setattr("sys.stderr", asked)
        return asked

    return sit_down


def test_yes_is_not_asked_again() -> None:
    confirm(Frame(environment={}), "delete it", is_sure=True)


def test_without_a_terminal_nothing_is_done_and_the_way_out_is_named() -> None:
    with pytest.raises(Misuse) as caught:
        confirm(Frame(environment={}), "delete topic 'orders'", is_sure=False)

    problem = problem_of(caught.value)
    assert problem.exit_code is ExitCode.USAGE
    assert "delete topic 'orders'" in problem.fact
    assert problem.next_step == "add --yes to do it"


def test_who_says_yes_goes_on(terminal: Callable[[str], Terminal]) -> None:
    asked = terminal("y\n")

    confirm(Frame(environment={"NO_COLOR": "1"}), "delete it", is_sure=False)

    assert asked.getvalue().startswith("? delete it [y/N]: ")


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_who_does_not_say_yes_has_changed_nothing(
    answer: str, terminal: Callable[[str], Terminal]
) -> None:
    terminal(answer)

    with pytest.raises(click.ClickException, match="nothing was changed"):
        confirm(Frame(environment={}), "delete it", is_sure=False)


def test_a_command_that_destroys_has_both_options() -> None:
    @click.command("burn", cls=Command)
    @destroying
    @pass_frame
    def burn(_: Frame, /, is_dry_run: bool, is_sure: bool) -> None:
        click.echo(f"{is_dry_run} {is_sure}")

    app = App(name="cometmq", lazy={}, commands={"burn": burn})

    assert CliRunner().invoke(app, ["burn"]).output == "False False\n"
    assert CliRunner().invoke(app, ["burn", "--yes"]).output == "False True\n"
    assert CliRunner().invoke(app, ["burn", "--dry-run"]).output == "True False\n"
