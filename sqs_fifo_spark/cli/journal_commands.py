"""`journal show`, `cat` and `export`: the content of a journal, for an operator. Nothing is claimed or changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from sqs_fifo_spark.aws.calls import QueueCalls
from sqs_fifo_spark.cli.epochs import epoch_flags, epoch_of
from sqs_fifo_spark.cli.export import CONTENT, FORMATS, format_of, rows_as_json, write_file
from sqs_fifo_spark.cli.flags import journal_flags, parse_connection
from sqs_fifo_spark.cli.output import (
    Status,
    Track,
    json_flag,
    print_error,
    print_json,
    print_line,
    print_table,
    progress,
)
from sqs_fifo_spark.cli.view import journals_below, look_at, open_journal
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import EpochSettledError, SqsFifoError
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.repair import require_open
from sqs_fifo_spark.source.segment import Origin

_SHOWN = ("partition", "sequenceNumber", "messageGroupId", "messageId", "sentTimestamp", "receiveCount")
_RUNNING = {True: "running", False: "not running", None: "cannot be seen from here"}

_place = journal_flags(required=True)


def _open(journal_location: str, connection: Mapping[str, str | None]) -> Journal:
    """Return the journal. With `--queue-url` it has to be that queue's."""
    queue = None
    if connection["queue_url"] is not None:
        queue = QueueCalls(parse_connection(connection, journal_location), SYSTEM_CLOCK)
    return open_journal(journal_location, connection, queue)


@click.command(short_help="Show owner, committed epochs, and what the open ones hold.")
@_place
@json_flag
def show(journal_location: str, as_json: bool, **connection: str | None) -> Status:
    """Show who owns a journal, what of it is committed, and which messages its open epochs hold.

    Exits with 1 if an object is damaged. Of a sink's journal, it shows whose sent rows are recorded, how many, and when
    the last write of each began. Where a source reads several queues, each has a journal below: these are listed.
    """
    below = journals_below(journal_location, connection)
    if below:
        return _show_each(below, connection, as_json=as_json)
    journal = _open(journal_location, connection)
    with progress(is_shown=not as_json) as track:
        view = look_at(journal, track)
    (print_json if as_json else _print_view)(view)
    return Status.PROBLEM if view["damage"] else Status.OK


def _show_each(places: Mapping[str, str], connection: Mapping[str, str | None], *, as_json: bool) -> Status:
    """Print a line for each of these journals, by the keys of their queues; with JSON all that is known of it."""
    rows, failures = [], []
    is_well = True
    with progress(is_shown=not as_json) as track:
        for key, place in track(list(places.items()), "journals"):
            try:
                view = look_at(open_journal(place, connection), lambda items, what: items)
            except SqsFifoError as error:
                failures.append(f"{key}: {error}")
                continue
            is_well = is_well and not view["damage"]
            if as_json:
                print_json({"key": key, **view})
            else:
                rows.append(_journal_row(key, view))
    if rows:
        print_table(tuple(rows[0]), rows)
        example = next(iter(places.values()))
        print_line(f"for one of them: sqs-fifo-spark journal show --journal-location {example}")
    for line in failures:
        print_error(line)
    return Status.OK if is_well and not failures else Status.PROBLEM


def _journal_row(key: str, view: Mapping[str, Any]) -> dict[str, Any]:
    owner, plans = view["owner"], view["plans"]
    return {
        "queue": key,
        "owner": "nobody yet" if owner is None else f"claim {owner['claim']}, {_RUNNING[owner['isRunning']]}",
        "committed": view["ledger"]["settledEpoch"],
        "open epochs": len({plan["epoch"] for plan in plans}),
        "messages": sum(plan["messages"] for plan in plans),
        "caught": sum(plan["caughtMessages"] for plan in plans),
        "not deleted": view["ledger"]["unconfirmedDeletes"],
        "damaged": len(view["damage"]),
    }


def _print_view(view: Mapping[str, Any]) -> None:
    print_line(f"journal    {view['journal']} at {view['location']}")
    print_line(f"queue      {view['queueArn']}")
    if view["claims"] or not view["writers"]:  # a sink makes no claim, and has no epochs
        _print_source(view)
    if view["writers"]:
        print_table(tuple(view["writers"][0]), view["writers"])
    for line in view["damage"]:
        print_line(f"damaged    {line}", "red")


def _print_source(view: Mapping[str, Any]) -> None:
    ledger = view["ledger"]
    print_line(f"owner      {_owner_text(view['owner'])}")
    print_line(
        f"committed  up to epoch {ledger['settledEpoch']}; {ledger['unconfirmedDeletes']} deletes not confirmed, "
        f"{ledger['carriedMessages']} messages carried over, {view['leftoverObjects']} objects left"
    )
    if ledger["payloadsToDelete"]:
        print_line(
            f"payloads   {ledger['payloadsToDelete']} on S3 to delete when this was committed; most are gone by now"
        )
    if view["skippedMessages"]:
        print_line(f"skipped    {', '.join(view['skippedMessages'])}")
    rows = list(map(_plan_row, view["plans"]))
    if rows:
        print_table(tuple(rows[0]), rows)
    else:
        print_line("open       no epoch")


def _owner_text(owner: Mapping[str, Any] | None) -> str:
    if owner is None:
        return "nobody yet"
    if owner["isCommand"]:
        return f"claim {owner['claim']}, of a command on {owner['host']}; no query has started since"
    return (
        f"claim {owner['claim']}, process {owner['pid']} on {owner['host']}, claimed at {owner['claimedTimestamp']}; "
        f"{_RUNNING[owner['isRunning']]}"
    )


def _plan_row(plan: Mapping[str, Any]) -> dict[str, Any]:
    age_s = plan["oldestAgeSeconds"]
    return {
        "epoch": plan["epoch"],
        "plan": plan["plan"],
        "partitions": f"{plan['partitionsStored']} of {plan['partitions']}",
        "segments": plan["segments"],
        "closed": "yes" if plan["isClosed"] else "no",
        "messages": plan["messages"],
        "deferred": plan["deferredMessages"],
        "caught": plan["caughtMessages"],
        "bytes": plan["bytes"],
        "oldest": "" if age_s is None else f"{age_s:.0f} s ago",
    }


def _plans(journal: Journal, epoch: int, plan: int | None) -> dict[int, list[str]]:
    """Return the names of the epoch's segments, in order, by plan; of all plans, or of `plan`.

    Raises EpochSettledError if there are none.
    """
    require_open(journal, epoch)
    found: dict[int, list[str]] = defaultdict(list)
    for name in sorted(journal.objects().get(epoch, ())):
        number = journal.plan_of(name)
        if number is not None and plan in (None, number) and journal.link_of(name, number):
            found[number].append(name)
    if not found:
        which = f"epoch {epoch}" if plan is None else f"plan {plan} of epoch {epoch}"
        raise EpochSettledError(
            f"the journal at '{journal.location}' has nothing of {which}: none of it is sealed. 'journal show' lists "
            "what there is."
        )
    return found


def _served_rows(
    journal: Journal, epoch: int, plans: dict[int, list[str]], track: Track
) -> Iterator[tuple[Origin, pa.RecordBatch]]:
    """Yield the served rows of each segment, in order. Raises EpochSettledError if the epoch is committed meanwhile."""
    skipped = journal.skipped()
    for name in track([name for names in plans.values() for name in names], f"epoch {epoch}"):
        segment = journal.read(name)
        if segment is None:
            raise EpochSettledError(
                f"epoch {epoch} was committed, and '{name}' dropped, while it was read. Its messages are deleted."
            )
        yield segment.head.origin, segment.served(skipped)
    require_open(journal, epoch)


_plan = click.option(
    "--plan",
    type=click.IntRange(min=0),
    help="Only what was put for this plan, as 'journal show' names it. Spark has logged one plan of an epoch; "
    "what stands under another is not content. Default: all.",
)


@click.command(short_help="Print the messages of an epoch.")
@_place
@epoch_flags
@_plan
@click.option("--message-id", help="Only the message with this id. Exits with 1 if it is not there.")
@click.option("--bodies", is_flag=True, help="Show bodies and attributes too. They are somebody's data.")
@json_flag
def cat(
    journal_location: str,
    epoch: int | None,
    plan: int | None,
    message_id: str | None,
    bodies: bool,
    as_json: bool,
    batch: int | None = None,
    checkpoint_location: str | None = None,
    **connection: str | None,
) -> Status:
    """Print the messages that an epoch serves, in the order in which its partitions have them.

    With --json, one line for each message. What a later epoch serves is left out, and so are receipt handles.
    """
    journal = _open(journal_location, connection)
    epoch = epoch_of(journal, epoch, batch, checkpoint_location)
    plans = _plans(journal, epoch, plan)
    rows = []
    is_found = message_id is None
    with progress(is_shown=not as_json) as track:
        for origin, batch in _served_rows(journal, epoch, plans, track):
            for row in rows_as_json(batch, bodies=bodies):
                if message_id not in (None, row["messageId"]):
                    continue
                is_found = True
                placed = {"plan": origin.plan, "partition": origin.partition, "link": origin.link, **row}
                if as_json:
                    print_json(placed)
                else:
                    rows.append(placed)
    if not as_json:
        print_table(_SHOWN + CONTENT if bodies else _SHOWN, rows)
    if not is_found:
        print_error(f"epoch {epoch} has no message with the id '{message_id}'")
        return Status.PROBLEM
    return Status.OK


@click.command(short_help="Copy the messages of an epoch to a file.")
@_place
@epoch_flags
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
    epoch: int | None,
    plan: int | None,
    to_file: Path,
    file_format: str | None,
    force: bool,
    as_json: bool,
    batch: int | None = None,
    checkpoint_location: str | None = None,
    **connection: str | None,
) -> Status:
    """Copy the messages that an epoch serves, with their bodies, to a file; the journal stays as it is.

    The columns are those of the source. Give --plan where the epoch has several plans.
    """
    chosen = format_of(to_file, file_format)
    journal = _open(journal_location, connection)
    epoch = epoch_of(journal, epoch, batch, checkpoint_location)
    plans = _plans(journal, epoch, plan)
    if len(plans) > 1:
        raise click.UsageError(
            f"epoch {epoch} has {len(plans)} plans ({', '.join(map(str, plans))}), and Spark has logged one of them: "
            "its offset log shows which. Give --plan."
        )
    with progress(is_shown=not as_json) as track:
        rows = (batch for _, batch in _served_rows(journal, epoch, plans, track))
        count = write_file(to_file, chosen, rows, replace=force)
    if as_json:
        print_json({"epoch": epoch, "plan": next(iter(plans)), "messages": count, "file": str(to_file)})
    else:
        print_line(f"{count} messages of epoch {epoch} are in {to_file}")
    return Status.OK
