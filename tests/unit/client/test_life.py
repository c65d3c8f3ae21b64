"""When something may be used."""

import asyncio
import os
import warnings

import pytest

from cometmq.client.life import Life, State
from cometmq.errors import NotRunning
from tests.unit.client.kit import told_by_child


async def test_it_may_be_used_between_begin_and_end() -> None:
    life = Life("this thing")

    life.begin()
    life.require()
    assert life.is_running
    assert life.end()
    with pytest.raises(NotRunning, match="this thing is being closed"):
        life.require()
    life.ended()

    assert life.state is State.CLOSED
    assert not life.end()


async def test_what_was_not_entered_says_how_to() -> None:
    life = Life("this thing")

    with pytest.raises(NotRunning, match="was not entered yet; use it inside of 'async with'"):
        life.require()


async def test_it_begins_once() -> None:
    life = Life("this thing")
    life.begin()

    with pytest.raises(NotRunning, match="is running and cannot be started"):
        life.begin()


async def test_ending_what_never_began_leaves_nothing_to_close() -> None:
    life = Life("this thing")

    assert not life.end()
    assert life.state is State.CLOSED


def test_it_is_bound_to_its_loop() -> None:
    life = Life("this thing")

    async def begin() -> None:
        life.begin()

    async def use() -> None:
        life.require()

    asyncio.run(begin())

    with pytest.raises(NotRunning, match="is used outside of the event loop"):
        asyncio.run(use())


async def test_a_leak_is_told_with_the_place_where_it_was_made() -> None:
    life = Life("this thing")
    life.begin()

    with pytest.warns(ResourceWarning, match=r"this thing was not closed; .*test_life\.py:"):
        life.warn_if_leaked(self_made := object())

    assert self_made is not None


async def test_what_was_closed_is_no_leak() -> None:
    life = Life("this thing")
    life.begin()
    life.end()
    life.ended()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        life.warn_if_leaked(object())

    assert life.state is State.CLOSED


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
async def test_a_forked_process_must_not_use_it() -> None:
    life = Life("this thing")
    life.begin()

    told = told_by_child(life.require)
    facts = told_by_child(lambda: (life.is_foreign, life.is_running, life.end()))

    assert "was made before this process was forked; make a new one in each process" in told
    assert facts == "(True, False, False)"
    life.require()


async def test_without_a_loop_it_says_where_it_may_be_used() -> None:
    life = Life("this client")
    life.begin()

    with pytest.raises(NotRunning, match="outside of the event loop"):
        await asyncio.to_thread(life.require)


async def test_it_can_only_be_ended_where_it_was_begun() -> None:
    life = Life("this client")
    life.begin()

    with pytest.raises(NotRunning, match="outside of the event loop"):
        await asyncio.to_thread(life.end_here)

    assert life.end_here()
    assert not life.end_here()
