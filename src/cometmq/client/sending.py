"""One send: which queue, which broker, how often, how long.

Theory of operation. A send with a known route and an open connection goes straight through: a
queue, its broker's address, one header, one request, one result. Nothing is made that is needed
only when something goes wrong; the budget (``core.send_budget``) begins its account after the first
failure. Whoever is cancelled is not tried again: the message may have been stored.
"""

import asyncio
import random
from collections.abc import Collection
from typing import Any, Final

import msgspec

from cometmq.client.core import names
from cometmq.client.core.advice import NO_ADDRESS
from cometmq.client.core.latency import RULES, BrokerFaults
from cometmq.client.core.outgoing import MessageKind, Outgoing, is_timed
from cometmq.client.core.queue_selection import RoundRobin, Selector, by_key, by_selector
from cometmq.client.core.results import DEFAULT_REGION, SendResult, SendStatus
from cometmq.client.core.routes import TopicView
from cometmq.client.core.send_budget import SendBudget, failure_of
from cometmq.client.core.settings import ProducerSettings
from cometmq.client.flights import Flights
from cometmq.client.hooks import SendContext
from cometmq.client.instance import Instance, refusal
from cometmq.codec import core
from cometmq.codec.codes import V5_0_0, RequestCode, ResponseCode, version_name
from cometmq.codec.command import Command
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.send import SendMessageResponse, SendMessageV2
from cometmq.errors import (
    BrokerError,
    CometError,
    ConnectionLost,
    RemoteProtocolError,
    RequestTimeout,
    TooManyRequests,
    Unreachable,
    Unsupported,
)
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.channel import Channel

TOPICS_MAX: Final = 16_384
"""Topics whose routes are kept up to date; when there are more it begins anew."""

ONEWAYS_PER_TURN: Final = 64
"""One-way sends after which the loop gets its turn, so that they leave."""

_STATUSES: Final = {
    ResponseCode.SUCCESS.value: SendStatus.OK,
    ResponseCode.FLUSH_DISK_TIMEOUT.value: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT.value: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE.value: SendStatus.SLAVE_NOT_AVAILABLE,
}
LEFT_NOTE: Final = "the message had left: it may be stored all the same"
"""On a CancelledError: nobody waited for the answer."""
_FAILURES: Final = (
    BrokerError,
    ConnectionLost,
    RemoteProtocolError,
    RequestTimeout,
    TooManyRequests,
    Unreachable,
)
"""What a try may end with; anything else is the caller's mistake, or the caller's end."""

_OK, _DELAY = SendStatus.OK, MessageKind.DELAY  # reading them off the Enum classes is slow
_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_REPLY: Final = int(RequestCode.SEND_REPLY_MESSAGE_V2)


class Place(msgspec.Struct, frozen=True):
    """Where the sender wants a message: in a queue, by a key or by a selector of its own.

    Such a message is tried once, because it must not go elsewhere. ``broker`` is only a wish, for
    the first try.
    """

    queue: MessageQueue | None = None
    key: str | int | None = None
    selector: Selector | None = None
    value: Any = None
    broker: str | None = None

    @property
    def is_fixed(self) -> bool:
        return self.broker is None


class _Job(msgspec.Struct, frozen=True):
    """A send whose first try was not good enough."""

    message: Outgoing
    code: int
    began: float
    timeout_ms: int
    place: Place | None
    context: SendContext | None


class Sending:
    """Sends for one producer; ``group`` and topics are as servers know them."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        settings: ProducerSettings,
        *,
        namespace: str = "",
        source: random.Random | None = None,
    ) -> None:
        self.flights = Flights(settings.in_flight_max)
        self.faults: BrokerFaults | None = None
        if settings.fault_table != "off":
            rules = RULES[settings.fault_table]
            self.faults = BrokerFaults(rules, is_probing=settings.is_probing)
        self._instance = instance
        self._group = group
        self._settings = settings
        self._namespace = namespace
        self._random = source or random.Random()
        self._clock = instance.clock
        self._loop = asyncio.get_running_loop()
        self._routes = instance.routes
        self._table = instance.routes.table
        self._connections = instance.connections
        self._credentials = instance.connections.credentials
        self._is_vip = instance.settings.is_vip_channel
        self._unit_mode = True if instance.settings.is_unit_mode else None
        self._default_topic = settings.default_topic
        self._default_queue_count = settings.default_queue_count
        self._try_timeout_ms = settings.try_timeout_ms if settings.retries else -1
        self._turns: dict[str, RoundRobin] = {}  # by topic
        self._oneway_count = 0

    def topics(self) -> Collection[str]:
        """To which was sent."""
        return self._turns.keys()

    async def send(
        self,
        message: Outgoing,
        timeout_ms: int,
        place: Place | None = None,
        context: SendContext | None = None,
        code: int = _SEND,
    ) -> SendResult:
        """Send a message, with as many tries as the settings and the time allow.

        Raises SendFailed when none was good; NoRoute, Unreachable or RequestTimeout when nobody
        says where the topic is; Unsupported when the broker is too old for it.
        """
        flights = self.flights
        if flights.count < flights.limit:
            flights.count += 1
        else:
            timeout_ms = await flights.turn(timeout_ms)
        try:
            began = self._loop.time()
            view = self._table.get(message.topic)
            left_ms = timeout_ms
            if view is None or not view.write_queues:
                view = await self._find(message.topic, timeout_ms)
                left_ms = self._left_ms(began, timeout_ms)
            if place is not None:
                queue = self._placed(view, place)
            elif self.faults is None:
                turns = self._turns.get(message.topic) or self._begin_turns(message.topic)
                queue = turns.take(view.write_queues)
            else:
                queue = self._healthy(view, None)
            # For a message that must not go elsewhere the first try is the last one.
            if 0 < self._try_timeout_ms < left_ms and (place is None or not place.is_fixed):
                left_ms = self._try_timeout_ms
            try:
                result = await self._try(message, queue, left_ms, code, context)
                if result.status is _OK or not self._settings.is_retried_when_not_stored:
                    return result
                failure: Exception | SendResult = result
            except _FAILURES as error:
                failure = error
            job = _Job(message, code, began, timeout_ms, place, context)
            return await self._again(job, queue, failure)
        finally:
            flights.leave()

    async def send_oneway(
        self,
        message: Outgoing,
        timeout_ms: int,
        place: Place | None = None,
        context: SendContext | None = None,
    ) -> None:
        """Send a message to whoever should have it; nobody says whether it came.

        Raises as ``send`` does when it cannot leave at all; there is no second try.
        """
        began = self._loop.time()
        view = self._table.get(message.topic)
        if view is None or not view.write_queues:
            view = await self._find(message.topic, timeout_ms)
        queue = self._healthy(view, None) if place is None else self._placed(view, place)
        address = await self._address(message, queue, self._left_ms(began, timeout_ms))
        if context is not None:
            context.queue, context.address = self._shown(queue), address
        channel = self._connections.find(address)
        if channel is None or channel.is_stalled:
            left_ms = self._left_ms(began, timeout_ms)
            channel, _ = await self._open(address, left_ms)
        channel.oneway(_SEND, self._header(message, queue, _SEND), message.body)
        self._oneway_count += 1
        if self._oneway_count % ONEWAYS_PER_TURN == 0:
            await asyncio.sleep(0)

    async def find(self, topic: str, timeout_ms: int) -> TopicView:
        """The route of a topic to send to, known or asked for; it is kept up to date then."""
        found = self._table.get(topic)
        if found is not None and found.write_queues:
            return found
        return await self._find(topic, timeout_ms)

    async def choose(self, topic: str, place: Place, timeout_ms: int) -> MessageQueue:
        """The queue that the sender wants."""
        return self._placed(await self.find(topic, timeout_ms), place)

    # --- one try

    async def _try(
        self,
        message: Outgoing,
        queue: MessageQueue,
        timeout_ms: int,
        code: int,
        context: SendContext | None,
    ) -> SendResult:
        began, left_ms = self._loop.time(), timeout_ms
        address = self._table.master(queue.broker_name)
        if address is None or self._is_vip or message.kind is _DELAY:
            address = await self._address(message, queue, timeout_ms)
            left_ms = self._left_ms(began, timeout_ms)
        if context is not None:
            context.queue, context.address = self._shown(queue), address
            context.tries += 1
        channel = self._connections.find(address)
        read_count, has_left = 0, False
        try:
            if channel is None or channel.is_stalled:
                channel, left_ms = await self._open(address, left_ms)
            header = self._header(message, queue, code)
            read_count, has_left = channel.read_count, True
            answer = await channel.request(code, header, message.body, timeout_ms=left_ms)
            status = _STATUSES.get(answer.code)
            if status is None and answer.code == ResponseCode.GO_AWAY:
                # Once more on a new connection, where its successor may be.
                has_left = False
                self._connections.retire(address, channel)
                channel, left_ms = await self._open(address, self._left_ms(began, timeout_ms))
                read_count, has_left = channel.read_count, True
                answer = await channel.request(code, header, message.body, timeout_ms=left_ms)
                status = _STATUSES.get(answer.code)
                if answer.code == ResponseCode.GO_AWAY:
                    self._connections.retire(address, channel)
            if status is None:
                raise refusal(address, RequestCode(code), answer)
            result = self._result(message.unique_id, queue, status, answer)
        except asyncio.CancelledError as cancelled:
            _note(cancelled, may_be_stored=has_left)
            raise
        except _FAILURES as error:
            if type(error) is RequestTimeout and channel is not None:
                self._connections.hang_up_if_silent(channel, read_count, left_ms)
            if self.faults is not None:
                took_ms, now_ms = self._took_ms(began), self._now_ms()
                self.faults.failed(queue.broker_name, took_ms, now_ms, failure_of(error))
            raise
        if self.faults is not None:
            self.faults.sent(queue.broker_name, self._took_ms(began), self._now_ms())
        return result

    def _header(
        self,
        message: Outgoing,
        queue: MessageQueue,
        code: int,
        reconsume_times: int = 0,
        reconsume_max: int | None = None,
    ) -> Header:
        header = SendMessageV2(
            self._group,
            message.topic,
            self._default_topic,
            self._default_queue_count,
            queue.queue_id,
            message.sys_flag,
            self._clock.now_ms(),
            message.flag,
            message.properties,
            reconsume_times,
            self._unit_mode,
            reconsume_max,
            True if code == _BATCH else None,
            queue.broker_name,
        )
        if self._credentials is not None:
            return self._credentials.signed(header, message.body)
        return header

    async def _open(self, address: str, timeout_ms: int) -> tuple[Channel, int]:
        """A connection on which something can be sent, and what is left of the time."""
        began = self._loop.time()
        channel = await self._connections.channel(address, timeout_ms=timeout_ms)
        if channel.is_stalled:
            try:
                async with asyncio.timeout(self._left_ms(began, timeout_ms) / 1000):
                    await channel.flowing()
            except TimeoutError as error:
                problem = (
                    f"the message never left, {timeout_ms} ms were not enough for those before"
                )
                advice = "send fewer at a time, or give each more timeout_ms"
                raise Unreachable(address, problem, advice) from error
        return channel, self._left_ms(began, timeout_ms)

    async def _address(self, message: Outgoing, queue: MessageQueue, timeout_ms: int) -> str:
        """Who takes writes of a queue; never anybody else than its master."""
        address = self._table.master(queue.broker_name)
        if address is None:
            await self._routes.refresh(message.topic, timeout_ms=timeout_ms)
            address = self._table.master(queue.broker_name)
        if address is None:
            problem = f"no route of topic '{message.topic}' names its master"
            raise Unreachable(queue.broker_name, problem, NO_ADDRESS)
        if is_timed(message):
            version = await self._instance.version(address, timeout_ms=timeout_ms)
            if version < V5_0_0:
                feature = "delivery at any time (delay=, deliver_at=)"
                release = version_name(version).removeprefix("V").replace("_", ".")
                raise Unsupported(feature, address, f"RocketMQ {release}", "use delay_level=")
        return self._instance.vip(address) if self._is_vip else address

    def _result(
        self, message_id: str, queue: MessageQueue, status: SendStatus, answer: Command
    ) -> SendResult:
        header = core.read(answer, SendMessageResponse)
        if header.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, header.queue_id)
        return SendResult(
            status,
            message_id,
            header.msg_id,
            self._shown(queue) if self._namespace else queue,
            header.queue_offset,
            header.transaction_id,
            header.recall_handle,
            header.msg_region or DEFAULT_REGION,
            header.trace_on != "false",
        )

    # --- further tries

    async def _again(
        self, job: "_Job", queue: MessageQueue, failure: Exception | SendResult
    ) -> SendResult:
        """The tries after the first one, which went to ``queue`` and ended with ``failure``."""
        budget = self._budget(job)
        budget.begin(queue.broker_name, round(job.began * 1000))
        try:
            return await self._retried(job, budget, failure)
        except asyncio.CancelledError as cancelled:
            _note(cancelled, may_be_stored=budget.may_be_stored)
            raise

    async def _retried(
        self, job: "_Job", budget: SendBudget, failure: Exception | SendResult
    ) -> SendResult:
        stored: SendResult | None = None  # on a broker, but not as safely as was asked for
        while True:
            if isinstance(failure, SendResult):
                stored, budget.may_be_stored = failure, True
                if not budget.can_try_again(self._loop_ms()):
                    return stored
            else:
                given_up = budget.give_up(failure, self._loop_ms())
                if given_up is not None:
                    if stored is not None:
                        return stored
                    raise given_up from failure
            try:
                view = await self.find(job.message.topic, max(1, budget.left_ms(self._loop_ms())))
                queue = self._healthy(view, budget.last_broker)
                left_ms = budget.begin(queue.broker_name, self._loop_ms())
            except CometError as error:
                if stored is not None:
                    return stored
                raise budget.abandoned(error, self._loop_ms()) from error
            try:
                result = await self._try(job.message, queue, left_ms, job.code, job.context)
                if result.is_ok or not self._settings.is_retried_when_not_stored:
                    return result
                failure = result
            except CometError as error:  # whatever it is: what was met before must be told, too
                failure = error

    def _budget(self, job: "_Job") -> SendBudget:
        is_fixed = job.place is not None and job.place.is_fixed
        return SendBudget(
            names.unwrap_topic(self._namespace, job.message.topic),
            round(job.began * 1000),
            timeout_ms=job.timeout_ms,
            tries_max=1 if is_fixed else 1 + self._settings.retries,
            try_timeout_ms=self._settings.try_timeout_ms,
        )

    # --- queues

    async def _find(self, topic: str, timeout_ms: int) -> TopicView:
        found = await self._routes.find_to_send(
            topic,
            default_topic=self._default_topic,
            queue_count=self._default_queue_count,
            timeout_ms=timeout_ms,
        )
        if topic not in self._turns:
            self._begin_turns(topic)
        return found

    def _begin_turns(self, topic: str) -> RoundRobin:
        if len(self._turns) >= TOPICS_MAX:
            self._turns.clear()
        turns = self._turns[topic] = RoundRobin(self._random.randrange(1 << 16))
        return turns

    def _healthy(self, view: TopicView, last_broker: str | None) -> MessageQueue:
        """The queue whose turn it is, not of the broker that failed last nor of a banned one."""
        turns = self._turns.get(view.topic) or self._begin_turns(view.topic)
        if self.faults is None:
            return turns.take(view.write_queues, last_broker)
        restart = self._random.randrange(1 << 16)
        return self.faults.choose(turns, view.write_queues, self._now_ms(), last_broker, restart)

    def _placed(self, view: TopicView, place: Place) -> MessageQueue:
        if view.topic not in self._turns:
            self._begin_turns(view.topic)
        if place.queue is not None:
            return place.queue
        queues = view.write_queues
        if place.key is not None:
            return by_key(queues, place.key)
        if place.selector is not None:
            shown = tuple(self._shown(queue) for queue in queues)
            chosen = by_selector(shown, place.selector, place.value)
            return queues[shown.index(chosen)]
        wanted = [queue for queue in queues if queue.broker_name == place.broker]
        return self._random.choice(wanted) if wanted else self._healthy(view, None)

    def _shown(self, queue: MessageQueue) -> MessageQueue:
        return names.unwrap_queue(self._namespace, queue)

    # --- time

    def _left_ms(self, began: float, timeout_ms: int) -> int:
        return max(1, timeout_ms - self._took_ms(began))

    def _took_ms(self, began: float) -> int:
        return round((self._loop.time() - began) * 1000)

    def _loop_ms(self) -> int:
        return round(self._loop.time() * 1000)

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)


def _note(cancelled: asyncio.CancelledError, *, may_be_stored: bool) -> None:
    """Tell whoever cancels a send, or reads of it, what is not known."""
    if may_be_stored and LEFT_NOTE not in getattr(cancelled, "__notes__", ()):
        cancelled.add_note(LEFT_NOTE)
