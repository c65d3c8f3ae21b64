"""Topics as Spark tables and streams: source and sink for PySpark, without a jar.

``format("rocketmq")`` works in every Spark session that has this package; ``session`` makes one
that is set up right::

    import cometmq.spark

    spark = cometmq.spark.session("local[2]")
    orders = spark.read.format("rocketmq").option("subscribe", "orders")

Values that are planned on the driver and carried out by executors are small and can be pickled.
Nothing here is imported by the rest of the package, and pyspark only when it is used.
"""

from typing import TYPE_CHECKING

from cometmq.spark import unheard

if TYPE_CHECKING:
    from cometmq.spark.spark_session import session

__all__ = ["session"]

unheard.listen()


if not TYPE_CHECKING:  # checkers would believe in any name

    def __getattr__(name):
        if name != "session":
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        from cometmq.spark.spark_session import session

        globals()[name] = session  # the next time nobody asks here
        return session
