"""One queue that a push consumer reads, from the moment it comes until it is dropped."""

import asyncio
from typing import Generic, TypeVar

from cometmq.client.core.consume_rates import Tally
from cometmq.client.core.message import Message, Source
from cometmq.client.core.process_queue import FlowLimits, ProcessQueue
from cometmq.model.offsets import MessageQueue

T = TypeVar("T")


class OwnedQueue(Generic[T]):
    """What puller and handlers share of a queue; ``queue`` has its topic as on the wire.

    A queue that was dropped never comes back to life: a new object takes over.
    """

    __slots__ = (
        "acked",
        "cached",
        "end_offset",
        "has_pulled",
        "idle",
        "is_due",
        "is_leaving",
        "limits",
        "next_offset",
        "pulling",
        "queue",
        "room",
        "source",
        "tally",
    )

    def __init__(
        self,
        queue: MessageQueue,
        source: Source[T],
        tally: Tally,
        *,
        next_offset: int,
        limits: FlowLimits,
        now_ms: int,
    ) -> None:
        self.queue = queue
        self.source = source
        self.tally = tally
        self.limits = limits
        self.next_offset = next_offset  # where the next pull begins
        self.end_offset = 0  # where the queue ended when it was pulled last
        self.cached: ProcessQueue[Message[T]] = ProcessQueue(now_ms)
        self.acked: list[Message[T]] = []  # acknowledged, to be removed from the cache together
        self.is_due = False  # somebody will look at ``acked`` soon
        self.has_pulled = False  # a broker has answered at least once
        self.is_leaving = False  # what a handler has may be finished, and nothing more
        self.idle = asyncio.Event()  # clear while an orderly handler is at work
        self.idle.set()
        self.pulling: asyncio.Task[None] | None = None
        self.room: asyncio.Future[None] | None = None  # the puller waits for it

    @property
    def lag(self) -> int:
        """What is to be handled yet, here and with the broker, as of the last pull."""
        return len(self.cached) + max(0, self.end_offset - self.next_offset)

    def leave(self) -> None:
        """Pull nothing more, and let orderly handlers begin nothing more."""
        self.is_leaving = True
        if self.pulling is not None:
            self.pulling.cancel()

    def drop(self) -> None:
        """Leave; whatever handlers of it say from now on is ignored."""
        self.cached.is_dropped = True
        self.leave()

    def has_room(self) -> None:
        """Messages have gone: let the puller go on if it may."""
        room = self.room
        if room is not None and not room.done() and self.cached.full(self.limits) is None:
            room.set_result(None)
