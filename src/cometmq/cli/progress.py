"""How far a long run is, on one line of standard error that disappears when it is done."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self, TextIO

QUIET_SECONDS: Final = 1.0
"""A run that takes no longer shows nothing."""

_STEP_SECONDS: Final = 0.2
_CLEAR = "\r\x1b[K"
_BAR_WIDTH: Final = 24


class Line:
    """Writes the line from time to time; nothing is written to what is no terminal."""

    def __init__(
        self, label: str, stream: TextIO | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._label = label
        self._stream = stream if stream is not None and stream.isatty() else None
        self._clock = clock
        self._next = clock() + QUIET_SECONDS
        self._is_shown = False

    def _show(self, text: Callable[[], str]) -> None:
        if self._stream is None or self._clock() < self._next:
            return
        self._next = self._clock() + _STEP_SECONDS
        self._write(f"{_CLEAR}{self._label}: {text()}")
        self._is_shown = True

    def close(self) -> None:
        """Take the line away; it comes again with what is told later."""
        if self._is_shown:
            self._write(_CLEAR)
            self._is_shown = False

    def _write(self, text: str) -> None:
        assert self._stream is not None
        self._stream.write(text)
        self._stream.flush()


class ProgressLine(Line):
    """So many bytes of all."""

    def __call__(self, done: int, whole: int) -> None:
        """``done`` of ``whole`` bytes are done."""
        self._show(lambda: f"{100 * done // max(1, whole)}% of {whole / 2**20:.0f} MiB")


class CountLine(Line):
    """So many things, with a bar where it is known how many there will be.

    Where rows go to the same terminal it would be in their way: ``is_alone`` says that none do.
    """

    def __init__(
        self,
        label: str,
        whole: int | None,
        *,
        is_alone: bool,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        stream = sys.stderr if stream is None else stream
        is_free = is_alone or not (sys.stdout is not None and sys.stdout.isatty())
        super().__init__(label, stream if is_free else None, clock)
        self._whole = whole
        self._done = 0
        self._began = clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, count: int) -> None:
        """So many more are done."""
        self._done += count
        self._show(self._text)

    def _text(self) -> str:
        rate = self._done / max(self._clock() - self._began, 1e-9)
        if not self._whole:
            return f"{self._done}, {rate:.0f}/s"
        filled = min(_BAR_WIDTH, _BAR_WIDTH * self._done // self._whole)
        bar = "#" * filled + "." * (_BAR_WIDTH - filled)
        return f"[{bar}] {self._done} of {self._whole}, {rate:.0f}/s"


@contextmanager
def progress_line(label: str) -> Iterator[ProgressLine]:
    """A line on standard error while the block runs."""
    line = ProgressLine(label, sys.stderr)
    try:
        yield line
    finally:
        line.close()
