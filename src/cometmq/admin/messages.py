"""Messages: found by id, by key or by place, browsed, and who has consumed them.

Reading is done in the name of the group of the tools, stores no offsets and waits for nothing.
"""

import enum
from collections.abc import AsyncIterator, Sequence

import msgspec

from cometmq.admin.browsing import browse
from cometmq.admin.clients import Clients, DirectResult, Membership
from cometmq.admin.groups import GroupLag, Groups
from cometmq.admin.message import Message, messages_in
from cometmq.admin.positions import Earliest, Position
from cometmq.admin.servers import (
    OUTAGES,
    BrokerAddress,
    Servers,
    Survey,
    brokers_of,
    require_none,
)
from cometmq.admin.topics import Topics
from cometmq.codec import core
from cometmq.codec.bodies.stats import QueryConsumeQueueAnswer
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.base import I64_MAX
from cometmq.codec.headers.pull import PullMessage, PullMessageResponse
from cometmq.codec.headers.query import QueryConsumeQueue, QueryMessage, ViewMessageById
from cometmq.codec.message_id import decode_offset_id
from cometmq.codec.trace import TraceRecord, parse
from cometmq.errors import NotFound, Refused, RemoteProtocolError
from cometmq.model.group import MATCH_ALL, TAG_EXPRESSION
from cometmq.model.system_names import TOOLS_GROUP, TRACE_TOPIC

FOUND_MAX = 64
"""Messages that a search by key gives at most, from each broker."""

PAGE_MESSAGES = 32
"""Messages of one read; brokers give no more by default."""

_HAS_SUBSCRIPTION = 4  # of a pull's sys flag; without the bits for "wait" and "commit"
_PULLED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
_FOUND_OR_NOT = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)


class Page(msgspec.Struct, frozen=True):
    """Some messages of a queue, where to read on, and the bounds of the queue."""

    messages: tuple[Message, ...]
    next_offset: int
    min_offset: int
    max_offset: int


class QueueEntry(msgspec.Struct, frozen=True):
    """One entry of a queue: where its message lies, and the hash of its tag."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    is_match: bool
    """Whether the group that was named wants it."""


class ConsumptionState(enum.StrEnum):
    """What became of a message in a group."""

    CONSUMED = "consumed"
    PENDING = "pending"
    FILTERED = "filtered"
    """Passed over, because the group does not want its tag."""
    BROADCAST = "broadcast"
    """Each member keeps its own offsets."""
    UNKNOWN = "unknown"
    """The broker that has the message, and so the group's offset, does not answer."""


class Consumption(msgspec.Struct, frozen=True):
    """What became of a message in one group; ``is_online`` as the brokers that answer see it."""

    group: str
    state: ConsumptionState
    is_online: bool


class Messages:
    """``admin.messages``."""

    def __init__(self, servers: Servers, topics: Topics, groups: Groups, clients: Clients) -> None:
        self._servers = servers
        self._topics = topics
        self._groups = groups
        self._clients = clients

    # --- finding

    async def get(self, message_id: str, topic: str | None = None) -> Message:
        """The message with this id, be it an offset id or, given its topic, a unique key.

        Raises NotFound, or Unreachable when it might be on a broker that does not answer.
        """
        fleet = await self._servers.fleet()
        address = _address_in(message_id)
        if address is not None and address in {broker.address for broker in fleet.brokers}:
            return await self.by_offset_id(message_id)
        if topic is None:
            if address is not None:
                return await self.by_offset_id(message_id)
            raise NotFound("message", message_id, "to look for a unique key, name its topic")
        survey = await self._query(topic, _unique(topic, message_id))
        found = [message for message in _sorted(survey) if message.unique_key == message_id]
        if not found:
            require_none(survey.outages)
            raise NotFound("message", message_id, f"it is not in '{topic}', or too old")
        return found[-1]

    async def by_offset_id(self, offset_id: str) -> Message:
        """The message that an offset id points to, from the broker that is named in it."""
        address = _address_in(offset_id)
        if address is None:
            raise NotFound("message", offset_id, "this is no offset id")
        place = await self._servers.broker(address)
        return await self._view(place, decode_offset_id(offset_id).physical_offset)

    async def at_physical(self, broker: str, physical_offset: int) -> Message:
        """The message that begins at this place of a broker's log. Raises NotFound."""
        return await self._view(await self._servers.broker(broker), physical_offset)

    async def at(self, topic: str, broker: str, queue_id: int, offset: int) -> Message:
        """The message at this offset of a queue. Raises NotFound."""
        page = await self.page(topic, broker, queue_id, offset, count=1)
        if page.messages and page.messages[0].queue_offset == offset:
            return page.messages[0]
        bounds = f"the queue has {page.min_offset} to {page.max_offset}"
        raise NotFound("message", f"{topic}/{broker}/{queue_id}/{offset}", bounds)

    async def by_unique_key(self, topic: str, key: str) -> tuple[Message, ...]:
        """Messages with this unique key, in the order they were stored.

        Several, when a producer had to send it again; none when there are none. Raises
        Unreachable when one of the topic's brokers does not answer.
        """
        survey = await self._query(topic, _unique(topic, key))
        require_none(survey.outages)
        return tuple(message for message in _sorted(survey) if message.unique_key == key)

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = I64_MAX,
        count: int = FOUND_MAX,
    ) -> tuple[Message, ...]:
        """The latest messages that carry this key, in the order they were stored.

        Raises Unreachable when one of the topic's brokers does not answer.
        """
        header = QueryMessage(topic, key, count, begin_ms, end_ms, False, "K")
        survey = await self._query(topic, header)
        require_none(survey.outages)
        return tuple(message for message in _sorted(survey) if key in message.keys)[-count:]

    async def trace(self, message_id: str, *, topic: str = TRACE_TOPIC) -> tuple[TraceRecord, ...]:
        """What clients reported of a message, in the order it happened.

        ``topic`` is where they report. Raises NotFound when nobody does.
        """
        try:
            reports = await self.by_key(topic, message_id)
        except NotFound as error:
            advice = "do clients trace, and has a broker traceTopicEnable?"
            raise NotFound("topic", topic, advice) from error
        records = [record for report in reports for record in parse(report.body)]
        own = [one for one in records if message_id in (one.message_id, one.offset_id)]
        return tuple(sorted(own, key=lambda record: record.at_ms or 0))

    # --- reading queues

    async def page(
        self, topic: str, broker: str, queue_id: int, offset: int, *, count: int = PAGE_MESSAGES
    ) -> Page:
        """Messages of a queue from ``offset`` on, as many as the broker gives at once.

        An offset that the queue does not have gives none, and where to read on instead.
        """
        place = await self._servers.broker(broker)
        return await self._page(place, topic, queue_id, offset, count)

    async def browse(
        self,
        topic: str,
        *,
        begin: Position | None = None,
        end: Position | None = None,
        broker: str | None = None,
        queue_id: int | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Message]:
        """The messages of a topic as it is now, in the order they were stored.

        From ``begin`` (the first one) to before ``end`` (the last one there is now), of all its
        queues or some. Ends when it is through, or after ``limit`` messages. Raises NotFound, and
        Unreachable when a broker that has some of the queues does not answer.
        """
        stats = await self._topics.stats(topic)
        require_none(out for out in stats.outages if broker in (None, out.broker_name, out.address))
        places = {p.broker_name: p for p in brokers_of(await self._servers.route(topic))}
        chosen = [
            (places[queue.broker_name], queue)
            for queue in stats.queues
            if broker in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
        ]
        if not chosen:
            raise NotFound("queue", f"{broker or topic}/{queue_id}", f"it is not in '{topic}'")

        async def read(place: BrokerAddress, queue: int, offset: int) -> Page:
            return await self._page(place, topic, queue, offset, PAGE_MESSAGES)

        found = browse(self._servers, topic, chosen, begin or Earliest(), end, read)
        count = 0
        async for message in found:
            if count == limit:
                return
            yield message
            count += 1

    async def entries(
        self,
        topic: str,
        broker: str,
        queue_id: int,
        offset: int,
        *,
        count: int = PAGE_MESSAGES,
        group: str | None = None,
    ) -> tuple[QueueEntry, ...]:
        """Entries of a queue as the broker keeps them; ``group`` tells whose filter to try."""
        place = await self._servers.broker(broker)
        answer = await self._servers.ask_for(
            QueryConsumeQueueAnswer,
            place.address,
            RequestCode.QUERY_CONSUME_QUEUE,
            QueryConsumeQueue(topic, queue_id, offset, count, group),
        )
        begin = max(offset, answer.min_queue_index)
        return tuple(
            QueueEntry(number, one.physic_offset, one.physic_size, one.tags_code, one.eval)
            for number, one in enumerate(answer.queue_data or (), begin)
        )

    # --- who has consumed it

    async def consumption(self, message: Message) -> tuple[Consumption, ...]:
        """What became of a message in each group that consumes its topic.

        Groups are those that the topic's brokers know, as far as they answer; who does not is not
        asked again.
        """
        brokers = brokers_of(await self._servers.route(message.topic))
        survey = await self._topics.groups_on(brokers, message.topic)
        there = [broker for broker, _ in survey.answers]
        groups = sorted({group for _, groups in survey.answers for group in groups})
        return tuple([await self._consumption(group, message, there) for group in groups])

    async def consume_directly(self, message: Message, group: str, client_id: str) -> DirectResult:
        """Let one consumer handle this message now, whatever its offsets say."""
        return await self._clients.consume_directly(
            group,
            client_id,
            message.offset_id,
            topic=message.topic,
            broker=message.broker_name or message.store_host,
        )

    # --- the inside

    async def _view(self, place: BrokerAddress, physical_offset: int) -> Message:
        header = ViewMessageById(physical_offset)
        code = RequestCode.VIEW_MESSAGE_BY_ID
        try:
            answer = await self._servers.ask(place.address, code, header)
        except Refused as error:
            if error.response_code != ResponseCode.SYSTEM_ERROR:
                raise
            where = f"{physical_offset} of {place.address}"
            advice = "it may have been deleted, or no message begins there"
            raise NotFound("message", where, advice) from error
        return next(messages_in(answer.body, place.broker_name))

    async def _query(self, topic: str, header: QueryMessage) -> Survey[tuple[Message, ...]]:
        async def ask(broker: BrokerAddress) -> tuple[Message, ...]:
            code = RequestCode.QUERY_MESSAGE
            answer = await self._servers.ask(broker.address, code, header, accept=_FOUND_OR_NOT)
            if answer.code != ResponseCode.SUCCESS:
                return ()
            return tuple(messages_in(answer.body, broker.broker_name))

        route = await self._servers.route(topic)
        return await self._servers.survey(brokers_of(route), ask)

    async def _page(
        self, place: BrokerAddress, topic: str, queue_id: int, offset: int, count: int
    ) -> Page:
        header = PullMessage(
            TOOLS_GROUP,
            topic,
            queue_id,
            offset,
            count,
            _HAS_SUBSCRIPTION,
            0,
            0,
            MATCH_ALL,
            0,
            TAG_EXPRESSION,
        )
        answer = await self._servers.ask(
            place.address, RequestCode.PULL_MESSAGE, header, accept=_PULLED
        )
        told = core.read(answer, PullMessageResponse)
        is_found = answer.code == ResponseCode.SUCCESS
        found = tuple(messages_in(answer.body, place.broker_name)) if is_found else ()
        return Page(found, told.next_begin_offset, told.min_offset, told.max_offset)

    async def _consumption(
        self, group: str, message: Message, brokers: Sequence[BrokerAddress]
    ) -> Consumption:
        membership = await self._clients.consumers_on(brokers, group)
        is_online = bool(membership.members)
        if membership.message_model == "BROADCASTING":
            return Consumption(group, ConsumptionState.BROADCAST, is_online)
        lag = await self._lag_at_home(group, message, brokers)
        if lag is None:
            return Consumption(group, ConsumptionState.UNKNOWN, is_online)
        offsets = [q.offset for q in lag.queues if q.queue_id == message.queue_id]
        if not offsets or offsets[0] <= message.queue_offset:
            return Consumption(group, ConsumptionState.PENDING, is_online)
        if is_online and not _is_wanted(message, membership):
            return Consumption(group, ConsumptionState.FILTERED, is_online)
        return Consumption(group, ConsumptionState.CONSUMED, is_online)

    async def _lag_at_home(
        self, group: str, message: Message, brokers: Sequence[BrokerAddress]
    ) -> GroupLag | None:
        """How far a group is on the broker that has the message; None when it does not answer."""
        home = [broker for broker in brokers if _is_home(broker, message)]
        if not home:
            return None
        try:
            return await self._groups.lag_on(home, group, message.topic)
        except OUTAGES:
            return None


def _unique(topic: str, key: str) -> QueryMessage:
    return QueryMessage(topic, key, FOUND_MAX, 0, I64_MAX, True, "U")


def _sorted(survey: Survey[tuple[Message, ...]]) -> Sequence[Message]:
    found = [message for _, messages in survey.answers for message in messages]
    return sorted(found, key=lambda message: message.stored_ms)


def _is_home(broker: BrokerAddress, message: Message) -> bool:
    """Whether the message lies there; one that was found by an address has no broker's name."""
    if message.broker_name:
        return broker.broker_name == message.broker_name
    return broker.address == message.store_host


def _is_wanted(message: Message, membership: Membership) -> bool:
    """Whether the subscription takes the message's tag; what only a broker can judge counts."""
    for subscription in membership.subscriptions:
        is_tags = subscription.expression_type == TAG_EXPRESSION
        if subscription.topic == message.topic and is_tags:
            tags = {tag.strip() for tag in subscription.expression.split("||")}
            return MATCH_ALL in tags or message.tags in tags
    return True


def _address_in(message_id: str) -> str | None:
    """The broker's address in an offset id, or None when it is none."""
    try:
        place = decode_offset_id(message_id)
    except RemoteProtocolError:
        return None
    if not 0 < place.port <= 0xFFFF or place.physical_offset < 0:
        return None
    return f"[{place.ip}]:{place.port}" if ":" in place.ip else f"{place.ip}:{place.port}"
