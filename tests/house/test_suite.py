"""The program that runs all tests: what it tells at its end, and what it runs once more."""

import re
import sys
from pathlib import Path

import pytest

from scripts import suite, suite_repeats, tree
from scripts.suite import Part
from scripts.suite_repeats import Failure

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


TEST_FILE = "tests/interop/test_file.py"

UNSTEADY_TEST = """\
from pathlib import Path

def test_that_fails_{times}_times():
    runs = Path(__file__).with_suffix(".{times}.runs")
    count = len(runs.read_text()) if runs.exists() else 0
    runs.write_text("x" * (count + 1))
    assert count >= {times}, "the machine was busy"
"""


def part_with(folder: Path, *tests: str, beside: bool = False) -> Part:
    """A part that runs these tests, and may run them again."""
    file = folder / TEST_FILE
    file.parent.mkdir(parents=True)
    file.write_text("\n\n".join(tests))
    (folder / "conftest.py").write_text((tree.ROOT / "tests" / "conftest.py").read_text())
    again = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    return Part("some tests", [*again, TEST_FILE], beside=beside, again=again, folder=folder)


def runs_of(folder: Path, times: int) -> int:
    return len((folder / TEST_FILE).with_suffix(f".{times}.runs").read_text())


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


@pytest.mark.parametrize("beside", [False, True])
def test_a_test_that_passes_when_it_is_repeated_is_named_and_fails_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], beside: bool
) -> None:
    status = suite.run([part_with(tmp_path, UNSTEADY_TEST.format(times=1), beside=beside)])

    end = capsys.readouterr().out.split("--- minutes by area")[1]
    assert status == 0
    assert "UNSTEADY  some tests: failed, and passed when repeated by itself\n" in end
    assert "test_that_fails_1_times (call)\n" in end
    assert "the machine was busy" in end
    assert runs_of(tmp_path, 1) == 2
    assert end.endswith("parts: 1 passed, 0 failed\n")


def test_a_test_that_fails_again_has_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = suite.run([part_with(tmp_path, UNSTEADY_TEST.format(times=2))])

    end = capsys.readouterr().out.split("--- minutes by area")[1]
    assert status == 1
    assert "UNSTEADY" not in end
    assert "test_that_fails_2_times (call)\n" in end
    assert runs_of(tmp_path, 2) == 2


def test_when_many_tests_fail_none_is_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = range(1, suite_repeats.REPEATED_MAX + 2)

    status = suite.run([part_with(tmp_path, *(UNSTEADY_TEST.format(times=n) for n in times))])

    assert status == 1
    assert "UNSTEADY" not in capsys.readouterr().out
    assert {runs_of(tmp_path, n) for n in times} == {1}


@pytest.mark.parametrize("name", [*suite_repeats.REPEATABLE, *suite_repeats.NEVER_REPEATED])
def test_every_place_that_is_named_is_there(name: str) -> None:
    assert (tree.ROOT / name).exists()


@pytest.mark.parametrize(
    "name",
    [
        "tests/crash/test_kills.py",
        "tests/golden/test_golden_store.py",
        "tests/property/test_store_model.py",
        "tests/spark/test_exactly_once.py",
        "tests/unit/store/test_recovery.py",
        "tests/unit/test_fuzz_targets.py",
    ],
)
def test_what_does_not_depend_on_the_machine_is_never_repeated(name: str) -> None:
    assert (tree.ROOT / name).exists()
    other = Failure("tests/interop/test_x.py::test_y", ["y"])

    assert suite_repeats.may_be_repeated(1, [other])
    assert not suite_repeats.may_be_repeated(1, [other, Failure(f"{name}::test_x", ["x"])])


def test_a_part_that_broke_off_is_not_repeated() -> None:
    assert not suite_repeats.may_be_repeated(2, [Failure("tests/interop/test_x.py::test_y", ["y"])])
