"""``cometmq delay``: messages that wait for their time."""

from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.client_run import with_client
from cometmq.cli.command import Example, Group
from cometmq.cli.completion import complete_brokers
from cometmq.cli.confirm import confirm, destroying
from cometmq.cli.connection import ask, cluster_options
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.times import iso_time
from cometmq.errors import InvalidArgument, Refused, RemoteProtocolError, Unsupported
from cometmq.model.topic import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.admin import Admin
    from cometmq.admin.topics import QueueStats
    from cometmq.aio import Client

_LEVEL_KEY = "scheduleMessageOffset_"
_LEVELS_KEY = "messageDelayLevel"
_TIMERS_KEY = "timerCongestNum"
_COLUMNS = ("broker_name", "kind", "level", "delay", "topic", "pending")
_NO_PERMISSION = 16
_NOT_SUPPORTED = 3


@click.group(
    "delay",
    cls=Group,
    examples=(Example("How many wait where", "cometmq delay ls --all", needs_cluster=True),),
)
def command() -> None:
    """Messages that wait for their time.

    They were sent with a delay level, or with a time of their own.
    """


@command.command(
    "ls", examples=(Example("How many wait where", "cometmq delay ls --all", needs_cluster=True),)
)
@click.option("--all", "is_all", is_flag=True, help="Also levels for which nothing waits.")
@click.option("--broker", metavar="NAME", shell_complete=complete_brokers, help="Only this one.")
@cluster_options
@pass_frame
def ls_command(frame: Frame, /, is_all: bool, broker: str | None) -> None:
    """How many messages wait, by broker and level.

    Those with a time of their own are "timer". Apache's brokers tell timers by topic; ours counts
    them all together. Brokers before 5.0 have no timers.
    """
    rows = ask(frame, lambda admin: _pending(admin, broker))
    shown = [row for row in rows if is_all or row["pending"]]
    if shown or frame.is_for_programs:
        frame.show_rows(shown, columns=_COLUMNS)
    else:
        frame.note("nothing waits for its time")


async def _pending(admin: "Admin", broker: str | None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    names = [broker] if broker else sorted({b.broker_name for b in await admin.brokers.list()})
    queues = (await admin.topics.stats(SCHEDULE_TOPIC)).queues
    for name in names:
        state = await admin.brokers.state(name)
        config = await admin.brokers.config(name)
        own = [queue for queue in queues if queue.broker_name == state.broker_name]
        delays = config.values.get(_LEVELS_KEY, "").split()
        rows += pending_levels(state.broker_name, own, state.values, delays)
        rows += await _timers(admin, state.broker_name, state.values)
    return rows


def pending_levels(
    broker: str, queues: "Sequence[QueueStats]", values: dict[str, str], delays: list[str]
) -> list[dict[str, Any]]:
    """Each level has a queue; how far the broker is in it, it tells for those ever delivered."""
    ends = {queue.queue_id + 1: queue for queue in queues}
    rows = []
    for level in sorted({*ends, *range(1, len(delays) + 1)}):
        reached = values.get(f"{_LEVEL_KEY}{level}", "").partition(",")[0]
        queue = ends.get(level)
        pending = 0
        if queue is not None:
            pending = queue.max_offset - (int(reached) if reached.isdigit() else queue.min_offset)
        rows.append(
            {
                "broker_name": broker,
                "kind": "level",
                "level": level,
                "delay": delays[level - 1] if level <= len(delays) else None,
                "topic": None,
                "pending": max(0, pending),
            }
        )
    return rows


async def _timers(admin: "Admin", broker: str, values: dict[str, str]) -> list[dict[str, Any]]:
    row = {"broker_name": broker, "kind": "timer", "level": None, "delay": None}
    try:
        by_topic = await admin.brokers.pending_timers(broker)
    except Unsupported:
        count = values.get(_TIMERS_KEY, "")
        return [{**row, "topic": None, "pending": int(count)}] if count.isdigit() else []
    return [{**row, "topic": topic, "pending": count} for topic, count in by_topic.items()]


@command.command(
    "cancel",
    examples=(
        Example(
            "Take back what is not delivered yet",
            "cometmq delay cancel --yes $(cometmq produce orders later --delay 1h -o json"
            """ | sed 's/.*"recall_handle": "//; s/".*//')""",
            needs_cluster=True,
        ),
    ),
)
@click.argument("handle", metavar="RECALL_HANDLE")
@click.option(
    "--topic", metavar="TOPIC", help="The topic it was sent to.  [default: in the handle]"
)
@destroying
@cluster_options
@pass_frame
def cancel_command(
    frame: Frame, /, handle: str, topic: str | None, is_dry_run: bool, is_sure: bool
) -> None:
    """Take back a message before it is delivered.

    RECALL_HANDLE is what 'cometmq produce' printed for it (recall_handle of -o json), or
    getRecallHandle() of Java's client. What waits for a delay level cannot be taken back. Brokers
    need release 5.3.2 and the setting recallMessageEnable. They do not look whether there is such a
    message, so this succeeds for one that was taken back already.
    """
    from cometmq.codec import recall_handle

    try:
        told = recall_handle.decode(handle)
    except RemoteProtocolError as error:
        advice = "pass the recall_handle that 'cometmq produce --delay … -o json' prints"
        raise InvalidArgument("handle", error.fact, advice) from error
    place, due = topic or told.topic, iso_time(told.timestamp_ms)
    message_id = told.unique_key
    if not is_dry_run:
        what = f"take back message '{message_id}' of topic '{place}', due {due}"
        confirm(frame, what, is_sure=is_sure)
        message_id = with_client(frame, lambda mq, _: _recall(mq, place, handle))
    frame.show_record(
        {
            "message_id": message_id,
            "topic": told.topic,
            "broker_name": told.broker_name,
            "due": due,
            "cancelled": not is_dry_run,
        }
    )


async def _recall(mq: "Client", topic: str, handle: str) -> str:
    try:
        return await mq.producer().recall(topic, handle)
    except Refused as error:
        raise explained_refusal(error) from error


def explained_refusal(error: Refused) -> Exception:
    """The refusal in other words, where it is known what it means."""
    if error.response_code == _NOT_SUPPORTED:
        feature, release = "taking back messages", "this release"
        return Unsupported(feature, error.address, release, "it came with release 5.3.2")
    advice = ""
    if error.response_code == _NO_PERMISSION or "forbidden" in error.remark:
        advice = "set recallMessageEnable=true in the broker's file and restart it"
    elif "timestamp" in error.remark or "time" in error.remark:
        advice = "it was delivered already, or is just about to be"
    return Refused(error.address, error.request, error.response_code, error.remark, advice)
