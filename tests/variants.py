"""Tests that are run for each of several clients, tools or releases: all of them, or one of each.

``COMETMQ_VARIANTS=one`` has one of each kind chosen at random, which an ordinary run of the suite
does: over time every pair of a test and a client comes round, and every test is run every time.
``COMETMQ_SEED`` repeats a choice; a run prints its own.
"""

import os
import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest

VARIABLE = "COMETMQ_VARIANTS"
ALL, ONE = "all", "one"

RELEASES = ("ours", "4.9.7", "4.9.8", "5.5.0")
CLIENTS = ("java-4.9.8", "java-5.5.0", "go", "cpp", "node")
JUDGES = frozenset((*RELEASES, *CLIENTS))


class Choice(NamedTuple):
    """What is run, and what is left out."""

    chosen: Sequence[pytest.Item]
    left: Sequence[pytest.Item]


def is_one() -> bool:
    return os.environ.get(VARIABLE) == ONE


def new_seed() -> int:
    return int(os.environ.get("COMETMQ_SEED") or random.randrange(2**32))


def choose(config: pytest.Config, items: list[pytest.Item], folder: str) -> None:
    """Leave one of each kind below ``folder`` if so asked.

    For ``pytest_collection_modifyitems``.
    """
    if not is_one():
        return
    seed = new_seed()
    ours = [item for item in items if item.nodeid.startswith(folder)]
    left = {item.nodeid for item in one_of_each(ours, seed).left}
    items[:] = [item for item in items if item.nodeid not in left]
    config.hook.pytest_deselected(items=[item for item in ours if item.nodeid in left])
    print(f"{folder}: one variant of each test, COMETMQ_SEED={seed}")


def one_of_each(items: Sequence[pytest.Item], seed: int) -> Choice:
    """One test of each kind, in the order of all; who is skipped anyway is never chosen."""
    same: dict[str, list[pytest.Item]] = {}
    for item in items:
        same.setdefault(kind_of(item), []).append(item)
    chosen = set()
    for candidates in same.values():
        able = [item for item in candidates if not is_skipped(item)] or candidates
        chosen.add(random.Random(f"{seed} {candidates[0].nodeid}").choice(able).nodeid)
    return Choice(
        [item for item in items if item.nodeid in chosen],
        [item for item in items if item.nodeid not in chosen],
    )


def kind_of(item: pytest.Item) -> str:
    """What tests have in common that differ in their judges only."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return item.nodeid
    others = (
        f"{name}={value!r}"
        for name, value in sorted(callspec.params.items())
        if not is_judge(value)
    )
    return " ".join([item.nodeid.partition("[")[0], *others])


def is_judge(value: object) -> bool:
    """Whether a parameter is the name of a client, tool or release, or of several."""
    words = value if isinstance(value, tuple) else (value,)
    return all(isinstance(word, str) and word in JUDGES for word in words)


def is_skipped(item: pytest.Item) -> bool:
    return item.get_closest_marker("skip") is not None
