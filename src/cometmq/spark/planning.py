"""Which task reads what: pure functions from ranges of queues to tasks, and from limits to ranges.

A stream that was stopped in mid-batch plans that batch again, and a sink knows repeated rows by
their task and place in it. So nothing here may depend on anything but its arguments.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cometmq.model.offsets import MessageQueue

ROWS_WORTH_A_TASK: Final = 4096
"""Fewer rows are read sooner by one task than by two."""


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Messages of a queue: offsets from ``begin`` to below ``end``."""

    queue: MessageQueue
    begin: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.begin


Ranges = tuple[Range, ...]
"""What one task reads, in this order."""


def task_count(
    rows: int, *, row_bytes: int, cores: int, least: int | None, rows_max: int, bytes_max: int
) -> int:
    """Into how many tasks so many rows are divided: as few as the limits allow.

    ``least`` is the least number if it was asked for; else cores decide, and few rows need no
    second task. No task is empty.
    """
    assert cores >= 1, cores
    count = least if least is not None else min(cores, -(-rows // ROWS_WORTH_A_TASK))
    count = max(count, -(-rows // rows_max), -(-rows * row_bytes // bytes_max))
    return max(1, min(count, rows))


def cut(ranges: Iterable[Range], count: int) -> list[Ranges]:
    """Lay the ranges end to end and cut them into ``count`` parts of the same number of rows.

    Parts differ by one row at most. With queues of 6 and 4 rows, ``cut(..., 2)`` gives the first
    five rows of the first queue to one task, and the rest to the other.
    """
    wanted = sorted(one for one in ranges if one.rows > 0)
    rows = sum(one.rows for one in wanted)
    count = max(1, min(count, rows))
    tasks: list[Ranges] = []
    part: list[Range] = []
    done = 0  # rows that lie before the current one
    bound = rows // count if count else 0
    for one in wanted:
        begin = one.begin
        while begin < one.end:
            taken = min(one.end - begin, bound - done)
            part.append(Range(one.queue, begin, begin + taken))
            begin += taken
            done += taken
            if done == bound:
                tasks.append(tuple(part))
                part = []
                bound = rows * (len(tasks) + 1) // count
    assert not part, part
    return tasks


def pack(ranges: Iterable[Range], count: int) -> list[Ranges]:
    """Divide whole queues among at most ``count`` tasks, so that the order of each is kept.

    The largest first, each to the task that has least.
    """
    wanted = sorted((one for one in ranges if one.rows > 0), key=lambda one: (-one.rows, one.queue))
    tasks: list[list[Range]] = [[] for _ in range(max(1, min(count, len(wanted))))]
    loads = [(0, number) for number in range(len(tasks))]
    for one in wanted:
        load, number = heapq.heappop(loads)
        tasks[number].append(one)
        heapq.heappush(loads, (load + one.rows, number))
    return [tuple(sorted(part)) for part in tasks if part]


def admit(backlogs: Mapping[MessageQueue, int], limit: int) -> dict[MessageQueue, int]:
    """How many rows each queue may give when all of them together may give ``limit``.

    In proportion to what waits in each; what rounding leaves goes to the largest remainders, so
    that together it is the limit exactly.
    """
    assert limit >= 1, limit
    total = sum(backlogs.values())
    if total <= limit:
        return dict(backlogs)
    shares = {queue: rows * limit // total for queue, rows in backlogs.items()}
    left = limit - sum(shares.values())
    by_remainder = sorted(backlogs, key=lambda queue: (-(backlogs[queue] * limit % total), queue))
    for queue in by_remainder[:left]:
        shares[queue] += 1
    return shares


def rows_of_bytes(
    backlogs: Mapping[MessageQueue, int], row_bytes: Mapping[str, int], bytes_max: int
) -> int:
    """How many rows of these queues have about ``bytes_max`` together, by the size of a topic's."""
    total = sum(backlogs.values())
    whole = sum(rows * row_bytes.get(queue.topic, 0) for queue, rows in backlogs.items())
    if whole <= bytes_max:
        return max(total, 1)
    return max(total * bytes_max // whole, 1)


def spread(wanted: Range, places: int, rows: int) -> list[Range]:
    """So many parts of a range, evenly from its first rows to its last, fewer of a short one.

    Each has so many rows, or all of the range if it has less.
    """
    assert places >= 1, places
    assert rows >= 1, rows
    rows = min(rows, wanted.rows)
    places = min(places, -(-wanted.rows // rows)) if rows else 0
    last = wanted.rows - rows
    begins = [wanted.begin + last * number // max(places - 1, 1) for number in range(places)]
    return [Range(wanted.queue, begin, begin + rows) for begin in begins]


def rows_in(ranges: Sequence[Range]) -> int:
    return sum(one.rows for one in ranges)
