"""What there is to read, told by servers in a test's words, or found in files as they grow."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from cometmq.codec import bodies
from cometmq.codec.bodies.topics import TopicOffset, TopicStatsTable
from cometmq.codec.codes import RequestCode
from cometmq.codec.command import Command
from cometmq.model.offsets import MessageQueue
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.model.topic import Permission
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


def test_what_a_slave_says_is_not_certain_until_the_master_is_back() -> None:
    wire = FakeWire({1: "127.0.0.1:2"}, end=7)
    topology = BrokerTopology(wire)  # type: ignore[arg-type]

    lagging = topology.bounds("orders")
    wire.addresses, wire.end = {0: "127.0.0.1:1", 1: "127.0.0.1:2"}, 10
    whole = topology.bounds("orders")

    assert lagging == {queue(0): Bounds(0, 7, is_certain=False)}
    assert whole == {queue(0): Bounds(0, 10, is_certain=True)}


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
