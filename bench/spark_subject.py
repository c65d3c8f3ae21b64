"""What ``bench.spark`` measures with: drivers with a Spark session, and what CPU they take.

A driver is a tree of processes: the program, its JVM, and Python workers that come and go. Their
CPU is taken together, with that of children that have ended.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.commands import tail
from tests.interop.processes import Stoppable

ROOT = Path(__file__).parents[1]
ANSWER_TIMEOUT_S = 300.0
END_TIMEOUT_S = 20.0
_TICKS = os.sysconf("SC_CLK_TCK")


class SubjectFailed(Exception):
    """A driver answered with an error, or not at all; the message ends with its last words."""


class Driver(Stoppable):
    """A running ``bench.spark_driver``; everything it writes is below ``folder``."""

    def __init__(
        self, kind: str, master: str, folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True)
        self.name = f"{kind} {master}"
        self._log_path = folder / "log.txt"
        settings = {
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(folder),
            "SPARK_LOCAL_DIRS": str(folder),
            **(environment or {}),
        }
        with self._log_path.open("wb") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "bench.spark_driver", kind, master],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env={**os.environ, **settings},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ask(self, command: str, **options: object) -> dict[str, Any]:
        """Have a command done; ``cpu_s`` is what the tree of processes spent meanwhile."""
        stdin, stdout = self._popen.stdin, self._popen.stdout
        assert stdin is not None
        assert stdout is not None
        began = tree_cpu_seconds(self.pid)
        try:
            stdin.write(json.dumps({"command": command, **options}).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise SubjectFailed(f"{self.name} has ended:\n{self._last_words()}") from None
        ready, _, _ = select.select([stdout], [], [], ANSWER_TIMEOUT_S)
        line = stdout.readline() if ready else b""
        if not line:
            raise SubjectFailed(f"{self.name} gave no answer to {command}:\n{self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SubjectFailed(f"{self.name}, {command}: {answer['error']}")
        answer["cpu_s"] = tree_cpu_seconds(self.pid) - began
        return answer

    def stop(self) -> None:
        """Let it end by itself, which it does when nothing more can be asked; make it end."""
        left = tree(self.pid)
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(END_TIMEOUT_S)
        _end(left)
        self._popen.wait(END_TIMEOUT_S)

    def _last_words(self) -> str:
        return tail(self._log_path.read_text(errors="backslashreplace"))


class ProcessTimes(NamedTuple):
    """A process, whose child it is, when it began and the CPU seconds it and its dead spent."""

    pid: int
    parent: int
    began: int
    cpu_s: float


def tree_cpu_seconds(pid: int) -> float:
    """CPU of a process and all below it, also of those that have ended."""
    return sum(process.cpu_s for process in tree(pid))


def tree(pid: int) -> list[ProcessTimes]:
    """A process and all below it that live now."""
    return below(pid, _everybody())


def below(pid: int, everybody: Iterable[ProcessTimes]) -> list[ProcessTimes]:
    """Those of ``everybody`` that are ``pid`` or descend from it."""
    children: dict[int, list[ProcessTimes]] = {}
    found = []
    for process in everybody:
        children.setdefault(process.parent, []).append(process)
        if process.pid == pid:
            found.append(process)
    for process in found:
        found.extend(children.get(process.pid, ()))
    return found


def times_of(stat: str) -> ProcessTimes:
    """One process from the kernel's line about it; its name may hold anything."""
    pid, _, rest = stat.partition(" (")
    fields = rest.rpartition(") ")[2].split()
    # From the third field on: state, parent, … utime, stime, cutime, cstime, … starttime.
    cpu_s = sum(map(int, fields[11:15])) / _TICKS
    return ProcessTimes(int(pid), int(fields[1]), int(fields[19]), cpu_s)


def _everybody() -> Iterator[ProcessTimes]:
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield times_of((path / "stat").read_text())


def _end(processes: Iterable[ProcessTimes]) -> None:
    """End what is left of a tree, and nobody who got one of its numbers later."""
    alive = {(process.pid, process.began) for process in _everybody()}
    for process in processes:
        if (process.pid, process.began) in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
