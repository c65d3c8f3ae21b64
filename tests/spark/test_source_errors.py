"""What a query says that cannot be answered, and what it does not say: secrets."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cometmq import Client
from tests.spark import relay
from tests.spark.servers import Servers

SECRET = "hush-hush-secret"


@pytest.fixture(scope="module")
def small(servers: Servers) -> str:
    """A topic with one message."""
    topic = "source_errors_small"
    servers.create_topic(topic, queues=1)
    with Client(servers.namesrv) as client, client.producer("spark-tests") as producer:
        producer.send(topic, b"only")
    return topic


@pytest.fixture
def base(servers: Servers, small: str) -> dict[str, str]:
    return {"rocketmq.namesrv.addr": servers.namesrv, "subscribe": small}


@pytest.mark.parametrize("is_stream", [False, True], ids=["batch", "stream"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"maxOffsetPerTriger": "5"}, "did you mean 'maxOffsetsPerTrigger'?"),
        ({"rocketmq.namesrv.addr": "127.0.0.1:1"}, "is a name server running there"),
        ({"subscribe": "no_such_topic"}, "no such topic: 'no_such_topic'"),
        ({"subscribe": "a", "assign": "{}"}, "set exactly one of subscribe, subscribePattern"),
        ({"startingOffsets": "ealiest"}, "write earliest, latest, committed, or offsets"),
        ({"columns": "body,tag"}, "did you mean 'tags'?"),
        ({"bodyFormat": "avro"}, "read it as binary and use Spark's from_avro"),
        ({"source": "log", "storePath": "/nowhere"}, "which this machine does not see in /nowhere"),
        ({"source": "log", "storePath": "/nowhere"}, "or read with source=broker"),
    ],
    ids=[
        "option", "name server", "topic", "two topics", "place", "column", "format", "store",
        "advice",
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said_clearly(
    spark: Any,
    base: dict[str, str],
    tmp_path: Path,
    is_stream: bool,
    options: dict[str, str],
    words: str,
) -> None:
    given = {**base, "startingOffsets": "earliest", **options}
    began = time.monotonic()

    with pytest.raises(Exception) as caught:
        run(spark, given, tmp_path, is_stream)

    assert words in str(caught.value)
    assert time.monotonic() - began < 30


def run(spark: Any, options: dict[str, str], folder: Path, is_stream: bool) -> None:
    if not is_stream:
        spark.read.format("rocketmq").options(**options).load().collect()
        return
    frame = spark.readStream.format("rocketmq").options(**options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "c"))
    relay.wait(writer.trigger(availableNow=True).start())


def test_an_offset_that_no_message_has_reached_is_refused(
    spark: Any, servers: Servers, base: dict[str, str], small: str
) -> None:
    beyond = {"startingOffsets": json.dumps({small: {servers.broker.name: {"0": 7}}})}

    with pytest.raises(Exception, match="offset 7 is behind the end of topic"):
        spark.read.format("rocketmq").options(**base, **beyond).load().collect()


@pytest.fixture
def events(spark: Any) -> Callable[[], str]:
    """What Spark has noted of its queries so far: its UI shows this and nothing else."""

    def read() -> str:
        folder = Path(spark.sparkContext.getConf().get("spark.eventLog.dir").removeprefix("file:"))
        texts = [path.read_text() for path in folder.rglob("*") if path.is_file()]
        return "".join(texts)

    return read


def test_secrets_are_neither_in_plans_nor_in_what_the_ui_shows(
    spark: Any,
    base: dict[str, str],
    small: str,
    events: Callable[[], str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    secrets = {
        "accessKey": "me",
        "secretKey": SECRET,
        "securityToken": f"{SECRET}-token",
        "tls.keyPassword": f"{SECRET}-password",
    }
    target = {"rocketmq.namesrv.addr": base["rocketmq.namesrv.addr"], "topic": small, **secrets}

    frame = spark.read.format("rocketmq").options(**base, **secrets).load()
    frame.explain("extended")
    frame.explain("formatted")
    frame.createOrReplaceTempView("with_secrets")
    spark.sql("DESCRIBE EXTENDED with_secrets").show(100, truncate=False)
    assert spark.sql("SELECT count(*) FROM with_secrets").first()[0] >= 1
    frame.select("body").write.format("rocketmq").mode("append").options(**target).save()
    stream = spark.readStream.format("rocketmq").options(**base, **secrets).load()
    writer = stream.select("body").writeStream.format("rocketmq").options(**target)
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    started = query.start()
    relay.wait(started)
    started.explain(extended=True)
    with pytest.raises(Exception) as caught:
        run(spark, {**base, **secrets, "subscribe": "no_such_topic"}, tmp_path, is_stream=False)

    noted = events()
    plan = frame._jdf.queryExecution().toString()
    kept = "".join(
        p.read_text(errors="replace") for p in (tmp_path / "c").rglob("*") if p.is_file()
    )
    assert "BatchScan rocketmq" in noted
    for text in (noted, plan, kept, str(caught.value), "".join(capfd.readouterr())):
        assert SECRET not in text
