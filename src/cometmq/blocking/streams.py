"""An async iterator as a plain one."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Generic, Self, TypeVar

from cometmq.blocking.member import Threads
from cometmq.errors import InvalidArgument

T = TypeVar("T")


class Stream(Iterator[T], Generic[T]):
    """Asks for one thing after the other, each in a call of its own, and waits as long as it takes.

    Whoever was interrupted may ask again. A generator that had to wait then has ended, as always
    when something is raised inside. ``owner`` lives as long as it is used.
    """

    def __init__(self, owner: object, threads: Threads, source: AsyncIterator[T]) -> None:
        self.owner = owner
        self._threads = threads
        self._source = source
        self._unseen: list[T] = []  # what came for a caller that may not have got it
        self._is_closed = False
        self._task: asyncio.Task[object] | None = None  # on the loop: that asks for the next thing
        self.used_by = 0  # the thread that asked last
        self._asking = threading.Lock()  # held while somebody waits for the next thing
        threads.streams.add(self)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if not self._asking.acquire(blocking=False):
            # Nobody would know any more whose message the next question acknowledges.
            fact = "another thread waits for the next one here"
            raise InvalidArgument("iterator", fact, "let each thread call iter() for its own")
        try:
            self.used_by = threading.get_ident()
            found = self._threads.call(self._next(), None)
            self._unseen.clear()
            return found
        except StopAsyncIteration:
            raise StopIteration from None
        finally:
            self._asking.release()

    def close(self) -> None:
        """Ask no more; may be called again. Who waits for the next thing gets none."""
        self._unseen.clear()
        if self._threads.loop.is_running:
            self._threads.call(self._close())

    async def _next(self) -> T:
        """On the loop: the next thing, or the one for which nobody was there any more (Ctrl-C)."""
        # A question that was interrupted may not have ended yet; sources take one at a time.
        while self._task is not None:
            await asyncio.wait((self._task,))
        if self._is_closed:
            raise StopAsyncIteration
        if not self._unseen:
            self._task = asyncio.current_task()
            try:
                self._unseen.append(await anext(self._source))
            except asyncio.CancelledError:
                if self._is_closed:
                    raise StopAsyncIteration from None
                raise
            finally:
                self._task = None
        return self._unseen[0]

    async def _close(self) -> None:
        self._is_closed = True
        # A question may still be under way: of another thread, or of one that was interrupted and
        # has not ended yet. A generator cannot be closed before that.
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        close = getattr(self._source, "aclose", None)
        if close is not None:
            await close()
