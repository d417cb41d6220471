"""`send`: adds messages to a queue, each group's in order."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

import click

from sqs_fifo_spark.aws.calls import CALL_BUDGET_S, MAX_ENTRIES
from sqs_fifo_spark.aws.named import with_url
from sqs_fifo_spark.cli.flags import connection_flags, given_options
from sqs_fifo_spark.cli.output import Status, json_flag, print_error, print_json, print_line, status_of
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.columns import ARROW_SCHEMA
from sqs_fifo_spark.errors import SqsFifoError
from sqs_fifo_spark.options import SINK, parse_sink_options
from sqs_fifo_spark.sink.outcome import ConfirmedRow
from sqs_fifo_spark.sink.outgoing import COLUMNS, OutgoingRow, RefusedRowError, RowForm, outgoing
from sqs_fifo_spark.sink.sink_queue import SinkQueue

_TEXTS = tuple(name for name in COLUMNS if name != "messageAttributes")


@click.command(short_help="Send messages.")
@connection_flags
@click.option("--group", help="Message group of all messages. Default: each line's own messageGroupId.")
@click.option(
    "--dedup-id",
    help="Deduplication id of the one message that --body gives. Without one, the queue must have "
    "ContentBasedDeduplication.",
)
@click.option("--body", help="Body of one message.")
@click.option(
    "--file",
    type=click.File("rb"),
    help="File of JSON lines, or - for the standard input. Each line is an object with body, messageGroupId, "
    "messageDeduplicationId, messageAttributes and awsTraceHeader; the source's other columns are ignored.",
)
@json_flag
def send(
    group: str | None,
    dedup_id: str | None,
    body: str | None,
    file: IO[bytes] | None,
    as_json: bool,
    **connection: str | None,
) -> Status:
    """Send one message, or the messages of a file, each group's in the order of the lines.

    All lines are read and checked before the first message is sent. A group's next message is sent only after SQS has
    confirmed the one before. If SQS fails, what was confirmed is sent, and printed; repeat the command within 5 minutes
    and SQS takes nothing twice. With --json, one line for each message.
    """
    if (body is None) == (file is None):
        raise click.UsageError("give either --body or --file.")
    if file is not None and dedup_id is not None:
        raise click.UsageError("--dedup-id is for the one message of --body; lines have messageDeduplicationId.")
    if body is not None and not group:
        raise click.UsageError("--group is missing: the message of --body needs a message group, such as auction-1.")
    options = with_url(parse_sink_options, given_options({**connection, "message_group_id": group}, SINK))
    lines = [{"body": body, "messageDeduplicationId": dedup_id}] if file is None else _read(file)
    if not lines:
        raise click.UsageError("there is no line, so nothing to send.")
    queue = SinkQueue(options, SYSTEM_CLOCK)
    done: list[ConfirmedRow] = []

    def note_confirmed(found: list[ConfirmedRow], pending: list[OutgoingRow]) -> None:
        done.extend(found)
        for each in found:
            (_print_json if as_json else _print)(each)

    try:
        for call in _calls(_messages(lines, queue, options.message_group_id)):
            deadline = SYSTEM_CLOCK.monotonic() + CALL_BUDGET_S
            queue.send(call, note_confirmed, stopped=threading.Event(), deadline=deadline)
        added = len({each.message_id for each in done})
        if not as_json:
            print_line(f"{added} of {len(lines)} messages sent")
    except RefusedRowError as error:
        which = "the message" if file is None else f"line {error.row}"
        print_error(f"{which} cannot be sent: {error.reason}. {_confirmed_text(done, lines)}")
        return Status.PROBLEM
    except SqsFifoError as error:
        print_error(f"{error} {_confirmed_text(done, lines)}")
        return status_of(error)
    except (OSError, KeyboardInterrupt, SystemExit):  # rich raises SystemExit at a closed pipe
        click.echo(_confirmed_text(done, lines), err=True)
        raise
    if added < len(done):
        print_error(
            f"SQS took {len(done) - added} of the messages for copies of others in the file, as they have the same "
            "deduplication id, or body: the same message id is printed for both. Give each an id of its own."
        )
    return Status.OK if added == len(done) else Status.PROBLEM


def _confirmed_text(done: Sequence[ConfirmedRow], lines: Sequence[Any]) -> str:
    return f"{len(done)} of {len(lines)} messages were confirmed before."


def _read(file: IO[bytes]) -> list[dict[str, Any]]:
    """Return the messages on the lines of the file. Raises UsageError for a line that is no message's."""
    lines = []
    for number, line in enumerate(file, start=1):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise click.UsageError(f"line {number} is not a JSON object.")
        unknown = found.keys() - set(ARROW_SCHEMA.names)
        if unknown:
            raise click.UsageError(
                f"line {number} has {min(unknown)!r}, which is no column; those that are sent are {', '.join(COLUMNS)}."
            )
        lines.append({**found, "messageAttributes": _attributes(number, found.get("messageAttributes"))})
    return lines


def _attributes(number: int, attributes: Any) -> list[tuple[str, Any]]:
    """Return attributes as rows have them; each is a string, or an object such as the source's columns have."""
    attributes = {} if attributes is None else attributes
    if not isinstance(attributes, dict) or not all(isinstance(value, (str, dict)) for value in attributes.values()):
        raise click.UsageError(f"line {number}: messageAttributes must be an object of strings or objects.")
    return [(name, _value(number, name, value)) for name, value in attributes.items()]


def _value(number: int, name: str, value: str | dict[str, Any]) -> Any:
    if isinstance(value, str):
        return value
    binary = value.get("binaryValue")
    texts = (value.get("dataType"), value.get("stringValue"), binary)
    if not all(text is None or isinstance(text, str) for text in texts):
        raise click.UsageError(f"line {number}: the attribute {name!r} must have strings.")
    try:
        return {**value, "binaryValue": binary and base64.b64decode(binary, validate=True)}
    except ValueError:
        raise click.UsageError(f"line {number}: the binaryValue of {name!r} must be base64.") from None


def _messages(lines: Sequence[Mapping[str, Any]], queue: SinkQueue, group: str | None) -> list[OutgoingRow]:
    """Return the messages as they are sent. Raises RefusedRowError for the first that SQS would not take."""
    for number, line in enumerate(lines, start=1):
        if not all(isinstance(line.get(name), (str, type(None))) for name in _TEXTS):
            raise RefusedRowError(number, f"{', '.join(_TEXTS)} must be strings")
    facts = queue.describe()
    has_ids = any(line.get("messageDeduplicationId") is not None for line in lines)
    if not has_ids and not facts.has_content_based_deduplication:
        raise click.UsageError(
            "the queue has no ContentBasedDeduplication, so each message needs an id by which SQS recognises it. Give "
            "--dedup-id, or messageDeduplicationId on each line."
        )
    form = RowForm(group, has_ids, facts.max_message_bytes)
    columns = [[line.get(name) for line in lines] for name in COLUMNS]
    return outgoing(columns, form, first_row=1)


def _calls(rows: Sequence[OutgoingRow]) -> list[list[OutgoingRow]]:
    """Return the rows in calls that hold at most one of each group, and up to ten in all; each group's in order."""
    calls: list[list[OutgoingRow]] = []
    groups: set[str] = set()
    for row in rows:
        if not calls or row.group in groups or len(calls[-1]) == MAX_ENTRIES:
            calls.append([])
            groups = set()
        calls[-1].append(row)
        groups.add(row.group)
    return calls


def _print(each: ConfirmedRow) -> None:
    print_line(f"{each.message_id}  {each.row.group}  {each.sequence_number or ''}")


def _print_json(each: ConfirmedRow) -> None:
    print_json(
        {
            "line": each.row.row,
            "messageId": each.message_id,
            "messageGroupId": each.row.group,
            "sequenceNumber": None if each.sequence_number is None else str(each.sequence_number),
        }
    )
