"""The fuzz targets over their seeds and over mutations of them; most of it without atheris.

``COMETMQ_SEED`` repeats a run of mutations; ``COMETMQ_ROUNDS=full`` asks for the full number of
them instead of half a second for each target.
"""

import importlib.util
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cometmq.errors import RemoteProtocolError
from fuzz import corpus, run
from fuzz.checks import Refused, attempt, require_same
from fuzz.mutation import DICTIONARY, mutated
from fuzz.targets import TARGETS

ROUNDS_FULL = 20_000
SECONDS = 0.5

has_atheris = importlib.util.find_spec("atheris") is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_target_has_nothing_to_say_about_recorded_bytes(name: str) -> None:
    for seed in corpus.seeds(name):
        TARGETS[name](seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_no_mutation_of_recorded_bytes_makes_a_decoder_break_its_promise(name: str) -> None:
    seed = int(os.environ.get("COMETMQ_SEED") or random.randrange(2**32))
    chance = random.Random(seed)
    seeds = corpus.seeds(name)
    rounds = 0
    began = time.monotonic()

    while is_unfinished(rounds, began):
        data = mutated(chance.choice(seeds), seeds, chance)
        rounds += 1
        try:
            TARGETS[name](data)
        except Exception:
            print(f"{name}: round {rounds} of COMETMQ_SEED={seed}, bytes {data.hex()}")
            raise

    print(f"{name}: {rounds} rounds, COMETMQ_SEED={seed}")
    assert rounds > 0


def is_unfinished(rounds: int, began: float) -> bool:
    if os.environ.get("COMETMQ_ROUNDS") == "full":
        return rounds * len(TARGETS) < ROUNDS_FULL
    return time.monotonic() < began + SECONDS


@pytest.mark.slow
def test_every_target_has_seeds_and_they_are_few_and_short() -> None:
    for name in TARGETS:
        seeds = corpus.seeds(name)

        assert 0 < len(seeds) <= corpus.SEEDS_MAX, name
        assert max(map(len, seeds)) <= corpus.SEED_BYTES_MAX, name


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_takes_no_bytes_and_single_bytes(name: str) -> None:
    TARGETS[name](b"")
    for byte in (0, 1, 0x7F, 0x80, 0xFF):
        TARGETS[name](bytes([byte]))


def test_the_same_seed_makes_the_same_mutations() -> None:
    first, second = random.Random(7), random.Random(7)
    seeds = (b"recorded", b"bytes")

    mutations = [mutated(b"recorded", seeds, first) for _ in range(500)]

    assert mutations == [mutated(b"recorded", seeds, second) for _ in range(500)]
    assert len(set(mutations)) > 300
    assert any(word in mutation for word in DICTIONARY for mutation in mutations if len(word) > 3)


def test_only_a_protocol_error_counts_as_a_refusal() -> None:
    def refuse() -> None:
        raise RemoteProtocolError("no frame")

    def stumble() -> None:
        raise IndexError("out of range")

    assert attempt(refuse) == Refused("no frame")
    with pytest.raises(IndexError):
        attempt(stumble)


@pytest.mark.parametrize(("found", "expected"), [(True, 1), (1.0, 1), ("1", 1), ([1], (1,))])
def test_values_that_only_look_alike_are_not_the_same(found: object, expected: object) -> None:
    with pytest.raises(AssertionError, match="field"):
        require_same(found, expected, "field")


@pytest.mark.slow
def test_a_saved_input_is_replayed_without_atheris(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.write_bytes(corpus.seeds("batch")[0])

    replayed = fuzz_run("--target", "batch", "--replay", str(saved))

    assert replayed.returncode == 0, replayed.stderr
    assert "good" in replayed.stdout


@pytest.mark.slow
@pytest.mark.skipif(not has_atheris, reason="atheris is not installed for this Python")
def test_atheris_runs_a_target_and_sees_what_it_covers() -> None:
    done = fuzz_run("--target", "batch", "--seconds", "1")

    assert done.returncode == 0, done.stdout[-2000:]
    found = re.search(
        r"^batch +(\d+) executions +(\d+) covered +0 crashes$", done.stdout, re.MULTILINE
    )
    assert found is not None, done.stdout
    assert int(found[1]) > len(corpus.seeds("batch"))
    assert int(found[2]) > 0


def fuzz_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """As its user runs it: a program that is started by a large one counts as large at first."""
    command = [sys.executable, "-m", "fuzz.run", *arguments]
    return subprocess.run(command, cwd=run.ROOT, capture_output=True, text=True, check=False)
