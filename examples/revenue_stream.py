"""Revenue by tag as a stream: orders in, one message out for each tag and ten minutes.

The orders of a morning are sent, some of them twice. A streaming query leaves out what came twice,
adds up the rest and sends each sum to another topic when its ten minutes are over. It is stopped in
the middle of the morning and goes on from its checkpoint. At the end what it sent is compared with
a plain sum. The address of the name servers is in NAMESRV_ADDR; its topics are made anew.

export NAMESRV_ADDR=127.0.0.1:9876
python examples/revenue_stream.py
"""

import asyncio
import contextlib
import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import cometmq.spark
from cometmq import Client, NotFound
from cometmq.admin import Admin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS, REVENUE = "example-sales", "example-revenue"
TAGS = ("books", "games", "tools")
OPENING = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
ORDER_COUNT, ORDER_SECONDS = 240, 30
WINDOW_SECONDS, DAY_SECONDS = 600, 86_400


@dataclass(frozen=True)
class Order:
    id: str
    tag: str
    cents: int
    at: int  # seconds since 1970


def orders_of_a_morning() -> list[Order]:
    opening = int(OPENING.timestamp())
    return [
        Order(f"order-{n}", TAGS[n % len(TAGS)], 100 + n, opening + n * ORDER_SECONDS)
        for n in range(ORDER_COUNT)
    ]


def plain_sum(orders: list[Order]) -> Counter[tuple[str, int]]:
    """Cents by tag and by the second in which a window begins."""
    sums: Counter[tuple[str, int]] = Counter()
    for order in orders:
        sums[order.tag, order.at - order.at % WINDOW_SECONDS] += order.cents
    return sums


def revenue(spark: "SparkSession", namesrv: str) -> "DataFrame":
    """The query: a row for each window that is over, in the columns of the sink."""
    from pyspark.sql.functions import sum as total_of
    from pyspark.sql.functions import window

    orders = (
        spark.readStream.format("rocketmq")
        .option("rocketmq.namesrv.addr", namesrv)
        .option("subscribe", ORDERS)
        .option("startingOffsets", "earliest")
        .option("bodyFormat", "json")
        .option("bodySchema", "id string, tag string, cents long, at long")
        .load()
    )
    return (
        orders.selectExpr("tags", "body.id", "body.cents", "timestamp_seconds(body.at) AS at")
        .withWatermark("at", "10 minutes")  # orders may be so late, and copies of them too
        .dropDuplicatesWithinWatermark(["id"])
        .groupBy(window("at", f"{WINDOW_SECONDS} seconds"), "tags")
        .agg(total_of("cents").alias("cents"))
        .selectExpr(
            "to_json(struct(tags AS tag, unix_timestamp(window.start) AS begin, cents)) AS body",
            "concat(tags, '-', unix_timestamp(window.start)) AS keys",
            "tags",
        )
    )


def run(rows: "DataFrame", namesrv: str, checkpoint: str) -> None:
    """Run the query until it has handled what is there now."""
    query = (
        rows.writeStream.format("rocketmq")
        .option("rocketmq.namesrv.addr", namesrv)
        .option("topic", REVENUE)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def send(mq: Client, orders: list[Order]) -> None:
    """Send orders; every seventh comes once more, as if its sender had not got an answer."""
    with mq.producer("example-shop", codec=Order) as producer:
        for number, order in enumerate(orders):
            for _ in range(2 if number % 7 == 0 else 1):
                producer.send(ORDERS, order, tag=order.tag, keys=order.id)


async def make_topics(namesrv: str) -> None:
    async with Admin(namesrv) as admin:
        for topic in (ORDERS, REVENUE):
            with contextlib.suppress(NotFound):
                await admin.topics.delete(topic)
            await admin.topics.create(topic, queues=4)


def main() -> None:
    namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
    asyncio.run(make_topics(namesrv))
    spark = cometmq.spark.session("local[2]")
    rows = revenue(spark, namesrv)
    orders = orders_of_a_morning()
    # Windows end when something later comes: here that is the first order of the next day.
    tomorrow = Order("order-tomorrow", TAGS[0], 1, orders[-1].at + DAY_SECONDS)
    with Client(namesrv) as mq, tempfile.TemporaryDirectory() as checkpoint:
        send(mq, orders[: ORDER_COUNT // 2])
        run(rows, namesrv, checkpoint)
        send(mq, [*orders[ORDER_COUNT // 2 :], tomorrow])
        run(rows, namesrv, checkpoint)
        sent: list[dict[str, Any]] = [m.value for m in mq.browse(REVENUE, codec=dict)]

    found = {(window["tag"], window["begin"]): window["cents"] for window in sent}
    for begin in sorted({begin for _, begin in found}):
        told = ", ".join(f"{tag} {found[tag, begin] / 100:.2f}" for tag in TAGS)
        print(f"{datetime.fromtimestamp(begin, UTC):%H:%M}", told)
    assert len(sent) == len(found), "a sum was sent twice"
    assert found == plain_sum(orders), "the numbers differ"
    print(len(sent), "sums, each sent once, as a plain sum has them")


if __name__ == "__main__":
    main()
