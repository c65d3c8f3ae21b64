"""How often random crash tests are repeated, and what they have done in the end.

``COMETMQ_ROUNDS=full`` asks for the number CI wants, ``COMETMQ_ROUNDS=5000`` for another; else a
test goes on until its seconds are over. ``COMETMQ_SEED`` repeats a run: its rounds have the seeds
that follow.
"""

import collections
import os
import random
import time
from collections.abc import Iterator

tally: dict[str, collections.Counter[str]] = {}
"""What happened how often, by test: printed when all tests are over."""


def rounds(name: str, *, full: int, seconds: float) -> Iterator[int]:
    """Seeds, one for each round; whatever ends the rounds, they are counted."""
    seed = int(os.environ.get("COMETMQ_SEED") or random.randrange(2**32))
    wanted = os.environ.get("COMETMQ_ROUNDS", "")
    count_max = full if wanted == "full" else int(wanted) if wanted.isdecimal() else None
    deadline = time.monotonic() + seconds
    count = 0
    while count < count_max if count_max is not None else time.monotonic() < deadline:
        print(f"{name}: COMETMQ_SEED={seed + count}")
        tally.setdefault(name, collections.Counter())["rounds"] += 1
        yield seed + count
        count += 1


def note(name: str, what: str) -> None:
    tally.setdefault(name, collections.Counter())[what] += 1


def summary() -> Iterator[str]:
    for name, counts in tally.items():
        told = [f"{count} {what}" for what, count in counts.items() if what != "rounds"]
        yield f"{name}: {counts['rounds']} rounds" + (": " if told else "") + ", ".join(told)
