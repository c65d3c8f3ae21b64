"""The queues of a lite pull consumer that have messages, each once, in the order of their turns."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from cometmq.client.core.message import Message
from cometmq.client.lite_queue import LiteQueue

T = TypeVar("T")


class LiteLine(Generic[T]):
    """Who is next; ``waiting_count`` are the messages of all queues that wait to be handed out.

    A queue that has more goes to the end of the line after ``turn_messages`` of its messages, so
    that a full one does not keep others from being read.
    """

    def __init__(self, turn_messages: int) -> None:
        self.waiting_count = 0
        self._turn_messages = turn_messages
        self._line: deque[LiteQueue[T]] = deque()
        self._changed = asyncio.Event()
        self._is_ended = False

    def put(self, lite: LiteQueue[T], messages: Sequence[Message[T]]) -> None:
        """Messages have come."""
        if not messages:
            return
        lite.put(messages)
        self.waiting_count += len(messages)
        if not lite.is_ready:
            lite.is_ready = True
            lite.turn = 0
            self._line.append(lite)
        self._changed.set()

    def drop(self, lite: LiteQueue[T]) -> None:
        """End a queue, with what waits in it."""
        self.waiting_count -= lite.drop()

    def end(self) -> None:
        """Wake whoever waits: nothing more will come."""
        self._is_ended = True
        self._changed.set()

    async def first(self, timeout_ms: int | None) -> LiteQueue[T] | None:
        """The queue whose turn it is; None when the time is over, or everything."""
        deadline = None
        if timeout_ms is not None:
            deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        while not self._is_ended:
            while self._line:
                if self._line[0].waiting:
                    return self._line[0]
                self._line.popleft().is_ready = False
            self._changed.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            except TimeoutError:
                return None
        return None

    def take(self, lite: LiteQueue[T], count: int, now_ms: int) -> list[Message[T]]:
        """Hand out messages of the first in the line."""
        assert self._line[0] is lite, lite.queue
        messages = lite.take(count, now_ms)
        self.waiting_count -= len(messages)
        lite.turn += len(messages)
        if not lite.waiting:
            self._line.popleft().is_ready = False
        elif lite.turn >= self._turn_messages:
            lite.turn = 0
            self._line.rotate(-1)
        return messages
