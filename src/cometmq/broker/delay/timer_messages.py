"""Timed messages as they leave: to where they were sent, or once more round the wheel."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cometmq.broker.delay.levels import REAL_QUEUE_ID, REAL_TOPIC, RECORD_CRC, rewritten
from cometmq.broker.delay.timer_rules import DELETE_KEY, OUT_MS, number_of
from cometmq.codec import properties, record
from cometmq.codec.properties import Property
from cometmq.errors import RemoteProtocolError
from cometmq.model.limits import PROPERTIES_BYTES_MAX
from cometmq.model.system_names import NOT_SENDABLE, TIMER_TOPIC
from cometmq.store.key_index import KeyKind
from cometmq.store.results import NewMessage

if TYPE_CHECKING:
    from cometmq.codec.record import Record
    from cometmq.codec.timer import TimerUnit
    from cometmq.store import MessageStore

UNIQUE_KEY: Final = Property.UNIQ_KEY.encode()
_ENQUEUE_MS: Final = Property.TIMER_ENQUEUE_MS.encode()
_DEQUEUE_MS: Final = Property.TIMER_DEQUEUE_MS.encode()
_ROLL_TIMES: Final = Property.TIMER_ROLL_TIMES.encode()

_QUEUE_ID: Final = re.compile("[0-9]{1,10}")
_CLOCK_SLACK_MS: Final = 60_000
"""A copy may have been stored by a clock that was this much behind."""


class Deletions:
    """Which messages were taken back: by topic, and key within it.

    5.4 writes topic and key into the property, other releases the key alone; its topic is where a
    recall was sent to in either case.
    """

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: set[tuple[str, str]] = set()

    def add(self, found: Record) -> None:
        """Note what a recall is about."""
        topic = properties.get(found.properties, REAL_TOPIC) or ""
        key = properties.get(found.properties, DELETE_KEY) or ""
        self._keys.add((topic, key.removeprefix(f"{topic}+")))

    def covers(self, found: Record) -> bool:
        if not self._keys:
            return False
        topic = properties.get(found.properties, REAL_TOPIC) or ""
        return (topic, properties.get(found.properties, UNIQUE_KEY) or "") in self._keys


def leaving(found: Record, unit: TimerUnit, now_ms: int, *, is_rolled: bool) -> NewMessage | str:
    """What is stored for a message whose slot is due; or why nothing can be."""
    changes = {_ENQUEUE_MS: b"%d" % unit.enqueue_timestamp, _DEQUEUE_MS: b"%d" % now_ms}
    topic: str | None = TIMER_TOPIC
    queue_id = "0"
    if is_rolled:
        changes[_ROLL_TIMES] = b"%d" % _next_roll(found)
    else:
        topic = properties.get(found.properties, REAL_TOPIC)
        queue_id = properties.get(found.properties, REAL_QUEUE_ID) or ""
    if not topic or not _QUEUE_ID.fullmatch(queue_id):
        return "it does not say where it was sent to"
    if not is_rolled and (topic == TIMER_TOPIC or topic in NOT_SENDABLE):
        return f"nobody may send to {topic}"
    text = rewritten(found.properties, {RECORD_CRC: None, **changes})
    if len(text) > PROPERTIES_BYTES_MAX:
        text = rewritten(found.properties, {RECORD_CRC: None})
    return NewMessage(
        topic,
        int(queue_id),
        found.body,
        text,
        found.born_timestamp,
        found.born_host,
        found.store_host,
        found.flag,
        found.sys_flag,
        found.reconsume_times,
    )


def has_left(store: MessageStore, found: Record, *, is_rolled: bool) -> bool:
    """Whether the log has what ``leaving`` makes of a message already: asks the index for its key.

    Without an index nobody knows, and the answer is no.
    """
    key = properties.get(found.properties, UNIQUE_KEY)
    topic = TIMER_TOPIC if is_rolled else properties.get(found.properties, REAL_TOPIC)
    if not key or not topic:
        return False
    begin_ms = max(found.store_timestamp - _CLOCK_SLACK_MS, 0)
    for offset in store.query(topic, key, begin_ms=begin_ms, kind=KeyKind.UNIQUE):
        if offset > found.physical_offset and _is_copy(
            _head_at(store, offset), found, topic, is_rolled=is_rolled
        ):
            return True
    return False


def _is_copy(copy: Record | None, found: Record, topic: str, *, is_rolled: bool) -> bool:
    if copy is None or copy.topic != topic:
        return False
    if is_rolled and number_of(copy.properties, _ROLL_TIMES) != _next_roll(found):
        return False
    return all(
        properties.get(copy.properties, name) == properties.get(found.properties, name)
        for name in (UNIQUE_KEY, OUT_MS, DELETE_KEY, REAL_TOPIC, REAL_QUEUE_ID)
    )


def _next_roll(found: Record) -> int:
    return (number_of(found.properties, _ROLL_TIMES) or 0) + 1


def _head_at(store: MessageStore, offset: int) -> Record | None:
    view = store.record_at(offset)
    if view is None:
        return None
    try:
        with view:
            found = record.parse(view, with_body=False)
    except RemoteProtocolError:
        return None
    return found if isinstance(found, record.Record) else None
