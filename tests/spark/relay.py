"""A stream from topic A to topic B that is to lose nothing and double nothing, and its judge.

``python -m tests.spark.relay NAMESRV A B CHECKPOINT ROWS`` runs it as a driver of its own, which a
test can kill.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cometmq import Client, Message
from cometmq.model.offsets import MessageQueue
from cometmq.testing import History, Received, Sent
from tests.spark.servers import messages_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY_SECONDS_MAX = 120
BATCH_MESSAGES = 500

SAME_QUEUE = "queueId"
"""Each message goes to the queue that it came from."""
BY_KEY = "CAST(queueId AS STRING) AS orderingKey"
"""Messages of one queue stay together, wherever that is."""


def fill(namesrv: str, topic: str, broker: str, *, queues: int, count: int, first: int = 0) -> None:
    """Send ``count`` messages to each queue, numbered from ``first`` on."""
    with Client(namesrv) as client, client.producer("tests-spark-relay") as producer:
        for queue in range(queues):
            place = MessageQueue(topic, broker, queue)
            for begin in range(first, first + count, BATCH_MESSAGES):
                end = min(begin + BATCH_MESSAGES, first + count)
                values = [b"%d-%d" % (queue, number) for number in range(begin, end)]
                producer.send_many(topic, values, queue=place)


def frame(spark: "SparkSession", namesrv: str, topic: str, rows: int) -> "DataFrame":
    """Topic A as a stream, ``rows`` at a time."""
    reader = spark.readStream.format("rocketmq").option("rocketmq.namesrv.addr", namesrv)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", str(rows)).load()


def start(
    rows: "DataFrame",
    namesrv: str,
    topic: str,
    checkpoint: Path,
    *,
    order: str = SAME_QUEUE,
    is_topic_in_rows: bool = False,
    is_ending: bool = True,
    **options: str,
) -> Any:
    """Begin to send to topic B what there is now, or for as long as nobody stops it.

    Each message says where it comes from.
    """
    place = "map('from', concat(brokerName, '/', queueId, '/', queueOffset)) AS properties"
    columns = ["body", "keys", "tags", place, order]
    if is_topic_in_rows:
        columns.append(f"'{topic}' AS topic")
    else:
        options["topic"] = topic
    writer = rows.selectExpr(*columns).writeStream.format("rocketmq")
    writer = writer.option("rocketmq.namesrv.addr", namesrv).options(**options)
    writer = writer.option("checkpointLocation", str(checkpoint))
    how = {"availableNow": True} if is_ending else {"processingTime": "100 milliseconds"}
    return writer.trigger(**how).start()


def wait(query: Any) -> None:
    """Return when it has ended by itself. Raises what it failed with."""
    try:
        assert query.awaitTermination(QUERY_SECONDS_MAX), "the query does not end"
    finally:
        query.stop()


def claim_exactly_once(namesrv: str, source: str, target: str) -> int:
    """B has what A has, each message once and in the order of A's queues; how many there are."""
    history = History()
    for message in messages_of(namesrv, source):
        place = message.queue
        history.add(
            Sent(
                _key(message),
                source,
                place.queue_id,
                message.queue_offset,
                broker=place.broker_name,
            )
        )
    for message in messages_of(namesrv, target):
        broker, queue, offset = message.properties["from"].split("/")
        member = f"{message.queue.broker_name}/{message.queue.queue_id}"
        history.add(
            Received(_key(message), source, int(queue), int(offset), broker=broker, member=member)
        )
    history.claim()
    return len(history.receipts)


def missing_and_doubled(namesrv: str, source: str, target: str) -> tuple[list[str], list[str]]:
    """Messages of A that are not in B, and those that are there more than once."""
    sent = {_key(message) for message in messages_of(namesrv, source)}
    received = Counter(_key(message) for message in messages_of(namesrv, target))
    doubled = sorted(key for key, count in received.items() if count > 1)
    return sorted(sent - received.keys()), doubled


def _key(message: Message[bytes]) -> str:
    return message.body.decode()


def main() -> None:
    import cometmq.spark
    from tests.spark.conftest import CONF

    namesrv, source, target, checkpoint, rows = sys.argv[1:]
    spark = cometmq.spark.session("local[2]", conf=CONF)
    wait(start(frame(spark, namesrv, source, int(rows)), namesrv, target, Path(checkpoint)))
    print("relayed", flush=True)


if __name__ == "__main__":
    main()
