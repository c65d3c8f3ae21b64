"""Calling handlers: as coroutines in a few tasks, or on a few threads.

Theory of operation. What is to be handled waits in a deque. Coroutines are run by as many tasks as
handlers may run at a time, plain functions by as many threads; each takes the next item, calls the
handler and says how it ended, again and again. One that finds nothing rests. Whoever takes an item
while more are left wakes one other, and only one is being woken at a time: a handler that never
waits has all its messages handled by one task or thread, one that does wait soon has all of them
at work. Threads say how handlers ended in a deque, too, which the loop empties in one go.

A handler may have its own task cancelled, which cannot be told from somebody who ends the loop: so
the task ends, and unless everything does another one takes its place.
"""

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

from cometmq import logs
from cometmq.clock import Clock
from cometmq.errors import InvalidArgument

_log = logs.get_logger("cometmq.client")

C = TypeVar("C")
"""What belongs to an item: its queue."""
Running = tuple[C, Any, float]
"""An item in work, with what belongs to it and when its handler began."""
Done = Callable[[C, Any, BaseException | None, float], None]
"""Told on the loop: what belongs to the item, the item, how it ended, how many seconds it took."""

SLICE_SECONDS: Final = 0.005
"""How long handlers that never wait may keep the loop from everything else."""


ENDING: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""What ends the program, or the task itself; anything else that a handler raises is its outcome."""


class Left(BaseException):
    """Nobody has said that a message is done: it stays for whoever has the queue next."""


class ThreadEnded(BaseException):
    """A user's function wanted to end its thread; what it raised would end the loop as well."""


class Runner(Protocol[C]):
    """Runs a handler for what is submitted, a bounded number at a time."""

    def submit(self, context: C, items: Iterable[Any]) -> None:
        """Have each of these handled; ``Done`` is called for each once."""
        ...

    async def call(self, item: Any) -> BaseException | None:
        """Have one handled now, beyond the bound; returns what it raised."""
        ...

    def withdraw(self, item: Any) -> None:
        """Have a call that waits for its handler return ``Left``; one that has begun goes on."""
        ...

    def discard(self, context: C) -> None:
        """Forget what still waits of this context, after telling of what has ended."""
        ...

    def running(self) -> list[Running[C]]:
        """What was submitted and is in work."""
        ...

    def owns_this_task(self) -> bool:
        """Whether the caller is a handler."""
        ...

    async def drain(self, seconds: float) -> None:
        """Take nothing more, and wait for handlers to end, for some time. The first step to end."""
        ...

    async def stop(self) -> None:
        """End all; handlers that still run are cancelled where that is possible."""
        ...


def is_outcome(error: BaseException) -> bool:
    """Whether what a user's function raised is its own business, asked where it was caught.

    It is not when this task was cancelled, or when everything is to end. But something that the
    function waited for may have been cancelled, which is its failure like any other.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or not task.cancelling()
    return not isinstance(error, ENDING)


def is_async(handler: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine."""
    call = getattr(handler, "__call__", None)  # noqa: B004  # its own method is wanted
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


class TaskRunner(Generic[C]):
    """For handlers that are coroutine functions."""

    def __init__(
        self,
        handler: Callable[[Any], Awaitable[object]],
        *,
        concurrency: int,
        on_done: Done[C],
        clock: Clock,
    ) -> None:
        self._handler = handler
        self._on_done = on_done
        self._monotonic = clock.monotonic
        self._loop = asyncio.get_running_loop()
        self._ready: deque[tuple[C, Any]] = deque()
        self._idle: list[asyncio.Future[None]] = []  # one of each worker that rests
        self._is_waking = False
        self._slots: list[Running[C] | None] = [None] * concurrency
        self._calls = 0  # under way
        self._callers: set[asyncio.Task[Any]] = set()
        self._rest: asyncio.Future[None] | None = None  # done when nothing is in work
        self._is_closing = False  # nothing is begun any more
        self._is_stopping = False
        self._interrupted: set[int] = set()  # workers whose task was cancelled inside of a handler
        self._workers: list[asyncio.Task[None]] = [
            self._worker(number) for number in range(concurrency)
        ]

    def submit(self, context: C, items: Iterable[Any]) -> None:
        if self._is_closing:
            return
        self._ready.extend([(context, item) for item in items])
        if not self._is_waking:
            self._wake()

    async def call(self, item: Any) -> BaseException | None:
        if self._is_closing:
            return Left()
        self._calls += 1
        task = asyncio.current_task()
        assert task is not None
        self._callers.add(task)
        try:
            return await _awaited(self._handler, item)
        finally:
            self._callers.discard(task)
            self._calls -= 1
            self._rested()

    def withdraw(self, item: Any) -> None:
        """Calls begin at once here."""

    def discard(self, context: C) -> None:
        _discard(self._ready, context)

    def running(self) -> list[Running[C]]:
        return [slot for slot in self._slots if slot is not None]

    def owns_this_task(self) -> bool:
        task = asyncio.current_task()
        return task in self._workers or task in self._callers

    async def drain(self, seconds: float) -> None:
        self._is_closing = True
        self._ready.clear()
        if self._calls or any(self._slots):
            self._rest = self._loop.create_future()
            await asyncio.wait((self._rest,), timeout=seconds)

    async def stop(self) -> None:
        self._is_closing = self._is_stopping = True
        self._ready.clear()
        own = asyncio.current_task()
        others = [task for task in (*self._workers, *self._callers) if task is not own]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=1)

    def _worker(self, number: int) -> asyncio.Task[None]:
        worker = self._loop.create_task(self._work_on(number), name=f"handler {number}")
        worker.add_done_callback(lambda _: self._replace(number))
        return worker

    def _replace(self, number: int) -> None:
        if number in self._interrupted and not self._is_stopping:
            self._workers[number] = self._worker(number)
        self._interrupted.discard(number)

    def _wake(self) -> None:
        while self._idle:
            future = self._idle.pop()
            if not future.done():
                self._is_waking = True
                future.set_result(None)
                return

    def _rested(self) -> None:
        rest = self._rest
        if rest is not None and not rest.done() and not self._calls and not any(self._slots):
            rest.set_result(None)

    async def _work_on(self, number: int) -> None:
        while not self._is_stopping:
            try:
                await self._work(number)
            except Exception:  # none of the handler's: those are outcomes
                _log.exception("what a handler left could not be processed, going on")

    async def _work(self, number: int) -> None:
        ready, slots, idle = self._ready, self._slots, self._idle
        handler, monotonic, on_done = self._handler, self._monotonic, self._on_done
        slice_began = began = monotonic()
        while not self._is_stopping:
            if not ready:
                if self._rest is not None:
                    self._rested()
                future: asyncio.Future[None] = self._loop.create_future()
                idle.append(future)
                await future
                self._is_waking = False
                slice_began = began = monotonic()
                continue
            context, item = ready.popleft()
            if ready and idle and not self._is_waking:
                self._wake()
            slots[number] = (context, item, began)
            error: BaseException | None = None
            try:
                await handler(item)
            except Exception as raised:
                error = raised
            except (asyncio.CancelledError, Left) as raised:
                if asyncio.current_task().cancelling():  # type: ignore[union-attr]  # we are one
                    self._interrupted.add(number)
                    on_done(context, item, raised, monotonic() - began)
                    raise
                error = raised
            except ENDING:
                raise
            except BaseException as raised:  # such as the panic of a native library
                error = raised
            finally:
                slots[number] = None
            ended = monotonic()
            on_done(context, item, error, ended - began)
            began = ended
            if ended - slice_began > SLICE_SECONDS:
                await asyncio.sleep(0)
                slice_began = began = monotonic()


class ThreadRunner(Generic[C]):
    """For handlers that are plain functions; they never run on the loop's thread."""

    def __init__(
        self, handler: Callable[[Any], object], *, concurrency: int, on_done: Done[C], clock: Clock
    ) -> None:
        self._handler = handler
        self._on_done = on_done
        self._monotonic = clock.monotonic
        self._loop = asyncio.get_running_loop()
        self._ready: deque[tuple[Any, Any]] = deque()
        self._ended: deque[tuple[Any, Any, BaseException | None, float]] = deque()
        self._is_collecting = False  # the loop was asked to empty ``_ended``
        self._idle: deque[threading.Lock] = deque()  # one of each thread that rests
        self._is_waking = False
        self._is_closing = False
        self._is_stopping = False
        # True for a thread that is about to take something: it must not be taken for one at rest.
        self._slots: list[Running[Any] | bool] = [False] * concurrency
        self._rest: asyncio.Future[None] | None = None
        self._threads = [
            threading.Thread(
                target=self._work, args=(number,), name=f"cometmq-handler-{number}", daemon=True
            )
            for number in range(concurrency)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, context: C, items: Iterable[Any]) -> None:
        if self._is_closing:
            return
        self._ready.extend([(context, item) for item in items])
        if not self._is_waking:
            self._wake()

    async def call(self, item: Any) -> BaseException | None:
        if self._is_closing:
            return Left()
        future: asyncio.Future[BaseException | None] = self._loop.create_future()
        self._ready.appendleft((future, item))
        if not self._is_waking:
            self._wake()
        return await future

    def withdraw(self, item: Any) -> None:
        """There are as many threads as calls: they begin soon."""

    def discard(self, context: C) -> None:
        _discard(self._ready, context)
        self._collect()

    def running(self) -> list[Running[C]]:
        found = [slot for slot in self._slots if not isinstance(slot, bool)]
        return [slot for slot in found if not isinstance(slot[0], asyncio.Future)]

    def owns_this_task(self) -> bool:
        return False  # handlers are not tasks

    async def drain(self, seconds: float) -> None:
        self._is_closing = True
        self._discard()
        self._rest = self._loop.create_future()  # before looking: threads do it the other way round
        self._collect()
        await asyncio.wait((self._rest,), timeout=seconds)

    async def stop(self) -> None:
        self._is_closing = self._is_stopping = True
        self._discard()
        while self._idle:
            self._idle.pop().release()
        # A handler that hangs keeps its thread, which ends with the process.
        busy = sum(not isinstance(slot, bool) for slot in self._slots)
        if busy:
            _log.warning("%d handlers still run; what they say is ignored", busy)

    def _discard(self) -> None:
        while self._ready:
            context, _ = self._ready.popleft()
            if isinstance(context, asyncio.Future) and not context.done():
                context.set_result(Left())

    def _wake(self) -> None:
        """From any thread."""
        self._is_waking = True
        try:
            self._idle.pop().release()
        except IndexError:
            self._is_waking = False

    def _collect(self) -> None:
        """On the loop: take what threads have left."""
        self._is_collecting = False
        ended, on_done = self._ended, self._on_done
        while ended:
            context, item, error, seconds = ended.popleft()
            if isinstance(context, asyncio.Future):
                if not context.done():
                    context.set_result(error)
                continue
            try:
                on_done(context, item, error, seconds)
            except Exception:
                _log.exception("what a handler left could not be processed, going on")
        rest = self._rest
        if rest is not None and not rest.done() and not any(self._slots):
            rest.set_result(None)

    def _work(self, number: int) -> None:
        ready, slots, monotonic, handler = self._ready, self._slots, self._monotonic, self._handler
        nap = threading.Lock()
        nap.acquire()
        while not self._is_stopping:
            slots[number] = True
            try:
                context, item = ready.popleft()
            except IndexError:
                slots[number] = False
                if self._rest is not None:
                    self._tell()
                self._sleep(nap)
                continue
            if ready and not self._is_waking:
                self._wake()
            began = monotonic()
            slots[number] = (context, item, began)
            error: BaseException | None = None
            try:
                result = handler(item)
                if result is not None and inspect.isawaitable(result):
                    raise _not_a_coroutine(handler, result)
            except BaseException as raised:
                error = raised
            self._ended.append((context, item, error, monotonic() - began))
            slots[number] = False
            if not self._is_collecting:
                self._is_collecting = True
                self._tell()

    def _sleep(self, nap: threading.Lock) -> None:
        """Until woken; ``nap`` is in ``_idle`` exactly while nobody has taken it to wake us."""
        self._idle.append(nap)
        if self._ready or self._is_stopping:
            try:
                self._idle.remove(nap)
            except ValueError:
                pass  # somebody wakes us right now
            else:
                return
        nap.acquire()
        self._is_waking = False

    def _tell(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._collect)
        except RuntimeError:  # the loop was closed under us: nobody listens any more
            self._is_stopping = True


def _discard(ready: deque[tuple[Any, Any]], context: Any) -> None:
    """Threads may take from it meanwhile."""
    for _ in range(len(ready)):
        try:
            entry = ready.popleft()
        except IndexError:
            return
        if entry[0] is not context:
            ready.append(entry)


async def _awaited(handler: Callable[[Any], Awaitable[object]], item: Any) -> BaseException | None:
    try:
        await handler(item)
    except BaseException as error:
        if not is_outcome(error):
            raise
        return error
    return None


def _not_a_coroutine(handler: Callable[..., Any], result: Any) -> InvalidArgument:
    close = getattr(result, "close", None)
    if close is not None:
        close()
    name = getattr(handler, "__qualname__", type(handler).__name__)
    fact = f"{name} is a plain function that returns something to be awaited"
    return InvalidArgument("handler", fact, "write it as 'async def'")
