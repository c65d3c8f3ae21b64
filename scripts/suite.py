"""Runs the gates and the tests, in parts, and tells how long each part took.

``python -m scripts.suite fast|check|all``. Every part runs even when an earlier one failed; the
exit status is 0 only when all passed.

A failed test may be run once more, by itself and after everything else, when the machine has
nothing else to do: there are 50,000 of them, with real servers and clients on few cores. One that
passes then is named in the summary with what it said at first. ``suite_repeats`` says which.
"""

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, NamedTuple

from scripts import suite_repeats, tree
from scripts.suite_repeats import Failure
from tests import variants

PYTHON = sys.executable
UNIT_TESTS = ("tests/unit", "tests/broker", "tests/golden", "tests/property")
TESTS_ON_ALL_PYTHONS = ("tests/unit", "tests/golden", "tests/property")
WITHOUT_SLOW = ("-m", "not slow")
NEWER_PYTHONS = ("3.12", "3.13", "3.14")
# Where tests note their failures (tests/conftest.py), for the summary.
FAILURES_VARIABLE = "COMETMQ_FAILURES"
FAILURE_LINES_MAX = 60
# Where pytest makes the folders of tests; by default below one that all its runs share.
TEMPORARY_VARIABLE = "PYTEST_DEBUG_TEMPROOT"


class Part(NamedTuple):
    """One command with the area it belongs to in the summary.

    Parts ``beside`` each other run at the same time: they keep to one core, and time nothing.
    """

    area: str
    command: Sequence[str]
    environment: Mapping[str, str] = {}
    beside: bool = False
    # With the names of tests behind it, the command that runs these alone; empty if none may be.
    again: Sequence[str] = ()
    folder: Path = tree.ROOT

    def noting_failures(self, path: str) -> "Part":
        return self._replace(environment={**self.environment, FAILURES_VARIABLE: path})

    def in_folder(self, path: str) -> "Part":
        return self._replace(environment={**self.environment, TEMPORARY_VARIABLE: path})


class Outcome(NamedTuple):
    """How a part ended."""

    part: Part
    minutes: float
    status: int
    failures: Sequence[Failure] = ()
    # Of a part that passed all the same: tests that failed, and passed when they were repeated.
    unsteady: Sequence[Failure] = ()

    @property
    def is_passed(self) -> bool:
        return self.status == 0


def main() -> int:
    match sys.argv[1:]:
        case ["fast"]:
            parts = [Part("unit tests", pytest(*UNIT_TESTS, *WITHOUT_SLOW))]
        case ["check"]:
            parts = gates()
        case ["all"]:
            parts = everything()
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return run(parts)


def gates() -> list[Part]:
    tools = Path(PYTHON).parent
    return [
        Part("gates", [str(tools / "ruff"), "check", "--quiet", "."]),
        Part("gates", [str(tools / "ruff"), "format", "--check", "--quiet", "."]),
        Part("gates", [str(tools / "mypy")]),
        Part("gates", [str(tools / "lint-imports")]),
        Part("gates", [PYTHON, "-m", "scripts.sizes"]),
        Part("gates", pytest("tests/house")),
    ]


def everything() -> list[Part]:
    one_of_each = {} if is_full() else {variants.VARIABLE: variants.ONE}
    return [
        *gates(),
        unit_part("unit tests, compiled core"),
        unit_part("unit tests, plain core", environment={"COMETMQ_PURE": "1"}, slow=is_full()),
        *newer_python_parts(),
        Part("crash tests", pytest("tests/crash")),
        Part("packaging", pytest("tests/packaging")),
        Part("interop", pytest("tests/interop"), one_of_each, again=pytest()),
        Part("spark", pytest("tests/spark"), again=pytest()),
    ]


def unit_part(
    area: str, *, slow: bool = True, environment: Mapping[str, str] | None = None
) -> Part:
    expected = {"COMETMQ_EXPECT_CORE": "plain" if environment else "compiled"}
    selection = () if slow else WITHOUT_SLOW
    command = pytest(*UNIT_TESTS, *selection)
    return Part(area, command, {**expected, **(environment or {})}, again=pytest())


def is_full() -> bool:
    """Whether everything is to be done.

    Otherwise slow tests run once, in the compiled core, and interop tests with one of the clients
    and releases that each is for.
    """
    return os.environ.get("COMETMQ_ROUNDS") == "full"


def pytest(*arguments: str) -> list[str]:
    return [PYTHON, "-m", "pytest", "-q", *arguments]


def newer_python_parts() -> list[Part]:
    parts = []
    for version in NEWER_PYTHONS:
        python = find_python(version)
        if python is None:
            print(f"unit tests on Python {version}: skipped, no such Python found", flush=True)
            continue
        selection = () if is_full() else WITHOUT_SLOW
        again = ["scripts/test_on.sh", python, version]
        command = [*again, *TESTS_ON_ALL_PYTHONS, *selection]
        parts.append(Part(f"Python {version}", command, beside=True, again=again))
    return parts


def find_python(version: str) -> str | None:
    """A working interpreter of that version: on the path, or among pyenv's."""
    candidates = [shutil.which(f"python{version}")]
    if pyenv := shutil.which("pyenv"):
        listed = output_of([pyenv, "versions", "--bare"]).split()
        names = [name for name in listed if name.startswith(version + ".")]
        prefixes = [output_of([pyenv, "prefix", name]).strip() for name in names]
        candidates += [f"{prefix}/bin/python{version}" for prefix in prefixes if prefix]
    works = f"import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    for candidate in candidates:
        if candidate and succeeds([candidate, "-c", works]):
            return candidate
    return None


def output_of(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def run(parts: Sequence[Part]) -> int:
    began = time.monotonic()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="suite-failures-") as folder:
        noting = [part.noting_failures(f"{folder}/{n}") for n, part in enumerate(parts)]
        for is_beside, group in itertools.groupby(noting, key=lambda part: part.beside):
            if is_beside:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    outcomes += pool.map(run_beside, group)
            else:
                outcomes += map(run_alone, group)
        if suite_repeats.is_allowed([outcome.failures for outcome in outcomes]):
            outcomes = [repeated(outcome) for outcome in outcomes]
    return summary(outcomes, (time.monotonic() - began) / 60)


def repeated(outcome: Outcome) -> Outcome:
    """The outcome after its failed tests have been run once more, by themselves."""
    part, names = outcome.part, list(dict.fromkeys(f.test for f in outcome.failures))
    may_be = suite_repeats.may_be_repeated(outcome.status, outcome.failures)
    if not (part.again and names and may_be):
        return outcome
    environment = {**part.environment, variants.VARIABLE: variants.ALL}  # those that are named
    again = run_alone(
        part._replace(
            command=[*part.again, *names], environment=environment, again=(), beside=False
        )
    )
    minutes = outcome.minutes + again.minutes
    if again.is_passed:
        return outcome._replace(minutes=minutes, status=0, failures=(), unsteady=outcome.failures)
    return outcome._replace(minutes=minutes)


def run_alone(part: Part) -> Outcome:
    print(heading(part), flush=True)
    return outcome_of(part, None)


def run_beside(part: Part) -> Outcome:
    """What it prints is shown when it has ended, so that two do not talk at once.

    Each has temporary folders of its own: two runs of pytest that tidy up the same old ones at the
    same time fail.
    """
    own_folder = tempfile.TemporaryDirectory(prefix="suite-", ignore_cleanup_errors=True)
    with own_folder as folder, tempfile.TemporaryFile() as output:
        outcome = outcome_of(part.in_folder(folder), output)
        output.seek(0)
        text = output.read().decode(errors="replace")
    print(f"{heading(part)}\n{text}", end="", flush=True)
    return outcome


def heading(part: Part) -> str:
    return f"\n--- {part.area}: {' '.join(Path(word).name for word in part.command)}"


def outcome_of(part: Part, output: IO[bytes] | None) -> Outcome:
    began = time.monotonic()
    environment = {**os.environ, **part.environment}
    done = subprocess.run(
        part.command,
        cwd=part.folder,
        env=environment,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        check=False,
    )
    failures = suite_repeats.noted(Path(environment.get(FAILURES_VARIABLE, os.devnull)))
    return Outcome(part, (time.monotonic() - began) / 60, done.returncode, failures)


def summary(outcomes: Sequence[Outcome], minutes_in_all: float) -> int:
    minutes: dict[str, float] = {}
    for outcome in outcomes:
        area = outcome.part.area
        minutes[area] = minutes.get(area, 0) + outcome.minutes
    print("\n--- minutes by area")
    for area, spent in minutes.items():
        print(f"{spent:6.2f}  {area}")
    print(f"{minutes_in_all:6.2f}  in all")
    for outcome in outcomes:
        if outcome.unsteady:
            print(f"UNSTEADY  {outcome.part.area}: failed, and passed when repeated by itself")
            tell(outcome.unsteady)
    failed = [outcome for outcome in outcomes if not outcome.is_passed]
    for outcome in failed:
        print(f"FAILED  {outcome.part.area}: {' '.join(outcome.part.command[-2:])}")
        tell(outcome.failures)
    print(f"parts: {len(outcomes) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


def tell(failures: Sequence[Failure]) -> None:
    lines = [line for failure in failures for line in failure.lines]
    for line in lines[:FAILURE_LINES_MAX]:
        print(f"        {line}")


if __name__ == "__main__":
    sys.exit(main())
