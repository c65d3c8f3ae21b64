"""``cometmq message``: find a message, and what became of it."""

from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.command import Example, Group
from cometmq.cli.completion import complete_topics
from cometmq.cli.connection import ask, cluster_options
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.problems import Misuse
from cometmq.cli.times import TIME, iso_time
from cometmq.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.admin import Admin
    from cometmq.admin.message import Message
    from cometmq.admin.messages import Consumption
    from cometmq.codec.trace import TraceRecord

_TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
_TRACE_COLUMNS = ("at", "kind", "group", "client_host", "success", "cost_ms", "retries")
_TRACE_COLOURS = {"success": {"true": "green", "false": "red"}}


@click.group(
    "message",
    cls=Group,
    examples=(
        Example(
            "By a key that its sender gave it",
            "cometmq message get --key order-1 --topic orders",
            needs_cluster=True,
        ),
    ),
)
def command() -> None:
    """Find a message, and what became of it."""


@command.command(
    "get",
    examples=(
        Example(
            "By a key that its sender gave it",
            "cometmq message get --key order-1 --topic orders",
            needs_cluster=True,
        ),
        Example(
            "By its place",
            "cometmq message get --topic orders --queue 0 --offset 0",
            needs_cluster=True,
        ),
    ),
)
@click.argument("message_id", metavar="[ID]", required=False)
@click.option(
    "--topic",
    metavar="TOPIC",
    shell_complete=complete_topics,
    help="Where to look; an offset id needs none.",
)
@click.option("--key", metavar="KEY", help="All messages with this key, the latest last.")
@click.option(
    "--queue",
    metavar="QUEUE",
    help="With --offset: BROKER/NUMBER or NUMBER; needed where a topic has several.",
)
@click.option("--offset", type=click.IntRange(min=0), metavar="N", help="The one at this offset.")
@click.option("--since", "begin_ms", type=TIME, metavar="TIME", help="With --key: not before.")
@click.option("--until", "end_ms", type=TIME, metavar="TIME", help="With --key: not after.")
@click.option(
    "--count",
    type=click.IntRange(1, 64),
    default=32,
    show_default=True,
    metavar="N",
    help="With --key: the latest so many.",
)
@click.option("--raw", "is_raw", is_flag=True, help="Print the value and nothing else.")
@cluster_options
@pass_frame
def get_command(frame: Frame, /, **given: Any) -> None:
    """Print a message: by ID, by --key, or by --queue and --offset.

    An ID is what clients show (then --topic is needed), or an offset id. One message comes with
    what became of it in each group: consumed, pending, filtered (the group does not want its tag),
    broadcast (each member knows for itself) or unknown.
    """
    ways = [name for name in ("message_id", "key", "offset") if given[name] is not None]
    if len(ways) != 1:
        raise Misuse("a message is found by ID, by --key or by --offset", "give one of them")
    if ways != ["message_id"] and given["topic"] is None:
        raise Misuse("without an ID it takes a topic to look in", "name it with --topic")
    if ways == ["key"]:
        _show_all(frame, ask(frame, lambda admin: _by_key(admin, given)), is_raw=given["is_raw"])
        return
    found, groups = ask(frame, lambda admin: _one(admin, given))
    if given["is_raw"]:
        _show_raw(frame, [found])
    else:
        _show(frame, found, groups)


async def _by_key(admin: "Admin", given: dict[str, Any]) -> "tuple[Message, ...]":
    topic, key = given["topic"], given["key"]
    bounds = {name: given[name] for name in ("begin_ms", "end_ms") if given[name] is not None}
    found = await admin.messages.by_key(topic, key, count=given["count"], **bounds)
    if not found:
        raise NotFound("message", f"{topic} with key {key}", "keys are matched as a whole")
    return found


async def _one(admin: "Admin", given: dict[str, Any]) -> "tuple[Message, tuple[Consumption, ...]]":
    from cometmq.cli.queue_names import QueueNames

    topic = given["topic"]
    if given["message_id"] is not None:
        found = await _by_id(admin, given["message_id"], topic)
    else:
        names = QueueNames(admin, topic)
        named = given["queue"]
        queue = await (names.only() if named is None else names.find(named))
        offset = given["offset"]
        found = await admin.messages.at(topic, queue.broker_name, queue.queue_id, offset)
    return found, await admin.messages.consumption(found)


async def _by_id(admin: "Admin", message_id: str, topic: str | None) -> "Message":
    try:
        return await admin.messages.get(message_id, topic)
    except NotFound as error:
        if topic is not None or error.name != message_id:
            raise
        advice = "name its topic with --topic: brokers look for a client's id in one topic"
        raise NotFound("message", message_id, advice) from error


def _show(frame: Frame, found: "Message", groups: "tuple[Consumption, ...]") -> None:
    from cometmq.cli.message_view import content_of, fields_of

    states = [
        {"group": one.group, "state": one.state.value, "is_online": one.is_online} for one in groups
    ]
    fields = fields_of(found)
    if frame.is_for_programs:
        frame.show_record({**fields, "groups": states})
        return
    shown = {name: fields[name] for name in fields if not name.startswith("value")}
    shown["value_bytes"] = fields["value_bytes"]
    shown["value_problem"] = fields["value_problem"]
    shown["value"] = content_of(found).as_line()
    frame.show_record({name: value for name, value in shown.items() if value not in (None, {}, [])})
    if states:
        frame.write("\n")
        frame.show_rows(states, columns=("group", "state", "is_online"))


def _show_all(frame: Frame, found: "tuple[Message, ...]", *, is_raw: bool) -> None:
    from cometmq.cli.message_view import show_messages

    if is_raw:
        _show_raw(frame, found)
    else:
        show_messages(frame, found)


def _show_raw(frame: Frame, found: "Sequence[Message]") -> None:
    from cometmq.cli.row_stream import write_value

    for message in found:
        write_value(frame, message.body)


@command.command(
    "trace",
    examples=(
        Example(
            "What clients reported of a message",
            "cometmq message trace 7F00000100002A9F000000000000ABCD || echo 'nothing was reported'",
            needs_cluster=True,
        ),
    ),
)
@click.argument("message_id", metavar="ID")
@click.option(
    "--trace-topic",
    default=_TRACE_TOPIC,
    show_default=True,
    metavar="TOPIC",
    help="Where clients report.",
)
@cluster_options
@pass_frame
def trace_command(frame: Frame, /, message_id: str, trace_topic: str) -> None:
    """Print what clients reported of a message.

    That is when it was sent, received and consumed, and how that ended. Only clients that trace
    report (is_traced of ours, enableMsgTrace of Java's), and they do so a few seconds later;
    brokers need traceTopicEnable. ID is what clients show.
    """
    found = ask(frame, lambda admin: admin.messages.trace(message_id, topic=trace_topic))
    if not found:
        advice = "does its client trace? reports come some seconds later"
        raise NotFound("trace", message_id, advice)
    rows = [_traced(record) for record in found]
    frame.show_rows(rows, columns=_TRACE_COLUMNS, colours=_TRACE_COLOURS)


def _traced(record: "TraceRecord") -> dict[str, Any]:
    import msgspec

    told = {k: v for k, v in msgspec.structs.asdict(record).items() if v is not None}
    return {
        **told,
        "kind": record.kind.value,
        "at": iso_time(record.at_ms),
        "success": record.is_success,
        "retries": record.retry_times,
    }
