"""Where Spark looks for ``format("rocketmq")``: every top-level module called ``pyspark_…``."""

from cometmq.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
