"""A sink's options and the schema of its rows: every way to be wrong is one clear line of the right class."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, MapType, NullType, Row, StringType, StructField, StructType

from sqs_fifo_spark.datasource import SqsFifoDataSource
from sqs_fifo_spark.errors import OptionError, SchemaError, UnsupportedWriteError
from sqs_fifo_spark.options import SINK, parse_sink_options
from sqs_fifo_spark.schema import SCHEMA
from sqs_fifo_spark.sink.outgoing import columns_of
from sqs_fifo_spark.sink.rows import rows_to_arrow, sink_schema, uses_deduplication_column, with_known_names
from tests.unit import test_options as option_tests
from tests.unit.sending import failure

URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/bids.fifo"
ROLE = "arn:aws:iam::123456789012:role/sender"
SECRET = "hunter2"
ATTRIBUTES = SCHEMA["messageAttributes"].dataType


def refusal(options: dict[str, Any]) -> str:
    """The one line with which the options are refused."""
    return failure(OptionError, parse_sink_options, options)


# Options


DEFAULTS = {
    **option_tests.DEFAULTS,
    "journal_location": None,
    "message_group_id": None,
    "deduplication": None,
    "order": "strict",
    "on_disorder": "log",
    "max_unrecorded_rows": 1,
    "bad_records_path": None,
    "bad_records_queue_url": None,
    "bad_records_group": "hold",
    "bad_records_max": 1_000,
    "payload_location": None,
    "payload_threshold_bytes": None,
    "txn_app_id": None,
    "txn_version": None,
}
GIVEN: dict[str, tuple[str, str, object]] = {
    "queueUrl": ("http://127.0.0.1:1/queues/bids.fifo", "queue_url", "http://127.0.0.1:1/queues/bids.fifo"),
    "messageGroupId": (" all ", "message_group_id", "all"),
    "deduplication": ("Content", "deduplication", "content"),
    "journalLocation": ("s3://bucket/sink", "journal_location", "s3://bucket/sink"),
    "order": ("Batch", "order", "batch"),
    "onDisorder": ("fail", "on_disorder", "fail"),
    "maxUnrecordedRows": ("20", "max_unrecorded_rows", 20),
    "badRecordsPath": ("s3://bucket/refused", "bad_records_path", "s3://bucket/refused"),
    "badRecordsGroup": ("Continue", "bad_records_group", "continue"),
    "badRecordsMax": ("7", "bad_records_max", 7),
    "payloadLocation": ("s3a://bucket/payloads/", "payload_location", "s3a://bucket/payloads/"),
    "payloadThresholdBytes": ("256k", "payload_threshold_bytes", 262_144),
    "txnAppId": ("bids-1", "txn_app_id", "bids-1"),
    "txnVersion": ("9223372036854775807", "txn_version", 2**63 - 1),
    "maxCallsPerSecond": ("30", "max_calls_per_s", 30),
    "region": ("us-west-2", "region", "us-west-2"),
    "endpointUrl": ("http://127.0.0.1:1", "endpoint_url", "http://127.0.0.1:1"),
    "roleArn": (ROLE, "role_arn", ROLE),
    "roleSessionName": ("me", "role_session_name", "me"),
    "roleExternalId": (SECRET, "role_external_id", SECRET),
    "stsEndpoint": ("http://127.0.0.1:2", "sts_endpoint", "http://127.0.0.1:2"),
    "awsAccessKeyId": ("AKIA", "access_key_id", "AKIA"),
    "awsSecretAccessKey": (SECRET, "secret_access_key", SECRET),
    "awsSessionToken": (SECRET, "session_token", SECRET),
    "journalCredentials": ("Chain", "journal_credentials", "chain"),
    "journalEndpointUrl": ("http://127.0.0.1:3", "journal_endpoint_url", "http://127.0.0.1:3"),
}
"""A value, and the field that has it then."""


def test_what_a_sink_gets_that_names_only_its_queue() -> None:
    """The region is the URL's; no group, no choice of deduplication and no journal."""
    assert dataclasses.asdict(parse_sink_options({"queueUrl": URL})) == DEFAULTS


def test_every_option_of_a_sink_is_read() -> None:
    """Under Spark's lower-cased keys too, and beside what Spark itself adds to them."""
    given = {name: value for name, (value, _, _) in GIVEN.items()}
    options = parse_sink_options(given)
    assert dataclasses.asdict(options) == DEFAULTS | {name: value for _, name, value in GIVEN.values()}
    # By awsAccessKeyId, by badRecordsPath, and by a queueUrl that is no name.
    excluded = {"serviceCredential", "credentialsProvider", "profile", "badRecordsQueueUrl", "queueOwnerAccountId"}
    assert set(given) | excluded == {option.name for option in SINK.options}
    lower = {name.lower(): value for name, value in given.items()}
    added = {"checkpointlocation": "/c", "queryname": "q"}
    assert parse_sink_options({**lower, **added}) == options
    for hidden in (SECRET, "AKIA"):
        assert hidden not in repr(options)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.region = "x"  # type: ignore[misc]


_FIFO_ID_RULE = "it must be 1 to 128 letters, digits or ASCII punctuation marks, without spaces."
_TXN_RULE = (
    "it must be 1 to 128 letters, digits, '.', '_' and '-', begin with a letter or digit, and not be batch-writes: a "
    "folder of the journal is called so."
)


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("messageGroupId", "two words", _FIFO_ID_RULE),
        ("messageGroupId", "x" * 129, _FIFO_ID_RULE),
        ("messageGroupId", "é", _FIFO_ID_RULE),
        ("deduplication", "body", "it must be column or content."),
        ("deduplication", "true", "it must be column or content."),
        ("deduplication", "none", "it must be column or content."),
        *(("txnAppId", value, _TXN_RULE) for value in ("../x", ".", "a/b", "a b", "é", "x" * 129, "batch-writes")),
        ("order", "loose", "it must be strict or batch."),
        ("onDisorder", "ignore", "it must be log or fail."),
        ("maxUnrecordedRows", "0", "it must be a whole number from 1 to 80."),
        ("maxUnrecordedRows", "81", "it must be a whole number from 1 to 80."),
        *(
            (
                "payloadLocation",
                value,
                "it must be a bucket of S3, or a prefix in one, as in s3://bucket/payloads/bids.",
            )
            for value in ("/payloads", "gs://bucket/p", "file:///p", "bucket/p", "S3://bucket/p", "s3:bucket")
        ),
        ("payloadLocation", "s3:///p", "it must name a bucket or container, as in s3://bucket/journals/bids."),
        (
            "payloadLocation",
            "s3://bucket/a/../b",
            "it must not hold '.' or '..', which behind a link lead elsewhere. Write it out.",
        ),
        (
            "payloadLocation",
            f"s3://bucket/{'x' * 900}",
            "it must be at most 900 bytes, because S3 takes keys of 1024.",
        ),
        *(
            ("payloadThresholdBytes", value, "it must be a number of bytes above 0, such as 67108864 or 64m.")
            for value in ("0", "-1", "1.5", "all")
        ),
        ("payloadThresholdBytes", "1048577", "it must be at most 1048576 bytes."),
        ("payloadThresholdBytes", "2m", "it must be at most 1048576 bytes."),
        ("txnVersion", "-1", "it must be a whole number from 0 to 9.22337e+18."),
        ("txnVersion", "1.5", "it must be a whole number from 0 to 9.22337e+18."),
        ("txnVersion", "9223372036854775808", "it must be a whole number from 0 to 9.22337e+18."),
    ],
)
def test_a_wrong_value_is_told_with_the_rule(option: str, value: str, rule: str) -> None:
    """The value seen, then the rule; those that the source has too are tested with its own."""
    assert refusal({"queueUrl": URL, option: value}) == f"option '{option}' is {value!r}; {rule}"


def test_a_threshold_needs_a_place() -> None:
    """Else no body goes anywhere."""
    assert refusal({"queueUrl": URL, "payloadThresholdBytes": "1k"}) == (
        "option 'payloadThresholdBytes' is given without 'payloadLocation', so it would have no effect. Give "
        "payloadLocation, or leave payloadThresholdBytes out."
    )
    given = parse_sink_options({"queueUrl": URL, "payloadLocation": "s3://b/p", "payloadThresholdBytes": "1m"})
    assert given.payload_threshold_bytes == 1_048_576


@pytest.mark.parametrize("value", ["s3://b/p?versionId=1", "s3://b/p#x"])
def test_a_place_of_payloads_has_no_query(value: str) -> None:
    """It may be a signature, and is not shown."""
    assert refusal({"queueUrl": URL, "payloadLocation": value}) == (
        "option 'payloadLocation' holds a '?' or a '#'; give the plain location, without parameters."
    )


@pytest.mark.parametrize(
    ("option", "value"), [("journalCredentials", "chain"), ("journalEndpointUrl", "http://127.0.0.1:1")]
)
def test_the_options_of_s3_hold_for_payloads(option: str, value: str) -> None:
    """Also where nothing else is on S3."""
    given = {"queueUrl": URL, "payloadLocation": "s3a://b/p", "journalLocation": "/j", option: value}
    assert parse_sink_options(given).payload_location == "s3a://b/p"


@pytest.mark.parametrize(("name", "place"), [("journalLocation", "s3a://b/p/j"), ("badRecordsPath", "s3://b/")])
def test_payloads_have_a_prefix_of_their_own(name: str, place: str) -> None:
    """Else the journal, or whoever reads refused rows, would find them."""
    assert refusal({"queueUrl": URL, "payloadLocation": "s3://b/p", name: place}) == (
        f"options 'payloadLocation' ('s3://b/p') and '{name}' ({place!r}) are the same place, or one is inside the "
        "other, so that objects of one would be taken for the other's. Give each a folder of its own."
    )
    assert parse_sink_options({"queueUrl": URL, "payloadLocation": "s3://b/p", name: "s3://b/other"})


TXN = {"txnAppId": "bids", "txnVersion": "7"}


@pytest.mark.parametrize("given", TXN)
def test_who_writes_and_what_is_said_together(given: str) -> None:
    """One of them alone says nothing."""
    (missing,) = TXN.keys() - {given}
    said = refusal({"queueUrl": URL, "journalLocation": "/j", given: TXN[given]})
    assert said == (
        f"option '{given}' is given without '{missing}'; together they say who writes what. Give both or neither."
    )


def test_who_writes_what_is_for_a_journal_and_for_batch_writes() -> None:
    """Without a journal nothing knows it, and a stream's micro-batches would all have one number."""
    assert "are given without 'journalLocation'" in refusal({"queueUrl": URL, **TXN})
    source = SqsFifoDataSource({"queueUrl": URL, "journalLocation": "/j", **TXN})
    with pytest.raises(OptionError, match="are for batch writes: each micro-batch of a stream has a number of its own"):
        source.streamWriter(schema(**FULL), overwrite=False)
    source.writer(schema(**FULL), overwrite=False)


# The rows' schema


def schema(**columns: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


FULL = {"body": StringType(), "messageGroupId": StringType(), "messageDeduplicationId": StringType()}
BARE = {name: FULL[name] for name in ("body", "messageGroupId")}


def by_column(rows: StructType, **options: str) -> bool:
    return uses_deduplication_column(rows, parse_sink_options({"queueUrl": URL, **options}))


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        (FULL, {}, True),
        (FULL, {"deduplication": "column"}, True),
        (FULL, {"deduplication": "content"}, False),
        (BARE, {"deduplication": "content"}, False),
        ({"body": BinaryType(), "messageDeduplicationId": StringType()}, {"messageGroupId": "all"}, True),
        ({"body": StringType()}, {"messageGroupId": "all", "deduplication": "content"}, False),
        (FULL, {"messageGroupId": "all"}, True),
        ({**FULL, "messageAttributes": ATTRIBUTES}, {}, True),
        ({**FULL, "messageAttributes": MapType(StringType(), StringType(), False)}, {}, True),
        ({**FULL, "messageId": IntegerType(), "sentTimestamp": StringType()}, {}, True),
        ({field.name: field.dataType for field in SCHEMA}, {}, True),
    ],
)
def test_rows_that_can_be_sent(columns: dict[str, Any], options: dict[str, str], expected: bool) -> None:
    """The choice of deduplication is the option's, else the column's; the source's other columns are of any type."""
    assert by_column(schema(**columns), **options) is expected


_KNOWS = (
    "It sends body, messageGroupId, messageDeduplicationId, messageAttributes, awsTraceHeader, queueUrl, and ignores "
    "the other columns of the source: drop what is not meant to be sent."
)
_MAP = "map<string,string> or map<string,struct<dataType:string,stringValue:string,binaryValue:binary>>"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({**FULL, "zzz": StringType()}, f"the rows have a column 'zzz', which the sink does not know. {_KNOWS}"),
        (
            {**FULL, "Body": StringType()},
            f"the rows have a column 'Body', which the sink does not know. Did you mean 'body'? {_KNOWS}",
        ),
        (
            {"body": StringType(), "messageGroup": StringType()},
            "the rows have a column 'messageGroup', which the sink does not know. "
            f"Did you mean 'messageGroupId'? {_KNOWS}",
        ),
        (
            {**BARE, "body": IntegerType()},
            "column 'body' has the type int; it must be string or binary. Cast it in a select.",
        ),
        (
            {**BARE, "messageGroupId": BinaryType()},
            "column 'messageGroupId' has the type binary; it must be string. Cast it in a select.",
        ),
        (
            {**BARE, "messageDeduplicationId": NullType()},
            "column 'messageDeduplicationId' has the type void; it must be string. Cast it in a select.",
        ),
        (
            {**FULL, "queueUrl": BinaryType()},
            "column 'queueUrl' has the type binary; it must be string. Cast it in a select.",
        ),
        (
            {**FULL, "messageAttributes": StringType()},
            f"column 'messageAttributes' has the type string; it must be {_MAP}. Cast it in a select.",
        ),
        (
            {**FULL, "messageAttributes": MapType(StringType(), IntegerType())},
            f"column 'messageAttributes' has the type map<string,int>; it must be {_MAP}. Cast it in a select.",
        ),
        (
            {"messageGroupId": StringType()},
            "the rows have no column 'body', which is what is sent. Select it under this name.",
        ),
        (
            {"body": StringType()},
            "the rows have no column 'messageGroupId'. Select one, or set the option messageGroupId, the group of all "
            "rows.",
        ),
    ],
)
def test_rows_that_cannot_be_sent(columns: dict[str, Any], expected: str) -> None:
    """The error names the column, its fault and a remedy."""
    assert failure(SchemaError, by_column, schema(**columns)) == expected


@pytest.mark.parametrize("name", ["body", "messageId"])
def test_a_column_that_is_there_twice_is_refused(name: str) -> None:
    """Nobody knows which of them is meant."""
    fields = [StructField(each, StringType()) for each in (*FULL, name, name)]
    count = 2 + (name in FULL)
    said = f"the rows have {count} columns called '{name}', in whatever case. Drop or rename the others."
    assert failure(SchemaError, by_column, StructType(fields)) == said


def test_deduplication_is_never_guessed() -> None:
    """Without a column and a choice, both choices are explained; a choice of a column that is not there is refused."""
    said = failure(OptionError, by_column, schema(**BARE))
    assert said.startswith("option 'deduplication' is missing, and the rows have no column 'messageDeduplicationId'")
    for needed in ("whatever their bodies", "deduplication to content", "5 minutes", "messageGroup"):
        assert needed in said
    said = failure(OptionError, by_column, schema(**BARE), deduplication="column")
    assert said == "option 'deduplication' is 'column', but the rows have no column 'messageDeduplicationId'."


def test_replacing_what_is_there_is_refused() -> None:
    """Before options and schema are looked at, and so before any call."""
    source = SqsFifoDataSource({})
    with pytest.raises(UnsupportedWriteError, match="output mode 'complete' writes the whole result anew"):
        source.streamWriter(schema(), overwrite=True)
    with pytest.raises(UnsupportedWriteError, match=r"use mode\('append'\)"):
        source.writer(schema(), overwrite=True)


@pytest.mark.parametrize("build", ["streamWriter", "writer"])
def test_options_and_schema_are_checked_before_any_call(build: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that cannot work does not ask the queue first.

    Spark keeps the options of a table for itself, so one that lacks its queue says where to give them.
    """
    monkeypatch.delattr("sqs_fifo_spark.aws.client.sqs_client")
    with pytest.raises(OptionError, match=r"option 'queueUrl' is missing\. .+ INSERT INTO \.\.\. WITH \(\.\.\.\)"):
        getattr(SqsFifoDataSource({}), build)(schema(**FULL), overwrite=False)
    with pytest.raises(SchemaError, match="no column 'body'"):
        getattr(SqsFifoDataSource({"queueUrl": URL}), build)(schema(), overwrite=False)


# Rows, as Spark gives them


def test_columns_may_be_in_any_case() -> None:
    """As Spark itself resolves them; two that differ by case alone are refused, for one of them would not be sent."""
    given = {name.upper(): kind for name, kind in FULL.items()}
    assert uses_deduplication_column(sink_schema(schema(**given)), parse_sink_options({"queueUrl": URL}))
    batch = pa.record_batch({"BODY": ["x"], "messagegroupid": ["g"], "awstraceheader": ["Root=1"]})
    assert columns_of(with_known_names(batch)) == [["x"], ["g"], [None], [None], ["Root=1"]]
    with pytest.raises(SchemaError, match="2 columns called 'body', in whatever case"):
        SqsFifoDataSource({"queueUrl": URL}).writer(schema(**FULL, Body=StringType()), overwrite=False)


def test_rows_become_the_arrow_that_later_sparks_give() -> None:
    """Every type of every column; what is not sent is left out."""
    attribute = Row(dataType="Binary", stringValue=None, binaryValue=b"1")
    rows = [
        Row(body="x", messageGroupId="g", messageAttributes={"k": attribute}),
        Row(body=None, messageGroupId=None, messageAttributes=None),
        Row(body="é", messageGroupId="g", messageAttributes={}),
    ]
    made = rows_to_arrow(rows, schema(body=StringType(), messageGroupId=StringType(), messageAttributes=ATTRIBUTES))
    expected = [("k", {"dataType": "Binary", "stringValue": None, "binaryValue": b"1"})]
    assert columns_of(made) == [["x", None, "é"], ["g", None, "g"], [None] * 3, [expected, None, []], [None] * 3]

    plain = schema(messageId=StringType(), body=BinaryType(), messageAttributes=MapType(StringType(), StringType()))
    given = [Row(messageId="i", body=bytearray(b"\xff"), messageAttributes={"k": "v", "n": None})]
    made = rows_to_arrow(given, plain)
    assert made.schema.names == ["body", "messageAttributes"]
    assert columns_of(made) == [[b"\xff"], [None], [None], [[("k", "v"), ("n", None)]], [None]]
    assert pa.types.is_binary(made.schema.field("body").type)
