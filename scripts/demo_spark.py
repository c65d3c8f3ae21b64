"""What Spark makes of the demo's topic, in a session of its own."""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from cometmq.spark import java
from cometmq.spark.errors import SparkSetupError

SCHEMA = "number INT, customer STRING, total DOUBLE"
QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


def lack() -> str | None:
    """Why Spark cannot be used here, or None."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed (make setup installs it where it finds Java 17 or later)"
    return lack_of_java(os.environ, java.SYSTEM_FOLDER, java.bundled_home())


def lack_of_java(
    environment: Mapping[str, str], system_folder: Path, bundled: Path | None
) -> str | None:
    """What was found instead of a Java for Spark, or None."""
    try:
        java.find(environment, system_folder=system_folder, bundled=bundled)
    except SparkSetupError as error:
        return error.fact
    return None


def revenue(namesrv: str, topic: str, log: Path) -> dict[str, float]:
    """The sum of all good orders by tag; what Spark has to say beside it goes to ``log``."""
    from cometmq import spark

    with _spoken_into(log), spark.session("local[2]", conf=QUIET) as session:
        orders = (
            session.read.format("rocketmq")
            .option("rocketmq.namesrv.addr", namesrv)
            .option("subscribe", topic)
            .option("bodyFormat", "json")
            .option("bodySchema", SCHEMA)
            .load()
        )
        good = orders.selectExpr("tags", "body.total AS total").where("total > 0")
        rows = good.groupBy("tags").sum("total").collect()
    return {row[0]: row[1] for row in rows}


@contextlib.contextmanager
def _spoken_into(log: Path) -> Iterator[None]:
    """Standard error as a file: a JVM writes to the descriptor, whatever Python's stream is."""
    sys.stderr.flush()
    spoken = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except Exception as error:
        error.add_note(f"what Spark said is in {log}")
        raise
    finally:
        sys.stderr.flush()
        os.dup2(spoken, 2)
        os.close(spoken)
