"""What RocketMQ lets one say about a topic, as options and as arguments of the admin library."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cometmq.cli.problems import Misuse

if TYPE_CHECKING:
    from cometmq.model.topic import TopicFilterType

F = TypeVar("F", bound=Callable[..., Any])

QUEUES_MAX = 65_535
_PERMS = {"rw": 6, "r": 4, "w": 2, "none": 0}
_MESSAGE_TYPES = ("normal", "fifo", "delay", "transaction", "mixed", "unspecified")
_MESSAGE_TYPE_KEY = "message.type"
_UNIT, _UNIT_SUB = 1, 2


def settings_options(function: F) -> F:
    """What RocketMQ lets one say about a topic, by long names."""
    count = click.IntRange(1, QUEUES_MAX)
    options = (
        click.option(
            "--read-queues", type=count, metavar="N", help="Queues that consumers read from."
        ),
        click.option(
            "--write-queues", type=count, metavar="N", help="Queues that producers write to."
        ),
        click.option(
            "--perm",
            type=click.Choice(list(_PERMS)),
            metavar="PERM",
            help="What clients may do: rw, r, w or none.",
        ),
        click.option(
            "--order/--no-order",
            "is_ordered",
            default=None,
            help="Keep the number of queues fixed for clients that send in order.",
        ),
        click.option(
            "--filter-type",
            type=click.Choice(["single-tag", "multi-tag"]),
            metavar="TYPE",
            help="Whether messages have one tag or several: single-tag or multi-tag.",
        ),
        click.option(
            "--unit/--no-unit",
            "is_unit",
            default=None,
            help="A topic of one unit of a deployment in several.",
        ),
        click.option(
            "--unit-sub/--no-unit-sub",
            "has_unit_sub",
            default=None,
            help="A topic that other units subscribe to.",
        ),
        click.option(
            "--message-type",
            type=click.Choice(_MESSAGE_TYPES),
            metavar="TYPE",
            help=f"What may be sent: {', '.join(_MESSAGE_TYPES)}.  [5.0 and later]",
        ),
        click.option(
            "--attribute",
            "attributes",
            multiple=True,
            metavar="KEY=VALUE",
            help="A further attribute; may be given again.  [5.0 and later]",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def changes_of(given: dict[str, Any]) -> dict[str, Any]:
    """The options as the admin library names them, those that were given."""
    attributes = dict(map(_attribute, given["attributes"]))
    if given["message_type"]:
        attributes[_MESSAGE_TYPE_KEY] = given["message_type"].upper()
    changes = {
        "read_queues": given["read_queues"],
        "write_queues": given["write_queues"],
        "perm": None if given["perm"] is None else _PERMS[given["perm"]],
        "is_ordered": given["is_ordered"],
        "filter_type": _filter_type(given["filter_type"]),
        "attributes": attributes or None,
    }
    return {name: value for name, value in changes.items() if value is not None}


def _attribute(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals or not value:
        raise Misuse(f"'{text}' is no attribute", "write it as KEY=VALUE")
    return key.removeprefix("+"), value


def _filter_type(name: str | None) -> "TopicFilterType | None":
    if name is None:
        return None
    from cometmq.model.topic import TopicFilterType

    return TopicFilterType(name.upper().replace("-", "_"))


def flags_after(before: int, given: dict[str, Any]) -> int:
    flags = before
    for bit, wanted in ((_UNIT, given["is_unit"]), (_UNIT_SUB, given["has_unit_sub"])):
        if wanted is not None:
            flags = flags | bit if wanted else flags & ~bit
    return flags


def planned_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings that would be given to the admin library, as a person writes them."""
    plain = {
        name: getattr(value, "value", value)
        for name, value in settings.items()
        if value is not None
    }
    if "perm" in plain:
        plain["perm"] = next(name for name, bits in _PERMS.items() if bits == plain["perm"])
    return plain
