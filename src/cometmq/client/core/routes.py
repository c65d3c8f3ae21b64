"""What a client knows of topics and brokers: which queues there are, and who serves them."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from cometmq.model.offsets import MessageQueue
from cometmq.model.route import MASTER_ID, QueueData, TopicRoute
from cometmq.model.topic import Permission

QUEUES_MAX: Final = 65_536
"""Queues of a topic at one broker; more in a route are passed over."""


class TopicView(msgspec.Struct, frozen=True):
    """One topic: where it can be written to and where it can be read, in the agreed order."""

    topic: str
    route: TopicRoute
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    is_default: bool = False
    """It does not exist yet: this is where the default topic says it may be made."""


def view(topic: str, route: TopicRoute, *, is_default: bool = False) -> TopicView:
    """A topic by its route."""
    return TopicView(
        topic, route, _write_queues(topic, route), _read_queues(topic, route), is_default
    )


def default_view(topic: str, route: TopicRoute, queue_count: int) -> TopicView:
    """A topic that does not exist yet, by the route of the topic after which it will be made."""
    queues = tuple(_limited(queue, queue_count) for queue in route.queue_datas)
    limited = msgspec.structs.replace(route, queue_datas=queues)
    return view(topic, limited, is_default=True)


class RouteTable:
    """All topics that are in use, and the brokers in their routes."""

    def __init__(self) -> None:
        self._views: dict[str, TopicView] = {}
        self._brokers: dict[str, dict[int, str]] = {}  # by name: addresses by broker id
        self._seen: set[str] = set()  # addresses since brokers that have gone were dropped

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._views))

    def get(self, topic: str) -> TopicView | None:
        return self._views.get(topic)

    def put(self, new: TopicView) -> bool:
        """Take what is known of a topic now; says whether that differs from before."""
        old = self._views.get(new.topic)
        for broker in new.route.broker_datas:
            self._brokers[broker.broker_name] = dict(broker.broker_addrs)
            self._seen.update(broker.broker_addrs.values())
        if (
            old is not None
            and old.is_default == new.is_default
            and _sorted(old.route) == _sorted(new.route)
        ):
            return False
        self._views[new.topic] = new
        return True

    def remove(self, topic: str) -> None:
        self._views.pop(topic, None)

    def master(self, broker_name: str) -> str | None:
        """Who takes writes, locks and offsets for these queues."""
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def reader(self, broker_name: str, broker_id: int) -> tuple[int, str] | None:
        """Who serves pulls, with its id: the suggested one, else the next, else anybody."""
        addresses = self._brokers.get(broker_name, {})
        for number in (broker_id, broker_id + 1) if broker_id != MASTER_ID else (MASTER_ID,):
            if number in addresses:
                return number, addresses[number]
        return next(iter(sorted(addresses.items())), None)

    def addresses(self) -> Mapping[str, int]:
        """All brokers, with their ids."""
        return {
            address: number
            for addresses in self._brokers.values()
            for number, address in addresses.items()
        }

    def drop_gone(self) -> tuple[str, ...]:
        """Forget brokers that are in no route any more; returns the addresses that nobody has now.

        Of a broker that has moved the address heard of last counts: the route of a topic that has
        been deleted stays, and would bring the old one back.
        """
        named = {
            broker.broker_name
            for topic_view in self._views.values()
            for broker in topic_view.route.broker_datas
        }
        self._brokers = {
            name: addresses for name, addresses in self._brokers.items() if name in named
        }
        seen, self._seen = self._seen, set(self.addresses())
        return tuple(sorted(seen - self._seen))


def _write_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    if route.order_topic_conf:
        return tuple(
            MessageQueue(topic, name, number)
            for item in route.order_topic_conf.split(";")
            for name, _, count in [item.rpartition(":")]
            if name and count.isdecimal()
            for number in range(_count(count))
        )
    masters = {broker.broker_name for broker in route.broker_datas if broker.master_address}
    return tuple(
        MessageQueue(topic, queue.broker_name, number)
        for queue in sorted(route.queue_datas, key=lambda queue: queue.broker_name)
        if queue.is_writable and queue.broker_name in masters
        for number in range(min(queue.write_queue_nums, QUEUES_MAX))
    )


def _read_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    return tuple(
        sorted(
            MessageQueue(topic, queue.broker_name, number)
            for queue in route.queue_datas
            if queue.is_readable
            for number in range(min(queue.read_queue_nums, QUEUES_MAX))
        )
    )


def _count(digits: str) -> int:
    return min(int(digits[:9]), QUEUES_MAX)


def _limited(queue: QueueData, count: int) -> QueueData:
    number = min(count, queue.read_queue_nums)
    perm = queue.perm & ~Permission.INHERIT
    return QueueData(queue.broker_name, number, number, perm, queue.topic_sys_flag)


def _sorted(route: TopicRoute) -> TopicRoute:
    return msgspec.structs.replace(
        route,
        broker_datas=tuple(sorted(route.broker_datas, key=lambda broker: broker.broker_name)),
        queue_datas=tuple(sorted(route.queue_datas, key=lambda queue: queue.broker_name)),
    )
