"""What a consumer has in memory of one queue: pulled, not yet acknowledged.

Theory of operation. Messages are kept by queue offset. Beside them stands a list of offsets in
rising order from which acknowledged ones are not removed but skipped, when they come to an end of
it: pulls bring rising offsets and handlers finish roughly in order, so both a put and a remove cost
the same however much is cached. What comes in another order (a message that returns, a pull that
went back) makes the list anew.

Two ways of consuming share this. Concurrent: any message may be handled and is *removed* when it is
acknowledged. Orderly: messages are *taken* from the front, wait as *handed over* and are then
committed together or returned. In both the offset that comes out is never beyond a message that is
still here; everything that "at least once" means rests on that.

Only the event loop's thread may use one. A queue that was dropped is dead: whoever still handles
messages of it ignores the outcome, and a new object takes over when the queue comes back.
"""

import enum
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from cometmq.codec.bodies.clients import ProcessQueueInfo

NOTHING = -1
"""There is no offset to commit."""

LOCK_LIFE_MS = 30_000
"""How long a lock counts without renewal; half of what the broker grants."""
PULL_IDLE_MS_MAX = 120_000
"""A queue in which no pull began for this long has lost its pull loop."""

_MIB = 1024 * 1024
_STALE_MAX = 1024
"""So many skipped offsets are always allowed, before it is worth making the list anew."""


class Cached(Protocol):
    """What is asked of a message."""

    @property
    def queue_offset(self) -> int: ...

    @property
    def body_bytes(self) -> int: ...


M = TypeVar("M", bound=Cached)


class Full(enum.Enum):
    """Why no more is pulled for now."""

    COUNT = "count"
    BYTES = "bytes"
    SPAN = "span"


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """What may be cached of a queue before a pull; the pull itself may go beyond it.

    ``span_max`` is None for orderly consuming, where a slow message holds up everything anyway.
    """

    cached_max: int = 1_000
    cached_mib_max: int = 100
    span_max: int | None = 2_000


class ProcessQueue(Generic[M]):
    """One queue, from the moment it becomes ours until it is dropped."""

    __slots__ = (
        "_cached",
        "_handed_over",
        "_highest",
        "_order",
        "body_bytes",
        "is_consuming",
        "is_dropped",
        "is_locked",
        "last_consume_ms",
        "last_lock_ms",
        "last_pull_ms",
        "unlock_tries",
    )

    def __init__(self, now_ms: int) -> None:
        self._cached: dict[int, M] = {}
        """By offset, without those handed over."""
        self._order: deque[int] = deque()
        """Rising; has every cached offset, and may have some that are not cached any more."""
        self._handed_over: dict[int, M] = {}
        """By offset: taken, not yet committed or returned."""
        self._highest = 0
        """The last new offset that was put."""
        self.body_bytes = 0
        """Of cached and handed-over messages together."""
        self.is_consuming = False
        """A handler loop of an orderly consumer is under way."""
        self.is_dropped = False
        """Not ours any more, or to be made anew."""
        self.is_locked = False
        """The broker said so at ``last_lock_ms``."""
        self.last_lock_ms = now_ms
        self.unlock_tries = 0
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms

    def __len__(self) -> int:
        """Cached and handed over."""
        return len(self._cached) + len(self._handed_over)

    def __contains__(self, message: M) -> bool:
        """Whether it is cached; what was handed over is not."""
        return message.queue_offset in self._cached

    @property
    def has_waiting(self) -> bool:
        """Whether there are messages that were not handed over."""
        return bool(self._cached)

    @property
    def span(self) -> int:
        """From the first to the last cached offset; 0 when there are less than two."""
        if not self._cached:
            return 0
        order = self._order
        self._skip()
        while order[-1] not in self._cached:
            order.pop()
        return order[-1] - order[0]

    # --- both ways of consuming

    def put(self, messages: Sequence[M]) -> bool:
        """Cache what a pull brought.

        An offset that is there already is replaced. Returns whether an orderly consumer must begin
        to handle the queue: no handler loop is under way, and from now on one is.
        """
        cached, order = self._cached, self._order
        last = order[-1] if order else -1
        size = 0
        is_rising = True
        for message in messages:
            offset = message.queue_offset
            size += message.body_bytes
            replaced = cached.get(offset)
            if replaced is not None:
                size -= replaced.body_bytes
            else:
                self._highest = offset
                is_rising = is_rising and offset > last
                order.append(offset)
                last = offset
            cached[offset] = message
        self.body_bytes += size
        if not is_rising or len(order) > 2 * len(cached) + _STALE_MAX:
            self._sort()
        if self.is_consuming or not cached:
            return False
        self.is_consuming = True
        return True

    def clear(self) -> None:
        """Forget every message, as if the queue had just become ours."""
        self._cached.clear()
        self._order.clear()
        self._handed_over.clear()
        self._highest = 0
        self.body_bytes = 0

    def full(self, limits: FlowLimits) -> Full | None:
        """Which limit is exceeded, so that the next pull must wait; None when it need not."""
        if len(self) > limits.cached_max:
            return Full.COUNT
        if self.body_bytes // _MIB > limits.cached_mib_max:
            return Full.BYTES
        if limits.span_max is None or not self._cached:
            return None
        # The ends of the list may be wider apart than the messages, never closer.
        if self._order[-1] - self._order[0] <= limits.span_max:
            return None
        return Full.SPAN if self.span > limits.span_max else None

    # --- concurrent

    def remove(self, message: M, now_ms: int) -> int:
        """Forget a message that is acknowledged or safe elsewhere; returns the offset to commit.

        That is the first offset still cached, or the one after the highest. ``NOTHING`` when
        nothing was cached before.
        """
        # ``_forget`` and ``_skip`` written out: this runs for every message.
        self.last_consume_ms = now_ms
        cached, order = self._cached, self._order
        if not cached:
            return NOTHING
        offset = message.queue_offset
        known = cached.pop(offset, None)
        if known is not None:
            self.body_bytes -= known.body_bytes
        while order and order[0] not in cached:
            order.popleft()
        return order[0] if order else self._highest + 1

    def remove_all(self, messages: Iterable[M], now_ms: int) -> int:
        """``remove`` for several, with one offset to commit."""
        self.last_consume_ms = now_ms
        if not self._cached:
            return NOTHING
        for message in messages:
            self._forget(message.queue_offset)
        self._skip()
        return self._order[0] if self._order else self._highest + 1

    def first(self) -> M | None:
        """The cached message with the lowest offset: the one that holds up the commit."""
        if not self._cached:
            return None
        self._skip()
        return self._cached[self._order[0]]

    def remove_if_first(self, message: M, now_ms: int) -> int:
        """``remove`` a message that took too long, unless it was acknowledged meanwhile."""
        first = self.first()
        if first is None or first.queue_offset != message.queue_offset:
            return NOTHING
        return self.remove(message, now_ms)

    # --- orderly

    def take(self, count: int, now_ms: int) -> list[M]:
        """Hand over the first ``count`` messages; when there are none, the handler loop ends."""
        self.last_consume_ms = now_ms
        cached, order = self._cached, self._order
        taken: list[M] = []
        while order and len(taken) < count:
            offset = order.popleft()
            message = cached.pop(offset, None)
            if message is not None:
                self._put_into(self._handed_over, message)
                taken.append(message)
        if not taken:
            self.is_consuming = False
        return taken

    def commit(self) -> int:
        """Forget what was handed over; returns the offset to commit, ``NOTHING`` if there was none.

        That is the one after the last handed over. When an earlier message returned meanwhile, it
        is that message's: with 5, 6 and 7 taken and 6 returned, 6 and not 8.
        """
        handed_over = self._handed_over
        if not handed_over:
            return NOTHING
        offset = max(handed_over) + 1
        for message in handed_over.values():
            self.body_bytes -= message.body_bytes
        handed_over.clear()
        first = self.first()
        return offset if first is None else min(offset, first.queue_offset)

    def roll_back(self) -> None:
        """Everything handed over returns, to be taken again."""
        self._return(list(self._handed_over))

    def again(self, messages: Iterable[M]) -> None:
        """These of the messages handed over return, to be taken again."""
        self._return([message.queue_offset for message in messages])

    # --- locks, watchdog, running info

    def lock(self, now_ms: int) -> None:
        """The broker says that the queue is ours."""
        self.is_locked = True
        self.last_lock_ms = now_ms

    def unlock(self) -> None:
        """The broker says that it is not, or was told that it need not be."""
        self.is_locked = False

    def holds_lock(self, now_ms: int, life_ms: int = LOCK_LIFE_MS) -> bool:
        """Whether handling may go on: locked, and not too long ago."""
        return self.is_locked and not self.is_lock_older_than(life_ms, now_ms)

    def is_lock_older_than(self, age_ms: float, now_ms: int) -> bool:
        """Whether it was locked longer ago.

        Also when the clock was set back by more: else a lock would last until the clock is where it
        was.
        """
        return abs(now_ms - self.last_lock_ms) > age_ms

    def is_pull_overdue(self, now_ms: int, idle_ms_max: int = PULL_IDLE_MS_MAX) -> bool:
        """Whether no pull began for so long that the queue must be begun anew."""
        return now_ms - self.last_pull_ms > idle_ms_max

    def info(self, commit_offset: int) -> ProcessQueueInfo:
        """What a consumer tells of this queue when it is asked how it is doing."""
        waiting, handed_over = self._cached, self._handed_over
        return ProcessQueueInfo(
            commit_offset=commit_offset,
            cached_msg_min_offset=min(waiting, default=0),
            cached_msg_max_offset=max(waiting, default=0),
            cached_msg_count=len(waiting),
            cached_msg_size_in_mib=self.body_bytes // _MIB,
            transaction_msg_min_offset=min(handed_over, default=0),
            transaction_msg_max_offset=max(handed_over, default=0),
            transaction_msg_count=len(handed_over),
            locked=self.is_locked,
            try_unlock_times=self.unlock_tries,
            last_lock_timestamp=self.last_lock_ms,
            droped=self.is_dropped,
            last_pull_timestamp=self.last_pull_ms,
            last_consume_timestamp=self.last_consume_ms,
        )

    # --- the list of offsets

    def _forget(self, offset: int) -> None:
        message = self._cached.pop(offset, None)
        if message is not None:
            self.body_bytes -= message.body_bytes

    def _skip(self) -> None:
        """Make the first of the list a cached one."""
        order, cached = self._order, self._cached
        while order and order[0] not in cached:
            order.popleft()

    def _sort(self) -> None:
        self._order = deque(sorted(self._cached))

    def _return(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            message = self._handed_over.pop(offset, None)
            if message is not None:
                self._put_into(self._cached, message)
        self._sort()

    def _put_into(self, table: dict[int, M], message: M) -> None:
        """Move a message that is counted already; one that was there by its offset is forgotten.

        There is one when a pull went back and brought what is handed over once more.
        """
        replaced = table.get(message.queue_offset)
        if replaced is not None:
            self.body_bytes -= replaced.body_bytes
        table[message.queue_offset] = message
