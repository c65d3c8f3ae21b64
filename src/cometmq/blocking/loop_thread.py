"""The one thread of a blocking client: an event loop, and calls into it from other threads.

Theory of operation. A call is put into ``_waiting`` and the loop is woken; the loop takes all that
wait at once and makes a task of each. Only the first call after that wakes it again, so that many
threads (or many sends of one) cost one wake-up together. The caller waits for a lock that the task
releases in the end. Whatever becomes of the loop, nobody waits for ever: a call has a bound, and
while it waits it looks now and then whether the thread is still there.
"""

import asyncio
import atexit
import contextlib
import contextvars
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from cometmq import logs
from cometmq.client.life import Life
from cometmq.errors import NotRunning
from cometmq.remoting.running import loop_factory

_log = logs.get_logger("cometmq.client")

T = TypeVar("T")

THREAD_NAME = "cometmq-client"
GRACE_MS = 10_000
"""Beyond what a call may take by itself; only a loop that something blocks gets that far."""
CALL_MS_MAX = 60_000
"""For calls whose own limits are many small ones."""
JOIN_SECONDS_MAX = 5
EXIT_SECONDS_MAX = 2
"""What the threads of clients that nobody closed get when the interpreter exits."""
FAREWELL_SECONDS_MAX = 1
"""What sends and handlers get of that."""

LOOK_SECONDS = 0.1
"""How often a waiting caller looks up: on Windows nothing interrupts a thread that waits for a
lock, and elsewhere Ctrl-C may come just before it begins to wait."""

_running: "weakref.WeakSet[LoopThread]" = weakref.WeakSet()


class Waiting(Protocol):
    """Something that is to be done on the loop."""

    work: Coroutine[Any, Any, Any]
    task: "asyncio.Task[None] | None"
    context: contextvars.Context
    """That of whoever asks for it: the loop is woken by one of several."""

    async def run(self) -> None:
        """Do it; raises nothing, also when it is cancelled."""
        ...

    def refuse(self, error: Exception) -> None:
        """It will not be done."""
        ...


class Call(Generic[T]):
    """One call into the loop, and how it ended."""

    __slots__ = ("_error", "_is_over", "_result", "context", "task", "work")

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.work = work
        self.task: asyncio.Task[None] | None = None  # once the loop has taken it
        self.context = contextvars.copy_context()
        self._result: T
        self._error: BaseException | None = None
        self._is_over = threading.Lock()
        self._is_over.acquire()

    async def run(self) -> None:
        try:
            self._result = await self.work
        except asyncio.CancelledError as cancelled:
            self._error = NotRunning("this call", "was ended, because the client is being closed")
            for note in getattr(cancelled, "__notes__", ()):  # such as what is not known of a send
                self._error.add_note(note)
        except BaseException as error:
            self._error = error
        self._is_over.release()

    def refuse(self, error: Exception) -> None:
        self.work.close()
        self._error = error
        self._is_over.release()

    def is_over_within(self, seconds: float) -> bool:
        return self._is_over.acquire(timeout=seconds)

    def outcome(self) -> T:
        """What it returned or raised; for once, when it is over."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # it holds this frame, and this frame holds it
        return self._result


class LoopThread:
    """An event loop in a daemon thread; ``life`` is that of the client it works for.

    ``close`` is how that client is closed, ``hang_up`` what must be done without it.
    """

    def __init__(
        self,
        life: Life,
        name: str = THREAD_NAME,
        *,
        close: Callable[[], Coroutine[Any, Any, None]] | None = None,
        hang_up: Callable[[], None] | None = None,
    ) -> None:
        self._life = life
        self._close = close
        self._hang_up = hang_up
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._is_ready = threading.Event()
        self.is_over = False
        self.is_hurried = False  # somebody was interrupted twice: wait for nothing any more
        self._is_woken = False  # the loop will look at what waits
        self._waiting: deque[Waiting] = deque()
        self._tasks: dict[asyncio.Task[None], Waiting] = {}
        self._farewell_seconds = 0.0  # to close the client before the loop ends; 0 is not at all
        self._loop: asyncio.AbstractEventLoop  # once it is ready
        self._end: asyncio.Event

    def start(self) -> None:
        """Raises NotRunning when it was started before."""
        if self._life.is_foreign:
            raise self._life.refusal()
        if self._is_ready.is_set():
            problem = f"{self._life.state.value} and cannot be started"
            raise NotRunning(self._life.what, problem, "make a new one")
        self._thread.start()
        self._is_ready.wait()
        _running.add(self)

    @property
    def is_current(self) -> bool:
        """Whether this is the thread itself."""
        return threading.current_thread() is self._thread

    @property
    def is_running(self) -> bool:
        """Whether calls can be made."""
        return self._is_ready.is_set() and not self.is_over

    @property
    def is_foreign(self) -> bool:
        """Whether it is the parent's, of which a forked process has a copy that does not run."""
        return self._life.is_foreign

    def call(self, work: Coroutine[Any, Any, T], bound_ms: int | None = CALL_MS_MAX) -> T:
        """What a coroutine returns or raises when it runs on the loop.

        Raises NotRunning when it cannot run, or does not end within ``bound_ms``. None is for ever.
        A caller that is interrupted cancels it.
        """
        call = Call(work)
        try:
            self.begin(call)
            return self.wait(call, bound_ms)
        except BaseException:
            self.cancel(call)
            raise

    def begin(self, waiting: Waiting) -> None:
        """Let something run soon. Raises NotRunning when nothing runs here any more."""
        try:
            self.require()
        except NotRunning:
            waiting.work.close()
            raise
        self._waiting.append(waiting)
        if not self._is_woken:
            self._is_woken = True
            self.wake()
        if self.is_over:
            self._refuse_rest()

    def wait(self, call: Call[T], bound_ms: int | None = None) -> T:
        """Wait for a call that has begun."""
        left = math.inf if bound_ms is None else bound_ms / 1000
        while not call.is_over_within(min(left, LOOK_SECONDS)):
            left -= LOOK_SECONDS
            if not self._thread.is_alive():
                if call.is_over_within(0):  # since the last look; there is only one such answer
                    break
                raise NotRunning("this client", "has lost its thread", "make a new one")
            if call.task is None:  # whoever should have woken the loop was interrupted
                self.wake()
            if left <= 0:
                problem = f"has not finished a call within {bound_ms} ms"
                raise NotRunning("this client", problem, f"what blocks the thread {THREAD_NAME}?")
        return call.outcome()

    def cancel(self, call: Call[Any]) -> None:
        """Let a call end, if it has not; nobody waits for it any more."""

        def cancel() -> None:
            self._take()
            if call.task is not None:
                call.task.cancel()

        if self._life.is_foreign or not self._is_ready.is_set():
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the call
            self._loop.call_soon_threadsafe(cancel)

    def stop(self) -> None:
        """End the loop with everything that runs on it, and wait for the thread."""
        self.stop_soon()
        if not self.is_current:
            self._thread.join(JOIN_SECONDS_MAX)

    def stop_soon(self, farewell_seconds: float = 0.0) -> None:
        """The same without waiting; the client is closed before, if it may take some time."""
        self._farewell_seconds = farewell_seconds
        with contextlib.suppress(RuntimeError):  # it is closed already
            self._loop.call_soon_threadsafe(self._end.set)

    def leave(self) -> None:
        """Nobody has closed the client, and the interpreter exits: say so, and make haste."""
        with contextlib.suppress(ResourceWarning):  # filters made it an error, too late for that
            self._life.warn_if_leaked(None)
        self.stop_soon(FAREWELL_SECONDS_MAX)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    # --- on the loop's thread

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._live())
        except Exception:
            _log.exception("the thread %s died", THREAD_NAME)
        finally:
            self.is_over = True
            self._is_ready.set()
            self._refuse_rest()

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._is_ready.set()
        await self._end.wait()
        try:
            if self._close is not None and self._farewell_seconds:
                async with asyncio.timeout(self._farewell_seconds):
                    await self._close()
        except TimeoutError:
            pass  # what is not done by now is not done
        finally:
            if self._hang_up is not None:
                self._hang_up()
                await asyncio.sleep(0)  # transports say good-bye on the loop's next turn

    def _take(self) -> None:
        self._is_woken = False  # first: who comes from now on wakes the loop again
        while self._waiting:
            waiting = self._waiting.popleft()
            task = self._loop.create_task(waiting.run(), context=waiting.context)
            waiting.task = task
            self._tasks[task] = waiting
            task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        waiting = self._tasks.pop(task)
        if task.cancelled():  # before it has begun; else ``run`` has said how it ended
            waiting.refuse(NotRunning("this call", "was ended before it began"))

    # --- on any thread

    def require(self) -> None:
        """Raise NotRunning unless a call can be made here and now."""
        if self._life.is_foreign:
            raise self._life.refusal()
        if self.is_over or not self._is_ready.is_set():
            raise self._life.refusal()
        if self.is_current:
            problem = "was called on the client's own thread, where it would wait for itself"
            raise NotRunning("a blocking call", problem, "call it on another thread")

    def wake(self) -> None:
        """Let the loop look at what waits."""
        with contextlib.suppress(RuntimeError):  # closed meanwhile: ``begin`` notices
            self._loop.call_soon_threadsafe(self._take)

    def _refuse_rest(self) -> None:
        while True:
            try:
                waiting = self._waiting.popleft()
            except IndexError:
                return
            waiting.refuse(NotRunning("this client", "is closed", "make a new one"))


def _stop_all() -> None:
    """At exit: a thread in the middle of something must not meet an interpreter that is gone."""
    threads = tuple(thread for thread in _running if not thread.is_foreign)
    for thread in threads:
        thread.leave()
    deadline = time.monotonic() + EXIT_SECONDS_MAX
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


atexit.register(_stop_all)
