"""Which queue a message goes to.

The list of queues is that of the route, in its order and never filtered by how brokers do: where an
ordering key decides, all producers must compute the same.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

from cometmq.codec.java import INT32_MAX, INT32_MIN, string_hash
from cometmq.errors import InvalidArgument
from cometmq.model.offsets import MessageQueue

Selector = Callable[[Sequence[MessageQueue], Any], MessageQueue | int]
"""A user's choice: gets the write queues and the message; answers with one of them or its index."""


class RoundRobin:
    """The turns of one topic: over all queues of all brokers, one after the other."""

    __slots__ = ("_next",)

    def __init__(self, start: int) -> None:
        """``start`` is random, so that producers that start together do not go in step."""
        self._next = start

    def take(
        self, queues: Sequence[MessageQueue], avoided_broker: str | None = None
    ) -> MessageQueue:
        """The next queue, of another broker than the one avoided if there is another.

        8 000 turns over 2 x 4 queues give each queue 1 000.
        """
        turn = self._next
        self._next = turn + 1
        queue = queues[turn % len(queues)]
        if avoided_broker is None or queue.broker_name != avoided_broker:
            return queue
        return self.take_where(queues, lambda other: other != avoided_broker) or queue

    def take_where(
        self, queues: Sequence[MessageQueue], is_good: Callable[[str], bool]
    ) -> MessageQueue | None:
        """The next queue whose broker is good, None when there is no such broker."""
        turn = self._next
        for step in range(len(queues)):
            queue = queues[(turn + step) % len(queues)]
            if is_good(queue.broker_name):
                self._next = turn + step + 1
                return queue
        return None

    def restart(self, start: int) -> None:
        """Go on at another place."""
        self._next = start


def by_key(queues: Sequence[MessageQueue], key: str | int) -> MessageQueue:
    """The queue of an ordering key, the same that Java's producers choose.

    A number hashes as Java's Integer where it fits into 32 bits, else as its Long: Java tells the
    two apart for small negative numbers too, so use text for those.
    """
    return queues[abs(_java_hash(key)) % len(queues)]


def at_random(queues: Sequence[MessageQueue], source: random.Random) -> MessageQueue:
    """Any queue, all alike."""
    return queues[source.randrange(len(queues))]


def by_selector(queues: Sequence[MessageQueue], selector: Selector, message: Any) -> MessageQueue:
    """What a user's selector chooses. Raises InvalidArgument when it raised or chose nothing."""
    try:
        chosen = selector(queues, message)
    except Exception as error:
        raise InvalidArgument(
            "selector", f"the queue selector raised {error!r}", "see the cause for where"
        ) from error
    if isinstance(chosen, int) and type(chosen) is not bool and 0 <= chosen < len(queues):
        return queues[chosen]
    if isinstance(chosen, MessageQueue) and chosen in queues:
        return chosen
    raise InvalidArgument(
        "selector",
        f"the queue selector chose {chosen!r}, which is none of the {len(queues)} queues",
        "return one of the queues it was given, or its index",
    )


def _java_hash(key: str | int) -> int:
    if isinstance(key, str):
        return string_hash(key)
    if INT32_MIN <= key <= INT32_MAX:
        return key
    folded = (key ^ key >> 32) & 0xFFFFFFFF
    return folded - 0x1_0000_0000 if folded > INT32_MAX else folded
