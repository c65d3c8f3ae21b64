"""Callbacks for queues: at once, again after a while, never twice at a time."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from cometmq.client.core.settings import PullSettings
from cometmq.client.scheduled_pull import ScheduledPull
from cometmq.model.offsets import MessageQueue

TOPIC = "orders"
FIRST, SECOND = (MessageQueue(TOPIC, "broker-a", number) for number in range(2))
SOON = PullSettings(schedule_pause_ms=0, schedule_failure_pause_ms=0)
NEVER_MS = 3_600_000


class Calls:
    """A callback that remembers; ``gate`` holds calls up while it is closed."""

    def __init__(self, *, pause_ms: int | None = NEVER_MS) -> None:
        self.queues: list[MessageQueue] = []
        self.running: Counter[MessageQueue] = Counter()
        self.most = 0  # at a time
        self.problem: BaseException | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self._pause_ms = pause_ms
        self._changed = asyncio.Event()

    async def __call__(self, queue: MessageQueue) -> int | None:
        self.queues.append(queue)
        self.running[queue] += 1
        self.most = max(self.most, self.running.total())
        self._changed.set()
        assert self.running[queue] == 1, "twice at a time"
        try:
            await self.gate.wait()
            if self.problem is not None:
                raise self.problem
            return self._pause_ms
        finally:
            self.running[queue] -= 1

    async def reach(self, count: int) -> None:
        """Wait until so many calls have begun."""
        while len(self.queues) < count:
            self._changed.clear()
            await self._changed.wait()


async def test_each_queue_is_called_for_at_once() -> None:
    calls, scheduled = Calls(), ScheduledPull(SOON, "")

    scheduled.schedule(TOPIC, calls, [FIRST, SECOND])
    await calls.reach(2)

    assert sorted(calls.queues) == [FIRST, SECOND]
    await scheduled.stop(1_000)


async def test_a_queue_is_called_for_again_after_the_usual_pause() -> None:
    calls, scheduled = Calls(pause_ms=None), ScheduledPull(SOON, "")

    scheduled.schedule(TOPIC, calls, [FIRST])
    await calls.reach(3)

    assert set(calls.queues) == {FIRST}
    await scheduled.stop(1_000)


async def test_a_callback_that_raises_is_called_again() -> None:
    calls, scheduled = Calls(), ScheduledPull(SOON, "")
    calls.problem = ValueError("boom")

    scheduled.schedule(TOPIC, calls, [FIRST])
    await calls.reach(2)

    assert calls.queues[:2] == [FIRST, FIRST]
    await scheduled.stop(1_000)


@pytest.mark.parametrize("pause", ["5", object(), float("nan"), float("inf"), True])
async def test_a_callback_that_returns_no_number_is_called_again_after_a_pause(
    pause: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings = PullSettings(schedule_pause_ms=NEVER_MS, schedule_failure_pause_ms=0)
    calls, scheduled = Calls(pause_ms=pause), ScheduledPull(settings, "")

    scheduled.schedule(TOPIC, calls, [FIRST])
    await calls.reach(2)

    assert "which is no number of milliseconds" in caplog.text
    await scheduled.stop(1_000)


async def test_a_callback_in_which_something_was_cancelled_is_called_again() -> None:
    """Nobody has cancelled the schedule."""
    calls, scheduled = Calls(), ScheduledPull(SOON, "")
    calls.problem = asyncio.CancelledError()

    scheduled.schedule(TOPIC, calls, [FIRST])
    await calls.reach(2)

    assert calls.queues[:2] == [FIRST, FIRST]
    calls.problem = None
    await scheduled.stop(1_000)


async def test_no_more_calls_run_at_a_time_than_allowed() -> None:
    calls = Calls()
    scheduled = ScheduledPull(PullSettings(concurrency=2), "")
    queues = [MessageQueue(TOPIC, "broker-a", number) for number in range(5)]

    scheduled.schedule(TOPIC, calls, queues)
    await calls.reach(5)

    assert calls.most <= 2
    await scheduled.stop(1_000)


async def test_calls_for_a_queue_that_goes_end_with_the_one_under_way() -> None:
    calls, scheduled = Calls(pause_ms=0), ScheduledPull(SOON, "")
    calls.gate.clear()
    scheduled.schedule(TOPIC, calls, [FIRST])
    await calls.reach(1)

    scheduled.update(TOPIC, [])
    calls.gate.set()
    await scheduled.stop(1_000)

    assert calls.queues == [FIRST]


async def test_a_queue_that_comes_back_during_a_call_is_not_called_for_twice_at_a_time() -> None:
    calls, scheduled = Calls(pause_ms=0), ScheduledPull(SOON, "")
    calls.gate.clear()
    scheduled.schedule(TOPIC, calls, [FIRST])
    await calls.reach(1)

    scheduled.update(TOPIC, [])
    scheduled.update(TOPIC, [FIRST])
    calls.gate.set()
    await calls.reach(3)  # each call asserts that it is alone

    await scheduled.stop(1_000)
    assert calls.most == 1


async def test_a_call_that_does_not_end_is_cancelled_when_stopped() -> None:
    calls, scheduled = Calls(), ScheduledPull(SOON, "")
    calls.gate.clear()
    scheduled.schedule(TOPIC, calls, [FIRST])
    await calls.reach(1)

    await scheduled.stop(timeout_ms=1)

    assert calls.running.total() == 0


async def test_nothing_is_called_any_more_although_nobody_waits_for_the_end() -> None:
    calls, scheduled = Calls(), ScheduledPull(SOON, "")
    calls.gate.clear()
    scheduled.schedule(TOPIC, calls, [FIRST])
    await calls.reach(1)
    stopping = asyncio.create_task(scheduled.stop(timeout_ms=60_000))
    await asyncio.sleep(0)

    stopping.cancel()
    await asyncio.wait((stopping,))

    assert calls.running.total() == 0


async def test_callbacks_see_topics_without_the_namespace() -> None:
    calls, scheduled = Calls(), ScheduledPull(SOON, "ns")

    scheduled.schedule("ns%orders", calls, [MessageQueue("ns%orders", "broker-a", 0)])
    await calls.reach(1)

    assert calls.queues == [FIRST]
    await scheduled.stop(1_000)


async def test_a_topic_that_is_unscheduled_is_left_alone() -> None:
    calls, scheduled = Calls(pause_ms=0), ScheduledPull(SOON, "")
    scheduled.schedule(TOPIC, calls, [FIRST])
    await calls.reach(1)

    scheduled.unschedule(TOPIC)
    await scheduled.stop(1_000)

    assert scheduled.topics == frozenset()
