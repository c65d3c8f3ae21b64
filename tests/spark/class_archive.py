"""Makes Spark's JVM start in half the time: its classes, parsed once, kept in the machine's cache.

Java writes such an archive when a JVM that was told so ends. The one here has run what nearly all
tests run: a query, a Python worker and a stream.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.interop.cache import Cache

MAKING_SECONDS_MAX = 240
# Code compiled by C1 only is slower for long jobs, and no test has a long job.
# Spark's launcher is a JVM too, cannot use the archive, and need not say so.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Xlog:disable"
WARM_UP = """
import sys
from pyspark.sql import functions as F
import cometmq.spark
spark = cometmq.spark.session("local[2]", conf={
    "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2",
    "spark.sql.warehouse.dir": sys.argv[1]})
spark.range(100).groupBy((F.col("id") % 3).alias("k")).count().collect()
spark.range(8).select(F.udf(str)("id")).collect()
query = (spark.readStream.format("rate").load().writeStream.format("noop")
    .trigger(availableNow=True).option("checkpointLocation", sys.argv[1] + "/checkpoint").start())
query.awaitTermination(60)
process = spark.sparkContext._gateway.proc
spark.stop()
process.stdin.close()
process.wait(120)
"""


def options(cache: Cache, java_version: str, spark_version: str) -> str:
    """What to put into ``JDK_JAVA_OPTIONS`` of a process that starts Spark."""
    inputs = {"java": java_version, "spark": spark_version, "script": WARM_UP + QUICK}
    folder = cache.entry("spark-classes", inputs, _make)
    return f"{QUICK} -XX:SharedArchiveFile={folder / 'spark.jsa'}"


def _make(folder: Path) -> None:
    archive = folder / "spark.jsa"
    java_options = f"{QUICK} -XX:ArchiveClassesAtExit={archive}"
    subprocess.run(
        [sys.executable, "-c", WARM_UP, str(folder / "warm-up")],
        env={**os.environ, "JDK_JAVA_OPTIONS": java_options},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=MAKING_SECONDS_MAX,
        check=True,
    )
    if not archive.is_file():
        # Not every Java can; then it starts at its usual speed, and nobody tries again.
        archive.touch()
