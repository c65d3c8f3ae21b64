"""Starts many short-lived writers fast: one process loads everything once and forks each of them.

A new interpreter takes longer to load its modules than a writer lives. The server reads requests
from a socket, one JSON line each: ``{"start": plan}`` comes with the descriptors that the child's
lines and its complaints go to, and is answered by its process id; ``{"wait": pid}`` by its status.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from tests.crash.writer import Plan, run

REQUEST_BYTES_MAX = 1 << 16
CHUNK_BYTES = 1 << 16
LIFE_SECONDS_MAX = 30.0
ROOT = Path(__file__).parents[2]


class WriterFailedError(Exception):
    """A writer ended in a way nobody asked for."""


class Nursery:
    """The server's other end; as a context manager, for as long as the block."""

    def __init__(self, folder: Path) -> None:
        self._complaints = folder / "complaints"
        self._socket, theirs = socket.socketpair()
        argv = [sys.executable, "-m", "tests.crash.nursery", str(theirs.fileno())]
        with theirs:
            self._server = subprocess.Popen(argv, cwd=ROOT, pass_fds=[theirs.fileno()])

    def start(self, plan: Plan) -> "Child":
        read_end, write_end = os.pipe()
        try:
            with self._complaints.open("wb") as complaints:
                request = json.dumps({"start": msgspec.to_builtins(plan)}).encode() + b"\n"
                socket.send_fds(self._socket, [request], [write_end, complaints.fileno()])
        finally:
            os.close(write_end)
        return Child(self, self._answer(), read_end)

    def wait(self, pid: int) -> int:
        """Return when the child has ended, with its exit code, negative for a signal."""
        self._socket.sendall(json.dumps({"wait": pid}).encode() + b"\n")
        return self._answer()

    def complaints(self) -> str:
        return self._complaints.read_text(errors="backslashreplace")

    def _answer(self) -> int:
        self._socket.settimeout(LIFE_SECONDS_MAX)
        data = self._socket.recv(64)
        assert data, "the server of the writers has ended"
        return int(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()  # which ends the server
        self._server.wait(LIFE_SECONDS_MAX)


class Child:
    """One running writer."""

    def __init__(self, nursery: Nursery, pid: int, descriptor: int) -> None:
        self._nursery = nursery
        self._pid = pid
        self._descriptor = descriptor
        self._is_killed = False

    def watch(self, *, lines_max: int | None = None, seconds_max: float | None = None) -> list[str]:
        """All its lines; it is killed after so many of them or so much time.

        Raises ``WriterFailedError`` when it ends by itself otherwise than well.
        """
        deadline = time.monotonic() + (LIFE_SECONDS_MAX if seconds_max is None else seconds_max)
        data = b""
        while True:
            rest = deadline - time.monotonic()
            if rest <= 0 or (lines_max is not None and data.count(b"\n") >= lines_max):
                self._kill()
            if self._is_killed or select.select([self._descriptor], [], [], rest)[0]:
                chunk = os.read(self._descriptor, CHUNK_BYTES)
                if not chunk:
                    break
                data += chunk
        os.close(self._descriptor)
        code = self._nursery.wait(self._pid)
        lines = data.decode().splitlines()
        hung = self._is_killed and seconds_max is None and lines_max is None
        if hung or code not in (0, -signal.SIGKILL):
            how = "hung" if hung else f"ended with {code}"
            raise WriterFailedError(f"{how} after {lines[-3:]}:\n{self._nursery.complaints()}")
        return lines

    def _kill(self) -> None:
        if not self._is_killed:
            self._is_killed = True
            os.kill(self._pid, signal.SIGKILL)


def serve(server: socket.socket) -> None:
    """Answer requests until the other end closes."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(server, REQUEST_BYTES_MAX, 2)
        if not data:
            return
        request: dict[str, Any] = json.loads(data)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = fork(request["start"], *descriptors)
        server.sendall(b"%d" % answer)
        for descriptor in descriptors:
            os.close(descriptor)


def fork(plan: dict[str, Any], lines: int, complaints: int) -> int:
    """Start a child that carries out the plan; its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.dup2(complaints, sys.stderr.fileno())
        run(msgspec.convert(plan, Plan), lines)
        code = 0
    except BaseException:
        with contextlib.suppress(OSError):
            os.write(complaints, traceback.format_exc().encode())
    finally:
        os._exit(code)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as own_end:
        serve(own_end)
