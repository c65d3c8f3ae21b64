"""Traffic of a Python program over ``cometmq.remoting``: every way to send, and long polling.

All coroutines here take the broker going down as it comes: what was sent then has an unknown
outcome, unless it is idempotent; that is sent until it is answered.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from bench.soak_ledger import Ledger
from bench.soak_plan import DELAYED, LEVELS_S, MIXED, ORDERLY, PYTHON, QUEUES, TIMED
from cometmq.codec import batch, core, properties, record
from cometmq.codec.batch import BatchItem
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command, Serialization
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from cometmq.codec.headers.pull import PullMessage, PullMessageResponse
from cometmq.codec.headers.send import SendMessageResponse, SendMessageV2
from cometmq.codec.properties import Property
from cometmq.errors import CometError
from cometmq.remoting.channel import Channel
from cometmq.remoting.client import connect
from cometmq.testing.history import Received, Sent

TIMEOUT_MS = 5_000
SUSPEND_MS = 5_000
AGAIN_S = 0.3
"""After a failure."""
PADDING_MAX = 2_000
TIMER_MS_MAX = 15_000
PULL_COUNT = 32
SEPARATOR = "|"
PRODUCER = "soak-python"

_SUSPEND_AND_SUBSCRIPTION = 2 | 4
# The broker had stored it before it was asked again, and no longer knows where.
_ALREADY_STORED = ResponseCode.SEQUENCE_ALREADY_STORED


def body(key: str, dice: random.Random) -> bytes:
    """A body that begins with the message's key and has some length or other."""
    return f"{key}{SEPARATOR}{'x' * dice.randrange(PADDING_MAX)}".encode()


def key_in(text: str) -> str:
    return text.partition(SEPARATOR)[0]


class Line:
    """A connection that is made again when it is needed and gone."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._channel: Channel | None = None
        self._dialling = asyncio.Lock()

    async def ask(
        self,
        code: RequestCode,
        header: Header | None = None,
        data: bytes = b"",
        *,
        timeout_ms: int = TIMEOUT_MS,
        serialization: Serialization = Serialization.JSON,
    ) -> Command:
        """The answer, whatever its code. Raises CometError when there is none."""
        async with self._dialling:
            if self._channel is None or not self._channel.is_open:
                self._channel = await connect(self._address)
        return await self._channel.request(
            code, header, data, timeout_ms=timeout_ms, serialization=serialization
        )

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close("the soak is over")


async def regularly(
    period_s: float, act: Callable[[], Awaitable[None]], until: asyncio.Event
) -> None:
    """Act once in a period, or as often as it can; what was begun before ``until`` is finished."""
    loop = asyncio.get_running_loop()
    while not until.is_set():
        begin_s = loop.time()
        await act()
        await unless(until, max(0.01, begin_s + period_s - loop.time()))


async def unless(until: asyncio.Event, seconds: float) -> None:
    """Wait that long, but not once ``until`` is set."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(until.wait(), seconds)


class Draft(NamedTuple):
    """Messages that are sent with one request."""

    topic: str
    queue_id: int
    keys: Sequence[str]
    bodies: Sequence[bytes]
    properties: Mapping[str, str]
    sequence: int | None = None
    is_batch: bool = False


class Senders:
    """Producers of all kinds on one connection."""

    def __init__(self, address: str, ledger: Ledger, dice: random.Random) -> None:
        self._line = Line(address)
        self._ledger = ledger
        self._dice = dice
        self._sequence = 0
        self.latest: list[tuple[float, str]] = []  # some single messages, and when they were sent

    def loops(self, until: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
        return [
            regularly(0.25, self._send_singles, until),
            regularly(0.4, self._send_batch, until),
            regularly(0.2, self._send_idempotent, until),
            regularly(0.25, self._send_ordered, until),
            regularly(0.3, self._send_delayed, until),
            regularly(0.2, self._send_timed, until),
        ]

    def close(self) -> None:
        self._line.close()

    def draft(self, topic: str, count: int = 1, name: str = "", value: int = 0) -> Draft:
        """New messages, each with the property given."""
        more = {name: str(value)} if name else {}
        keys = [self._ledger.next_key("p") for _ in range(count)]
        bodies = [body(key, self._dice) for key in keys]
        return Draft(topic, self._dice.randrange(QUEUES), keys, bodies, more, is_batch=count > 1)

    async def _send_singles(self) -> None:
        for _ in range(4):
            draft = self.draft(MIXED)
            if await self.send(draft):
                self.latest = [*self.latest[-20:], (self._ledger.now_ms(), draft.keys[0])]

    async def _send_batch(self) -> None:
        await self.send(self.draft(MIXED, self._dice.randrange(2, 16)))

    async def _send_ordered(self) -> None:
        for _ in range(2):
            await self.send(self.draft(ORDERLY))

    async def _send_delayed(self) -> None:
        level = self._dice.randrange(1, 5)
        draft = self.draft(DELAYED, 1, Property.DELAY, level)
        await self.send(draft, delay_ms=LEVELS_S[level - 1] * 1000)

    async def _send_timed(self) -> None:
        delay_ms = self._dice.randrange(200, TIMER_MS_MAX)
        draft = self.draft(TIMED, 1, Property.TIMER_DELAY_MS, delay_ms)
        await self.send(draft, delay_ms=delay_ms)

    async def send(self, draft: Draft, *, delay_ms: int = 0) -> bool:
        """One attempt; whether it was acknowledged."""
        begin_ms = self._ledger.now_ms()
        try:
            answer = await self.ask(draft)
        except CometError as error:
            self._ledger.failed("send", error)
            self._note(draft, None, begin_ms, delay_ms)
            await asyncio.sleep(AGAIN_S)
            return False
        if answer.code != ResponseCode.SUCCESS:
            self._ledger.failed("send", f"{answer.code}: {answer.remark}")
            self._note(draft, None, begin_ms, delay_ms)
            return False
        self._note(draft, core.read(answer, SendMessageResponse), begin_ms, delay_ms)
        return True

    async def _send_idempotent(self) -> None:
        """Until it is answered; now and then once more, which must be answered alike."""
        draft = self.draft(MIXED, self._dice.choice([1, 1, 2, 5]))._replace(sequence=self._sequence)
        self._sequence += len(draft.keys)
        answer = await self._persistently(draft)
        if answer.code == _ALREADY_STORED:
            # It is there, and may have been taken in parts: only that it comes is judged.
            self._ledger.counts["stored before, place unknown"] += 1
            self._note_placeless(draft)
        elif answer.code != ResponseCode.SUCCESS:
            self._ledger.fault(f"idempotent send {draft.sequence}: {answer.code}: {answer.remark}")
            self._note(draft, None, self._ledger.now_ms(), 0)
        elif draft.is_batch:
            # What a kill left of a batch is stored by its repeat, at places of its own.
            self._note_placeless(draft)
        else:
            self._note(draft, core.read(answer, SendMessageResponse), None, 0)
        if answer.code == ResponseCode.SUCCESS and self._dice.random() < 0.1:
            again = await self._persistently(draft)
            self._ledger.counts["repeated on purpose"] += 1
            if again.ext_fields != answer.ext_fields:
                self._ledger.fault(f"a repeat got {again}, at first it was {answer}")

    async def _persistently(self, draft: Draft) -> Command:
        while True:
            try:
                answer = await self.ask(draft)
            except CometError as error:
                self._ledger.failed("idempotent send", error)
            else:
                if answer.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                    return answer
            await asyncio.sleep(AGAIN_S)

    async def ask(self, draft: Draft) -> Command:
        """The answer to one attempt, of which nothing is noted."""
        texts = [
            properties.encode(
                {Property.KEYS: key, Property.UNIQ_KEY: f"U{key}", **draft.properties}
            )
            for key in draft.keys
        ]
        code, data = RequestCode.SEND_MESSAGE_V2, draft.bodies[0]
        if draft.is_batch:
            code = RequestCode.SEND_BATCH_MESSAGE
            pairs = zip(draft.bodies, texts, strict=True)
            data = batch.encode(BatchItem(0, piece, text.encode()) for piece, text in pairs)
        is_numbered = draft.sequence is not None
        header = SendMessageV2(
            producer_group="PG_soak", topic=draft.topic, default_topic="TBW102",
            default_topic_queue_nums=QUEUES, queue_id=draft.queue_id, sys_flag=0,
            born_timestamp=int(self._ledger.now_ms()), flag=0, properties=texts[0],
            batch=draft.is_batch, producer_id=PRODUCER if is_numbered else None,
            sequence=str(draft.sequence) if is_numbered else None,
        )  # fmt: skip
        serialization = self._dice.choice([Serialization.JSON, Serialization.ROCKETMQ])
        return await self._line.ask(code, header, data, serialization=serialization)

    def _note(
        self,
        draft: Draft,
        answer: SendMessageResponse | None,
        begin_ms: float | None,
        delay_ms: float,
    ) -> None:
        # What is delayed is acknowledged at a place of another topic.
        is_placed = answer is not None and not draft.properties
        for step, key in enumerate(draft.keys):
            sent = Sent(
                key,
                topic=draft.topic,
                queue_id=answer.queue_id if answer and is_placed else None,
                queue_offset=answer.queue_offset + step if answer and is_placed else None,
                begin_ms=begin_ms,
                end_ms=None if begin_ms is None else self._ledger.now_ms(),
                is_acknowledged=answer is not None,
            )
            self._ledger.sent(sent, delay_ms=delay_ms)

    def _note_placeless(self, draft: Draft) -> None:
        for key in draft.keys:
            self._ledger.sent(Sent(key, topic=draft.topic))


class Puller:
    """Reads some topics whole with a long poll on every queue, and commits how far it is."""

    def __init__(self, address: str, ledger: Ledger, topics: Sequence[str]) -> None:
        self._line = Line(address)
        self._ledger = ledger
        self._next = {(topic, queue): 0 for topic in topics for queue in range(QUEUES)}
        self._committed: dict[tuple[str, int], int] = {}

    def pulls(self) -> list[Coroutine[Any, Any, None]]:
        """One for each queue, until it is cancelled."""
        return [self._pull(topic, queue) for topic, queue in self._next]

    def commits(self, until: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
        return [regularly(1.0, self._commit, until)]

    def close(self) -> None:
        self._line.close()

    async def _pull(self, topic: str, queue: int) -> None:
        while True:
            header = PullMessage(
                PYTHON, topic, queue, self._next[topic, queue], PULL_COUNT,
                _SUSPEND_AND_SUBSCRIPTION, 0, SUSPEND_MS, "*", 0, "TAG",
            )  # fmt: skip
            timeout_ms = SUSPEND_MS + TIMEOUT_MS
            try:
                answer = await self._line.ask(
                    RequestCode.PULL_MESSAGE, header, timeout_ms=timeout_ms
                )
            except CometError as error:
                self._ledger.failed("pull", error)
                await asyncio.sleep(AGAIN_S)
                continue
            await self._take(topic, queue, answer)

    async def _take(self, topic: str, queue: int, answer: Command) -> None:
        match answer.code:
            case ResponseCode.SUCCESS:
                self._receive(topic, queue, answer.body)
                self._next[topic, queue] = core.read(answer, PullMessageResponse).next_begin_offset
            case ResponseCode.PULL_NOT_FOUND | ResponseCode.PULL_RETRY_IMMEDIATELY:
                pass
            case ResponseCode.PULL_OFFSET_MOVED:
                moved = core.read(answer, PullMessageResponse)
                self._ledger.fault(
                    f"{topic} queue {queue}: pulled from {self._next[topic, queue]}, and it has"
                    f" [{moved.min_offset}, {moved.max_offset})"
                )
                self._next[topic, queue] = moved.next_begin_offset
                await asyncio.sleep(AGAIN_S)
            case _:
                self._ledger.failed("pull", f"{answer.code}: {answer.remark}")
                await asyncio.sleep(AGAIN_S)

    def _receive(self, topic: str, queue: int, data: bytes) -> None:
        now_ms = self._ledger.now_ms()
        for found in record.parse_all(data):
            key = key_in(found.body.decode())
            receipt = Received(
                key, topic=topic, queue_id=queue, queue_offset=found.queue_offset, member="python",
                begin_ms=now_ms, end_ms=now_ms,
            )  # fmt: skip
            self._ledger.received(PYTHON, receipt)

    async def _commit(self) -> None:
        for (topic, queue), offset in self._next.items():
            header = UpdateConsumerOffset(PYTHON, topic, queue, offset)
            try:
                answer = await self._line.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
            except CometError as error:
                self._ledger.failed("commit", error)
                return
            if answer.code == ResponseCode.SUCCESS:
                self._committed[topic, queue] = offset
            else:
                self._ledger.failed("commit", f"{answer.code}: {answer.remark}")

    async def check_committed(self) -> None:
        """After a graceful restart the broker must know what was committed before."""
        for (topic, queue), offset in list(self._committed.items()):
            header = QueryConsumerOffset(PYTHON, topic, queue, set_zero_if_not_found=False)
            answer = await self._line.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
            if answer.code != ResponseCode.SUCCESS:
                self._ledger.fault(f"{topic} queue {queue}: no offset, {offset} was committed")
            elif (known := core.read(answer, OffsetResponse).offset) < offset:
                self._ledger.fault(f"{topic} queue {queue}: offset {known}, {offset} was committed")
