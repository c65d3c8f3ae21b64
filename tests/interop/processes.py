"""Servers in processes of their own: started, waited for and stopped within bounds.

Each runs in its own process group with no standard input, and everything it prints goes to one log
file. Only what was started here is ever signalled, by its group id.
"""

import abc
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.commands import tail

READY_TIMEOUT_S = 60.0
TERMINATE_TIMEOUT_S = 20.0
KILL_TIMEOUT_S = 5.0
POLL_S = 0.02
LOG_BYTES_MAX = 1 << 20

# Started and not yet stopped, so that a failing test can show what they last said.
running: list["Process"] = []


class ProcessDiedError(Exception):
    """It ended although nobody asked it to."""

    def __init__(self, name: str, code: int, log: str) -> None:
        super().__init__(name, code, log)
        self.name = name
        self.code = code
        self.log = log

    def __str__(self) -> str:
        return f"{self.name} ended by itself with code {self.code}; its last lines:\n{self.log}"


class ProcessNotReadyError(Exception):
    """It runs, but what we wait for in its log did not come in time."""

    def __init__(self, name: str, awaited: str, waited_s: float, log: str) -> None:
        super().__init__(name, awaited, waited_s, log)
        self.name = name
        self.awaited = awaited
        self.waited_s = waited_s
        self.log = log

    def __str__(self) -> str:
        return (
            f"{self.name} did not print '{self.awaited}' within {self.waited_s:g} s; "
            f"its last lines:\n{self.log}"
        )


class Stoppable(abc.ABC):
    """Something that runs until it is stopped: as a context manager, for as long as the block."""

    @abc.abstractmethod
    def stop(self) -> object:
        """Ask it to end and make it end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class Process(Stoppable):
    """One started program; use as a context manager, or call ``stop``."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        folder: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log_path = folder / f"{name}.log"
        with self.log_path.open("wb") as log:
            self._popen = subprocess.Popen(
                list(argv),
                cwd=folder,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        running.append(self)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def log(self) -> str:
        """What it has printed; of a very long log only the end."""
        with self.log_path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_BYTES_MAX))
            return file.read().decode("utf-8", "backslashreplace")

    def wait_until_printed(self, pattern: str, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return once the log has ``pattern``; raise as soon as that can no longer happen."""
        deadline = time.monotonic() + timeout_s
        while True:
            # Asked before the log is read: what a dying process printed last is then in the log.
            code = self._popen.poll()
            if re.search(pattern, self.log()):
                return
            if code is not None:
                raise ProcessDiedError(self.name, code, tail(self.log()))
            if time.monotonic() >= deadline:
                raise ProcessNotReadyError(self.name, pattern, timeout_s, tail(self.log()))
            time.sleep(POLL_S)

    def stop(self, *, timeout_s: float = TERMINATE_TIMEOUT_S) -> int:
        """Ask it to end, make it end, and give its exit code. Harmless when it has ended."""
        if self in running:
            running.remove(self)
        for how, wait_s in ((signal.SIGTERM, timeout_s), (signal.SIGKILL, KILL_TIMEOUT_S)):
            if self._popen.poll() is None:
                os.killpg(self._popen.pid, how)
            try:
                return self._popen.wait(wait_s)
            except subprocess.TimeoutExpired:
                continue
        raise ProcessNotReadyError(self.name, "(its end)", timeout_s, tail(self.log()))

    def kill(self) -> int:
        """End it at once, as a power cut would."""
        if self._popen.poll() is None:
            os.killpg(self._popen.pid, signal.SIGKILL)
        return self.stop()
