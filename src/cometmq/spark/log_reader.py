"""Ranges of queues read from the files of a store: entries first, then the records they name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from cometmq.codec.java import INT32_MIN, string_hash
from cometmq.errors import DamagedStore
from cometmq.spark.decode import Place, RecordDecoder
from cometmq.spark.losses import Losses
from cometmq.spark.planning import Range
from cometmq.spark.records import Records
from cometmq.spark.store_files import FILLER_SIZE, StoreFiles

ENTRIES_MAX: Final = 4 * 1024 * 1024
"""Entries of a range that are in memory at a time."""


class LogReader:
    """Reads ranges from one store directory, up to ``end`` of its log and never past it."""

    def __init__(
        self,
        store: StoreFiles,
        end: int,
        decoder: RecordDecoder,
        losses: Losses,
        *,
        batch_rows: int,
        batch_bytes: int,
        tags: frozenset[str] = frozenset(),
    ) -> None:
        self.store = store
        self.end = end
        self._decoder = decoder
        self._losses = losses
        self._batch_rows = batch_rows
        self._batch_bytes = batch_bytes
        codes = [string_hash(tag) for tag in sorted(tags)]
        self._tag_codes = np.array(codes, np.int64) if tags else None

    def reach(self, wanted: Range) -> int:
        """Up to which offset of a range the log may be read; its begin when nothing may be."""
        queue = self.store.queue(wanted.queue.topic, wanted.queue.queue_id)
        low, high = wanted.begin, wanted.end
        while low < high:
            middle = (low + high) // 2
            entry = queue.entries(middle, middle + 1)[0]
            size, position = int(entry["size"]), int(entry["position"])
            # What was deleted has no entry any more; only what is not written yet lies ahead.
            is_gone = middle < queue.file_begin or size == FILLER_SIZE
            if is_gone or (size > 0 and position + size <= self.end):
                low = middle + 1
            else:
                high = middle
        return low

    def read(self, wanted: Range) -> Iterator[Any]:
        """The messages of a range as Arrow batches. Raises MessagesLost, DamagedStore."""
        for begin in range(wanted.begin, wanted.end, ENTRIES_MAX):
            end = min(begin + ENTRIES_MAX, wanted.end)
            yield from self._read(Range(wanted.queue, begin, end))

    def close(self) -> None:
        """Let go of all files."""
        self.store.close()

    def _read(self, wanted: Range) -> Iterator[Any]:
        queue = self.store.queue(wanted.queue.topic, wanted.queue.queue_id)
        entries = queue.entries(wanted.begin, wanted.end)
        numbers, positions, sizes = self._present(wanted, entries)
        if self._tag_codes is not None:
            codes = entries["tags"][numbers - wanted.begin].astype(np.int64)
            # Below all hashes is the address of what else is known of a message.
            chosen = np.isin(codes, self._tag_codes) | (codes < INT32_MIN)
            numbers, positions, sizes = numbers[chosen], positions[chosen], sizes[chosen]
        place = Place(wanted.queue.topic, wanted.queue.broker_name)
        for low, high in self._chunks(positions, sizes):
            self.store.log.release(int(positions[low]))
            records = self._records(wanted, positions[low:high], sizes[low:high], numbers[low:high])
            yield self._decoder.decode(records, place)

    def _present(self, wanted: Range, entries: Any) -> tuple[Any, Any, Any]:
        """Offsets, positions and sizes of what is there; the files are kept open from now on."""
        positions = entries["position"].astype(np.int64)
        sizes = entries["size"].astype(np.int64)
        is_there = (sizes > 0) & (sizes != FILLER_SIZE)
        is_there &= positions + sizes <= self.end
        files = np.unique(positions[is_there] // self.store.log.file_bytes)
        missing = [
            number
            for number in files.tolist()
            if not self.store.log.hold(number * self.store.log.file_bytes)
        ]
        if missing:
            is_there &= ~np.isin(positions // self.store.log.file_bytes, missing)
        if not is_there.all():
            self._report(wanted, is_there)
        numbers = np.flatnonzero(is_there)
        return numbers + wanted.begin, positions[numbers], sizes[numbers]

    def _report(self, wanted: Range, is_there: Any) -> None:
        gone = np.flatnonzero(~is_there)
        cuts: Any = np.flatnonzero(np.diff(gone) != 1) + 1
        for part in np.split(gone, cuts):
            begin, end = wanted.begin + int(part[0]), wanted.begin + int(part[-1]) + 1
            reason = f"{self.store.root} does not have them"
            self._losses.report(wanted.queue, begin, end, reason)

    def _chunks(self, positions: Any, sizes: Any) -> Iterator[tuple[int, int]]:
        """Numbers of records that are decoded together: of one file, and not too many bytes."""
        files = positions // self.store.log.file_bytes
        sums = np.cumsum(sizes)
        low, count = 0, len(positions)
        while low < count:
            before = int(sums[low - 1]) if low else 0
            high = min(
                low + self._batch_rows,
                int(np.searchsorted(files, files[low], side="right")),
                int(np.searchsorted(sums, before + self._batch_bytes, side="right")),
            )
            high = max(high, low + 1)
            yield low, high
            low = high

    def _records(self, wanted: Range, positions: Any, sizes: Any, numbers: Any) -> Records:
        stretch = self.store.log.stretch(positions, sizes)
        records = Records.at(stretch.buffer, stretch.positions, sizes)
        heads = records.heads
        is_wrong = heads["physical_offset"] != positions
        is_wrong |= heads["queue_offset"] != numbers
        is_wrong |= heads["queue_id"] != wanted.queue.queue_id
        if is_wrong.any():
            place = int(np.argmax(is_wrong))
            position = int(positions[place])
            problem = (
                f"at {position} of the log lies another message than number"
                f" {int(numbers[place])} of {wanted.queue.topic}/{wanted.queue.queue_id}"
            )
            path = str(self.store.log.path_at(position))
            raise DamagedStore(path, problem, "look at it with: cometmq store check")
        return records
