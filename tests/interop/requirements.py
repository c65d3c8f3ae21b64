"""What a machine must have for a test: said by name, with the reason when it is missing.

A missing tool skips the test. Where everything is meant to be there (``COMETMQ_REQUIRE_ALL=1``, as
in CI) it fails the test instead, so that a green run cannot hide a test that never ran.
"""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

import pytest

from tests.interop.cache import CacheBusyError
from tests.interop.commands import CommandError

# Tool: how it tells its version, and the oldest that will do.
TOOLS: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "java": (("-version",), (17,)),
    "javac": (("-version",), (17,)),
    "mvn": (("-v",), (3, 6)),
    "go": (("version",), (1, 20)),
    "node": (("--version",), (18,)),
    "npm": (("--version",), (9,)),
    "openssl": (("version",), (3,)),
}
VERSION_TIMEOUT_S = 60


def need(*tools: str) -> None:
    """Skip (or fail) the running test unless every tool is here and new enough."""
    for tool in tools:
        reason = lack(tool)
        if reason is not None:
            missing(f"{tool} {_dotted(TOOLS[tool][1])}+", reason)


def missing(what: str, reason: str) -> NoReturn:
    """End the running test because this machine lacks ``what``."""
    sentence = f"needs {what}: {reason}"
    if os.environ.get("COMETMQ_REQUIRE_ALL") == "1":
        pytest.fail(f"{sentence} (COMETMQ_REQUIRE_ALL=1 turns this skip into a failure)")
    pytest.skip(sentence)


@contextmanager
def fetching(what: str) -> Iterator[None]:
    """Where something is fetched or built: a failure there means the machine lacks ``what``."""
    try:
        yield
    except (CommandError, CacheBusyError) as failure:
        missing(what, str(failure))


def lack(tool: str) -> str | None:
    """Why ``tool`` cannot be used, or None if it can."""
    path = shutil.which(tool)
    return "not found on PATH" if path is None else _unfit(path, *TOOLS[tool])


@functools.cache
def _unfit(path: str, arguments: tuple[str, ...], oldest: tuple[int, ...]) -> str | None:
    try:
        answer = subprocess.run(
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as failure:
        return f"{path} does not run: {failure}"
    version = version_in(answer.stdout + answer.stderr)
    if version is None:
        return f"{path} does not tell its version"
    return f"{path} is {_dotted(version)}" if version < oldest else None


def version_in(text: str) -> tuple[int, ...] | None:
    """The first version number in what a tool prints about itself.

    ``go version go1.22.1 linux/amd64`` gives ``(1, 22, 1)``.
    """
    found = re.search(r"(?<![\d.])\d+(?:\.\d+)+|\b\d+\b", text)
    return tuple(int(part) for part in found.group().split(".")) if found else None


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
