"""An operator's changes in a journal whose query does not run: move a message aside, release messages in flight.

Both begin by taking the journal over, as a new driver does: with a claim of one's own, and the newest ledger under it.
So a query that runs after all, and tasks that it has left, stop with FencedError, and the next query finds all as it
was. A message that is moved aside is not removed from its segment: it is marked, a driver that opens the journal reads
all marks, and its plans bid the tasks not to serve those messages. They are settled with their epochs like all others.
"""

from __future__ import annotations

import getpass
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import EpochSettledError, FencedError, SqsFifoError
from sqs_fifo_spark.payloads.pointer import pointer_in
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.driver.startup import settle_claim
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.ledger import Ledger
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.owner import Owner, is_alive, this_command
from sqs_fifo_spark.source.queue import Queue


class NoSuchMessageError(SqsFifoError):
    """An epoch that is not settled does not have this message, or nothing of the epoch is there."""


@dataclass(frozen=True)
class Takeover:
    journal: Journal
    claim: int
    ledger: Ledger
    unsettled: dict[int, list[str]]
    """Names of the objects of epochs that are not settled."""

    def require_claim(self) -> None:
        """Raise FencedError if a query has taken the journal over since."""
        self.journal.require_claim(self.claim)


def require_no_owner(
    journal: Journal, clock: Clock, *, before_wait: Callable[[Owner], None] = lambda owner: None
) -> int:
    """Return the highest claim, whose driver does not run any more; FencedError if it does.

    Runs where an operator calls it. `before_wait` is called if it is about to wait for an answer. Raises
    JournalUnavailableError, JournalCorruptError.
    """
    owner = journal.owner()
    if owner is None:
        return journal.first_claim - 1
    if owner.is_command:
        return owner.claim
    if owner.is_running_here() is None:
        before_wait(owner)
    if is_alive(owner, journal.store, clock):
        raise FencedError(
            f"a query runs on the journal at '{journal.location}' ({owner}), so nothing was changed. Stop it first; or "
            "take the journal from it with --force, which stops it with an error."
        )
    return owner.claim


def take_over(journal: Journal, clock: Clock, *, after: int | None = None) -> Takeover:
    """Take the journal over, and drop settled objects.

    Runs where an operator calls it. Raises FencedError if a query opens the journal at the same time; and, with
    `after`, if another claim than that is the highest.
    """
    claim = journal.claim(this_command(now=clock.now()), after=after)
    ledger = journal.ledger()
    return Takeover(journal, claim, ledger, settle_claim(journal, claim, ledger))


def require_open(journal: Journal, epoch: int) -> Ledger:
    """Return the ledger; raise EpochSettledError if the epoch is settled, though its objects may still be there."""
    ledger = journal.ledger()
    if epoch <= ledger.epoch:
        raise EpochSettledError(
            f"epoch {epoch} is settled (the journal at '{journal.location}' is at {ledger.epoch}): its micro-batch is "
            "committed and its messages are deleted."
        )
    return ledger


def find(journal: Journal, epoch: int, message_id: str) -> pa.RecordBatch:
    """Return the row of this message in `epoch`, as a batch of one row with the source's columns.

    It is the row that the epoch serves, or another that is not settled: one that only waits may have its payload on S3
    still, or not any more. Raises EpochSettledError if the epoch is settled, and NoSuchMessageError if it does not have
    this message.
    """
    settled = require_open(journal, epoch).epoch
    objects = journal.objects()
    there = _rows(journal, objects.get(epoch, ()), message_id)
    open_names = (name for number, names in objects.items() if number > settled for name in names)
    others = _rows(journal, open_names, message_id)
    # Looked at again: if the epoch was settled meanwhile, the row was served, and its payload is perhaps deleted.
    # Carried messages are those of earlier epochs, for this one to serve, unless one before it has done that.
    carried = require_open(journal, epoch).carried
    there += _rows(journal, (name for name, ids in carried.items() if message_id in ids), message_id)
    if there:
        return next((row for is_served, row in (*there, *others) if is_served), there[0][1])
    raise NoSuchMessageError(
        f"epoch {epoch} of the journal at '{journal.location}' has no message '{message_id[:100]}'. `journal cat` "
        "lists those that it has."
    )


def _rows(journal: Journal, names: Iterable[str], message_id: str) -> list[tuple[bool, pa.RecordBatch]]:
    """Return the rows of this message in these objects, each with whether it is served there."""
    found = []
    for name in names:
        head = journal.head(name)
        for place, receipt in enumerate(head.receipts if head else ()):
            segment = journal.read(name) if receipt.message_id == message_id else None
            if segment is not None:
                found.append((Journal.is_link(name) and not receipt.deferred, segment.rows.slice(place, 1)))
    return found


def skip(
    takeover: Takeover,
    epoch: int,
    message_id: str,
    clock: Clock,
    *,
    to: str,
    put_aside: Callable[[pa.RecordBatch], None],
    is_on_host: bool = False,
) -> bool:
    """Move a message of an open epoch aside: `put_aside` makes its row durable elsewhere, in the place called `to`.

    `is_on_host` says that another machine may have another place of that name, as with a path.

    Only after that is it marked, so a crash in between leaves it in both places, and the next call puts it aside once
    more. If what stands aside is a pointer, the source never deletes its payload. If it is marked already, nothing is
    put aside, and False returned. Raises as `find`; the errors of `put_aside`; and FencedError if a query has opened
    the journal before the mark, which then does not know of it, or if another command has moved the message to another
    place meanwhile.
    """
    is_new = takeover.journal.skip_of(message_id) is None
    if is_new:
        row = find(takeover.journal, epoch, message_id)
        if _is_pointer(row):
            # A query that opened the journal before this may read the payload and delete it: so nothing is moved then.
            takeover.journal.put_pointer_aside(message_id)
            takeover.require_claim()
        put_aside(row)
        moved = datetime.fromtimestamp(clock.now(), timezone.utc).isoformat(timespec="seconds")
        host = socket.gethostname()
        by = {"at": moved, "by": _operator(), "host": host}
        own_mark = {"epoch": epoch, "messageId": message_id, "to": to, **by, **_place(row)}
        takeover.journal.put_skip(message_id, own_mark)
        mark = takeover.journal.skip_of(message_id) or own_mark
        if mark.get("to") != to or (is_on_host and mark.get("host") != host):
            raise FencedError(
                f"message '{message_id}' is in '{to}' (host {host}), but another command has moved it to "
                f"'{mark.get('to')}' (host {mark.get('host')}) at the same time, so it is in both."
            )
    try:
        takeover.require_claim()
    except FencedError:
        owner = takeover.journal.owner()
        # Another command serves nothing. With a claim further on, a query may have come between.
        if owner is not None and owner.is_command and owner.claim == takeover.claim + 1:
            return is_new
        raise FencedError(
            f"message '{message_id}' was moved to '{to}' and marked, but a query has opened the journal at "
            f"'{takeover.journal.location}' meanwhile, and may still serve it. Start that query again."
        ) from None
    return is_new


def release(takeover: Takeover, queue: Queue) -> Counter[Outcome]:
    """Release unsettled messages, for SQS to deliver them at once. Return the number of each outcome.

    None is deleted, and the journal keeps all: a query that goes on from its checkpoint serves them from there, and
    recognises those that come again. LOST ones nobody held, or they are deleted; FAILED ones lapse by themselves.
    Raises FencedError if a query has opened the journal meanwhile: it holds them anew.
    """
    newest: dict[str, Receipt] = {}

    def note(receipt: Receipt) -> None:
        known = newest.get(receipt.message_id)
        if known is None or known.recency <= receipt.recency:
            newest[receipt.message_id] = receipt

    for name in (name for names in takeover.unsettled.values() for name in names):
        head = takeover.journal.head(name)
        for receipt in (*head.receipts, *head.chain.unconfirmed) if head else ():
            note(receipt)
    for name, message_ids in takeover.ledger.carried.items():
        for receipt in takeover.journal.receipts(name):
            if receipt.message_id in message_ids:
                note(receipt)
    takeover.require_claim()
    released = queue.release(newest.values())
    takeover.require_claim()
    return released


def _is_pointer(row: pa.RecordBatch) -> bool:
    """Return whether the message of this row has its payload on S3 still."""
    body, attributes = (row.column(name)[0].as_py() for name in ("body", "messageAttributes"))
    texts = {name: value["stringValue"] for name, value in attributes or ()}
    return body is not None and pointer_in(body, texts) is not None


def _place(row: pa.RecordBatch) -> dict[str, Any]:
    return {
        name: row.column(name)[0].as_py() for name in ("messageGroupId", "messageDeduplicationId", "sequenceNumber")
    }


def _operator() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in a container
        return ""
