"""Messages that could not be handled: back to their broker, or as copies to the retry topic.

The broker of a message takes it back by its place in the log (36), and knows when it has come too
often. When that fails, a copy is sent to the group's retry topic like any message, to whichever
broker takes it.
"""

from typing import Any

from cometmq import logs
from cometmq.client.core.message import Message
from cometmq.client.core.names import retry_topic, wrap_topic
from cometmq.client.core.outgoing import MessageKind, Outgoing
from cometmq.client.core.settings import ProducerSettings
from cometmq.client.instance import INNER_PRODUCER, Instance
from cometmq.client.queue_offsets import master_of
from cometmq.client.sending import Sending
from cometmq.codec import properties as property_string
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.send import ConsumerSendMsgBack
from cometmq.codec.properties import Property
from cometmq.codec.sysflag import COMPRESSED, compression_type, with_compression
from cometmq.errors import CometError
from cometmq.model.offsets import MessageQueue

_log = logs.get_logger("cometmq.client")

SEND_BACK_TIMEOUT_MS = 5_000
DEAD_LETTER_LEVEL = -1
RECONSUME_MAX = 16
"""How often a message is delivered again when nobody says otherwise."""
_LEFT_OUT = (
    Property.TRAN_MSG,
    Property.DELAY,
    Property.RECONSUME_TIME,
    Property.MAX_RECONSUME_TIMES,
)
"""The last two are in the header of a copy."""
_FIRST_LEVEL = 3
"""The delay level of the first copy; each further one waits one level longer."""


class _Copy(Outgoing, frozen=True, gc=False):
    """A message for a retry topic, whose header says how often it has come."""

    reconsume_times: int = 0
    reconsume_max: int = RECONSUME_MAX


class _CopySending(Sending):
    """Sends copies in the name of the group that Apache's clients use for it."""

    def _header(
        self,
        message: Outgoing,
        queue: MessageQueue,
        code: int,
        reconsume_times: int = 0,  # noqa: ARG002  # a copy has its own
        reconsume_max: int | None = None,  # noqa: ARG002
    ) -> Header:
        assert isinstance(message, _Copy), message
        return super()._header(message, queue, code, message.reconsume_times, message.reconsume_max)


class SendingBack:
    """Gives messages of one group back; ``group`` is as servers know it."""

    def __init__(
        self, instance: Instance, group: str, *, namespace: str, reconsume_max: int
    ) -> None:
        self._instance = instance
        self._group = group
        self._namespace = namespace
        self._reconsume_max = RECONSUME_MAX if reconsume_max < 0 else reconsume_max
        self._settings = ProducerSettings()
        self._copies = _CopySending(instance, INNER_PRODUCER, self._settings, namespace=namespace)

    async def send_back(self, message: Message[Any], delay_level: int) -> bool:
        """Have a message delivered again; says whether it is safe with a broker.

        ``delay_level`` is 0 for what the broker thinks right, ``DEAD_LETTER_LEVEL`` for never.
        """
        try:
            await self._ask(message, delay_level)
        except CometError as error:
            _log.warning("message=%s sent as a copy instead: %s", message.message_id, error)
            return await self.send_copy(message, is_dead=delay_level == DEAD_LETTER_LEVEL)
        return True

    async def send_copy(self, message: Message[Any], *, is_dead: bool) -> bool:
        """Send a copy to the retry topic, from which a dead one goes on to the dead letters."""
        try:
            await self._copies.send(self._copy(message, is_dead), self._settings.send_timeout_ms)
        except CometError as error:
            _log.warning("message=%s not given back: %s", message.message_id, error)
            return False
        return True

    async def _ask(self, message: Message[Any], delay_level: int) -> None:
        topic = self._origin(message)
        queue = MessageQueue(message.record.topic, message.broker_name, message.queue_id)
        header = ConsumerSendMsgBack(
            message.physical_offset,
            self._group,
            delay_level,
            message.message_id,
            topic,
            self._instance.settings.is_unit_mode,
            self._reconsume_max,
        )
        await self._instance.ask(
            await master_of(self._instance, queue),
            RequestCode.CONSUMER_SEND_MSG_BACK,
            header,
            timeout_ms=SEND_BACK_TIMEOUT_MS,
            is_repeatable=False,
        )

    def _copy(self, message: Message[Any], is_dead: bool) -> _Copy:
        record, times = message.record, message.reconsume_times
        said = dict(message.properties)
        for name in _LEFT_OUT:
            said.pop(name, None)
        said[Property.RETRY_TOPIC] = self._origin(message)
        said.setdefault(Property.ORIGIN_MESSAGE_ID, message.message_id)
        if not is_dead:
            said[Property.DELAY] = str(_FIRST_LEVEL + times)
        sys_flag = 0
        kind = compression_type(record.sys_flag) if record.sys_flag & COMPRESSED else None
        if kind is not None:
            sys_flag = with_compression(0, kind)
        return _Copy(
            retry_topic(self._group),
            record.body,
            property_string.encode(said),
            sys_flag,
            record.flag,
            message.message_id,
            MessageKind.NORMAL,
            message.tag or "",
            " ".join(message.keys),
            True,
            # Older brokers bury what has come as often as allowed, newer ones what came more often.
            self._reconsume_max + 1 if is_dead else times + 1,
            self._reconsume_max,
        )

    def _origin(self, message: Message[Any]) -> str:
        return wrap_topic(self._namespace, message.topic)
