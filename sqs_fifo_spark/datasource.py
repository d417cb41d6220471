"""The name `sqsfifo`, its schema, and what Spark builds under it.

Spark imports this module in every application of its environment, so it imports boto3, Arrow and the rest only when
a stream is really read.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sqs_fifo_spark.errors import SchemaError, UnsupportedReadError
from sqs_fifo_spark.options import parse_source_options

if TYPE_CHECKING:
    import pyarrow as pa

_ATTRIBUTE_VALUE = StructType(
    [
        StructField("dataType", StringType()),
        StructField("stringValue", StringType()),
        StructField("binaryValue", BinaryType()),
    ]
)
SCHEMA = StructType(
    [
        StructField("messageId", StringType()),
        StructField("body", StringType()),
        StructField("messageGroupId", StringType()),
        StructField("messageDeduplicationId", StringType()),
        StructField("sequenceNumber", StringType()),
        StructField("sentTimestamp", TimestampType()),
        StructField("firstReceiveTimestamp", TimestampType()),
        StructField("receiveCount", IntegerType()),
        StructField("senderId", StringType()),
        StructField("awsTraceHeader", StringType()),
        StructField("deadLetterQueueSourceArn", StringType()),
        StructField("messageAttributes", MapType(StringType(), _ATTRIBUTE_VALUE)),
    ]
)
"""The source's columns. A user's own schema may name a subset of them, in any order."""


class SqsFifoDataSource(DataSource):
    """`spark.readStream.format("sqsfifo")`: a FIFO queue of Amazon SQS as a stream, in order and replayable."""

    @classmethod
    def name(cls) -> str:
        return "sqsfifo"

    def __init__(self, options: dict[str, str]) -> None:
        """Check the options, which is all: Spark builds this at the user's `.load()`, so wrong ones are told there."""
        super().__init__(options)
        self._source_options = parse_source_options(options)

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader. Spark shows an error raised here only as one of its own, so the reader raises it."""
        from sqs_fifo_spark.reader import SqsFifoStreamReader

        return SqsFifoStreamReader(self._source_options, functools.partial(arrow_schema, schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        raise UnsupportedReadError(
            "'sqsfifo' is a stream: use spark.readStream, with trigger(availableNow=True) for what waits now."
        )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow form of the columns that `schema` names.

    Raises SchemaError, naming the column, for one that the source does not have or has with another type.
    """
    import pyarrow as pa

    from sqs_fifo_spark.message import ARROW_SCHEMA

    known = {field.name: field for field in SCHEMA}
    fields = []
    for field in schema:
        if field.name not in known:
            raise SchemaError(
                f"the schema names a column '{field.name}', which this source does not have. Its columns are "
                f"{', '.join(known)}."
            )
        expected = known[field.name].dataType
        if field.dataType != expected:
            raise SchemaError(
                f"the schema gives column '{field.name}' the type {field.dataType.simpleString()}; it is "
                f"{expected.simpleString()}. Give that type, and cast in a select."
            )
        fields.append(ARROW_SCHEMA.field(field.name).with_nullable(field.nullable))
    return pa.schema(fields)
