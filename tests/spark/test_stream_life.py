"""Streams that go on: what comes while they run, what they tell, and what they do not pass over."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cometmq import Client
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.topics import DeleteTopicInBroker
from cometmq.model.offsets import MessageQueue
from tests.interop import asking
from tests.interop.broker import OurBroker
from tests.spark import relay
from tests.spark.servers import Servers, lag_of


class Running:
    """A query that runs until it is stopped, and what its batches had."""

    def __init__(self, frame: Any, checkpoint: Path) -> None:
        self.batches: list[list[str]] = []
        self._lock = threading.Lock()
        self._checkpoint = checkpoint
        writer = frame.select("body").writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(checkpoint))
        self.query = writer.trigger(processingTime="100 milliseconds").start()

    def _take(self, frame: Any, _: int) -> None:
        rows = [row.body for row in frame.collect()]
        with self._lock:
            self.batches.append(rows)

    @property
    def bodies(self) -> list[str]:
        with self._lock:
            return sorted(body for batch in self.batches for body in batch)

    def wait_for(self, *bodies: str) -> None:
        """Return once the query has read exactly these, each once."""
        asking.wait_until(self._has(len(bodies)), f"{len(bodies)} rows")
        assert self.bodies == sorted(bodies)

    def stop_between_batches(self) -> None:
        """Stop the query when Spark has noted that its batches are done: none is run again."""
        notes = self._checkpoint / "commits"
        last = str(len(self.batches) - 1)
        asking.wait_until((notes / last).exists, f"batch {last} to be done")
        self.query.stop()

    def _has(self, count: int) -> Callable[[], bool]:
        def is_so() -> bool:
            failure = self.query.exception()
            assert failure is None, failure
            return len(self.bodies) >= count

        return is_so


Start = Callable[..., Running]


@pytest.fixture
def start(spark: Any, tmp_path: Path) -> Iterator[Start]:
    """``start(servers, topic, group="g")``: a query that is stopped at the end."""
    started: list[Running] = []

    def run(servers: Servers, topic: str | None, **options: str) -> Running:
        reader = spark.readStream.format("rocketmq")
        reader = reader.option("rocketmq.namesrv.addr", servers.namesrv)
        given = {"bodyFormat": "string", "startingOffsets": "earliest"}
        if topic is not None:
            given["subscribe"] = topic
        frame = reader.options(**{**given, **options}).load()
        started.append(Running(frame, tmp_path / "checkpoint"))
        return started[-1]

    yield run
    for running in started:
        running.query.stop()


def send(
    servers: Servers, topic: str, *bodies: str, broker: str = "broker-a", queue: int = 0
) -> None:
    with Client(servers.namesrv) as client, client.producer("spark-tests") as producer:
        place = MessageQueue(topic, broker, queue)
        producer.send_many(topic, [body.encode() for body in bodies], queue=place)


def test_new_queues_and_new_brokers_take_part_in_a_running_stream(
    own_servers: Callable[..., Servers], start: Start, topic: str, tmp_path: Path
) -> None:
    servers = own_servers()
    servers.create_topic(topic, queues=1)
    send(servers, topic, "first")
    running = start(servers, topic)
    running.wait_for("first")

    servers.create_topic(topic, queues=2)
    send(servers, topic, "new-queue-1", "new-queue-2", queue=1)
    running.wait_for("first", "new-queue-1", "new-queue-2")
    second = {"brokerName": "broker-b"}
    broker = OurBroker(tmp_path / "broker-b", namesrv=servers.namesrv, settings=second)
    servers.brokers.append(broker)
    servers.create_topic(topic, queues=2)
    send(servers, topic, "new-broker", broker="broker-b", queue=1)

    running.wait_for("first", "new-queue-1", "new-queue-2", "new-broker")


def test_new_topics_of_a_pattern_take_part_in_a_running_stream(
    servers: Servers, start: Start, topic: str
) -> None:
    servers.create_topic(f"{topic}_a", queues=1)
    send(servers, f"{topic}_a", "old")
    running = start(servers, None, subscribePattern=f"{topic}_.*")
    running.wait_for("old")

    servers.create_topic(f"{topic}_b", queues=1)
    send(servers, f"{topic}_b", "new")

    running.wait_for("old", "new")


def test_a_running_stream_outlives_a_restart_of_its_only_broker(
    own_servers: Callable[..., Servers], start: Start, topic: str
) -> None:
    """Meanwhile no name server knows the topic."""
    servers = own_servers()
    servers.create_topic(topic, queues=1)
    send(servers, topic, "before")
    running = start(servers, topic)
    running.wait_for("before")

    servers.broker.kill()
    asking.wait_until(lambda: asking.route(servers.namesrv, topic) is None, "the topic to be gone")
    gone = datetime.now(UTC)
    asking.wait_until(lambda: has_looked_since(running, gone), "the stream to look for it")
    servers.broker.start()
    send(servers, topic, "after")

    running.wait_for("before", "after")


def has_looked_since(running: Running, moment: datetime) -> bool:
    """Whether a query has looked at its topics: each look is reported, with when it began."""
    failure = running.query.exception()
    assert failure is None, failure
    report = running.query.lastProgress
    return report is not None and datetime.fromisoformat(report.timestamp) > moment


def test_few_rows_wait_for_more(servers: Servers, start: Start, topic: str) -> None:
    servers.create_topic(topic, queues=1)
    running = start(servers, topic, minOffsetsPerTrigger="6", maxTriggerDelay="1h")
    send(servers, topic, "1", "2", "3", "4")
    asking.wait_until(lambda: _seen(running.query) == 4, "the query to see four messages")

    before = running.bodies
    send(servers, topic, "5", "6")

    running.wait_for("1", "2", "3", "4", "5", "6")
    assert before == []
    assert [len(batch) for batch in running.batches if batch] == [6]


def test_few_rows_do_not_wait_for_ever(servers: Servers, start: Start, topic: str) -> None:
    servers.create_topic(topic, queues=1)
    running = start(servers, topic, minOffsetsPerTrigger="1000", maxTriggerDelay="2s")

    send(servers, topic, "1", "2", "3", "4")

    running.wait_for("1", "2", "3", "4")


def _seen(query: Any) -> int:
    """How far queues go, as the last report of a query says."""
    report = query.lastProgress
    told = report.sources[0].latestOffset if report else None
    return sum(json.loads(told)["q"].values()) if told else 0


def test_messages_of_a_batch_have_no_more_bytes_than_allowed(
    spark: Any, servers: Servers, topic: str, tmp_path: Path
) -> None:
    servers.create_topic(topic, queues=2)
    for queue in range(2):
        send(servers, topic, *("x" * 10_000 for _ in range(50)), queue=queue)
    reader = spark.readStream.format("rocketmq").option("rocketmq.namesrv.addr", servers.namesrv)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    frame = reader.option("maxBytesPerTrigger", "300k").load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))

    query = writer.trigger(availableNow=True).start()
    relay.wait(query)

    rows = [report.numInputRows for report in query.recentProgress if report.numInputRows]
    assert sum(rows) == 100
    assert all(25 <= count <= 30 for count in rows[:-1])


def test_a_group_shows_how_far_a_running_stream_is(
    servers: Servers, start: Start, topic: str
) -> None:
    group = f"G_{topic}"
    servers.create_topic(topic, queues=1)
    send(servers, topic, "1", "2", "3")

    running = start(servers, topic, group=group)
    running.wait_for("1", "2", "3")

    asking.wait_until(lambda: offset_of(servers, group, topic) == 3, "the group to be at 3")
    assert lag_of(servers.namesrv, group, topic).lag == 0
    running.query.stop()
    send(servers, topic, "4", "5")
    assert lag_of(servers.namesrv, group, topic).lag == 2


def test_a_group_shows_progress_at_a_broker_that_has_moved(
    own_servers: Callable[..., Servers], start: Start, topic: str
) -> None:
    group = f"G_{topic}"
    servers = own_servers()
    servers.create_topic(topic, queues=1)
    send(servers, topic, "1")
    running = start(servers, topic, group=group)
    asking.wait_until(lambda: offset_of(servers, group, topic) == 1, "the group to be at 1")

    old = servers.broker
    old.kill()
    settings = {"brokerName": old.name}
    servers.brokers[0] = OurBroker(
        old.store_path.parent, namesrv=servers.namesrv, settings=settings
    )
    send(servers, topic, "2")

    running.wait_for("1", "2")
    asking.wait_until(lambda: offset_of(servers, group, topic) == 2, "the group to be at 2")
    assert servers.broker.address != old.address


def test_a_stream_publishes_nothing_if_told_so(servers: Servers, start: Start, topic: str) -> None:
    group = f"G_{topic}"
    servers.create_topic(topic, queues=1)
    send(servers, topic, "1")

    running = start(servers, topic, group=group, commitOffsets="false")
    running.wait_for("1")
    send(servers, topic, "2")
    running.wait_for("1", "2")

    assert offset_of(servers, group, topic) in (None, 0)


def offset_of(servers: Servers, group: str, topic: str) -> int | None:
    """How far a group is in queue 0; None when nobody knows of it."""
    found = lag_of(servers.namesrv, group, topic).queues
    return found[0].offset if found else None


def test_a_topic_that_is_made_anew_is_not_passed_over(
    servers: Servers, start: Start, topic: str
) -> None:
    """Its offsets begin again at 0: where the stream is, there is nothing, and that is said."""
    servers.create_topic(topic, queues=1)
    send(servers, topic, *"abcde")
    first = start(servers, topic)
    first.wait_for(*"abcde")
    first.stop_between_batches()
    make_anew(servers, topic)
    send(servers, topic, "f")

    failing = start(servers, topic)
    asking.wait_until(lambda: failing.query.exception() is not None, "the query to fail")
    calm = start(servers, topic, failOnDataLoss="false")
    asking.wait_until(lambda: has_planned(calm), "the calm query to look at the topic")
    send(servers, topic, "g", "h")
    calm.wait_for("g", "h")

    assert "was the topic made anew?" in str(failing.query.exception())
    assert failing.bodies == []


def has_planned(running: Running) -> bool:
    failure = running.query.exception()
    assert failure is None, failure
    return running.query.lastProgress is not None


def make_anew(servers: Servers, topic: str) -> None:
    address = servers.broker.address
    asking.ask_well(address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicInBroker(topic))
    servers.create_topic(topic, queues=1)
    asking.wait_until(
        lambda: asking.stored_count(address, topic, queues=1) == 0, f"{topic} to be empty"
    )
