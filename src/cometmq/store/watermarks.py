"""How far the store is: positions in the commit log that only grow while it is open.

::

    begin … flushed … committed … appended          flushed <= committed <= appended
                      dispatched                     dispatched <= committed

``appended`` is the end of the log. ``committed`` is how far it may be read: the same, except with
the transient pool, where it follows. ``flushed`` is on disk, ``dispatched`` is in queues and index,
``confirmed`` is on as many replicas as asked for (moved by replication, outside the store).
"""

import heapq
import itertools
import threading
from collections.abc import Callable
from typing import Protocol


class Tail(Protocol):
    """Whoever knows where the log ends."""

    end: int


class _Fixed:
    """A log that does not grow."""

    __slots__ = ("end",)

    def __init__(self, end: int) -> None:
        self.end = end


class Watermarks:
    """The positions, and who waits for the disk.

    ``appended`` follows the log's tail, and so does ``committed`` without a pool. ``dispatched`` is
    moved by the owner thread, the others by whoever commits and flushes. Reading needs no lock.
    """

    __slots__ = (
        "_committed",
        "_condition",
        "_has_pool",
        "_numbers",
        "_tail",
        "_waiting",
        "confirmed",
        "dispatched",
        "failure",
        "flushed",
    )

    def __init__(self, end: int) -> None:
        # What the log has; a log of its own end until there is one.
        self._tail: Tail = _Fixed(end)
        # How far the transient pool is written to the log; not used without one.
        self._has_pool = False
        self._committed = end
        self.flushed = end
        self.dispatched = end
        self.confirmed = end
        # Why nothing will be flushed any more; empty while all is well.
        self.failure = ""
        # Guards `_waiting`, and wakes threads that wait.
        self._condition = threading.Condition()
        # Callbacks by the position they wait for, nearest first.
        self._waiting: list[tuple[int, int, Callable[[bool], None]]] = []
        # Breaks ties between them.
        self._numbers = itertools.count()

    def follow(self, tail: Tail, *, has_pool: bool) -> None:
        """Take the end of the log from ``tail``; with a pool ``committed`` stays behind it."""
        self._tail = tail
        self._has_pool = has_pool

    @property
    def appended(self) -> int:
        return self._tail.end

    @property
    def committed(self) -> int:
        return self._committed if self._has_pool else self._tail.end

    def move_committed(self, end: int) -> None:
        self._committed = end

    def when_flushed(self, end: int, callback: Callable[[bool], None]) -> None:
        """Call back with True once ``end`` is on disk, with False when it never will be.

        At once if that is known already, otherwise from ``release_waiting``.
        """
        with self._condition:
            if self.flushed < end and not self.failure:
                heapq.heappush(self._waiting, (end, next(self._numbers), callback))
                return
        callback(self.flushed >= end)

    def wait_flushed(self, end: int, timeout_seconds: float) -> bool:
        """Block until ``end`` is on disk; False when it is not in time or never will be."""
        with self._condition:
            self._condition.wait_for(lambda: self.flushed >= end or self.failure, timeout_seconds)
            return self.flushed >= end

    def move_flushed(self, end: int) -> None:
        """Everything before ``end`` is on disk. Threads that wait go on; callbacks do not yet."""
        with self._condition:
            assert end <= self.committed, (end, self.committed)
            self.flushed = max(self.flushed, end)
            self._condition.notify_all()

    def fail(self, reason: str) -> None:
        """Nothing will be flushed any more: whoever waits is told so."""
        with self._condition:
            self.failure = self.failure or reason
            self._condition.notify_all()

    def release_waiting(self) -> None:
        """Call back everybody whose position is on disk, or who waits in vain."""
        while True:
            with self._condition:
                if not self._waiting:
                    return
                is_flushed = self._waiting[0][0] <= self.flushed
                if not is_flushed and not self.failure:
                    return
                _, _, callback = heapq.heappop(self._waiting)
            callback(is_flushed)

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)
