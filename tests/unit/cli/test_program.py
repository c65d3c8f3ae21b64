"""The program as its users meet it: a process with streams and an exit code."""

import json
import os
import pty
import resource
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

pytestmark = pytest.mark.slow

NOISY_PROGRAM = """
import click
from cometmq.cli.app import App
from cometmq.cli.command import Command
from cometmq.logs import get_logger

@click.command("run", cls=Command)
def run():
    get_logger("cometmq.test").warning("topic=%s", "orders", extra={"queue": 3})

app = App(name="cometmq", lazy={}, commands={"run": run})
app.main()
"""


def run(
    *arguments: str,
    python: tuple[str, ...] = ("-m", "cometmq"),
    environment: dict[str, str] | None = None,
    stdout: int | IO[Any] = subprocess.PIPE,
    open_files: int | None = None,
) -> "subprocess.CompletedProcess[str]":
    def limit() -> None:
        if open_files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

    return subprocess.run(
        [sys.executable, *python, *arguments],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=limit,
    )


def test_the_short_version_costs_no_import_that_it_does_not_need() -> None:
    code = (
        "import sys\n"
        "from cometmq.cli import main\n"
        "sys.argv = ['cometmq', '--version']\n"
        "try:\n    main()\n"
        "except SystemExit as leaving:\n    assert not leaving.code\n"
        "print(*sys.modules)"
    )

    result = run(python=("-c", code))

    version, loaded = result.stdout.splitlines()
    modules = set(loaded.split())
    assert version.startswith("cometmq ")
    assert "click" in modules
    assert not modules & {"msgspec", "uvloop", "asyncio", "lz4", "zstandard", "cometmq.codec"}
    assert not [name for name in modules if name.startswith("cometmq.cli.commands")]


def test_a_result_goes_to_standard_output_and_the_code_is_zero() -> None:
    result = run("version", "-o", "json")

    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout)["version"]


def test_a_mistake_goes_to_standard_error_and_the_code_is_two() -> None:
    result = run("vresion")

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "error: no such command 'vresion'\n  next: did you mean 'version'? see 'cometmq --help'\n"
    )


def test_a_broken_installation_and_a_low_limit_make_the_doctor_fail(tmp_path: Path) -> None:
    (tmp_path / "uvloop.py").write_text("raise ImportError('planted')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {"PYTHONPATH": path, "COMETMQ_PURE": "1"}

    result = run("doctor", "-o", "json", environment=environment, open_files=100)

    status = {check["check"]: check["status"] for check in json.loads(result.stdout)}
    assert result.returncode == 1
    assert (status["uvloop"], status["open files"]) == ("fail", "fail")
    assert (status["python"], status["core"]) == ("ok", "warn")


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """What the program writes when its standard output is a terminal."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "wb") as terminal:
        run(*arguments, stdout=terminal, environment={"TERM": "xterm", **environment})
        # What was written waits in the terminal's buffer; it is gone once both ends are closed.
        written = os.read(ours, 65536)
    os.close(ours)
    return written.decode()


def test_colours_are_for_terminals_and_for_those_who_want_them() -> None:
    coloured = on_a_terminal("doctor")
    plain = on_a_terminal("doctor", NO_COLOR="1")

    assert "\x1b[32mok\x1b[0m" in coloured
    assert "\x1b" not in plain
    assert "ok" in plain
    assert "\x1b" not in run("doctor").stdout


def test_a_reader_that_went_away_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed_pipe:
        result = run("version", stdout=closed_pipe)

    assert (result.returncode, result.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        result = run("version", stdout=full)

    assert result.returncode == 1
    assert result.stderr == "error: cannot write the output: No space left on device\n"


def test_logs_go_to_a_file_in_the_form_that_was_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "log"
    options = ("--log-file", str(file), "--log-format", "json")

    result = run("run", *options, python=("-c", NOISY_PROGRAM))

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    logged = json.loads(file.read_text())
    assert (logged["message"], logged["queue"]) == ("topic=orders", 3)


def test_logs_go_to_standard_error_otherwise() -> None:
    result = run("run", python=("-c", NOISY_PROGRAM))

    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr.endswith("WARNING cometmq.test topic=orders queue=3\n")
