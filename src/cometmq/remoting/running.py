"""Running a server program: the event loop, its background tasks, and a clean end on a signal."""

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from cometmq import logs
from cometmq.errors import CometError
from cometmq.settings import Bundle

_log = logs.get_logger("cometmq.remoting")

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class BackgroundTaskDied(CometError):
    """A task that should run as long as the program has ended with ``error``."""

    def __init__(self, name: str, error: BaseException) -> None:
        super().__init__(name, error)
        self.name = name
        self.error = error
        self.fact = f"background task '{name}' died: {type(error).__name__}: {error}"


class Background:
    """Tasks that run as long as their program; one that dies takes the program down, loudly.

    A task that watches over another program may raise BackgroundTaskDied itself: that is told as
    it stands, and not logged, since it is no fault in here.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._died: asyncio.Future[BackgroundTaskDied] | None = None

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run ``work`` until ``stop``; it may end by itself, but not with an exception."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def wait_for_death(self) -> BackgroundTaskDied:
        """Wait until a task has died, which should be for ever."""
        if self._died is None:
            self._died = asyncio.get_running_loop().create_future()
        return await self._died

    async def stop(self) -> None:
        """Cancel all tasks and wait until they are gone."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not isinstance(error, BackgroundTaskDied):
            _log.error("background task '%s' died", task.get_name(), exc_info=error)
            error = BackgroundTaskDied(task.get_name(), error)
        if self._died is None:
            self._died = asyncio.get_running_loop().create_future()
        if not self._died.done():
            self._died.set_result(error)


class Service(Protocol):
    """A server program, as far as running it is concerned."""

    @property
    def background(self) -> Background: ...

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """Also called when ``start`` has failed half-way."""
        ...


def say_what_has_no_effect(config: Bundle, log: logging.Logger) -> None:
    """Name the settings that nobody knows, and those that change nothing here."""
    review = config.review()
    for unknown in review.unknown:
        log.warning("%s", unknown)
    if review.without_effect:
        log.info("settings without effect here: %s", ", ".join(sorted(review.without_effect)))


def run(build: Callable[[], Service]) -> None:
    """Build a service on a fresh loop, run it until SIGTERM or SIGINT, and stop it cleanly.

    Raises what ``start`` raises, and BackgroundTaskDied when a task of the service dies.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(build))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop where it can be imported, else asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def _run(build: Callable[[], Service]) -> None:
    loop = asyncio.get_running_loop()
    stop_asked: asyncio.Future[int] = loop.create_future()

    def ask(number: int) -> None:
        if not stop_asked.done():
            stop_asked.set_result(number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, ask, number)
    service = build()
    try:
        await service.start()
        _calm_collector()
        await _first(stop_asked, service.background)
    finally:
        await service.stop()


def _calm_collector() -> None:
    """Make the garbage collector's pauses rare and short.

    What was made while starting lives as long as the process, so it is taken out of the count. A
    server makes many objects that live long (routes, clients) and few cycles: with Python's own
    thresholds, ten thousand topics that register cost a full collection of 17 ms in between.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


async def _first(stop_asked: "asyncio.Future[int]", background: Background) -> None:
    death = asyncio.ensure_future(background.wait_for_death())
    either: list[asyncio.Future[Any]] = [stop_asked, death]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if death.done():
        raise death.result()
    death.cancel()
    _log.info("stopping: got %s", signal.Signals(stop_asked.result()).name)
