"""The source's columns as Spark's types, and what a user's own schema becomes in Arrow.

Spark imports this module in every application of its environment, so it imports Arrow only when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sqs_fifo_spark.errors import SchemaError

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


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow form of the columns that `schema` names.

    Raises SchemaError, naming the column, for one that the source does not have or has with another type.
    """
    import pyarrow as pa

    from sqs_fifo_spark.columns import ARROW_SCHEMA

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
