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

ROUNDS_FULL = 80
SECONDS = 5.0
CRASHES = 6
"""Power cuts of one round, on the same directory."""
STEPS_MAX = 40
EVENTS_MAX = 120
EVENTS_NEVER = 10**9
SECTOR_BYTES = 512
STORY = "power cuts, one story at every event"
RECOVERIES = "power cuts while recovering"
STORY_SECONDS = 3.0


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
        has_transient_pool=chance.random() < 0.25,
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


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_power_may_fail_at_any_change_of_the_disk(tmp_path: Path) -> None:
    """One story with everything in it, cut short at another event in each round."""
    untroubled = Machine(tmp_path / "untroubled")
    tell_story(untroubled)
    event_count = untroubled.disk.event_count

    for seed in rounds(STORY, full=event_count, seconds=STORY_SECONDS):
        machine = Machine(tmp_path / str(seed))
        # Steps of a prime: a run of any length is spread over the story, a full one covers it.
        machine.disk.cut_power_at(1 + seed * 7919 % event_count)
        with pytest.raises(PowerCut) as cut:
            tell_story(machine)
        note(STORY, f"at {cut.value.args[0].kind}")

        machine.crash(seed)

        machine.recover()
        machine.check()
        assert machine.disk.unallocated_writes == []
        shutil.rmtree(machine.root)


def tell_story(machine: Machine) -> None:
    """Roll files of every kind, flush, clean, close, open again and go on."""
    machine.open()
    for _ in range(4):
        machine.put(25)
        machine.put_batch()
        machine.store.dispatch()
        machine.clock.advance(5)
        machine.store.flush_step()
    machine.store.flush()
    machine.clean()
    machine.put(10)
    machine.close()
    machine.open()
    machine.put(30)
    machine.close()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_recovery_may_itself_be_cut_short_again_and_again(tmp_path: Path) -> None:
    for seed in rounds(RECOVERIES, full=30, seconds=STORY_SECONDS):
        chance = Random(seed)
        machine = some_machine(tmp_path / str(seed), chance, sector_bytes=None)
        run_until_the_lights_go_out(machine, chance)
        machine.crash(seed)

        attempts = 0
        while not recovers_within(machine, attempts + 1):
            attempts += 1
            machine.crash(seed + attempts)
            note(RECOVERIES, "interruptions")

        machine.ledger.claim(machine.store)
        machine.check()
        shutil.rmtree(machine.root)


def recovers_within(machine: Machine, event_count: int) -> bool:
    """Open the store, with the power going out at that event if it comes to it."""
    machine.disk.cut_power_at(event_count)
    try:
        machine.open()
    except PowerCut:
        return False
    machine.disk.cut_power_at(EVENTS_NEVER)
    return True
