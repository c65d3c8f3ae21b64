"""Handling each queue in its order: one call at a time, under a lock, with nothing skipped."""

import asyncio
from typing import Any, Self

import pytest

from cometmq.client.core.message_batch import Batch
from cometmq.client.failure_log import FailureLog
from cometmq.client.handler_runner import Left
from cometmq.client.offset_stores import RemoteOffsets
from cometmq.client.orderly_handling import OrderlyHandling
from cometmq.client.owned_queue import OwnedQueue
from cometmq.model.offsets import MessageQueue
from cometmq.testing import FakeClock
from tests.unit.client.consumer_kit import (
    FakeRunner,
    FakeSendingBack,
    messages_for,
    owned_by,
    queue,
    settled,
    setup_of,
    until,
)


class FakeLocking:
    """A broker's locks; ``answer`` is None while it cannot be asked."""

    def __init__(self) -> None:
        self.answer: bool | None = True
        self.asked = 0

    async def lock(self, queues: Any) -> dict[MessageQueue, bool]:
        self.asked += 1
        return {} if self.answer is None else dict.fromkeys(queues, self.answer)


class Bench:
    """Orderly handling with one queue; calls end when the test says so."""

    def __init__(self, *offsets: int, is_batch: bool = False, **options: Any) -> None:
        self.clock = FakeClock()
        options.setdefault("suspend_ms", 10)
        self.setup = setup_of(self.clock, is_batch=is_batch, is_orderly=True, **options)
        self.store = RemoteOffsets(self.setup.instance, "group")
        self.back = FakeSendingBack()
        self.locking = FakeLocking()
        self.abandoned: list[OwnedQueue[bytes]] = []
        locking: Any = self.locking
        sending_back: Any = self.back
        self.handling: OrderlyHandling[bytes] = OrderlyHandling(
            self.setup,
            self.store,
            sending_back,
            locking=locking,
            abandon=self.abandon,
            failures=FailureLog("group", self.clock),
        )
        self.handling.runner = self.runner = FakeRunner(self.handling.finished)
        self.owned = owned_by(self.setup)
        if offsets:
            self.put(*offsets)

    def abandon(self, owned: OwnedQueue[bytes]) -> None:
        self.abandoned.append(owned)
        owned.drop()

    def put(self, *offsets: int) -> None:
        self.handling.put(self.owned, messages_for(self.owned, *offsets))

    @property
    def committed(self) -> int:
        return self.store.peek(queue())

    async def called(self) -> Any:
        """What the handler is called with next."""
        await until(lambda: bool(self.runner.calls))
        return self.runner.calls[0][0]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.handling.drain(0)

    async def end(self, error: BaseException | None = None) -> None:
        await self.called()
        _, future = self.runner.calls.pop(0)
        future.set_result(error)
        await settled()


async def test_a_queue_has_one_call_at_a_time_whatever_is_put() -> None:
    async with Bench(0, 1) as bench:
        await settled()
        bench.put(2)
        await settled()

        assert [item.queue_offset for item, _ in bench.runner.calls] == [0]
        for _ in range(3):
            await bench.end()
        assert bench.committed == 3
        assert bench.owned.idle.is_set()


async def test_a_failed_message_is_first_again_and_nothing_passes_it() -> None:
    async with Bench(0, 1) as bench:
        await bench.end(ValueError("failed"))
        assert bench.committed == -1

        again = await bench.called()

        assert (again.queue_offset, again.reconsume_times) == (0, 1)


async def test_a_message_that_could_not_be_buried_for_a_bug_is_not_skipped() -> None:
    async with Bench(0, 1) as bench:
        bench.back.answers = [RuntimeError("a bug")]
        (await bench.called()).dead_letter()
        await bench.end()

        again = await bench.called()

        assert again.queue_offset == 0
        await bench.end()
        await bench.end()
        assert bench.committed == 2


async def test_a_batch_commits_what_was_done_before_the_first_failure() -> None:
    async with Bench(0, 1, 2, is_batch=True, batch_size=3) as bench:
        batch = await bench.called()
        assert isinstance(batch, Batch)
        batch.ack_up_to(0)
        await bench.end()
        assert bench.committed == 1

        again = await bench.called()

        assert [message.queue_offset for message in again] == [1, 2]


async def test_what_was_acknowledged_is_committed_although_the_handler_was_cancelled_then() -> None:
    async with Bench(0, 1) as bench:
        (await bench.called()).ack()

        await bench.handling.drain(0)
        await settled()

        assert bench.committed == 1
        assert len(bench.owned.cached) == 1


async def test_a_handler_that_has_its_own_task_cancelled_does_not_stop_the_queue() -> None:
    async with Bench(0, 1) as bench:
        await bench.called()
        (task,) = bench.handling.tasks

        task.cancel()  # as the handler would do, which runs inside of it
        bench.runner.calls.clear()

        assert (await bench.called()).queue_offset == 0
        await bench.end()
        await bench.end()
        assert bench.committed == 2


async def test_whatever_a_handler_raises_does_not_stop_the_queue() -> None:
    """Native libraries raise what is no ``Exception``."""
    async with Bench(0, 1) as bench:
        await bench.end(BaseException("panic"))

        assert (await bench.called()).queue_offset == 0
        await bench.end()
        await bench.end()
        assert bench.committed == 2


async def test_an_expired_lock_that_is_renewed_soon_enough_keeps_the_queue() -> None:
    async with Bench(lock_life_ms=30_000) as bench:
        bench.clock.advance(31)
        assert not bench.owned.cached.holds_lock(bench.clock.now_ms())

        await bench.handling.renew((bench.owned,))

        assert bench.abandoned == []
        assert bench.owned.cached.holds_lock(bench.clock.now_ms())
        bench.put(0)
        await bench.end()
        assert bench.committed == 1


@pytest.mark.slow  # a lock that has expired is asked for after 100 ms
async def test_no_call_begins_while_the_lock_is_not_ours_for_sure() -> None:
    async with Bench(0, 1, lock_life_ms=30_000) as bench:
        bench.locking.answer = None
        await bench.called()
        bench.clock.advance(31)

        await bench.end()
        await until(lambda: bench.locking.asked == 1)

        assert bench.runner.calls == []
        assert bench.committed == 1  # of what was handled; who may write it is decided elsewhere


async def test_a_lock_that_another_member_got_gives_the_queue_up() -> None:
    async with Bench(0) as bench:
        await bench.called()
        bench.locking.answer = False

        await bench.handling.renew((bench.owned,))
        await bench.end()

        assert bench.abandoned == [bench.owned]
        assert not bench.owned.cached.is_locked
        assert bench.committed == -1


async def test_a_lock_that_may_have_been_anothers_meanwhile_begins_the_queue_anew() -> None:
    async with Bench(lock_life_ms=30_000) as bench:
        bench.clock.advance(46)

        await bench.handling.renew((bench.owned,))

        assert bench.abandoned == [bench.owned]


async def test_a_clock_that_was_set_back_does_not_make_a_lock_last_longer() -> None:
    """Its broker has given it to another member long before our clock is where it was."""
    async with Bench(lock_life_ms=30_000) as bench:
        bench.clock.set_back(3_600)
        bench.clock.advance(60)

        assert not bench.owned.cached.holds_lock(bench.clock.now_ms())
        await bench.handling.renew((bench.owned,))
        assert bench.abandoned == [bench.owned]


async def test_a_queue_that_leaves_does_not_wait_for_somebody_to_take_its_message() -> None:
    async with Bench(0) as bench:
        message = await bench.called()

        bench.owned.leave()
        bench.handling.leave(bench.owned)
        assert bench.runner.withdrawn == [message]
        await bench.end(Left())

        assert bench.owned.idle.is_set()
        assert bench.committed == -1


async def test_draining_is_bounded_once() -> None:
    async with Bench(0) as bench:
        await bench.called()
        loop = asyncio.get_running_loop()
        began = loop.time()

        await bench.handling.drain(0.02)

        assert loop.time() - began < 0.035
        assert not bench.handling.tasks
