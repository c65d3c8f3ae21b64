"""One queue of a lite pull consumer, with a broker that answers when a test lets it."""

import asyncio
from typing import Any

import pytest

from cometmq.client.core.message import Message
from cometmq.client.core.settings import LiteSettings
from cometmq.client.core.value_codecs import TEXT
from cometmq.client.lite_line import LiteLine
from cometmq.client.lite_queue import LitePulling, LiteQueue
from cometmq.client.pulling import Pulled, PullFlag, PullStatus
from cometmq.codec import core
from cometmq.codec.codes import ResponseCode
from cometmq.errors import CometError, Refused, Unreachable
from cometmq.model.group import SubscriptionData
from cometmq.model.offsets import MessageQueue
from cometmq.testing import FakeClock
from tests.unit.admin.fake_cluster import record

QUEUE = MessageQueue("orders", "broker-a", 0)
BEGIN = 5


class FakePuller:
    """Has ``end`` messages, gives two at a time, and says nothing while its gate is closed."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.offsets: list[int] = []  # that were asked for
        self.flags = PullFlag(0)
        self.problems: list[CometError] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._asked = asyncio.Event()

    async def pull(
        self, _queue: MessageQueue, offset: int, _wanted: SubscriptionData, **options: Any
    ) -> Pulled:
        self.offsets.append(offset)
        self.flags = options["flags"]
        self._asked.set()
        await self.gate.wait()
        if self.problems:
            raise self.problems.pop()
        if offset >= self.end:
            await asyncio.Event().wait()  # for ever: a test is not that long
        end = min(offset + 2, self.end)
        data = b"".join(
            record(queue_offset=n, TAGS="even" if n % 2 == 0 else "odd") for n in range(offset, end)
        )
        return Pulled(PullStatus.FOUND, end, 0, self.end, core.parse_records(data))

    async def reach(self, offset: int) -> None:
        """Wait until this offset was asked for."""
        while offset not in self.offsets:
            self._asked.clear()
            await self._asked.wait()


class Consumer:
    """One queue, its line and its task."""

    def __init__(self, puller: FakePuller, *, tags: tuple[str, ...] = (), **settings: Any) -> None:
        self.settings = LiteSettings(**{"pull_pause_ms": 1, **settings})
        self.line: LiteLine[str] = LiteLine(self.settings.pull_count)
        wanted = SubscriptionData(QUEUE.topic, "||".join(tags) or "*", tags)
        self.pulling: LitePulling[str] = LitePulling(
            puller,  # type: ignore[arg-type]  # it has the one method that is used
            self.settings,
            codec=TEXT,
            group="billing",
            namespace="",
            clock=FakeClock(),
            begin=self.begin,
            subscription_of=lambda _topic: wanted,
            arrive=self.line.put,
            is_full=lambda: self.line.waiting_count > self.settings.cached_total_max,
        )

    async def begin(self, _queue: MessageQueue) -> int:
        return BEGIN

    def open(self, *, offset: int | None = None, is_paused: bool = False) -> LiteQueue[str]:
        lite: LiteQueue[str] = LiteQueue(QUEUE, 0, offset=offset, is_paused=is_paused)
        lite.task = asyncio.ensure_future(self.pulling.run(lite))
        return lite

    async def take(self, lite: LiteQueue[str], count: int) -> list[Message[str]]:
        found: list[Message[str]] = []
        while len(found) < count:
            assert await self.line.first(5_000) is lite
            found += self.line.take(lite, count - len(found), 0)
        return found


def offsets(messages: list[Message[str]]) -> list[int]:
    return [message.queue_offset for message in messages]


async def test_a_queue_is_fetched_ahead_from_where_it_begins() -> None:
    puller = FakePuller(end=11)
    consumer = Consumer(puller)

    lite = consumer.open()
    await puller.reach(11)

    assert offsets(await consumer.take(lite, 6)) == [5, 6, 7, 8, 9, 10]
    assert puller.flags == PullFlag.SUSPEND | PullFlag.SUBSCRIPTION | PullFlag.LITE
    lite.drop()


async def test_what_could_not_be_taken_in_is_pulled_again(caplog: pytest.LogCaptureFixture) -> None:
    """A filter of the user may fail in ways that nobody foresees."""
    puller = FakePuller(end=7)
    consumer = Consumer(puller)
    failures = [TypeError("no list")]

    def arrive(lite: LiteQueue[str], messages: list[Message[str]]) -> None:
        if failures:
            raise failures.pop()
        consumer.line.put(lite, messages)

    consumer.pulling._arrive = arrive
    lite = consumer.open()

    assert offsets(await consumer.take(lite, 2)) == [5, 6]
    assert "no list" in caplog.text
    lite.drop()


async def test_position_and_done_follow_what_was_handed_out_and_settled() -> None:
    puller = FakePuller(end=11)
    consumer = Consumer(puller)
    lite = consumer.open()
    await puller.reach(11)

    first, second = await consumer.take(lite, 2)
    handed_out = lite.position, lite.done
    lite.settle([second], 0)
    with_a_gap = lite.done
    lite.settle([first], 0)

    assert handed_out == (7, 5)
    assert with_a_gap == 5
    assert lite.done == 7
    lite.drop()


async def test_messages_that_nobody_wants_are_passed_over_by_both_offsets() -> None:
    puller = FakePuller(end=8)
    consumer = Consumer(puller, tags=("even",))
    lite = consumer.open()
    await puller.reach(8)

    messages = await consumer.take(lite, 1)
    lite.settle(messages, 0)

    assert offsets(messages) == [6]
    assert (lite.position, lite.done) == (8, 8)
    lite.drop()


async def test_a_queue_with_too_many_messages_is_not_pulled_until_some_are_done() -> None:
    puller = FakePuller(end=100)
    consumer = Consumer(puller, cached_max=3)
    lite = consumer.open(offset=0)
    await puller.reach(2)
    while lite.pull_offset != 4:
        await asyncio.sleep(0)
    asked_when_full = list(puller.offsets)

    lite.settle(await consumer.take(lite, 2), 0)
    await puller.reach(4)

    assert asked_when_full == [0, 2]
    lite.drop()


async def test_all_queues_together_have_a_limit() -> None:
    puller = FakePuller(end=100)
    consumer = Consumer(puller, cached_total_max=1)
    lite = consumer.open(offset=0)

    await puller.reach(0)
    while lite.pull_offset != 2:
        await asyncio.sleep(0)
    asked_when_full = list(puller.offsets)
    await consumer.take(lite, 2)
    await puller.reach(2)

    assert asked_when_full == [0]
    lite.drop()


async def test_a_paused_queue_is_not_pulled_and_goes_on_at_once_when_resumed() -> None:
    puller = FakePuller(end=100)
    consumer = Consumer(puller)
    lite = consumer.open(offset=0, is_paused=True)
    for _ in range(5):
        await asyncio.sleep(0)
    asked_when_paused = list(puller.offsets)

    lite.is_paused = False
    lite.changed.set()
    await puller.reach(0)

    assert asked_when_paused == []
    lite.drop()


async def test_what_a_held_pull_brings_to_a_paused_queue_comes_when_it_is_resumed() -> None:
    puller = FakePuller(end=2)
    consumer = Consumer(puller)
    puller.gate.clear()
    lite = consumer.open(offset=0)
    await puller.reach(0)

    lite.is_paused = True
    puller.gate.set()
    for _ in range(5):
        await asyncio.sleep(0)
    when_paused = len(lite.waiting)
    lite.is_paused = False
    lite.changed.set()
    await puller.reach(2)

    assert when_paused == 0
    assert len(lite.waiting) == 2
    assert puller.offsets == [0, 0, 2]
    lite.drop()


async def test_the_answer_to_a_pull_of_a_former_time_moves_nothing() -> None:
    """The queue went and came back, read from elsewhere, while a pull was under way."""
    puller = FakePuller(end=100)
    puller.gate.clear()
    consumer = Consumer(puller)
    former = consumer.open(offset=0)
    await puller.reach(0)
    assert former.task is not None
    task, former.task = former.task, None  # so that the pull is not cancelled, as a slow one

    former.drop()
    lite: LiteQueue[str] = LiteQueue(QUEUE, 0, offset=50, is_paused=True)
    puller.gate.set()
    await task

    assert (former.pull_offset, len(former.waiting)) == (0, 0)
    assert (lite.position, lite.done) == (50, 50)
    assert consumer.line.waiting_count == 0


async def test_a_failed_pull_is_tried_again_at_the_same_offset() -> None:
    puller = FakePuller(end=2)
    busy = Refused("10.0.1.1:10911", "PULL_MESSAGE", ResponseCode.FLOW_CONTROL, "busy")
    puller.problems = [busy, Unreachable("10.0.1.1:10911", "refused")]
    consumer = Consumer(puller)

    lite = consumer.open(offset=0)
    await puller.reach(2)

    assert puller.offsets == [0, 0, 0, 2]
    lite.drop()


async def test_a_full_queue_does_not_keep_others_from_their_turn() -> None:
    line: LiteLine[str] = LiteLine(turn_messages=2)
    busy, rare = (LiteQueue[str](QUEUE, 0, offset=0, is_paused=False) for _ in range(2))
    busy_messages = await _messages(6)
    rare_messages = await _messages(1)
    line.put(busy, busy_messages)
    line.put(rare, rare_messages)

    turns = []
    for _ in range(4):
        lite = await line.first(0)
        assert lite is not None
        line.take(lite, 1, 0)
        turns.append("busy" if lite is busy else "rare")

    assert turns == ["busy", "busy", "rare", "busy"]
    assert line.waiting_count == 3


async def test_whoever_waits_for_messages_is_woken_at_the_end() -> None:
    line: LiteLine[str] = LiteLine(turn_messages=1)
    waiting = asyncio.ensure_future(line.first(None))
    await asyncio.sleep(0)

    line.end()

    assert await waiting is None


async def _messages(count: int) -> list[Message[str]]:
    puller = FakePuller(end=count)
    consumer = Consumer(puller)
    lite = consumer.open(offset=0)
    messages = await consumer.take(lite, count)
    lite.drop()
    return messages


class GoingNowhere(FakePuller):
    """A slave that lags behind, say: the offset is not there, and this is where to go on."""

    async def pull(
        self, _queue: MessageQueue, offset: int, _wanted: SubscriptionData, **_options: Any
    ) -> Pulled:
        self.offsets.append(offset)
        return Pulled(PullStatus.ILLEGAL, offset, 0, offset, [])


async def test_a_broker_that_leads_nowhere_is_not_asked_without_a_pause() -> None:
    puller = GoingNowhere(end=0)
    consumer = Consumer(puller)

    lite = consumer.open(offset=7)
    for _ in range(100):
        await asyncio.sleep(0)

    assert puller.offsets == [7]
    lite.drop()
