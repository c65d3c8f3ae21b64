"""What the tests of our Python client share: clients in a hurry, members, a history."""

import asyncio
import functools
import sys
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec

from cometmq.aio import Client
from cometmq.client.core.message import Message, Mode
from cometmq.client.core.results import SendResult
from cometmq.client.core.settings import ClientOptions
from cometmq.client.producer import Producer
from cometmq.client.push_consumer import Consumer
from cometmq.model.offsets import MessageQueue
from cometmq.testing.history import History, Received, Rules, Sent
from tests.interop import asking, java, requirements
from tests.interop.cache import Cache
from tests.interop.client_clusters import QUEUES, Cluster
from tests.interop.feature_kit import Trial as ProgramTrial
from tests.interop.feature_kit import receipts
from tests.interop.feature_shell import JAVA_MAIN, FeatureProgram, Launch
from tests.interop.feature_shell import Consumer as ProgramConsumer

FEATURES = Path(__file__).parent / "programs" / "comet" / "features.py"

# Whatever a client does from time to time, it does soon.
IN_A_HURRY: ClientOptions = {
    "rebalance_gap_ms": 50,
    "rebalance_interval_ms": 2_000,
    "route_interval_ms": 500,
    "heartbeat_interval_ms": 1_000,
    "persist_interval_ms": 200,
    "lock_interval_ms": 300,
}

JAVA_IN_A_HURRY: Mapping[str, str] = {
    "rocketmq.client.rebalance.minInterval": "20",
    "rocketmq.client.rebalance.waitInterval": "500",
    "rocketmq.client.rebalance.lockInterval": "300",
}

SHARING_ROUNDS = 60
SHARING_PAUSE_S = 0.2
SCENARIO_S = 100.0
SOON_S = 30.0
POLL_S = 0.01

P = ParamSpec("P")


# --- scenarios


def scenario(run: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """An asynchronous test, on a loop of its own and within a bound."""

    @functools.wraps(run)
    def test(*arguments: P.args, **options: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(SCENARIO_S):
                await run(*arguments, **options)

        asyncio.run(bounded())

    return test


async def until(is_so: Callable[[], object], what: str, *, timeout_s: float = SOON_S) -> None:
    """Return once it is so; AssertionError names ``what`` never came."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, f"still not so after {timeout_s:g} s: {what}"
        await asyncio.sleep(POLL_S)


def now_ms() -> float:
    return time.time() * 1000


def numbered(count: int, prefix: str = "message") -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


# --- messages, sent and received


class HandlingFailed(Exception):
    """What a handler raises when a test wants it to."""


def never(_: Message[bytes]) -> bool:
    return False


class Inbox:
    """A handler that remembers what it got, and fails when ``fails`` says so."""

    def __init__(
        self,
        member: str = "a",
        *,
        hold_s: float = 0.0,
        fails: Callable[[Message[bytes]], bool] = never,
    ) -> None:
        self.member = member
        self.messages: list[Message[bytes]] = []
        self.receipts: list[Received] = []
        self._hold_s = hold_s
        self._fails = fails

    async def __call__(self, message: Message[bytes]) -> None:
        begin_ms = now_ms()
        if self._hold_s:
            await asyncio.sleep(self._hold_s)
        self.take(message, begin_ms)

    def take(self, message: Message[bytes], begin_ms: float | None = None) -> None:
        """Remember it, as a handler does or as whoever iterates may do."""
        self.messages.append(message)
        is_failing = self._fails(message)
        is_orderly = message.source.mode is Mode.ORDERLY
        # A queue in order gets a failed message from the same place again: that is no repeat.
        if not (is_failing and is_orderly):
            attempt = 0 if is_orderly else message.reconsume_times
            self.receipts.append(received(message, self.member, begin_ms, attempt))
        if is_failing:
            raise HandlingFailed(text(message))

    @property
    def keys(self) -> list[str]:
        return [text(message) for message in self.messages]

    def of(self, key: str) -> list[Message[bytes]]:
        """Every delivery of one message."""
        return [message for message in self.messages if text(message) == key]

    async def wait_for(self, keys: Iterable[str], *, timeout_s: float = SOON_S) -> None:
        """Return once each was received at least once."""
        await have_received([self], keys, timeout_s=timeout_s)


async def have_received(
    inboxes: Sequence[Inbox], keys: Iterable[str], *, timeout_s: float = SOON_S
) -> None:
    """Return once each of ``keys`` was received by one of them."""
    wanted = set(keys)

    def missing() -> set[str]:
        return wanted.difference(*(inbox.keys for inbox in inboxes))

    try:
        await until(lambda: not missing(), "all is received", timeout_s=timeout_s)
    except AssertionError as error:
        lost = sorted(missing())
        raise AssertionError(f"{len(lost)} of {len(wanted)} missing: {lost[:10]}") from error


def received(
    message: Message[bytes], member: str = "a", begin_ms: float | None = None, attempt: int = 0
) -> Received:
    end_ms = now_ms()
    return Received(
        text(message),
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        member=member,
        begin_ms=end_ms if begin_ms is None else begin_ms,
        end_ms=end_ms,
        attempt=attempt,
    )


def text(message: Message[Any]) -> str:
    """By which messages are told apart: the key, or the body of one that has none."""
    return message.keys[0] if message.keys else message.body.decode()


@dataclass(slots=True)
class Trial:
    """A client with a topic and a group of its own; what was sent is remembered."""

    cluster: Cluster
    mq: Client
    topic: str
    producer: Producer
    sent: list[Sent] = field(default_factory=list)

    @property
    def group(self) -> str:
        return f"G_{self.topic}"

    def queue(self, queue_id: int) -> MessageQueue:
        return MessageQueue(self.topic, "broker-a", queue_id)

    async def send(self, *keys: str, **options: Any) -> list[SendResult]:
        """One after the other, each of which must be stored."""
        results = []
        for key in keys:
            begin_ms = now_ms()
            result = await self.producer.send(self.topic, key.encode(), **options)
            assert result.is_ok, result
            is_placed = not options.keys() & {"delay", "delay_level", "deliver_at"}
            self.add(key, result if is_placed else None, begin_ms, tag=options.get("tag") or "")
            results.append(result)
        return results

    def add(
        self,
        key: str,
        result: SendResult | None = None,
        begin_ms: float | None = None,
        *,
        step: int = 0,
        tag: str = "",
    ) -> None:
        """Remember a send, and where it went; ``step`` is the place in its batch."""
        self.sent.append(
            Sent(
                key,
                topic=self.topic,
                queue_id=None if result is None else result.queue.queue_id,
                queue_offset=None if result is None else result.queue_offset + step,
                tag=tag,
                begin_ms=begin_ms,
                end_ms=None if begin_ms is None else now_ms(),
            )
        )

    @property
    def keys(self) -> list[str]:
        """Of everything that was acknowledged."""
        return [sent.key for sent in self.sent if sent.is_acknowledged]

    @asynccontextmanager
    async def consuming(
        self,
        inbox: Callable[[Message[bytes]], Awaitable[None]],
        *,
        mq: Client | None = None,
        group: str | None = None,
        topic: str | None = None,
        tags: str | Sequence[str] | None = None,
        sql: str | None = None,
        **options: Any,
    ) -> AsyncIterator[Consumer[bytes]]:
        """A member of the group for as long as the block."""
        options = {"start": "first", "pull_pause_ms": 200, "suspend_ms": 50, **options}
        consumer = (mq or self.mq).consumer(group or self.group, **options)
        async with consumer:
            consumer.subscribe(topic or self.topic, tags=tags, sql=sql)
            await consumer.start(inbox)
            yield consumer

    def claim(self, rules: Rules, *sources: Inbox | ProgramConsumer) -> None:
        """Hold what these received against everything that was sent."""
        history = History(self.sent)
        for source in sources:
            for receipt in _receipts_of(source, is_orderly=not rules.may_reorder):
                history.add(receipt)
        history.claim(rules)


def _receipts_of(source: Inbox | ProgramConsumer, *, is_orderly: bool) -> Iterable[Received]:
    if isinstance(source, Inbox):
        return source.receipts
    return receipts(source.received, is_orderly=is_orderly)


@asynccontextmanager
async def trial(
    cluster: Cluster, topic: str, *, queues: int = QUEUES, **options: Any
) -> AsyncIterator[Trial]:
    """A trial on a new topic; ``options`` are the client's."""
    await asyncio.to_thread(cluster.create_topic, topic, queues=queues)
    async with Client(cluster.namesrv, **{**IN_A_HURRY, **options}) as mq:
        # A send that is tried again on a busy machine would be stored twice.
        producer = mq.producer(f"P_{topic}", send_timeout_ms=20_000)
        yield Trial(cluster, mq, topic, producer)


def queue_ids(member: Consumer[bytes], topic: str) -> set[int]:
    """The queues of a topic that a member has now."""
    return {queue.queue_id for queue in member.queues if queue.topic == topic}


# --- members in processes of their own


def our_program(folder: Path) -> FeatureProgram:
    """Our client in a process of its own, for those that are to be killed."""
    launch = Launch((sys.executable, str(FEATURES)), {"HOME": str(folder)})
    return FeatureProgram("comet", launch, folder)


def java_program(cache: Cache, version: str, folder: Path) -> FeatureProgram:
    """Java's client in a hurry, too."""
    requirements.need("java")
    class_path = java.compiled(cache, f"client-{version}", "support", "features")
    argv = java.command(class_path, JAVA_MAIN, [], home=folder, properties=JAVA_IN_A_HURRY)
    return FeatureProgram(f"java-{version}", Launch(tuple(argv)), folder)


def share_queues(trial: ProgramTrial, prefix: str, *members: ProgramConsumer) -> None:
    """Send until each member works on some of the queues and none on those of another."""
    for number in range(SHARING_ROUNDS):
        expected = [f"{prefix}-{number}-{queue_id}" for queue_id in range(QUEUES)]
        trial.send([{"body": body, "queueId": n} for n, body in enumerate(expected)])
        wait_for_all(members, expected)
        shares = [queues_of(member, expected) for member in members]
        if all(shares) and sum(map(len, shares)) == QUEUES:
            return
        time.sleep(SHARING_PAUSE_S)
    raise AssertionError(f"the members do not share the queues after {SHARING_ROUNDS} rounds")


def wait_for_all(members: Sequence[ProgramConsumer], expected: Iterable[str]) -> None:
    """Return once each was received by one of the members."""
    wanted = set(expected)

    def is_complete() -> bool:
        return wanted <= {event["body"] for member in members for event in member.received}

    asking.wait_until(is_complete, f"{len(wanted)} messages are received", timeout_s=SOON_S)


def queues_of(member: ProgramConsumer, expected: Iterable[str]) -> set[int]:
    """The queues from which the member got some of the messages."""
    wanted = set(expected)
    return {event["queueId"] for event in member.received if event["body"] in wanted}
