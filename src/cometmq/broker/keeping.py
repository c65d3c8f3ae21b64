"""Saving tables while the broker works: on a thread, one document at a time, never too often.

Whoever changes a table calls the ``mark`` it got from ``Keeper.add``. The task ``run`` takes a
snapshot on the loop, where the table belongs, and writes it on a thread. Changes made meanwhile are
in the next snapshot, so any number of them cost one more save.

A document that cannot be saved is tried again for as long as the broker runs: until then the table
lives in memory, and whoever reads the log was told.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from cometmq import logs
from cometmq.clock import Clock, SystemClock

RETRY_MS: Final = 1000
"""Pause after a save that failed."""

_log = logs.get_logger("cometmq.broker")

T = TypeVar("T")
Saved = TypeVar("Saved", contravariant=True)


class Document(Protocol[Saved]):
    """What saving needs of a document; ``store.documents.ConfigDocument`` is one."""

    def save(self, value: Saved, /) -> None:
        """Replace the file; blocks, and raises ``OSError`` when it cannot."""
        ...


class _Entry(Generic[T]):
    """One document and when it is due."""

    def __init__(
        self, name: str, document: Document[T], snapshot: Callable[[], T], interval_ms: int | None
    ) -> None:
        self.name = name
        self.document = document
        self.snapshot = snapshot
        self.interval_s = (interval_ms or 0) / 1000
        self.is_marked = False
        # Monotonic time before which it is not saved, unless somebody cannot wait.
        self.rest_until = 0.0
        self.is_urgent = False
        # Why the last save failed; empty when it did not.
        self.problem = ""


class Keeper:
    """Saves documents soon after they were marked, and the last time when it is closed."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._entries: list[_Entry[Any]] = []
        self._is_marked = asyncio.Event()
        # Those who wait in ``settle``.
        self._waiting: list[asyncio.Future[None]] = []
        # The save under way: a thread cannot be called back, and saves must not overlap.
        self._saving: asyncio.Task[None] | None = None

    def add(
        self,
        name: str,
        document: Document[T],
        snapshot: Callable[[], T],
        *,
        interval_ms: int | None = None,
    ) -> Callable[[], None]:
        """Keep one more document, called ``name`` in the log; returns what marks it as changed.

        It is saved at once or, with ``interval_ms``, that long after the last save at the earliest.
        ``snapshot`` gives the value to save, which nobody may change afterwards.
        """
        entry = _Entry(name, document, snapshot, interval_ms)
        # With an interval changes are expected all the time: the first save waits for it as well.
        entry.rest_until = self._clock.monotonic() + entry.interval_s
        self._entries.append(entry)

        def mark() -> None:
            if not entry.is_marked:
                entry.is_marked = True
                self._is_marked.set()

        return mark

    async def run(self) -> None:
        """Save what is marked, for ever."""
        while True:
            pause_s = await self.step()
            try:
                async with asyncio.timeout(pause_s):
                    await self._is_marked.wait()
            except TimeoutError:
                pass

    async def step(self) -> float | None:
        """Save what is due; seconds until something is due again, None when nothing is marked."""
        self._is_marked.clear()
        waiting, self._waiting = self._waiting, []
        try:
            for entry in self._entries:
                if entry.is_marked and (
                    entry.is_urgent or entry.rest_until <= self._clock.monotonic()
                ):
                    await self._save(entry)
        finally:
            _release(waiting)
        times = [entry.rest_until for entry in self._entries if entry.is_marked]
        return max(min(times) - self._clock.monotonic(), 0.0) if times else None

    async def settle(self) -> None:
        """Wait until what is marked now and due has been saved, or tried in vain.

        For those who answer only then: a request to make a topic must outlive a crash.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._is_marked.set()
        await waiter

    async def settle_all(self) -> None:
        """The same with what would rest for a while yet.

        For those who took something away: it must not come back with a crash.
        """
        for entry in self._entries:
            entry.is_urgent = entry.is_marked
        await self.settle()

    def problem_of(self, name: str) -> str:
        """Why the last save of a document failed; empty when it did not.

        Whoever asks after ``settle`` learns whether what was marked before it is saved.
        """
        return next(entry.problem for entry in self._entries if entry.name == name)

    async def close(self) -> None:
        """Save everything marked a last time; ``run`` must have ended. Failures are logged.

        Each document gets its chance, whatever happens to the others.
        """
        bugs: list[Exception] = []
        if self._saving is not None and not self._saving.done():
            await self._saving
        for entry in self._entries:
            if entry.is_marked:
                try:
                    await self._save(entry)
                except Exception as bug:
                    bugs.append(bug)
        _release(self._waiting)
        if bugs:
            raise bugs[0]

    async def _save(self, entry: _Entry[Any]) -> None:
        # In a task of its own, shielded: when ``run`` is cancelled, its thread goes on.
        self._saving = asyncio.create_task(self._save_now(entry), name=f"save {entry.name}")
        await asyncio.shield(self._saving)
        self._saving = None

    async def _save_now(self, entry: _Entry[Any]) -> None:
        entry.is_marked = entry.is_urgent = False
        try:
            await asyncio.to_thread(entry.document.save, entry.snapshot())
        except OSError as error:
            entry.is_marked = True
            entry.rest_until = self._clock.monotonic() + RETRY_MS / 1000
            if not entry.problem:
                _log.error("document=%s cannot be saved, trying again: %s", entry.name, error)
            entry.problem = str(error) or type(error).__name__
        else:
            entry.rest_until = self._clock.monotonic() + entry.interval_s
            if entry.problem:
                entry.problem = ""
                _log.info("document=%s saved again", entry.name)


def _release(waiting: list[asyncio.Future[None]]) -> None:
    for waiter in waiting:
        if not waiter.done():
            waiter.set_result(None)
