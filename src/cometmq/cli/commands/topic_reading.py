"""``cometmq topic tail`` and ``peek``: messages of a topic, without a group and without a trace."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.command import Command, Example
from cometmq.cli.completion import complete_brokers, complete_topics
from cometmq.cli.connection import Target, ask, cluster_options, explained, run, target_of
from cometmq.cli.describing import warn_of_outages
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.times import TIME

if TYPE_CHECKING:
    from cometmq.admin import Admin
    from cometmq.admin.message import Message
    from cometmq.admin.servers import Outage
    from cometmq.admin.topics import QueueStats, TopicStats

_COUNT_MAX = 10_000
_WIDTHS = {"stored": 23, "queue": 12, "offset": 8, "tag": 6, "keys": 8}


@click.command(
    "peek",
    cls=Command,
    examples=(
        Example("The ten newest messages", "cometmq topic peek orders", needs_cluster=True),
        Example("The oldest", "cometmq topic peek orders --oldest --count 1", needs_cluster=True),
        Example(
            "With all fields",
            "cometmq topic peek orders --since '1h ago' -o json",
            needs_cluster=True,
        ),
    ),
)
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--count",
    type=click.IntRange(1, _COUNT_MAX),
    default=10,
    show_default=True,
    metavar="N",
    help="So many messages.",
)
@click.option("--oldest", "is_oldest", is_flag=True, help="The oldest instead of the newest ones.")
@click.option("--since", type=TIME, metavar="TIME", help="The first ones stored at this time.")
@click.option("--broker", metavar="NAME", shell_complete=complete_brokers, help="Only of this one.")
@click.option("--queue", "queue_id", type=click.IntRange(0), metavar="N", help="Only of this one.")
@cluster_options
@pass_frame
def peek_command(
    frame: Frame,
    /,
    topic: str,
    count: int,
    is_oldest: bool,
    since: int | None,
    broker: str | None,
    queue_id: int | None,
) -> None:
    """A few messages of a topic.

    The newest, the oldest, or those from some time on. They come in the order they were stored.
    Nothing is consumed. With -o json all fields and the whole value are shown.
    """
    from cometmq.admin.positions import Earliest, Time
    from cometmq.cli.message_view import show_messages

    async def work(admin: "Admin") -> "tuple[list[Message], Sequence[Outage]]":
        if is_oldest or since is not None:
            begin = Earliest() if since is None else Time(since)
            found = admin.messages.browse(
                topic, begin=begin, broker=broker, queue_id=queue_id, limit=count
            )
            return [message async for message in found], ()
        stats = await admin.topics.stats(topic)
        queues = _chosen(stats, broker, queue_id)
        return await _newest(admin, topic, queues, count), stats.outages

    messages, outages = ask(frame, work)
    show_messages(frame, messages)
    warn_of_outages(frame, outages, has_field=False)
    if not messages:
        frame.note(f"there are no such messages in topic '{topic}'")


def _chosen(
    stats: "TopicStats", broker: str | None, queue_id: int | None
) -> "Sequence[QueueStats]":
    from cometmq.errors import NotFound

    chosen = [
        queue
        for queue in stats.queues
        if broker in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
    ]
    if not chosen:
        name = f"{broker or stats.topic}/{queue_id}"
        raise NotFound("queue", name, f"it is not in '{stats.topic}'")
    return chosen


async def _newest(
    admin: "Admin", topic: str, queues: "Sequence[QueueStats]", count: int
) -> "list[Message]":
    """The newest ``count`` messages; any of them may be in any queue."""
    from cometmq.admin.positions import Offset

    found: list[Message] = []
    for queue in queues:
        if queue.message_count:
            pages = admin.messages.browse(
                topic,
                begin=Offset(queue.max_offset - count),
                broker=queue.broker_name,
                queue_id=queue.queue_id,
                limit=count,
            )
            found += [message async for message in pages]
            found.sort(key=_age)
            del found[:-count]
    return found


def _age(message: "Message") -> tuple[int, str, int]:
    """The order in which they were stored; within a millisecond a broker's log has it."""
    return message.stored_ms, message.broker_name, message.physical_offset


@click.command(
    "tail",
    cls=Command,
    examples=(
        Example(
            "What arrives from now on, and the last few before",
            "cometmq topic tail orders",
            stays_up=True,
            needs_cluster=True,
        ),
        Example(
            "The next message, for a script",
            "cometmq topic tail orders --last 1 --count 1 -o json",
            needs_cluster=True,
        ),
    ),
)
@click.argument("topic", shell_complete=complete_topics)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only with this tag, or these.")
@click.option(
    "--last",
    type=click.IntRange(0, _COUNT_MAX),
    default=5,
    show_default=True,
    metavar="N",
    help="Begin with so many that are there already.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after so many messages.")
@cluster_options
@pass_frame
def tail_command(
    frame: Frame, /, topic: str, tags: tuple[str, ...], last: int, count: int | None
) -> None:
    """Follow what arrives in a topic.

    Ctrl-C ends it. Nothing is consumed, and no group is made. With -o json each message is an
    object on a line of its own.
    """
    target = target_of(frame)
    try:
        with explained(target):
            run(_follow(frame, target, topic, tags, last, count))
    except KeyboardInterrupt:  # this is how it is ended
        frame.end_line()


async def _follow(
    frame: Frame, target: Target, topic: str, tags: tuple[str, ...], last: int, count: int | None
) -> None:
    from cometmq.cli.message_view import COLUMNS, fields_of, row_of
    from cometmq.cli.row_stream import RowStream

    stream = RowStream[Any](
        frame,
        COLUMNS,
        fields=fields_of,
        row=lambda message, is_short: row_of(message, is_short=is_short),
        widths=_WIDTHS,
        right=frozenset({"offset"}),
    )
    async with aclosing(_messages(target, topic, tags, last)) as messages:
        shown = 0
        async for message in messages:
            stream.show([message])  # one by one: who follows a topic wants to see it now
            shown += 1
            if shown == count:
                return


async def _messages(
    target: Target, topic: str, tags: tuple[str, ...], last: int
) -> AsyncGenerator[Any, None]:
    """The last ones, and then those that come, each once."""
    from cometmq.model.offsets import MessageQueue

    async with target.admin() as admin:
        stats = await admin.topics.stats(topic)
        newest = await _newest(admin, topic, stats.queues, last) if last else []
    # From where the queues ended when they were looked at: nothing is missed or shown twice.
    ends = {
        MessageQueue(topic, queue.broker_name, queue.queue_id): queue.max_offset
        for queue in stats.queues
    }
    for message in newest:
        queue = MessageQueue(topic, message.broker_name, message.queue_id)
        is_known = message.queue_offset < ends.get(queue, 0)
        if is_known and (not tags or message.tags in tags):
            yield message
    async with target.async_client() as client:
        async for arrived in client.browse(topic, since=ends, tags=tags or None, follow=True):
            yield arrived
