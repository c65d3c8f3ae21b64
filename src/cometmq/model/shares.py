"""How the queues of a topic are divided among the members of a group; pure.

One arithmetic for everybody: a group whose members ask the broker and one whose members compute by
themselves, whatever language they are written in, must get the same shares.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from cometmq.model.offsets import MessageQueue

AVERAGE: Final = "AVG"
"""Neighbouring queues, as many for each as for the others or one more."""
CIRCLE: Final = "AVG_BY_CIRCLE"
"""One queue for each in turn."""

T = TypeVar("T")


def ordered_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Queues in the order in which every member must list them."""
    return sorted(queues, key=_queue_key)


def ordered_names(names: Iterable[str]) -> list[str]:
    """Client ids (or rooms) in the order in which every member must list them."""
    return sorted(names, key=code_units)


def average_share(items: Sequence[T], position: int, count: int) -> Sequence[T]:
    """What the member at ``position`` of ``count`` gets: 8 for 3 are 0-2, 3-5 and 6-7."""
    least, rest = divmod(len(items), count)
    begin = position * least + min(position, rest)
    return items[begin : begin + least + (position < rest)]


def circle_share(items: Sequence[T], position: int, count: int) -> Sequence[T]:
    """What the member at ``position`` of ``count`` gets: 8 for 3 are 0 3 6, 1 4 7 and 2 5."""
    return items[position::count]


def code_units(text: str) -> bytes:
    """What to sort text by: Java compares UTF-16 units, another order beyond the basic plane."""
    return text.encode("utf-16-be", "surrogatepass")


def _queue_key(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    return code_units(queue.topic), code_units(queue.broker_name), queue.queue_id
