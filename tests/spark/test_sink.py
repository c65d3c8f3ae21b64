"""Tables written to topics of a real broker: columns, order, repeats, and what is refused."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.interop import asking
from tests.spark.servers import Servers

COUNT = 5_000


@pytest.fixture
def write(spark: Any, servers: Servers) -> Callable[..., None]:
    """``write(frame, topic=…)``: append a frame."""

    def append(frame: Any, **options: str) -> None:
        writer = frame.write.format("rocketmq").mode("append")
        writer.option("rocketmq.namesrv.addr", servers.namesrv).options(**options).save()

    return append


@pytest.fixture
def new_topic(servers: Servers, topic: str) -> str:
    servers.create_topic(topic, queues=4)
    return topic


def numbers(spark: Any, count: int = COUNT, partitions: int = 2) -> Any:
    columns = ("concat('body-', id) AS body", "concat('key-', id) AS keys")
    return spark.range(0, count, 1, partitions).selectExpr("id", *columns)


def test_every_row_is_one_message(
    spark: Any, write: Callable[..., None], servers: Servers, new_topic: str
) -> None:
    write(numbers(spark).drop("id"), topic=new_topic)

    found = servers.read_all(new_topic)
    assert sorted(m.body for m in found) == sorted(b"body-%d" % n for n in range(COUNT))
    assert all(m.keys == (f"key-{m.body.decode().removeprefix('body-')}",) for m in found)
    assert len({m.message_id for m in found}) == COUNT
    assert {m.queue.queue_id for m in found} == {0, 1, 2, 3}


def test_columns_become_what_consumers_see(
    spark: Any, write: Callable[..., None], servers: Servers, new_topic: str
) -> None:
    frame = spark.sql(
        f"SELECT '{new_topic}' AS topic, CAST('hello' AS BINARY) AS body,"
        " array('k1', 'k2') AS keys, 'paid' AS tags,"
        " map('colour', 'red', 'UNIQ_KEY', 'another') AS properties,"
        " 'customer-7' AS orderingKey, CAST(NULL AS INT) AS queueId"
    )

    write(frame)

    (message,) = servers.read_all(new_topic)
    assert message.body == b"hello"
    assert message.keys == ("k1", "k2")
    assert message.tag == "paid"
    assert message.ordering_key == "customer-7"
    assert message.properties["colour"] == "red"
    assert message.message_id != "another"


def test_rows_of_an_ordering_key_stay_in_order_in_one_queue(
    spark: Any, write: Callable[..., None], servers: Servers, new_topic: str
) -> None:
    columns = ("CAST(id AS STRING) AS body", "CAST(id % 2 * 100 + id % 14 AS STRING) orderingKey")
    frame = spark.range(0, COUNT, 1, 2).selectExpr(*columns)

    write(frame, topic=new_topic)

    queues: dict[str, set[int]] = {}
    bodies: dict[str, list[int]] = {}
    for message in servers.read_all(new_topic):
        key = str(message.ordering_key)
        queues.setdefault(key, set()).add(message.queue.queue_id)
        bodies.setdefault(key, []).append(int(message.body))
    assert all(len(found) == 1 for found in queues.values())
    for found in bodies.values():
        # Each partition has half of the numbers; two tasks may interleave.
        for half in (range(COUNT // 2), range(COUNT // 2, COUNT)):
            mine = [number for number in found if number in half]
            assert mine == sorted(mine)
    assert sum(map(len, bodies.values())) == COUNT


def test_rows_go_to_the_queues_they_ask_for(
    spark: Any, write: Callable[..., None], servers: Servers, new_topic: str
) -> None:
    frame = spark.range(100).selectExpr("CAST(id AS STRING) AS body", "id % 3 AS queueId")

    write(frame, topic=new_topic)

    found = servers.read_all(new_topic)
    assert len(found) == 100
    assert all(m.queue.queue_id == int(m.body) % 3 for m in found)


def test_rows_with_a_time_are_delivered_then(
    spark: Any, write: Callable[..., None], servers: Servers, new_topic: str
) -> None:
    frame = spark.range(0, 10, 1, 1).selectExpr(
        "CAST(id AS STRING) AS body",
        "CASE WHEN id % 2 = 0 THEN current_timestamp() + INTERVAL 2 SECONDS END AS deliverAt",
    )
    began = time.time()

    write(frame, topic=new_topic)

    asking.wait_until(lambda: len(servers.read_all(new_topic)) == 10, "delayed messages")
    found = servers.read_all(new_topic)
    assert sorted(int(m.body) for m in found) == list(range(10))
    late = [m for m in found if int(m.body) % 2 == 0]
    assert all(m.stored_ms >= (began + 1) * 1000 for m in late)


def test_rows_name_their_topics(
    spark: Any, write: Callable[..., None], servers: Servers, topic: str
) -> None:
    names = [f"{topic}_{number}" for number in range(3)]
    for name in names:
        servers.create_topic(name, queues=2)
    frame = spark.range(300).selectExpr(
        "CAST(id AS STRING) AS body",
        f"CASE WHEN id % 3 < 2 THEN concat('{topic}_', id % 3) END AS topic",
    )

    write(frame, topic=names[2])

    for number, name in enumerate(names):
        bodies = sorted(int(m.body) for m in servers.read_all(name))
        assert bodies == list(range(number, 300, 3))


def test_a_job_that_is_run_again_under_its_name_writes_nothing_twice(
    spark: Any, write: Callable[..., None], servers: Servers, new_topic: str
) -> None:
    frame = numbers(spark).drop("id")

    write(frame, topic=new_topic, producerId=f"job-{new_topic}")
    write(frame, topic=new_topic, producerId=f"job-{new_topic}")
    write(frame, topic=new_topic, producerId=f"job-{new_topic}", epoch="1")

    assert len(servers.read_all(new_topic)) == 2 * COUNT


def test_a_job_without_a_name_is_a_new_one_each_time(
    spark: Any, write: Callable[..., None], servers: Servers, new_topic: str
) -> None:
    frame = numbers(spark, 10).drop("id")

    write(frame, topic=new_topic)
    write(frame, topic=new_topic)

    assert len(servers.read_all(new_topic)) == 20


def test_several_brokers_share_the_rows(
    spark: Any, own_servers: Callable[..., Servers], topic: str
) -> None:
    servers = own_servers(brokers=2)
    servers.create_topic(topic, queues=2)
    frame = numbers(spark, 10_000).drop("id")
    writer = frame.write.format("rocketmq").mode("append").option("topic", topic)

    for _ in range(2):
        options = {"rocketmq.namesrv.addr": servers.namesrv, "producerId": "two"}
        writer.options(**options).save()

    found = servers.read_all(topic)
    assert len(found) == 10_000
    assert len({m.body for m in found}) == 10_000
    places = {(m.queue.broker_name, m.queue.queue_id) for m in found}
    assert places == {(name, queue) for name in ("broker-a", "broker-b") for queue in (0, 1)}

    one = {"rocketmq.namesrv.addr": servers.namesrv, "brokers": "broker-b", "inFlight": "1"}
    frame.write.format("rocketmq").mode("append").options(**one, topic=topic).save()

    counts = Counter(m.queue.broker_name for m in servers.read_all(topic))
    assert counts["broker-b"] - sum(m.queue.broker_name == "broker-b" for m in found) == 10_000


def test_a_job_may_do_without_the_broker_telling_repeats(
    spark: Any, write: Callable[..., None], servers: Servers, new_topic: str
) -> None:
    """For brokers that are to keep nothing of producers; readers dedupe by unique key."""
    options = {"delivery": "at-least-once", "producerId": f"job-{new_topic}"}

    for _ in range(2):
        write(numbers(spark, 50).drop("id"), topic=new_topic, **options)

    found = servers.read_all(new_topic)
    assert len(found) == 100
    assert len({m.message_id for m in found}) == 50


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (["CAST(id AS STRING) AS bdy"], {}, "did you mean 'body'?"),
        (["id AS body"], {}, "column 'body' is bigint, and must be binary or string"),
        (["CAST(id AS STRING) AS body"], {"delivry": "x"}, "did you mean 'delivery'?"),
        (["CAST(id AS STRING) AS body"], {"topic": "no_such_topic"}, "no such topic"),
        (["CAST(NULL AS STRING) AS body"], {}, "the body is null or empty"),
        (["'x' AS body", "9 AS queueId"], {}, "asks for queue 9, and there are 4"),
        (["CAST(id AS STRING) AS body"], {"rocketmq.namesrv.addr": "127.0.0.1:1"}, "cannot reach"),
    ],
    ids=["column", "type", "option", "topic", "null", "queue", "name server"],
)
def test_what_cannot_be_written_is_said_clearly(
    spark: Any,
    servers: Servers,
    new_topic: str,
    columns: list[str],
    options: dict[str, str],
    words: str,
) -> None:
    writer = spark.range(2).selectExpr(*columns).write.format("rocketmq").mode("append")
    given = {"rocketmq.namesrv.addr": servers.namesrv, "topic": new_topic, **options}

    with pytest.raises(Exception) as caught:
        writer.options(**given).save()

    assert words in str(caught.value)


def test_a_topic_cannot_be_overwritten(spark: Any, servers: Servers, new_topic: str) -> None:
    writer = numbers(spark, 1).drop("id").write.format("rocketmq").mode("overwrite")

    with pytest.raises(Exception, match="cannot be overwritten"):
        writer.options(**{"rocketmq.namesrv.addr": servers.namesrv, "topic": new_topic}).save()


def test_secrets_are_not_shown(
    spark: Any, servers: Servers, new_topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither in a plan nor in an error, nor in what Spark keeps of its queries."""
    options = {
        "rocketmq.namesrv.addr": servers.namesrv,
        "secretKey": "hush-hush",
        "accessKey": "me",
    }
    frame = spark.read.format("rocketmq").options(**options, subscribe=new_topic).load()
    frame.explain(extended=True)
    writer = numbers(spark, 1).drop("id").write.format("rocketmq").mode("append")

    with pytest.raises(Exception) as caught:
        writer.options(**options, topic="no_such_topic").save()

    plan = frame._jdf.queryExecution().toString()
    assert "hush-hush" not in plan
    assert "hush-hush" not in str(caught.value)
    assert "hush-hush" not in "".join(capfd.readouterr())
