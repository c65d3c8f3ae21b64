"""What brokers ask of a client, and who of its members answers.

Requests come on the connections over which everything else goes, too. So nothing here waits:
what takes time runs as a task of the instance, and answers when it is done. Such tasks belong to
the instance, not to the connection: a handler that works on a message, or a consumer that moves to
other offsets, does not stop half-way because a broker was restarted.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from cometmq import logs
from cometmq.codec import bodies, core
from cometmq.codec.bodies.offsets import ConsumerStatusBody, decode_reset_offsets
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.clients import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatus,
)
from cometmq.codec.headers.offsets import ResetOffset
from cometmq.codec.headers.reply import PushReplyMessageToClient
from cometmq.codec.headers.transaction import CheckTransactionState
from cometmq.codec.properties import NAME_END, VALUE_END, Property, get
from cometmq.codec.record import (
    HOST_V4_BYTES,
    HOST_V6_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    Record,
    pack_host,
    record_bytes,
)
from cometmq.codec.sysflag import BORN_HOST_V6, STORE_HOST_V6
from cometmq.errors import CometError, RemoteProtocolError
from cometmq.model.limits import TOPIC_BYTES_MAX
from cometmq.remoting.channel import Channel
from cometmq.remoting.client import split_address
from cometmq.remoting.routes import Answer, Routes, failure

if TYPE_CHECKING:
    from cometmq.client.instance import Instance

_log = logs.get_logger("cometmq.client")

SLOW_REQUESTS_MAX = 64
"""Requests of brokers that take time and are in work in one instance; more are refused."""

Work = Callable[[], Awaitable[Answer | None]]

_NO_HOST = bytes(HOST_V4_BYTES)


def routes_for(instance: "Instance") -> Routes:
    """The table of what a client answers; ``instance`` is asked for its members at each request.

    A request that is not in the table is refused, or passed over when it is one-way.
    """
    return _Answering(instance).routes()


class _Answering:
    """The handlers, one for each request code."""

    def __init__(self, instance: "Instance") -> None:
        self._instance = instance
        self._slow_count = 0  # tasks under way

    def routes(self) -> Routes:
        routes = Routes()
        routes.add(RequestCode.CHECK_TRANSACTION_STATE, self._check_transaction)
        routes.add(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._members_changed)
        routes.add(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset_offsets)
        routes.add(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._offsets)
        routes.add(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info)
        routes.add(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume_directly)
        routes.add(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._reply_arrives)
        return routes

    # --- asking producers

    def _check_transaction(self, channel: Channel, request: Command) -> None:
        """39, which is never answered: the producer tells the outcome by itself."""
        try:
            header = core.read(request, CheckTransactionState)
            half = _one_record(request.body)
        except RemoteProtocolError as error:
            _log.warning("broker=%s check of a transaction not understood: %s", channel.peer, error)
            return
        group = get(half.properties, b"PGROUP") or ""
        producer = self._instance.producers.get(group)
        if producer is None:
            _log.warning("broker=%s asks producer group '%s', not known here", channel.peer, group)
            return
        producer.check_transaction(self._address_of(channel), header, half)

    def _address_of(self, channel: Channel) -> str:
        """How we call the peer, which may be by another name than its own."""
        connections = self._instance.connections
        for address in connections.addresses:
            if connections.find(address) is channel:
                return address
        return channel.peer

    def _reply_arrives(self, channel: Channel, request: Command) -> Answer:
        """326: what another client replies to a request of ours."""
        try:
            header = core.read(request, PushReplyMessageToClient)
            reply = _reply_record(header, request.body, self._instance.clock.now_ms())
        except CometError as error:
            _log.warning("broker=%s reply not understood: %s", channel.peer, error)
            return Answer(ResponseCode.SYSTEM_ERROR, remark="process reply message fail")
        correlation_id = get(reply.properties, b"CORRELATION_ID") or ""
        self._instance.replies.arrive(correlation_id, reply)
        return Answer()

    # --- asking consumers

    def _members_changed(self, _channel: Channel, _request: Command) -> None:
        """40, which is never answered."""
        self._instance.wake_rebalance()

    def _reset_offsets(self, channel: Channel, request: Command) -> None:
        """220, which is never answered."""
        try:
            header = core.read(request, ResetOffset)
            offsets = decode_reset_offsets(request.body).offset_table
        except CometError as error:
            _log.warning("broker=%s reset of offsets not understood: %s", channel.peer, error)
            return
        consumer = self._instance.consumers.get(header.group)
        if consumer is None:
            _log.info("group=%s is not here, its offsets are not reset", header.group)
            return
        _log.info("group=%s topic=%s offsets are reset", header.group, header.topic)

        async def reset() -> None:
            await consumer.reset_offsets(header.topic, offsets)

        self._work(channel, request, reset)

    def _offsets(self, _channel: Channel, request: Command) -> Answer:
        """221: offsets in memory; a group that is not here has none."""
        header = core.read(request, GetConsumerStatus)
        consumer = self._instance.consumers.get(header.group)
        offsets = {} if consumer is None else dict(consumer.offsets(header.topic))
        return Answer(body=bodies.encode(ConsumerStatusBody(offsets)))

    def _running_info(self, _channel: Channel, request: Command) -> Answer:
        """307."""
        header = core.read(request, GetConsumerRunningInfo)
        consumer = self._instance.consumers.get(header.consumer_group)
        if consumer is None:
            return _no_such_group(header.consumer_group)
        info = consumer.running_info(with_stacks=bool(header.jstack_enable))
        return Answer(body=bodies.encode(info))

    def _consume_directly(self, channel: Channel, request: Command) -> Answer | None:
        """309."""
        header = core.read(request, ConsumeMessageDirectly)
        consumer = self._instance.consumers.get(header.consumer_group)
        if consumer is None:
            return _no_such_group(header.consumer_group)
        message = _one_record(request.body)

        async def consume() -> Answer:
            result = await consumer.consume_directly(message, header.broker_name or "")
            return Answer(body=bodies.encode(result))

        self._work(channel, request, consume)
        return None

    # --- what takes time

    def _work(self, channel: Channel, request: Command, work: Work) -> None:
        if self._slow_count >= SLOW_REQUESTS_MAX:
            _log.warning(
                "broker=%s request %d refused: %d such are in work",
                channel.peer,
                request.code,
                SLOW_REQUESTS_MAX,
            )
            remark = f"[REJECTREQUEST]{SLOW_REQUESTS_MAX} requests are in work at this client"
            channel.reply(request, Answer(ResponseCode.SYSTEM_BUSY, remark=remark))
            return
        self._slow_count += 1
        name = f"answering request {request.code} of {channel.peer}"
        self._instance.background.spawn(name, self._answered(channel, request, work))

    async def _answered(self, channel: Channel, request: Command, work: Work) -> None:
        try:
            answer = await work()
        except Exception as error:
            answer = failure(request, error)
        finally:
            self._slow_count -= 1
        if answer is not None:
            channel.reply(request, answer)


def _no_such_group(group: str) -> Answer:
    remark = f"The Consumer Group <{group}> not exist in this consumer"
    return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)


def _one_record(body: bytes) -> Record:
    records = core.parse_records(body)
    if len(records) != 1:
        raise RemoteProtocolError(f"one message was expected, {len(records)} came")
    return records[0]


def _reply_record(header: PushReplyMessageToClient, body: bytes, now_ms: int) -> Record:
    """The reply as if it had been pulled; a compressed body is left so until it is read."""
    text = (header.properties or "").removesuffix(VALUE_END)
    text = f"{text}{VALUE_END}" if text else ""
    text += f"{Property.ARRIVE_TIME}{NAME_END}{now_ms}{VALUE_END}"
    properties, topic = text.encode("utf-8", "replace"), header.topic.encode("utf-8", "replace")
    born_host, store_host = _packed(header.born_host), _packed(header.store_host)
    sys_flag = header.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
    sys_flag |= BORN_HOST_V6 if len(born_host) == HOST_V6_BYTES else 0
    sys_flag |= STORE_HOST_V6 if len(store_host) == HOST_V6_BYTES else 0
    magic = MAGIC_V1 if len(topic) <= TOPIC_BYTES_MAX else MAGIC_V2
    return Record(
        size=record_bytes(len(body), len(topic), len(properties), sys_flag, magic),
        magic=magic,
        body_crc=0,
        queue_id=header.queue_id,
        flag=header.flag,
        queue_offset=0,
        physical_offset=0,
        sys_flag=sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=born_host,
        store_timestamp=header.store_timestamp,
        store_host=store_host,
        reconsume_times=header.reconsume_times or 0,
        prepared_transaction_offset=0,
        body=body,
        topic=header.topic,
        properties=properties,
    )


def _packed(address: str) -> bytes:
    """A host as records hold it; one that is no number is of no use, and not worth a refusal."""
    try:
        host, port = split_address(address.removeprefix("/"))
        return pack_host(host, port)
    except CometError:
        return _NO_HOST
