"""The reference pages say what the program says, and their examples work."""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from cometmq.cli.app import app
from cometmq.cli.problems import ExitCode
from scripts import cli_reference, settings_reference
from scripts.cli_reference import commands
from tests.unit.store.raw_store import RawStore

ROOT = Path(__file__).parents[3]


def test_the_settings_page_is_current() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")

    assert page == settings_reference.page(), "run: python -m scripts.settings_reference"


def test_every_settings_class_is_on_the_settings_page() -> None:
    sources = (ROOT / "src/cometmq").rglob("*.py")
    defined = {
        name
        for source in sources
        for name in re.findall(r"^class (\w+)\(Settings\)", source.read_text(), re.MULTILINE)
    }

    listed = {cls.__name__ for _, cls in settings_reference.COMPONENTS}

    assert defined == listed, "add the class to COMPONENTS in scripts/settings_reference.py"


def test_the_command_page_is_current() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")

    assert page == cli_reference.updated(page), "run: python -m scripts.cli_reference"


def test_the_command_page_names_every_exit_code() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")

    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)]

    assert codes == [code.value for code in ExitCode]


# Those that need a cluster are run by tests/interop/test_cli_examples.py.
EXAMPLES = [
    example
    for _, command in commands(app)
    for example in getattr(command, "examples", ())
    if not example.needs_cluster
]
IN_A_SHELL = [example for example in EXAMPLES if set("|<>&;~") & set(example.line)]


def test_every_command_has_examples() -> None:
    assert [path for path, command in commands(app) if not getattr(command, "examples", ())] == []


def test_an_example_works_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for example in EXAMPLES:
        if example not in IN_A_SHELL and not example.stays_up:
            program, *arguments = shlex.split(example.line)
            # A cluster that 'context' was told of is not there for 'doctor'.
            monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / arguments[0]))
            result = CliRunner().invoke(app, arguments, prog_name=program)

            assert (result.exit_code, result.stderr) == (0, ""), example
            assert result.stdout, example


@pytest.mark.slow
def test_an_example_that_stays_up_says_that_it_listens_and_ends_when_told(tmp_path: Path) -> None:
    any_port = {"COMETMQ_LISTEN_PORT": "0", "COMETMQ_NAMESRV_PORT": "0"}
    for line in sorted({example.line for example in EXAMPLES if example.stays_up}):
        _, *arguments = shlex.split(line)
        log = tmp_path / "log"
        with log.open("wb") as output:
            server = subprocess.Popen(
                [sys.executable, "-m", "cometmq", *arguments],
                env={**os.environ, "HOME": str(tmp_path), **any_port},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            deadline = time.monotonic() + 20
            while "listens on" not in log.read_text() and server.poll() is None:
                assert time.monotonic() < deadline, line
                time.sleep(0.02)
        finally:
            server.terminate()

        assert server.wait(20) == 0, log.read_text()


@pytest.mark.slow
def test_an_example_for_the_shell_works_as_it_stands(tmp_path: Path) -> None:
    program = tmp_path / "cometmq"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cometmq "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    own = {"PATH": path, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    environment = {**os.environ, **own}
    store = RawStore(tmp_path / ".local/share/cometmq/store")
    store.put("orders", 0, b"value", KEYS="k")
    store.write()

    for example in IN_A_SHELL:
        result = subprocess.run(
            ["sh", "-c", example.line], env=environment, capture_output=True, check=False, text=True
        )

        assert (result.returncode, result.stderr) == (0, ""), example
        assert result.stdout, example
