"""Batch queries on topics of a real broker, on every way to the bytes."""

from collections.abc import Callable
from typing import Any

import pytest

from cometmq import Client
from tests.spark.servers import Servers

COUNT = 300


@pytest.fixture(scope="module")
def orders(servers: Servers) -> str:
    """A topic with messages in all of its queues; every third is tagged B."""
    topic = "source_batch_orders"
    servers.create_topic(topic, queues=3)
    with Client(servers.namesrv) as client, client.producer("spark-tests") as producer:
        for number in range(COUNT):
            tag = "A" if number % 3 else "B"
            producer.send(topic, b"body-%d" % number, tag=tag, keys=f"key-{number}")
    return topic


@pytest.fixture
def table(spark: Any, servers: Servers, orders: str) -> Callable[..., Any]:
    """``table(source="log")``: the topic as a frame."""

    def load(**options: str) -> Any:
        reader = spark.read.format("rocketmq").option("rocketmq.namesrv.addr", servers.namesrv)
        return reader.options(**{"subscribe": orders, **options}).load()

    return load


@pytest.mark.parametrize("source", ["auto", "broker", "log"])
def test_all_messages_of_a_topic_are_rows_of_a_table(
    table: Callable[..., Any], orders: str, source: str
) -> None:
    rows = table(source=source).collect()

    assert sorted(row.body for row in rows) == sorted(b"body-%d" % n for n in range(COUNT))
    assert {row.topic for row in rows} == {orders}
    assert {(row.keys, bytes(row.body)) for row in rows} == {
        (f"key-{n}", b"body-%d" % n) for n in range(COUNT)
    }
    assert {row.properties["KEYS"] for row in rows} == {f"key-{n}" for n in range(COUNT)}
