"""Which broker, queue and place in the sequence a row gets: pure functions of the rows.

Theory of operation. A broker stores a number of a producer once, so a row that is sent again must
have the number it had, at the broker that it went to. Numbers count the rows of a task for one
topic and broker. So the broker of a row, and the order in which a task's rows for one broker are
sent, follow from the rows and the list of brokers alone, never from how many queues there are, how
frames are cut, or what failed before. The queue of a row may be another one the next time.

Rows that share a queue should travel together. Rows with an ordering key are therefore sent in the
order of 48 *slots*, and a slot belongs to the queue of its number modulo the number of queues: for
the numbers that divide 48 this is the queue that other producers choose for the key. Slots are
ordered so that those of one queue stand side by side when there are 1, 2, 4, 8 or 16 queues.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from cometmq.codec.java import INT32_MIN, string_hash
from cometmq.errors import InvalidArgument
from cometmq.spark.sink_rows import Rows

VERSION: Final = 1
"""Of the rules here: part of every producer's id, so that no number is taken for that of another
row after they have changed."""

SLOTS: Final = 48
BLOCK_ROWS: Final = 1024
"""Rows without a wish go to one queue so many at a time."""

_BLOCKS_MAX: Final = 16
_FIXED: Final = _BLOCKS_MAX + SLOTS
"""Ranks: first those of blocks, then those of slots, then queues that were asked for."""

_REVERSED: Final = [int(f"{number:04b}"[::-1], 2) for number in range(16)]
_SLOT_OF: Final = sorted(range(SLOTS), key=lambda slot: (_REVERSED[slot % 16], slot))
_RANK_OF: Final = np.argsort(np.array(_SLOT_OF))
_HASHES_KEPT_MAX: Final = 100_000


class Run(NamedTuple):
    """Rows that belong together, ``[begin, end)`` in the order of sending; see ``queue_of``."""

    broker: int
    rank: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The brokers of a topic, by name and in order, for one batch of one query."""

    topic: str
    brokers: tuple[str, ...]

    def producer_id(self, job: str, partition: int) -> str:
        """Who sends the rows of a partition; another one when brokers or rules are others."""
        rules = f"{VERSION}|{'|'.join(self.brokers)}"
        digest = hashlib.blake2b(rules.encode(), digest_size=4).hexdigest()
        return f"spark.{job}.{partition}.{digest}"


class Router:
    """Routes the rows of one task for one topic."""

    def __init__(self, plan: Plan, partition: int) -> None:
        self._plan = plan
        self._turn = partition  # which broker gets the next block of rows without a wish
        self._hashes: dict[str, int] = {}

    def order(self, rows: Rows, places: Any) -> tuple[Any, list[Run]]:
        """In which order to send the rows at ``places`` of a chunk, and which belong together."""
        brokers, ranks = self._blocks(places)
        if rows.ordering_key is not None:
            self._by_key(rows.ordering_key, places, brokers, ranks)
        if rows.queue_id is not None:
            self._by_queue(rows, places, brokers, ranks)
        order = np.lexsort((ranks, brokers))
        brokers, ranks = brokers[order], ranks[order]
        changes = np.flatnonzero((np.diff(brokers) != 0) | (np.diff(ranks) != 0)) + 1
        bounds = [0, *changes.tolist(), len(places)]
        runs = [
            Run(int(brokers[begin]), int(ranks[begin]), begin, end)
            for begin, end in itertools.pairwise(bounds)
            if begin < end
        ]
        return places[order], runs

    def _blocks(self, places: Any) -> tuple[Any, Any]:
        blocks = np.arange(len(places)) // BLOCK_ROWS
        brokers = (self._turn + blocks) % len(self._plan.brokers)
        self._turn += int(blocks[-1]) + 1 if len(blocks) else 0
        return brokers, blocks

    def _by_key(self, keys: Any, places: Any, brokers: Any, ranks: Any) -> None:
        encoded = keys.take(places).dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        hashes = np.array([self._hash(key) for key in encoded.dictionary.to_pylist()], np.int64)
        keyed = np.flatnonzero(codes >= 0)
        found = hashes[codes[keyed]]
        ranks[keyed] = _BLOCKS_MAX + _RANK_OF[found % SLOTS]
        brokers[keyed] = found // SLOTS % len(self._plan.brokers)

    def _by_queue(self, rows: Rows, places: Any, brokers: Any, ranks: Any) -> None:
        queues = rows.queue_id.take(places).fill_null(-1).to_numpy(zero_copy_only=False)
        wished = np.flatnonzero(queues >= 0)
        ranks[wished] = _FIXED + queues[wished]
        if len(self._plan.brokers) == 1:
            brokers[wished] = 0
            return
        brokers[wished] = self._named(rows, places[wished])

    def _named(self, rows: Rows, places: Any) -> Any:
        names: list[Any] = [None] * len(places)
        if rows.broker_name is not None:
            names = rows.broker_name.take(places).to_pylist()
        numbers = {name: number for number, name in enumerate(self._plan.brokers)}
        for name in {*names} - numbers.keys():
            known = ", ".join(self._plan.brokers)
            fact = (
                f"queueId is given, but not of which broker: topic '{self._plan.topic}' has {known}"
            )
            if name is not None:
                fact = f"topic '{self._plan.topic}' has no broker '{name}', only {known}"
            raise InvalidArgument("brokerName", fact, "say it in a column 'brokerName'")
        return np.array([numbers[name] for name in names])

    def _hash(self, key: str) -> int:
        known = self._hashes.get(key)
        if known is None:
            if len(self._hashes) >= _HASHES_KEPT_MAX:
                self._hashes.clear()
            value = string_hash(key)
            known = self._hashes[key] = abs(value) if value != INT32_MIN else 0
        return known


def queue_of(rank: int, queue_count: int, turn: int) -> int:
    """The queue that rows of a rank go to; rows without a wish go where it is whose ``turn``.

    Raises InvalidArgument when there is no such queue.
    """
    if rank < _BLOCKS_MAX:
        return turn % queue_count
    if rank < _FIXED:
        return _SLOT_OF[rank - _BLOCKS_MAX] % queue_count
    queue = rank - _FIXED
    if queue >= queue_count:
        fact = f"a row asks for queue {queue}, and there are {queue_count}"
        raise InvalidArgument("queueId", fact, "add queues to the topic, or use orderingKey")
    return queue


def is_free(rank: int) -> bool:
    """Whether rows of a rank may go to any queue."""
    return rank < _BLOCKS_MAX
