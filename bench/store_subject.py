"""A message store under test: a process that obeys commands, ours or Apache's.

CPU time is read from outside, from the clock the kernel keeps for each process: the same measure
for both, with every thread in it (Java's own figure for itself counts in steps of 10 ms).
"""

import ctypes
import json
import mmap
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.interop import java, requirements
from tests.interop.apache import LOGBACK, home
from tests.interop.cache import Cache
from tests.interop.commands import tail
from tests.interop.ports import free_port
from tests.interop.processes import Stoppable

SOURCES = Path(__file__).parent / "java"
HEAP_MB = 1024
ANSWER_TIMEOUT_S = 300.0
END_TIMEOUT_S = 10.0
RESIDENT_SHARE_MAX = 0.02

_CPU_CLOCK_OF_PROCESS = 2
_SYS_PROCESS_MADVISE = 440
_MADV_PAGEOUT = 21


class Sizes(NamedTuple):
    """Sizes of a store's files; the defaults are Apache's."""

    log: int = 1 << 30
    queue: int = 6_000_000
    slots: int = 5_000_000
    entries: int = 20_000_000


class SubjectFailed(Exception):
    """A subject answered with an error, or not at all; the message ends with its last words."""


class Subject(Stoppable):
    """One running process with at most one store open; everything it writes is below ``folder``."""

    def __init__(self, name: str, argv: Sequence[str], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self._folder = folder
        self._stores = 0
        self._log_path = folder / "log.txt"
        with self._log_path.open("ab") as log:
            self._popen = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "ROCKETMQ_HOME": str(folder)},
                start_new_session=True,
            )
        self._cpu_clock = (~self._popen.pid << 3) | _CPU_CLOCK_OF_PROCESS

    def open(
        self,
        sizes: Sizes,
        *,
        root: Path | None = None,
        is_sync: bool = False,
        has_pool: bool = False,
    ) -> dict[str, int]:
        """Open a store, a new one unless ``root`` names one."""
        self._stores += root is None
        self.root = root or self._folder / f"store-{self._stores}"
        self.root.mkdir(exist_ok=True)
        return self.ask(
            "open",
            root=self.root,
            sync=int(is_sync),
            pool=int(has_pool),
            port=free_port(),
            **sizes._asdict(),
        )

    def ask(self, command: str, **options: object) -> dict[str, int]:
        """Have a command done; ``cpu_ns`` is what the whole process spent meanwhile."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        line = " ".join([command, *(f"{name}={value}" for name, value in options.items())])
        cpu_began = time.clock_gettime_ns(self._cpu_clock)
        self._popen.stdin.write(line.encode() + b"\n")
        self._popen.stdin.flush()
        ready, _, _ = select.select([self._popen.stdout], [], [], ANSWER_TIMEOUT_S)
        answered = self._popen.stdout.readline() if ready else b""
        if not answered:
            raise SubjectFailed(f"{self.name} gave no answer to '{line}':\n{self._last_words()}")
        answer: dict[str, int] = json.loads(answered)
        if "error" in answer:
            raise SubjectFailed(f"{self.name}: {answer['error']}:\n{self._last_words()}")
        answer["cpu_ns"] = time.clock_gettime_ns(self._cpu_clock) - cpu_began
        return answer

    def forget_pages(self) -> None:
        """Write the store's files to disk and take them out of memory, mapped as they are."""
        files = [path for path in self.root.rglob("*") if path.is_file()]
        sync_files(files)
        push_out(self._popen.pid, self.root)
        for path in files:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        share = resident_share(min((self.root / "commitlog").iterdir()))
        if share > RESIDENT_SHARE_MAX:
            raise SubjectFailed(f"{self.name}: {share:.0%} of the log stay in memory")

    def stop(self) -> None:
        """Let it end by itself, which it does when nothing more can be asked."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        try:
            self._popen.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it at once; its store stays as it is."""
        if self._popen.poll() is None:
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait(END_TIMEOUT_S)

    def _last_words(self) -> str:
        return tail(self._log_path.read_text(errors="backslashreplace"))


def our_store(folder: Path) -> Subject:
    return Subject("ours", [sys.executable, "-m", "bench.store_driver"], folder)


def apache_store(cache: Cache, version: str, folder: Path) -> Subject:
    """Apache's store in a JVM that may get as fast as it can."""
    requirements.need("java", "javac")
    logging = home(folder) / "logback.xml"
    logging.write_text(LOGBACK)
    names = ("logback.configurationFile", "rmq.logback.configurationFile")
    argv = java.command(
        java.compiled(cache, f"servers-{version}", "common", version, root=SOURCES),
        "cometmq.bench.StoreBench",
        [],
        home=folder,
        heap_mb=HEAP_MB,
        properties=dict.fromkeys(names, str(logging)),
        is_short_lived=False,
    )
    return Subject(f"Apache {version}", argv, folder)


def sync_files(paths: Sequence[Path]) -> None:
    for path in paths:
        with path.open("rb") as file:
            os.fdatasync(file.fileno())


class _Range(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("length", ctypes.c_size_t))


def push_out(pid: int, root: Path) -> None:
    """Take the pages of files below ``root`` out of a process and out of memory.

    The kernel keeps what is mapped, whatever is said about the file: the mapping must be told.
    """
    call = ctypes.CDLL(None, use_errno=True).syscall
    process = os.pidfd_open(pid)
    try:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if f" {root}/" in line:
                begin, end = (int(address, 16) for address in line.split()[0].split("-"))
                part = _Range(begin, end - begin)
                done = call(_SYS_PROCESS_MADVISE, process, ctypes.byref(part), 1, _MADV_PAGEOUT, 0)
                if done < 0:
                    raise OSError(ctypes.get_errno(), "process_madvise")
    finally:
        os.close(process)


def resident_share(path: Path) -> float:
    """Which part of a file is in memory."""
    pages = -(-path.stat().st_size // mmap.PAGESIZE)
    present = (ctypes.c_ubyte * pages)()
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapping)), present)
    return sum(page & 1 for page in present) / pages
