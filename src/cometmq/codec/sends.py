"""Plain sends on the shortest way: from commands to records in the log and answers for the wire.

Nearly every send is plain: one message for a queue that is known, in a topic without special rules,
asking for nothing but to be stored. Those are taken here one after the other; the first that is not
plain ends it, and the caller looks at it closely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

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
from cometmq.codec.sent_properties import Asks
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

_ASKS_MORE: Final = ~int(Asks.NO_WAIT)
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
            pieces(answer, 0), (MESSAGE_ID, QUEUE_ID, QUEUE_OFFSET, UNIQUE_KEY, OPAQUE)
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
        read, topics, queues = self._read, self._topics, self._queues
        read_properties, addition = sent_properties.read, self._addition
        append, store_host, id_prefix = self._tail.append, self._store_host, self._id_prefix
        write_json, write = self._json_answer, self._answer
        for number in range(begin, len(commands)):
            command = commands[number]
            try:
                header = read(command, header_type)
            except ProtocolError:
                return number
            name, queue_id, sys_flag = header.topic, header.queue_id, header.sys_flag
            topic = topics.get(name)
            if topic is None or not 0 <= queue_id < topic.queue_count:
                return number
            if sys_flag & SYSTEM_FLAGS or header.batch or not command.body:
                return number
            asks, key, stored = read_properties(header.properties or "", addition)
            queue = queues.get(name, _NO_QUEUES).get(queue_id)
            if asks & _ASKS_MORE or queue is None or key is None or not is_quotable(key):
                return number
            message = Message(
                queue_id,
                command.body,
                stored,
                header.born_timestamp,
                born_host,
                store_host,
                header.flag,
                sys_flag | host_flags,
                header.reconsume_times or 0,
            )
            result: Any = append(message, queue)
            if result is None:
                return number
            topic.put_count += 1
            topic.put_bytes += result.end - result.physical_offset
            if not command.flag & 2:
                message_id = f"{id_prefix}{result.physical_offset:016X}"
                facts = message_id, queue_id, result.queue_offset, key
                if command.serialization == 0:
                    heads.append(write_json((*facts, command.opaque), 0))
                else:
                    heads.append(write(command.serialization, command.opaque, *facts))
        return len(commands)


def is_quotable(key: str) -> bool:
    """Whether a unique key is short ASCII text that JSON shows as it is."""
    is_short = len(key) <= KEY_CHARACTERS_MAX
    return is_short and key.isascii() and key.isprintable() and '"' not in key and "\\" not in key


QUEUE_ID, QUEUE_OFFSET = NUMBER, NUMBER + 1


def pieces(answer: Answer, serialization: int) -> list[Piece]:
    """What an answer to a send is written of."""
    queue_id, queue_offset, _ = SAMPLE_NUMBERS
    frame = answer(serialization, SAMPLE_OPAQUE, SAMPLE_ID, queue_id, queue_offset, SAMPLE_KEY)
    return cut(frame, serialization)
