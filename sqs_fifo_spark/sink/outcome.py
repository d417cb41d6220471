"""The outcome of one `SendMessageBatch` for each of its rows, from SQS's answer. No calls are made here."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqs_fifo_spark.aws.codes import SEND, MessageRefusedError, error_from_aws
from sqs_fifo_spark.errors import TransientQueueError
from sqs_fifo_spark.sink.outgoing import OutgoingRow

_IN_OUR_WORDS = {
    "BatchRequestTooLong": "it is larger than the queue takes",
    "InvalidMessageContents": "it has characters that SQS does not take",
}
_SHORT, _QUOTED = 3, 16
"""So few characters stand in SQS's words by chance; so many in a row do not, nor does all of a text in between."""


class ConfirmedRow(NamedTuple):
    """A row that SQS has added, or took for equal to one that it has; then number and id are that one's, if given."""

    row: OutgoingRow
    sequence_number: int | None
    message_id: str | None
    may_be_older: bool
    """True if an earlier try, which had no answer for all rows, may have added it."""


@dataclass(frozen=True)
class CallOutcome:
    """The end of each row of a call: confirmed, refused, or `pending`: tried again, unless there is a `fault`."""

    confirmed: list[ConfirmedRow]
    pending: list[OutgoingRow]
    refused: list[OutgoingRow]
    """Each with its `refusal`."""
    fault: Exception | None
    """The error with which the task fails: something is wrong with the queue or the credentials."""
    is_silent: bool
    """True if SQS says nothing of a row, or that it took and failed it, so that it may have added it."""
    is_throttled: bool
    in_doubt: list[OutgoingRow]
    """Pending rows that SQS may have added: all but those that it has throttled."""
    code: str
    """The error code of pending rows."""


def classify(
    answer: Mapping[str, Any], tried: Mapping[str, OutgoingRow], queue_url: str, *, may_be_older: bool
) -> CallOutcome:
    """Return the outcome by `answer` of the rows that were `tried`, which are named by their entries' ids.

    `may_be_older` says that an earlier try may have added them. Answers for other ids count for nothing.
    """
    successful = {entry["Id"]: entry for entry in answer.get("Successful") or () if entry.get("Id") in tried}
    failed = {entry["Id"]: entry for entry in answer.get("Failed") or () if entry.get("Id") in tried}
    confirmed = {key: entry for key, entry in successful.items() if key not in failed}
    codes = {key: str(entry.get("Code")) for key, entry in failed.items()}
    errors = {
        key: error_from_aws(SEND, queue_url, codes[key], str(entry.get("Message", "")), sender_fault=entry)
        for key, entry in failed.items()
    }
    passing = {key: error for key, error in errors.items() if isinstance(error, TransientQueueError)}
    final = {key: error for key, error in errors.items() if isinstance(error, MessageRefusedError)}
    refused = [key for key in final if key not in successful]
    others = [error for key, error in errors.items() if key not in passing and key not in final]
    throttled = {key for key, error in passing.items() if error.is_throttling and key not in successful}
    return CallOutcome(
        [
            ConfirmedRow(row, _sequence_number(confirmed[key]), confirmed[key].get("MessageId"), may_be_older)
            for key, row in tried.items()
            if key in confirmed
        ],
        [row for key, row in tried.items() if key not in confirmed and key not in refused],
        [refusal(tried[key], codes[key], getattr(errors[key], "reason", "")) for key in tried if key in refused],
        others[0] if others else None,
        is_silent=not tried.keys() <= successful.keys() ^ failed.keys(),
        is_throttled=any(error.is_throttling for error in passing.values()),
        in_doubt=[
            row for key, row in tried.items() if key not in confirmed and key not in refused and key not in throttled
        ],
        code=next((codes[key] for key in reversed(codes) if key not in refused), "no answer for some entries"),
    )


def refusal(row: OutgoingRow, code: str, said: str) -> OutgoingRow:
    """Return the row as one that SQS refuses with this code, and the text it `said`, unless that shows the message."""
    why = f"{code}: {said}" if said and not _is_shown(row, said) else code
    return row._replace(refusal=f"{_IN_OUR_WORDS.get(code, 'SQS refuses it')} ({why})")


def _is_shown(row: OutgoingRow, said: str) -> bool:
    """Return whether body or attributes stand in SQS's words, as they are or as JSON has them, in part or whole."""
    attributes = row.entry.get("MessageAttributes", {}).values()
    texts = [row.entry["MessageBody"], *(value.get("StringValue", "") for value in attributes)]
    texts += [base64.b64encode(value.get("BinaryValue", b"")).decode() for value in attributes]
    # The words are short and a body may have 1 MiB, so it is the words that are cut into pieces.
    pieces = {_bare(said[start : start + _QUOTED]) for start in range(len(said) - _QUOTED + 1)}
    pieces = {each for each in pieces if len(each) > _SHORT}
    whole = _bare(said)
    for text in texts:
        for bare in {_bare(text), _bare(json.dumps(text)), _bare(json.dumps(text, ensure_ascii=False))}:
            if (len(bare) > _SHORT and bare in whole) or any(each in bare for each in pieces):
                return True
    return False


def _bare(text: str) -> str:
    """Return the text without the characters that a quote of it may add, drop or change."""
    text = "".join(text.split()).lower()
    for each in "\\\"'":
        text = text.replace(each, "")
    return text


def _sequence_number(entry: Mapping[str, Any]) -> int | None:
    number = str(entry.get("SequenceNumber"))
    return int(number) if number.isdecimal() else None
