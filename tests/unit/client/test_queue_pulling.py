"""The pull loop of one queue: nothing skipped, nothing pulled that may not be."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import pytest

from cometmq.client.core.message import Message
from cometmq.client.core.process_queue import FlowLimits
from cometmq.client.core.subscriptions import subscription
from cometmq.client.offset_stores import RemoteOffsets
from cometmq.client.owned_queue import OwnedQueue
from cometmq.client.pulling import Pulled, PullFlag, PullStatus
from cometmq.client.queue_pulling import QueuePulling
from cometmq.codec import batch
from cometmq.codec.codes import ResponseCode
from cometmq.codec.record import Record
from cometmq.codec.sysflag import INNER_BATCH, NEED_UNWRAP
from cometmq.errors import CometError, Refused
from cometmq.testing import FakeClock
from tests.unit.client.consumer_kit import (
    FakeInstance,
    messages_for,
    owned_by,
    queue,
    settled,
    setup_of,
    stored,
)


class FakePuller:
    """Answers each pull with what the test has put there; then they wait."""

    def __init__(self) -> None:
        self.answers: list[Pulled | CometError] = []
        self.asked: list[tuple[int, PullFlag, int]] = []  # offset, flags, offset to commit
        self.gate = asyncio.Event()  # pulls are held while it is clear
        self.gate.set()

    async def pull(self, _queue: Any, offset: int, _subscription: Any, **said: Any) -> Pulled:
        self.asked.append((offset, said["flags"], said["commit_offset"]))
        await self.gate.wait()
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, CometError):
            raise answer
        return answer


class FakeHandling:
    """Caches what was pulled, unless it is told to fail first."""

    def __init__(self) -> None:
        self.failures = 0
        self.offsets: list[int] = []

    def put(self, owned: OwnedQueue[bytes], messages: Sequence[Message[bytes]]) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("a bug")
        owned.cached.put(messages)
        self.offsets.extend(message.queue_offset for message in messages)


class Bench:
    """A loop of one queue with fakes around it."""

    def __init__(self, *, limits: FlowLimits | None = None, **options: Any) -> None:
        self.clock = FakeClock()
        self.setup = setup_of(self.clock, pull_pause_ms=1, **options)
        self.owned = owned_by(self.setup, limits=limits)
        self.puller = FakePuller()
        self.handling = FakeHandling()
        self.store = RemoteOffsets(self.setup.instance, "group")
        self.corrections: list[int] = []
        puller: Any = self.puller
        self.pulling: QueuePulling[bytes] = QueuePulling(
            self.setup,
            puller,
            store=self.store,
            handling=self.handling,
            subscriptions={"orders": subscription("orders", version_ms=1)},
            filters=(),
            correct=lambda _, offset: self.corrections.append(offset),
        )

    @property
    def instance(self) -> FakeInstance:
        instance: Any = self.setup.instance
        assert isinstance(instance, FakeInstance)
        return instance

    def answer(self, *answers: Pulled | CometError) -> None:
        self.puller.answers.extend(answers)

    @contextlib.asynccontextmanager
    async def running(self, claim: Callable[[], bool]) -> AsyncIterator[None]:
        """The loop, until ``claim`` holds and then until the end of the block."""
        task = asyncio.create_task(self.pulling.run(self.owned))
        try:
            while not claim():
                await asyncio.sleep(0.001)
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))


def found(*records: Record, next_offset: int | None = None) -> Pulled:
    after = records[-1].queue_offset + 1 if next_offset is None else next_offset
    return Pulled(PullStatus.FOUND, after, 0, after, list(records))


def without(status: PullStatus, next_offset: int, min_offset: int = 0) -> Pulled:
    return Pulled(status, next_offset, min_offset, next_offset, [])


async def test_what_could_not_be_put_is_pulled_again_and_not_skipped() -> None:
    bench = Bench()
    bench.handling.failures = 1
    bench.answer(found(stored(0)), found(stored(0)))

    async with bench.running(lambda: bench.handling.offsets == [0]):
        assert [offset for offset, _, _ in bench.puller.asked[:2]] == [0, 0]


async def test_what_a_held_pull_brings_to_a_paused_consumer_comes_when_it_goes_on() -> None:
    bench = Bench()
    bench.puller.gate.clear()
    bench.answer(found(stored(0)), found(stored(0)))

    async with bench.running(lambda: len(bench.puller.asked) == 1):
        bench.pulling.going.clear()
        bench.puller.gate.set()
        await settled()
        when_paused = list(bench.handling.offsets)
        bench.pulling.going.set()
        await settled()

        assert when_paused == []
        assert bench.handling.offsets == [0]
        assert [offset for offset, _, _ in bench.puller.asked] == [0, 0, 1]


async def test_the_lag_is_what_is_in_memory_and_what_the_broker_still_has() -> None:
    bench = Bench()
    bench.answer(Pulled(PullStatus.FOUND, 2, 0, 7, [stored(0), stored(1)]))

    async with bench.running(lambda: len(bench.puller.asked) == 2):
        assert bench.owned.lag == 2 + 5


async def test_there_is_no_lag_behind_what_is_not_wanted() -> None:
    bench = Bench()
    bench.answer(without(PullStatus.NO_MATCH, 7))

    async with bench.running(lambda: len(bench.puller.asked) == 2):
        assert bench.owned.lag == 0


async def test_messages_in_an_inner_batch_come_one_by_one() -> None:
    bench = Bench()
    items = [batch.BatchItem(0, b"a", b""), batch.BatchItem(0, b"b", b"")]
    record = msgspec.structs.replace(
        stored(0), body=batch.encode(items), sys_flag=NEED_UNWRAP | INNER_BATCH
    )
    bench.answer(found(record, next_offset=2))

    async with bench.running(lambda: len(bench.puller.asked) == 2):
        assert bench.handling.offsets == [0, 1]


async def test_a_queue_whose_lock_is_not_sure_is_not_pulled_and_not_committed() -> None:
    bench = Bench(is_orderly=True, lock_life_ms=30_000)
    bench.store.update(queue(), 5, forward_only=False)
    bench.clock.advance(31)

    async with bench.running(lambda: True):
        await settled()
        assert bench.puller.asked == []


async def test_an_offset_that_was_deleted_is_passed_without_losing_what_is_in_memory() -> None:
    bench = Bench()
    bench.handling.put(bench.owned, messages_for(bench.owned, 0, 1))
    bench.owned.next_offset = 2
    bench.answer(without(PullStatus.ILLEGAL, 50, min_offset=50))

    async with bench.running(lambda: len(bench.puller.asked) == 2):
        assert bench.puller.asked[1][0] == 50
        assert bench.corrections == []
        assert len(bench.owned.cached) == 2
        assert bench.store.peek(queue()) == -1  # both are still to be done


async def test_an_offset_that_was_deleted_is_committed_when_nothing_is_in_memory() -> None:
    bench = Bench()
    bench.answer(without(PullStatus.ILLEGAL, 50, min_offset=50))

    async with bench.running(lambda: len(bench.puller.asked) == 2):
        assert bench.puller.asked[1] == (50, PullFlag.SUSPEND | PullFlag.COMMIT, 50)


@pytest.mark.parametrize("offset", [3, 90])
async def test_an_offset_that_was_moved_makes_the_queue_begin_anew(offset: int) -> None:
    """Beyond the end of the queue, or because the group was reset: what is in memory is void."""
    bench = Bench()
    bench.owned.next_offset = 50
    bench.answer(without(PullStatus.ILLEGAL, offset))

    async with bench.running(lambda: bool(bench.corrections)):
        assert bench.corrections == [offset]


async def test_what_was_skipped_is_committed_only_when_nothing_before_it_waits() -> None:
    bench = Bench()
    bench.answer(found(stored(0)), without(PullStatus.NO_MATCH, 9))

    async with bench.running(lambda: len(bench.puller.asked) == 3):
        assert bench.store.peek(queue()) == -1
    bench.owned.cached.remove_all(messages_for(bench.owned, 0), 0)
    bench.answer(without(PullStatus.NO_NEW, 9))
    async with bench.running(lambda: len(bench.puller.asked) == 5):
        assert bench.store.peek(queue()) == 9


async def test_a_broker_that_does_not_know_us_is_not_flooded_with_heartbeats() -> None:
    bench = Bench()
    unknown = Refused("a:1", "PULL_MESSAGE", ResponseCode.SUBSCRIPTION_NOT_EXIST, "who?")
    bench.answer(unknown, unknown, unknown)

    async with bench.running(lambda: len(bench.puller.asked) == 4):
        assert bench.instance.greetings == 1
    bench.clock.advance(1)
    bench.answer(unknown)
    async with bench.running(lambda: len(bench.puller.asked) == 6):
        assert bench.instance.greetings == 2


async def test_a_lasting_problem_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.answer(*(Refused("a:1", "PULL_MESSAGE", 1, "no") for _ in range(3)))

    async with bench.running(lambda: len(bench.puller.asked) == 4):
        assert caplog.text.count("pull failed") == 1


async def test_a_full_queue_goes_on_as_soon_as_there_is_room_and_is_not_taken_for_stuck() -> None:
    bench = Bench(limits=FlowLimits(cached_max=1))
    bench.handling.put(bench.owned, messages_for(bench.owned, 0, 1))
    bench.owned.next_offset = 2
    bench.clock.advance(130)

    async with bench.running(lambda: bench.owned.room is not None):
        assert not bench.owned.cached.is_pull_overdue(bench.clock.now_ms())
        assert bench.puller.asked == []
        bench.owned.cached.remove_all(messages_for(bench.owned, 0), 0)
        bench.owned.has_room()
        await settled()
        assert [offset for offset, _, _ in bench.puller.asked] == [2]
