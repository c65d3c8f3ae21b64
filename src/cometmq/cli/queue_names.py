"""Queues as people name them: ``broker-a/3``, or ``3`` where a topic is on one broker."""

from typing import TYPE_CHECKING

from cometmq.errors import Ambiguous, InvalidArgument, NotFound
from cometmq.model.offsets import MessageQueue

if TYPE_CHECKING:
    from cometmq.admin import Admin

HINT = "write BROKER/NUMBER, or the number alone where the topic is on one broker"


class QueueNames:
    """Finds the queues of one topic; its route is asked for once."""

    def __init__(self, admin: "Admin", topic: str) -> None:
        self._admin = admin
        self._topic = topic
        self._queues: dict[str, int] | None = None  # how many, by broker

    async def find(self, name: str) -> MessageQueue:
        """The queue by this name. Raises InvalidArgument, Ambiguous, NotFound."""
        broker, separator, number = name.rpartition("/")
        if not number.isascii() or not number.isdigit() or (separator and not broker):
            raise InvalidArgument("queue", f"'{name}' is no queue", HINT)
        counts = await self._counts()
        if not broker:
            if len(counts) > 1:
                raise Ambiguous("queue", tuple(f"{known}/{number}" for known in sorted(counts)))
            (broker,) = counts
        if int(number) >= counts.get(broker, 0):
            raise NotFound("queue", name, f"topic '{self._topic}' has {_there(counts)}")
        return MessageQueue(self._topic, broker, int(number))

    async def only(self) -> MessageQueue:
        """The queue of a topic that has no other. Raises InvalidArgument, NotFound."""
        first, *others = await self.all()
        if others:
            fact = f"topic '{self._topic}' has {1 + len(others)} queues"
            advice = f"say which with --queue: {_there(await self._counts())}"
            raise InvalidArgument("queue", fact, advice)
        return first

    async def all(self) -> tuple[MessageQueue, ...]:
        """All queues of the topic. Raises NotFound."""
        counts = await self._counts()
        return tuple(
            MessageQueue(self._topic, broker, number)
            for broker, count in sorted(counts.items())
            for number in range(count)
        )

    async def _counts(self) -> dict[str, int]:
        if self._queues is None:
            route = await self._admin.topics.route(self._topic)
            self._queues = {
                one.broker_name: max(one.read_queues, one.write_queues) for one in route.brokers
            }
        return self._queues


def _there(counts: dict[str, int]) -> str:
    return ", ".join(_queues(broker, count) for broker, count in sorted(counts.items()))


def _queues(broker: str, count: int) -> str:
    return f"{broker}/0" if count == 1 else f"{broker}/0 to {broker}/{count - 1}"
