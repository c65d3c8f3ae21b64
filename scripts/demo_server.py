"""``cometmq up`` as a child process, on a data directory of its own that each run makes anew.

Whatever ends this process in an orderly way, Ctrl-C, TERM or the terminal that goes, ends the child
first: an orphan would keep the ports and the directory.
"""

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import IO, Self

from cometmq.store.files import DiskFiles
from scripts import tree

DATA = "demo-data"
SETTINGS = "messageDelayLevel=1s 1s 1s 1s 1s 1s\n"
"""Retries come after a second, not after ten."""
NAMESRV_PORT, BROKER_PORT = 9876, 10911
STOP_SECONDS_MAX = 20
LOOPBACK = "127.0.0.1"
FROM_OUTSIDE = (signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 128 + signal.SIGINT


def run(work: "Callable[[Server], None]", server: "Server", *, is_once: bool) -> int:
    """Do ``work`` with the server; keep that up, unless it is for once, until Ctrl-C."""
    for number in FROM_OUTSIDE:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _exit)
    is_done = False
    try:
        with server:
            work(server)
            is_done = True
            if is_once:
                return 0
            print("\nIt stays up; Ctrl-C ends it.", flush=True)
            return server.wait()
    except KeyboardInterrupt:
        if is_done:
            return 0
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED


class Server:
    """Runs while it is entered; on the usual ports when nobody has them and they are wanted."""

    def __init__(self, folder: Path = tree.ROOT / DATA, *, wants_usual_ports: bool = True) -> None:
        self.folder = folder
        self._wants_usual_ports = wants_usual_ports
        self._process: subprocess.Popen[str] | None = None
        self.namesrv = ""
        self.broker = ""

    @property
    def is_at_home(self) -> bool:
        """Whether tools find it without being told where it is."""
        return self.namesrv == f"{LOOPBACK}:{NAMESRV_PORT}"

    def __enter__(self) -> Self:
        self._clear()
        (self.folder / "broker.conf").write_text(SETTINGS)
        usual = (NAMESRV_PORT, BROKER_PORT, BROKER_PORT - 2)
        is_usual = self._wants_usual_ports and all(map(_is_free, usual))
        ports = [] if is_usual else ["--namesrv-port", "0", "--port", "0"]
        with (self.folder / "log.txt").open("w") as log:
            self._process = subprocess.Popen(
                [*_command(), "--data", str(self.folder), *ports],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                process_group=0,  # Ctrl-C is ours: clients end before their cluster
            )
        assert self._process.stdout is not None
        with contextlib.ExitStack() as undo:
            undo.callback(self._stop)
            started = self._started(self._process.stdout)
            undo.pop_all()
        self.namesrv, self.broker = started["name_server"], started["broker"]
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def wait(self) -> int:
        """Until it ends."""
        assert self._process is not None
        return self._process.wait()

    def _clear(self) -> None:
        """Away with what an earlier run has left, unless that one is still up."""
        with DiskFiles().lock(self.folder / "store" / "lock") as is_ours:
            if not is_ours:
                name = self.folder.name
                raise SystemExit(f"error: a cluster runs on {name}/\n  next: end it first")
            shutil.rmtree(self.folder)
        self.folder.mkdir()

    def _started(self, output: IO[str]) -> dict[str, str]:
        text = ""
        for line in output:
            text += line
            with contextlib.suppress(json.JSONDecodeError):
                started: dict[str, str] = json.loads(text)
                return started
        log = (self.folder / "log.txt").read_text()
        raise SystemExit(f"error: the cluster did not start\n{log}")

    def _stop(self) -> None:
        if self._process is None:
            return
        assert self._process.stdout is not None
        self._process.stdout.close()
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS_MAX)
        finally:
            self._process.kill()  # one that is gone does not mind; a second Ctrl-C comes here


def _exit(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def _command() -> list[str]:
    return [sys.executable, "-m", "cometmq", "up", "-o", "json"]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
