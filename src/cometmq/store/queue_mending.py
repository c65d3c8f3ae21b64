"""Queues that were damaged, completed from the log when a store is opened.

A queue ends, for who opens it, before the first entry that was never written or that does not lie
behind the one before. What a crash may leave behind such a hole are entries of records that the
checkpoint does not vouch for. One of a record that it does vouch for was on disk, with all before
it: so entries in between were damaged, and all behind them would be lost with them::

    entry    0      1      2      3      4      5
    found    right  wrong  right  right  right  nothing

An entry is right if a message begins where it leads, and has its queue, its number and its size.
The queue goes back to its last right entry, the log is read from there to the message of the next
right one, behind the last of those to where dispatching begins, and what it has for the queue is
entered. Entries are written over and not cleared before that, so a crash meanwhile takes none away.

Damage with nothing right behind it cannot be told from the end of a queue, and stays what it was: a
queue that ends too early.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from cometmq.codec import record
from cometmq.codec.java import INT32_MAX
from cometmq.codec.record import Record
from cometmq.codec.tails import UNQUEUED
from cometmq.errors import RemoteProtocolError
from cometmq.logs import get_logger
from cometmq.store.directory import LIGHT_QUEUE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.store.consume_queue import ConsumeQueue
    from cometmq.store.consume_queues import ConsumeQueues
    from cometmq.store.dispatcher import Dispatcher
    from cometmq.store.mapped_file_queue import MappedFileQueue

BACK_MAX: Final = 1024
"""So many wrong entries at the end of a queue are gone back over: some pages of them."""
TRIES_MAX: Final = 16_384
"""So many wrong entries behind a hole are looked at; what is behind them is given up."""

_log = get_logger(__name__)


class Suspect(NamedTuple):
    """A queue with entries behind its end, and the first one that has to be looked at."""

    queue: ConsumeQueue
    begin: int
    newest: tuple[int, int]
    """Where the record begins and ends to which the last right entry leads."""


def find_suspects(
    log: MappedFileQueue, queues: ConsumeQueues, *, vouched: int | None
) -> list[Suspect]:
    """Which of the loaded queues are damaged; they end with a right entry when this returns.

    After a crash (``vouched`` is not None) the others forget what is behind their ends: records
    that are not vouched for are dispatched again.
    """
    suspects = []
    end = log.end if vouched is None else vouched
    for queue in queues.table.values():
        queue.is_doubtful = queue.is_doubtful and _is_damaged(log, queue, end)
        if queue.is_doubtful:
            newest = _newest_right(log, queue, end)
            suspects.append(Suspect(queue, queue.max_offset, newest))
        elif vouched is not None:
            queue.forget_behind()
    return suspects


class Mender:
    """Completes queues from the log, up to the position ``end`` where dispatching begins."""

    def __init__(
        self, log: MappedFileQueue, queues: ConsumeQueues, dispatcher: Dispatcher, end: int
    ) -> None:
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._end = end

    def mend(self, suspects: Sequence[Suspect]) -> None:
        """Bring back what the queues have lost, to disk too. Raises OSError as it comes."""
        entered: Counter[ConsumeQueue] = Counter()
        _log.warning("queues=%d damaged: the log is read for what they have lost", len(suspects))
        unfinished = [
            suspect.queue for suspect in suspects if not self._close_holes(suspect.queue, entered)
        ]
        if unfinished:
            begin = min(queue.max_physical for queue in unfinished)
            entered += self._dispatcher.feed_queues(self._at_least(begin), self._end, unfinished)
        for queue, begin, _ in suspects:
            queue.end_before(self._end, begin)
            queue.is_doubtful = False
            self._queues.sync(queue, min(begin, queue.max_offset), queue.max_offset)
            _log.warning(
                "topic=%s queue=%d was damaged from offset %d on: "
                "%d entries made again from the log, it goes on to offset %d",
                *(queue.topic, queue.queue_id, begin, entered[queue], queue.max_offset),
            )

    def _close_holes(self, queue: ConsumeQueue, entered: Counter[ConsumeQueue]) -> bool:
        """Complete a queue up to its last right entry; whether nothing at all is behind that."""
        while (number := _next_right(self._log, queue, self._end)) is not None:
            physical_offset, _, _ = queue.entry(number)
            if number > queue.max_offset:
                entered += self._dispatcher.feed_queues(
                    self._begin_of(queue, physical_offset), physical_offset, [queue], before=number
                )
                queue.fill_up(number)
            if not _take_over(self._log, queue, number):
                return False
            if queue.next_written(queue.max_offset) is None:
                return True
        return False

    def _begin_of(self, queue: ConsumeQueue, end: int) -> int:
        """Where the log has what follows in a queue, as far as it has that, before ``end``.

        A queue of which nothing is right begins with its first number. Earlier records with that
        number, and what follows them, are of a topic that was deleted and made anew.
        """
        if queue.max_physical >= 0:
            return self._at_least(queue.max_physical)
        found = self._dispatcher.find_last(self._log.begin, end, queue, queue.max_offset)
        return end if found is None else found

    def _at_least(self, position: int) -> int:
        return max(position, self._log.begin)


def _newest_right(log: MappedFileQueue, queue: ConsumeQueue, end: int) -> tuple[int, int]:
    """Where the record of a damaged queue's last right entry before ``end`` begins and ends."""
    begin, end_physical = queue.max_offset, queue.max_physical
    while (number := _next_right(log, queue, end)) is not None:
        if not _take_over(log, queue, number):
            break
    newest = queue.entry(queue.max_offset - 1)[0], queue.max_physical
    queue.rewind(begin, end_physical)
    return newest


def _next_right(log: MappedFileQueue, queue: ConsumeQueue, end: int) -> int | None:
    """The next right entry that the queue has not yet, of a record before log position ``end``."""
    number = queue.next_written(queue.max_offset)
    for _ in range(TRIES_MAX):
        if number is None:
            break
        if _shift(log, queue, number) == 0:
            physical_offset, size, _ = queue.entry(number)
            return number if queue.max_physical <= physical_offset <= end - size else None
        number = queue.next_written(number + 1)
    return None


def _take_over(log: MappedFileQueue, queue: ConsumeQueue, number: int) -> bool:
    """Let a queue go on with a right entry and those in order behind it, to the last right one.

    False, with only the first of them taken over, when too many are wrong.
    """
    physical_offset, size, _ = queue.entry(number)
    queue.count_from(number)
    if _go_back_to(log, queue, number + 1, physical_offset + size):
        return True
    queue.rewind(number + 1, physical_offset + size)
    return False


def _is_damaged(log: MappedFileQueue, queue: ConsumeQueue, end: int) -> bool:
    """Whether a hole is before a right entry of a record before ``end``.

    The queue ends with its last right entry then. Light queues are not for us to mend, since only
    Apache's brokers enter their messages, which have another topic; nor are those for which they
    have entered messages at other numbers than these have.
    """
    if queue.topic.startswith(LIGHT_QUEUE_PREFIX):
        return False
    shift = _shift(log, queue, queue.max_offset - 1)
    if shift and shift == _shift(log, queue, queue.max_offset - 2):
        return False
    before = queue.max_offset, queue.max_physical
    if _go_back_to(log, queue, queue.first_filed, -1) and _next_right(log, queue, end) is not None:
        return True
    queue.rewind(*before)
    return False


def _go_back_to(log: MappedFileQueue, queue: ConsumeQueue, first: int, end: int) -> bool:
    """Let a queue end with its last right entry from ``first`` on.

    Without one it ends before ``first`` and the record that ends at log position ``end``. False,
    with nothing changed, when too many are wrong.
    """
    low = max(first, queue.max_offset - BACK_MAX)
    for number in range(queue.max_offset - 1, low - 1, -1):
        physical_offset, size, _ = queue.entry(number)
        is_filler = size == INT32_MAX
        is_deleted = not is_filler and physical_offset < log.begin
        if is_deleted or _shift(log, queue, number) == 0:
            queue.rewind(number + 1, physical_offset + size)
            return True
    if low > first:
        return False
    queue.rewind(first, end)
    return True


def _shift(log: MappedFileQueue, queue: ConsumeQueue, number: int) -> int | None:
    """By how much the number of a message exceeds that of its entry; 0 if the entry is right.

    None for an entry that leads to no message of the queue.
    """
    if number < queue.first_filed:
        return None
    physical_offset, size, _ = queue.entry(number)
    file = log.find(physical_offset)
    if file is None:
        return None
    try:
        found = record.parse(file.view, physical_offset - file.begin, with_body=False)
    except RemoteProtocolError:
        return None
    if not isinstance(found, Record) or found.sys_flag & UNQUEUED:
        return None
    said = found.physical_offset, found.size, found.topic, found.queue_id
    is_there = said == (physical_offset, size, queue.topic, queue.queue_id)
    return found.queue_offset - number if is_there else None
