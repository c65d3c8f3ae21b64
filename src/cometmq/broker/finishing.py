"""Work that is finished once it was begun, whoever still waits for it.

A request ends with its connection. Half a topic deleted, or half a change made, would help nobody.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Finishing:
    """Runs such work; what it returns or raises goes to whoever awaits it."""

    def __init__(self) -> None:
        # Begun and not finished: nobody else may keep them.
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)
