"""``cometmq request``: ask a service behind a topic, and print what it replies."""

from typing import TYPE_CHECKING, Any

import click

from cometmq.cli.client_run import with_client
from cometmq.cli.command import Command, Example
from cometmq.cli.commands.produce import message_options
from cometmq.cli.completion import complete_topics
from cometmq.cli.connection import cluster_options, target_of
from cometmq.cli.frame import Frame, pass_frame
from cometmq.logs import LogLevel

if TYPE_CHECKING:
    from cometmq.admin import Admin
    from cometmq.aio import Client
    from cometmq.client.core.message import Message


@click.command(
    "request",
    cls=Command,
    log_level=LogLevel.ERROR,  # what failed is told as its result
    examples=(
        Example(
            "Ask, and wait at most two seconds",
            "cometmq request quotes 'how much is it?' --timeout 2s || echo 'nobody replies'",
            needs_cluster=True,
        ),
    ),
)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("value")
@message_options
@cluster_options
@pass_frame
def command(frame: Frame, /, topic: str, value: str, **message: Any) -> None:
    """Send a request and print its reply.

    A consumer of the topic must reply, with 'Producer.reply' or what other clients call it. The
    reply is awaited for --timeout. Its value is printed as it is; -o json and -o yaml print all its
    fields. When nobody replies in time the exit code is 1.
    """
    from cometmq.cli.message_view import content_of, fields_of
    from cometmq.cli.row_stream import write_value

    data = value.encode("utf-8", "surrogateescape")
    timeout_ms = target_of(frame).timeout_ms
    reply = with_client(frame, lambda mq, admin: _ask(mq, admin, topic, data, message, timeout_ms))
    if frame.is_for_programs:
        frame.show_record(fields_of(reply))
        return
    body = content_of(reply).body
    write_value(frame, body if body.endswith(b"\n") else body + b"\n")


async def _ask(
    mq: "Client",
    admin: "Admin",
    topic: str,
    value: bytes,
    message: dict[str, Any],
    timeout_ms: int,
) -> "Message[bytes]":
    from cometmq.cli.queue_names import QueueNames

    named = message["queue"]
    queue = None if named is None else await QueueNames(admin, topic).find(named)
    return await mq.producer().request(
        topic,
        value,
        timeout_ms=timeout_ms,
        keys=message["keys"],
        tag=message["tag"],
        properties=message["properties"] or None,
        ordering_key=None if queue is not None else message["ordering_key"],
        queue=queue,
    )
