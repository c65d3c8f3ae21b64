"""The limit of sends under way."""

import asyncio

import pytest

from cometmq.client.flights import Flights
from cometmq.errors import TooManyRequests


def full(limit: int) -> Flights:
    flights = Flights(limit)
    flights.count = limit
    return flights


async def test_turns_come_in_order_as_others_leave() -> None:
    flights = full(1)
    turns = [asyncio.ensure_future(flights.turn(1_000)) for _ in range(2)]
    await asyncio.sleep(0)

    flights.leave()
    await turns[0]

    assert flights.count == 1
    assert not turns[1].done()
    flights.leave()
    assert 0 < await turns[1] <= 1_000


async def test_who_waits_too_long_is_told_and_passed_over() -> None:
    flights = full(1)

    with pytest.raises(TooManyRequests, match="this producer"):
        await flights.turn(1)
    flights.leave()

    assert flights.count == 0


async def test_a_turn_that_comes_too_late_goes_to_the_next() -> None:
    flights = full(1)
    first = asyncio.ensure_future(flights.turn(1_000))
    second = asyncio.ensure_future(flights.turn(1_000))
    await asyncio.sleep(0)

    flights.leave()
    first.cancel()  # its turn has come, but it has not seen so yet
    await second

    assert first.cancelled() or first.cancelling()
    assert flights.count == 1


async def test_all_have_landed_when_the_last_one_leaves() -> None:
    flights = full(2)
    assert not await flights.landed(1)

    landing = asyncio.ensure_future(flights.landed(1_000))
    await asyncio.sleep(0)
    flights.leave()
    flights.leave()

    assert await landing
    assert await flights.landed(0)


async def test_a_send_that_follows_at_once_is_waited_for_too() -> None:
    """As the frames of a batch do, of which one ends where the next one begins."""
    flights = full(1)
    landing = asyncio.ensure_future(flights.landed(1_000))
    await asyncio.sleep(0)

    flights.leave()
    flights.count += 1
    for _ in range(3):
        await asyncio.sleep(0)

    assert not landing.done()
    flights.leave()
    assert await landing


async def test_nobody_gets_a_turn_while_more_than_allowed_are_under_way() -> None:
    flights = full(1)
    turn = asyncio.ensure_future(flights.turn(1_000))
    flights.count += 1  # a body that is being compressed
    await asyncio.sleep(0)

    flights.leave()
    assert flights.count == 1

    flights.leave()
    await turn
    assert flights.count == 1


async def test_who_has_given_up_is_not_remembered() -> None:
    flights = full(1)

    for _ in range(3):
        with pytest.raises(TooManyRequests):
            await flights.turn(0)

    assert not flights._waiting
