"""Taking back a message whose time of delivery has not come.

A recall is a message of its own, put aside for the same time as the one it is about: when that time
comes it is seen first. Whether there is such a message is not looked at, as in Apache's broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cometmq.broker.handlers.send import refusal
from cometmq.broker.topics import shown
from cometmq.codec import core, properties, recall_handle
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.recall import RecallMessage, RecallMessageResponse
from cometmq.codec.properties import Property
from cometmq.errors import BrokerError, LocalProtocolError, RemoteProtocolError
from cometmq.model.topic import Permission
from cometmq.remoting.routes import Answer
from cometmq.store.results import NewMessage

if TYPE_CHECKING:
    from cometmq.broker.config import BrokerSettings
    from cometmq.broker.delay.timer_rules import TimerRules
    from cometmq.broker.send_plans import SendPlans
    from cometmq.broker.topics import TopicTable
    from cometmq.clock import Clock
    from cometmq.codec.command import Command
    from cometmq.codec.recall_handle import RecallHandle
    from cometmq.remoting.channel import Channel
    from cometmq.remoting.routes import Routes
    from cometmq.store import MessageStore

RECALL_TAG: Final = "_RECALL_TAG_"
_BODY: Final = b"0"
_NOT_NOW: Final = "recall failed, broker service not available"


class RecallHandlers:
    """Request 370."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        plans: SendPlans,
        timers: TimerRules,
        *,
        settings: BrokerSettings,
        clock: Clock,
    ) -> None:
        self._store = store
        self._topics = topics
        self._plans = plans
        self._timers = timers
        # May be replaced while running.
        self.settings = settings
        self._clock = clock

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.RECALL_MESSAGE, self.recall)

    def recall(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, RecallMessage)
        now_ms = self._clock.now_ms()
        self._check_broker(now_ms)
        handle = self._checked_handle(said, now_ms)
        born_host, host_flags = self._plans.born_host(channel)
        message = NewMessage(
            handle.topic,
            0,
            _BODY,
            _properties(handle, said.producer_group, now_ms),
            now_ms,
            born_host,
            self._plans.store_host,
            sys_flag=host_flags,
        )
        result = self._store.put(self._timers.diverted(message))
        if not result.status.is_stored:
            why = refusal(result, self._plans.body_bytes_max).remark
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"recall failed, execute error: {why}")
        return Answer(header=RecallMessageResponse(handle.unique_key, self.settings.region_id))

    def _check_broker(self, now_ms: int) -> None:
        settings = self.settings
        if not settings.recall_message_enable:
            raise BrokerError(
                ResponseCode.NO_PERMISSION,
                "recall failed, operation is forbidden (set recallMessageEnable=true)",
            )
        is_writable = bool(settings.broker_permission & Permission.WRITE)
        if now_ms < settings.start_accept_send_request_ms or not (
            is_writable or settings.allow_recall_when_broker_not_writeable
        ):
            raise BrokerError(ResponseCode.SERVICE_NOT_AVAILABLE, _NOT_NOW)

    def _checked_handle(self, said: RecallMessage, now_ms: int) -> RecallHandle:
        if self._topics.get(said.topic) is None:
            remark = f"recall failed, the topic[{shown(said.topic)}] not exist"
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, remark)
        try:
            handle = recall_handle.decode(said.recall_handle)
        except RemoteProtocolError as error:
            raise BrokerError(ResponseCode.ILLEGAL_OPERATION, str(error)) from error
        if handle.topic != said.topic:
            raise _illegal("recall failed, topic not match")
        if handle.broker_name != self.settings.broker_name:
            raise _illegal(_NOT_NOW)
        left_ms = handle.timestamp_ms - now_ms
        if not 0 < left_ms < self.settings.timer_max_delay_sec * 1000:
            raise _illegal("recall failed, timestamp invalid")
        return handle


def _properties(handle: RecallHandle, group: str | None, now_ms: int) -> bytes:
    try:
        return properties.encode(
            {
                Property.TAGS: RECALL_TAG,
                Property.TIMER_DEL_UNIQKEY: handle.unique_key,
                Property.UNIQ_KEY: handle.unique_key,
                Property.TIMER_DELIVER_MS: str(handle.timestamp_ms),
                Property.BORN_TIMESTAMP: str(now_ms),
                Property.PGROUP: group or None,
            }
        ).encode()
    except LocalProtocolError as error:
        raise _illegal(f"recall failed, {error}") from error


def _illegal(remark: str) -> BrokerError:
    return BrokerError(ResponseCode.ILLEGAL_OPERATION, remark)
