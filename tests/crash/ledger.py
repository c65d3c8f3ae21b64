"""What was promised to a series of writers on one directory, and whether it was kept."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cometmq.clock import Clock
from cometmq.codec.record import Record
from cometmq.store import MessageStore, StoreSettings
from cometmq.store.check import Severity, check
from cometmq.store.files import DiskFiles, Files
from tests.crash import messages
from tests.crash.reading import read_all
from tests.crash.sizes import small

QUERIES_MAX = 25
"""Messages that are also looked for by key, the newest ones."""


def claim_consistent(root: Path, settings: StoreSettings) -> None:
    """Nothing is wrong with the files of a store that was closed; oddities are no harm."""
    report = check(root, settings)
    assert report.count(Severity.ERROR) == 0, str(report)
    assert report.count(Severity.RECOVERABLE) == 0, str(report)


class Place(NamedTuple):
    """Where a message was said to be."""

    queue_offset: int
    physical_offset: int


class Ledger:
    """Numbers handed out, places promised, and how much may have been deleted."""

    def __init__(self) -> None:
        self.promised: dict[int, Place] = {}
        # Numbers that were put, or may have been, in order, for each writer.
        self.runs: list[Sequence[int]] = []
        # Where the log began when it was last looked at; later only if there was cleaning since.
        self.log_begin = 0
        self.is_cleaned = False
        # What lies before this position was deleted, or was about to be when the writer died.
        self.cleaned_begin = 0

    @property
    def next_number(self) -> int:
        """A multiple of the batch size, so that batches of different writers never mix."""
        last = max((run[-1] for run in self.runs if run), default=-1)
        return (last // messages.BATCH_COUNT + 1) * messages.BATCH_COUNT

    def note(self, lines: list[str], first: int, *, is_cleaning: bool) -> None:
        """Take down what a writer said."""
        stop = first
        for line in lines:
            match line.split():
                case ["begin", _, last]:
                    stop = int(last) + 1
                case ["kept", number, queue_offset, physical_offset]:
                    self.promised[int(number)] = Place(int(queue_offset), int(physical_offset))
                case ["cleaned", log_begin]:
                    self.cleaned_begin = int(log_begin)
        self.runs.append(range(first, stop))
        self.is_cleaned |= is_cleaning

    def verify(self, root: Path, *, clock: Clock, files: Files | None = None) -> int:
        """Open the directory, claim everything, close it and check it; how many messages it has."""
        disk = files or DiskFiles()
        with MessageStore.open(root, small(), clock=clock, files=disk, threads=False) as store:
            found = self.claim(store)
        claim_consistent(root, small())
        return len(found)

    def claim(self, store: MessageStore) -> dict[int, Record]:
        """Every promise is kept, nothing is there twice, nothing was invented, order holds."""
        found: dict[int, Record] = {}
        for record in read_all(store):
            number = messages.number_of(record)
            assert number not in found, f"message {number} is there twice"
            found[number] = record
        self._claim_begin(store)
        begin = max(self.cleaned_begin, store.log_begin)
        lasting = {number: one for number, one in found.items() if one.physical_offset >= begin}
        self._claim_promises(lasting, begin)
        self._claim_order(found)
        self._claim_runs(lasting, begin)
        self._claim_keys(store, found)
        return found

    def _claim_begin(self, store: MessageStore) -> None:
        assert store.log_begin == self.log_begin or self.is_cleaned, store.log_begin
        assert store.log_begin >= self.log_begin, store.log_begin
        self.log_begin = store.log_begin
        self.is_cleaned = False

    def _claim_promises(self, found: dict[int, Record], begin: int) -> None:
        for number, place in self.promised.items():
            if place.physical_offset >= begin:
                assert number in found, f"message {number}, promised at {place}, is lost"
                record = found[number]
                assert Place(record.queue_offset, record.physical_offset) == place, number

    def _claim_order(self, found: dict[int, Record]) -> None:
        """Messages lie in the log as they were put; ``read_all`` has seen to the queues."""
        offsets = [found[number].physical_offset for number in sorted(found)]
        assert offsets == sorted(offsets)

    def _claim_runs(self, found: dict[int, Record], log_begin: int) -> None:
        """What is left of each writer's messages is the first ones, without a hole."""
        for run in self.runs:
            there = [number for number in run if number in found]
            if not there:
                continue
            begin = run.index(there[0])
            assert there == list(run[begin : begin + len(there)]), (run, there)
            if begin:
                assert log_begin > 0, (run, there[0])
                # The front of the log is gone, so there is nothing of the runs before.
                assert min(found) == there[0], (run, there[0], min(found))
        known = {number for run in self.runs for number in run}
        assert found.keys() <= known, sorted(found.keys() - known)

    def _claim_keys(self, store: MessageStore, found: dict[int, Record]) -> None:
        for number in sorted(found)[-QUERIES_MAX:]:
            record = found[number]
            for key in (messages.unique_key(number), f"key{number}"):
                hits = store.query(record.topic, key)
                assert hits.count(record.physical_offset) == 1, (number, key, hits)
