"""One timer of the loop for many deadlines: it rings at the earliest that was asked for."""

import asyncio
from collections.abc import Callable

# uvloop counts whole milliseconds and may ring up to half of one early.
_SLACK_SECONDS = 0.001


class Alarm:
    """A timer that can be set again and again and rings once, at the earliest time it was set to.

    Whom it calls is told with each setting, not kept: an alarm that is not set keeps nobody alive.
    """

    __slots__ = ("_at", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0

    def set(self, at: float, ring: Callable[[], None]) -> None:
        """Call ``ring`` at ``at`` of the loop's clock, unless it rings before that anyway."""
        if self._handle is not None:
            if self._at <= at:
                return
            self._handle.cancel()
        self._at = at
        delay = max(at - self._loop.time(), 0) + _SLACK_SECONDS
        self._handle = self._loop.call_later(delay, self._go_off, ring)

    def cancel(self) -> None:
        """Do not ring."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _go_off(self, ring: Callable[[], None]) -> None:
        self._handle = None
        ring()
