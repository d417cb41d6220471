"""The source's columns as Spark's types, and the Arrow form of a user's own schema.

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
    TimestampNTZType,
    TimestampType,
)

from sqs_fifo_spark.errors import SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

    from sqs_fifo_spark.options import SourceOptions

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
"""The source's columns, unless more are asked for."""
_SNS = StructType(
    [
        StructField("topicArn", StringType()),
        StructField("messageId", StringType()),
        StructField("sequenceNumber", StringType()),
        StructField("subject", StringType()),
        StructField("timestamp", TimestampType()),
    ]
)
_PAYLOAD_ERROR = StructField("payloadError", StringType())
_QUEUE_URL = StructField("queueUrl", StringType())
EVERY_COLUMN = StructType(
    [
        *SCHEMA.fields,
        StructField("sns", _SNS),
        StructField("payloadBucket", StringType()),
        StructField("payloadKey", StringType()),
        _PAYLOAD_ERROR,
        _QUEUE_URL,
    ]
)
"""All columns. A user's own schema may name a subset of them, in any order and case."""

_NAMES = {name.lower(): name for name in EVERY_COLUMN.names}


def schema_of(options: SourceOptions) -> StructType:
    """Return the columns of a source for which the user gives no schema."""
    sns = [EVERY_COLUMN["sns"]] if options.unwrap == "sns" else []
    error = [_PAYLOAD_ERROR] if options.payload_errors == "null" else []
    queue = [_QUEUE_URL] if options.has_many_queues else []
    return StructType([*SCHEMA.fields, *sns, *error, *queue])


def known_name(name: str) -> str | None:
    """Return the source's column that a user means by `name`, in whatever case; None if there is none.

    Spark resolves names without regard to case unless `spark.sql.caseSensitive` is set, and gives that to neither side.
    """
    return _NAMES.get(name.lower())


def arrow_schema(schema: StructType) -> dict[str, pa.Field]:
    """Return the Arrow form of the columns that `schema` names, as it spells them, by the source's own names.

    Raises SchemaError, naming the column, for one that the source does not have or has with another type.
    """
    from sqs_fifo_spark.columns import ARROW_SCHEMA, QUEUE_URL

    fields: dict[str, pa.Field] = {}
    for field in schema:
        name = known_name(field.name)
        if name is None:
            raise SchemaError(
                f"the schema names a column '{field.name}', which this source does not have. Its columns are "
                f"{', '.join(EVERY_COLUMN.names)}."
            )
        if name in fields:
            raise SchemaError(
                f"the schema names column '{name}' twice, as '{fields[name].name}' and '{field.name}'. Leave one out."
            )
        expected = EVERY_COLUMN[name].dataType
        if field.dataType != expected:
            is_ntz = field.dataType == TimestampNTZType()  # TIMESTAMP means that under spark.sql.timestampType
            raise SchemaError(
                f"the schema gives column '{field.name}' the type {field.dataType.simpleString()}; it is "
                f"{'TIMESTAMP_LTZ' if is_ntz else expected.simpleString()}. Give that type, and cast in a select."
            )
        known = QUEUE_URL if name == QUEUE_URL.name else ARROW_SCHEMA.field(name)
        fields[name] = known.with_name(field.name).with_nullable(field.nullable)
    return fields
