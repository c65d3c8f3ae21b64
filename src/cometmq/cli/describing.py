"""What the admin library answers, as records for output: field names here do not change.

Times are ISO 8601 for programs and short local ones for people; the field's name is the same.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cometmq.cli.frame import Frame
from cometmq.cli.times import iso_time, local_time

if TYPE_CHECKING:
    from cometmq.admin.servers import Outage

_PERMISSIONS = {0: "none", 2: "w", 4: "r", 6: "rw"}
_INHERIT = 1


def perm_name(perm: int) -> str:
    """RocketMQ's number as letters: 6 is ``rw``; the bit for inheritance is not shown."""
    return _PERMISSIONS.get(perm & ~_INHERIT, str(perm))


def time_field(frame: Frame, ms: int | None) -> str | None:
    """A time in the form that is wanted; None where there is none."""
    return iso_time(ms) if frame.is_for_programs else local_time(ms)


def attributes_text(attributes: Mapping[str, str] | None) -> str:
    """Attributes on one line of a table."""
    return " ".join(f"{key}={value}" for key, value in (attributes or {}).items())


def outage_rows(outages: "Iterable[Outage]") -> list[dict[str, Any]]:
    """Brokers that could not be asked, as a field of a result."""
    return [
        {"broker_name": out.broker_name, "address": out.address, "reason": out.reason}
        for out in outages
    ]


def warn_of_outages(frame: Frame, outages: "Iterable[Outage]", *, has_field: bool = True) -> None:
    """Say what is missing in a result, unless the result itself says so.

    A result for programs does, in ``outages``; one that is a list of things ``has_field`` for them
    only where its things have it.
    """
    if frame.is_for_programs and has_field:
        return
    for out in outages:
        frame.warn(
            f"{out.broker_name} at {out.address} does not answer ({out.reason}): "
            "what it holds is missing here"
        )
