"""The index after power cuts and kills at any moment, also while it is being mended."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from cometmq.codec import index_entry
from cometmq.store.config import StoreSettings
from cometmq.store.key_index import KeyIndex
from cometmq.testing import CrashingDisk, PowerCut
from cometmq.testing.clock import EPOCH_MS
from tests.unit.store.index_folder import all_entries, opened, paths


class Rounds:
    """Adds messages to an index that stops in all ways, feeding it as a store would."""

    def __init__(self, root: Path, chance: Random) -> None:
        self.chance = chance
        self.disk = CrashingDisk(root, sector_bytes=chance.choice((None, 512)))
        self.folder = root / "index"
        # The messages of the log: physical offset, store time, hashes.
        self.log: list[tuple[int, int, list[int]]] = []
        self.log_end = 0
        self.now_ms = EPOCH_MS
        self.checkpoint = 0
        self.settings = StoreSettings(
            index_slots=chance.choice((3, 40, 1200)), index_entries=chance.choice((9, 60, 700))
        )
        self.index = self.open(is_clean=True)

    def open(self, *, is_clean: bool) -> KeyIndex:
        index = opened(
            self.disk,
            self.folder,
            settings=self.settings,
            is_clean=is_clean,
            log_end=self.log_end,
            index_timestamp=self.checkpoint,
        )
        self.checkpoint = index.synced_timestamp
        for message in self.log:
            if message[0] >= index.resume_offset:
                index.add_hashes(*message)
        return index

    def append(self) -> None:
        for _ in range(self.chance.choice((1, 10, 70))):
            self.now_ms += self.chance.choice((0, 0, 3, 1500))
            hashes = [self.chance.randrange(1 << 31) for _ in range(self.chance.randint(0, 4))]
            message = self.log_end, self.now_ms, hashes
            self.log.append(message)
            self.log_end += self.chance.randint(1, 500)
            self.index.add_hashes(*message)

    def sync(self) -> None:
        taken = self.index.take_unsynced()
        if self.chance.random() < 1 / 2:
            self.append()
        for file in taken:
            file.sync()
        self.index.mark_synced(taken)
        self.checkpoint = self.index.synced_timestamp

    def stop(self) -> None:
        self.sync()
        self.sync()
        self.index.close()
        self.index = self.open(is_clean=True)

    def crash(self) -> None:
        while True:
            self.chance.choice((self._lose_power, self.disk.abandon))()
            if self.chance.random() < 1 / 3:
                self.disk.cut_power_at(self.chance.randint(1, 12))
            try:
                self.index = self.open(is_clean=False)
            except PowerCut:
                continue
            return

    def _lose_power(self) -> None:
        self.disk.crash(self.chance.randrange(1 << 30))
        # The log may have lost messages that the index has, and the index some that the log has.
        if self.log and self.chance.random() < 1 / 2:
            del self.log[self.chance.randrange(max(0, len(self.log) - 30), len(self.log)) :]
            self.log_end = self.log[-1][0] + 1 if self.log else 0

    def step(self) -> None:
        if self.chance.random() < 1 / 4:
            self.disk.cut_power_at(self.chance.randint(1, 12))
        deeds: list[Callable[[], None]] = [self.append, self.append, self.sync, self.stop]
        try:
            self.chance.choice([*deeds, self.crash])()
        except PowerCut:
            self.crash()

    def check(self) -> None:
        expected = [(each, offset) for offset, _, hashes in self.log for each in hashes]
        slots = self.settings.index_slots
        assert all_entries(self.folder, slots=slots) == expected
        for path in paths(self.folder):
            data = path.read_bytes()
            header = index_entry.unpack_header(data)
            # Slots and chains are right: linking them anew changes nothing.
            assert index_entry.relink(data, slots, header.index_count) == header.slot_count
        assert self.disk.unallocated_writes == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_the_index_is_whole_after_any_series_of_stops(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    rounds = Rounds(tmp_path, Random(seed))

    for _ in range(12):
        rounds.step()
        rounds.check()
