"""What is remembered of idempotent sends: for each producer and topic, how far it is and where its
last messages went.

A sequence is an epoch in the upper 32 bits and a number in the lower ones. Numbers of an epoch
count from 0 without a gap; a higher epoch may begin at any time and ends the one before. So
everything up to ``last`` in the epoch of ``last`` is stored, whether or not it is known where.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

import msgspec

from cometmq.codec.codes import ResponseCode
from cometmq.errors import BrokerError

EPOCH_BITS: Final = 32
NUMBER_MASK: Final = (1 << EPOCH_BITS) - 1
SEQUENCE_MAX: Final = (1 << 63) - 1

RUN_COUNT_MAX: Final = 4096
"""Messages up to which sends that lie directly behind each other are remembered as one."""


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Messages with consecutive sequences, in one queue and directly behind each other in the log.

    ``begin`` and ``end`` are their log positions. ``queue_offset`` counts in that queue, or in
    ``aside``: topic and queue id in which they wait when they are delayed.
    """

    first: int
    count: int
    queue_id: int
    queue_offset: int
    begin: int
    end: int
    aside: tuple[str, int] | None = None

    @property
    def stop(self) -> int:
        """The sequence behind the last one."""
        return self.first + self.count

    def is_continued_by(self, other: Run) -> bool:
        return (
            other.first == self.stop
            and other.begin == self.end
            and other.queue_id == self.queue_id
            and other.aside == self.aside
            and other.queue_offset == self.queue_offset + self.count
            and self.count + other.count <= RUN_COUNT_MAX
        )


class Entry(NamedTuple):
    """A producer's sends to a topic, to be saved."""

    topic: str
    producer_id: str
    last: int
    used_ms: int
    runs: tuple[Run, ...]


class Snapshot(NamedTuple):
    """What was known when the log ended at ``offset``; nobody changes it any more."""

    offset: int
    entries: list[Entry]


class Producer:
    """How far one producer is in one topic."""

    __slots__ = ("last", "runs", "used_ms")

    def __init__(self, last: int, used_ms: int, runs: deque[Run]) -> None:
        # The highest sequence that is stored.
        self.last = last
        self.used_ms = used_ms
        # Where the last messages went, in the order of their sequences.
        self.runs = runs

    def stored_of(self, first: int, count: int) -> int:
        """How many messages of a send are stored: none, all, or those it begins with.

        Raises BrokerError when it must not be stored now, or never.
        """
        if first <= self.last:
            return min(count, self.last + 1 - first)
        if first != self.last + 1 and first & NUMBER_MASK:
            raise _out_of_order(first, self.last)
        return 0

    def pieces(self, first: int, count: int) -> list[tuple[Run, int, int]]:
        """Where messages are: runs, each with which of its messages, ``[begin, end)``.

        Raises BrokerError when that is not remembered of all of them.
        """
        found = []
        wanted, stop = first, first + count
        for run in self.runs:
            if run.first <= wanted < min(stop, run.stop):
                end = min(stop, run.stop)
                found.append((run, wanted - run.first, end - run.first))
                wanted = end
        if wanted < stop:
            raise self.forgotten(first)
        return found

    def run_across(self, offset: int) -> Run | None:
        """The run that begins before a log position and ends behind it."""
        for run in reversed(self.runs):
            if run.begin < offset:
                return run if run.end > offset else None
        return None

    def forgotten(self, first: int) -> BrokerError:
        """The refusal of a repeat whose first result is not known any more."""
        epoch, number = first >> EPOCH_BITS, first & NUMBER_MASK
        last_epoch, last_number = self.last >> EPOCH_BITS, self.last & NUMBER_MASK
        if epoch < last_epoch:
            return BrokerError(
                ResponseCode.SEQUENCE_TOO_OLD,
                f"sequence {first}: its epoch {epoch} is over, the producer is at {last_epoch}, and"
                " it is not remembered whether this was stored; nothing was stored now",
            )
        return BrokerError(
            ResponseCode.SEQUENCE_ALREADY_STORED,
            f"sequence {first}: number {number} was stored before, as all to {last_number} of its"
            " epoch, but not remembered where; nothing was stored now",
        )


class ProducerTable:
    """All producers, at most ``producers_max``, each with its last ``runs_max`` runs.

    Those who have been silent for ``expiry_ms`` are forgotten when others come; for ``idle_ms``,
    when there is no room for others.
    """

    def __init__(self, *, producers_max: int, runs_max: int, expiry_ms: int, idle_ms: int) -> None:
        self._producers_max = producers_max
        self._runs_max = runs_max
        self._expiry_ms = expiry_ms
        self._idle_ms = idle_ms
        # By topic and id, the one used last at the end.
        self._by_key: dict[tuple[str, str], Producer] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, topic: str, producer_id: str) -> Producer | None:
        return self._by_key.get((topic, producer_id))

    def require_room(self, now_ms: int) -> None:
        """See to it that one more fits; raises BrokerError when none may be forgotten for it."""
        while self._by_key:
            key, oldest = next(iter(self._by_key.items()))
            is_full = len(self._by_key) >= self._producers_max
            allowed_ms = min(self._idle_ms, self._expiry_ms) if is_full else self._expiry_ms
            if now_ms - oldest.used_ms < allowed_ms:
                break
            del self._by_key[key]
        if len(self._by_key) >= self._producers_max:
            raise BrokerError(
                ResponseCode.PRODUCERS_FULL,
                f"{len(self._by_key)} idempotent producers are known and none has been silent for"
                f" {self._idle_ms // 60_000} minutes: no new one is taken"
                " (idempotentProducersMax, idempotentProducerIdleMinutes)",
            )

    def touch(self, topic: str, producer_id: str, now_ms: int) -> None:
        """A producer that is known has sent something that was stored before."""
        key = topic, producer_id
        producer = self._by_key.pop(key)
        producer.used_ms = now_ms
        self._by_key[key] = producer

    def note(self, topic: str, producer_id: str, run: Run, now_ms: int) -> None:
        """A run was stored, whatever was thought of the producer before.

        A sequence that is not higher than the last one means that the producer was forgotten in
        between and has begun again.
        """
        key = topic, producer_id
        producer = self._by_key.pop(key, None)
        if producer is None or run.first <= producer.last:
            producer = Producer(-1, now_ms, deque(maxlen=self._runs_max))
        self._by_key[key] = producer
        runs = producer.runs
        if runs and runs[-1].is_continued_by(run):
            last = runs[-1]
            count = last.count + run.count
            runs[-1] = msgspec.structs.replace(last, count=count, end=run.end)
        else:
            runs.append(run)
        producer.last = run.stop - 1
        producer.used_ms = now_ms
        if len(self._by_key) > self._producers_max:
            del self._by_key[next(iter(self._by_key))]

    def forget_topic(self, topic: str) -> int:
        """A topic was deleted: what was sent to it is gone; how many producers it had."""
        keys = [key for key in self._by_key if key[0] == topic]
        for key in keys:
            del self._by_key[key]
        return len(keys)

    def restore(self, snapshot: Snapshot) -> None:
        """Know what a snapshot does, and nothing else."""
        self._by_key.clear()
        for entry in snapshot.entries[-self._producers_max :]:
            runs = deque(entry.runs, maxlen=self._runs_max)
            self._by_key[entry.topic, entry.producer_id] = Producer(entry.last, entry.used_ms, runs)

    def snapshot(self, end: int) -> Snapshot:
        """Everything as it was when the log ended at ``end``, or a bit before.

        Not within a run: the part of it that lies before would be forgotten.
        """
        producers = self._by_key.values()
        offset = next(
            (run.begin for producer in producers if (run := producer.run_across(end)) is not None),
            end,
        )
        entries = []
        for (topic, producer_id), producer in self._by_key.items():
            runs, last = tuple(producer.runs), producer.last
            if runs and runs[-1].end > offset:
                runs, last = _before(runs, offset)
            if last >= 0:
                entries.append(Entry(topic, producer_id, last, producer.used_ms, runs))
        return Snapshot(offset, entries)


def _before(runs: tuple[Run, ...], end: int) -> tuple[tuple[Run, ...], int]:
    """The runs that lie before ``end``, and the highest sequence there; -1 when it is not known.

    Not all do, and none lies across it. What is not known for sure must not be taken for stored.
    """
    kept = tuple(run for run in runs if run.end <= end)
    return kept, kept[-1].stop - 1 if kept else -1


def _out_of_order(first: int, last: int) -> BrokerError:
    return BrokerError(
        ResponseCode.SEQUENCE_OUT_OF_ORDER,
        f"sequence {first} after {last}: {last + 1} is next, or number 0 of a higher epoch; nothing"
        " was stored",
    )
