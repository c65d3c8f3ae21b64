"""How far the timed messages are, on disk: ``config/timercheck``, as 5.5.0 reads and writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.codec import timer
from cometmq.codec.timer import CHECK_PAGE_BYTES, TimerCheck

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.store.files import File, Files


class TimerCheckpoint:
    """The page. It lies within one sector, so a power cut leaves the old one or the new one."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self._file: File | None = None
        content = files.read(path)
        # What was saved last; None when there is nothing, or nothing whole.
        self.saved: TimerCheck | None = None
        if content is not None and len(content) >= CHECK_PAGE_BYTES:
            self.saved = timer.unpack_check(content)

    def save(self, check: TimerCheck) -> None:
        """Bring a page to disk; blocks."""
        if self._file is None:
            if self.saved is None:
                self._files.remove(self._path)
                self._files.create(self._path, CHECK_PAGE_BYTES)
            self._file = self._files.open(self._path)
        self._file.write(0, timer.pack_check(check))
        self._file.sync()
        self.saved = check

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
