"""Replies to requests: handed on to the client that waits for them, and stored if so set.

A requester sends an ordinary message with its client id in it. Whoever consumes that message sends
the reply here, and it goes out on the requester's own connection, which is known from its heartbeat
as a producer.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cometmq import logs
from cometmq.broker.identity import join
from cometmq.broker.topics import shown
from cometmq.codec import core, record
from cometmq.codec import properties as message_properties
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.reply import PushReplyMessageToClient
from cometmq.codec.headers.send import SendMessage, SendMessageV2
from cometmq.codec.properties import NAME_END, VALUE_END, Property
from cometmq.errors import (
    BrokerError,
    ConnectionLost,
    LocalProtocolError,
    RequestTimeout,
    TooManyRequests,
)
from cometmq.remoting.routes import Answer
from cometmq.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cometmq.broker.clients import Clients
    from cometmq.broker.config import BrokerSettings
    from cometmq.broker.send_plans import SendPlan, SendPlans
    from cometmq.clock import Clock
    from cometmq.codec.command import Command
    from cometmq.codec.headers.send import SendMessageResponse
    from cometmq.remoting.channel import Channel
    from cometmq.remoting.routes import Routes
    from cometmq.store import MessageStore

PUSH_TIMEOUT_MS: Final = 10_000
"""How long a requester may take to acknowledge that it has got its reply."""

PENDING_MAX: Final = 1024
"""Replies that may wait for their requesters' acknowledgement, of all connections."""

PENDING_BYTES_MAX: Final = 64 * 1024 * 1024
"""What their bodies may have together."""

_NOT_STORED: Final = "0"
_REPLY_TO_CLIENT: Final = Property.REPLY_TO_CLIENT.encode()
_CANNOT_TELL: Final = (RequestTimeout, ConnectionLost, TooManyRequests, LocalProtocolError)

_log = logs.get_logger("cometmq.broker")


class ReplyHandlers:
    """Requests 324 and 325."""

    def __init__(
        self,
        store: MessageStore,
        plans: SendPlans,
        clients: Clients,
        *,
        settings: BrokerSettings,
        clock: Clock,
    ) -> None:
        self._store = store
        self._plans = plans
        self._clients = clients
        # May be replaced while running.
        self.settings = settings
        self._clock = clock
        # Replies that are not acknowledged yet, and the bytes of their bodies.
        self._pending = 0
        self._pending_bytes = 0
        self._store_host = join(*record.unpack_host(plans.store_host))

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.SEND_REPLY_MESSAGE, self.reply_long)
        routes.add(RequestCode.SEND_REPLY_MESSAGE_V2, self.reply)

    async def reply_long(self, channel: Channel, command: Command) -> Answer:
        """A reply whose header has long names."""
        return await self._reply(channel, command, core.read(command, SendMessage))

    async def reply(self, channel: Channel, command: Command) -> Answer:
        """A reply whose header has short names."""
        return await self._reply(channel, command, core.read(command, SendMessageV2))

    async def _reply(self, channel: Channel, command: Command, header: SendMessage) -> Answer:
        """Hand the reply on. The answer says whether the requester has it; stored it is anyway.

        One without a body cannot be stored, but there are clients that send no other.
        """
        with self._waiting(len(command.body)):
            properties, answer = (header.properties or "").encode(), None
            if command.body:
                properties, answer = self._kept(channel, command, header)
            problem = await self._push(channel, command, header, properties)
        if problem is not None:
            return Answer(ResponseCode.SYSTEM_ERROR, answer, remark=problem)
        return Answer(header=answer or self._plans.answer(_NOT_STORED, header.queue_id, 0, None))

    @contextmanager
    def _waiting(self, size: int) -> Iterator[None]:
        """Raises BrokerError when too much waits already; nothing was done then."""
        if self._pending >= PENDING_MAX or self._pending_bytes + size > PENDING_BYTES_MAX:
            remark = (
                f"[REJECTREQUEST]{self._pending} replies of {self._pending_bytes} bytes wait for"
                " requesters that have not acknowledged them, try later"
            )
            raise BrokerError(ResponseCode.SYSTEM_BUSY, remark)
        self._pending += 1
        self._pending_bytes += size
        try:
            yield
        finally:
            self._pending -= 1
            self._pending_bytes -= size

    def _kept(
        self, channel: Channel, command: Command, header: SendMessage
    ) -> tuple[bytes, SendMessageResponse | None]:
        """The reply's properties, and where it lies in the log if it does."""
        plan = self._plans.prepare(channel, command, header)
        return plan.message.properties, self._stored(plan)

    def _stored(self, plan: SendPlan) -> SendMessageResponse | None:
        """Where the reply lies in the log; None when it does not, which the requester can bear."""
        if not self.settings.store_reply_message_enable or plan.is_batch:
            return None
        result = self._store.put(plan.message)
        if result.status is not PutStatus.PUT_OK:
            _log.debug("topic=%s reply not stored: %s", plan.topic.name, result.reason)
            return None
        plan.topic.put_count += 1
        plan.topic.put_bytes += result.end - result.physical_offset
        message_id = self._plans.ids(result)
        return self._plans.answer(message_id, plan.queue_id, result.queue_offset, None)

    async def _push(
        self, channel: Channel, command: Command, header: SendMessage, properties: bytes
    ) -> str | None:
        """Why the requester has not got its reply, in Apache's words; None when it has."""
        client_id = message_properties.get(properties, _REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{Property.REPLY_TO_CLIENT}] is null"
        requester = self._clients.channel_of_producer(client_id)
        if requester is None:
            return f"push reply message fail, channel of <{shown(client_id)}> not found."
        failed = f"push reply message to {shown(client_id)}fail."
        try:
            told = await requester.request(
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
                self._pushed(channel, header, properties),
                _taken_body(command),
                timeout_ms=PUSH_TIMEOUT_MS,
            )
        except _CANNOT_TELL as error:
            _log.debug("client=%s reply not handed on: %s", client_id, error)
            return failed
        return None if told.code == ResponseCode.SUCCESS else failed

    def _pushed(
        self, channel: Channel, header: SendMessage, properties: bytes
    ) -> PushReplyMessageToClient:
        """What the requester is told: what the sender wrote, who sent it, and when it came by."""
        now_ms = self._clock.now_ms()
        text = properties.decode("utf-8", "replace").removesuffix(VALUE_END)
        text += f"{VALUE_END}{Property.PUSH_REPLY_TIME}{NAME_END}{now_ms}{VALUE_END}"
        return PushReplyMessageToClient(
            header.producer_group,
            header.topic,
            header.default_topic,
            header.default_topic_queue_nums,
            header.queue_id,
            header.sys_flag,
            header.born_timestamp,
            header.flag,
            channel.peer,
            self._store_host,
            now_ms,
            text,
            header.reconsume_times,
            header.unit_mode,
        )


def _taken_body(command: Command) -> bytes:
    """The body, which may be large, so that the request does not keep it while it is waited for."""
    body, command.body = command.body, b""
    return body
