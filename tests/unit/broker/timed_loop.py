"""An event loop whose time stands still until a test moves it."""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, cast


class TimedLoop:
    """Calls back what is ready when it is told to ``turn``, and timers when time is advanced."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: object = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self.as_asyncio)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: object = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: object = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self._now + delay, callback, args, self.as_asyncio)
        heapq.heappush(self._timers, (handle.when(), next(self._numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asked for by handles; a cancelled one stays in the heap and is passed over."""

    def turn(self) -> None:
        """Call what is ready until nothing is."""
        while self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()

    def advance(self, seconds: float) -> None:
        """Let time pass; timers go off in between, each at its time."""
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, handle = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            if not handle.cancelled():
                handle._run()
            self.turn()
        self._now = end

    @property
    def as_asyncio(self) -> asyncio.AbstractEventLoop:
        """Itself, for code that takes one of asyncio's; it has what that code uses."""
        return cast("asyncio.AbstractEventLoop", self)
