"""Disks that fail or fill up: the store says so, stops promising, and what it promised is there."""

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cometmq.store.files import DiskFiles
from tests.crash.fast_clock import FastClock
from tests.crash.ledger import Ledger, claim_consistent
from tests.crash.sizes import small
from tests.crash.writer import Plan
from tests.interop.requirements import missing

ROOT = Path(__file__).parents[2]
RUN_SECONDS_MAX = 60
IMAGE_BYTES = 32 * 1024 * 1024
FREE_BYTES = 2 * 1024 * 1024

slow = pytest.mark.slow


@pytest.fixture(scope="session")
def strace() -> str:
    """The path of a strace that may trace our processes."""
    path = shutil.which("strace")
    if path is None:
        missing("strace", "not found on PATH")
    tried = subprocess.run([path, "-qq", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        missing("strace", f"it may not trace: {tried.stderr.strip()}")
    return path


def plan(root: Path, **changes: object) -> Plan:
    clock_ms = time.time_ns() // 1_000_000
    chosen = Plan(root=str(root), first=0, count=150, clock_ms=clock_ms)
    return msgspec.structs.replace(chosen, **changes)


def traced(strace: str, options: list[str], chosen: Plan, trace: Path) -> list[str]:
    """The lines of a writer that ran under strace; it must end by itself and well."""
    writer = [sys.executable, "-m", "tests.crash.writer", msgspec.json.encode(chosen).decode()]
    ended = subprocess.run(
        [strace, "-f", "-y", "-qq", "-s", "200", "-o", str(trace), *options, *writer],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


class Syncs:
    """Follows a trace: which log files were synced since which point in time.

    A call that another thread interrupts takes two lines of the trace, ``<unfinished ...>`` and
    ``<... resumed>``.
    """

    _SYNC = re.compile(r"^(\d+)\s+fdatasync\(\d+<([^>]*)>(?:\)\s+= (-?\d+)| <unfinished)")
    _RESUMED = re.compile(r"^(\d+)\s+<\.\.\. fdatasync resumed>.*= (-?\d+)")
    _SAID = re.compile(r'^\d+\s+write\(1<[^>]*>, "(.*?)\\n"')

    def __init__(self, log_file_bytes: int) -> None:
        self._log_file_bytes = log_file_bytes
        # Line numbers of the trace: where the running syncs began, and by file where the last
        # successful one did.
        self._running: dict[str, tuple[str, int]] = {}
        self._began: dict[str, int] = {}
        self._announced = 0
        self.kept: list[int] = []

    def follow(self, trace: list[str]) -> None:
        for number, line in enumerate(trace):
            if found := self._SYNC.match(line):
                thread, path, status = found.groups()
                self._running[thread] = path, number
                if status is not None:
                    self._end(thread, status)
            elif found := self._RESUMED.match(line):
                self._end(*found.groups())
            elif found := self._SAID.match(line):
                self._hear(found[1], number)

    def _end(self, thread: str, status: str) -> None:
        path, began = self._running.pop(thread)
        if status == "0":
            self._began[Path(path).name] = began

    def _hear(self, said: str, line_number: int) -> None:
        match said.split():
            case ["begin", _, _]:
                self._announced = line_number
            case ["kept", number, _, physical_offset]:
                start = int(physical_offset) // self._log_file_bytes * self._log_file_bytes
                began = self._began.get(f"{start:020d}", -1)
                assert began > self._announced, f"message {number} was acknowledged unsynced"
                self.kept.append(int(number))


@slow
def test_nothing_is_acknowledged_before_a_sync_that_covers_it(strace: str, tmp_path: Path) -> None:
    """Each sync is held up for a while, so that an early answer would be seen to be one."""
    chosen = plan(tmp_path / "store", group_max=3)
    options = ["-e", "trace=fdatasync,write", "-e", "inject=fdatasync:delay_enter=3ms"]

    lines = traced(strace, options, chosen, tmp_path / "trace")

    syncs = Syncs(chosen.log_file_bytes)
    syncs.follow((tmp_path / "trace").read_text().splitlines())
    assert syncs.kept == list(range(chosen.count))
    assert lines[-1] == "closed"


@slow
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("is_sync", [True, False], ids=["sync", "async"])
def test_after_a_failed_sync_nothing_is_acknowledged_and_reading_goes_on(
    strace: str, tmp_path: Path, error: str, is_sync: bool
) -> None:
    chosen = plan(tmp_path / "store", is_sync=is_sync, count=5000, refusals_max=20)
    options = ["-e", "trace=fdatasync", "-e", f"inject=fdatasync:error={error}:when=6+"]

    lines = traced(strace, options, chosen, tmp_path / "trace")

    heard = [line.split()[0] for line in lines]
    refused = heard.index("refused")
    assert "kept" in heard[:refused]
    assert "kept" not in heard[refused:]
    assert heard.count("refused") >= chosen.refusals_max
    assert any(os.strerror(getattr(errno, error)) in line for line in lines[refused:])
    kept = heard.count("kept")
    assert int(next(line.split()[1] for line in lines if line.startswith("read "))) >= kept
    ledger = Ledger()
    ledger.note(lines, 0, is_cleaning=False)
    ledger.verify(tmp_path / "store", clock=FastClock(chosen.clock_ms))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MiB in a file, which takes a superuser."""
    image, folder = tmp_path / "image", tmp_path / "disk"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    require(["mkfs.ext4", "-q", str(image)])
    require(["mount", "-o", "loop", str(image), str(folder)])
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def require(command: list[str]) -> None:
    """Run a command that makes the small disk; a machine where it fails cannot have one."""
    try:
        subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        missing(command[0], "not found on PATH")
    except subprocess.CalledProcessError as failure:
        missing("a loop mount", f"{command[0]} says: {failure.stderr.strip()}")


@slow
def test_a_full_disk_refuses_messages_and_takes_them_again_when_there_is_room(
    small_disk: Path, tmp_path: Path
) -> None:
    """With many queues, whose files all want blocks of the same full disk."""
    ballast = small_disk / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, DiskFiles().usage(small_disk).free - FREE_BYTES)
    chosen = plan(
        small_disk / "store",
        is_sync=False,
        count=5000,
        queue_count=80,
        refusals_max=10_000,
        patience_seconds=20.0,
    )
    lines = []

    with running(chosen) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            if line.startswith("read "):
                ballast.unlink(missing_ok=True)
        code = process.wait(RUN_SECONDS_MAX)

    assert code == 0, f"ended with {code}"
    heard = [line.split()[0] for line in lines]
    refused = heard.index("refused")
    assert "kept" in heard[:refused]
    assert "PUT_OK" not in lines[refused]
    assert int(next(line.split()[1] for line in lines if line.startswith("read "))) > 0
    assert "kept" in heard[refused:]
    assert lines[-2:] == [f"read {chosen.count}", "closed"]
    claim_consistent(small_disk / "store", small())


@contextlib.contextmanager
def running(chosen: Plan) -> Iterator[subprocess.Popen[str]]:
    writer = [sys.executable, "-m", "tests.crash.writer", msgspec.json.encode(chosen).decode()]
    with subprocess.Popen(writer, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
