"""The outcome of each row in SQS's answer."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from sqs_fifo_spark.errors import AccessDeniedError, QueueRequestError
from sqs_fifo_spark.sink.outcome import CallOutcome, classify
from tests.unit.sending import rows

pytestmark = pytest.mark.law("sink-1", "sink-2")

TRIED = dict(zip("xyz", rows("a1", "b2", "c3"), strict=True))
THROTTLED, FAILED, REFUSED, DENIED = (
    {"Code": code, "SenderFault": is_sender_fault}
    for code, is_sender_fault in (
        ("ThrottlingException", True),
        ("InternalError", False),
        ("InvalidMessageContents", True),
        ("AccessDenied", True),
    )
)


def told(taken: str = "", **failed: dict[str, Any]) -> CallOutcome:
    answer = {
        "Successful": [{"Id": key, "SequenceNumber": f"{place}0"} for place, key in enumerate(taken, start=1)],
        "Failed": [{"Id": key, **entry} for key, entry in failed.items()],
    }
    return classify(answer, TRIED, "https://queue", may_be_older=False)


def names(outcome: CallOutcome) -> tuple[str, str]:
    keys = {row.row: key for key, row in TRIED.items()}
    return "".join(keys[each.row.row] for each in outcome.confirmed), "".join(keys[row.row] for row in outcome.pending)


def test_rows_are_confirmed_in_their_order_with_what_sqs_has_given_them() -> None:
    """Whatever the answer's order, and whatever it says of others."""
    outcome = told("zxy", another=REFUSED)
    assert names(outcome) == ("xyz", "")
    assert [each.sequence_number for each in outcome.confirmed] == [20, 30, 10]
    assert (outcome.fault, outcome.is_silent, outcome.refused) == (None, False, [])


@pytest.mark.parametrize(
    ("outcome", "taken", "pending", "is_silent", "is_throttled", "code"),
    [
        (told("xz", y=FAILED), "xz", "y", False, False, "InternalError"),
        (told("x", y=FAILED, z=THROTTLED), "x", "yz", False, True, "ThrottlingException"),
        (told("x", y=FAILED), "x", "yz", True, False, "InternalError"),
        (told("x", y=FAILED, z=REFUSED), "x", "y", False, False, "InternalError"),
        (told("y"), "y", "xz", True, False, "no answer for some entries"),
        (told("x", another=REFUSED), "x", "yz", True, False, "no answer for some entries"),
        (told("vwx"), "x", "yz", True, False, "no answer for some entries"),
        (told(), "", "xyz", True, False, "no answer for some entries"),
        # Taken and failed: it may have been added, and SQS knows it again.
        (told("xy", y=FAILED), "x", "yz", True, False, "InternalError"),
        (told("xyz", y=FAILED), "xz", "y", True, False, "InternalError"),
        (told("xyz", y=THROTTLED), "xz", "y", True, True, "ThrottlingException"),
        (told("xyz", y=REFUSED), "xz", "y", True, False, REFUSED["Code"]),
    ],
)
def test_what_is_neither_taken_nor_refused_is_pending(
    outcome: CallOutcome, taken: str, pending: str, is_silent: bool, is_throttled: bool, code: str
) -> None:
    """Failed for now, or not in the answer; other ids count for nothing."""
    assert names(outcome) == (taken, pending)
    assert (outcome.fault, outcome.is_silent, outcome.is_throttled) == (None, is_silent, is_throttled)
    assert outcome.code == code


def test_rows_that_are_refused_for_good_are_told_together() -> None:
    """Each with its reason; beside them others are confirmed. A fault that is not told whose it is is the sender's."""
    outcome = told("x", z=REFUSED, y={"Code": REFUSED["Code"]})
    assert names(outcome) == ("x", "")
    assert outcome.fault is None
    reason = "it has characters that SQS does not take (InvalidMessageContents)"
    assert [(each.row, each.refusal) for each in outcome.refused] == [(2, reason), (3, reason)]


@pytest.mark.parametrize("code", ["UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation", "Unheard.Of"])
def test_an_entry_that_fails_for_another_reason_than_its_message_fails_the_task(code: str) -> None:
    """Its row is sound: it is not set aside as one that SQS refuses."""
    outcome = told(y={"Code": code, "SenderFault": True})
    assert not outcome.refused
    assert isinstance(outcome.fault, QueueRequestError)


def test_a_denied_entry_fails_the_task_before_a_refused_one() -> None:
    """No row is to blame for that."""
    assert isinstance(told(y=REFUSED, z=DENIED).fault, AccessDeniedError)


@pytest.mark.parametrize("answer", [{}, {"Successful": None, "Failed": None}, {"Successful": [{}], "Failed": [{}]}])
def test_an_answer_without_entries_tells_nothing(answer: dict[str, Any]) -> None:
    """All is pending, and may have been added."""
    outcome = classify(answer, TRIED, "https://queue", may_be_older=True)
    assert names(outcome) == ("", "xyz")
    assert outcome.is_silent


@pytest.mark.parametrize("number", [None, "", "x", "-1", "²"])
def test_a_number_that_is_none_is_not_taken_for_one(number: str | None) -> None:
    """The row is confirmed all the same."""
    outcome = classify({"Successful": [{"Id": "x", "SequenceNumber": number}]}, TRIED, "", may_be_older=False)
    assert [each.sequence_number for each in outcome.confirmed] == [None]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Value (b2) for parameter MessageBody is invalid. Reason: Too long.", "the value for parameter MessageBody"),
        ("Message b2, for parameter and all, is bad", "Message b2, for parameter and all, is bad"),
        ("The message zq7zq7zq7zq7zq7zq7 is bad", ""),
        ("no\x00thing", ""),
        ("x" * 300, "x" * 200),
    ],
)
def test_sqs_own_reason_is_kept_unless_it_shows_the_message(said: str, shown: str) -> None:
    """A quote is cut out; a reason that shows more of a body than chance would is left out, and the code stays."""
    (row,) = rows("zq7" * 20)
    entry = {"Id": "x", "Code": "InvalidParameterValue", "Message": said, "SenderFault": True}
    (refused,) = classify({"Failed": [entry]}, {"x": row}, "", may_be_older=False).refused
    expected = f"SQS refuses it (InvalidParameterValue: {shown}" if shown else "SQS refuses it (InvalidParameterValue)"
    assert refused.refusal.startswith(expected)
    assert len(refused.refusal.splitlines()) == 1


def told_of(part: dict[str, Any], said: str) -> str:
    """Return what is told of a row with this part of an entry, of which SQS has `said` something."""
    (row,) = rows("b1")
    entry = {"Id": "x", "Code": "InvalidMessageContents", "Message": said, "SenderFault": True}
    tried = {"x": row._replace(entry={**row.entry, **part})}
    (refused,) = classify({"Failed": [entry]}, tried, "", may_be_older=False).refused
    return refused.refusal.removeprefix("it has characters that SQS does not take (").removesuffix(")")


CARD = "card  4111 1111 1111\n1111 of Zoë"
SHORT_ROW = "1234-é"


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        (CARD, CARD),
        (CARD, "card 4111 1111 1111   1111 of Zoë"),
        (CARD, json.dumps(CARD)),
        (CARD, json.dumps(CARD, ensure_ascii=False)),
        (CARD, json.dumps(json.dumps({"body": CARD}))),
        (CARD, json.dumps(CARD).upper()),
        (CARD, "11 1111 1111\\n11"),
        ("x" * 1_000_000 + CARD + "x" * 40_000, "1 1111 1111\n1111"),
        ('{"card":"4111111111111111"}', '{\\"card\\":\\"411111'),
        ("'" * 20 + "4111'1111", "4111'1111"),
        (SHORT_ROW, SHORT_ROW),
        (SHORT_ROW, json.dumps(SHORT_ROW)),
        ("1234", "1234"),
        ("a b c d", "a  b\tc\nd"),
    ],
)
@pytest.mark.parametrize("is_body", [True, False])
def test_no_quote_of_a_row_passes_in_any_spelling(text: str, quote: str, is_body: bool) -> None:
    """From its middle too, with other blanks, or as JSON escapes it: sixteen characters, or all of a shorter text."""
    attribute = {"DataType": "String", "StringValue": text}
    part = {"MessageBody": text} if is_body else {"MessageAttributes": {"n": attribute}}
    assert told_of(part, f"The text {quote} is bad.") == "InvalidMessageContents"


def test_a_quote_of_bytes_does_not_pass() -> None:
    """SQS is given them in base64, and has no other words for them."""
    value = b"card 4111111111111111"
    part = {"MessageAttributes": {"n": {"DataType": "Binary", "BinaryValue": value}}}
    assert told_of(part, f"The value {base64.b64encode(value).decode()} is bad.") == "InvalidMessageContents"


@pytest.mark.parametrize("text", ["a", "bad", "The text", "Messages with this text are bad, says somebody.", '"""" '])
def test_sqs_own_words_pass_where_they_quote_nothing(text: str) -> None:
    """Three characters, or fewer than sixteen of a longer text, stand there by chance."""
    assert told_of({"MessageBody": text}, "This text is bad.") == "InvalidMessageContents: This text is bad"
