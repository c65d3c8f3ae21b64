"""What administrators do about offsets: set groups back and forth, copy, compare, look.

A reset is kept here until the members of the group have noticed (``broker.offsets``): that is how
5.2 and later do it, and their clients go on from the new offset at once. Older ones are told in
addition: they drop what they hold, and do not handle another thousand messages first.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cometmq import logs
from cometmq.broker.handlers.offsets import require_queue
from cometmq.broker.handlers.reading import QUICK_BODY_BYTES
from cometmq.broker.handlers.writing import made, written
from cometmq.broker.progress import Pace
from cometmq.broker.topics import shown
from cometmq.codec import bodies, core
from cometmq.codec.bodies.offsets import (
    ConsumerStatusBody,
    ConsumeTimeSpans,
    CorrectionOffsets,
    QueueOffsetForCpp,
    QueueTimeSpan,
    ResetOffsetBody,
    ResetOffsetBodyForCpp,
)
from cometmq.codec.codes import (
    V3_0_7_SNAPSHOT,
    LanguageCode,
    RequestCode,
    ResponseCode,
    version_name,
    version_ordinal,
)
from cometmq.codec.digest import store_timestamp
from cometmq.codec.headers.clients import GetConsumerStatus
from cometmq.codec.headers.offsets import CloneGroupOffset, QueryCorrectionOffset, ResetOffset
from cometmq.codec.headers.topics import QueryConsumeTimeSpan
from cometmq.errors import (
    BrokerError,
    ConnectionLost,
    RemoteProtocolError,
    RequestTimeout,
    TooManyRequests,
)
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.routes import Answer
from cometmq.store import GetLimits, GetStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

    from cometmq.broker.client_groups import Member
    from cometmq.broker.clients import Clients
    from cometmq.broker.config import BrokerSettings
    from cometmq.broker.groups import GroupTable
    from cometmq.broker.offsets import ConsumerOffsets
    from cometmq.broker.topics import Topic, TopicTable
    from cometmq.clock import Clock
    from cometmq.codec.bodies.offsets import DelayOffsetTable
    from cometmq.codec.command import Command
    from cometmq.remoting.channel import Channel
    from cometmq.remoting.routes import Routes
    from cometmq.store import MessageStore

STATUS_TIMEOUT_MS: Final = 3000
"""How long members may take to tell their offsets: whoever asked for all of them waits for 5 s."""

SILENT_LANGUAGES: Final = frozenset({LanguageCode.CPP, LanguageCode.NODE_JS})
"""Clients that never answer when they are asked for their offsets."""

KNOWS_SERVER_SIDE_RESET: Final = version_ordinal("5.2.0")
"""The release from which on clients need not be told of a reset."""

PENDING_SECONDS_MAX: Final = 600
"""How long a reset waits for members; after that only while one is there that may come for it."""

QUEUES_AT_ONCE: Final = 32
"""Queues that are looked at before others may use the loop; each costs a few reads of the log."""

STATUS_REQUESTS_MAX: Final = 16
"""Requests under way for the offsets of members: each asks all members of a group."""

_LATEST: Final = -1
_NO_TIME: Final = -1
_NEVER_AHEAD: Final = (1 << 63) - 1
_ONE: Final = GetLimits(count=1)

_log = logs.get_logger("cometmq.broker")

Targets = dict[MessageQueue, int]


class OffsetServiceHandlers:
    """Requests 43, 45, 222, 223, 303, 308 and 314; 220 and 221 go out to consumers."""

    def __init__(
        self,
        offsets: ConsumerOffsets,
        topics: TopicTable,
        groups: GroupTable,
        clients: Clients,
        store: MessageStore,
        *,
        broker_name: str,
        settings: BrokerSettings,
        clock: Clock,
        delay_table: Callable[[], DelayOffsetTable],
        on_reset: Callable[[str, Iterable[int]], None] | None = None,
    ) -> None:
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._store = store
        self._broker_name = broker_name
        # May be replaced while running.
        self.settings = settings
        self._clock = clock
        self._delay_table = delay_table
        # Told of the queues in which a group was reset.
        self._on_reset = on_reset
        # Requests for which members are being asked.
        self._status_count = 0
        # Whoever looks at the offsets of many groups does so alone, or all would be slow together.
        self._looking = asyncio.Lock()

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.GET_ALL_CONSUMER_OFFSET, self.all_offsets)
        routes.add(RequestCode.GET_ALL_DELAY_OFFSET, self.all_delay_offsets)
        routes.add(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self.reset)
        routes.add(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, self.status)
        routes.add(RequestCode.QUERY_CONSUME_TIME_SPAN, self.time_spans)
        routes.add(RequestCode.QUERY_CORRECTION_OFFSET, self.correction)
        routes.add(RequestCode.CLONE_GROUP_OFFSET, self.clone)

    # --- all there is

    async def all_offsets(self, channel: Channel, command: Command) -> Answer:
        async with self._looking:
            table = self._offsets.snapshot()
            return Answer(body=await written(table, len(self._offsets)))

    def all_delay_offsets(self, channel: Channel, command: Command) -> Answer:
        return Answer(body=bodies.encode(self._delay_table()))

    # --- resets

    async def reset(self, channel: Channel, command: Command) -> Answer:
        """Set a group to a time, to the end, or one queue to an offset."""
        asked = core.read(command, ResetOffset)
        if self.settings.use_server_side_reset_offset:
            targets = await self._reset_here(asked)
        else:
            targets = await self._reset_by_members(asked)
        _log.info(
            "group=%s topic=%s reset by %s: queues=%d timestamp=%d",
            asked.group, asked.topic, channel.peer, len(targets), asked.timestamp,
        )  # fmt: skip
        return Answer(body=await written(ResetOffsetBody(targets), len(targets)))

    async def _reset_here(self, asked: ResetOffset) -> Targets:
        topic = self._topics.get(asked.topic)
        if topic is None:
            remark = f"Topic {shown(asked.topic)} does not exist"
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, remark)
        if self._groups.get(asked.group) is None:
            remark = f"Group {shown(asked.group)} does not exist"
            raise BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        targets = await self._targets(topic, asked)
        if not targets:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        expires_at = self._clock.monotonic() + PENDING_SECONDS_MAX
        for queue, offset in targets.items():
            if not self._offsets.reset(
                asked.group, asked.topic, queue.queue_id, offset, expires_at
            ):
                remark = f"the broker has {len(self._offsets)} offsets: no new ones are kept"
                raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
        if self._on_reset is not None:
            self._on_reset(asked.topic, [queue.queue_id for queue in targets])
        old = [
            member
            for member in self._members(asked.group)
            if V3_0_7_SNAPSHOT <= member.version < KNOWS_SERVER_SIDE_RESET
        ]
        await _tell(old, asked, targets)
        return targets

    async def _targets(self, topic: Topic, asked: ResetOffset) -> Targets:
        """The offset of each queue that is meant."""
        queue_id = -1 if asked.queue_id is None else asked.queue_id
        if queue_id < 0:
            return {
                self._queue(topic, number): self._offset_at(topic, number, asked.timestamp)
                async for number in _in_slices(topic.read_queue_count)
            }
        require_queue(self._store, topic, queue_id)
        if asked.offset is None or asked.offset == _LATEST:
            return {self._queue(topic, queue_id): self._offset_at(topic, queue_id, asked.timestamp)}
        least = self._store.min_offset(topic.name, queue_id)
        most = self._store.max_offset(topic.name, queue_id)
        # One behind the end is let pass, as Apache does.
        if not least <= asked.offset <= most + 1:
            remark = f"Target offset {asked.offset} not in consume queue range [{least}-{most}]"
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
        return {self._queue(topic, queue_id): asked.offset}

    async def _reset_by_members(self, asked: ResetOffset) -> Targets:
        """As brokers before 5.2 did it: the members set themselves back, so they must be there."""
        topic = self._topics.get(asked.topic)
        if topic is None:
            remark = "[reset-offset] reset offset failed, no topic in this broker. topic="
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, remark + shown(asked.topic))
        targets: Targets = {}
        async for number in _in_slices(topic.write_queue_count):
            known = self._offsets.get(asked.group, topic.name, number)
            if known < 0:
                remark = f"THe consumer group <{shown(asked.group)}> not exist"
                raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
            wanted = self._offset_at(topic, number, asked.timestamp)
            is_taken = asked.is_force or wanted < known
            targets[self._queue(topic, number)] = wanted if is_taken else known
        members = self._members(asked.group)
        if not members:
            remark = (
                f"Consumer not online, so can not reset offset, Group: {asked.group}"
                f" Topic: {asked.topic} Timestamp: {asked.timestamp}"
            )
            raise BrokerError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        _require_support(members)
        await _tell(members, asked, targets)
        return targets

    # --- questions to consumers

    async def status(self, channel: Channel, command: Command) -> Answer:
        """The offsets in the memory of a group's members; who does not answer is left out."""
        asked = core.read(command, GetConsumerStatus)
        members = self._members(asked.group)
        if not members:
            remark = f"No Any Consumer online in the consumer group: [{shown(asked.group)}]"
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
        _require_support(members)
        if asked.client_addr and asked.client_addr.strip():
            members = [member for member in members if member.client_id == asked.client_addr]
        members = [member for member in members if member.language not in SILENT_LANGUAGES]
        with self._asking():
            told = await asyncio.gather(*(_offsets_of(member, asked) for member in members))
            table = {
                member.client_id: offsets
                for member, offsets in zip(members, told, strict=True)
                if offsets is not None
            }
            count = sum(map(len, table.values()))
            return Answer(body=await written(ConsumerStatusBody(consumer_table=table), count))

    @contextmanager
    def _asking(self) -> Iterator[None]:
        if self._status_count >= STATUS_REQUESTS_MAX:
            remark = (
                f"[REJECTREQUEST]consumers are being asked for {STATUS_REQUESTS_MAX} others at the"
                " moment, try later"
            )
            raise BrokerError(ResponseCode.SYSTEM_BUSY, remark)
        self._status_count += 1
        try:
            yield
        finally:
            self._status_count -= 1

    # --- looking and copying

    async def time_spans(self, channel: Channel, command: Command) -> Answer:
        """How old the messages of each queue are that a group has read, and has not."""
        asked = core.read(command, QueryConsumeTimeSpan)
        topic = self._topics.get(asked.topic)
        if topic is None:
            remark = f"topic[{shown(asked.topic)}] not exist"
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, remark)
        spans = [
            self._time_span(topic, number, asked.group)
            async for number in _in_slices(topic.write_queue_count)
        ]
        return Answer(body=await written(ConsumeTimeSpans(tuple(spans)), len(spans)))

    async def correction(self, channel: Channel, command: Command) -> Answer:
        """How far the slowest group is in each queue; no bound where ``compare_group`` is slower.

        Groups to be left out are only left out: Apache also forgets their offsets.
        """
        asked = core.read(command, QueryCorrectionOffset)
        left_out = set((asked.filter_groups or "").split(","))
        async with self._looking:
            least = await self._least(asked.topic, left_out)
            for queue_id, offset in self._offsets.of(asked.compare_group, asked.topic).items():
                if least.get(queue_id, 0) > offset:
                    least[queue_id] = _NEVER_AHEAD
            return Answer(body=await written(CorrectionOffsets(least), len(least)))

    async def _least(self, topic: str, left_out: set[str]) -> dict[int, int]:
        """The smallest offset in each queue that is still in the queue."""
        least: dict[int, int] = {}
        pace = Pace()
        for group in self._offsets.groups_of(topic):
            await pace.step()
            if group in left_out:
                continue
            for queue_id, offset in self._offsets.of(group, topic).items():
                await pace.step()
                if offset >= self._store.min_offset(topic, queue_id):
                    least[queue_id] = min(offset, least.get(queue_id, offset))
        return least

    def clone(self, channel: Channel, command: Command) -> Answer:
        """Copy one group's offsets to another, of one topic or of all; unless told otherwise, only
        of topics that the first one still subscribes to, if it is online.
        """
        asked = core.read(command, CloneGroupOffset)
        if self._groups.obtain(asked.dest_group) is None:
            remark = f"Group {shown(asked.dest_group)} not exist!"
            raise BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        topic = (asked.topic or "").strip()
        online = None if asked.offline else self._clients.consumer_groups.get(asked.src_group)
        for name in [topic] if topic else self._offsets.topics_of(asked.src_group):
            is_gone = self._topics.get(name) is None
            if is_gone or (online is not None and name not in online.subscriptions):
                continue
            if not self._offsets.clone(asked.src_group, asked.dest_group, name):
                remark = f"the broker has {len(self._offsets)} offsets: no new ones are kept"
                raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
        return Answer()

    # --- helpers

    def _members(self, group: str) -> list[Member]:
        online = self._clients.consumer_groups.get(group)
        return [] if online is None else list(online.members.values())

    def _queue(self, topic: Topic, queue_id: int) -> MessageQueue:
        return MessageQueue(topic.name, self._broker_name, queue_id)

    def _offset_at(self, topic: Topic, queue_id: int, timestamp_ms: int) -> int:
        if timestamp_ms < 0:
            return self._store.max_offset(topic.name, queue_id)
        return self._store.offset_at_time(topic.name, queue_id, timestamp_ms)

    def _time_span(self, topic: Topic, queue_id: int, group: str) -> QueueTimeSpan:
        end = self._store.max_offset(topic.name, queue_id)
        first_ms = self._time_of(topic, queue_id, self._store.min_offset(topic.name, queue_id))
        offset = self._offsets.get(group, topic.name, queue_id)
        delay_ms = 0
        if offset < end and (next_ms := self._time_of(topic, queue_id, offset)) >= 0:
            delay_ms = self._clock.now_ms() - next_ms
        return QueueTimeSpan(
            self._queue(topic, queue_id),
            first_ms,
            self._time_of(topic, queue_id, end - 1),
            self._time_of(topic, queue_id, offset - 1) if offset > 0 else first_ms,
            delay_ms,
        )

    def _time_of(self, topic: Topic, queue_id: int, offset: int) -> int:
        """When a message was stored; -1 when there is none."""
        with self._store.get(topic.name, queue_id, offset, _ONE) as result:
            is_found = result.status is GetStatus.FOUND
            return store_timestamp(result.slices[0], 0) if is_found else _NO_TIME


async def _tell(
    members: list[Member], asked: ResetOffset, targets: Mapping[MessageQueue, int]
) -> None:
    """Let members set themselves back, each in the form that it can read."""
    if not members:
        return
    header = ResetOffset(asked.topic, asked.group, asked.timestamp, is_force=False)
    usual = cpp = b""
    for member in members:
        if member.language == LanguageCode.CPP:
            body = cpp = cpp or await _written_for_cpp(targets)
        else:
            body = usual = usual or await written(ResetOffsetBody(dict(targets)), len(targets))
        member.channel.oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body)
        if len(body) > QUICK_BODY_BYTES:
            await asyncio.sleep(0)


async def _written_for_cpp(targets: Mapping[MessageQueue, int]) -> bytes:
    def write() -> bytes:
        return bodies.encode(
            ResetOffsetBodyForCpp(
                tuple(
                    QueueOffsetForCpp(queue.topic, queue.broker_name, queue.queue_id, offset)
                    for queue, offset in targets.items()
                )
            )
        )

    return await made(len(targets), write)


async def _offsets_of(member: Member, asked: GetConsumerStatus) -> dict[MessageQueue, int] | None:
    """What a member says, None when it does not say anything that can be understood."""
    code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    try:
        told = await member.channel.request(
            code, GetConsumerStatus(asked.topic, asked.group), timeout_ms=STATUS_TIMEOUT_MS
        )
        if told.code != ResponseCode.SUCCESS or not told.body:
            return None
        if len(told.body) > QUICK_BODY_BYTES:
            return (
                await asyncio.to_thread(bodies.decode, ConsumerStatusBody, told.body)
            ).message_queue_table
        return bodies.decode(ConsumerStatusBody, told.body).message_queue_table
    except (RequestTimeout, ConnectionLost, TooManyRequests, RemoteProtocolError) as error:
        _log.debug("client=%s does not tell its offsets: %s", member.client_id, error)
        return None


def _require_support(members: list[Member]) -> None:
    for member in members:
        if member.version < V3_0_7_SNAPSHOT:
            remark = "the client does not support this feature. version="
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark + version_name(member.version))


async def _in_slices(count: int) -> AsyncIterator[int]:
    """The numbers below ``count``, with a chance for others to use the loop now and then."""
    for number in range(count):
        if number and number % QUEUES_AT_ONCE == 0:
            await asyncio.sleep(0)
        yield number
