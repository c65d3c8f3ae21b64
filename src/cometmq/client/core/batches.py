"""Several messages in one frame: on request, or collected as they come.

A batch has one topic, one queue and one body limit; it is stored as the messages it consists of.
Nothing in it is compressed, delayed or part of a transaction. The frame itself says only whether
to wait for the disk: brokers up to 5.3.3 give its properties to every message, and an id among
them would make all of them look like one.
"""

import enum
from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from cometmq.client.core.names import is_retry_topic
from cometmq.client.core.outgoing import MessageKind, Outgoing
from cometmq.codec import batch
from cometmq.codec.batch import BatchItem
from cometmq.errors import InvalidArgument
from cometmq.model.limits import BODY_BYTES_MAX
from cometmq.model.offsets import MessageQueue

HOLD_MS: Final = 10
GROUP_BYTES: Final = 32 * 1024
TOTAL_BYTES: Final = 32 * 1024 * 1024

_FRAME_BYTES: Final = len(batch.encode([BatchItem(0, b"", b"")]))
"""What a message takes in a batch beside its body and properties."""

T = TypeVar("T")


class Batch(msgspec.Struct, frozen=True):
    """One frame: its body is the messages, its answer tells the ids of all of them."""

    topic: str
    body: bytes
    properties: str
    unique_ids: tuple[str, ...]


def check_batch(messages: Sequence[Outgoing]) -> None:
    """Refuse messages that cannot be in one batch; the error tells which, counted from 0."""
    if not messages:
        raise InvalidArgument("messages", "there are no messages to send", "pass at least one")
    first = messages[0]
    for number, message in enumerate(messages):
        problem = _problem(first, message)
        if problem:
            raise InvalidArgument(
                "messages",
                f"message {number} cannot be in the batch: {problem}",
                "send it by itself",
            )


def split(messages: Sequence[Outgoing], bytes_max: int = BODY_BYTES_MAX) -> list[Batch]:
    """The messages as batches, in their order, each as large as the limit lets it be.

    The messages were written uncompressed. Raises InvalidArgument for those that cannot be in one
    batch, and for one that is over the limit with what a batch adds to it.
    """
    check_batch(messages)
    return [joined(part) for part in _parts(messages, bytes_max)]


def joined(messages: Sequence[Outgoing]) -> Batch:
    """Messages that belong together as one batch."""
    first = messages[0]
    items = [BatchItem(one.flag, one.body, one.properties.encode()) for one in messages]
    wait = "true" if first.wait_store else "false"
    ids = tuple(message.unique_id for message in messages)
    return Batch(first.topic, batch.encode(items), f"WAIT\x01{wait}\x02", ids)


def encoded_bytes(message: Outgoing) -> int:
    """What a message takes in a batch."""
    text = message.properties
    size = len(text) if text.isascii() else len(text.encode())
    return _FRAME_BYTES + len(message.body) + size


class GroupKey(msgspec.Struct, frozen=True, gc=False):
    """What messages of one batch agree in; without a queue the producer chooses one.

    Those of one queue stay in their order, so their tags do not keep them apart.
    """

    topic: str
    queue: MessageQueue | None
    wait_store: bool
    tag: str
    timeout_ms: int


class Group(Generic[T]):
    """Messages that wait for each other, with what their senders wait for."""

    __slots__ = ("began_ms", "byte_count", "due_ms", "key", "messages", "waiters")

    def __init__(self, key: GroupKey, now_ms: int, due_ms: int) -> None:
        self.key = key
        self.began_ms = now_ms
        self.due_ms = due_ms
        self.messages: list[Outgoing] = []
        self.waiters: list[T] = []
        self.byte_count = 0


class Held(enum.Enum):
    """What became of a message."""

    NO = "no"
    """It must be sent by itself."""
    WAITING = "waiting"
    """It leaves at ``next_due_ms``."""
    DUE = "due"
    """It made a group full: take what is due now."""


class Accumulator(Generic[T]):
    """Messages that are collected into batches. Says what is due; sends nothing.

    ``T`` is what the sender of a message waits for. Bytes count as held until the group they are in
    was sent, so that a slow broker does not fill the memory.
    """

    def __init__(
        self,
        *,
        hold_ms: int = HOLD_MS,
        group_bytes: int = GROUP_BYTES,
        total_bytes: int = TOTAL_BYTES,
        batch_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        self._hold_ms = hold_ms
        self._group_bytes = min(group_bytes, batch_bytes_max)
        self._total_bytes = total_bytes
        self._batch_bytes_max = batch_bytes_max
        self._growing: dict[GroupKey, Group[T]] = {}  # what may still become more
        self._of_queue: dict[MessageQueue, GroupKey] = {}  # of these, the one of each queue
        self._due_ms: int | None = None  # when the first of them is due, or earlier
        self._full: list[Group[T]] = []
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @property
    def next_due_ms(self) -> int | None:
        """When to take what is due; None while nothing waits."""
        if self._full:
            return self._full[0].due_ms
        return self._due_ms

    def add(
        self,
        message: Outgoing,
        queue: MessageQueue | None,
        waiter: T,
        now_ms: int,
        *,
        timeout_ms: int = 3_000,
    ) -> Held:
        """Hold a message, unless it cannot be in a batch, is large anyway or too much is held.

        It is not held for more than half of ``timeout_ms``, which is what its sender waits at most.
        """
        size = encoded_bytes(message)
        if size >= self._group_bytes or self._held_bytes + size > self._total_bytes:
            return Held.NO
        if _own_problem(message):
            return Held.NO
        tag = message.tag if queue is None else ""
        key = GroupKey(message.topic, queue, message.wait_store, tag, timeout_ms)
        if queue is not None and self._of_queue.get(queue, key) != key:
            self.release(queue, now_ms)
        group = self._growing.get(key)
        if group is not None and group.byte_count + size > self._batch_bytes_max:
            self._close(group, now_ms)
            group = None
        if group is None:
            group = self._begin(key, now_ms)
        group.messages.append(message)
        group.waiters.append(waiter)
        group.byte_count += size
        self._held_bytes += size
        if group.byte_count >= self._group_bytes:
            self._close(group, now_ms)
        return Held.DUE if self._full else Held.WAITING

    def take_due(self, now_ms: int) -> list[Group[T]]:
        """The groups that must be sent now; each is to be reported with ``sent`` afterwards."""
        for group in [group for group in self._growing.values() if group.due_ms <= now_ms]:
            self._close(group, now_ms)
        self._due_ms = min((group.due_ms for group in self._growing.values()), default=None)
        due, self._full = self._full, []
        return due

    def take_all(self) -> list[Group[T]]:
        """Every group, due or not, because the producer stops."""
        groups = [*self._full, *self._growing.values()]
        self._full, self._growing, self._of_queue, self._due_ms = [], {}, {}, None
        return groups

    def release(self, queue: MessageQueue, now_ms: int) -> bool:
        """Let what is held for a queue leave now; says whether there is something.

        What comes after it for that queue must not be sent before it.
        """
        key = self._of_queue.get(queue)
        if key is not None:
            self._close(self._growing[key], now_ms)
        return key is not None

    def sent(self, group: Group[T]) -> None:
        """A group that was taken is sent, or has failed: its bytes count no more."""
        self._held_bytes -= group.byte_count
        assert self._held_bytes >= 0, self._held_bytes

    def _begin(self, key: GroupKey, now_ms: int) -> Group[T]:
        due_ms = now_ms + min(self._hold_ms, key.timeout_ms // 2)
        group = self._growing[key] = Group(key, now_ms, due_ms)
        if key.queue is not None:
            self._of_queue[key.queue] = key
        if self._due_ms is None or due_ms < self._due_ms:
            self._due_ms = due_ms
        return group

    def _close(self, group: Group[T], now_ms: int) -> None:
        del self._growing[group.key]
        if group.key.queue is not None:
            del self._of_queue[group.key.queue]
        group.due_ms = now_ms
        self._full.append(group)


def _problem(first: Outgoing, message: Outgoing) -> str:
    if message.topic != first.topic:
        return f"it is for topic '{message.topic}', the first one for '{first.topic}'"
    if message.wait_store != first.wait_store:
        return "it has another wait_store than the first one"
    return _own_problem(message)


def _own_problem(message: Outgoing) -> str:
    if message.kind is MessageKind.DELAY:
        return "it has a delay"
    if message.kind is not MessageKind.NORMAL:
        return f"it is a {message.kind.value} message"
    if message.sys_flag:
        return "its body is compressed"
    if is_retry_topic(message.topic):
        return f"'{message.topic}' is a retry topic"
    return ""


def _parts(messages: Sequence[Outgoing], bytes_max: int) -> Iterator[list[Outgoing]]:
    part: list[Outgoing] = []
    part_bytes = 0
    for number, message in enumerate(messages):
        size = encoded_bytes(message)
        if size > bytes_max:
            raise InvalidArgument(
                "messages",
                f"message {number} takes {size} bytes in a batch, at most {bytes_max} fit",
                "send it by itself",
            )
        if part and part_bytes + size > bytes_max:
            yield part
            part, part_bytes = [], 0
        part.append(message)
        part_bytes += size
    yield part
