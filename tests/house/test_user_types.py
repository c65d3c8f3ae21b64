"""What users write is checked by the checkers they use, in strict mode, as in a project of theirs.

``tests/typing/user_code.py`` is copied into an empty folder, where only the installed package is
found, and none of our own settings.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from scripts import tree

SOURCE = tree.ROOT / "tests" / "typing" / "user_code.py"
SECONDS_MAX = 110
WRONG = """\
from cometmq import Producer


def wrong(producer: Producer) -> None:
    producer.send(7, b"")
    producer.send("orders", b"", no_such_option=1)
"""
"""What each checker must complain of, twice: else it sees nothing at all."""

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(SOURCE, tmp_path / "good.py")
    (tmp_path / "bad.py").write_text(WRONG)
    return tmp_path


def test_mypy_complains_of_wrong_code_only(project: Path) -> None:
    cache = tree.ROOT / ".mypy_cache" / "user-code"
    options = ("--strict", "--config-file=", f"--cache-dir={cache}", "--no-error-summary")

    printed = run(project, sys.executable, "-m", "mypy", *options, "good.py", "bad.py")

    errors = [line for line in printed if ": note: " not in line]
    assert [line.split(":")[:2] for line in errors] == [["bad.py", "5"], ["bad.py", "6"]], printed
    assert errors[0].endswith("[arg-type]")
    assert "no_such_option" in errors[1]


def test_pyright_complains_of_wrong_code_only(project: Path) -> None:
    settings = {"typeCheckingMode": "strict", "include": ["good.py", "bad.py"]}
    (project / "pyrightconfig.json").write_text(json.dumps(settings))

    printed = run(project, *pyright(), "-p", str(project), "--pythonpath", sys.executable)

    errors = [line for line in printed if " - error: " in line]
    assert ["bad.py:5:" in errors[0], "bad.py:6:" in errors[-1]] == [True, True], printed
    assert len(errors) == 2, printed
    assert "no_such_option" in errors[1]


def pyright() -> tuple[str, str]:
    """Its program itself, not the wrapper, which may ask the network for another release."""
    found = importlib.util.find_spec("pyright")
    node = shutil.which("node")
    if found is None or found.origin is None:
        lack("checking types with pyright needs the package pyright: make setup")
    if node is None:
        lack("checking types with pyright needs Node 18 or later: install it")
    return node, str(Path(found.origin).parent / "dist" / "index.js")


def lack(reason: str) -> NoReturn:
    if os.environ.get("COMETMQ_REQUIRE_ALL") == "1":
        pytest.fail(f"{reason} (COMETMQ_REQUIRE_ALL=1 turns this skip into a failure)")
    pytest.skip(reason)


def run(folder: Path, *command: str) -> list[str]:
    """The lines that a checker prints."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    return (done.stdout + done.stderr).splitlines()
