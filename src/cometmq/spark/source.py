"""``format("rocketmq")``: the data source that Spark finds.

Everything that can be tested without Spark is elsewhere; here is what Spark's classes ask for.
Spark starts one process to find this class and one to be told the schema, before those that plan
and read. So whatever these two do not need is imported by the method that does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

NAME = "rocketmq"


class RocketMQSource(DataSource):
    """Topics as tables and streams, and tables and streams into topics."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        from cometmq.spark.options import parse
        from cometmq.spark.schema import schema_ddl

        return schema_ddl(parse(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from cometmq.spark.batch import batch_reader
        from cometmq.spark.options import parse

        return batch_reader(parse(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from cometmq.spark.batch import checked_schema
        from cometmq.spark.options import parse
        from cometmq.spark.stream import StreamReader

        return StreamReader(parse(self.options), checked_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from cometmq.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from cometmq.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
