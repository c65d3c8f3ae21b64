"""Senders that wait until their messages are safe, and how long they wait at most."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from cometmq.remoting.alarm import Alarm

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from cometmq.store.watermarks import Watermarks


class _Wait:
    """Messages whose senders are answered together."""

    __slots__ = ("count", "deadline", "release")

    def __init__(self, count: int, deadline: float, release: Callable[[bool], None]) -> None:
        self.count = count
        self.deadline = deadline
        # Whom to tell; None when that is done.
        self.release: Callable[[bool], None] | None = release


class Durability:
    """Knows who waits for the disk. All waits have the same length, so they end in order."""

    def __init__(
        self,
        marks: Watermarks,
        loop: asyncio.AbstractEventLoop,
        *,
        timeout_ms: int,
        waiting_max: int,
    ) -> None:
        self._marks = marks
        self._loop = loop
        self._timeout_seconds = timeout_ms / 1000
        self._waiting_max = waiting_max
        self._waits: collections.deque[_Wait] = collections.deque()
        self._alarm = Alarm(loop)
        # Messages that wait.
        self.waiting_count = 0

    @property
    def is_full(self) -> bool:
        """Whether so many wait that no more should be taken."""
        return self.waiting_count >= self._waiting_max

    def after(self, end: int, count: int, release: Callable[[bool], None]) -> None:
        """Call back with True once the log is on disk up to ``end``, with False when it takes
        too long or never will be; perhaps at once.
        """
        wait = _Wait(count, self._loop.time() + self._timeout_seconds, release)
        self.waiting_count += count
        self._waits.append(wait)
        self._marks.when_flushed(end, lambda is_flushed: self._end(wait, is_flushed=is_flushed))
        if wait.release is not None:
            self._alarm.set(wait.deadline, self._expire)

    def close(self) -> None:
        """Tell everybody who still waits that it was in vain."""
        self._alarm.cancel()
        for wait in list(self._waits):
            self._end(wait, is_flushed=False)
        self._waits.clear()

    def _end(self, wait: _Wait, *, is_flushed: bool) -> None:
        release, wait.release = wait.release, None
        if release is not None:
            self.waiting_count -= wait.count
            self._forget_ended()
            release(is_flushed)

    def _expire(self) -> None:
        now = self._loop.time()
        while self._waits and self._waits[0].deadline <= now:
            self._end(self._waits[0], is_flushed=False)
        if self._waits:
            self._alarm.set(self._waits[0].deadline, self._expire)

    def _forget_ended(self) -> None:
        while self._waits and self._waits[0].release is None:
            self._waits.popleft()
