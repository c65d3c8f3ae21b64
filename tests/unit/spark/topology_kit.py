"""A cluster that is only its answers: queues and their bounds, as a test sets them."""

from collections.abc import Iterable, Mapping

from cometmq.errors import NotFound, Unreachable
from cometmq.model.offsets import MessageQueue
from cometmq.spark.planning import Range, spread
from cometmq.spark.sampling import SAMPLE_ROWS
from cometmq.spark.topology import Bounds

BROKER = "broker-a"


def queue(number: int, topic: str = "orders", broker: str = BROKER) -> MessageQueue:
    return MessageQueue(topic, broker, number)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class FakeTopology:
    """Answers from dictionaries; ``error`` is raised instead while it is set."""

    def __init__(self, bounds: Mapping[MessageQueue, tuple[int, int]]) -> None:
        self.queues = {one: Bounds(*ends) for one, ends in bounds.items()}
        self.stored: dict[MessageQueue, list[int]] = {}
        self.groups: dict[tuple[str, MessageQueue], int] = {}
        self.sizes: dict[str, int] = {}
        self.row_bytes: dict[MessageQueue, list[int]] = {}
        """The size of each message from offset 0 on, where one size of the topic will not do."""
        self.weighings = 0
        self.weighing_error: Exception | None = None
        self.error: Exception | None = None
        self.away: set[str] = set()
        """Brokers that do not answer."""
        self.commits: list[dict[MessageQueue, int]] = []
        self.introductions: list[tuple[str, str]] = []
        self.tries = 0
        """How often a group's offsets were asked for or set."""

    def grow(self, one: MessageQueue, end: int, begin: int | None = None) -> None:
        known = self.queues.get(one, Bounds(0, 0))
        self.queues[one] = Bounds(known.begin if begin is None else begin, end)

    def topics(self) -> list[str]:
        return sorted({one.topic for one in self.queues})

    def bounds(self, topic: str, *, is_patient: bool = False) -> dict[MessageQueue, Bounds]:
        if self.error is not None:
            raise self.error
        found = {one: ends for one, ends in self.queues.items() if one.topic == topic}
        if not found and not is_patient:
            raise NotFound("topic", topic)
        return found

    def at_time(self, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        found = {}
        for one, time_ms in times.items():
            stored = self.stored.get(one, [])
            earlier = sum(at < time_ms for at in stored)
            found[one] = self.queues[one].begin + earlier
        return found

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        queues = list(queues)
        self._reach(queues)
        return {one: self.groups[group, one] for one in queues if (group, one) in self.groups}

    def introduce(self, group: str, broker_name: str) -> None:
        self.introductions.append((group, broker_name))

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        self._reach(offsets)
        self.commits.append(dict(offsets))
        for one, offset in offsets.items():
            self.groups[group, one] = offset

    def _reach(self, queues: Iterable[MessageQueue]) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error
        for name in sorted({one.broker_name for one in queues} & self.away):
            raise Unreachable(name, "connection refused")

    def row_sizes(self, wanted: Range, places: int) -> list[int]:
        self.weighings += 1
        if self.weighing_error is not None:
            raise self.weighing_error
        known = self.row_bytes.get(wanted.queue)
        if known is None:
            return [self.sizes[wanted.queue.topic]] if wanted.queue.topic in self.sizes else []
        parts = [known[one.begin : one.end] for one in spread(wanted, places, SAMPLE_ROWS)]
        return [sum(part) // len(part) for part in parts]

    def locate(self, broker_names: set[str], topics: set[str]) -> None:
        pass

    def address(self, broker_name: str) -> str:
        return f"{broker_name}:10911"
