"""``PullConsumer``: each pull is asked for by its user, from a queue and an offset he chooses."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypeVar

from cometmq.blocking.loop_thread import GRACE_MS, Call
from cometmq.blocking.member import Entered, Threads, listed
from cometmq.client import pull_consumer
from cometmq.client.core.message import Message
from cometmq.client.core.settings import PullSettings
from cometmq.client.pull_consumer import PullResult
from cometmq.client.pull_member import QueuesListener
from cometmq.model.offsets import MessageQueue

T = TypeVar("T")

PullCallback: TypeAlias = Callable[[MessageQueue], int | None]
"""Pulls from a queue once; returns after how many ms it is to be called again, None for usual."""


class PullConsumer(Entered[pull_consumer.PullConsumer[T]], Generic[T]):
    """Pulls when it is told to, and keeps the offsets it is told::

        with mq.pull_consumer("billing") as puller:
            for queue in puller.queues("orders"):
                offset = puller.stored_offset(queue) or 0
                result = puller.pull(queue, offset)
                ...
                puller.update_offset(queue, result.next_offset)

    With ``register`` the queues of a topic are shared with the group, and ``mine`` says which are
    this consumer's. Offsets that were updated are saved at intervals and at the end, for all queues
    except those that the group gave to others. It starts when it is entered, or with the first call
    that needs it, and is closed with its client at the latest.
    """

    def __init__(
        self,
        owner: object,
        threads: Threads,
        inner: pull_consumer.PullConsumer[T],
        settings: PullSettings,
    ) -> None:
        super().__init__(owner, threads, inner)
        self._settings = settings
        self._scheduled = threads.pool(settings.concurrency)

    def close(self) -> None:
        """Let scheduled calls end, save offsets, leave the group; may be called again.

        Called by a scheduled call it only begins all that.
        """
        if self._scheduled.is_current:
            self._threads.loop.begin(Call(self._inner.close()))
        else:
            self._threads.close(self, self._inner.close)
            self._threads.end_pool(self._scheduled)

    # --- queues

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic. Raises NoRoute."""
        return self._call(self._inner.queues(topic))

    def register(self, topic: str) -> None:
        """Share the queues of a topic with the other members of the group."""
        self._do(lambda: self._inner.register(topic))

    def mine(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a registered topic that are this consumer's; none until it is started."""
        return self._do(lambda: self._inner.mine(topic))

    def on_queues_changed(self, listener: QueuesListener) -> None:
        """Call this when this consumer has other queues of a registered topic than before.

        It runs on a thread of the client.
        """
        told = self._threads.listener(listener)
        self._do(lambda: self._inner.on_queues_changed(told))

    def schedule(self, topic: str, callback: PullCallback) -> None:
        """Register a topic, and call this for each queue of ours, again and again.

        Never twice at a time for one queue, on at most ``concurrency`` threads, again after as
        many ms as it returns (None: ``schedule_pause_ms``; ``schedule_failure_pause_ms`` when it
        raised). Calls for a queue that goes to another member end with the one under way.
        """

        async def on_thread(queue: MessageQueue) -> int | None:
            return await self._scheduled.call(callback, queue)

        self._do(lambda: self._inner.schedule(topic, on_thread))

    def unschedule(self, topic: str) -> None:
        """Call nobody for this topic any more."""
        self._do(lambda: self._inner.unschedule(topic))

    # --- messages

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count: int = 32,
        tags: str | Iterable[str] | None = None,
        sql: str | None = None,
        wait: bool = False,
    ) -> PullResult[T]:
        """Messages of a queue from an offset on, at most ``count``.

        With ``wait`` a broker that has none waits for one, for ``pull_hold_ms``. Raises what asking
        a broker raises.
        """
        work = self._inner.pull(queue, offset, count=count, tags=listed(tags), sql=sql, wait=wait)
        limit_ms = self._settings.wait_timeout_ms if wait else self._settings.pull_timeout_ms
        return self._call(work, limit_ms + GRACE_MS)

    def send_back(self, message: Message[Any], delay_level: int = 0) -> None:
        """Have the group get a message again, through its retry topic.

        ``delay_level`` is 0 for what the broker thinks right, -1 for a dead letter. Raises
        Unreachable when no broker has taken it.
        """
        self._call(self._inner.send_back(message, delay_level))

    # --- offsets

    def update_offset(self, queue: MessageQueue, offset: int) -> None:
        """Note how far the group is in a queue; it is saved at the next interval, or at the end."""
        self._do(lambda: self._inner.update_offset(queue, offset))

    def stored_offset(self, queue: MessageQueue) -> int | None:
        """How far the group is, as is stored; None when nothing was ever stored."""
        return self._call(self._inner.stored_offset(queue))

    def offset(self, queue: MessageQueue) -> int | None:
        """What ``update_offset`` noted, None if it did not."""
        return self._do(lambda: self._inner.offset(queue))

    def persist(self) -> None:
        """Save what was noted now. Raises Unreachable when a broker has not taken it."""
        self._call(self._inner.persist())

    # --- questions

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that is still there."""
        return self._call(self._inner.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset after the last message."""
        return self._call(self._inner.max_offset(queue))

    def search_offset(self, queue: MessageQueue, time: int | datetime) -> int:
        """The offset of the first message stored at a time (in ms, or with a zone) or later.

        Brokers before 5.0 may say that of one that is a little older.
        """
        return self._call(self._inner.search_offset(queue, time))

    def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """When the first message was stored, in ms; None when there is none."""
        return self._call(self._inner.earliest_store_time(queue))
