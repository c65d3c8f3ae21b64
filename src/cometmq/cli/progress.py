"""How far a long run is, on one line of standard error that disappears when it is done."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

QUIET_SECONDS: Final = 1.0
"""A run that takes no longer shows nothing."""

_STEP_SECONDS: Final = 0.2
_CLEAR = "\r\x1b[K"


class ProgressLine:
    """Writes the line; nothing is written to what is no terminal."""

    def __init__(
        self, label: str, stream: TextIO | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._label = label
        self._stream = stream if stream is not None and stream.isatty() else None
        self._clock = clock
        self._next = clock() + QUIET_SECONDS
        self._is_shown = False

    def __call__(self, done: int, whole: int) -> None:
        """``done`` of ``whole`` bytes are done."""
        if self._stream is None or self._clock() < self._next:
            return
        self._next = self._clock() + _STEP_SECONDS
        percent = 100 * done // max(1, whole)
        self._write(f"{_CLEAR}{self._label}: {percent}% of {whole / 2**20:.0f} MiB")
        self._is_shown = True

    def close(self) -> None:
        if self._is_shown:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        assert self._stream is not None
        self._stream.write(text)
        self._stream.flush()


@contextmanager
def progress_line(label: str) -> Iterator[ProgressLine]:
    """A line on standard error while the block runs."""
    line = ProgressLine(label, sys.stderr)
    try:
        yield line
    finally:
        line.close()
