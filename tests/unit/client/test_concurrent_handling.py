"""Handling in any order: what is committed, what is sent back, and when."""

import asyncio
from typing import Any

import pytest

from cometmq.client.concurrent_handling import ConcurrentHandling
from cometmq.client.consumer_setup import ConsumerSetup
from cometmq.client.failure_log import FailureLog
from cometmq.client.handler_runner import Left, ThreadEnded
from cometmq.client.offset_stores import RemoteOffsets
from cometmq.client.owned_queue import OwnedQueue
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


class Bench:
    """Concurrent handling with one queue; handlers end when the test says so."""

    def __init__(self, *offsets: int, is_batch: bool = False, **options: Any) -> None:
        self.clock = FakeClock()
        self.setup: ConsumerSetup[bytes] = setup_of(self.clock, is_batch=is_batch, **options)
        self.store = RemoteOffsets(self.setup.instance, "group")
        self.back = FakeSendingBack()
        sending_back: Any = self.back if self.setup.is_cluster else None
        self.handling: ConcurrentHandling[bytes] = ConcurrentHandling(
            self.setup, self.store, sending_back, failures=FailureLog("group", self.clock)
        )
        self.handling.runner = self.runner = FakeRunner(self.handling.finished)
        self.owned = owned_by(self.setup)
        if offsets:
            self.put(self.owned, *offsets)

    def put(self, owned: OwnedQueue[bytes], *offsets: int) -> None:
        messages = messages_for(owned, *offsets)
        self.handling.put(owned, messages)

    @property
    def committed(self) -> int:
        return self.store.peek(queue())

    def work_for(self, seconds: float) -> None:
        """Let the handler of what was submitted first run for so long."""
        context, item = self.runner.submitted[0]
        self.runner.at_work = [(context, item, self.clock.monotonic())]
        self.clock.advance(seconds)


async def test_the_offset_waits_for_the_first_message_that_is_not_done() -> None:
    bench = Bench(5, 6, 7)

    bench.runner.submitted.reverse()
    bench.runner.end()
    bench.runner.end()
    await settled()
    assert bench.committed == 5
    bench.runner.end()
    await settled()

    assert bench.committed == 8


async def test_a_late_result_says_nothing_about_a_queue_that_went_and_came_back() -> None:
    bench = Bench(0, 1)
    late = bench.runner.submitted[:]
    bench.handling.drop(bench.owned)
    bench.owned.drop()
    again = owned_by(bench.setup)
    bench.put(again, 0, 1)

    for context, item in late:
        bench.handling.finished(context, item, None, 0.1)
    bench.handling.finished(bench.owned, late[0][1], ValueError("late"), 0.1)
    await settled()

    assert bench.committed == -1
    assert bench.back.taken == []
    assert len(again.cached) == 2


async def test_a_message_that_failed_while_its_time_out_sent_it_back_goes_back_once() -> None:
    bench = Bench(0, consume_timeout_ms=1_000)
    bench.work_for(2)
    bench.back.gate = asyncio.get_running_loop().create_future()
    looking = asyncio.create_task(bench.handling.send_back_overdue())
    await settled()

    bench.runner.end(ValueError("late"))
    await settled()
    bench.back.gate.set_result(None)
    await looking
    await settled()

    assert bench.back.taken == [(0, 3)]
    assert bench.committed == 1


async def test_a_message_whose_time_out_could_not_send_it_back_goes_back_when_it_fails() -> None:
    bench = Bench(0, consume_timeout_ms=1_000)
    bench.work_for(2)
    bench.back.gate = asyncio.get_running_loop().create_future()
    bench.back.answers = [False]
    looking = asyncio.create_task(bench.handling.send_back_overdue())
    await settled()

    bench.runner.end(ValueError("late"))
    bench.back.gate.set_result(None)
    await looking
    await settled()

    assert bench.back.taken == [(0, 3), (0, 0)]
    assert bench.committed == 1


async def test_what_is_left_of_an_overdue_batch_is_sent_back_with_the_next_look() -> None:
    bench = Bench(0, 1, 2, is_batch=True, batch_size=3, consume_timeout_ms=1_000)
    bench.work_for(2)
    bench.back.answers = [True, False]

    await bench.handling.send_back_overdue()
    assert bench.committed == 1
    await bench.handling.send_back_overdue()

    assert [offset for offset, _ in bench.back.taken] == [0, 1, 1, 2]
    assert bench.committed == 3


async def test_what_a_cancelled_handler_had_holds_up_its_queue_until_the_time_out_only() -> None:
    bench = Bench(0, 1, consume_timeout_ms=1_000)
    bench.runner.end(asyncio.CancelledError())
    bench.runner.end()
    await settled()
    await bench.handling.send_back_overdue()
    assert bench.committed == 0
    assert bench.back.taken == []

    bench.clock.advance(2)
    await bench.handling.send_back_overdue()

    assert bench.back.taken == [(0, 3)]
    assert bench.committed == 2


async def test_what_was_acknowledged_is_done_although_the_handler_was_cancelled_then() -> None:
    bench = Bench(0)
    bench.runner.submitted[0][1].ack()

    bench.runner.end(asyncio.CancelledError())
    await settled()

    assert bench.committed == 1


@pytest.mark.parametrize("problem", [False, RuntimeError("a bug")])
async def test_a_message_that_cannot_be_sent_back_is_handled_again(
    problem: bool | BaseException,
) -> None:
    bench = Bench(0, resend_pause_ms=1)
    bench.back.answers = [problem]

    bench.runner.end(ValueError("failed"))
    await until(lambda: bool(bench.runner.submitted))

    ((_, again),) = bench.runner.submitted
    assert again.reconsume_times == 1
    assert bench.committed == -1
    bench.runner.end()
    await settled()
    assert bench.committed == 1


async def test_a_message_that_waits_to_be_handled_again_does_not_come_after_the_end() -> None:
    bench = Bench(0, resend_pause_ms=1)
    bench.back.answers = [False]
    bench.runner.end(ValueError("failed"))
    await settled()
    bench.handling.drop(bench.owned)
    bench.owned.drop()

    await asyncio.sleep(0.002)  # longer than its pause

    assert bench.runner.submitted == []


async def test_draining_waits_for_what_is_on_its_way_back() -> None:
    bench = Bench(0)
    bench.back.gate = asyncio.get_running_loop().create_future()
    bench.runner.end(ValueError("failed"))
    draining = asyncio.create_task(bench.handling.drain(5))
    await settled()
    assert not draining.done()

    bench.back.gate.set_result(None)
    await draining

    assert bench.committed == 1


async def test_a_broadcast_message_that_failed_is_left_behind() -> None:
    bench = Bench(0, 1, mode="broadcast")

    bench.runner.end(ValueError("failed"))
    bench.runner.end()
    await settled()

    assert bench.back.taken == []
    assert bench.committed == 2


async def test_a_broadcast_message_of_a_cancelled_handler_is_left_behind_in_time() -> None:
    bench = Bench(0, 1, mode="broadcast", consume_timeout_ms=1_000)
    bench.runner.end(asyncio.CancelledError())
    bench.runner.end()
    await settled()
    assert bench.committed == 0

    bench.clock.advance(2)
    await bench.handling.send_back_overdue()

    assert bench.committed == 2


async def test_a_broadcast_message_that_an_iterator_has_left_goes_to_the_next() -> None:
    """Nobody takes it back, and it must not hold up its queue for ever."""
    bench = Bench(0, mode="broadcast")
    (_, message) = bench.runner.submitted[0]

    bench.runner.end(Left())

    assert bench.runner.submitted == [(bench.owned, message)]
    bench.owned.drop()
    bench.runner.end(Left())
    assert bench.runner.submitted == []


async def test_a_broadcast_message_whose_handler_ended_its_thread_is_not_handled_at_once() -> None:
    """Or a handler that always does that would be called without a pause, for ever."""
    bench = Bench(0, mode="broadcast")

    bench.runner.end(ThreadEnded("SystemExit(3)"))

    assert bench.runner.submitted == []
    assert bench.committed == -1
