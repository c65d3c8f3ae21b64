import os
import shutil
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


def test_the_option_for_a_context_is_completed(tmp_path: Path) -> None:
    frame = Frame(environment={"XDG_CONFIG_HOME": str(tmp_path)})
    entries = {name: ContextEntry(namesrv="h:1") for name in ("prod", "test")}
    write_contexts(contexts_path(frame.environment), Contexts(entries=entries))

    assert completed(frame, ["topic", "ls", "--context"], "p") == ["prod"]


def run_in(shell: str, script: str, home: Path) -> "subprocess.CompletedProcess[str]":
    """Run a script with our program on the path and nobody's settings."""
    program = home / "cometmq"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cometmq "$@"\n')
    program.chmod(0o755)
    own = {"HOME": str(home), "ZDOTDIR": str(home), "PATH": f"{home}:{os.environ['PATH']}"}
    bare = {"zsh": ["zsh", "-f"], "fish": ["fish", "--no-config"]}[shell]
    return subprocess.run(
        [*bare, "-c", script],
        env={**os.environ, **own},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
def test_fish_itself_completes_with_whole_explanations(tmp_path: Path) -> None:
    script = """cometmq completion fish | source
complete -C "cometmq top"
complete -C "cometmq topic d"
complete -C "cometmq topic ls -o j"
"""

    done = run_in("fish", script, tmp_path)

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "top\tWatch rates, lag, connections and disks.",
        "topic\tTopics: list, make, change them, look into...",
        "delete\tDelete topics with their messages.",
        "describe\tEverything about a topic.",
        "json",
    ]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh here")
def test_zsh_itself_completes_even_where_nothing_was_set_up_before(tmp_path: Path) -> None:
    """Outside its line editor zsh cannot offer anything, so what would be offered is printed."""
    script = """eval "$(cometmq completion zsh)"
print -- $_comps[cometmq]
_describe() { print -l -- ${(P)3} }
compadd() { print -l -- ${(P)5} }
ask() { words=("$@"); CURRENT=$#; _cometmq_completion }
ask cometmq top
ask cometmq topic d
ask cometmq topic ls -o j
"""

    done = run_in("zsh", script, tmp_path)

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "_cometmq_completion",
        "topic:Topics: list, make, change them, look into...",
        "top:Watch rates, lag, connections and disks.",
        "describe:Everything about a topic.",
        "delete:Delete topics with their messages.",
        "json",
    ]
