"""The format without a JVM: what a table's options become, the user's own schema, and `register`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkAttributeError
from pyspark.sql.types import StringType, StructField, StructType, TimestampNTZType

import sqs_fifo_spark
from sqs_fifo_spark.datasource import SqsFifoDataSource
from sqs_fifo_spark.errors import OptionError, SchemaError
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.schema import SCHEMA, arrow_schema, schema_of

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


@pytest.mark.parametrize("make", ["writer", "streamWriter"])
def test_what_the_driver_says_of_a_sink_names_its_queue(make: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It plans the write in a process of its own, whose lines would have neither time nor level otherwise."""
    named: list[str] = []
    monkeypatch.setattr("sqs_fifo_spark.datasource.set_subject", named.append)
    columns = schema("body", "messageGroupId", "messageDeduplicationId")
    getattr(SqsFifoDataSource({"queueurl": URL}), make)(columns, overwrite=False)
    assert named == ["bids.fifo"]


def test_a_schema_s_own_spelling_is_that_of_its_rows() -> None:
    """Spark 4.3 compares the names of what a source yields with those of the schema, letter by letter.

    It may ask for the queue of a row, of any source.
    """
    fields = arrow_schema(schema("BODY", "messagegroupid", "QueueUrl"))
    assert [(name, each.name, each.type) for name, each in fields.items()] == [
        ("body", "BODY", pa.string()),
        ("messageGroupId", "messagegroupid", pa.string()),
        ("queueUrl", "QueueUrl", pa.string()),
    ]


def test_a_column_that_is_named_twice_is_refused() -> None:
    """As Spark allows with a schema, whether or not `spark.sql.caseSensitive` is set."""
    with pytest.raises(SchemaError, match="names column 'body' twice, as 'body' and 'Body'"):
        arrow_schema(schema("body", "Body"))


def test_a_timestamp_without_a_zone_is_told_the_name_of_the_one_with_it() -> None:
    """Under `spark.sql.timestampType` that is what TIMESTAMP means, so it is no help to hear of TIMESTAMP."""
    with pytest.raises(SchemaError, match="'sentTimestamp' the type timestamp_ntz; it is TIMESTAMP_LTZ"):
        arrow_schema(StructType([StructField("sentTimestamp", TimestampNTZType())]))


# Several queues


def test_a_source_of_several_queues_says_the_queue_of_each_row() -> None:
    """In the last column, behind those that other options bring."""
    given = {"journallocation": "/journal", "unwrap": "sns", "payloads": "s3", "payloaderrors": "null"}
    one = schema_of(parse_source_options({**given, "queueurl": URL}))
    for way in ({"queueurls": URL}, {"queuenameprefix": "bids"}):
        assert schema_of(parse_source_options({**given, **way})) == one.add("queueUrl", StringType())
        one = StructType(one.fields[:-1])
    assert one.names[-2:] == ["sns", "payloadError"]


@pytest.mark.parametrize("way", [{"queueurls": URL}, {"queuenameprefix": "bids"}])
def test_a_reader_of_several_queues_gets_the_options_as_they_were_given(way: dict[str, str]) -> None:
    """Each queue has its own of them. The reader of one queue is as ever."""
    given = {"journallocation": "/journal", "maxmessagespertrigger": "7", **way}
    reader: Any = SqsFifoDataSource(given).streamReader(SCHEMA)
    assert reader._given == given
    of_one: Any = SqsFifoDataSource(OPTIONS).streamReader(SCHEMA)
    assert of_one._given is None


# register


class ConnectSession:
    """Stands for a session of Spark Connect, which has no SparkContext."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.registered: list[type] = []
        self.failure = failure

    @property
    def dataSource(self) -> ConnectSession:
        return self

    def register(self, source: type) -> None:
        if self.failure is not None:
            raise self.failure
        self.registered.append(source)

    @property
    def sparkContext(self) -> Any:
        raise PySparkAttributeError(
            errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "sparkContext"}
        )


def registered(session: Any) -> list[type]:
    sqs_fifo_spark.register(session)
    found: list[type] = session.registered
    return found


def test_a_session_of_spark_connect_is_only_told_of_the_format() -> None:
    """Nothing that needs a SparkContext is tried."""
    assert registered(ConnectSession()) == [SqsFifoDataSource]


def test_a_format_that_spark_will_not_have_replaced_is_no_error() -> None:
    """Spark 4.0 says so where it finds the format itself: there is nothing to do."""
    known = AnalysisException("Data source 'sqsfifo' already exists")
    known.getCondition = lambda: "DATA_SOURCE_ALREADY_EXISTS"  # type: ignore[method-assign]
    assert registered(ConnectSession(known)) == []


def test_any_other_refusal_of_spark_is_raised() -> None:
    """Nothing is swallowed but that one answer."""
    refusal = AnalysisException("the session is closed")
    with pytest.raises(AnalysisException, match="closed"):
        registered(ConnectSession(refusal))
