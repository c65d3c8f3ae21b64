"""Makes the next log file before it is needed, and faults pages in ahead of the writer."""

from __future__ import annotations

import concurrent.futures
import contextlib
from typing import TYPE_CHECKING, Final

from cometmq.logs import get_logger
from cometmq.store.mapped_file import MappedFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cometmq.store.files import Files

FILE_WAIT_SECONDS: Final = 5.0
"""How long an append waits for a file that is being made."""

POPULATE_AHEAD_BYTES: Final = 16 * 1024 * 1024
POPULATE_AHEAD_SYNC_BYTES: Final = 2 * 1024 * 1024
"""How far pages are faulted in before the writer. They are dirty from then on, and the next sync
writes their zeros: less of them when senders wait for it."""

_log = get_logger(__name__)


class Allocator:
    """Makes files on a thread of its own; without one, when they are asked for.

    ``path_of`` tells where the file that begins at a log position belongs.
    """

    def __init__(
        self,
        files: Files,
        size: int,
        path_of: Callable[[int], Path],
        *,
        has_thread: bool,
        ahead_bytes: int = POPULATE_AHEAD_BYTES,
    ) -> None:
        self._files = files
        self._size = size
        self._path_of = path_of
        # How far ahead of the writer pages are asked for.
        self.ahead_bytes = ahead_bytes
        self._worker = (
            concurrent.futures.ThreadPoolExecutor(1, "cometmq-allocate") if has_thread else None
        )
        # The file under way and where it begins.
        self._next: tuple[int, concurrent.futures.Future[MappedFile]] | None = None

    def prepare(self, begin: int) -> None:
        """Start making the file that begins at ``begin``; nothing when it is under way."""
        if self._worker is not None and self._next is None:
            self._next = begin, self._worker.submit(self._make, begin)

    def take(self, begin: int) -> MappedFile:
        """The file that begins at ``begin``; raises OSError (a timeout is one) when it fails."""
        if self._next is not None and self._next[0] == begin:
            future = self._next[1]
            file = future.result(FILE_WAIT_SECONDS) if not future.done() else None
            self._next = None
            return file if file is not None else future.result()
        return self._make(begin)

    def populate(self, file: MappedFile, end: int) -> None:
        """Fault pages in up to ``end`` of the file, in the background."""
        if self._worker is not None:
            self._worker.submit(file.populate, end)

    def remove(self, path: Path) -> None:
        """Remove a log file that is no longer mapped, in the background."""
        if self._worker is not None:
            self._worker.submit(self._files.remove, path)
        else:
            self._files.remove(path)

    def close(self) -> None:
        """Stop, and remove a file that was made in vain."""
        if self._worker is not None:
            self._worker.shutdown()
        if self._next is None:
            return
        with contextlib.suppress(OSError):
            file = self._next[1].result()
            file.close()
            self._files.remove(file.path)
        self._next = None

    def _make(self, begin: int) -> MappedFile:
        path = self._path_of(begin)
        self._files.create(path, self._size)
        try:
            file = MappedFile(self._files, path, self._size)
        except OSError:
            self._files.remove(path)
            raise
        try:
            file.allocate()
        except OSError as error:
            _log.warning("file=%s cannot be allocated: %s", path, error)
            file.close()
            self._files.remove(path)
            raise
        if self._worker is not None:
            file.populate(self.ahead_bytes)
        return file
