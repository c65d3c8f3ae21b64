"""Work that a client does by itself, again and again: a failure is logged and stops nothing."""

import asyncio
from collections.abc import Awaitable, Callable

from cometmq import logs
from cometmq.errors import CometError
from cometmq.remoting.running import Background

_log = logs.get_logger("cometmq.client")


class Repeater:
    """Does something at intervals, and at once when it is woken. Never twice at a time.

    ``gap_ms`` is the least time between two ends and begins, however often it is woken.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], Awaitable[object]],
        *,
        interval_ms: int,
        first_ms: int | None = None,
        gap_ms: int = 0,
    ) -> None:
        self._name = name
        self._work = work
        self._interval = interval_ms / 1000
        self._first = (interval_ms if first_ms is None else first_ms) / 1000
        self._gap = gap_ms / 1000
        self._woken = asyncio.Event()
        self._complaint = ""  # logged last, so that a lasting problem is one line

    def wake(self) -> None:
        """Do it soon."""
        self._woken.set()

    def start(self, background: Background) -> None:
        background.spawn(self._name, self._run())

    async def _run(self) -> None:
        pause = self._first
        while True:
            try:
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()
            await self._once()
            if self._gap:
                await asyncio.sleep(self._gap)
            pause = self._interval

    async def _once(self) -> None:
        try:
            await self._work()
            self._complaint = ""
        except CometError as error:
            if error.fact != self._complaint:  # what to do next may count seconds
                self._complaint = error.fact
                _log.warning("%s failed, going on: %s", self._name, error)
        except Exception:
            _log.exception("%s failed, going on", self._name)
