"""Names of a cluster for the shell's completion: topics, groups, contexts.

Whoever presses Tab must not wait: a cluster that does not answer at once has no names, and nothing
that goes wrong is shown.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import click

from cometmq.cli.connection import run, target_of
from cometmq.cli.contexts import contexts_path, read_contexts
from cometmq.cli.frame import Frame
from cometmq.errors import CometError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from cometmq.admin import Admin

TIMEOUT_MS = 1_000

Items: TypeAlias = "list[CompletionItem]"


def complete_topics(context: click.Context, _: click.Parameter, typed: str) -> Items:
    """Topics; those that are not the user's only when the user has begun to type one."""

    async def names(admin: "Admin") -> Iterable[str]:
        topics = await admin.topics.list()
        return [topic.name for topic in topics if topic.kind == "normal" or typed]

    return _matching(context, typed, names)


def complete_groups(context: click.Context, _: click.Parameter, typed: str) -> Items:
    """Groups; RocketMQ's own only when the user has begun to type one."""

    async def names(admin: "Admin") -> Iterable[str]:
        found = await admin.groups.list()
        return [group.name for group in found.groups if typed or not group.is_system]

    return _matching(context, typed, names)


def complete_brokers(context: click.Context, _: click.Parameter, typed: str) -> Items:
    """Names of brokers."""

    async def names(admin: "Admin") -> Iterable[str]:
        return sorted({broker.broker_name for broker in await admin.brokers.list()})

    return _matching(context, typed, names)


def complete_contexts(context: click.Context, _: click.Parameter, typed: str) -> Items:
    """Names of contexts."""
    frame = context.find_object(Frame)
    if frame is None:
        return []
    try:
        entries = read_contexts(contexts_path(frame.environment)).entries
    except CometError:
        return []
    return _items(entries, typed)


def _matching(
    context: click.Context, typed: str, names: "Callable[[Admin], Awaitable[Iterable[str]]]"
) -> Items:
    frame = context.find_object(Frame)
    if frame is None:
        return []

    async def work() -> Iterable[str]:
        target = replace(target_of(frame), timeout_ms=TIMEOUT_MS, is_timeout_given=True)
        async with target.admin() as admin:
            return await names(admin)

    try:
        return _items(run(work()), typed)
    except (CometError, OSError):
        return []


def _items(names: Iterable[str], typed: str) -> Items:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.startswith(typed)]
