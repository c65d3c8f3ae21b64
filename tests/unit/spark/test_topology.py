"""What there is to read, told by servers in a test's words, or found in files as they grow."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from cometmq.codec import bodies
from cometmq.codec.bodies.topics import TopicOffset, TopicStatsTable
from cometmq.codec.codes import RequestCode
from cometmq.codec.command import Command
from cometmq.codec.headers.offsets import OffsetResponse
from cometmq.errors import NotFound, Unreachable
from cometmq.model.offsets import MessageQueue
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.model.topic import Permission
from cometmq.spark.offsets import StreamOffset
from cometmq.spark.progress import Progress
from cometmq.spark.topology import Bounds, BrokerTopology, FileTopology, store_name
from cometmq.spark.wire import Reply
from tests.unit.spark.topology_kit import queue
from tests.unit.store.builders import TOPIC, message, open_store, put


class FakeWire:
    """A cluster with one broker, of which ``addresses`` are there, and one queue."""

    def __init__(self, addresses: dict[int, str], end: int) -> None:
        self.addresses = addresses
        self.end = end

    def ask_name_server(self, code: RequestCode, header: Any = None) -> Reply:
        assert code == RequestCode.GET_ROUTEINFO_BY_TOPIC
        data = BrokerData(cluster="c", broker_name="broker-a", broker_addrs=self.addresses)
        perm = Permission.READ | Permission.WRITE
        queues = QueueData("broker-a", read_queue_nums=1, write_queue_nums=1, perm=perm)
        return _reply(TopicRoute((data,), (queues,)))

    def ask(self, address: str, code: RequestCode, header: Any) -> Reply:
        assert address == self.addresses[min(self.addresses)]
        assert code == RequestCode.GET_TOPIC_STATS_INFO
        return _reply(TopicStatsTable({queue(0): TopicOffset(0, self.end, 0)}))

    def ask_all(self, address: str, code: RequestCode, headers: Any) -> list[Any]:
        assert list(headers) == []
        return []


def _reply(content: Any) -> Reply:
    return Reply(Command(code=0, opaque=0, flag=1), bodies.encode(content))


def _reply_with(header: Any) -> Reply:
    return Reply(Command(code=0, opaque=0, flag=1, header=header), b"")


def test_what_a_slave_says_is_not_certain_until_the_master_is_back() -> None:
    wire = FakeWire({1: "127.0.0.1:2"}, end=7)
    topology = BrokerTopology(wire)  # type: ignore[arg-type]

    lagging = topology.bounds("orders")
    wire.addresses, wire.end = {0: "127.0.0.1:1", 1: "127.0.0.1:2"}, 10
    whole = topology.bounds("orders")

    assert lagging == {queue(0): Bounds(0, 7, is_certain=False)}
    assert whole == {queue(0): Bounds(0, 10, is_certain=True)}


class Cluster:
    """Brokers of a topic with a queue each, by name; who is asked elsewhere is not there."""

    def __init__(self, **addresses: str) -> None:
        self.addresses = addresses
        self.retry_brokers: tuple[str, ...] = ()
        """Where the group's retry topic is."""
        self.told: list[tuple[str, int]] = []
        self.members: list[tuple[str, RequestCode]] = []

    def ask_name_server(self, code: RequestCode, header: Any = None) -> Reply:
        assert code == RequestCode.GET_ROUTEINFO_BY_TOPIC
        having = self.addresses if header.topic == "orders" else self.retry_brokers
        if not having:
            raise NotFound("topic", header.topic)
        brokers = [
            BrokerData(cluster="c", broker_name=name, broker_addrs={0: address})
            for name, address in self.addresses.items()
        ]
        perm = Permission.READ | Permission.WRITE
        queues = tuple(QueueData(name, 1, 1, perm=perm) for name in having)
        return _reply(TopicRoute(tuple(brokers), queues))

    def ask(
        self, address: str, code: RequestCode, header: Any = None, body: bytes = b"", **_: Any
    ) -> Reply:
        self._reach(address)
        if code == RequestCode.GET_TOPIC_STATS_INFO:
            return _reply(TopicStatsTable({}))
        if code in (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT):
            self.members.append((address, code))
            return Reply(Command(code=0, opaque=0, flag=1), b"")
        assert code == RequestCode.QUERY_CONSUMER_OFFSET
        return Reply(Command(code=22, opaque=0, flag=1), b"")

    def ask_all(self, address: str, code: RequestCode, headers: Any) -> list[Any]:
        self._reach(address)
        if code == RequestCode.UPDATE_CONSUMER_OFFSET:
            self.told += [(address, header.commit_offset) for header in headers]
            return []
        return [(header, _reply_with(OffsetResponse(10))) for header in headers]

    def _reach(self, address: str) -> None:
        if address not in self.addresses.values():
            raise Unreachable(address, "connection refused")


def published(a: int, b: int) -> StreamOffset:
    one, other = queue(0), queue(0, broker="broker-b")
    return StreamOffset({one: a, other: b}, {one: 0, other: 0})


def test_a_broker_that_was_taken_out_does_not_end_the_progress_of_others() -> None:
    wire = Cluster(**{"broker-b": "b:1"})
    progress = Progress("g", BrokerTopology(wire))  # type: ignore[arg-type]

    progress.publish(published(5, 7))
    progress.publish(published(5, 9))

    assert wire.told == [("b:1", 7), ("b:1", 9)]


def test_a_broker_that_has_another_address_is_told_there() -> None:
    """The plan of a stream looks at routes before each batch."""
    wire = Cluster(**{"broker-a": "a:1", "broker-b": "b:1"})
    topology = BrokerTopology(wire)  # type: ignore[arg-type]
    progress = Progress("g", topology)

    progress.publish(published(5, 7))
    wire.addresses["broker-a"] = "a:2"
    topology.bounds("orders")
    progress.publish(published(6, 9))

    assert wire.told == [("a:1", 5), ("b:1", 7), ("a:2", 6), ("b:1", 9)]


def test_a_member_that_lets_tools_find_the_group_leaves_it_again() -> None:
    wire = Cluster(**{"broker-a": "a:1"})
    topology = BrokerTopology(wire)  # type: ignore[arg-type]
    topology.locate({"broker-a"}, {"orders"})

    topology.introduce("g", "broker-a")

    assert wire.members == [
        ("a:1", RequestCode.HEART_BEAT),
        ("a:1", RequestCode.UNREGISTER_CLIENT),
    ]


def test_a_group_that_tools_find_already_gets_no_further_member() -> None:
    wire = Cluster(**{"broker-a": "a:1", "broker-b": "b:1"})
    wire.retry_brokers = ("broker-b",)
    topology = BrokerTopology(wire)  # type: ignore[arg-type]

    topology.introduce("g", "broker-a")
    topology.introduce("g", "broker-b")

    assert {address for address, _ in wire.members} == {"a:1"}


def test_files_that_come_later_are_found(tmp_path: Path) -> None:
    """A stream on files alone goes on when its broker begins another file of the log."""
    store = open_store(tmp_path / "store")
    put(store, message(b"first"))
    store.dispatch()
    topology = FileTopology([str(store.root)])
    one = MessageQueue(TOPIC, store_name(str(store.root)), 0)
    before = topology.bounds(TOPIC)[one]

    for number in range(200):
        put(store, message(b"x" * 200, keys=f"k{number}"))
    store.dispatch()
    after = topology.bounds(TOPIC)[one]
    store.close()

    assert before == Bounds(0, 1)
    assert after == Bounds(0, 201)
