"""``LiteConsumer``: messages are fetched ahead in the background and taken with ``poll``."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Generic, TypeVar

from cometmq.blocking.loop_thread import GRACE_MS
from cometmq.blocking.member import Entered, Threads, listed
from cometmq.blocking.streams import Stream
from cometmq.client import lite_consumer
from cometmq.client.core.checks import checked_timeout
from cometmq.client.core.message import Message
from cometmq.client.pull_member import QueuesListener
from cometmq.model.offsets import MessageQueue

T = TypeVar("T")


class LiteConsumer(Entered[lite_consumer.LiteConsumer[T]], Generic[T]):
    """Fetches ahead and lets its user set the pace::

        with mq.lite_consumer("billing") as lite:
            lite.subscribe("orders", tags="paid")
            while True:
                for message in lite.poll():
                    ...

    Queues are shared with the group (``subscribe``) or fixed (``assign``), never both. What was
    polled counts as done when the next ``poll`` begins, and is committed by itself from time to
    time (``is_auto_commit``); messages that fail are the user's business. It starts with the first
    call that needs it, or when it is entered, and is closed with its client at the latest.
    """

    def __init__(
        self, owner: object, threads: Threads, inner: lite_consumer.LiteConsumer[T]
    ) -> None:
        super().__init__(owner, threads, inner)

    def close(self) -> None:
        """Commit what is done (if it commits by itself), save offsets, leave the group.

        May be called again. What was polled last, and not followed by another ``poll``, is not
        done: ``commit`` before, if it is.
        """
        self._threads.close(self, self._inner.close)

    # --- what is read

    def subscribe(
        self, topic: str, *, tags: str | Iterable[str] | None = None, sql: str | None = None
    ) -> None:
        """Read a topic together with the other members of the group, or read it otherwise."""
        chosen = listed(tags)
        self._do(lambda: self._inner.subscribe(topic, tags=chosen, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic; its queues go with the next rebalance."""
        self._do(lambda: self._inner.unsubscribe(topic))

    def assign(
        self,
        queues: Iterable[MessageQueue],
        *,
        tags: str | Iterable[str] | None = None,
        sql: str | None = None,
    ) -> None:
        """Read exactly these queues, whatever other members do; replaces those from before."""
        wanted, chosen = tuple(queues), listed(tags)
        self._do(lambda: self._inner.assign(wanted, tags=chosen, sql=sql))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic. Raises NoRoute."""
        return self._call(self._inner.queues(topic))

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are this consumer's now."""
        return self._do(lambda: self._inner.assignment)

    def on_queues_changed(self, listener: QueuesListener) -> None:
        """Call this when a topic has other queues, or this consumer has other ones of them.

        It runs on a thread of the client.
        """
        told = self._threads.listener(listener)
        self._do(lambda: self._inner.on_queues_changed(told))

    # --- messages

    def poll(self, timeout_ms: int | None = None) -> list[Message[T]]:
        """The next messages, of one queue and at most ``pull_count``; none when the time is over.

        What was polled before counts as done from now on.
        """
        bound_ms = None if timeout_ms is None else checked_timeout(timeout_ms, minimum=0) + GRACE_MS
        return self._call(self._inner.poll(timeout_ms), bound_ms)

    def __iter__(self) -> Iterator[Message[T]]:
        """One message after the other, until it is closed; each is done when the next is asked for.

        After a ``break`` the last one is not done, until something else is taken from its queue.
        """
        return Stream(self, self._threads, aiter(self._inner))

    # --- positions

    def position(self, queue: MessageQueue) -> int | None:
        """Where the next message to be polled is, or behind all; None until that is known."""
        return self._do(lambda: self._inner.position(queue))

    def committed(self, queue: MessageQueue) -> int | None:
        """How far the group is: as this consumer committed or, if it did not, as is stored.

        None when nothing was stored ever. Raises what asking a broker raises.
        """
        return self._call(self._inner.committed(queue))

    def commit(
        self, offsets: Mapping[MessageQueue, int] | None = None, *, persist: bool = True
    ) -> None:
        """Say that everything polled so far is done, or everything before these offsets.

        Queues that are not this consumer's any more are passed over. Without ``persist`` offsets
        are saved with the next regular save; with it, Unreachable says that a broker has not taken
        them.
        """
        self._call(self._inner.commit(offsets, persist=persist))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset; what was fetched is thrown away. The next commit says so, too.

        Raises InvalidArgument for a queue that is not assigned and for an offset that it does not
        have, and what asking its broker raises.
        """
        self._call(self._inner.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message that is still there."""
        self._call(self._inner.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Pass over everything that is there now."""
        self._call(self._inner.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, time: int | datetime) -> None:
        """Go on at the first message that was stored at a time (in ms, or with a zone) or later.

        Brokers before 5.0 may begin with one that is a little older.
        """
        self._call(self._inner.seek_to_time(queue, time))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch no more of these for now; what was fetched can still be polled."""
        chosen = tuple(queues)
        self._do(lambda: self._inner.pause(chosen))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch them again."""
        chosen = tuple(queues)
        self._do(lambda: self._inner.resume(chosen))
