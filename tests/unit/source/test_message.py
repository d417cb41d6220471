"""A message's row in Arrow's form: what Arrow itself makes of the values, without what that costs in each process."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sqs_fifo_spark.columns import ARROW_SCHEMA
from sqs_fifo_spark.source.message import Message, from_sqs, to_arrow
from tests.helpers import run_python

ATTRIBUTES = {
    "price": {"DataType": "Number", "StringValue": "100"},
    "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
}


def message(number: int, *, has_attributes: bool = False) -> Message:
    """Some of its values are missing, in turn; its body has `number` times characters of each length in UTF-8."""
    system = {
        "MessageGroupId": "g",
        "SequenceNumber": str((1 << 128) - number - 1),
        "SentTimestamp": str(1_700_000_000_000 + number),
        "ApproximateReceiveCount": str(number + 1),
        "MessageDeduplicationId": str(number),
    }
    if number % 3:
        system["ApproximateFirstReceiveTimestamp"] = "1700000001456"
    if number % 2:
        system["SenderId"] = f"sender-{number}"
    answer: dict[str, Any] = {
        "MessageId": f"id-{number}",
        "ReceiptHandle": "handle",
        "Body": "aü€𐍈" * number,
        "Attributes": system,
    }
    if has_attributes:
        answer["MessageAttributes"] = ATTRIBUTES
    return from_sqs(answer, receive=0, received_at=1.5)


@pytest.mark.parametrize("has_attributes", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 17, 300])
def test_rows_are_what_arrow_makes_of_the_values(count: int, has_attributes: bool) -> None:
    messages = [message(number, has_attributes=has_attributes and number % 4 == 1) for number in range(count)]
    columns = list(zip(*(each.row for each in messages), strict=True)) or [()] * len(ARROW_SCHEMA)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, ARROW_SCHEMA.types, strict=True)]
    found = to_arrow(messages)
    found.validate(full=True)
    assert found.equals(pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA))
    assert found.schema == ARROW_SCHEMA


def test_rows_are_made_and_dealt_out_without_pandas() -> None:
    """Arrow imports it where it is installed: that takes 0.3 s and 30 MiB in the driver and in each worker."""
    script = """
import sys
from tests.unit.source.test_message import message, to_arrow
sys.modules.pop("pandas", None)  # pytest may have brought it
from sqs_fifo_spark.source.message import from_arrow, rows_at
from sqs_fifo_spark.source.segment import Head, Origin, Segment, decode, encode
messages = [message(number, has_attributes=number > 4) for number in range(9)]
receipts = tuple(each.receipt._replace(deferred=each is messages[7]) for each in messages)
origin = Origin("j", epoch=1, partitions=1, partition=0, writer="w", plan=1, after="")
head = Head(origin, receipts, sizes=tuple(each.size for each in messages))
segment = decode(encode(Segment(head, to_arrow(messages))), "name")
places = [0, 5, 8]
dealt = [messages[each] for each in places]
receipts, _, sizes = zip(*dealt)
assert from_arrow(receipts, rows_at(segment.rows, places), sizes) == dealt
assert segment.served({"id-2"}).column("messageId").to_pylist() == [f"id-{each}" for each in (0, 1, 3, 4, 5, 6, 8)]
assert "pandas" not in sys.modules
"""
    ran = run_python(script)
    assert ran.returncode == 0, ran.stderr


def test_a_task_hands_rows_to_spark_without_pandas() -> None:
    """Those of several queues, too, which name their queue."""
    script = """
import sys
from unittest import mock
from tests.unit.source.test_message import message, to_arrow
sys.modules.pop("pandas", None)  # pytest may have brought it
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.schema import schema_of
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.reader import SqsFifoPartition, SqsFifoStreamReader
url = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo"
given = {"queueUrls": url, "journalLocation": "/journal"}
options = parse_source_options(given)
plan = PartitionPlan("j", 1, 1, 0, 10, 1 << 20, 0, "", 0, False, 0, b"", False)
reader = SqsFifoStreamReader(options, schema_of(options), given)
with mock.patch("sqs_fifo_spark.source.task.partition.read_partition", return_value=[to_arrow([message(1)] * 3)]):
    (rows,) = reader.read(SqsFifoPartition(plan, url))
assert rows.column("queueUrl").to_pylist() == [url] * 3
assert "pandas" not in sys.modules
"""
    ran = run_python(script)
    assert ran.returncode == 0, ran.stderr
