"""Where the callbacks of futures run: on a few threads, never on the client's own.

A callback that waits for something, or calls the client, would stop the loop that it waits for.
The threads are daemons: a program may end while a callback hangs.
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from cometmq import logs

_log = logs.get_logger("cometmq.client")

THREADS_MAX = 4
THREAD_NAME = "cometmq-callbacks"
BACKLOG_MAX = 10_000
"""Of callbacks for what was over already; who comes then runs it by himself."""

Job = Callable[[], object]
_here = threading.local()
"""Whose thread this is."""

A = TypeVar("A")
T = TypeVar("T")


class CallbackThreads:
    """Starts a thread when there is something to do and nobody is free, up to ``threads_max``."""

    def __init__(self, threads_max: int = THREADS_MAX) -> None:
        self._threads_max = threads_max
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.RLock()  # the handler of a signal may submit while we do
        self._free_count = 0  # threads for which no job waits
        self._behind_count = 0  # jobs that no thread has been found for
        self._is_closed = False

    @property
    def is_current(self) -> bool:
        """Whether this is one of the threads."""
        return getattr(_here, "owner", None) is self

    @property
    def has_room(self) -> bool:
        return self._jobs.qsize() < BACKLOG_MAX

    def submit(self, job: Job) -> None:
        """Run it soon; when everything is over it is run here and now, rather than never."""
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._jobs.put(job)
                self._find_thread()
        if is_closed:
            _run(job)

    def close(self, timeout_ms: int) -> None:
        """Let the callbacks that wait run, for as long as that; may be called again."""
        with self._lock:
            self._is_closed = True
            threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        deadline = time.monotonic() + timeout_ms / 1000
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _find_thread(self) -> None:
        if self._free_count:
            self._free_count -= 1
            return
        if len(self._threads) >= self._threads_max:
            self._behind_count += 1
            return
        name = f"{THREAD_NAME}-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        _here.owner = self
        while (job := self._jobs.get()) is not None:
            try:
                _run(job)
            except BaseException:  # such as SystemExit: others wait for this thread
                _log.exception("a callback wanted to end its thread")
            with self._lock:
                if self._behind_count:
                    self._behind_count -= 1
                else:
                    self._free_count += 1

    async def call(self, function: Callable[[A], T], argument: A) -> T:
        """For the loop: what a function returns or raises on one of the threads."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                result = function(argument)
            except Exception as error:
                tell(future.set_exception, error)
            except BaseException as error:  # raised on the loop it would end everything
                told = RuntimeError(f"{function!r} wanted to end its thread: {error!r}")
                told.__cause__ = error
                tell(future.set_exception, told)
            else:
                tell(future.set_result, result)

        def tell(setter: Callable[[Any], None], outcome: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(lambda: None if future.done() else setter(outcome))

        self.submit(job)
        return await future


def _run(job: Job) -> None:
    try:
        job()
    except Exception:
        _log.exception("a callback failed")
