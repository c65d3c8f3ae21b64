"""Positions of a stream as Spark keeps them in a checkpoint: one number for each queue.

::

    {"v": 1,
     "q":    {"orders/broker-a/0": 42, …},          the next offset of each queue
     "init": {"orders/broker-a/0": 40, …},          where each queue began
     "plan": {"tasks": 2, "cut": false}}            how the batch that ends here is divided

Spark does not keep where a stream began. When its first batch fails, the restarted stream is asked
again, and "latest" is somewhere else by then: what lies between would be lost. So every position
carries where the stream began, and a batch that begins at the beginning takes it from its end. For
the same reason the division into tasks is there: a batch that is run again must have the same ones,
also when options have changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cometmq.errors import RemoteProtocolError
from cometmq.model.offsets import MessageQueue
from cometmq.spark.planning import Range, Ranges, cut, pack

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A position of a stream, with where it began, and the plan of the batch that ends there."""

    queues: dict[MessageQueue, int]
    initial: dict[MessageQueue, int]
    task_count: int = 1
    is_cut: bool = field(default=False)
    """Whether queues are divided among tasks; otherwise each is read by one task, in order."""

    @property
    def is_beginning(self) -> bool:
        """Whether nothing was read before it."""
        return self.queues == self.initial

    def to_json(self) -> dict[str, Any]:
        return {
            "v": VERSION,
            "q": _written(self.queues),
            "init": _written(self.initial),
            "plan": {"tasks": self.task_count, "cut": self.is_cut},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> StreamOffset:
        """Raises RemoteProtocolError for what is no position, or of a later release."""
        version = content.get("v")
        if version != VERSION:
            fact = f"the checkpoint is not of this release: its version is {version}"
            raise RemoteProtocolError(fact)
        try:
            plan = content["plan"]
            return cls(
                _read(content["q"]), _read(content["init"]), int(plan["tasks"]), bool(plan["cut"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RemoteProtocolError(f"no offset in the checkpoint: {error!r}") from error


def tasks_between(start: StreamOffset, end: StreamOffset) -> list[Ranges]:
    """What each task of a batch reads; only these two positions decide."""
    found = []
    for queue, offset in end.queues.items():
        begin = None if start.is_beginning else start.queues.get(queue)
        if begin is None:  # at the beginning, and for queues that are new
            begin = end.initial.get(queue, start.queues.get(queue, offset))
        found.append(Range(queue, begin, offset))
    return cut(found, end.task_count) if end.is_cut else pack(found, end.task_count)


def queue_key(queue: MessageQueue) -> str:
    """How a queue is written in positions."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


def _written(offsets: Mapping[MessageQueue, int]) -> dict[str, int]:
    return {queue_key(queue): offsets[queue] for queue in sorted(offsets)}


def _read(content: Mapping[str, int]) -> dict[MessageQueue, int]:
    found = {}
    for key, offset in content.items():
        topic, _, rest = key.partition("/")
        broker_name, _, queue_id = rest.rpartition("/")
        found[MessageQueue(topic, broker_name, int(queue_id))] = int(offset)
    return found
