"""The shares of a group whose members ask the broker for them instead of computing them."""

from collections.abc import Iterable

from cometmq.codec.codes import ResponseCode
from cometmq.errors import BrokerError
from cometmq.model import shares
from cometmq.model.offsets import MessageQueue
from cometmq.model.shares import AVERAGE, CIRCLE

__all__ = ["AVERAGE", "CIRCLE", "allocate"]


def allocate(
    queues: Iterable[MessageQueue], client_ids: Iterable[str], client_id: str, strategy: str
) -> list[MessageQueue]:
    """The share of one client; nothing if it is not a member.

    Raises BrokerError for a strategy that only clients have.
    """
    if strategy not in (AVERAGE, CIRCLE):
        remark = f"queues cannot be divided by '{strategy}' here: use {AVERAGE} or {CIRCLE}"
        raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
    ordered = shares.ordered_queues(queues)
    members = shares.ordered_names(set(client_ids))
    if client_id not in members:
        return []
    share = shares.circle_share if strategy == CIRCLE else shares.average_share
    return list(share(ordered, members.index(client_id), len(members)))
