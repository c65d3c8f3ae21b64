"""A fake broker with queues that consumers can pull, and what it was told about them."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from cometmq.client.consumer_setup import ConsumerSetup
from cometmq.client.core.consume_rates import Tally
from cometmq.client.core.message import Message
from cometmq.client.core.process_queue import FlowLimits
from cometmq.client.core.settings import ClientSettings, ConsumerSettings, settings_from
from cometmq.client.core.value_codecs import BYTES
from cometmq.client.owned_queue import OwnedQueue
from cometmq.clock import Clock
from cometmq.codec import bodies, record
from cometmq.codec.bodies.clients import ConsumerIdList, HeartbeatData
from cometmq.codec.bodies.queues import LockBatchAnswer, LockBatchBody
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from cometmq.codec.headers.pull import PullMessage, PullMessageResponse
from cometmq.codec.properties import encode as encode_properties
from cometmq.codec.record import Record
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.routes import Answer
from cometmq.testing import FakeClock
from tests.unit.client.kit import Asked, FakeCluster, Node, refused

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"


def stored(
    offset: int,
    *,
    topic: str = "orders",
    queue_id: int = 0,
    body: bytes | None = None,
    tag: str | None = None,
    reconsume_times: int = 0,
) -> Record:
    """A message as a broker has it; its body is its offset unless given."""
    properties = {"UNIQ_KEY": f"U{offset}"} | ({} if tag is None else {"TAGS": tag})
    target = bytearray(1_000)
    size = record.encode_into(
        target,
        0,
        topic.encode(),
        b"%d" % offset if body is None else body,
        encode_properties(properties).encode(),
        queue_id,
        offset,
        1_000 + offset,
        1_700_000_000_000,
        1_700_000_000_000,
        HOST,
        HOST,
        0,
        0,
        reconsume_times,
        0,
    )
    return record.parse_records(bytes(target[:size]))[0]


def written(found: Record) -> bytes:
    target = bytearray(found.size)
    record.encode_into(
        target,
        0,
        found.topic.encode(),
        found.body,
        found.properties,
        found.queue_id,
        found.queue_offset,
        found.physical_offset,
        found.store_timestamp,
        found.born_timestamp,
        found.born_host,
        found.store_host,
        found.flag,
        found.sys_flag,
        found.reconsume_times,
        found.prepared_transaction_offset,
    )
    return bytes(target)


class QueueBroker:
    """Answers pulls from lists of records, and keeps offsets and locks; all of it can be seen."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.queues: dict[tuple[str, int], list[Record]] = {}
        self.offsets: dict[tuple[str, int], int] = {}
        self.members: set[str] = set()
        self.is_locking = True
        self.sent_back: list[Asked] = []
        self._more = asyncio.Event()
        node.on(RequestCode.HEART_BEAT, self._heartbeat)
        node.on(RequestCode.GET_CONSUMER_LIST_BY_GROUP, self._list)
        node.on(RequestCode.QUERY_CONSUMER_OFFSET, self._query)
        node.on(RequestCode.UPDATE_CONSUMER_OFFSET, self._update)
        node.on(RequestCode.GET_MAX_OFFSET, self._max)
        node.on(RequestCode.PULL_MESSAGE, self._pull)
        node.on(RequestCode.LOCK_BATCH_MQ, self._lock)
        node.on(RequestCode.UNLOCK_BATCH_MQ, Answer())
        node.on(RequestCode.CONSUMER_SEND_MSG_BACK, self._send_back)

    def put(self, count: int, *, topic: str = "orders", queue_id: int = 0) -> None:
        """Add messages to the end of a queue."""
        queue = self.queues.setdefault((topic, queue_id), [])
        first = len(queue)
        queue.extend(
            stored(first + number, topic=topic, queue_id=queue_id) for number in range(count)
        )
        self._more.set()

    def add(self, found: Record) -> None:
        self.queues.setdefault((found.topic, found.queue_id), []).append(found)
        self._more.set()

    @property
    def pulls(self) -> list[PullMessage]:
        return [
            PullMessage.from_ext(asked.command.ext_fields)
            for asked in self.node.questions(RequestCode.PULL_MESSAGE)
        ]

    def _heartbeat(self, asked: Asked) -> Answer:
        data = bodies.decode(HeartbeatData, asked.body)
        if data.consumer_data_set:
            self.members.add(data.client_id)
        return Answer()

    def _list(self, _: Asked) -> Answer:
        return Answer(body=bodies.encode(ConsumerIdList(tuple(sorted(self.members)))))

    def _query(self, asked: Asked) -> Answer:
        header = QueryConsumerOffset.from_ext(asked.command.ext_fields)
        found = self.offsets.get((header.topic, header.queue_id))
        if found is None:
            return refused(ResponseCode.QUERY_NOT_FOUND)
        return Answer(header=OffsetResponse(found))

    def _update(self, asked: Asked) -> Answer:
        header = UpdateConsumerOffset.from_ext(asked.command.ext_fields)
        self.offsets[header.topic, header.queue_id] = header.commit_offset
        return Answer()

    def _max(self, asked: Asked) -> Answer:
        fields = asked.command.ext_fields
        queue = self.queues.get((fields["topic"], int(fields["queueId"])), [])
        return Answer(header=OffsetResponse(len(queue)))

    async def _pull(self, asked: Asked) -> Answer:
        header = PullMessage.from_ext(asked.command.ext_fields)
        while True:
            queue = self.queues.get((header.topic, header.queue_id), [])
            begin = header.queue_offset
            if begin > len(queue):
                answer = PullMessageResponse(0, len(queue), 0, len(queue))
                return Answer(ResponseCode.PULL_OFFSET_MOVED, answer)
            found = queue[begin : begin + header.max_msg_nums]
            if found:
                answer = PullMessageResponse(0, begin + len(found), 0, len(queue))
                return Answer(header=answer, body=b"".join(map(written, found)))
            self._more.clear()
            await self._more.wait()

    def _lock(self, asked: Asked) -> Answer:
        wanted = bodies.decode(LockBatchBody, asked.body).mq_set if self.is_locking else ()
        return Answer(body=bodies.encode(LockBatchAnswer(wanted)))

    def _send_back(self, asked: Asked) -> Answer:
        self.sent_back.append(asked)
        return Answer()


class QueueCluster(FakeCluster):
    """One broker with queues."""

    def __init__(self) -> None:
        super().__init__("a")
        self.broker = QueueBroker(self.a)


def queue(number: int = 0, topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic, "broker-a", number)


async def until(claim: Callable[[], bool]) -> None:
    """Wait for what other tasks do; the test's own limit ends it."""
    while not claim():
        await asyncio.sleep(0.001)


class FakeInstance:
    """What handling asks of an instance, without any connection."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.client_id = "me"
        self.clock = clock or FakeClock()
        self.settings = ClientSettings()
        self.greetings = 0

    def heartbeat_soon(self) -> None:
        self.greetings += 1


class FakeRunner:
    """Calls nobody: what was submitted and called waits until the test says how it ended."""

    def __init__(self, on_done: Callable[[Any, Any, BaseException | None, float], None]) -> None:
        self.submitted: list[Any] = []
        self.calls: list[tuple[Any, asyncio.Future[BaseException | None]]] = []
        self.withdrawn: list[Any] = []
        self.at_work: list[tuple[Any, Any, float]] = []
        self._on_done = on_done

    def submit(self, context: Any, items: Iterable[Any]) -> None:
        self.submitted.extend((context, item) for item in items)

    def end(self, error: BaseException | None = None) -> None:
        """The handler of what was submitted first has ended."""
        context, item = self.submitted.pop(0)
        self._on_done(context, item, error, 0.1)

    async def call(self, item: Any) -> BaseException | None:
        future: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self.calls.append((item, future))
        return await future

    def withdraw(self, item: Any) -> None:
        self.withdrawn.append(item)

    def discard(self, context: Any) -> None:
        self.submitted = [entry for entry in self.submitted if entry[0] is not context]

    def running(self) -> list[tuple[Any, Any, float]]:
        return self.at_work

    def owns_this_task(self) -> bool:
        return False

    async def drain(self, seconds: float) -> None:
        self.submitted.clear()
        if self.calls:
            await asyncio.wait([future for _, future in self.calls], timeout=seconds)

    async def stop(self) -> None:
        pass


class FakeSendingBack:
    """Takes messages back as the test says: at once, later, or not."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, int]] = []  # queue offset and delay level
        self.answers: list[bool | BaseException] = []  # True when there are none left
        self.gate: asyncio.Future[None] | None = None

    async def send_back(self, message: Message[Any], delay_level: int) -> bool:
        self.taken.append((message.queue_offset, delay_level))
        if self.gate is not None:
            await self.gate
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def send_copy(self, message: Message[Any], *, is_dead: bool) -> bool:
        return await self.send_back(message, -1 if is_dead else 0)


def setup_of(
    clock: Clock | None = None, *, is_batch: bool = False, **options: Any
) -> ConsumerSetup[bytes]:
    """What the parts of a consumer know of it; its instance has no connections."""
    settings: ConsumerSettings = settings_from(ConsumerSettings, options)
    instance: Any = FakeInstance(clock)
    return ConsumerSetup(instance, settings, "group", "group", "", BYTES, is_batch)


def owned_by(setup: ConsumerSetup[bytes], *, limits: FlowLimits | None = None) -> OwnedQueue[bytes]:
    """A queue that begins at 0."""
    now_ms = setup.clock.now_ms()
    owned = OwnedQueue(
        queue(),
        setup.source("broker-a"),
        Tally(),
        next_offset=0,
        limits=limits or FlowLimits(),
        now_ms=now_ms,
    )
    owned.cached.lock(now_ms)
    return owned


def messages_for(owned: OwnedQueue[bytes], *offsets: int) -> list[Message[bytes]]:
    return [Message(stored(offset), owned.source) for offset in offsets]


async def settled() -> None:
    """Let every other task go as far as it can without waiting for time."""
    for _ in range(20):
        await asyncio.sleep(0)
