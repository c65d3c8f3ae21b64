"""Runs the gates and the tests, in parts, and tells how long each part took.

``python -m scripts.suite fast|check|all``. Every part runs even when an earlier one failed; the
exit status is 0 only when all passed.
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

from scripts import tree

PYTHON = sys.executable
UNIT_TESTS = ("tests/unit", "tests/broker", "tests/golden", "tests/property")
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

    def noting_failures(self, path: str) -> "Part":
        return self._replace(environment={**self.environment, FAILURES_VARIABLE: path})

    def in_folder(self, path: str) -> "Part":
        return self._replace(environment={**self.environment, TEMPORARY_VARIABLE: path})


class Outcome(NamedTuple):
    """How a part ended."""

    part: Part
    minutes: float
    is_passed: bool


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
    return [
        *gates(),
        unit_part("unit tests, compiled core"),
        unit_part("unit tests, plain core", environment={"COMETMQ_PURE": "1"}, slow=is_full()),
        *newer_python_parts(),
        Part("crash tests", pytest("tests/crash")),
        Part("packaging", pytest("tests/packaging")),
        Part("interop", pytest("tests/interop")),
        Part("spark", pytest("tests/spark")),
    ]


def unit_part(
    area: str, *, slow: bool = True, environment: Mapping[str, str] | None = None
) -> Part:
    expected = {"COMETMQ_EXPECT_CORE": "plain" if environment else "compiled"}
    selection = () if slow else WITHOUT_SLOW
    return Part(area, pytest(*UNIT_TESTS, *selection), {**expected, **(environment or {})})


def is_full() -> bool:
    """Whether everything is to be done; otherwise slow tests run once, in the compiled core."""
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
        command = ["scripts/test_on.sh", python, version, *selection]
        parts.append(Part(f"Python {version}", command, beside=True))
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
    with tempfile.NamedTemporaryFile("r", encoding="utf-8", prefix="failures-") as failures:
        noting = [part.noting_failures(failures.name) for part in parts]
        for is_beside, group in itertools.groupby(noting, key=lambda part: part.beside):
            if is_beside:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    outcomes += pool.map(run_beside, group)
            else:
                outcomes += map(run_alone, group)
        return summary(outcomes, (time.monotonic() - began) / 60, failures.read().splitlines())


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
        cwd=tree.ROOT,
        env=environment,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        check=False,
    )
    return Outcome(part, (time.monotonic() - began) / 60, done.returncode == 0)


def summary(
    outcomes: Sequence[Outcome], minutes_in_all: float, failures: Sequence[str] = ()
) -> int:
    minutes: dict[str, float] = {}
    for part, spent, _ in outcomes:
        minutes[part.area] = minutes.get(part.area, 0) + spent
    print("\n--- minutes by area")
    for area, spent in minutes.items():
        print(f"{spent:6.2f}  {area}")
    print(f"{minutes_in_all:6.2f}  in all")
    failed = [outcome.part for outcome in outcomes if not outcome.is_passed]
    for part in failed:
        print(f"FAILED  {part.area}: {' '.join(part.command[-2:])}")
    for line in failures[:FAILURE_LINES_MAX]:
        print(f"        {line}")
    print(f"parts: {len(outcomes) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
