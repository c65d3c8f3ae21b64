"""``cometmq topic create`` and ``edit``."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cometmq.cli.command import Command, Example
from cometmq.cli.commands.topic_looking import broker_record, shown_broker
from cometmq.cli.completion import complete_brokers, complete_topics
from cometmq.cli.confirm import confirm, destroying, dry_run_option
from cometmq.cli.connection import ask, cluster_options
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.problems import Misuse
from cometmq.cli.sizes import counted_messages
from cometmq.cli.topic_settings import (
    QUEUES_MAX,
    changes_of,
    flags_after,
    planned_settings,
    settings_options,
)
from cometmq.client.core.checks import check_topic
from cometmq.errors import AlreadyExists

if TYPE_CHECKING:
    from cometmq.admin import Admin
    from cometmq.admin.topics import TopicOnBroker

F = TypeVar("F", bound=Callable[..., Any])

_COLUMNS = (
    *("topic", "broker_name", "read_queues", "write_queues", "perm", "is_ordered"),
    *("filter_type", "sys_flag", "attributes"),
)


def _place_options(function: F) -> F:
    """Which brokers are meant."""
    broker = click.option(
        "--broker",
        metavar="NAME",
        shell_complete=complete_brokers,
        help="Only this broker, by name or address.",
    )
    cluster = click.option("--cluster", metavar="NAME", help="Only brokers of this cluster.")
    return cluster(broker(function))


@click.command(
    "create",
    cls=Command,
    examples=(
        Example("With eight queues", "cometmq topic create payments", needs_cluster=True),
        Example(
            "With the settings given",
            "cometmq topic create refunds --queues 4 --message-type fifo --order",
            needs_cluster=True,
        ),
        Example(
            "In a script",
            "cometmq topic create payments --if-missing",
            needs_cluster=True,
        ),
    ),
)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "--queues",
    type=click.IntRange(1, QUEUES_MAX),
    default=8,
    show_default=True,
    metavar="N",
    help="Queues on each broker, for reading and writing.",
)
@settings_options
@_place_options
@click.option("--if-missing", is_flag=True, help="Leave a topic that is there as it is.")
@dry_run_option
@cluster_options
@pass_frame
def create_command(
    frame: Frame,
    /,
    topics: tuple[str, ...],
    queues: int,
    cluster: str | None,
    broker: str | None,
    if_missing: bool,
    is_dry_run: bool,
    **given: Any,
) -> None:
    """Make topics.

    On all brokers of the cluster, or on some. Clients can use a topic as soon as this returns. A
    topic that is there already is an error, unless --if-missing is given.
    """
    for topic in topics:
        check_topic(topic)
    changes = changes_of(given)
    settings: dict[str, Any] = {
        "read_queues": changes.pop("read_queues", queues),
        "write_queues": changes.pop("write_queues", queues),
        "sys_flag": flags_after(0, given),
        **changes,
        "cluster": cluster,
        "broker": broker,
    }

    async def work(admin: "Admin") -> "list[tuple[str, TopicOnBroker]]":
        return [
            (topic, place)
            for topic in topics
            for place in await _create(
                admin, topic, if_missing, {**settings, "is_dry_run": is_dry_run}
            )
        ]

    done = ask(frame, work)
    if is_dry_run:
        _show_plan(frame, "create", topics, settings)
    else:
        _show_brokers(frame, done)


async def _create(
    admin: "Admin", topic: str, if_missing: bool, settings: dict[str, Any]
) -> "Sequence[TopicOnBroker]":
    try:
        return await admin.topics.create(topic, **settings)
    except AlreadyExists as error:
        if if_missing:
            return await admin.topics.configs(topic)
        advice = f"change it with 'cometmq topic edit {topic}', or add --if-missing"
        raise AlreadyExists("topic", topic, advice) from error


@click.command(
    "edit",
    cls=Command,
    examples=(
        Example(
            "More queues",
            "cometmq topic edit orders --write-queues 16 --read-queues 16",
            needs_cluster=True,
        ),
        Example(
            "Nobody may send", "cometmq topic edit orders --perm r --dry-run", needs_cluster=True
        ),
    ),
)
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--queues",
    type=click.IntRange(1, QUEUES_MAX),
    metavar="N",
    help="Queues on each broker, for reading and writing.",
)
@settings_options
@click.option(
    "--remove-attribute", "removed", multiple=True, metavar="KEY", help="An attribute to remove."
)
@_place_options
@destroying
@cluster_options
@pass_frame
def edit_command(
    frame: Frame,
    /,
    topic: str,
    queues: int | None,
    removed: tuple[str, ...],
    cluster: str | None,
    broker: str | None,
    is_dry_run: bool,
    is_sure: bool,
    **given: Any,
) -> None:
    """Change settings of a topic.

    What is named is changed and nothing else, on all brokers that have it or on some. To have fewer
    queues without losing messages, lower --write-queues first, and --read-queues when consumers are
    through with the rest: it asks before messages get out of reach, unless --yes is given.
    """
    changes = changes_of(given)
    if queues is not None:
        changes = {"read_queues": queues, "write_queues": queues, **changes}
    attributes = {**changes.pop("attributes", {}), **dict.fromkeys(removed)}
    if attributes:
        changes["attributes"] = attributes
    has_flags = given["is_unit"] is not None or given["has_unit_sub"] is not None
    if not changes and not has_flags:
        raise Misuse(f"nothing is to be changed of topic '{topic}'", "name a setting, see --help")

    where: dict[str, Any] = {"cluster": cluster, "broker": broker}

    async def plan(admin: "Admin") -> int:
        before = await admin.topics.configs(topic)
        if has_flags:
            changes["sys_flag"] = flags_after(before[0].sys_flag if before else 0, given)
        after = await admin.topics.update(topic, **where, **changes, is_dry_run=True)
        return await _out_of_reach(admin, topic, before, after)

    lost = ask(frame, plan)
    if lost and not is_sure:
        fact = f"topic '{topic}' has {counted_messages(lost)} in queues"
        frame.note(f"{fact} that nobody would read from any more")
    if is_dry_run:
        _show_plan(frame, "edit", [topic], {**changes, **where})
        return
    if lost:
        what = f"take queues with {counted_messages(lost)} away from readers"
        confirm(frame, what, is_sure=is_sure)
    done = ask(frame, lambda admin: admin.topics.update(topic, **where, **changes))
    _show_brokers(frame, [(topic, place) for place in done])


async def _out_of_reach(
    admin: "Admin",
    topic: str,
    before: "Sequence[TopicOnBroker]",
    after: "Sequence[TopicOnBroker]",
) -> int:
    """How many messages lie in queues that are read from before and not after."""
    read = {place.broker_name: place.read_queues for place in before}
    fewer = {
        place.broker_name: range(place.read_queues, read.get(place.broker_name, 0))
        for place in after
    }
    if not any(fewer.values()):
        return 0
    return sum(
        queue.message_count
        for queue in (await admin.topics.stats(topic)).queues
        if queue.queue_id in fewer.get(queue.broker_name, ())
    )


def _show_brokers(frame: Frame, done: "Sequence[tuple[str, TopicOnBroker]]") -> None:
    rows = [{"topic": topic, **broker_record(place)} for topic, place in done]
    if not frame.is_for_programs:
        rows = [shown_broker(row) for row in rows]
    frame.show_rows(rows, columns=_COLUMNS)


def _show_plan(frame: Frame, verb: str, topics: Sequence[str], settings: dict[str, Any]) -> None:
    plain = planned_settings(settings)
    frame.show_record({"action": verb, "topics": list(topics), "settings": plain, "is_done": False})
