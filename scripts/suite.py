"""Runs the gates and the tests, in parts, and tells how long each part took.

``python -m scripts.suite fast|check|all``. Every part runs even when an earlier one failed; the
exit status is 0 only when all passed.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts import tree

PYTHON = sys.executable
UNIT_TESTS = ("tests/unit", "tests/broker", "tests/golden", "tests/property")
WITHOUT_SLOW = ("-m", "not slow")
NEWER_PYTHONS = ("3.12", "3.13", "3.14")


class Part(NamedTuple):
    """One command with the area it belongs to in the summary."""

    area: str
    command: Sequence[str]
    environment: Mapping[str, str] = {}


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
        parts.append(Part(f"Python {version}", ["scripts/test_on.sh", python, version, *selection]))
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
    minutes: dict[str, float] = {}
    failed: list[str] = []
    for part in parts:
        print(
            f"\n--- {part.area}: {' '.join(Path(word).name for word in part.command)}", flush=True
        )
        began = time.monotonic()
        environment = {**os.environ, **part.environment}
        if subprocess.run(part.command, cwd=tree.ROOT, env=environment, check=False).returncode:
            failed.append(f"{part.area}: {' '.join(part.command[-2:])}")
        minutes[part.area] = minutes.get(part.area, 0) + (time.monotonic() - began) / 60
    print("\n--- minutes by area")
    for area, spent in minutes.items():
        print(f"{spent:6.2f}  {area}")
    print(f"{sum(minutes.values()):6.2f}  in all")
    for name in failed:
        print(f"FAILED  {name}")
    print(f"parts: {len(parts) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
