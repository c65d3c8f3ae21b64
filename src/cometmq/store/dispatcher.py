"""Follows the log and enters its records into queues and index, in order.

Records are read back from the log, so that a message put here, one replicated and one found by
recovery take the same way; the plain core has notes of what it has just written (ADR 21).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, cast

from cometmq.codec import core, properties, record
from cometmq.codec.digest import Ending
from cometmq.codec.properties import Property
from cometmq.codec.queue_entry import delay_tags_code
from cometmq.codec.tails import UNQUEUED
from cometmq.logs import get_logger
from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.store.directory import queue_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from cometmq.codec.digest import Digest
    from cometmq.store.commit_log import CommitLog
    from cometmq.store.config import StoreSettings
    from cometmq.store.consume_queue import ConsumeQueue
    from cometmq.store.consume_queues import ConsumeQueues
    from cometmq.store.key_index import KeyIndex
    from cometmq.store.mapped_file import MappedFile
    from cometmq.store.watermarks import Watermarks

_DELAY: Final = Property.DELAY.encode()
_RECORDS_AT_ONCE: Final = 1000
_log = get_logger(__name__)


class Dispatcher:
    """Moves ``dispatched`` towards ``committed``; only the owner thread calls it."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        marks: Watermarks,
        settings: StoreSettings,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._marks = marks
        self._delays_ms = settings.delays_ms()
        # Told after each step which queues got messages.
        self.on_arrival: Callable[[set[ConsumeQueue]], None] | None = None
        # Why the last step could not go on; empty when it could.
        self.failure = ""
        # Store time of the last record dispatched.
        self.last_timestamp = 0

    def step(self, limit: int) -> int:
        """Dispatch at most about ``limit`` records; how many it were.

        A full disk stops it before the record concerned, and so does any other error, which is a
        bug then: ``failure`` says so, and the next step tries again.
        """
        marks = self._marks
        touched: list[ConsumeQueue] = []
        done = 0
        is_stuck = False
        while done < limit and marks.dispatched < marks.committed and not is_stuck:
            file = self._log.files.find(marks.dispatched)
            assert file is not None, marks.dispatched
            end = min(marks.committed - file.begin, file.size)
            try:
                done += self._dispatch_simple(file, end, limit - done, touched)
                if done == limit or marks.dispatched == file.begin + end:
                    continue
                digests, position, ending = core.walk_records(
                    file.view, marks.dispatched - file.begin, end, file.begin, 1, False
                )
                done += len(digests)
                self._enter(digests, touched)
            except OSError as error:
                self._fail(f"queues cannot be written: {error}")
                is_stuck = True
            except Exception as error:
                self._fail(f"a record cannot be entered: {type(error).__name__}: {error}", error)
                is_stuck = True
            else:
                if ending == Ending.BLANK:
                    position = file.size
                marks.dispatched = file.begin + position
                is_stuck = ending in (Ending.BROKEN, Ending.INCOMPLETE)
                if ending == Ending.BROKEN:
                    self._fail(f"no record at log position {marks.dispatched}")
        if not is_stuck:
            self.failure = ""
        self._tell(touched)
        return done

    def catch_up(self) -> None:
        """Dispatch everything there is, as far as possible."""
        while self.step(1 << 20):
            if self.failure:
                return

    def feed_queues(
        self,
        begin: int,
        end: int,
        queues: Collection[ConsumeQueue],
        *,
        before: int | None = None,
    ) -> Counter[ConsumeQueue]:
        """Enter the records of ``[begin, end)`` into these queues alone; how many each one got.

        ``before`` is the number of an entry that is there already. Raises OSError when the disk is
        full.
        """
        entered: Counter[ConsumeQueue] = Counter()
        wanted = {(queue.topic, queue.queue_id): queue for queue in queues}
        for digests in self._walk(begin, end):
            for topic, queue_id, number, place, size, sys_flag, time, code, _ in digests:
                queue = wanted.get((topic, queue_id))
                if queue is None or sys_flag & UNQUEUED or place + size <= queue.max_physical:
                    continue
                if number < queue.first_filed or (before is not None and number >= before):
                    continue
                if topic == SCHEDULE_TOPIC:
                    code = self._delivery_time(place, time, code)
                entered[queue] += queue.append(number, place, size, code)
        return entered

    def find_last(self, begin: int, end: int, queue: ConsumeQueue, wanted: int) -> int | None:
        """Where in ``[begin, end)`` the last record lies that has this number in a queue."""
        found = None
        for digests in self._walk(begin, end):
            for topic, queue_id, number, place, _, sys_flag, *_ in digests:
                if number == wanted and queue_id == queue.queue_id and topic == queue.topic:
                    found = found if sys_flag & UNQUEUED else place
        return found

    def feed_index(self, begin: int, end: int) -> None:
        """Enter the records of ``[begin, end)``, which the queues have, into the index."""
        index = self._index
        if index is None or index.failure:
            return
        for digests in self._walk(begin, end):
            index.add_digests(digests)
            if index.failure:
                return

    def _walk(self, begin: int, end: int) -> Iterator[list[Digest]]:
        """The records of ``[begin, end)``, some at a time."""
        while begin < end:
            file = self._log.files.find(begin)
            if file is None:
                return
            digests, position, ending = core.walk_records(
                file.view,
                begin - file.begin,
                min(end - file.begin, file.size),
                file.begin,
                _RECORDS_AT_ONCE,
                False,
            )
            yield digests
            begin = file.begin + position
            if ending != Ending.END:
                # A blank, or damage: nothing behind it can be found in this file.
                begin = file.end

    def _dispatch_simple(
        self, file: MappedFile, end: int, limit: int, touched: list[ConsumeQueue]
    ) -> int:
        """Dispatch the records that need nothing made or decided; how many it were."""
        marks = self._marks
        index = None if self._index is None else self._index.tail()
        position, count, timestamp = core.dispatch_records(
            file.view,
            marks.dispatched - file.begin,
            end,
            file.begin,
            limit,
            self._queues.tails,
            cast("list[core.QueueTail]", touched),
            index,
            self._log.tail.fresh,
        )
        if index is not None and self._index is not None:
            self._index.take_back(index)
        if count:
            self.last_timestamp = timestamp
            marks.dispatched = file.begin + position
        return count

    def _tell(self, touched: list[ConsumeQueue]) -> None:
        """Have queues synced that got entries, and whoever waits for them told."""
        for queue in touched:
            queue.is_touched = False
            if not queue.is_dirty:
                self._queues.mark_dirty(queue)
        if touched and self.on_arrival is not None:
            self.on_arrival(set(touched))

    def _enter(self, digests: list[Digest], touched: list[ConsumeQueue]) -> None:
        """Enter records into their queues and then into the index, which never raises."""
        queues = self._queues
        for (
            topic,
            queue_id,
            queue_offset,
            physical_offset,
            size,
            sys_flag,
            time,
            code,
            _,
        ) in digests:
            if sys_flag & UNQUEUED:
                continue
            queue = queues.table.get((topic, queue_id))
            if queue is None:
                if not self._can_be_queue(topic, queue_id, physical_offset):
                    continue
                queue = queues.obtain(topic, queue_id)
            if topic == SCHEDULE_TOPIC:
                code = self._delivery_time(physical_offset, time, code)
            if queue.append(queue_offset, physical_offset, size, code) and not queue.is_touched:
                queue.is_touched = True
                touched.append(queue)
        if self._index is not None:
            self._index.add_digests(digests)
        if digests:
            self.last_timestamp = digests[-1][6]

    def _can_be_queue(self, topic: str, queue_id: int, physical_offset: int) -> bool:
        """Tell whether a queue may be made for a record, which anybody may have written."""
        problem = queue_problem(topic, queue_id)
        if problem:
            _log.error("record at %d is put into no queue: %s", physical_offset, problem)
        return not problem

    def _delivery_time(self, physical_offset: int, timestamp: int, tags_code: int) -> int:
        """The tags code of a message with a delay level; others keep theirs."""
        view = self._log.record_at(physical_offset)
        if view is None:
            return tags_code
        with view:
            found = record.parse(view, with_body=False)
        assert isinstance(found, record.Record)
        text = properties.get(found.properties, _DELAY)
        if text is None or not text.isdecimal() or int(text) == 0:
            return tags_code
        level = min(int(text), len(self._delays_ms))
        return delay_tags_code(timestamp, self._delays_ms[level - 1] if level else None)

    def _fail(self, reason: str, bug: Exception | None = None) -> None:
        if reason != self.failure:
            dispatched = self._marks.dispatched
            _log.error("dispatch stopped at %d: %s", dispatched, reason, exc_info=bug)
        self.failure = reason
