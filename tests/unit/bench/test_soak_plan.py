"""When a soak disturbs what, and that it leaves enough time to measure in."""

import asyncio
import random
from itertools import pairwise

import pytest

from bench.soak_ledger import OUTAGES
from bench.soak_plan import DELAYED, LEVELS_S, Plan, planned, quick, views
from bench.soak_python import body, key_in, regularly
from bench.soak_verdicts import SLOPE_SPAN_S_MIN
from cometmq.testing.history import ProblemKind

SEEDS = range(50)


def plans() -> list[Plan]:
    return [
        plan
        for seed in SEEDS
        for plan in (planned(30, random.Random(seed)), quick(random.Random(seed)))
    ]


def test_the_broker_is_restarted_and_killed_in_every_run() -> None:
    for plan in plans():
        times_s = [outage.at_s for outage in plan.outages]

        assert {outage.cause for outage in plan.outages} == OUTAGES
        assert times_s == sorted(times_s)
        assert times_s[-1] < plan.traffic_s


def test_the_same_seed_gives_the_same_run() -> None:
    assert planned(30, random.Random(7)) == planned(30, random.Random(7))
    assert planned(30, random.Random(7)) != planned(30, random.Random(8))


def test_a_run_of_half_an_hour_has_a_life_that_memory_is_judged_by() -> None:
    for seed in SEEDS:
        plan = planned(30, random.Random(seed))

        longest_s = max(b.at_s - a.at_s for a, b in pairwise(plan.outages))

        assert longest_s - plan.warm_up_s > SLOPE_SPAN_S_MIN, f"seed {seed}"


def test_every_level_has_its_delay() -> None:
    levels = quick(random.Random(1)).settings["messageDelayLevel"].split()

    assert len(levels) == len(LEVELS_S) == 18


def test_nobody_may_lose_a_message_or_get_one_that_was_not_sent() -> None:
    never = {ProblemKind.LOST, ProblemKind.GAP, ProblemKind.UNKNOWN, ProblemKind.CHANGED}

    for view in views():
        assert not never.intersection(view.excuses), view.group
        assert not view.rules.may_repeat, "repeats are excused one by one"


def test_only_delay_levels_may_store_a_message_twice() -> None:
    excused = {view.topic for view in views() if ProblemKind.DOUBLED in view.excuses}

    assert excused == {DELAYED}


def test_a_body_tells_its_key() -> None:
    for seed in SEEDS:
        assert key_in(body("p-17", random.Random(seed)).decode()) == "p-17"


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_done_regularly_is_finished_before_it_ends(count: int) -> None:
    done: list[int] = []
    until = asyncio.Event()

    async def act() -> None:
        if len(done) + 1 == count:
            until.set()
        await asyncio.sleep(0)
        done.append(len(done))

    asyncio.run(regularly(0, act, until))

    assert done == list(range(count))
