"""Callbacks that are called for each queue of a topic again and again, as long as it is ours."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from numbers import Real
from typing import TypeAlias

from cometmq import logs
from cometmq.client.core.names import unwrap_queue
from cometmq.client.core.settings import PullSettings
from cometmq.client.handler_runner import is_outcome
from cometmq.model.offsets import MessageQueue

_log = logs.get_logger("cometmq.client")

PullCallback: TypeAlias = Callable[[MessageQueue], Awaitable[int | None]]
"""Pulls from a queue once; returns after how many ms it is to be called again, None for usual."""


class _Entry:
    """One queue of a scheduled topic."""

    __slots__ = ("cancelled", "task")

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()  # the call under way is the last
        self.task: asyncio.Task[None] | None = None


class ScheduledPull:
    """Who is called, for which queues, never twice at a time for one of them.

    Topics and queues are as on the wire, callbacks get them without ``namespace``. At most
    ``concurrency`` calls are under way.
    """

    def __init__(self, settings: PullSettings, namespace: str) -> None:
        self._settings = settings
        self._namespace = namespace
        self._turns = asyncio.Semaphore(settings.concurrency)
        self._callbacks: dict[str, PullCallback] = {}  # by topic
        self._entries: dict[MessageQueue, _Entry] = {}

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(self._callbacks)

    def schedule(
        self, topic: str, callback: PullCallback, queues: Iterable[MessageQueue] = ()
    ) -> None:
        """Call this for each queue of a topic, at first for ``queues``, instead of another one."""
        self._callbacks[topic] = callback
        self.update(topic, queues)

    def unschedule(self, topic: str) -> None:
        """Call nobody for this topic any more; calls under way end by themselves."""
        self._callbacks.pop(topic, None)
        self.update(topic, ())

    def update(self, topic: str, queues: Iterable[MessageQueue]) -> None:
        """These are the queues of a topic now: calls for new ones begin, for others they end."""
        wanted = set(queues) if topic in self._callbacks else set()
        for queue, entry in self._entries.items():
            if queue.topic == topic and queue not in wanted:
                entry.cancelled.set()
        for queue in sorted(wanted):
            entry = self._entries.get(queue) or self._begin(queue)
            entry.cancelled.clear()

    @property
    def owns_this_task(self) -> bool:
        """Whether it is a scheduled call that asks."""
        task = asyncio.current_task()
        return any(entry.task is task for entry in self._entries.values())

    async def stop(self, timeout_ms: int) -> None:
        """Let calls under way end, and cancel those that do not in time; not who calls this."""
        for entry in self._entries.values():
            entry.cancelled.set()
        me = asyncio.current_task()
        tasks = [e.task for e in self._entries.values() if e.task is not None and e.task is not me]
        if not tasks:
            return
        try:
            await asyncio.wait(tasks, timeout=timeout_ms / 1000)
        finally:  # also when somebody does not want to wait any longer
            late = [task for task in tasks if not task.done()]
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _begin(self, queue: MessageQueue) -> _Entry:
        entry = self._entries[queue] = _Entry()
        work = self._run(queue, entry)
        entry.task = asyncio.get_running_loop().create_task(work, name=f"scheduled {queue}")
        return entry

    async def _run(self, queue: MessageQueue, entry: _Entry) -> None:
        try:
            while not entry.cancelled.is_set():
                async with self._turns:
                    callback = self._callbacks.get(queue.topic)
                    if callback is None or entry.cancelled.is_set():
                        return  # while others had their turn
                    pause_ms = await self._call(callback, queue)
                await _rest(entry, pause_ms)
        finally:
            del self._entries[queue]

    async def _call(self, callback: PullCallback, queue: MessageQueue) -> float:
        try:
            pause_ms = await callback(unwrap_queue(self._namespace, queue))
            return self._settings.schedule_pause_ms if pause_ms is None else _checked(pause_ms)
        except BaseException as error:
            if not is_outcome(error):
                raise
            _log.exception("queue=%s a scheduled pull failed, trying again", queue)
            return self._settings.schedule_failure_pause_ms


def _checked(pause_ms: object) -> float:
    """What a callback returned: it would end its queue, or keep it busy, if it were no number."""
    number = float(pause_ms) if isinstance(pause_ms, Real) else math.nan
    if type(pause_ms) is bool or not math.isfinite(number):
        raise TypeError(f"it returned {pause_ms!r}, which is no number of milliseconds (or None)")
    return max(0.0, number)


async def _rest(entry: _Entry, pause_ms: float) -> None:
    try:
        async with asyncio.timeout(pause_ms / 1000):
            await entry.cancelled.wait()
    except TimeoutError:
        pass
