"""A batch query and a stream as on one machine, run on whatever master is named.

``python -m tests.spark.cluster_job MASTER NAMESRV A B CHECKPOINT`` prints what it found as JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

import cometmq.spark
from tests.spark import relay

CONF = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "600m",
    # Otherwise the executor that comes first does it all; a standalone cluster counts what it
    # waits for by the cores that were asked for, and waits for none if nobody asked.
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "100s",
}
ROWS = 1_500


def where_tasks_run(_: Any) -> Any:
    """On an executor: its own folder, and where it has this package from."""
    yield str(Path.cwd()), str(cometmq.__file__)


def main() -> None:
    master, namesrv, source, target, checkpoint = sys.argv[1:]
    spark = cometmq.spark.session(master, conf=CONF)
    reader = spark.read.format("rocketmq").option("rocketmq.namesrv.addr", namesrv)
    table = reader.option("subscribe", source).option("minPartitions", "4").load()
    places = table.select("queueId").rdd.mapPartitions(where_tasks_run).collect()
    bodies = sorted(bytes(row.body).decode() for row in table.select("body").collect())
    stream = relay.frame(spark, namesrv, source, ROWS)
    relay.wait(relay.start(stream, namesrv, target, Path(checkpoint)))
    executors = sorted({place for place, _ in places})
    packages = sorted({package for _, package in places})
    found = {"executors": executors, "packages": packages, "bodies": bodies}
    print(f"found {json.dumps(found)}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
