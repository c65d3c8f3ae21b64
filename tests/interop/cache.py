"""A folder of things that are slow to make: each made once, found at once ever after.

An entry is named by what it is and a hash of everything it is made from, so a changed input makes
a new entry and an old one is never wrong. It is made in a temporary folder beside its final place
and renamed: an entry that exists is whole. Makers of the same entry in other processes wait for
the first one at a file lock.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

LOCK_WAIT_S = 600.0
LOCK_POLL_S = 0.1
KEY_DIGITS = 16


class CacheBusyError(Exception):
    """Another process has been making the entry for longer than we wait."""

    def __init__(self, name: str, waited_s: float) -> None:
        super().__init__(name, waited_s)
        self.name = name
        self.waited_s = waited_s

    def __str__(self) -> str:
        return f"cache entry '{self.name}' is still being made elsewhere after {self.waited_s:g} s"


class Cache:
    """Entries below ``root``; safe to use from several processes at once."""

    def __init__(self, root: Path, *, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self.root = root
        self._lock_wait_s = lock_wait_s

    def entry(self, name: str, inputs: Mapping[str, str], make: Callable[[Path], None]) -> Path:
        """The folder made by ``make(empty_folder)`` from ``inputs``, made now if it is not there.

        ``make`` must put everything into the folder it is given and nothing that names that
        folder, because it is renamed afterwards. When it raises, nothing is left behind and the
        exception passes through.
        """
        final = self.root / f"{name}-{key(name, inputs)}"
        if final.is_dir():
            return final
        with self._locked(final.name):
            if not final.is_dir():
                self._make(final, make)
        return final

    def _make(self, final: Path, make: Callable[[Path], None]) -> None:
        unfinished = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=self.root))
        try:
            make(unfinished)
            unfinished.chmod(0o755)
            unfinished.rename(final)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        locks = self.root / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        with (locks / name).open("w") as file:
            self._acquire(file.fileno(), name)
            # Closing the file gives the lock back, also when this process is killed.
            yield

    def _acquire(self, descriptor: int, name: str) -> None:
        deadline = time.monotonic() + self._lock_wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise CacheBusyError(name, self._lock_wait_s) from None
                time.sleep(LOCK_POLL_S)


def key(name: str, inputs: Mapping[str, str]) -> str:
    """A short name for exactly these inputs; their order does not matter."""
    digest = hashlib.sha256()
    for part in (name, *(piece for item in sorted(inputs.items()) for piece in item)):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:KEY_DIGITS]


def default_cache() -> Cache:
    """The cache of this machine: ``COMETMQ_CACHE``, or a folder in the user's home."""
    root = os.environ.get("COMETMQ_CACHE")
    return Cache(Path(root) if root else Path.home() / ".cache" / "cometmq")
