"""A screen that is drawn again and again, until ``q`` is pressed.

It has a screen of its own, so that what was on the terminal is there again afterwards, whatever
happens. Only a terminal's usual control sequences are needed.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TextIO

from cometmq.cli.cluster_screen import cut

ENTER: Final = "\x1b[?1049h\x1b[?25l"
LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"

QUIT_KEYS: Final = frozenset({"q", "Q", "\x03", "\x04"})
REFRESH_KEYS: Final = frozenset({" ", "\r", "\n"})


def frame_of(lines: Sequence[str], size: tuple[int, int]) -> str:
    """What to write so that the terminal shows these lines and nothing else."""
    columns, rows = size
    shown = [*lines[: max(1, rows)]]
    if len(lines) > rows > 1:
        hidden = len(lines) - rows + 1
        shown = [*lines[: rows - 1], cut(f"… {hidden} more lines", columns)]
    return _HOME + "\r\n".join(line + _REST_OF_LINE for line in shown) + _REST_OF_SCREEN


class LiveView:
    """Draws what ``render(columns)`` gives, and calls ``refresh`` every ``interval`` seconds."""

    def __init__(
        self,
        refresh: Callable[[], Awaitable[None]],
        render: Callable[[int], Sequence[str]],
        *,
        interval: float,
        output: TextIO,
        size: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self._refresh = refresh
        self._render = render
        self._interval = interval
        self._output = output
        self._size = size or _terminal_size
        self._is_over = False
        self._news = asyncio.Event()  # a key, or another size of the terminal
        self._is_due = False

    def press(self, key: str) -> None:
        """A key was pressed."""
        if key in QUIT_KEYS:
            self._is_over = True
        elif key in REFRESH_KEYS:
            self._is_due = True
        else:
            return
        self._news.set()

    def resize(self) -> None:
        """The terminal has another size."""
        self._news.set()

    async def run(self) -> None:
        """Draw what is known, look again, draw that, until it is over."""
        while True:
            self.draw()
            await self._pause()
            if self._is_over:
                return
            self._is_due = False
            await self._refresh()

    def draw(self) -> None:
        size = self._size()
        self._output.write(frame_of(self._render(size[0]), size))
        self._output.flush()

    async def _pause(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._interval
        while not (self._is_over or self._is_due) and (left := end - loop.time()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)
                self._news.clear()
                if not self._is_over:
                    self.draw()


async def run_on_terminal(view: LiveView) -> None:
    """Let a view have the terminal: its keys, its size, a screen of its own."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError, ValueError, AttributeError):
        loop.add_signal_handler(signal.SIGWINCH, view.resize)
    sys.stdout.write(ENTER)
    sys.stdout.flush()
    try:
        with _keys(loop, view.press):
            await view.run()
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()


@contextlib.contextmanager
def _keys(loop: asyncio.AbstractEventLoop, press: Callable[[str], None]) -> Iterator[None]:
    """Call ``press`` with each key, if there is a keyboard."""
    if sys.platform == "win32" or sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def read() -> None:
        typed = os.read(descriptor, 64).decode(errors="replace")
        for key in typed or "q":  # nobody will ever press a key there again
            press(key)

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _terminal_size() -> tuple[int, int]:
    size = shutil.get_terminal_size()
    return size.columns, size.lines
