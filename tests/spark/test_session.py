"""The session that ``cometmq.spark.session`` makes."""

import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_runs_queries_and_python_workers(spark: "SparkSession") -> None:
    rows = spark.sparkContext.parallelize(range(4), 2)

    assert set(rows.map(lambda _: sys.executable).collect()) == {sys.executable}


def test_python_workers_import_the_spark_that_is_installed(spark: "SparkSession") -> None:
    """The one in Spark's zip is the same, and compiled anew by every process."""
    import pyspark

    rows = spark.sparkContext.parallelize([1], 1)

    assert rows.map(lambda _: sys.modules["pyspark"].__file__).collect() == [pyspark.__file__]


def test_a_session_is_set_up_for_topics(spark: "SparkSession") -> None:
    conf = spark.sparkContext.getConf()

    assert conf.get("spark.python.unix.domain.socket.enabled") == "true"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "4096"
    assert conf.get("spark.driver.host") == "127.0.0.1"


BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
SHUFFLES = "spark.sql.shuffle.partitions"


@pytest.fixture
def changed(spark: "SparkSession") -> "Iterator[SparkSession]":
    """The session, with two settings that somebody has changed since it was made."""
    before = {key: spark.conf.get(key) for key in (BATCH_ROWS, SHUFFLES)}
    spark.conf.set(BATCH_ROWS, "1000")
    spark.conf.set(SHUFFLES, "5")
    yield spark
    for key, value in before.items():
        spark.conf.set(key, value)


def test_a_session_that_runs_is_returned_as_it_is(changed: "SparkSession") -> None:
    import cometmq.spark

    again = cometmq.spark.session("local[7]", app_name="another")

    assert again is changed
    assert again.conf.get(BATCH_ROWS) == "1000"
    assert again.conf.get(SHUFFLES) == "5"
    assert again.sparkContext.master == "local[2]"


def test_another_thread_gets_the_session_that_runs_as_it_is(changed: "SparkSession") -> None:
    import cometmq.spark

    got: list[SparkSession] = []
    thread = threading.Thread(target=lambda: got.append(cometmq.spark.session("local[7]")))
    thread.start()
    thread.join()

    assert got == [changed]
    assert changed.conf.get(BATCH_ROWS) == "1000"


def test_a_session_that_runs_takes_what_is_set_with_the_call(changed: "SparkSession") -> None:
    import cometmq.spark

    cometmq.spark.session("local[7]", conf={SHUFFLES: "3"})

    assert changed.conf.get(SHUFFLES) == "3"
    assert changed.conf.get(BATCH_ROWS) == "1000"
