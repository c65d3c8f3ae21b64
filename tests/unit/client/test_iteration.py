"""Handing messages out to iterators, and what becomes of those that nobody acknowledged."""

import asyncio
import contextlib
import gc
from typing import Any

import pytest

from cometmq.client.consume_hooks import HookCalls
from cometmq.client.core.message import DecisionKind, Message
from cometmq.client.handler_runner import Left
from cometmq.client.iteration import Handout, MessageIterator
from cometmq.testing import FakeClock
from tests.unit.client.consumer_kit import messages_for, owned_by, settled, setup_of


class Desk:
    """Somebody who lends messages, and notes how each came back."""

    def __init__(self, *offsets: int, **options: Any) -> None:
        clock = FakeClock()
        self.ends: list[tuple[int, str]] = []
        calls = HookCalls(
            (), group="group", namespace="", mode="concurrent", timeout_ms=1_000, clock=clock
        )
        self.handout = Handout(calls, on_done=self._ended, clock=clock)
        self.owned = owned_by(setup_of(clock, **options))
        self.handout.submit(self.owned, messages_for(self.owned, *offsets))

    async def begin_iteration(self) -> Handout:
        return self.handout

    def __aiter__(self) -> MessageIterator[bytes]:
        return MessageIterator(self)

    def _ended(
        self, context: Any, item: Message[bytes], error: BaseException | None, seconds: float
    ) -> None:
        assert context is self.owned
        assert seconds >= 0
        decision = item.decision
        how = "ack" if decision is None else decision.kind.value
        self.ends.append((item.queue_offset, "left" if isinstance(error, Left) else how))


async def test_asking_for_the_next_acknowledges_the_last() -> None:
    desk = Desk(0, 1)
    iterator = aiter(desk)

    await anext(iterator)
    assert desk.ends == []
    await anext(iterator)

    assert desk.ends == [(0, "ack")]


async def test_a_loop_that_is_left_gives_its_message_back() -> None:
    desk = Desk(0, 1, 2, 3)

    async for _ in desk:
        break
    with contextlib.suppress(ValueError):
        async for _ in desk:
            raise ValueError("no")
    iterator = aiter(desk)
    await anext(iterator)
    await iterator.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(iterator)
    await settled()

    assert sorted(desk.ends) == [(0, "retry"), (1, "retry"), (2, "retry")]


async def test_a_cancelled_loop_gives_its_message_back() -> None:
    desk = Desk(0)
    began = asyncio.Event()

    async def loop() -> None:
        async for _ in desk:
            began.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(loop())
    await began.wait()
    task.cancel()
    await asyncio.wait((task,))
    del task
    gc.collect()
    await settled()

    assert desk.ends == [(0, "retry")]


async def test_an_iterator_that_is_collected_gives_its_message_back() -> None:
    desk = Desk(0)
    iterator = aiter(desk)
    await anext(iterator)

    del iterator
    gc.collect()
    await settled()

    assert desk.ends == [(0, "retry")]


async def test_what_was_decided_counts_although_the_loop_is_left() -> None:
    desk = Desk(0)

    async for message in desk:
        message.dead_letter()
        break
    await settled()

    assert desk.ends == [(0, DecisionKind.DEAD_LETTER.value)]


async def test_asking_in_vain_again_and_again_leaves_nothing_behind() -> None:
    desk = Desk()
    iterator = aiter(desk)

    for _ in range(3):
        asking = asyncio.create_task(anext(iterator, None))
        await settled()
        asking.cancel()
        await asyncio.wait((asking,))

    assert desk.handout.waiting_count == 0


async def test_a_message_that_woke_a_cancelled_iterator_goes_to_another() -> None:
    desk = Desk()
    one = asyncio.create_task(anext(aiter(desk)))
    two = asyncio.create_task(anext(aiter(desk)))
    await settled()

    desk.handout.submit(desk.owned, messages_for(desk.owned, 0))
    one.cancel()
    message = await two

    assert message.queue_offset == 0
    assert one.cancelled() or one.cancelling()


async def test_a_broadcast_message_that_was_left_is_told_as_left() -> None:
    desk = Desk(0, mode="broadcast")

    async for _ in desk:
        break
    await settled()

    assert desk.ends == [(0, "left")]


async def test_closing_ends_loops_and_leaves_what_they_have() -> None:
    desk = Desk(0, 1)
    busy, waiting = aiter(desk), aiter(desk)
    await anext(busy)
    await anext(waiting)
    asking = asyncio.create_task(anext(waiting, None))
    await settled()

    await desk.handout.drain(0)
    await desk.handout.stop()

    assert await asking is None
    assert await anext(busy, None) is None
    assert desk.ends == [(1, "ack"), (0, "retry")]


async def test_nothing_is_handed_out_after_closing_has_begun() -> None:
    desk = Desk()
    await desk.handout.drain(0)

    desk.handout.submit(desk.owned, messages_for(desk.owned, 0))

    assert await anext(aiter(desk), None) is None
    assert isinstance(await desk.handout.call(messages_for(desk.owned, 1)[0]), Left)


async def test_a_call_that_nobody_has_taken_can_be_withdrawn() -> None:
    desk = Desk()
    first, second = messages_for(desk.owned, 0, 1)
    calls = [asyncio.create_task(desk.handout.call(item)) for item in (first, second)]
    await settled()
    iterator = aiter(desk)
    assert await anext(iterator) is first

    desk.handout.withdraw(first)
    desk.handout.withdraw(second)
    await settled()

    assert not calls[0].done()  # somebody works on it
    assert isinstance(await calls[1], Left)
    await iterator.aclose()
    await calls[0]


async def test_an_iterator_is_asked_by_one_at_a_time() -> None:
    """The message of the other would be with nobody."""
    desk = Desk()
    iterator = aiter(desk)
    asking = asyncio.create_task(anext(iterator))
    await settled()

    with pytest.raises(RuntimeError, match="already"):
        await anext(iterator)

    desk.handout.submit(desk.owned, messages_for(desk.owned, 0))
    assert (await asking).queue_offset == 0
