"""`journal skip`, `release` and `forget`: an operator's changes in a journal whose query does not run."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, TypeAlias

import click
import pyarrow as pa

from sqs_fifo_spark.aws.calls import CALL_BUDGET_S
from sqs_fifo_spark.aws.named import with_url
from sqs_fifo_spark.cli.epochs import epoch_flags, epoch_of
from sqs_fifo_spark.cli.export import json_lines
from sqs_fifo_spark.cli.flags import given_options, journal_flags, parse_connection
from sqs_fifo_spark.cli.output import Status, json_flag, print_error, print_json, print_line, time_text
from sqs_fifo_spark.cli.queue_checks import require_sending
from sqs_fifo_spark.cli.view import open_journal
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import OptionError, RowError
from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.options import SINK, parse_sink_options
from sqs_fifo_spark.sink import marks
from sqs_fifo_spark.sink.outgoing import OutgoingRow, RefusedRowError, RowForm, columns_of, outgoing
from sqs_fifo_spark.sink.sink_queue import SinkQueue
from sqs_fifo_spark.source import repair
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.owner import Owner, longest_wait_s
from sqs_fifo_spark.source.queue import Queue

PutAside: TypeAlias = Callable[[pa.RecordBatch], None]

LATELY_S = 86_400
"""A writer that was used since then may be in use."""

_force = click.option(
    "--force",
    is_flag=True,
    help="Take the journal from a query that runs, too: it stops with FencedError, perhaps after its sink has got the "
    "micro-batch under way.",
)


@click.command(short_help="Move a message aside on which the query fails.")
@journal_flags(required=True, has_queue=False)
@epoch_flags
@click.option("--message-id", required=True, help="Id of the message, as 'journal cat' shows it.")
@click.option("--to-file", type=click.Path(dir_okay=False, path_type=Path), help="File to add the row to, as JSON.")
@click.option("--to-queue", help="URL of the FIFO queue to send the message to, such as a dead-letter queue.")
@_force
@json_flag
def skip(
    journal_location: str,
    epoch: int | None,
    message_id: str,
    to_file: Path | None,
    to_queue: str | None,
    force: bool,
    as_json: bool,
    batch: int | None = None,
    checkpoint_location: str | None = None,
    **connection: str | None,
) -> Status:
    """Move one message of an open epoch aside, so that the query goes on without it.

    Stop the query first. The message is written to a file or another queue, and then marked in the journal: a query
    that starts after that does not serve it, and deletes it with its epoch. The sink may have it already, if the
    micro-batch had got that far. The mark says who moved it, where to, and when. Run again, the command changes
    nothing; with --json, wasMovedBefore is true then. A message that is sent to a queue gets its message id as
    deduplication id: SQS takes it once in 5 minutes.
    """
    if (to_file is None) == (to_queue is None):
        raise click.UsageError("give either --to-file or --to-queue.")
    journal = open_journal(journal_location, connection)
    epoch = epoch_of(journal, epoch, batch, checkpoint_location)
    is_moved = False
    if journal.skip_of(message_id) is None:
        row = repair.find(journal, epoch, message_id)
        to = str(to_queue if to_file is None else to_file.absolute())
        aside: AbstractContextManager[PutAside] = (
            nullcontext(_to_queue(journal, to, connection, row)) if to_file is None else _to_file(to_file, message_id)
        )
        after = _owner_to_follow(journal, force=force)
        with aside as put_aside:
            takeover = repair.take_over(journal, SYSTEM_CLOCK, after=after)  # last, so that no query stops for nothing
            is_moved = repair.skip(
                takeover, epoch, message_id, SYSTEM_CLOCK, to=to, put_aside=put_aside, is_on_host=to_file is not None
            )
    mark = journal.skip_of(message_id) or {}
    if as_json:
        print_json({**mark, "wasMovedBefore": not is_moved})
    elif is_moved:
        print_line(
            f"message {message_id} of epoch {epoch} is in '{mark.get('to')}'. The query goes on without it when it is "
            "started."
        )
    else:
        print_line(
            f"message {message_id} was moved to '{mark.get('to')}' before, at {mark.get('at')} on {mark.get('host')}; "
            "nothing was changed."
        )
    return Status.OK


@click.command(short_help="Release what a stopped query still holds.")
@journal_flags(required=True)
@_force
@json_flag
def release(journal_location: str, force: bool, as_json: bool, **connection: str | None) -> Status:
    """Release the messages that a stopped query still holds: SQS can deliver them to anybody at once.

    Without this they are free after their visibility timeout. None is deleted, and the journal keeps all of them: if
    the query starts again, it serves them from there, even if other consumers have received them meanwhile. Copies that
    SQS delivers to the query again are recognised. Safe to repeat.
    """
    queue = Queue(parse_connection(connection, journal_location), SYSTEM_CLOCK)
    journal = open_journal(journal_location, connection, queue)
    found = Counter[Outcome]()
    if journal.claims():
        after = _owner_to_follow(journal, force=force)
        found = repair.release(repair.take_over(journal, SYSTEM_CLOCK, after=after), queue)
    released, lost, failed = (found[outcome] for outcome in (Outcome.DONE, Outcome.LOST, Outcome.FAILED))
    if as_json:
        print_json({"messages": found.total(), "released": released, "notHeld": lost, "notAnswered": failed})
    else:
        print_line(f"{released} of {found.total()} messages were released; {lost} were deleted, or not held any more.")
    if failed:
        print_error(f"SQS has not released {failed} messages: they are free once their visibility timeout is over.")
    return Status.PROBLEM if failed else Status.OK


@click.command(short_help="Forget what was sent for a query that is given up.")
@journal_flags(required=True, has_queue=False)
@click.option("--writer", required=True, help="Id of the query, or the txnAppId, as 'journal show' names it.")
@click.option("--force", is_flag=True, help="Forget it, too, if it was used in the last 24 hours.")
@json_flag
def forget(journal_location: str, writer: str, force: bool, as_json: bool, **connection: str | None) -> Status:
    """Drop what a sink's journal knows of a query, or txnAppId, that nobody uses any more.

    A small mark stays. If a micro-batch, or txnVersion, that is forgotten runs again after all, it is refused with an
    error, so nothing is sent twice. Safe to repeat, also after it broke off. Exits with 1 if nothing was ever recorded
    for the writer.
    """
    store = open_journal(journal_location, connection).store
    known = next((each for each in marks.writers(store)[0] if each.name == writer), marks.Writer(writer))
    if known.objects:
        _require_own_user(store)
        if not force and SYSTEM_CLOCK.now() - known.last_used_at < LATELY_S:
            raise click.ClickException(
                f"the writer '{writer}' may be in use: its last write began at {time_text(known.last_used_at)}, less "
                f"than {LATELY_S // 3_600} hours ago. If it is forgotten, a micro-batch of it that runs again is "
                "refused. Give --force if nobody uses it any more."
            )
    if not marks.forget_writer(store, known):
        print_error(
            f"nothing was recorded for the writer '{writer}' in the journal at '{store.location}'. 'journal show' "
            "lists the writers."
        )
        return Status.PROBLEM
    if as_json:
        print_json({"writer": writer, "rows": known.rows, "bytes": known.size, "objects": known.objects})
    elif known.objects:
        print_line(f"{known.rows} rows of the writer '{writer}' are forgotten: {known.objects} objects.")
    else:
        print_line(f"the writer '{writer}' was forgotten before; nothing was changed.")
    return Status.OK


def _owner_to_follow(journal: Journal, *, force: bool) -> int | None:
    """Return the claim of the owner, once that is known not to run; None by `force`. FencedError if it runs."""

    def tell(owner: Owner) -> None:
        click.echo(f"asking whether {owner} still runs, for up to {longest_wait_s(owner):.0f} s ...", err=True)

    _require_own_user(journal.store)
    return None if force else repair.require_no_owner(journal, SYSTEM_CLOCK, before_wait=tell)


def _require_own_user(store: Store) -> None:
    """Raise ClickException for a journal in a directory of another user, whose query could not read our objects."""
    if isinstance(store, FileStore):
        try:
            owner = Path(store.location, "journal.json").stat().st_uid
        except OSError as error:
            raise click.ClickException(f"cannot look at '{store.location}': {error.strerror or error}.") from None
        if owner != os.geteuid():
            raise click.ClickException(
                f"the journal at '{store.location}' belongs to the user of id {owner}, whose query could not read what "
                f"this one, {os.geteuid()}, writes there. Run the command as that user."
            )


@contextmanager
def _to_file(file: Path, message_id: str) -> Iterator[PutAside]:
    """Open the file, for this process alone, and yield a function that adds a row to it, unless it is there already."""
    try:
        with _open_to_add(file) as out:
            fcntl.flock(out, fcntl.LOCK_EX)
            there = out.read()
            os.fsync(out.fileno())  # whoever wrote it may have been killed before that
            is_there = message_id in map(_id_in, there.splitlines())

            def add(row: pa.RecordBatch) -> None:
                (line,) = json_lines(row)
                # A line that was cut off by a crash stays as it is, on a line of its own.
                out.write((b"\n" if there and not there.endswith(b"\n") else b"") + line)
                out.flush()
                os.fsync(out.fileno())

            yield (lambda row: None) if is_there else add
    except OSError as error:
        raise click.ClickException(f"cannot write '{file}': {error.strerror or error}.") from None


def _open_to_add(file: Path) -> IO[bytes]:
    """Return the file, opened to be read and added to; it outlives a crash even if it is made now."""
    if file.exists() and not file.is_file():
        raise click.UsageError(f"'{file}' is not a regular file.")
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.fsync(folder)
    finally:
        os.close(folder)
    return os.fdopen(descriptor, "r+b")


def _id_in(line: bytes) -> str | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found.get("messageId") if isinstance(found, dict) else None


def _to_queue(journal: Journal, url: str, connection: Mapping[str, str | None], row: pa.RecordBatch) -> PutAside:
    """Return a function that sends a row to the queue. Raises now for faults that show before `row` is sent there."""
    others = {name: value for name, value in connection.items() if not name.startswith(("journal_", "queue_"))}
    options = with_url(parse_sink_options, given_options({**others, "queue_url": url}, SINK))
    queue = SinkQueue(options, SYSTEM_CLOCK)
    facts = queue.describe()
    if facts.arn == journal.queue_arn:
        raise OptionError(
            f"'{url}' is the queue that the journal's query reads, so the message would come back to it. Give another "
            "FIFO queue, or --to-file."
        )
    require_sending(options)
    form = RowForm(None, True, facts.max_message_bytes)

    @contextmanager
    def row_errors() -> Iterator[None]:
        try:
            yield
        except RefusedRowError as error:
            raise RowError(f"'{url}' does not take the message: {error.reason}. Use --to-file.") from None

    def message_of(row: pa.RecordBatch) -> OutgoingRow:
        # Its own deduplication id may be another message's too, in a queue that several are moved to.
        sources = ("messageId" if name == "messageDeduplicationId" else name for name in row.schema.names)
        row = pa.RecordBatch.from_arrays([row.column(name) for name in sources], schema=row.schema)
        (message,) = outgoing(columns_of(row), form, first_row=1)
        return message

    def send(row: pa.RecordBatch) -> None:
        deadline = SYSTEM_CLOCK.monotonic() + CALL_BUDGET_S
        with row_errors():
            queue.send([message_of(row)], lambda found, pending: None, stopped=threading.Event(), deadline=deadline)

    with row_errors():
        message_of(row)
    return send
