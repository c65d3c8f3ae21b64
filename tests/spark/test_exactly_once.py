"""Nothing lost, nothing twice, order kept: streams from topic to topic in which things break."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts import tree
from tests.interop import asking
from tests.interop.broker import OurBroker
from tests.interop.processes import Process
from tests.spark import relay
from tests.spark.servers import Servers

ATTEMPTS_MAX = 6
QUEUES = 4
EACH_BY_ITSELF = "CAST(body AS STRING) AS orderingKey"
"""Messages are spread over all brokers, in no order."""


class Topics:
    """A and B, a checkpoint, and the query from one to the other."""

    def __init__(self, spark: Any, servers: Servers, name: str, folder: Path) -> None:
        self._spark = spark
        self.servers = servers
        self.source, self.target = f"{name}_a", f"{name}_b"
        self.checkpoint = folder / "checkpoint"
        for topic in (self.source, self.target):
            servers.create_topic(topic, queues=QUEUES)

    def fill(self, count: int, *, first: int = 0, queues: int = QUEUES) -> None:
        """Send so many messages to each queue of A."""
        broker = self.servers.broker.name
        relay.fill(
            self.servers.namesrv, self.source, broker, queues=queues, count=count, first=first
        )

    def start(self, *, rows: int, change: Callable[[Any], Any] = lambda x: x, **how: Any) -> Any:
        found = change(relay.frame(self._spark, self.servers.namesrv, self.source, rows))
        return relay.start(found, self.servers.namesrv, self.target, self.checkpoint, **how)

    def run_until_done(self, **how: Any) -> int:
        """Run the query, again and again if it fails; how often it failed."""
        for failures in range(ATTEMPTS_MAX):
            try:
                relay.wait(self.start(**how))
            except Exception as error:
                print(f"attempt {failures} failed: {error}")
            else:
                return failures
        pytest.fail(f"it still fails after {ATTEMPTS_MAX} attempts")

    def arrived(self) -> int:
        return sum(
            asking.stored_count(broker.address, self.target, queues=QUEUES)
            for broker in self.servers.brokers
        )

    def wait_for(self, count: int) -> None:
        asking.wait_until(lambda: self.arrived() >= count, f"{count} messages in B")

    def claim(self, count: int) -> None:
        found = relay.claim_exactly_once(self.servers.namesrv, self.source, self.target)
        assert found == count


@pytest.fixture
def topics(spark: Any, servers: Servers, topic: str, tmp_path: Path) -> Topics:
    return Topics(spark, servers, topic, tmp_path)


def test_a_stream_arrives_once_and_in_order(topics: Topics) -> None:
    topics.fill(1_000)

    assert topics.run_until_done(rows=1_500) == 0

    topics.claim(4_000)


def test_a_sink_task_that_fails_in_mid_batch_doubles_nothing(
    topics: Topics, tmp_path: Path
) -> None:
    """It fails after two thirds of its rows, when most of these are stored already."""
    topics.fill(9_000, queues=2)
    failing = failing_once(tmp_path / "fail", b"1-8500")

    query = topics.start(rows=20_000, change=failing)
    with pytest.raises(Exception, match="fails on purpose"):
        relay.wait(query)
    stored = topics.arrived()
    topics.run_until_done(rows=20_000, change=failing)

    assert 8_192 <= stored < 18_000
    topics.claim(18_000)


def failing_once(marker: Path, at: bytes) -> Callable[[Any], Any]:
    """What makes the task fail that comes to the message ``at``; once, and then never again."""
    path = str(marker)

    def fail_once(body: bytes) -> bytes:
        if bytes(body) == at and not Path(path).exists():
            Path(path).touch()
            raise RuntimeError("this task fails on purpose")
        return bytes(body)

    def change(rows: Any) -> Any:
        from pyspark.sql.functions import udf

        return rows.withColumn("body", udf(fail_once, "binary", useArrow=False)("body"))

    return change


def test_rows_that_name_their_topic_wait_for_a_broker_that_had_some_of_them(
    spark: Any, own_servers: Callable[..., Servers], topic: str, tmp_path: Path
) -> None:
    """It is away when the batch is run again, and no name server knows of it."""
    topics = Topics(spark, own_servers(brokers=2), topic, tmp_path)
    how: dict[str, Any] = {"order": EACH_BY_ITSELF, "is_topic_in_rows": True, "rows": 50_000}
    topics.fill(100)
    topics.run_until_done(**how)
    topics.fill(10_000, first=100, queues=2)
    marker = tmp_path / "failed"
    failing = failing_once(marker, b"1-9500")

    with pytest.raises(Exception, match="fails on purpose"):
        relay.wait(topics.start(change=failing, **how))
    stored = topics.arrived()
    topics.servers.brokers[1].kill()
    namesrv = topics.servers.namesrv
    asking.wait_until(
        lambda: asking.broker_names(namesrv, topics.target) == {"broker-a"}, "broker-b to be gone"
    )
    query = topics.start(change=noting(tmp_path / "began"), **how)
    asking.wait_until((tmp_path / "began").exists, "rows to reach the sink")
    topics.servers.brokers[1].start()
    relay.wait(query)

    assert marker.exists()
    assert 400 + 2_000 <= stored < 400 + 20_000
    assert relay.missing_and_doubled(namesrv, topics.source, topics.target) == ([], [])


def noting(path: Path) -> Callable[[Any], Any]:
    """What makes a file when more rows of a task were read than the sink takes at a time."""
    text = str(path)

    def note(body: bytes) -> bytes:
        if bytes(body) == b"1-5000":
            Path(text).touch()
        return bytes(body)

    def change(rows: Any) -> Any:
        from pyspark.sql.functions import udf

        return rows.withColumn("body", udf(note, "binary", useArrow=False)("body"))

    return change


def test_a_broker_that_comes_while_a_stream_runs_gets_rows_and_doubles_nothing(
    spark: Any, own_servers: Callable[..., Servers], topic: str, tmp_path: Path
) -> None:
    servers = own_servers()
    topics = Topics(spark, servers, topic, tmp_path)
    topics.fill(50)
    query = topics.start(rows=1_000, order=EACH_BY_ITSELF, is_ending=False)
    topics.wait_for(200)

    new = OurBroker(
        tmp_path / "broker-b", namesrv=servers.namesrv, settings={"brokerName": "broker-b"}
    )
    servers.brokers.append(new)
    servers.create_topic(topics.target, queues=QUEUES)
    for first in (50, 100):  # with the first of them the new broker is seen
        topics.fill(50, first=first)
        topics.wait_for(QUEUES * (first + 50))
    query.stop()

    assert asking.stored_count(new.address, topics.target, queues=QUEUES) > 0
    assert relay.missing_and_doubled(servers.namesrv, topics.source, topics.target) == ([], [])


def test_python_workers_that_are_killed_double_nothing(topics: Topics, spark: Any) -> None:
    topics.fill(3_000)
    kills = 0

    for wanted in (1_000, 5_000, 9_000):
        query = topics.start(rows=2_000)
        topics.wait_for(wanted)
        kills += kill_workers(spark.sparkContext._gateway.proc.pid)
        try:
            relay.wait(query)
        except Exception as error:
            print(f"failed after the kill: {error}")
    topics.run_until_done(rows=2_000)

    assert kills >= 3
    topics.claim(12_000)


def kill_workers(jvm: int) -> int:
    """Kill the Python processes that a JVM's daemons have forked; how many it were."""
    killed = 0
    for daemon in children_of(jvm):
        for worker in children_of(daemon):
            try:
                os.kill(worker, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed += 1
    return killed


def children_of(parent: int) -> list[int]:
    found = []
    for thread in Path(f"/proc/{parent}/task").glob("*/children"):
        try:
            found += [int(pid) for pid in thread.read_text().split()]
        except FileNotFoundError:
            continue  # the thread has ended
    return found


def test_a_driver_that_is_killed_three_times_doubles_nothing(
    topics: Topics, spark_environment: dict[str, str], tmp_path: Path
) -> None:
    topics.fill(10_000)
    arguments = (topics.servers.namesrv, topics.source, topics.target, topics.checkpoint, 12_000)
    argv = [sys.executable, "-m", "tests.spark.relay", *map(str, arguments)]
    env = {**spark_environment, "PYTHONPATH": str(tree.ROOT)}
    stored = []

    for number, wanted in enumerate((1_000, 14_000, 26_000)):
        driver = Process(f"driver-{number}", argv, folder=tmp_path, env=env)
        topics.wait_for(wanted)
        driver.kill()
        stored.append(topics.arrived())
    with Process("driver-last", argv, folder=tmp_path, env=env) as driver:
        driver.wait_until_printed("relayed", timeout_s=120)

    assert all(count < 40_000 for count in stored)
    topics.claim(40_000)


def test_a_broker_that_is_killed_and_started_again_doubles_nothing(
    spark: Any, own_servers: Callable[..., Servers], topic: str, tmp_path: Path
) -> None:
    topics = Topics(spark, own_servers(), topic, tmp_path)
    topics.fill(2_500)

    for wanted in (500, 4_000, 7_000):
        query = topics.start(rows=2_000, sendTimeout="30s")
        topics.wait_for(wanted)
        topics.servers.restart_broker()
        try:
            relay.wait(query)
        except Exception as error:
            print(f"failed after the kill: {error}")
    topics.run_until_done(rows=2_000)

    topics.claim(10_000)


def test_queues_that_are_added_while_a_stream_runs_double_nothing(topics: Topics) -> None:
    topics.fill(1_000)
    query = topics.start(rows=500, order=relay.BY_KEY)
    topics.wait_for(500)

    for name in (topics.source, topics.target):
        topics.servers.create_topic(name, queues=QUEUES + 2)
    topics.fill(500, first=1_000, queues=QUEUES + 2)
    relay.wait(query)
    topics.run_until_done(rows=500, order=relay.BY_KEY)

    topics.claim(QUEUES * 1_000 + (QUEUES + 2) * 500)
