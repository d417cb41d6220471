"""The format where Spark builds it, without a JVM: what a table's options become, and the user's own schema."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType, TimestampNTZType

from sqs_fifo_spark.datasource import SqsFifoDataSource
from sqs_fifo_spark.errors import OptionError, SchemaError
from sqs_fifo_spark.schema import SCHEMA, arrow_schema

URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/bids.fifo"
OPTIONS = {"queueurl": URL, "journallocation": "/journal"}
PROPERTIES = {
    "provider": "sqsfifo",
    "owner": "root",
    "location": "file:/tables/t",
    "path": "file:/tables/t",
    "comment": "bids",
    "external": "true",
    "collation": "UTF8_BINARY",
    "team": "auctions",
    "a.b": "c",
}
"""All that Spark 4.0 and 4.3 were seen to give beside a new table's options."""


def of_table(options: dict[str, str]) -> dict[str, str]:
    return {**PROPERTIES, **options, **{f"option.{name}": value for name, value in options.items()}}


def schema(*columns: str) -> StructType:
    return StructType([StructField(name, StringType()) for name in columns])


def test_a_table_s_properties_are_no_options() -> None:
    """Neither Spark's own nor the user's TBLPROPERTIES."""
    assert SqsFifoDataSource(of_table(OPTIONS)).schema() == SCHEMA


def test_a_table_s_options_are_checked() -> None:
    """Each that is wrong, or missing, is told where the table is created."""
    with pytest.raises(OptionError, match="unknown option 'teem'"):
        SqsFifoDataSource(of_table({**OPTIONS, "teem": "x"})).schema()
    with pytest.raises(OptionError, match="option 'journalLocation' is missing"):
        SqsFifoDataSource(of_table({"queueurl": URL})).schema()


def test_a_property_beside_plain_options_is_an_unknown_option() -> None:
    """Only the two together, which no user writes, mean a table."""
    with pytest.raises(OptionError, match="unknown option 'owner'"):
        SqsFifoDataSource({**OPTIONS, "owner": "root"}).schema()


def test_a_source_without_the_options_of_its_table_says_where_to_give_them() -> None:
    """Spark keeps them for itself."""
    with pytest.raises(OptionError, match=r"'queueUrl' is missing\. .+ spark\.readStream\.option\(\.\.\.\)\.table"):
        SqsFifoDataSource({}).streamReader(SCHEMA)


def test_a_schema_s_own_spelling_is_that_of_its_rows() -> None:
    """Spark 4.3 compares the names of what a source yields with those of the schema, letter by letter."""
    fields = arrow_schema(schema("BODY", "messagegroupid"))
    assert [(name, each.name, each.type) for name, each in fields.items()] == [
        ("body", "BODY", pa.string()),
        ("messageGroupId", "messagegroupid", pa.string()),
    ]


def test_a_column_that_is_named_twice_is_refused() -> None:
    """As Spark allows with a schema, whether or not `spark.sql.caseSensitive` is set."""
    with pytest.raises(SchemaError, match="names column 'body' twice, as 'body' and 'Body'"):
        arrow_schema(schema("body", "Body"))


def test_a_timestamp_without_a_zone_is_told_the_name_of_the_one_with_it() -> None:
    """Under `spark.sql.timestampType` that is what TIMESTAMP means, so it is no help to hear of TIMESTAMP."""
    with pytest.raises(SchemaError, match="'sentTimestamp' the type timestamp_ntz; it is TIMESTAMP_LTZ"):
        arrow_schema(StructType([StructField("sentTimestamp", TimestampNTZType())]))
