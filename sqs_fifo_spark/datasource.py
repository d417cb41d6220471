"""The name `sqsfifo`, and what Spark builds under it.

Spark imports this module in every application of its environment, so it imports boto3, Arrow and the rest only when
a stream is really read.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from sqs_fifo_spark.errors import UnsupportedReadError
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.schema import SCHEMA


class SqsFifoDataSource(DataSource):
    """`spark.readStream.format("sqsfifo")`: a FIFO queue of Amazon SQS as a stream, in order and replayable."""

    def __init__(self, options: dict[str, str]) -> None:
        """Check the options, which is all. Spark builds this at `.load()`, or, with the user's schema, at the start."""
        super().__init__(options)
        self._source_options = parse_source_options(options)

    @classmethod
    def name(cls) -> str:
        return "sqsfifo"

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from sqs_fifo_spark.reader import SqsFifoStreamReader

        return SqsFifoStreamReader(self._source_options, schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        raise UnsupportedReadError(
            "'sqsfifo' is a stream: use spark.readStream, with trigger(availableNow=True) for what waits now."
        )
