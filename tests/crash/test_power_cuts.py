"""Power cuts: memory is gone and the disk has some of the pages that were never synced.

Everything here runs in one process on a ``CrashingDisk``, without threads, and follows from its
seed: ``COMETMQ_SEED`` repeats it exactly.
"""

import shutil
from pathlib import Path
from random import Random

import pytest

from cometmq.testing import PowerCut
from tests.crash import messages
from tests.crash.machine import Machine
from tests.crash.rounds import note, rounds
from tests.crash.sizes import small

ROUNDS_FULL = 400
SECONDS = 7.0
CRASHES = 6
"""Power cuts of one round, on the same directory."""
STEPS_MAX = 40
EVENTS_MAX = 120
SECTOR_BYTES = 512


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sector_bytes", [None, SECTOR_BYTES], ids=["pages", "torn pages"])
def test_what_was_flushed_outlives_a_power_cut(tmp_path: Path, sector_bytes: int | None) -> None:
    name = "power cuts" if sector_bytes is None else "power cuts with torn pages"
    for seed in rounds(name, full=ROUNDS_FULL, seconds=SECONDS):
        chance = Random(seed)
        machine = some_machine(tmp_path / str(seed), chance, sector_bytes=sector_bytes)

        for _ in range(CRASHES):
            note(name, run_until_the_lights_go_out(machine, chance))
            machine.crash(chance.randrange(2**32))
            if chance.random() < 0.5:
                machine.recover()
                machine.check()

        machine.recover()
        machine.check()
        assert machine.disk.unallocated_writes == []
        shutil.rmtree(machine.root)


def some_machine(root: Path, chance: Random, *, sector_bytes: int | None) -> Machine:
    """Tiny files and few queues make many files: a crash then finds several never synced."""
    settings = small(
        is_cleaning=True,
        log_file_bytes=chance.choice((8, 64)) * 1024,
        queue_entries=chance.choice((7, 100)),
        index_slots=chance.choice((5, 50)),
    )
    only_queue = chance.choice((None, None, (messages.TOPICS[0], 0)))
    return Machine(root, settings=settings, only_queue=only_queue, sector_bytes=sector_bytes)


def run_until_the_lights_go_out(machine: Machine, chance: Random) -> str:
    """Work until the power fails: between two steps, or at some change of the disk."""
    if chance.random() < 0.7:
        machine.disk.cut_power_at(chance.randint(1, EVENTS_MAX))
    try:
        machine.open()
        for _ in range(chance.randint(1, STEPS_MAX)):
            machine.step(chance)
        if chance.random() < 0.3:
            machine.close()
    except PowerCut as cut:
        return f"at {cut.args[0].kind}" if cut.args else "at once"
    return "between steps"
