"""Positions: where a message lies in the log and in its queue, and which queue that is."""

from typing import NewType

import msgspec

PhysicalOffset = NewType("PhysicalOffset", int)
"""Byte position in the whole commit log."""

QueueOffset = NewType("QueueOffset", int)
"""Index of a message inside one consume queue."""


class MessageQueue(msgspec.Struct, frozen=True, gc=False, order=True, rename="camel"):
    """One queue of one topic on one broker group.

    Ordered by topic, broker name, queue id: the order in which every client must list queues for
    all members of a group to compute the same shares.
    """

    topic: str
    broker_name: str
    queue_id: int
