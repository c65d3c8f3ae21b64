"""Facts about the source tree that gates and tests share: its files, modules and functions."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

MODULE_LINES_WARN, MODULE_LINES_MAX = 300, 800
FUNCTION_LINES_WARN, FUNCTION_LINES_MAX = 50, 70

_CYTHON_FUNCTION = re.compile(r"^( *)(?:def|cdef|cpdef)\b[^=]*?(\w+)\(")


class Sized(NamedTuple):
    """Something with a length in lines: a module, or a function with its name."""

    path: str
    name: str
    lines: int

    def __str__(self) -> str:
        return f"{self.path}{':' + self.name if self.name else ''} has {self.lines} lines"


def tracked_files() -> list[Path]:
    """Files git tracks or would track; a source archive without git lists everything."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        names = listed.stdout.splitlines()
        return [ROOT / name for name in names if (ROOT / name).is_file()]
    return [path for path in ROOT.rglob("*") if path.is_file()]


def code_files() -> list[Path]:
    return [path for path in tracked_files() if path.suffix in {".py", ".pyx", ".pxd"}]


def modules() -> Iterator[Sized]:
    for path in code_files():
        yield Sized(relative(path), "", len(path.read_text().splitlines()))


def functions() -> Iterator[Sized]:
    for path in code_files():
        measure = _python_functions if path.suffix == ".py" else _cython_functions
        yield from measure(path)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _python_functions(path: Path) -> Iterator[Sized]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            yield Sized(relative(path), node.name, node.end_lineno - node.lineno + 1)


def _cython_functions(path: Path) -> Iterator[Sized]:
    """Cython has no parser to ask: a function lasts until the next line that is not deeper."""
    lines = path.read_text().splitlines()
    for start, line in enumerate(lines):
        if (found := _CYTHON_FUNCTION.match(line)) is None:
            continue
        last = start
        for number in range(start + 1, len(lines)):
            text = lines[number]
            if text.strip() and not _is_inside(text, found[1]):
                break
            last = number if text.strip() else last
        yield Sized(relative(path), found[2], last - start + 1)


def _is_inside(line: str, indent: str) -> bool:
    closes_signature = line.startswith(indent + ")")
    return closes_signature or line.startswith(indent + " ")
