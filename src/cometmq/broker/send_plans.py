"""Sends that need a closer look: are they allowed, and what is to be stored for them?"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.broker.delay.levels import level_of
from cometmq.broker.delay.timer_rules import TimerRules
from cometmq.broker.retry import dead_letter_properties
from cometmq.broker.topics import Topic, problem_of, shown
from cometmq.codec import core, record, sysflag
from cometmq.codec import properties as message_properties
from cometmq.codec.batch import looks_like_batch
from cometmq.codec.codes import ResponseCode
from cometmq.codec.headers.send import SendMessageResponse
from cometmq.codec.message_id import UniqueIds, encode_offset_id
from cometmq.codec.properties import NAME_END, TRANSIENT_PREFIX, VALUE_END, Property
from cometmq.codec.sent_properties import REWRITTEN, Asks
from cometmq.errors import BrokerError
from cometmq.model.limits import TOPIC_BYTES_MAX
from cometmq.model.system_names import NOT_SENDABLE
from cometmq.model.topic import RETRY_PREFIX, Permission, TopicFilterType
from cometmq.remoting.client import split_address
from cometmq.store.results import NewMessage

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from cometmq.broker.config import BrokerSettings
    from cometmq.broker.delay.levels import DelayLevels
    from cometmq.broker.identity import Identity
    from cometmq.broker.retry import Retries
    from cometmq.broker.topics import TopicTable
    from cometmq.clock import Clock
    from cometmq.codec.command import Command
    from cometmq.codec.headers.send import SendMessage
    from cometmq.codec.sends import SendTopic
    from cometmq.remoting.channel import Channel
    from cometmq.store.results import PutResult

BORN_HOST: Final = "born host"
_TRAN_MSG: Final = Property.TRAN_MSG.encode()


class SendPlan(msgspec.Struct, frozen=True, gc=False):
    """What is stored for a send, and what its answer says; ``queue_id`` is the one asked for."""

    message: NewMessage
    topic: Topic
    queue_id: int
    unique_key: str | None
    is_batch: bool = False
    is_waiting: bool = True
    """Whether the sender wants to know the message on disk, if that is asked for at all."""
    recall_handle: str | None = None
    """With what the sender can take it back; of messages with a time of their own."""


class SendPlans:
    """The rules of sending. ``plain_topics`` are those that need none: sends to them are stored
    without asking here (``codec.sends``) once the first one was.
    """

    def __init__(
        self,
        topics: TopicTable,
        retries: Retries,
        levels: DelayLevels,
        identity: Identity,
        settings: BrokerSettings,
        *,
        body_bytes_max: int,
        clock: Clock,
        chance: random.Random,
    ) -> None:
        self._topics = topics
        self._retries = retries
        self._levels = levels
        self.timers = TimerRules(settings, clock, chance)
        self._identity = identity
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._is_writable = bool(settings.broker_permission & Permission.WRITE)
        self._unique_ids = UniqueIds(identity.store_host[:-4], os.getpid(), id(self))
        self.body_bytes_max = body_bytes_max
        self.store_host = identity.store_host
        self.id_prefix = identity.message_id_prefix
        self._store_flags = _flag_of(identity.store_host, sysflag.STORE_HOST_V6)
        self._region = settings.region_id
        self._trace_on = "true" if settings.trace_on else "false"
        # What the broker adds to the properties of every message.
        self.addition = message_properties.encode(
            {
                Property.MSG_REGION: self._region,
                Property.TRACE_ON: self._trace_on,
                Property.CLUSTER: settings.cluster_name,
            }
        ).encode()
        self.plain_topics: dict[str, SendTopic] = {}
        topics.on_change.append(self._forget_changed)
        topics.on_delete.append(self._forget)

    def born_host(self, channel: Channel) -> tuple[bytes, int]:
        """The sender's packed address, and the flags that say how long addresses are."""
        known: tuple[bytes, int] | None = channel.attributes.get(BORN_HOST)
        if known is None:
            host = record.pack_host(*split_address(channel.peer))
            known = host, _flag_of(host, sysflag.BORN_HOST_V6) | self._store_flags
            channel.attributes[BORN_HOST] = known
        return known

    def ids(self, result: PutResult) -> str:
        """The message ids of what was stored, joined by commas."""
        offsets = result.offsets or (result.physical_offset,)
        return ",".join(encode_offset_id(self.store_host, offset) for offset in offsets)

    def answer(
        self,
        message_ids: str,
        queue_id: int,
        queue_offset: int,
        unique_key: str | None,
        recall_handle: str | None = None,
    ) -> SendMessageResponse:
        """What a producer is told about messages that were stored."""
        return SendMessageResponse(
            message_ids,
            queue_id,
            queue_offset,
            unique_key,
            self._region,
            self._trace_on,
            recall_handle=recall_handle,
        )

    def prepare(self, channel: Channel, command: Command, header: SendMessage) -> SendPlan:
        """Check a send and say what is to be stored; raises BrokerError with the refusal."""
        self._check_time()
        topic = self._topic_for(header)
        if self._is_plain(topic):
            self.plain_topics[topic.name] = topic
        queue_id = self._queue_id(channel, header, topic)
        body = command.body
        if not 0 < len(body) <= self.body_bytes_max:
            raise BrokerError(
                ResponseCode.MESSAGE_ILLEGAL,
                illegal(f"this body has {len(body)} bytes", self.body_bytes_max),
            )
        sys_flag = header.sys_flag & ~sysflag.BROKER_FLAGS
        if topic.config.topic_filter_type is TopicFilterType.MULTI_TAG:
            sys_flag |= sysflag.MULTI_TAGS
        born_host, host_flags = self.born_host(channel)
        message = NewMessage(
            topic.name,
            queue_id,
            body,
            b"",
            header.born_timestamp,
            born_host,
            self.store_host,
            header.flag,
            sys_flag | host_flags,
            header.reconsume_times or 0,
        )
        if header.batch and _is_batch(command):
            return self._batch(topic, message, header)
        return self._single(topic, message, command, header)

    def _single(
        self, topic: Topic, message: NewMessage, command: Command, header: SendMessage
    ) -> SendPlan:
        queue_id = message.queue_id
        asks, key, stored = core.read_sent_properties(header.properties or "", self.addition)
        if asks & Asks.NOT_TEXT:
            raise BrokerError(
                ResponseCode.MESSAGE_ILLEGAL,
                illegal("the properties are no UTF-8 text", self.body_bytes_max),
            )
        if asks & Asks.REWRITE or key is None:
            key, stored = self._rewritten(header.properties or "")
        message = msgspec.structs.replace(message, properties=stored)
        level = level_of(stored) if asks & Asks.DELAY else 0
        self._check_transaction(asks, message, level)
        if topic.name.startswith(RETRY_PREFIX):
            redirected = self._retries.redirected(topic, header, command.version)
            if redirected is not None:
                topic = redirected
                queue_id = 0
                level = 0
                message = msgspec.structs.replace(
                    message,
                    topic=topic.name,
                    queue_id=0,
                    properties=dead_letter_properties(message.properties),
                )
        handle = None
        if level > 0:
            message = self._levels.diverted(message, level)
        elif asks & Asks.TIMER:
            message = self.timers.diverted(message)
            handle = self.timers.recall_handle(message, key)
        is_waiting = not asks & Asks.NO_WAIT
        return SendPlan(message, topic, queue_id, key, is_waiting=is_waiting, recall_handle=handle)

    def _batch(self, topic: Topic, message: NewMessage, header: SendMessage) -> SendPlan:
        if topic.name.startswith(RETRY_PREFIX):
            remark = f"batch request does not support retry group {topic.name}"
            raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, remark)
        if len(topic.name.encode()) > TOPIC_BYTES_MAX:
            remark = f"message topic length too long {len(topic.name)}"
            raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, remark)
        # None of the request's properties is stored with the messages, but what they ask for is
        # not passed over: the messages would be delivered at once.
        asks, _, asked = core.read_sent_properties(header.properties or "", b"")
        if message.sys_flag & sysflag.TRANSACTION_MASK or _is_half(asks, asked):
            raise self._no_transactions()
        if asks & Asks.TIMER or (asks & Asks.DELAY and level_of(asked) > 0):
            raise BrokerError(
                ResponseCode.MESSAGE_ILLEGAL,
                illegal("a batch cannot be delayed", self.body_bytes_max),
            )
        return SendPlan(message, topic, message.queue_id, None, is_batch=True)

    def _check_time(self) -> None:
        until_ms = self._settings.start_accept_send_request_ms
        if self._clock.now_ms() < until_ms:
            shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(until_ms / 1000))
            remark = f"broker unable to service, until {shown},{until_ms % 1000:03d}"
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)

    def _topic_for(self, header: SendMessage) -> Topic:
        if header.topic in NOT_SENDABLE:
            raise _forbidden(header.topic)
        topic = self._topics.get(header.topic)
        if topic is None:
            problem = problem_of(header.topic)
            if problem:
                raise BrokerError(ResponseCode.INVALID_PARAMETER, problem)
            topic = self._topics.create_for_send(
                header.topic,
                default_topic=header.default_topic,
                queue_nums=header.default_topic_queue_nums,
                is_unit=bool(header.unit_mode),
            )
        if topic is None:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, unknown_topic(header.topic))
        if not topic.can_send:
            raise _forbidden(topic.name)
        if topic.is_order and not self._is_writable:
            remark = f"the broker[{self._identity.store_ip}] sending message is forbidden"
            raise BrokerError(ResponseCode.NO_PERMISSION, remark)
        return topic

    def _is_plain(self, topic: Topic) -> bool:
        return (
            not topic.name.startswith(RETRY_PREFIX)
            and topic.config.topic_filter_type is TopicFilterType.SINGLE_TAG
        )

    def _queue_id(self, channel: Channel, header: SendMessage, topic: Topic) -> int:
        if header.queue_id < 0 < topic.write_queue_count:
            return self._chance.randrange(topic.write_queue_count)
        if not 0 <= header.queue_id < topic.queue_count:
            raise BrokerError(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{header.queue_id}] is illegal, topic {topic.name} has"
                f" {topic.write_queue_count} write and {topic.read_queue_count} read queues."
                f" Producer: {channel.peer}",
            )
        return header.queue_id

    def _rewritten(self, text: str) -> tuple[str, bytes]:
        """Unique key and stored form of properties that are not to be stored as they came."""
        # Item by item as they are: some values cannot be written again, only passed on.
        items = []
        key = None
        for item in text.split(VALUE_END):
            name, _, value = item.partition(NAME_END)
            if not name or not value or name in REWRITTEN or name.startswith(TRANSIENT_PREFIX):
                continue
            items.append(item + VALUE_END)
            if name == Property.UNIQ_KEY:
                key = value
        if key is None:
            key = self._unique_ids.next(self._clock.now_ms())
            items.append(f"{Property.UNIQ_KEY}{NAME_END}{key}{VALUE_END}")
        return key, "".join(items).encode() + self.addition

    def _check_transaction(self, asks: int, message: NewMessage, level: int) -> None:
        if asks & Asks.TRANSACTION:
            # Old clients leave the mark on what they send back for a retry.
            is_retry = message.reconsume_times > 0 and level > 0
            if _is_half(asks, bytes(message.properties)) and not is_retry:
                raise self._no_transactions()
        elif message.sys_flag & sysflag.TRANSACTION_MASK:
            raise self._no_transactions()

    def _no_transactions(self) -> BrokerError:
        return BrokerError(
            ResponseCode.NO_PERMISSION,
            f"the broker[{self._identity.store_ip}] sending transaction message is forbidden",
        )

    def _forget_changed(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            self._forget(topic.name)

    def _forget(self, name: str) -> None:
        self.plain_topics.pop(name, None)


def illegal(reason: str, body_bytes_max: int) -> str:
    """The remark for a message that cannot be stored."""
    return (
        "the message is illegal, maybe msg body or properties length not matched. msg body length"
        f" limit {body_bytes_max}B, msg properties length limit 32KB. ({reason})"
    )


def _forbidden(topic: str) -> BrokerError:
    remark = f"Sending message to topic[{topic}] is forbidden."
    return BrokerError(ResponseCode.NO_PERMISSION, remark)


def unknown_topic(name: str) -> str:
    """The remark for a topic that does not exist and cannot be made."""
    return (
        f"topic[{shown(name)}] not exist, apply first please! (auto-creation is off here or the"
        " default topic cannot be inherited: create the topic)"
    )


def _flag_of(host: bytes, flag: int) -> int:
    return flag if len(host) == record.HOST_V6_BYTES else 0


def _is_half(asks: int, properties: bytes) -> bool:
    text = message_properties.get(properties, _TRAN_MSG) if asks & Asks.TRANSACTION else None
    return text is not None and text.lower() == "true"


def _is_batch(command: Command) -> bool:
    # One C++ client writes booleans as 1 and 0, also where others mean something else by it.
    is_loose = "1" in (command.ext_fields.get("batch"), command.ext_fields.get("m"))
    return not is_loose or looks_like_batch(command.body)
