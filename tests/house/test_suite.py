"""The program that runs all tests tells at its end what failed and why."""

import re
import sys
from pathlib import Path

import pytest

from scripts import suite, tree
from scripts.suite import Part

FAILING_TESTS = """\
import pytest

def test_that_fails():
    assert 6 * 9 == 42, "not so"

@pytest.fixture
def broken():
    raise OSError("no such port\\\\nat all")

def test_that_cannot_begin(broken):
    pass

def test_that_passes():
    assert True
"""


def test_the_summary_names_each_failed_test_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test_file = tmp_path / "test_failing.py"
    test_file.write_text(FAILING_TESTS)
    conftest = tree.ROOT / "tests" / "conftest.py"
    (tmp_path / "conftest.py").write_text(conftest.read_text())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test_file)]

    status = suite.run([Part("broken", command, beside=True)])

    end = capsys.readouterr().out.split("--- minutes by area")[1]
    assert status == 1
    assert "test_that_fails (call)\n                AssertionError: not so" in end
    assert "test_that_cannot_begin (setup)\n                OSError: no such port" in end
    assert "test_that_passes" not in end
    assert end.endswith("parts: 0 passed, 1 failed\n")


def test_a_suite_that_passes_names_no_test(capsys: pytest.CaptureFixture[str]) -> None:
    status = suite.run([Part("fine", [sys.executable, "-c", "pass"])])

    assert status == 0
    assert capsys.readouterr().out.endswith("in all\nparts: 1 passed, 0 failed\n")


def test_parts_beside_each_other_share_no_temporary_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test_file = tmp_path / "test_folder.py"
    test_file.write_text("def test_folder(tmp_path): print('below', tmp_path.parents[2])")
    command = [sys.executable, "-m", "pytest", "-qs", "-p", "no:cacheprovider", str(test_file)]

    status = suite.run([Part(area, command, beside=True) for area in ("one", "other")])

    said = re.findall(r"below (.+)", capsys.readouterr().out)
    assert status == 0
    assert len(said) == len(set(said)) == 2
    assert not any(Path(folder).exists() for folder in said)
