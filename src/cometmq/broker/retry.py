"""What becomes of a message that a consumer could not handle: once more, later, or never again.

A consumer hands a message back by its place in the log (request 36); where that fails, and for
messages consumed in order, it sends a copy to the retry topic of its group. The limits are the
same, though the two count differently: a message handed back counts the attempts before this one,
a copy the ones with it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.broker.delay.levels import DELAY, RECORD_CRC, rewritten
from cometmq.broker.topics import shown
from cometmq.codec import properties, record, sysflag
from cometmq.codec.codes import V3_4_9, ResponseCode
from cometmq.codec.java import INT32_MAX
from cometmq.codec.message_id import encode_offset_id
from cometmq.codec.properties import Property
from cometmq.errors import BrokerError
from cometmq.model.topic import RETRY_PREFIX
from cometmq.store.results import NewMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.broker.groups import GroupTable
    from cometmq.broker.topics import Topic, TopicTable
    from cometmq.codec.headers.send import ConsumerSendMsgBack, SendMessage
    from cometmq.codec.record import Record
    from cometmq.model.group import SubscriptionGroupConfig

FIRST_LEVEL: Final = 3
"""Delay level of the first retry, unless the consumer chooses one; each further retry adds 1."""

_RETRY_TOPIC: Final = Property.RETRY_TOPIC.encode()
_ORIGIN_MESSAGE_ID: Final = Property.ORIGIN_MESSAGE_ID.encode()
_WAIT: Final = Property.WAIT.encode()


class Destination(enum.Enum):
    """Where a message goes that was handed back."""

    RETRY = enum.auto()
    DEAD_LETTER = enum.auto()


class RetryPlan(msgspec.Struct, frozen=True, gc=False):
    """What is to be done with a message; ``delay_level`` is 0 for dead letters."""

    destination: Destination
    delay_level: int
    reconsume_times: int


def plan(
    found: Record, said: ConsumerSendMsgBack, group: SubscriptionGroupConfig, client_version: int
) -> RetryPlan:
    """Decide on a message that was handed back.

    With 16 retries at most and levels left to us it comes again after levels 3 to 18, and the
    17th failure is the last.
    """
    times_max = _times_max(group, said.max_reconsume_times, client_version)
    times = min(found.reconsume_times + 1, INT32_MAX)
    if found.reconsume_times >= times_max or said.delay_level < 0:
        return RetryPlan(Destination.DEAD_LETTER, 0, times)
    level = said.delay_level or FIRST_LEVEL + found.reconsume_times
    return RetryPlan(Destination.RETRY, level, times)


def handed_back(
    found: Record, chosen: RetryPlan, topic: str, queue_id: int, store_host: bytes
) -> NewMessage:
    """The copy of a message that is stored for ``topic``, not yet put aside for its delay.

    It says where the message came from when it was first delivered, however often it failed since.
    """
    text = found.properties
    changes: dict[bytes, bytes | None] = {
        DELAY: b"%d" % chosen.delay_level,
        _WAIT: b"false",
        RECORD_CRC: None,
    }
    if properties.get(text, _RETRY_TOPIC) is None:
        changes[_RETRY_TOPIC] = found.topic.encode()
    if properties.get(text, _ORIGIN_MESSAGE_ID) is None:
        origin = encode_offset_id(found.store_host, found.physical_offset)
        changes[_ORIGIN_MESSAGE_ID] = origin.encode()
    is_v6 = len(store_host) == record.HOST_V6_BYTES
    host_flag = sysflag.STORE_HOST_V6 if is_v6 else 0
    return NewMessage(
        topic,
        queue_id,
        found.body,
        rewritten(text, changes),
        found.born_timestamp,
        found.born_host,
        store_host,
        found.flag,
        found.sys_flag & ~sysflag.STORE_HOST_V6 | host_flag,
        chosen.reconsume_times,
    )


def origin_topic(found: Record) -> str:
    """Where a message was first delivered, however often it failed since."""
    return properties.get(found.properties, _RETRY_TOPIC) or found.topic


def dead_letter_properties(text: bytes) -> bytes:
    """Properties of a copy that goes to the dead letters: without the delay its sender wanted."""
    return rewritten(text, {DELAY: b"-1"})


class Retries:
    """Copies that consumers send to retry topics.

    ``has_lock`` tells whether a group has locked any queue, which only consumers in order do.
    """

    def __init__(
        self, groups: GroupTable, topics: TopicTable, has_lock: Callable[[str], bool]
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._has_lock = has_lock

    def redirected(self, topic: Topic, header: SendMessage, client_version: int) -> Topic | None:
        """Where a copy sent to a retry topic goes instead: the dead letters, or None to stay.

        Consumers in order try again by themselves and give up only in the end: what comes from
        such a group is dead. A copy for the dead letters has no delay: see
        ``dead_letter_properties``. Raises BrokerError when there is no such group.
        """
        name = topic.name.removeprefix(RETRY_PREFIX)
        group = self._groups.obtain(name)
        if group is None:
            raise unknown_group(name)
        times_max = _times_max(group.config, header.max_reconsume_times, client_version)
        if (header.reconsume_times or 0) <= times_max and not self._has_lock(name):
            return None
        return self._topics.create_dead_letter(name)


def unknown_group(name: str) -> BrokerError:
    """The refusal for a group that does not exist and cannot be made."""
    remark = f"subscription group not exist, {shown(name)}"
    return BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)


def _times_max(group: SubscriptionGroupConfig, asked: int | None, client_version: int) -> int:
    """How often a message comes again: as the consumer says, if it is new enough to know."""
    return group.retry_max_times if asked is None or client_version < V3_4_9 else asked
