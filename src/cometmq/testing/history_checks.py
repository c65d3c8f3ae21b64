"""The rules of ``history`` as functions over its records; each fault is reported once."""

import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

import msgspec

from cometmq.testing.history_records import Problem, ProblemKind, Queue, Received, Rules, Sent


class Sends:
    """The sends of a history, by key and by place."""

    def __init__(self, by_key: Mapping[str, Sent], *, names_broker: bool) -> None:
        self.by_key = by_key
        self.names_broker = names_broker
        self.by_queue: dict[Queue, list[tuple[int, Sent]]] = defaultdict(list)
        for sent in by_key.values():
            place = self.place_of(sent)
            if place is not None:
                self.by_queue[place[0]].append((place[1], sent))
        for placed in self.by_queue.values():
            placed.sort(key=lambda entry: entry[0])

    def place_of(self, record: Sent | Received) -> tuple[Queue, int] | None:
        if record.queue_id is None or record.queue_offset is None:
            return None
        broker = record.broker if self.names_broker else ""
        return Queue(record.topic, broker, record.queue_id), record.queue_offset

    def shared(self) -> Iterator[Problem]:
        for queue, placed in self.by_queue.items():
            for (offset, one), (other_offset, other) in pairwise(placed):
                if offset == other_offset:
                    yield _problem(ProblemKind.SHARED, queue, offset, sends=(one, other))

    def out_of_order(self) -> Iterator[Problem]:
        for queue, placed in self.by_queue.items():
            first_ended: Sent | None = None  # of those with higher offsets
            for offset, sent in reversed(placed):
                if sent.begin_ms is not None and first_ended is not None:
                    assert first_ended.end_ms is not None
                    if first_ended.end_ms < sent.begin_ms:
                        pair = (first_ended, sent)
                        yield _problem(ProblemKind.SENT_OUT_OF_ORDER, queue, offset, sends=pair)
                if sent.end_ms is not None and (
                    first_ended is None or sent.end_ms < (first_ended.end_ms or 0)
                ):
                    first_ended = sent


class View:
    """What one group, or one member when broadcasting, should have got and what it got."""

    def __init__(self, receipts: list[Received], sends: Sends, rules: Rules, member: str) -> None:
        self._sends = sends
        self._rules = rules
        self._member = member
        self._by_key: dict[str, list[Received]] = defaultdict(list)
        self._by_queue: dict[Queue, list[tuple[int, Received]]] = defaultdict(list)
        for receipt in receipts:
            self._by_key[receipt.key].append(receipt)
            place = sends.place_of(receipt)
            if place is not None and receipt.attempt == 0:
                self._by_queue[place[0]].append((place[1], receipt))

    def problems(self) -> Iterator[Problem]:
        found = [*self._lost(), *self._strange()]
        for queue in sorted(self._by_queue):
            entries = self._by_queue[queue]
            found += self._gaps(queue, sorted({offset for offset, _ in entries}))
            found += self._repeats(queue, entries)
            if not self._rules.may_reorder:
                found += _reorders(queue, entries)
            if not self._rules.may_share_queues and not self._rules.is_broadcast:
                found += self._overlaps(queue, [receipt for _, receipt in entries])
        for problem in found:
            yield msgspec.structs.replace(problem, member=self._member)

    def _lost(self) -> Iterator[Problem]:
        for key, sent in self._sends.by_key.items():
            if sent.is_acknowledged and key not in self._by_key and self._rules.wanted(sent):
                queue, offset = self._sends.place_of(sent) or (None, None)
                yield _problem(ProblemKind.LOST, queue, offset, sends=(sent,))

    def _strange(self) -> Iterator[Problem]:
        for key, receipts in self._by_key.items():
            sent = self._sends.by_key.get(key)
            if sent is None:
                if self._sends.by_key:  # a history of receipts alone is one, too
                    yield self._about(ProblemKind.UNKNOWN, receipts)
            elif not self._rules.wanted(sent):
                yield self._about(ProblemKind.UNWANTED, receipts, sent)
            else:
                yield from self._elsewhere(sent, receipts)
            if not self._rules.may_repeat:
                yield from self._received_again(receipts)

    def _elsewhere(self, sent: Sent, receipts: list[Received]) -> Iterator[Problem]:
        """A message that came from another place than its own, or from several."""
        placed = {
            place: receipt
            for receipt in receipts
            if receipt.attempt == 0 and (place := self._sends.place_of(receipt)) is not None
        }
        own = self._sends.place_of(sent)
        if own is not None and sent.is_acknowledged and placed and own not in placed:
            yield self._about(ProblemKind.MISPLACED, list(placed.values()), sent)
        elif len(placed) > 1 and not self._rules.may_repeat:
            yield self._about(ProblemKind.DOUBLED, list(placed.values()), sent)

    def _received_again(self, receipts: list[Received]) -> Iterator[Problem]:
        """Repeats of what has no place to be judged by; ``_repeats`` has the others."""
        by_attempt: dict[int, list[Received]] = defaultdict(list)
        for receipt in receipts:
            if receipt.attempt or self._sends.place_of(receipt) is None:
                by_attempt[receipt.attempt].append(receipt)
        for again in by_attempt.values():
            if len(again) > 1:
                yield self._about(ProblemKind.REPEATED, again)

    def _gaps(self, queue: Queue, offsets: list[int]) -> Iterator[Problem]:
        explained = [offset for offset, _ in self._sends.by_queue.get(queue, ())]
        for last, following in pairwise(offsets):
            begin = last + 1
            index = bisect_left(explained, begin)
            while begin < following:
                end = min(explained[index], following) if index < len(explained) else following
                if begin < end:
                    yield Problem(ProblemKind.GAP, queue, begin, end)
                begin = max(begin, end + 1)
                index += 1

    def _repeats(self, queue: Queue, entries: list[tuple[int, Received]]) -> Iterator[Problem]:
        by_offset: dict[int, list[Received]] = defaultdict(list)
        for offset, receipt in entries:
            by_offset[offset].append(receipt)
        for offset, receipts in sorted(by_offset.items()):
            if len({receipt.key for receipt in receipts}) > 1:
                yield _problem(ProblemKind.CHANGED, queue, offset, receipts=receipts)
            elif len(receipts) > 1 and not self._rules.may_repeat:
                yield _problem(ProblemKind.REPEATED, queue, offset, receipts=receipts)

    def _overlaps(self, queue: Queue, receipts: list[Received]) -> Iterator[Problem]:
        timed = [(r.begin_ms, r.end_ms, r) for r in receipts if r.begin_ms is not None]
        timed.sort(key=lambda entry: entry[0])
        busy: dict[str, tuple[float, Received]] = {}  # by member: until when it works, on what
        for begin, end, receipt in timed:
            for member, (until, other) in busy.items():
                if member != receipt.member and begin + self._rules.slack_ms < until:
                    pair = (other, receipt)
                    offset = receipt.queue_offset
                    yield _problem(ProblemKind.OVERLAPPED, queue, offset, receipts=pair)
                    break
            if end is not None and end >= busy.get(receipt.member, (end, receipt))[0]:
                busy[receipt.member] = (end, receipt)

    def _about(
        self, kind: ProblemKind, receipts: list[Received], sent: Sent | None = None
    ) -> Problem:
        queue, offset = self._sends.place_of(receipts[0]) or (None, None)
        return _problem(kind, queue, offset, sends=(sent,) if sent else (), receipts=receipts)


def _reorders(queue: Queue, entries: list[tuple[int, Received]]) -> Iterator[Problem]:
    """First receipts that come after a higher offset; going back to repeat is no reordering."""
    by_member: dict[str, list[tuple[int, Received]]] = defaultdict(list)
    for offset, receipt in entries:
        by_member[receipt.member].append((offset, receipt))
    are_timed = all(receipt.begin_ms is not None for _, receipt in entries)

    def moment(entry: tuple[int, Received]) -> tuple[float, int]:
        return (entry[1].begin_ms or 0) if are_timed else 0, entry[0]

    # Each member's records keep their order; members whose times are equal, or not known, are
    # taken to be right.
    merged = heapq.merge(*by_member.values(), key=moment)
    seen: set[int] = set()
    highest: tuple[int, Received] | None = None
    for offset, receipt in merged:
        if offset in seen:
            continue
        seen.add(offset)
        if highest is None or offset > highest[0]:
            highest = (offset, receipt)
        else:
            pair = (highest[1], receipt)
            yield _problem(ProblemKind.REORDERED, queue, offset, receipts=pair)


def _problem(
    kind: ProblemKind,
    queue: Queue | None,
    offset: int | None,
    *,
    sends: Iterable[Sent] = (),
    receipts: Iterable[Received] = (),
) -> Problem:
    end = None if offset is None else offset + 1
    return Problem(kind, queue, offset, end, tuple(sends), tuple(receipts))
