"""Which broker groups have queues of which topic, looked up from either side."""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from cometmq.model.route import QueueData
from cometmq.model.topic import Permission
from cometmq.nameserver.registration import Registration

UNIT_FLAG = 1
"""The topic belongs to a unit."""

UNIT_SUBSCRIPTION_FLAG = 2
"""A unit subscribes to the topic."""

READ_WRITE = Permission.READ.value | Permission.WRITE.value

_NO_QUEUES: Mapping[str, QueueData] = {}
_NO_TOPICS: AbstractSet[str] = frozenset()


def without_write(perm: int) -> int:
    """A permission less the right to write."""
    return perm & ~Permission.WRITE.value


class TopicQueues:
    """Queues by topic and broker name; a topic without queues does not exist.

    ``on_change`` is called with a topic whenever its queues have changed.
    """

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._on_change = on_change
        self._by_topic: dict[str, dict[str, QueueData]] = {}
        self._by_broker: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._by_topic)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_topic)

    def of_topic(self, topic: str) -> Mapping[str, QueueData]:
        """Queues by broker name; a live view."""
        return self._by_topic.get(topic, _NO_QUEUES)

    def of_broker(self, broker_name: str) -> AbstractSet[str]:
        """Topics with queues there; a live view."""
        return self._by_broker.get(broker_name, _NO_TOPICS)

    def flagged(self, mask: int, flags: int) -> tuple[str, ...]:
        """Topics that have of the bits ``mask`` exactly ``flags``, at the broker they came from."""
        first = ((topic, next(iter(queues.values()))) for topic, queues in self._by_topic.items())
        return tuple(topic for topic, queues in first if queues.topic_sys_flag & mask == flags)

    def put(self, topic: str, queues: QueueData) -> bool:
        """Set the queues of a topic at ``queues.broker_name``; False when they were the same."""
        by_broker = self._by_topic.setdefault(topic, {})
        if by_broker.get(queues.broker_name) == queues:
            return False
        by_broker[queues.broker_name] = queues
        self._by_broker.setdefault(queues.broker_name, set()).add(topic)
        self._on_change(topic)
        return True

    def remove(self, topic: str, broker_name: str) -> bool:
        """Forget the queues of a topic at one broker; False when there were none."""
        by_broker = self._by_topic.get(topic)
        if by_broker is None or by_broker.pop(broker_name, None) is None:
            return False
        if not by_broker:
            del self._by_topic[topic]
        topics = self._by_broker[broker_name]
        topics.remove(topic)
        if not topics:
            del self._by_broker[broker_name]
        self._on_change(topic)
        return True

    def remove_broker(self, broker_name: str) -> None:
        """Forget all queues at one broker."""
        for topic in list(self.of_broker(broker_name)):
            self.remove(topic, broker_name)

    def change_permission(self, broker_name: str, change: Callable[[int], int]) -> int:
        """Give every topic there the permission ``change(old)``; the number of topics there."""
        topics = tuple(self.of_broker(broker_name))
        for topic in topics:
            queues = self._by_topic[topic][broker_name]
            self.put(topic, msgspec.structs.replace(queues, perm=change(queues.perm)))
        return len(topics)

    def apply(
        self,
        registration: Registration,
        *,
        applies_known: bool,
        is_read_only: bool,
        removes_absent: bool,
    ) -> Iterator[bool]:
        """Take over a broker's topics, one with each item; the item says whether it changed.

        Unless it ``applies_known`` ones, topics that the broker already has stay as they are.
        """
        name = registration.broker_name
        if removes_absent:
            present = {config.topic_name for config in registration.topics.values()}
            for topic in self.of_broker(name) - present:
                yield self.remove(topic, name)
        for config in registration.topics.values():
            if applies_known or name not in self.of_topic(config.topic_name):
                queues = QueueData(
                    name,
                    config.read_queue_nums,
                    config.write_queue_nums,
                    without_write(config.perm) if is_read_only else config.perm,
                    config.topic_sys_flag,
                )
                yield self.put(config.topic_name, queues)
            else:
                yield False
