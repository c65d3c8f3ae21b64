"""Pulls that found nothing and wait for a message, or for their time to be over."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

from cometmq.remoting.alarm import Alarm

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from cometmq.codec.command import Command
    from cometmq.codec.headers.pull import PullMessage
    from cometmq.remoting.channel import Channel
    from cometmq.store.results import GetLimits

    Queue = tuple[str, int]


class HeldPull:
    """A pull that waits. ``offset`` is where to look next: what lies before did not match."""

    __slots__ = ("channel", "command", "deadline", "header", "is_over", "limits", "offset", "tags")

    def __init__(
        self,
        channel: Channel,
        command: Command,
        header: PullMessage,
        limits: GetLimits,
        tags: frozenset[int] | None,
        deadline: float,
    ) -> None:
        self.channel = channel
        self.command = command
        self.header = header
        self.limits = limits
        self.tags = tags
        self.deadline = deadline
        self.offset = header.queue_offset
        # Answered, or nobody is there to be answered.
        self.is_over = False


class HeldPulls:
    """All of them. ``try_again`` answers a pull if it can, and says so; ``give_up`` answers it.

    A pull with which either raises is over, and answered by ``fail``; the others go on.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        count_max: int,
        try_again: Callable[[HeldPull], bool],
        give_up: Callable[[HeldPull], None],
        fail: Callable[[HeldPull, Exception], None],
    ) -> None:
        self._loop = loop
        self._count_max = count_max
        self._try_again = try_again
        self._give_up = give_up
        self._fail = fail
        # In the order they came; a dict because one in the middle may end first.
        self._by_queue: dict[Queue, dict[HeldPull, None]] = {}
        self._by_channel: dict[Channel, dict[HeldPull, None]] = {}
        # Nearest deadline first; entries of pulls that are over linger until their time comes.
        self._deadlines: list[tuple[float, int, HeldPull]] = []
        self._numbers = itertools.count()
        self._alarm = Alarm(loop)
        self.count = 0

    @property
    def has_room(self) -> bool:
        return self.count < self._count_max

    def hold(self, pull: HeldPull) -> None:
        """Keep a pull until a message comes to its queue or its deadline has passed."""
        queue = pull.header.topic, pull.header.queue_id
        self._by_queue.setdefault(queue, {})[pull] = None
        self._by_channel.setdefault(pull.channel, {})[pull] = None
        heapq.heappush(self._deadlines, (pull.deadline, next(self._numbers), pull))
        if len(self._deadlines) > 2 * self.count + 1024:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].is_over]
            heapq.heapify(self._deadlines)
        self.count += 1
        self._alarm.set(pull.deadline, self._expire)

    def on_arrival(self, queues: Iterable[Queue]) -> None:
        """Messages have come to these queues."""
        for queue in queues:
            waiting = self._by_queue.get(queue)
            if waiting is None:
                continue
            for pull in list(waiting):
                if not pull.is_over and self._is_answered(pull):
                    self._end(pull)

    def on_closed(self, channel: Channel) -> None:
        """Nobody is there any more who could be answered."""
        for pull in list(self._by_channel.get(channel, ())):
            self._end(pull)

    def end_topic(self, topic: str, answer: Callable[[HeldPull], None]) -> None:
        """Keep none of a topic any more: each is answered by ``answer``."""
        queues = [queue for queue in self._by_queue if queue[0] == topic]
        for pull in [pull for queue in queues for pull in self._by_queue[queue]]:
            self._end(pull)
            answer(pull)

    def close(self, answer: Callable[[HeldPull], None]) -> None:
        """Keep none any more: each is answered by ``answer``."""
        for pulls in list(self._by_channel.values()):
            for pull in list(pulls):
                self._end(pull)
                answer(pull)
        self._alarm.cancel()

    def _expire(self) -> None:
        now = self._loop.time()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, _, pull = heapq.heappop(self._deadlines)
            if not pull.is_over:
                self._end(pull)
                try:
                    self._give_up(pull)
                except Exception as error:
                    self._fail(pull, error)
        if self._deadlines:
            self._alarm.set(self._deadlines[0][0], self._expire)

    def _is_answered(self, pull: HeldPull) -> bool:
        try:
            return self._try_again(pull)
        except Exception as error:
            self._fail(pull, error)
            return True

    def _end(self, pull: HeldPull) -> None:
        pull.is_over = True
        self.count -= 1
        queue = pull.header.topic, pull.header.queue_id
        of_queue, of_channel = self._by_queue[queue], self._by_channel[pull.channel]
        del of_queue[pull], of_channel[pull]
        if not of_queue:
            del self._by_queue[queue]
        if not of_channel:
            del self._by_channel[pull.channel]
