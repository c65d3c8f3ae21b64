"""How the queues of a topic are divided among the members of a group; pure.

The same arithmetic as in every client, so that a group whose members ask the broker and one whose
members compute by themselves get the same shares.
"""

from collections.abc import Iterable
from typing import Final

from cometmq.codec.codes import ResponseCode
from cometmq.errors import BrokerError
from cometmq.model.offsets import MessageQueue

AVERAGE: Final = "AVG"
"""Neighbouring queues, as many for each as for the others or one more."""
CIRCLE: Final = "AVG_BY_CIRCLE"
"""One queue for each in turn."""


def allocate(
    queues: Iterable[MessageQueue], client_ids: Iterable[str], client_id: str, strategy: str
) -> list[MessageQueue]:
    """The share of one client; nothing if it is not a member.

    Raises BrokerError for a strategy that only clients have.
    """
    ordered = sorted(queues, key=lambda q: (_units(q.topic), _units(q.broker_name), q.queue_id))
    members = sorted(set(client_ids), key=_units)
    if strategy not in (AVERAGE, CIRCLE):
        remark = f"queues cannot be divided by '{strategy}' here: use {AVERAGE} or {CIRCLE}"
        raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
    if client_id not in members:
        return []
    position, count = members.index(client_id), len(members)
    if strategy == CIRCLE:
        return ordered[position::count]
    least, rest = divmod(len(ordered), count)
    begin = position * least + min(position, rest)
    return ordered[begin : begin + least + (position < rest)]


def _units(text: str) -> bytes:
    """Java compares UTF-16 code units; beyond the basic plane that is another order than ours."""
    return text.encode("utf-16-be", "surrogatepass")
