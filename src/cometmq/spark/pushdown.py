"""Filters of a batch query that let it read less: queues left out, ranges made shorter.

Filters are known by the names of their classes and their attributes, so that nothing of Spark is
needed here. What is not understood narrows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cometmq.model.offsets import MessageQueue
from cometmq.spark.planning import Range
from cometmq.spark.topology import Topology


@dataclass(slots=True)
class Pushed:
    """What filters say: names of topics, queue ids, offsets and store times that may occur.

    Bounds of offsets are half open; times are milliseconds, and both bounds may occur.
    """

    topics: set[str] | None = None
    queue_ids: set[int] | None = None
    offset_begin: int = 0
    offset_end: float = math.inf
    stored_from_ms: int | None = None
    stored_to_ms: int | None = None
    used: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, filters: Iterable[Any]) -> Pushed:
        """What all of these filters say together."""
        pushed = cls()
        for one in filters:
            column: Any = getattr(one, "attribute", ())
            if len(column) == 1 and pushed._take(column[0], type(one).__name__, one):
                pushed.used.append(f"{column[0]} {type(one).__name__}")
        return pushed

    def narrowed(self, ranges: Sequence[Range], topology: Topology) -> list[Range]:
        """The parts of ranges in which rows may be that fit."""
        found = [one for one in map(self._within, ranges) if one is not None]
        if self.stored_from_ms is not None:
            begins = topology.at_time({one.queue: self.stored_from_ms for one in found})
            found = [Range(o.queue, max(o.begin, begins[o.queue]), o.end) for o in found]
        if self.stored_to_ms is not None:
            ends = topology.at_time({one.queue: self.stored_to_ms + 1 for one in found})
            found = [Range(o.queue, o.begin, min(o.end, ends[o.queue])) for o in found]
        return [one for one in found if one.rows > 0]

    def _within(self, one: Range) -> Range | None:
        queue: MessageQueue = one.queue
        if self.topics is not None and queue.topic not in self.topics:
            return None
        if self.queue_ids is not None and queue.queue_id not in self.queue_ids:
            return None
        begin, end = max(one.begin, self.offset_begin), int(min(one.end, self.offset_end))
        return Range(queue, begin, end) if begin < end else None

    def _take(self, column: str, kind: str, one: Any) -> bool:
        if column == "topic":
            return self._take_topics(kind, one)
        if column == "queueId":
            return self._take_queues(kind, one)
        if column == "queueOffset":
            return self._take_offsets(kind, one)
        return column == "storeTimestamp" and self._take_times(kind, one)

    def _take_topics(self, kind: str, one: Any) -> bool:
        values = _values(kind, one, str)
        if values is not None:
            self.topics = values if self.topics is None else self.topics & values
        return values is not None

    def _take_queues(self, kind: str, one: Any) -> bool:
        values = _values(kind, one, int)
        if values is not None:
            self.queue_ids = values if self.queue_ids is None else self.queue_ids & values
        return values is not None

    def _take_offsets(self, kind: str, one: Any) -> bool:
        value = getattr(one, "value", None)
        if type(value) is not int:
            return False
        begins = {"EqualTo": 0, "EqualNullSafe": 0, "GreaterThanOrEqual": 0, "GreaterThan": 1}
        ends = {"EqualTo": 1, "EqualNullSafe": 1, "LessThanOrEqual": 1, "LessThan": 0}
        if kind in begins:
            self.offset_begin = max(self.offset_begin, value + begins[kind])
        if kind in ends:
            self.offset_end = min(self.offset_end, value + ends[kind])
        return kind in begins or kind in ends

    def _take_times(self, kind: str, one: Any) -> bool:
        ms = _ms(getattr(one, "value", None))
        if ms is None:
            return False
        is_lower = kind in ("EqualTo", "EqualNullSafe", "GreaterThanOrEqual", "GreaterThan")
        is_upper = kind in ("EqualTo", "EqualNullSafe", "LessThanOrEqual", "LessThan")
        if is_lower:
            self.stored_from_ms = max(math.floor(ms), self.stored_from_ms or 0)
        if is_upper:
            known = self.stored_to_ms
            self.stored_to_ms = math.ceil(ms) if known is None else min(math.ceil(ms), known)
        return is_lower or is_upper


def _values(kind: str, one: Any, wanted: type) -> set[Any] | None:
    """The values that an equality allows; None for any other filter."""
    if kind in ("EqualTo", "EqualNullSafe"):
        found = [one.value]
    elif kind == "In":
        found = list(one.value)
    else:
        return None
    return set(found) if all(type(value) is wanted for value in found) else None


def _ms(value: Any) -> float | None:
    """Milliseconds since 1970 of a time as Spark hands it over."""
    if not isinstance(value, datetime):
        return None
    if value.tzinfo is None:
        return None  # a time without a zone is no moment
    return (value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000
