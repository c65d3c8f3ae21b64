"""Messages with a time of delivery of their own: when it is, and how they are put aside until then.

``TIMER_DELAY_SEC``, ``TIMER_DELAY_MS`` and ``TIMER_DELIVER_MS`` ask for it, the first that is there
counts. The time is rounded down to a step of the wheel, ``TIMER_OUT_MS``; as a step is delivered
when it is over, no message comes early, nor later than one step.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from cometmq.broker.delay.levels import REAL_QUEUE_ID, REAL_TOPIC, RECORD_CRC, rewritten
from cometmq.codec import properties, recall_handle
from cometmq.codec.codes import ResponseCode
from cometmq.codec.properties import Property
from cometmq.codec.recall_handle import RecallHandle
from cometmq.errors import BrokerError, LocalProtocolError
from cometmq.model.system_names import TIMER_TOPIC
from cometmq.model.topic import RETRY_PREFIX

if TYPE_CHECKING:
    import random

    from cometmq.broker.config import BrokerSettings
    from cometmq.clock import Clock
    from cometmq.store.results import NewMessage

OUT_MS: Final = Property.TIMER_OUT_MS.encode()
DELETE_KEY: Final = Property.TIMER_DEL_UNIQKEY.encode()
DELAY_SEC: Final = Property.TIMER_DELAY_SEC.encode()
DELAY_MS: Final = Property.TIMER_DELAY_MS.encode()
DELIVER_MS: Final = Property.TIMER_DELIVER_MS.encode()

_NUMBER: Final = re.compile("[+-]?[0-9]{1,18}")


class Crowd(Protocol):
    """Whoever knows how many messages are due at a time."""

    def count_at(self, due_ms: int) -> int: ...


class TimerRules:
    """What becomes of a send that asks for a time."""

    def __init__(self, settings: BrokerSettings, clock: Clock, chance: random.Random) -> None:
        self._clock = clock
        self._chance = chance
        self._is_enabled = settings.timer_wheel_enable
        self._precision_ms = settings.timer_precision_ms
        self._delay_ms_max = settings.timer_max_delay_sec * 1000
        self._slot_count_max = settings.timer_congest_num_each_slot
        self._broker_name = settings.broker_name
        # Set when there is one; until then no slot is too full.
        self.crowd: Crowd | None = None

    def diverted(self, message: NewMessage) -> NewMessage:
        """The message as it is put aside; itself when its time has come, or came before.

        Raises BrokerError for a time that cannot be kept.
        """
        text = message.properties
        if message.topic == TIMER_TOPIC or properties.get(text, OUT_MS) is not None:
            return message
        if not self._is_enabled:
            remark = "accurate timer message is not enabled, timerWheelEnable is false"
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
        now_ms = self._clock.now_ms()
        deliver_ms = _asked_ms(text, now_ms)
        if deliver_ms is None or deliver_ms - now_ms > self._delay_ms_max:
            raise self._illegal()
        if deliver_ms <= now_ms:
            if properties.get(text, DELETE_KEY) is not None:
                raise self._illegal()
            return message
        out_ms = (deliver_ms - 1) // self._precision_ms * self._precision_ms
        self._check_crowd(out_ms)
        changes = {
            RECORD_CRC: None,
            OUT_MS: b"%d" % out_ms,
            REAL_TOPIC: message.topic.encode(),
            REAL_QUEUE_ID: b"%d" % message.queue_id,
        }
        return msgspec.structs.replace(
            message, topic=TIMER_TOPIC, queue_id=0, properties=rewritten(text, changes)
        )

    def recall_handle(self, message: NewMessage, unique_key: str) -> str | None:
        """What a sender can take a message back with that was put aside; None when it cannot."""
        text = message.properties
        topic, out_ms = properties.get(text, REAL_TOPIC), properties.get(text, OUT_MS)
        if message.topic != TIMER_TOPIC or not topic or not out_ms:
            return None
        if topic.startswith(RETRY_PREFIX):
            return None
        handle = RecallHandle(topic, self._broker_name, int(out_ms) + 1, unique_key)
        try:
            return recall_handle.encode(handle)
        except LocalProtocolError:
            return None  # of a key that no handle can carry

    def _check_crowd(self, out_ms: int) -> None:
        """Refuse some messages for a slot that is too full, and all when it is twice that full."""
        maximum = self._slot_count_max
        count = 0 if self.crowd is None else self.crowd.count_at(out_ms)
        if count <= maximum:
            return
        if count < 2 * maximum and self._chance.random() > (count - maximum) / maximum:
            return
        remark = (
            f"timer message is under flow control, max num limit is {2 * maximum} or the current"
            f" value is greater than {maximum} and less than {2 * maximum}, trigger random flow"
            " control"
        )
        raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)

    def _illegal(self) -> BrokerError:
        remark = (
            "timer message illegal, the delay time should not be bigger than the max delay"
            f" {self._delay_ms_max}ms; or if set del msg, the delay time should be bigger than the"
            " current time"
        )
        return BrokerError(ResponseCode.MESSAGE_ILLEGAL, remark)


def number_of(text: bytes, name: bytes) -> int | None:
    """A property that is a whole number; None when it is missing or is none."""
    value = properties.get(text, name)
    return int(value) if value is not None and _NUMBER.fullmatch(value) else None


def _asked_ms(text: bytes, now_ms: int) -> int | None:
    """The time of delivery that properties ask for; None when it is no number."""
    if properties.get(text, DELAY_SEC) is not None:
        seconds = number_of(text, DELAY_SEC)
        return None if seconds is None else now_ms + seconds * 1000
    if properties.get(text, DELAY_MS) is not None:
        delay_ms = number_of(text, DELAY_MS)
        return None if delay_ms is None else now_ms + delay_ms
    return number_of(text, DELIVER_MS)
