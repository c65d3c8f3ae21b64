"""Dead letters of a group: where they are, which are still to be looked at, sending them again.

How far a group's dead letters are dealt with is kept as the group's own offset on its dead-letter
topic, which no consumer uses. So whoever goes on, from whichever machine, begins where the last one
stopped.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from cometmq.admin.message import Message
from cometmq.admin.positions import Offset
from cometmq.admin.servers import Outage
from cometmq.cli.message_view import user_properties
from cometmq.codec.properties import Property
from cometmq.errors import CometError, NotFound, Refused
from cometmq.model.topic import DLQ_PREFIX

if TYPE_CHECKING:
    from cometmq.admin import Admin

SAVED_EVERY: Final = 32
"""Messages between two saves of how far a replay is: so many may be sent twice after a kill."""

REPLAY_OF: Final = "REPLAY_OF"
"""Property of a message that was sent again: the id that it had at first."""
REPLAY_GROUP: Final = "REPLAY_GROUP"
"""The group whose dead letter it was."""

_NO_PERMISSION = 16


class QueueState(msgspec.Struct, frozen=True):
    """A queue of dead letters; those from ``place`` on are still to be dealt with."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    place: int
    last_ms: int


class DeadLetterTopic(msgspec.Struct, frozen=True):
    """The dead letters of one group."""

    group: str
    topic: str
    queues: tuple[QueueState, ...]
    outages: tuple[Outage, ...] = ()  # brokers that may hold more

    @property
    def message_count(self) -> int:
        return sum(queue.max_offset - queue.min_offset for queue in self.queues)

    @property
    def pending_count(self) -> int:
        return sum(queue.max_offset - queue.place for queue in self.queues)

    @property
    def last_ms(self) -> int:
        return max((queue.last_ms for queue in self.queues), default=0)


class NoOrigin(CometError):
    """A dead letter that does not say which topic it comes from."""

    def __init__(self, message_id: str) -> None:
        super().__init__(message_id)
        self.fact = f"dead letter {message_id} does not say which topic it comes from"
        self.next_step = "name a topic with --to"


class Sending(Protocol):
    """The producer, as far as it is used here."""

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        tag: str | None = ...,
        keys: Collection[str] = ...,
        properties: Mapping[str, str] | None = ...,
        ordering_key: str | None = ...,
    ) -> Any: ...


async def group_names(admin: "Admin") -> list[str]:
    """Groups that have a topic for dead letters."""
    topics = await admin.topics.list()
    return [one.name.removeprefix(DLQ_PREFIX) for one in topics if one.name.startswith(DLQ_PREFIX)]


async def dead_letters(admin: "Admin", group: str) -> DeadLetterTopic:
    """How many dead letters a group has. Raises NotFound when it never had any."""
    topic = DLQ_PREFIX + group
    try:
        stats = await admin.topics.stats(topic)
    except NotFound as error:
        advice = "see 'cometmq dlq ls' for those that have some"
        raise NotFound("group with dead letters", group, advice) from error
    queues = []
    for queue in stats.queues:
        stored = await admin.offsets.get(group, topic, queue.broker_name, queue.queue_id)
        place = queue.min_offset if stored is None else max(stored, queue.min_offset)
        if place > queue.max_offset:  # the topic was deleted and made anew
            place = queue.min_offset
        queues.append(
            QueueState(
                queue.broker_name,
                queue.queue_id,
                queue.min_offset,
                queue.max_offset,
                place,
                queue.last_update_ms,
            )
        )
    return DeadLetterTopic(group, topic, tuple(queues), stats.outages)


async def letters_of(
    admin: "Admin", letters: DeadLetterTopic, *, is_all: bool
) -> AsyncIterator[Message]:
    """The dead letters that are still to be dealt with, or all of them, queue by queue."""
    for queue in letters.queues:
        begin = queue.min_offset if is_all else queue.place
        if begin == queue.max_offset:
            continue
        found = admin.messages.browse(
            letters.topic,
            begin=Offset(begin),
            end=Offset(queue.max_offset),
            broker=queue.broker_name,
            queue_id=queue.queue_id,
        )
        try:
            async for message in found:
                yield message
        except Refused as error:
            raise _unreadable(error, letters.topic) from error


def _unreadable(error: Refused, topic: str) -> Refused:
    if error.response_code != _NO_PERMISSION:
        return error
    advice = f"let it be read: cometmq topic edit '{topic}' --perm rw"
    return Refused(error.address, error.request, error.response_code, error.remark, advice)


def origin_of(message: Message) -> str | None:
    """The topic that a dead letter was sent to, None when it does not say."""
    found = message.properties
    return found.get(Property.RETRY_TOPIC) or found.get(Property.DLQ_ORIGIN_TOPIC)


class Places:
    """How far the dead letters of a group are dealt with, saved from time to time."""

    def __init__(self, admin: "Admin", letters: DeadLetterTopic) -> None:
        self._admin = admin
        self._letters = letters
        self._changed: dict[tuple[str, int], int] = {}
        self._count = 0

    async def passed(self, message: Message) -> None:
        """This one is dealt with."""
        self._changed[message.broker_name, message.queue_id] = message.queue_offset + 1
        self._count += 1
        if self._count % SAVED_EVERY == 0:
            await self.save()

    async def save(self) -> None:
        group, topic = self._letters.group, self._letters.topic
        changed, self._changed = self._changed, {}
        for (broker, queue_id), offset in changed.items():
            await self._admin.offsets.commit(group, topic, broker, queue_id, offset)


async def move_place(admin: "Admin", letters: DeadLetterTopic, *, to_end: bool) -> None:
    """Say that all dead letters are dealt with, or that none is."""
    for queue in letters.queues:
        offset = queue.max_offset if to_end else 0
        await admin.offsets.commit(
            letters.group, letters.topic, queue.broker_name, queue.queue_id, offset
        )


async def send_again(producer: Sending, message: Message, group: str, topic: str | None) -> str:
    """Send a dead letter to where it came from, or to ``topic``; returns which that is.

    It keeps value, keys, tag and properties, and says in properties of its own what it is.
    """
    target = topic or origin_of(message)
    if target is None:
        raise NoOrigin(message.message_id)
    properties = user_properties(message.properties)
    await producer.send(
        target,
        message.body,
        tag=message.tags,
        keys=message.keys,
        # What dies again was sent again before: then it keeps the id that it had first.
        properties={REPLAY_OF: message.message_id, **properties, REPLAY_GROUP: group},
        ordering_key=message.properties.get(Property.SHARDING_KEY),
    )
    return target


async def replay(
    messages: AsyncIterator[Message],
    places: Places | None,
    is_wanted: Callable[[Message], bool],
    act: Callable[[Message], Awaitable[None]],
    count: int | None,
) -> int:
    """Let ``act`` have each message that is wanted; how many it had.

    ``places`` moves with it, also when something fails: everything before is done.
    """
    done = 0
    try:
        async for message in messages:
            if done == count:
                break
            if is_wanted(message):
                await act(message)
                done += 1
            if places is not None:
                await places.passed(message)
    finally:
        if places is not None:
            await places.save()
    return done
