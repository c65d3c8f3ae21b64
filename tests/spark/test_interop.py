"""Java's producers and consumers with Spark between them, on our broker and on Apache's."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq import Client
from cometmq.spark.batch_plan import topology_of
from cometmq.spark.options import parse
from tests.interop import asking, client_clusters, mqadmin_text
from tests.interop.admin_shell import AdminShell
from tests.interop.cache import Cache
from tests.interop.client_clusters import NEW, OLD, OURS, Cluster
from tests.interop.client_kit import java_program
from tests.interop.feature_kit import Trial
from tests.interop.feature_shell import FeatureProgram
from tests.spark import relay
from tests.spark.servers import lag_of, messages_of

pytestmark = pytest.mark.interop

COUNT = 60
QUEUES = 4


@pytest.fixture(scope="module")
def java(cache: Cache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FeatureProgram]:
    """Java's client of Apache's newest release."""
    with java_program(cache, NEW, tmp_path_factory.mktemp("java")) as started:
        yield started


@pytest.fixture(scope="module")
def tool(cache: Cache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminShell]:
    """Java's ``mqadmin`` of Apache's newest release."""
    with AdminShell(cache, NEW, tmp_path_factory.mktemp("tool")) as started:
        yield started


@pytest.fixture(scope="module", params=[OURS, NEW])
def cluster(
    request: pytest.FixtureRequest, cache: Cache, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp(f"cluster-{request.param}")
    with client_clusters.running(cache, request.param, folder) as started:
        yield started


@pytest.fixture
def source(cluster: Cluster, java: FeatureProgram, topic: str) -> Iterator[Trial]:
    """A topic that Java has sent to: tags A and B by turns, keys, properties, large bodies too."""
    trial = Trial(cluster, java, f"{topic}_a")
    trial.create_topic(queues=QUEUES)
    trial.send(
        [
            {
                "body": f"body-{number}" + ("x" * 2000 if number % 10 == 0 else ""),
                "tags": "AB"[number % 2],
                "keys": f"key-{number}",
                "properties": {"number": str(number), "colour": "red" if number < 20 else "blue"},
                "queueId": number % QUEUES,
            }
            for number in range(COUNT)
        ],
        compressOver=1000,
    )
    # Apache's broker answers before its queues have what its log has.
    address = cluster.broker.address
    asking.wait_until(
        lambda: asking.stored_count(address, trial.topic, queues=QUEUES) == COUNT, "all in queues"
    )
    yield trial
    trial.close()


@pytest.fixture
def target(cluster: Cluster, java: FeatureProgram, topic: str) -> Iterator[Trial]:
    trial = Trial(cluster, java, f"{topic}_b")
    trial.create_topic(queues=QUEUES)
    yield trial
    trial.close()


@pytest.fixture
def table(spark: Any, cluster: Cluster, source: Trial) -> Callable[..., Any]:
    """``table(tags="A")``: the topic that Java has sent to, as a frame."""

    def load(**options: str) -> Any:
        reader = spark.read.format("rocketmq").option("rocketmq.namesrv.addr", cluster.namesrv)
        return reader.options(**{"subscribe": source.topic, **options}).load()

    return load


def test_what_java_sends_comes_through_spark_to_java(
    spark: Any, cluster: Cluster, source: Trial, target: Trial, tmp_path: Path
) -> None:
    rows = relay.frame(spark, cluster.namesrv, source.topic, 25)
    told = "map_filter(properties, (k, v) -> k IN ('number', 'colour')) AS properties"
    writer = rows.selectExpr("body", "keys", "tags", told, "queueId").writeStream.format("rocketmq")
    writer = writer.option("rocketmq.namesrv.addr", cluster.namesrv).option("topic", target.topic)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))

    relay.wait(writer.trigger(availableNow=True).start())

    consumer = target.consume(expression="A || B", orderly=True)
    sent = [one.key for one in source.sent]
    received = consumer.wait_for(sent)
    assert sorted(event["body"] for event in received) == sorted(sent)
    by_key = {event["keys"]: event for event in received}
    for number in range(COUNT):
        event = by_key[f"key-{number}"]
        assert event["tags"] == "AB"[number % 2]
        assert event["queueId"] == number % QUEUES
        assert event["properties"]["number"] == str(number)
    assert [int(e["properties"]["number"]) for e in received if e["queueId"] == 1] == list(
        range(1, COUNT, QUEUES)
    )


def test_a_table_has_what_java_has_sent(table: Callable[..., Any], source: Trial) -> None:
    rows = table(bodyFormat="string").collect()

    assert sorted(row.body for row in rows) == sorted(one.key for one in source.sent)
    assert {row.keys: row.properties["number"] for row in rows} == {
        f"key-{number}": str(number) for number in range(COUNT)
    }
    assert all(row.tags == "AB"[int(row.properties["number"]) % 2] for row in rows)


def test_brokers_choose_by_tag(table: Callable[..., Any]) -> None:
    found = {row.keys for row in table(tags="B", source="broker").select("keys").collect()}

    assert found == {f"key-{number}" for number in range(1, COUNT, 2)}


def test_brokers_choose_by_expression(table: Callable[..., Any], cluster: Cluster) -> None:
    if cluster.release == OURS:
        with pytest.raises(Exception, match=r"(?i)sql92|filter"):
            table(sql92="colour = 'red'").collect()
        return

    rows = table(sql92="colour = 'red' AND number > 5").select("keys").collect()

    assert {row.keys for row in rows} == {f"key-{number}" for number in range(6, 20)}


def test_a_job_that_is_run_again_can_be_deduplicated_by_key(
    spark: Any, cluster: Cluster, target: Trial
) -> None:
    """Our broker stores it once; what Apache's stores twice has the same unique keys."""
    frame = spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) AS body")
    options = {"rocketmq.namesrv.addr": cluster.namesrv, "topic": target.topic}

    for _ in range(2):
        writer = frame.write.format("rocketmq").mode("append").options(**options)
        writer.option("producerId", target.topic).save()

    wanted = 100 if cluster.release == OURS else 200
    address = cluster.broker.address
    asking.wait_until(
        lambda: asking.stored_count(address, target.topic, queues=QUEUES) >= wanted, "all in queues"
    )
    found = list(messages_of(cluster.namesrv, target.topic))
    assert len(found) == wanted
    assert len({(message.message_id, message.body) for message in found}) == 100


def test_times_are_exact_with_brokers_that_know_them_about(cache: Cache, tmp_path: Path) -> None:
    """Brokers of 4.9 answer with a neighbour; ten messages of a batch have the same time."""
    with client_clusters.running(cache, OLD, tmp_path) as old:
        old.create_topic("times", queues=1)
        with Client(old.namesrv) as client, client.producer("p") as producer:
            for _ in range(3):
                producer.send_many("times", [b"x"] * 10)
        address = old.broker.address
        asking.wait_until(lambda: asking.stored_count(address, "times", queues=1) == 30, "all")
        stored = [message.stored_ms for message in messages_of(old.namesrv, "times")]
        options = parse({"rocketmq.namesrv.addr": old.namesrv, "subscribe": "times"})
        topology = topology_of(options)
        (queue,) = topology.bounds("times")
        asked = sorted({0, *stored, *(at - 1 for at in stored), stored[-1] + 1, stored[-1] + 10**6})

        found = [topology.at_time({queue: time_ms})[queue] for time_ms in asked]

    assert found == [sum(at < time_ms for at in stored) for time_ms in asked], (stored, asked)


def test_progress_is_the_groups_on_any_broker(
    spark: Any, cluster: Cluster, source: Trial, topic: str, tool: AdminShell, tmp_path: Path
) -> None:
    """Tools of ours show it, and Java's."""
    reader = spark.readStream.format("rocketmq").option("rocketmq.namesrv.addr", cluster.namesrv)
    reader = reader.option("subscribe", source.topic).option("startingOffsets", "earliest")
    writer = reader.option("group", f"G_{topic}").load().writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))

    relay.wait(writer.trigger(availableNow=True).start())

    cluster.wait_until_known(f"%RETRY%G_{topic}")
    told = tool("consumerProgress", "-n", cluster.namesrv, "-g", f"G_{topic}")
    shown = mqadmin_text.fields(told)
    for queue_id in range(QUEUES):
        assert shown[f"{source.topic}/broker-a/{queue_id}.Consumer Offset"] == "15", told
        assert shown[f"{source.topic}/broker-a/{queue_id}.Diff"] == "0", told
    lag = lag_of(cluster.namesrv, f"G_{topic}", source.topic)
    offsets = {queue.queue_id: queue.offset for queue in lag.queues}
    assert offsets == dict.fromkeys(range(QUEUES), COUNT // QUEUES)
    assert lag.lag == 0
