"""Rows on their way to SQS: what it would refuse is refused before it is sent, for one clear reason without content."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from sqs_fifo_spark.columns import ARROW_SCHEMA
from sqs_fifo_spark.sink.outgoing import COLUMNS, OutgoingRow, RefusedRowError, RowForm, columns_of, outgoing

pytestmark = pytest.mark.law("sink-1")

SECRET = "zq7"
"""Stands in every body and in every attribute's value, and so must stand in no reason."""
BY_COLUMN = RowForm(None, True, 1_048_576)
BY_CONTENT = RowForm(None, False, 1_048_576)
ROW = {
    "body": SECRET,
    "messageGroupId": "g",
    "messageDeduplicationId": "d",
    "messageAttributes": None,
    "awsTraceHeader": None,
}

Pairs = list[tuple[str, Any]]


def one(form: RowForm = BY_COLUMN, **values: Any) -> OutgoingRow:
    """Return a row that is in order, but for `values`, as it is sent."""
    row = {**ROW, **values}
    (sent,) = outgoing([[row[name]] for name in COLUMNS], form, first_row=1)
    return sent


def reason(call: Callable[[], object], row: int = 1) -> str:
    """Return why `call` refuses `row`, in one line that shows nothing of the row's content."""
    with pytest.raises(RefusedRowError) as told:
        call()
    assert told.value.row == row
    text = told.value.reason
    assert SECRET not in text
    assert SECRET not in str(told.value)
    assert text.isprintable()
    return text


def value(text: str | None = None, data_type: str | None = "String", binary: bytes | None = None) -> dict[str, Any]:
    """An attribute as the source has it."""
    return {"dataType": data_type, "stringValue": text, "binaryValue": binary}


# What is refused

_ID_RULE = "but it must be 1 to 128 letters, digits or ASCII punctuation marks, without spaces"
_NAME_RULE = (
    "a name is 1 to 256 of A-Z, a-z, 0-9, '_', '-' and '.', neither begins nor ends with '.' nor has two in a row, and "
    "does not begin with 'AWS.' or 'Amazon.'"
)  # fmt: skip


_NO_CHARACTER = "has a character that SQS does not take"
_BODIES: list[tuple[Any, str]] = [
    (None, "is null"),
    ("", "is empty"),
    (b"", "is empty"),
    (b"zq7\xff", "is not UTF-8 (byte 3)"),
    (b"\xed\xa0\x80", "is not UTF-8 (byte 0)"),  # a surrogate
    (b"zq7\xf0\x9f\x98", "is not UTF-8 (byte 3)"),  # cut off in a character
    (b"zq7\x00", f"{_NO_CHARACTER}, U+0000 at 3"),
]
_IDS: list[tuple[Any, str]] = [
    (None, "is null"),
    *(
        (given, f"has {fault}, {_ID_RULE}")
        for given, fault in (
            *(("", "0 characters"), ("zq7" * 43, "129 characters"), ("zq7 ", "U+0020 at 3"), ("zq7\n", "U+000A at 3")),
            *(("zq7\x7f", "U+007F at 3"), ("zq7é", "U+00E9 at 3"), ("\U0001f600zq7", "U+1F600 at 0")),
        )
    ),
]
_ATTRIBUTES: dict[str, list[Any]] = {
    "is null": [None],
    "is a String, so it must have a stringValue, not empty, and nothing else": [
        *("", value(), value(""), value(SECRET, binary=b"zq7"), value(binary=b"zq7")),
    ],
    "must have a dataType that is, or begins with, 'String', 'Number' or 'Binary'": [
        *(value(SECRET, kind) for kind in (None, "", "string", "StringList", "String.", " String")),
        *(value(SECRET, f"String.{rest}") for rest in ("\x00", "a\n", "x" * 250)),
    ],
    "is a Number, so it must have a stringValue, not empty, and nothing else": [value("", "Number")],
    "is a Number, and its stringValue is none": [
        value(".", "Number.int"),
        *(value(text, "Number") for text in (SECRET, "1e", "1 ", "0x1", "nan", "\u0663")),
    ],
    "is Binary, so it must have a binaryValue, not empty, and nothing else": [
        *(value(data_type="Binary"), value(data_type="Binary", binary=b"")),
        *(value(SECRET, "Binary"), value(SECRET, "Binary.png", b"zq7")),
    ],
}
_NAMES = (
    *("", ".k", "k.", "a..b", "a b", "a\nb", "é", "a/b", "AWS.k", "aws.k", "Amazon.k", "aMaZoN.k"),
    *("k" * 257, "k\x00"),
)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        *(({"body": body}, f"its body {fault}") for body, fault in _BODIES),
        *(
            ({column: given}, f"its {column} {fault}")
            for column in ("messageGroupId", "messageDeduplicationId")
            for given, fault in _IDS
        ),
        *(
            ({"messageAttributes": [("first", "x"), ("k", given)]}, f"its attribute 'k' {fault}")
            for fault, attributes in _ATTRIBUTES.items()
            for given in attributes
        ),
        *(
            ({"messageAttributes": [(name, SECRET)]}, f"it has an attribute called {name[:256]!r}; {_NAME_RULE}")
            for name in _NAMES
        ),
        (
            {"messageAttributes": [(f"k{number}", SECRET) for number in range(11)]},
            "it has 11 attributes, and SQS takes at most 10",
        ),
        # Arrow's maps may say a key twice; sent as they are, one value would be lost.
        ({"messageAttributes": [("k", "1"), ("other", "x"), ("k", "2")]}, "its attribute 'k' is there twice"),
        ({"awsTraceHeader": ""}, "its awsTraceHeader is empty; it may be null"),
        ({"awsTraceHeader": "zq7\x00"}, f"its awsTraceHeader {_NO_CHARACTER}, U+0000 at 3"),
        ({"awsTraceHeader": b"zq7\xff"}, "its awsTraceHeader is not UTF-8"),
    ],
)
def test_what_sqs_does_not_take_is_refused(values: dict[str, Any], expected: str) -> None:
    """By the first rule that it breaks, and where; never with what stands there, nor around it."""
    assert reason(lambda: one(**values)) == expected


@pytest.mark.parametrize(
    "point", [0, 1, 8, 0xB, 0xC, 0xE, 0x1F, 0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xFFFE, 0xFFFF], ids="{:04X}".format
)
def test_each_neighbour_of_what_xml_allows_is_refused(point: int) -> None:
    """In a body, and in an attribute's value, by its code point and its place."""
    text = f"{SECRET}\U0001f600{chr(point)}"
    said = f"{_NO_CHARACTER}, U+{point:04X} at 4"
    assert reason(lambda: one(body=text)) == f"its body {said}"
    assert reason(lambda: one(messageAttributes=[("k", text)])) == f"its attribute 'k' {said}"


def test_a_row_over_the_queues_limit() -> None:
    """The limit is the queue's own, in bytes, with the attributes; the number is that of this very row."""
    form = RowForm(None, True, 1_024)
    body = SECRET + "é" * 500  # 1,003 bytes
    pairs = [("name", "v" * 11)]  # 4 + 6 + 11
    assert one(form, body=body, messageAttributes=pairs).size == 1_024
    said = reason(lambda: one(form, body=body + "x", messageAttributes=pairs))
    assert said == (
        "it has 1,025 bytes with its attributes, and the queue takes at most 1,024 (its MaximumMessageSize); with "
        "payloadLocation its body goes to S3"
    )


def test_the_first_bad_row_is_named_by_its_number_in_the_partition() -> None:
    """Numbers go on from batch to batch; the rows before it are in order."""
    columns: list[list[Any]] = [[SECRET, SECRET, "", ""], ["g"] * 4, ["1", "2", "3", None], *[[None] * 4] * 2]
    assert reason(lambda: outgoing(columns, BY_COLUMN, first_row=101), row=103) == "its body is empty"


def test_columns_of_different_lengths_are_a_defect() -> None:
    """Nothing is cut off in silence."""
    with pytest.raises(ValueError, match="shorter"):
        outgoing([["x", "y"], ["g"], ["d"], [None], [None]], BY_COLUMN, first_row=1)


# What is sent


def test_a_row_becomes_the_entry_that_sqs_wants() -> None:
    """Body, ids and attributes under AWS's names; a plain map's values are Strings; an empty map is left out."""
    sent = one(messageAttributes=[("plain", SECRET), ("n", value("-1.5e3", "Number.float"))])
    assert (sent.row, sent.group) == (1, "g")
    assert sent.entry == {
        "MessageBody": SECRET,
        "MessageGroupId": "g",
        "MessageDeduplicationId": "d",
        "MessageAttributes": {
            "plain": {"DataType": "String", "StringValue": SECRET},
            "n": {"DataType": "Number.float", "StringValue": "-1.5e3"},
        },
    }
    assert "MessageAttributes" not in one(messageAttributes=None).entry
    assert "MessageAttributes" not in one(messageAttributes=[]).entry


def test_a_binary_attribute_is_sent_as_bytes() -> None:
    """Whatever bytes they are; an empty string beside them counts as none, as some readers leave one there."""
    for text in (None, ""):
        sent = one(messageAttributes=[("raw", value(text, "Binary.png", b"\x00\xff"))])
        assert sent.entry["MessageAttributes"] == {"raw": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"}}


@pytest.mark.parametrize(
    "body",
    ["x", " ", "\n", "\t\n\r \x7f\x85\u2028\ud7ff\ue000\ufdd0\ufffd\U00010000\U0001ffff\U0010ffff", "\U0001f600 é"],
)
def test_every_character_that_xml_allows_is_sent_as_it_is(body: str) -> None:
    """The edges of each range, in a text, in a text's bytes, and in an attribute."""
    for given in (body, body.encode()):
        sent = one(body=given, messageAttributes=[("k", body)])
        assert sent.entry["MessageBody"] == body
        assert sent.entry["MessageAttributes"]["k"]["StringValue"] == body


@pytest.mark.parametrize("given", ["x", "y" * 128, "".join(map(chr, range(0x21, 0x7F)))])
def test_every_id_that_sqs_takes_is_sent(given: str) -> None:
    """All letters, digits and punctuation marks, up to 128."""
    sent = one(messageGroupId=given, messageDeduplicationId=given)
    assert sent.group == sent.entry["MessageGroupId"] == sent.entry["MessageDeduplicationId"] == given


@pytest.mark.parametrize("number", ["0", "-1", "+1", "1.", ".5", "1e5", "-1.5E-128", "9" * 38])
def test_numbers_are_sent_as_they_are_written(number: str) -> None:
    """Nothing is rounded on the way."""
    sent = one(messageAttributes=[("n", value(number, "Number"))])
    assert sent.entry["MessageAttributes"]["n"]["StringValue"] == number


def test_the_longest_names_and_types_and_the_most_attributes_are_sent() -> None:
    """256 characters each, ten attributes; what only looks like a reserved prefix is none."""
    names = ["k" * 256, "_", "-", "a.b.c", "AWSk", "Amazon", "awesome.k", "0", "X_Y", "k"]
    sent = one(messageAttributes=[(name, value("v", "String." + "x" * 249)) for name in names])
    assert list(sent.entry["MessageAttributes"]) == names


@pytest.mark.parametrize("given", [None, "x", "not an id"])
def test_a_column_that_an_option_replaces_is_not_looked_at(given: str | None) -> None:
    """The option is the group of all rows; by content SQS makes the deduplication id of the body."""
    assert one(RowForm("all", True, 1_048_576), messageGroupId=given).entry["MessageGroupId"] == "all"
    assert "MessageDeduplicationId" not in one(BY_CONTENT, messageDeduplicationId=given).entry


def test_repr_of_a_row_shows_no_content() -> None:
    """A row in an assertion's or a log's text is its number and its group."""
    assert SECRET not in repr(one(messageAttributes=[("k", SECRET)]))


# By what it is recognised


def test_digest_is_that_of_group_and_id_or_of_group_and_body() -> None:
    """The journal's format: another would not recognise what an earlier version has sent."""
    shard = b"\x8c\x93"
    assert one().digest == shard + hashlib.sha256(b"id\ng\nd").digest()[:22]
    assert one(BY_CONTENT, body="é\n").digest == shard + hashlib.sha256("body\ng\né\n".encode()).digest()[:22]
    assert one(BY_CONTENT, body="é".encode()).digest == one(BY_CONTENT, body="é").digest


def test_nothing_else_changes_the_digest() -> None:
    """Not attributes, as for SQS; by column not the body, by content not the id, and never the row's number."""
    pairs = [("k", "v")]
    assert one(body="other", messageAttributes=pairs).digest == one().digest
    assert one(BY_CONTENT, messageDeduplicationId="x", messageAttributes=pairs).digest == one(BY_CONTENT).digest
    columns = [[ROW[name]] for name in COLUMNS]
    (later,) = outgoing(columns, BY_COLUMN, first_row=77)
    assert later.digest == one().digest
    assert one(RowForm("g", True, 1_048_576), messageGroupId="elsewhere").digest == one().digest


@pytest.mark.parametrize("form", [BY_COLUMN, BY_CONTENT], ids=["column", "content"])
def test_different_pairs_have_different_digests(form: RowForm) -> None:
    """Wherever a separator of any kind stands: what is taken for sent and was not would be lost."""
    parts = ["a", "b", "aa", "ab", "a:b", "a|b", "a,b", "a/b", "a-b", 'a"b', "a\\nb", "a%0Ab", ":", "a:", ":b"]
    bodies = [*parts, "\n", "a\n", "\na", "a\nb", "\n\n", "a\r\nb", "a b", "\u2028"]
    pairs = list(itertools.product(parts, parts if form.by_column else bodies))
    digests = {
        one(form, messageGroupId=group, **{"messageDeduplicationId" if form.by_column else "body": told}).digest
        for group, told in pairs
    }
    assert len(digests) == len(pairs)


# From Arrow


def damaged(*values: bytes | None) -> pa.Array:
    """Return an array of strings that are not checked, as Spark's are not."""
    return pa.StringArray.from_buffers(
        len(values),
        *(pa.array(values, pa.binary()).buffers()[at] for at in (1, 2, 0)),
        null_count=sum(each is None for each in values),
    )


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


@pytest.mark.parametrize("name", ["body", "messageGroupId", "messageDeduplicationId", "awsTraceHeader"])
def test_a_string_that_is_not_utf_8_is_refused_by_row_and_column(name: str) -> None:
    """Also behind nulls, in a slice, and with another bad one after it."""
    given = batch(**{"other": damaged(*[b"\xff"] * 5), name: damaged(b"\xff", None, b"zq7", b"zq7\xff", b"\xfe")})
    values = columns_of(given)[COLUMNS.index(name)]
    assert values == [b"\xff", None, SECRET, b"zq7\xff", b"\xfe"]
    at = " (byte 3)" if name == "body" else ""
    assert reason(lambda: one(**{name: values[3]})) == f"its {name} is not UTF-8{at}"
    assert columns_of(given.slice(1, 2))[COLUMNS.index(name)] == [None, SECRET]


def test_an_attribute_that_is_not_utf_8_is_refused() -> None:
    """Its name or its value, in a plain map and in the source's."""
    offsets, names = pa.array([0, 1, 2], pa.int32()), pa.array(["k", "k"])
    good = pa.array(["String", "String"])
    struct = pa.StructArray.from_arrays(
        [good, damaged(b"zq7", b"zq7\xff"), pa.array([None, None], pa.binary())],
        fields=list(ARROW_SCHEMA.field("messageAttributes").type.item_type),
    )
    for keys, items in (
        (names, damaged(b"zq7", b"zq7\xff")),
        (damaged(b"k", b"\xff"), pa.array([SECRET, SECRET])),
        (names, struct),
    ):
        given = batch(messageAttributes=pa.MapArray.from_arrays(offsets, keys, items))
        good, bad = columns_of(given)[COLUMNS.index("messageAttributes")]
        assert one(messageAttributes=good).entry["MessageAttributes"]
        assert reason(lambda bad=bad: one(messageAttributes=bad)) == "its messageAttributes is not UTF-8"  # type: ignore[misc]


def test_columns_come_in_our_order_whatever_theirs_is() -> None:
    """Columns that are not there are null, others are not looked at; an empty batch has no rows."""
    given = batch(messageId=damaged(b"\xff"), messageGroupId=pa.array(["g"]), body=pa.array([b"\xff"], pa.binary()))
    assert columns_of(given) == [[b"\xff"], ["g"], [None], [None], [None]]
    assert outgoing(columns_of(given.slice(0, 0)), BY_COLUMN, first_row=1) == []


def test_the_sources_own_rows_are_sent_as_they_were_received() -> None:
    """A source's row, attributes and all, becomes the same message again."""
    attributes: Pairs = [("n", value("1", "Number")), ("raw", value(data_type="Binary", binary=b"\x00"))]
    header = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"
    row = dict.fromkeys(ARROW_SCHEMA.names) | {**ROW, "messageAttributes": attributes, "awsTraceHeader": header}
    arrays = [pa.array([row[field.name]], field.type) for field in ARROW_SCHEMA]
    given = pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)
    sent = one(messageAttributes=attributes, awsTraceHeader=header)
    assert outgoing(columns_of(given), BY_COLUMN, first_row=1) == [sent]
    value_of_header = {"DataType": "String", "StringValue": header}
    assert sent.entry["MessageSystemAttributes"] == {"AWSTraceHeader": value_of_header}
    plain = one(messageAttributes=attributes)
    assert (sent.size, sent.digest) == (plain.size, plain.digest), "it counts for neither"
    assert "MessageSystemAttributes" not in plain.entry


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_every_arrow_type_of_a_body_is_taken(kind: pa.DataType) -> None:
    """Spark gives the large ones if it is told to."""
    given = batch(body=pa.array([SECRET], kind))
    columns = columns_of(given)
    assert one(body=columns[0][0]).entry["MessageBody"] == SECRET
