"""Plain sends on the shortest way: from commands to records in the log and answers for the wire.

Nearly every send is plain: one message for a queue that is known, in a topic without special rules,
asking for nothing but to be stored. Those are taken here one after the other; the first that is not
plain ends it, and the caller looks at it closely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol
from zlib import crc32

import msgspec

from cometmq.codec import sent_properties
from cometmq.codec.answer_pieces import (
    MESSAGE_ID,
    NUMBER,
    OPAQUE,
    SAMPLE_ID,
    SAMPLE_KEY,
    SAMPLE_NUMBERS,
    SAMPLE_OPAQUE,
    UNIQUE_KEY,
    Piece,
    cut,
    json_writer,
)
from cometmq.codec.digest import usual_hashes
from cometmq.codec.headers.base import SMALL_INTEGERS, exact_texts
from cometmq.codec.record import HEAD_TO_BODY, MAGIC_V1
from cometmq.codec.sent_properties import Asks
from cometmq.codec.sent_properties import usual as usual_properties
from cometmq.codec.sysflag import BROKER_FLAGS, TRANSACTION_MASK
from cometmq.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cometmq.codec.command import Command
    from cometmq.codec.headers.send import SendMessage
    from cometmq.codec.tails import LogTail, QueueTail

    ReadHeader = Callable[[Command, type[SendMessage]], SendMessage]
    Answer = Callable[[int, int, str, int, int, str], bytes]

SYSTEM_FLAGS: Final = TRANSACTION_MASK | BROKER_FLAGS
"""A send that has one of these bits is not plain."""

KEY_CHARACTERS_MAX: Final = 1024
"""Unique keys that are longer are not plain."""

FRESH_MAX: Final = 1 << 12
"""So many digests are kept for the dispatch; what is more has to be read again."""

FRESH_KEYS_BYTES_MAX: Final = 256
"""Digests of messages with longer keys, which may be thousands, are not kept."""

_ASKS_MORE: Final = ~int(Asks.NO_WAIT)
_NO_BATCH: Final = frozenset({None, "false"})
_BORN_DIGITS_MAX: Final = 18
_NO_QUEUES: Final[Mapping[int, QueueTail]] = {}


class SendTopic(Protocol):
    """What has to be known about a topic without special rules."""

    queue_count: int
    """Queue ids below it may be sent to."""
    put_count: int
    """Messages taken."""
    put_bytes: int
    """Bytes of their records."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as ``LogTail.append`` takes it."""

    queue_id: int
    body: bytes
    properties: bytes
    born_timestamp: int
    born_host: bytes
    store_host: bytes
    flag: int
    sys_flag: int
    reconsume_times: int
    prepared_transaction_offset: int = 0


class SendTail:
    """Takes sends for one log.

    ``queues`` are the tails by topic and queue id, ``topics`` those without special rules; both are
    looked at as they are at the time. ``addition`` is appended to every message's properties.
    ``answer`` writes the frame of an answer from serialization, opaque, message id, queue id, queue
    offset and unique key; ``id_prefix`` is how the ids of this broker's messages begin.
    """

    def __init__(
        self,
        tail: LogTail,
        queues: Mapping[str, Mapping[int, QueueTail]],
        topics: Mapping[str, SendTopic],
        addition: bytes,
        store_host: bytes,
        id_prefix: str,
        read: ReadHeader,
        answer: Answer,
    ) -> None:
        self._tail = tail
        self._queues = queues
        self._topics = topics
        self._addition = addition
        self._store_host = store_host
        self._id_prefix = id_prefix
        self._read = read
        self._answer = answer
        self._json_answer = json_writer(
            pieces(answer, 0),
            (MESSAGE_ID, QUEUE_ID, QUEUE_OFFSET, UNIQUE_KEY, OPAQUE),
            {MESSAGE_ID: f"{id_prefix}%016X"},
        )

    def take(
        self,
        commands: Sequence[Command],
        begin: int,
        header_type: type[SendMessage],
        born_host: bytes,
        host_flags: int,
        heads: list[bytes],
    ) -> int:
        """Store sends from ``commands[begin]`` on; the position of the first that is not plain.

        Their answers go to ``heads``, except for those that want none. ``host_flags`` say which of
        the two hosts is IPv6.
        """
        texts = exact_texts(header_type)
        position, count = begin, len(commands)
        while position < count:
            if type(commands[position].ext) is texts:
                position = self._take_usual(commands, position, texts, born_host, host_flags, heads)
                if position == count:
                    break
            if not self._take_any(commands[position], header_type, born_host, host_flags, heads):
                break
            position += 1
        return position

    def _take_usual(
        self,
        commands: Sequence[Command],
        begin: int,
        header_texts: type[Any],
        born_host: bytes,
        host_flags: int,
        heads: list[bytes],
    ) -> int:
        """Take sends as long as their texts say nothing unusual; where the first other one is.

        What makes a send plain is the same as in ``_take_any``, which decides about all that is
        left. Here steps are counted: nothing is made or called for a message that need not be.
        """
        log, queues, topics, fresh = self._tail, self._queues, self._topics, self._tail.fresh
        addition, store_host, write_answer = self._addition, self._store_host, self._json_answer
        layout, target = HEAD_TO_BODY[host_flags >> 4 & 3], log.target
        now_ms = log.now_ns() // 1_000_000
        for number in range(begin, len(commands)):
            command = commands[number]
            body = command.body
            texts: Any = command.ext
            if type(texts) is not header_texts or target is None or not body:
                return number
            numbers, asked = _usual_numbers(texts), usual_properties(texts.properties or "")
            if numbers is None or asked is None or not is_quotable(asked[0]):
                return number
            queue_id, sys_flag, flag, reconsumed, born = numbers
            key, (keys, tags) = asked
            topic, queue = (
                topics.get(texts.topic),
                queues.get(texts.topic, _NO_QUEUES).get(queue_id),
            )
            if topic is None or queue is None or queue_id >= topic.queue_count:
                return number
            properties = sent_properties.extended(texts.properties.encode(), addition)
            lengths = len(body), len(properties)
            size = layout.size + sum(lengths) + len(queue.topic_field) + 2
            if not queue.topic_field or not log.has_room(size, *lengths):
                return number
            begin_at, offset, sys_flag = log.position, queue.next_offset, sys_flag | host_flags
            physical = log.base + begin_at
            head = layout.pack(
                size, MAGIC_V1, crc32(body) & 0x7FFFFFFF, queue_id, flag, offset, physical,
                sys_flag, born, born_host, now_ms, store_host, reconsumed, 0, lengths[0]
            )  # fmt: skip
            tail = queue.topic_field, lengths[1].to_bytes(2, "big"), properties
            target[begin_at : begin_at + size] = b"".join((head, body, *tail))
            queue.next_offset = offset + 1
            log.position, log.end, log.timestamp = begin_at + size, physical + size, now_ms
            if len(fresh) < FRESH_MAX and len(keys) <= FRESH_KEYS_BYTES_MAX:
                hashes = usual_hashes(queue.topic_bytes, key.encode(), keys, tags)
                place = texts.topic, queue_id, offset, physical
                fresh.append((*place, size, sys_flag, now_ms, *hashes))
            topic.put_count += 1
            topic.put_bytes += size
            if not command.flag & 2:
                heads.append(write_answer((physical, queue_id, offset, key, command.opaque), 0))
        return len(commands)

    def _take_any(
        self,
        command: Command,
        header_type: type[SendMessage],
        born_host: bytes,
        host_flags: int,
        heads: list[bytes],
    ) -> bool:
        """Take a send of whatever form, if it is plain."""
        try:
            header = self._read(command, header_type)
        except ProtocolError:
            return False
        name, queue_id, sys_flag = header.topic, header.queue_id, header.sys_flag
        topic = self._topics.get(name)
        if topic is None or not 0 <= queue_id < topic.queue_count:
            return False
        if sys_flag & SYSTEM_FLAGS or header.batch or not command.body:
            return False
        asks, key, stored = sent_properties.read(header.properties or "", self._addition)
        queue = self._queues.get(name, _NO_QUEUES).get(queue_id)
        if asks & _ASKS_MORE or queue is None or key is None or not is_quotable(key):
            return False
        message = Message(
            queue_id,
            command.body,
            stored,
            header.born_timestamp,
            born_host,
            self._store_host,
            header.flag,
            sys_flag | host_flags,
            header.reconsume_times or 0,
        )
        result: Any = self._tail.append(message, queue)
        if result is None:
            return False
        topic.put_count += 1
        topic.put_bytes += result.end - result.physical_offset
        if not command.flag & 2:
            place = queue_id, result.queue_offset, key
            if command.serialization == 0:
                facts = result.physical_offset, *place, command.opaque
                heads.append(self._json_answer(facts, 0))
            else:
                message_id = f"{self._id_prefix}{result.physical_offset:016X}"
                form, opaque = command.serialization, command.opaque
                heads.append(self._answer(form, opaque, message_id, *place))
        return True


def _usual_numbers(texts: Any) -> tuple[int, int, int, int, int] | None:
    """Queue id, sys flag, flag, reconsume times and born time of a send, as its texts say them.

    None when one of them is unusual, and when there is something wrong with another field.
    """
    number_of, born = SMALL_INTEGERS.get, texts.born_timestamp
    queue_id, sys_flag = number_of(texts.queue_id), number_of(texts.sys_flag)
    flag, reconsumed = number_of(texts.flag), number_of(texts.reconsume_times)
    if (
        queue_id is None
        or sys_flag is None
        or sys_flag & SYSTEM_FLAGS
        or flag is None
        or reconsumed is None
        or texts.default_topic_queue_nums not in SMALL_INTEGERS
        or texts.max_reconsume_times is not None
        or texts.batch not in _NO_BATCH
        or texts.producer_group is None
        or texts.default_topic is None
        or born is None
        or not (born.isdigit() and born.isascii() and len(born) <= _BORN_DIGITS_MAX)
    ):
        return None
    return queue_id, sys_flag, flag, reconsumed, int(born)


def is_quotable(key: str) -> bool:
    """Whether a unique key is short ASCII text that JSON shows as it is."""
    if len(key) > KEY_CHARACTERS_MAX or not key.isascii():
        return False
    return key.isalnum() or (key.isprintable() and '"' not in key and "\\" not in key)


QUEUE_ID, QUEUE_OFFSET = NUMBER, NUMBER + 1


def pieces(answer: Answer, serialization: int) -> list[Piece]:
    """What an answer to a send is written of."""
    queue_id, queue_offset, _ = SAMPLE_NUMBERS
    frame = answer(serialization, SAMPLE_OPAQUE, SAMPLE_ID, queue_id, queue_offset, SAMPLE_KEY)
    return cut(frame, serialization)
