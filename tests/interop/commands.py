"""Running a foreign command to its end, within a bound, and saying well what went wrong."""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

TAIL_LINES = 40

# Apache's 5.x programs tell at length how they set up their logging; JVMs have their own opinions.
NOISE = re.compile(
    r"^(\d\d:\d\d:\d\d,\d{3} \|-|OpenJDK 64-Bit Server VM warning|RocketMQLog:WARN|SLF4J)"
)


class CommandError(Exception):
    """A command that ended badly or not at all; ``output`` is what it printed until then."""

    def __init__(self, argv: Sequence[str], outcome: str, output: str) -> None:
        super().__init__(argv, outcome, output)
        self.argv = tuple(argv)
        self.outcome = outcome
        self.output = output

    def __str__(self) -> str:
        command = shlex.join(self.argv)
        shown = command if len(command) <= 300 else command[:300] + " …"
        return f"{shown}\n{self.outcome}; its last lines:\n{tail(self.output)}"


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """What ``argv`` printed on standard output; standard error is kept for the failure.

    ``env`` is added to this process's own. The command gets no standard input and a process group
    of its own, which is killed as a whole when ``timeout_s`` is over.
    """
    process = subprocess.Popen(
        list(argv),
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="backslashreplace",
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        raise CommandError(argv, f"killed after {timeout_s:g} s", output + errors) from None
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    if process.returncode != 0:
        raise CommandError(argv, f"exit code {process.returncode}", output + errors)
    return output


def without_noise(text: str) -> str:
    """The lines of ``text`` that somebody might want to read."""
    return "\n".join(line for line in text.splitlines() if not NOISE.match(line)).strip("\n")


def tail(text: str, lines: int = TAIL_LINES) -> str:
    """The last lines of ``text`` worth reading, saying how many more there were."""
    worth_reading = without_noise(text).splitlines()
    if len(worth_reading) > lines:
        left_out = len(worth_reading) - lines
        worth_reading = [f"… {left_out} lines before …", *worth_reading[-lines:]]
    return "\n".join(worth_reading)
