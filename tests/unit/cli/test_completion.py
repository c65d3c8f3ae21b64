import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from cometmq.cli.app import App, app
from cometmq.cli.completion import complete_groups, complete_topics
from cometmq.cli.contexts import ContextEntry, Contexts, contexts_path, write_contexts
from cometmq.cli.frame import Frame


def completed(frame: Frame, line: list[str], typed: str) -> list[str]:
    shell = ShellComplete(app, {"obj": frame}, "cometmq", "_COMETMQ_COMPLETE")
    return [item.value for item in shell.get_completions(line, typed)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell_asks_this_program(shell: str) -> None:
    result = CliRunner().invoke(app, ["completion", shell])

    assert result.exit_code == 0
    assert f"_COMETMQ_COMPLETE={shell}_complete" in result.stdout


def test_another_shell_is_a_mistake() -> None:
    assert CliRunner().invoke(app, ["completion", "cmd"]).exit_code == 2


def test_commands_verbs_and_options_are_completed() -> None:
    frame = Frame(environment={})

    assert "topic" in completed(frame, [], "to")
    assert completed(frame, ["topic"], "de") == ["describe", "delete"]
    assert "--to-earliest" in completed(frame, ["group", "reset", "g"], "--to")


def test_contexts_are_completed(tmp_path: Path) -> None:
    frame = Frame(environment={"XDG_CONFIG_HOME": str(tmp_path)})
    entries = {name: ContextEntry(namesrv="h:1") for name in ("prod", "preview", "test")}
    write_contexts(contexts_path(frame.environment), Contexts(entries=entries))

    assert completed(frame, ["context", "use"], "pr") == ["prod", "preview"]
    contexts_path(frame.environment).write_text("broken = ")
    assert completed(frame, ["context", "use"], "pr") == []


def test_a_cluster_that_is_not_there_has_no_names(unused_port: Callable[[], int]) -> None:
    frame = Frame(environment={"HOME": "/none"})
    line = ["topic", "describe", "--namesrv", f"127.0.0.1:{unused_port()}"]

    assert completed(frame, line, "") == []
    assert frame.cluster_flags["namesrv"] == line[-1]


def test_names_without_a_frame_are_none() -> None:
    context = click.Context(app)

    assert complete_topics(context, click.Argument(["topic"]), "") == []
    assert complete_groups(context, click.Argument(["group"]), "") == []


@pytest.mark.slow
def test_bash_takes_the_script(tmp_path: Path) -> None:
    script = CliRunner().invoke(app, ["completion", "bash"]).stdout
    file = tmp_path / "completion.bash"
    file.write_text(script)
    program = tmp_path / "cometmq"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cometmq "$@"\n')
    program.chmod(0o755)
    code = (
        f'source "{file}"; PATH="{tmp_path}:$PATH"; COMP_WORDS=(cometmq topic desc); COMP_CWORD=2;'
        " _cometmq_completion cometmq; echo ${COMPREPLY[@]}"
    )

    result = subprocess.run(
        ["bash", "--norc", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )

    assert (result.stdout, result.stderr) == ("describe\n", "")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug")])
def test_a_line_that_is_being_typed_is_no_place_for_complaints(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setenv("_COMETMQ_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "cometmq to")
    monkeypatch.setenv("COMP_CWORD", "1")
    monkeypatch.setattr(App, "list_commands", fail)

    with pytest.raises(SystemExit) as ended:
        app.main([], "cometmq")

    assert ended.value.code == 1
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_bash_itself_completes_commands_options_and_their_values(tmp_path: Path) -> None:
    """The script is evaluated as ~/.bashrc would, and asked as the Tab key asks."""
    program = tmp_path / "cometmq"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cometmq "$@"\n')
    program.chmod(0o755)
    script = """eval "$(cometmq completion bash)"
complete -p cometmq >&2
ask() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _cometmq_completion cometmq
    echo "${COMPREPLY[*]}"
}
ask cometmq dl
ask cometmq topic d
ask cometmq group reset g1 --to-
ask cometmq topic ls -o ""
"""
    path = f"{tmp_path}:{os.environ['PATH']}"

    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.stderr == "complete -o nosort -F _cometmq_completion cometmq\n"
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["dlq"],
        ["describe", "delete"],
        ["--to-earliest", "--to-latest", "--to-time", "--to-offset"],
        ["table", "json", "yaml", "plain"],
    ]
