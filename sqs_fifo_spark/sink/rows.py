"""The rows that a sink takes, as Spark's types, and their form in Arrow.

A row is a message: `body` and `messageGroupId`, perhaps `messageDeduplicationId`, `messageAttributes` and
`awsTraceHeader`, and the queue that it goes to, `queueUrl`. The other columns of the source are ignored, so that a
source's rows can be written as they are.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, MapType, Row, StringType, StructField, StructType

from sqs_fifo_spark.columns import ARROW_SCHEMA
from sqs_fifo_spark.errors import OptionError, SchemaError
from sqs_fifo_spark.options import SinkOptions
from sqs_fifo_spark.schema import EVERY_COLUMN, SCHEMA, known_name
from sqs_fifo_spark.sink.outgoing import QUEUE_COLUMN

_ATTRIBUTES = SCHEMA["messageAttributes"].dataType
_PLAIN_ATTRIBUTES = MapType(StringType(), StringType())
_SINK_COLUMNS: dict[str, tuple[type, ...]] = {
    "body": (StringType, BinaryType),
    "messageGroupId": (StringType,),
    "messageDeduplicationId": (StringType,),
    "messageAttributes": (MapType,),
    "awsTraceHeader": (StringType,),
    QUEUE_COLUMN: (StringType,),
}


def sink_schema(schema: StructType) -> StructType:
    """Return `schema` with the sink's own names for its columns, which rows may have in any case."""
    fields = [StructField(_own_name(each.name), each.dataType, each.nullable) for each in schema]
    return StructType(fields)


def with_known_names(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return `batch` with the names of its `sink_schema`."""
    return pa.RecordBatch.from_arrays(batch.columns, names=[_own_name(each) for each in batch.schema.names])


def _own_name(name: str) -> str:
    return QUEUE_COLUMN if name.lower() == QUEUE_COLUMN.lower() else known_name(name) or name


def uses_deduplication_column(schema: StructType, options: SinkOptions) -> bool:
    """Check that rows can be sent; return whether their deduplication ids are used, rather than bodies.

    `schema` is a `sink_schema`. Raises SchemaError, or OptionError where an option would mend it.
    """
    names = schema.fieldNames()
    known = [*EVERY_COLUMN.fieldNames(), QUEUE_COLUMN]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise SchemaError(
                f"the rows have a column '{name}', which the sink does not know. "
                + (f"Did you mean '{near[0]}'? " if near else "")
                + f"It sends {', '.join(_SINK_COLUMNS)}, and ignores the other columns of the source: drop what is not "
                "meant to be sent."
            )
        if names.count(name) > 1:
            raise SchemaError(
                f"the rows have {names.count(name)} columns called '{name}', in whatever case. Drop or rename the "
                "others."
            )
    for field in schema:
        _require_type(field)
    if "body" not in names:
        raise SchemaError("the rows have no column 'body', which is what is sent. Select it under this name.")
    if "messageGroupId" not in names and options.message_group_id is None:
        raise SchemaError(
            "the rows have no column 'messageGroupId'. Select one, or set the option messageGroupId, the group of all "
            "rows."
        )
    has_column = "messageDeduplicationId" in names
    if options.deduplication == "column" and not has_column:
        raise OptionError("option 'deduplication' is 'column', but the rows have no column 'messageDeduplicationId'.")
    if options.deduplication is None and not has_column:
        raise OptionError(
            "option 'deduplication' is missing, and the rows have no column 'messageDeduplicationId', so nothing says "
            "which rows are equal. Give them that column: of rows with the same id within 5 minutes SQS keeps the "
            "first, whatever their bodies. Or set deduplication to content: of rows with the same body within 5 "
            "minutes SQS keeps the first, in whatever group, unless the queue's DeduplicationScope is messageGroup."
        )
    return has_column and options.deduplication != "content"


def _require_type(field: StructField) -> None:
    allowed = _SINK_COLUMNS.get(field.name)
    if allowed is None:
        return
    fits = isinstance(field.dataType, allowed)
    if isinstance(field.dataType, MapType):  # shown as text, which leaves out what may be null
        fits = field.dataType.simpleString() in (_ATTRIBUTES.simpleString(), _PLAIN_ATTRIBUTES.simpleString())
    if not fits:
        expected = {
            "body": "string or binary",
            "messageAttributes": f"{_PLAIN_ATTRIBUTES.simpleString()} or {_ATTRIBUTES.simpleString()}",
        }
        raise SchemaError(
            f"column '{field.name}' has the type {field.dataType.simpleString()}; it must be "
            f"{expected.get(field.name, 'string')}. Cast it in a select."
        )


def rows_to_arrow(rows: Sequence[Row], schema: StructType) -> pa.RecordBatch:
    """Return the columns of `rows` that a sink sends, as Spark 4.1 and later give them; `schema` names them."""
    arrays, names = [], []
    for place, field in enumerate(schema):
        if field.name not in _SINK_COLUMNS:
            continue
        values = [row[place] for row in rows]
        if isinstance(field.dataType, MapType):
            is_plain = isinstance(field.dataType.valueType, StringType)
            values = [value if value is None else _pairs(value) for value in values]
            kind = pa.map_(
                pa.string(), pa.string() if is_plain else ARROW_SCHEMA.field("messageAttributes").type.item_type
            )
        else:
            kind = pa.binary() if isinstance(field.dataType, BinaryType) else pa.string()
        arrays.append(pa.array(values, kind))
        names.append(field.name)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _pairs(attributes: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value.asDict() if isinstance(value, Row) else value) for name, value in attributes.items()]
