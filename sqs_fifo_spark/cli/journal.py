"""`journal show`, `cat` and `export`: the content of a journal, for an operator. Nothing is claimed or changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import pyarrow as pa

from sqs_fifo_spark.aws.calls import QueueCalls
from sqs_fifo_spark.cli.export import FORMATS, format_of, row_as_json, write_file
from sqs_fifo_spark.cli.flags import (
    access_of,
    checked_location,
    journal_flags,
    parse_connection,
)
from sqs_fifo_spark.cli.output import (
    Status,
    Track,
    json_flag,
    print_error,
    print_json,
    print_line,
    print_table,
    progress,
    time_text,
)
from sqs_fifo_spark.cli.view import JournalView, PlanView, look_at, open_to_look, plans_of
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import EpochSettledError
from sqs_fifo_spark.sink.marks import Writer
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.owner import Owner
from sqs_fifo_spark.source.repair import require_open

F = TypeVar("F", bound=Callable[..., Any])
_CONTENT = ("body", "messageAttributes")
"""The columns that are somebody's data."""
_PLAN_COLUMNS = (
    "epoch",
    "plan",
    "partitions",
    "segments",
    "closed",
    "messages",
    "deferred",
    "caught",
    "bytes",
    "oldest",
)
_SHOWN = ("partition", "sequenceNumber", "messageGroupId", "messageId", "sentTimestamp", "receiveCount")


def _place(command: F) -> F:
    """Add the flags that name the journal, and the queue that it has to belong to."""
    return journal_flags(required=True)(command)


def _open(journal_location: str, connection: dict[str, str | None]) -> Journal:
    """Return the journal. With `--queue-url` the queue is asked for its ARN, which must be the journal's."""
    location = checked_location(journal_location)
    access = access_of(connection, location)
    if connection["queue_url"] is None:
        return open_to_look(location, access)
    queue = QueueCalls(parse_connection(connection, location), SYSTEM_CLOCK)
    return open_to_look(location, access, queue.describe().arn)


@click.command(short_help="Show owner, committed epochs, and what the open ones hold.")
@_place
@json_flag
def show(journal_location: str, as_json: bool, **connection: str | None) -> Status:
    """Show who owns a journal, what of it is committed, and which messages its open epochs hold.

    Exits with 1 if an object is damaged. Of a sink's journal, it shows whose sent rows are recorded, how many, and when
    the last write of each began.
    """
    journal = _open(journal_location, connection)
    with progress(is_shown=not as_json) as track:
        view = look_at(journal, track)
    (_print_view_json if as_json else _print_view)(journal, view)
    return Status.PROBLEM if view.damage else Status.OK


def _print_view_json(journal: Journal, view: JournalView) -> None:
    ledger = view.ledger
    print_json(
        {
            "location": journal.location,
            "journal": journal.id,
            "queueArn": journal.queue_arn,
            "claims": view.claims,
            "owner": _owner_json(view.owner),
            "skippedMessages": view.skipped,
            "ledger": {
                "settledEpoch": ledger.epoch,
                "settledPlan": ledger.plan,
                "unconfirmedDeletes": len(ledger.unconfirmed),
                "carriedMessages": sum(map(len, ledger.carried.values())),
            },
            "leftoverObjects": view.leftovers,
            "plans": [
                {
                    "epoch": each.epoch,
                    "plan": each.plan,
                    "partitions": each.partitions,
                    "partitionsStored": len(each.chains),
                    "segments": each.segments,
                    "isClosed": each.is_closed,
                    "messages": each.messages,
                    "deferredMessages": each.deferred,
                    "caughtMessages": each.caught,
                    "bytes": each.size,
                    "oldestSentTimestamp": None if each.oldest_ms is None else time_text(each.oldest_ms / 1_000),
                    "oldestAgeSeconds": _age_s(each),
                }
                for each in view.plans
            ],
            "writers": list(map(_writer_json, view.writers)),
            "damage": view.damage,
        }
    )


def _print_view(journal: Journal, view: JournalView) -> None:
    print_line(f"journal    {journal.id} at {journal.location}")
    print_line(f"queue      {journal.queue_arn}")
    if view.claims or not view.writers:  # a sink makes no claim, and has no epochs
        _print_source(view)
    if view.writers:
        rows = list(map(_writer_json, view.writers))
        print_table(tuple(rows[0]), (tuple(row.values()) for row in rows))
    for line in view.damage:
        print_line(f"damaged    {line}", "red")


def _print_source(view: JournalView) -> None:
    ledger = view.ledger
    carried = sum(map(len, ledger.carried.values()))
    print_line(f"owner      {_owner_text(view.owner)}")
    print_line(
        f"committed  up to epoch {ledger.epoch}; {len(ledger.unconfirmed)} deletes not confirmed, {carried} messages "
        f"carried over, {view.leftovers} objects left"
    )
    if view.skipped:
        print_line(f"skipped    {', '.join(view.skipped)}")
    if view.plans:
        print_table(_PLAN_COLUMNS, map(_plan_row, view.plans))
    else:
        print_line("open       no epoch")


def _owner_json(owner: Owner | None) -> dict[str, Any] | None:
    if owner is None:
        return None
    return {
        "claim": owner.claim,
        "host": owner.host,
        "pid": owner.pid,
        "claimedTimestamp": time_text(owner.claimed_at),
        "isCommand": owner.is_command,
        "isRunning": owner.is_running_here(),
    }


def _owner_text(owner: Owner | None) -> str:
    if owner is None:
        return "nobody yet"
    if owner.is_command:
        return f"claim {owner.claim}, of a command on {owner.host}; no query has started since"
    states = {True: "running", False: "not running", None: "cannot be seen from here"}
    return f"{owner}, claimed at {time_text(owner.claimed_at)}; {states[owner.is_running_here()]}"


def _plan_row(each: PlanView) -> tuple[Any, ...]:
    age_s = _age_s(each)
    return (
        each.epoch,
        each.plan,
        f"{len(each.chains)} of {each.partitions}",
        each.segments,
        "yes" if each.is_closed else "no",
        each.messages,
        each.deferred,
        each.caught,
        each.size,
        "" if age_s is None else f"{age_s:.0f} s ago",
    )


def _writer_json(each: Writer) -> dict[str, Any]:
    counts = {"rows": each.rows, "bytes": each.size, "objects": each.objects}
    return {"writer": each.name, **counts, "lastUsedTimestamp": time_text(each.last_used_at)}


def _age_s(each: PlanView) -> float | None:
    return None if each.oldest_ms is None else max(0.0, round(SYSTEM_CLOCK.now() - each.oldest_ms / 1_000, 3))


@dataclass(frozen=True)
class _Part:
    """The rows that one segment serves."""

    plan: int
    partition: int
    link: int
    rows: pa.RecordBatch


def _parts(journal: Journal, epoch: int, plans: dict[int, list[str]], track: Track) -> Iterator[_Part]:
    """Yield the served rows of each segment, in order. Raises EpochSettledError if the epoch is committed meanwhile."""
    skipped = journal.skipped()
    for name in track([name for names in plans.values() for name in names], f"epoch {epoch}"):
        segment = journal.read(name)
        if segment is None:
            raise EpochSettledError(
                f"epoch {epoch} was committed, and '{name}' dropped, while it was read. Its messages are deleted."
            )
        origin = segment.head.origin
        yield _Part(origin.plan, origin.partition, origin.link, segment.served(skipped))
    require_open(journal, epoch)


def _plans(journal: Journal, epoch: int, plan: int | None) -> dict[int, list[str]]:
    """Return the names of the epoch's segments, by plan, of all or of `plan`; EpochSettledError if there are none."""
    require_open(journal, epoch)
    found = plans_of(journal, epoch)
    if plan is not None:
        found = {number: names for number, names in found.items() if number == plan}
    if not found:
        which = f"epoch {epoch}" if plan is None else f"plan {plan} of epoch {epoch}"
        raise EpochSettledError(
            f"the journal at '{journal.location}' has nothing of {which}: none of it is sealed. 'journal show' lists "
            "what there is."
        )
    return found


_epoch = click.option("--epoch", type=click.IntRange(min=1), required=True, help="Number of the epoch.")
_plan = click.option(
    "--plan",
    type=click.IntRange(min=0),
    help="Only what was put for this plan, as 'journal show' names it. Spark has logged one plan of an epoch; "
    "what stands under another is not content. Default: all.",
)


@click.command(short_help="Print the messages of an epoch.")
@_place
@_epoch
@_plan
@click.option("--message-id", help="Only the message with this id. Exits with 1 if it is not there.")
@click.option("--bodies", is_flag=True, help="Show bodies and attributes too. They are somebody's data.")
@json_flag
def cat(
    journal_location: str,
    epoch: int,
    plan: int | None,
    message_id: str | None,
    bodies: bool,
    as_json: bool,
    **connection: str | None,
) -> Status:
    """Print the messages that an epoch serves, in the order in which its partitions have them.

    With --json, one line for each message. What a later epoch serves is left out, and so are receipt handles.
    """
    journal = _open(journal_location, connection)
    plans = _plans(journal, epoch, plan)
    rows = []
    is_found = message_id is None
    with progress(is_shown=not as_json) as track:
        for part in _parts(journal, epoch, plans, track):
            names = [name for name in part.rows.schema.names if bodies or name not in _CONTENT]
            for row in pa.Table.from_batches([part.rows]).select(names).to_pylist():
                if message_id not in (None, row["messageId"]):
                    continue
                is_found = True
                placed = {"plan": part.plan, "partition": part.partition, "link": part.link, **row_as_json(row)}
                if as_json:
                    print_json(placed)
                else:
                    rows.append(placed)
    if not as_json:
        columns = (*_SHOWN, *(_CONTENT if bodies else ()))
        print_table(columns, ([row[column] for column in columns] for row in rows))
    if not is_found:
        print_error(f"epoch {epoch} has no message with the id '{message_id}'")
        return Status.PROBLEM
    return Status.OK


@click.command(short_help="Copy the messages of an epoch to a file.")
@_place
@_epoch
@_plan
@click.option(
    "--to-file",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The file to write, readable by you alone. It appears whole or not at all.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FORMATS),
    help="parquet, or jsonl: a JSON object on each line, which 'send --file' takes. Default: as the file's name ends.",
)
@click.option("--force", is_flag=True, help="Replace the file if it is there. Without it, such a file is an error.")
@json_flag
def export(
    journal_location: str,
    epoch: int,
    plan: int | None,
    to_file: Path,
    file_format: str | None,
    force: bool,
    as_json: bool,
    **connection: str | None,
) -> Status:
    """Copy the messages that an epoch serves, with their bodies, to a file; the journal stays as it is.

    The columns are those of the source. Give --plan where the epoch has several plans.
    """
    chosen = format_of(to_file, file_format)
    journal = _open(journal_location, connection)
    plans = _plans(journal, epoch, plan)
    if len(plans) > 1:
        raise click.UsageError(
            f"epoch {epoch} has {len(plans)} plans ({', '.join(map(str, plans))}), and Spark has logged one of them: "
            "its offset log tells which. Give --plan."
        )
    with progress(is_shown=not as_json) as track:
        rows = (part.rows for part in _parts(journal, epoch, plans, track))
        count = write_file(to_file, chosen, rows, replace=force)
    if as_json:
        print_json({"epoch": epoch, "plan": next(iter(plans)), "messages": count, "file": str(to_file)})
    else:
        print_line(f"{count} messages of epoch {epoch} are in {to_file}")
    return Status.OK
