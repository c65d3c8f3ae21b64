"""Where messages to be printed come from: a topic, or what a consumer group gets of it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cometmq.cli.queue_names import QueueNames
from cometmq.cli.times import TIME_HINT, parse_time
from cometmq.errors import InvalidArgument
from cometmq.model.offsets import MessageQueue

if TYPE_CHECKING:
    from cometmq.admin import Admin
    from cometmq.admin.servers import Outage
    from cometmq.aio import Client
    from cometmq.client.core.message import Message

OFFSET_DIGITS_MAX: Final = 8
"""A longer number is a time in milliseconds."""

_ENDS: Final = {"earliest": "first", "first": "first", "latest": "last", "last": "last"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where to begin or to end: at one end of each queue, at an offset, or at a time."""

    end: str | None = None
    offset: int | None = None
    time_ms: int | None = None


def place_of(option: str, text: str, now_ms: int) -> Place:
    """What a person means by ``text``. Raises InvalidArgument."""
    if text.lower() in _ENDS:
        return Place(end=_ENDS[text.lower()])
    if text.isascii() and text.isdigit() and len(text) <= OFFSET_DIGITS_MAX:
        return Place(offset=int(text))
    time_ms = parse_time(text, now_ms)
    if time_ms is None:
        times = TIME_HINT.removeprefix("write it as ")
        advice = f"write earliest, latest, an offset, or a time such as {times}"
        raise InvalidArgument(option, f"'{text}' is no place in a topic", advice)
    return Place(time_ms=time_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be read."""

    topic: str
    begin: Place
    end: Place | None = None
    queue: str | None = None
    tags: str | None = None
    sql: str | None = None
    is_following: bool = False


async def silent_brokers(admin: "Admin", wanted: Wanted) -> "tuple[Outage, ...]":
    """Brokers with something of what is wanted that do not answer, so that it will be missing.

    Raises NotFound, and Unreachable when nothing can be had without them.
    """
    from cometmq.admin.servers import require_none

    names = QueueNames(admin, wanted.topic)
    only = None if wanted.queue is None else await names.find(wanted.queue)
    outages = (await admin.topics.stats(wanted.topic)).outages
    if only is not None:
        require_none(out for out in outages if out.broker_name == only.broker_name)
        if not wanted.is_following:
            return ()
    if wanted.is_following:  # nobody is passed over, whichever queue is wanted
        require_none(outages, "without --follow what the others hold is printed")
    return outages


async def browsed(
    mq: "Client",
    admin: "Admin",
    wanted: Wanted,
    group: str | None = None,
    *,
    without: Collection[str] = (),
) -> "AsyncGenerator[Message[bytes], None]":
    """Messages without joining a group; from where ``group`` is, if one is named.

    Nothing is stored anywhere. Brokers that are named in ``without`` are not asked.
    """
    names = QueueNames(admin, wanted.topic)
    queues = await names.all()
    only = None if wanted.queue is None else await names.find(wanted.queue)
    passed = [one for one in queues if one.broker_name in without or only not in (None, one)]
    since: Any = wanted.begin.end or wanted.begin.time_ms or "first"
    if wanted.begin.offset is not None:
        since = dict.fromkeys(queues, wanted.begin.offset)
    if group is not None:
        # Who follows reads all queues: from the first message of the others it would take hours.
        read = queues if wanted.is_following else set(queues).difference(passed)
        since = await _group_offsets(admin, group, read)
    until = _until(wanted, queues, passed)
    messages = mq.browse(
        wanted.topic,
        since=since,
        until=None if wanted.is_following else until,
        tags=wanted.tags,
        follow=wanted.is_following,
    )
    async with contextlib.aclosing(messages):
        async for message in messages:
            if _is_past(message, wanted.end):
                if wanted.end is not None and wanted.end.time_ms is not None:
                    return  # they come in the order they were stored
                continue
            if only is None or message.queue == only:
                yield message


def _until(
    wanted: Wanted, queues: Sequence[MessageQueue], passed: Collection[MessageQueue]
) -> "Mapping[MessageQueue, int] | int | None":
    """Where each queue ends; those that are passed over, before they begin."""
    end = wanted.end
    ends = dict.fromkeys(passed, 0)
    if end is not None and end.offset is not None:
        return dict.fromkeys(queues, end.offset) | ends
    if ends or end is None:
        return ends or None
    return end.time_ms


def _is_past(message: "Message[bytes]", end: Place | None) -> bool:
    if end is None:
        return False
    if end.offset is not None:
        return message.queue_offset >= end.offset
    return end.time_ms is not None and message.stored_ms >= end.time_ms


async def _group_offsets(
    admin: "Admin", group: str, queues: Collection[MessageQueue]
) -> "dict[MessageQueue, int]":
    """Where a group is in each queue; at the first message where it is nowhere yet."""
    found = {}
    for queue in queues:
        stored = await admin.offsets.get(group, queue.topic, queue.broker_name, queue.queue_id)
        if stored is not None:
            found[queue] = stored
    return found


async def consumed(
    mq: "Client", admin: "Admin", wanted: Wanted, group: str, *, idle_ms: int
) -> "AsyncGenerator[Message[bytes], None]":
    """Messages as a member of a group; each is acknowledged when the next one is asked for.

    Whoever is done with the last one says so with its ``ack``. Ends when nothing came for
    ``idle_ms``, unless it is to follow. Raises NotFound: a consumer would wait for the topic.
    """
    await admin.topics.route(wanted.topic)
    if wanted.begin.end != "first":
        await _begin(admin, wanted, group)
    start: Any = wanted.begin.end or wanted.begin.time_ms or "first"
    consumer = mq.consumer(group, start=start)
    async with consumer:
        consumer.subscribe(wanted.topic, tags=wanted.tags, sql=wanted.sql)
        messages = aiter(consumer)
        try:
            while True:
                limit = None if wanted.is_following else idle_ms / 1000
                try:
                    message = await asyncio.wait_for(anext(messages), limit)
                except (TimeoutError, StopAsyncIteration):
                    return
                yield message
        finally:
            await messages.aclose()


async def _begin(admin: "Admin", wanted: Wanted, group: str) -> None:
    """Store where a group begins in queues in which it is nowhere yet, before it is joined.

    For a queue that still has its first message in memory brokers tell a new group to begin at 0,
    whatever its members are set to. Where members read the topic it has begun, whether they have
    told the broker yet or not.
    """
    from cometmq.admin import Latest, Time

    members = await admin.groups.members(group)
    if any(one.topic == wanted.topic for one in members.subscriptions):
        return
    since_ms = wanted.begin.time_ms
    place = Latest() if since_ms is None else Time(since_ms)
    plan = await admin.offsets.plan(group, wanted.topic, place)
    # Brokers before 5.0 answer 0 for "nowhere", too; then only the list of its topics tells.
    begun = {(one.topic, one.broker_name) for one in (await admin.groups.lag(group)).queues}
    new = [
        move
        for move in plan.moves
        if move.before is None or (not move.before and (move.topic, move.broker_name) not in begun)
    ]
    groups = (await admin.groups.list()).groups
    knowing = {broker for one in groups if one.name == group for broker in one.brokers}
    for broker in sorted({move.broker_name for move in new} - knowing):
        # Not every broker takes offsets of a group that it does not know.
        await admin.groups.create(group, broker=broker, is_new=False)
    for move in new:
        await admin.offsets.commit(group, move.topic, move.broker_name, move.queue_id, move.after)
