"""The session that ``cometmq.spark.session`` makes."""

import sys
from typing import TYPE_CHECKING

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
