"""What an operator may change in a journal whose query does not run: move a message aside, release what is held.

Both begin by taking the journal over, as a new driver does: with a claim of one's own, and the newest ledger under it.
So a query that runs after all, or tasks that it has left, stop with FencedError, and the next query finds all as it
was. A message that is moved aside is not removed from its segment: it is marked, a driver that opens the journal reads
all marks, and its plans tell the tasks not to serve those. It is settled with its epoch like all others.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import EpochSettledError, FencedError, OptionError
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.ledger import Ledger
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.owner import Owner, is_alive, this_process
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.startup import settle_claim

_ASKED_EVERY_S = 60.0
"""What the claim tells of how often it is looked at: nobody does, and the process ends soon."""


@dataclass(frozen=True)
class Taken:
    """A journal that this process has taken over."""

    journal: Journal
    claim: int
    ledger: Ledger
    unsettled: dict[int, list[str]]
    """Names of the objects of epochs that are not settled."""


def opened(store: Store) -> Journal:
    """Return the journal in `store`, whatever queue it belongs to. Raises OptionError if there is none."""
    journal = Journal.find(store)
    if journal is None:
        raise OptionError(f"'{store.location}' holds no journal. Correct the location.")
    return journal


def require_no_owner(journal: Journal, clock: Clock, *, told: Callable[[Owner], None] = lambda owner: None) -> None:
    """Raise FencedError if the driver that owns the journal still runs. Calls `told` before that is waited for.

    Runs where an operator calls it. Raises JournalUnavailableError, JournalCorruptError.
    """
    owner = journal.owner()
    if owner is None:
        return
    told(owner)
    if is_alive(owner, journal.store, clock):
        raise FencedError(
            f"a query runs on the journal at '{journal.location}' ({owner}), so nothing was changed. Stop it first; or "
            "take the journal from it (--force), which stops it with an error."
        )


def take_over(journal: Journal, clock: Clock) -> Taken:
    """Take the journal over from whoever owns it, and drop what is settled.

    Runs where an operator calls it. Raises FencedError if a driver opens the journal at the same time.
    """
    claim = journal.claim({**this_process(), "looksEverySeconds": _ASKED_EVERY_S, "claimedAt": clock.now()})
    ledger = journal.ledger()
    return Taken(journal, claim, ledger, settle_claim(journal, claim, ledger))


def find(journal: Journal, epoch: int, message_id: str) -> pa.RecordBatch:
    """Return the row of this message in `epoch`, as a batch of one row with the source's columns.

    Raises EpochSettledError if the epoch is settled, and OptionError if it does not have this message.
    """
    settled = journal.ledger().epoch
    names = journal.objects().get(epoch, [])
    if epoch <= settled:
        raise EpochSettledError(
            f"epoch {epoch} is committed (the journal at '{journal.location}' is at {settled}): its messages are "
            "deleted, and nothing is held up by them."
        )
    for name in reversed(names):
        head = journal.head(name)
        for place, receipt in enumerate(head.receipts if head else ()):
            if receipt.message_id == message_id:
                segment = journal.read(name)
                if segment is not None:
                    return segment.rows.slice(place, 1)
    raise OptionError(
        f"epoch {epoch} of the journal at '{journal.location}' has no message '{message_id[:100]}'. `journal cat` "
        "lists those that it has."
    )


def skip(
    taken: Taken, epoch: int, message_id: str, clock: Clock, *, to: str, put_aside: Callable[[pa.RecordBatch], None]
) -> None:
    """Move a message of an epoch that is not settled aside: `put_aside` makes its row durable elsewhere, called `to`.

    Only after that is it marked, so a crash in between leaves it in both places, and the next call puts it aside once
    more. Raises as `find`; whatever `put_aside` raises; and FencedError if a query has opened the journal meanwhile,
    which may not know of the mark.
    """
    row = find(taken.journal, epoch, message_id)
    put_aside(row)
    moved = datetime.fromtimestamp(clock.now(), timezone.utc).isoformat(timespec="seconds")
    told = {"epoch": epoch, "messageId": message_id, "to": to, "at": moved, "by": _operator(), **_place(row)}
    taken.journal.put_skip(message_id, told)
    taken.journal.require_claim(taken.claim)


def release(taken: Taken, queue: Queue) -> int:
    """Release all messages of epochs that are not settled, and return how many these are: SQS can deliver them at once.

    None is deleted, and the journal keeps all: a query that goes on from its checkpoint serves them from there, and
    recognises those that come again. What SQS does not release lapses by itself.
    """
    names = [name for names in taken.unsettled.values() for name in names]
    names += taken.ledger.carried
    newest: dict[str, Receipt] = {}
    for name in dict.fromkeys(names):
        for receipt in taken.journal.receipts(name):
            known = newest.get(receipt.message_id)
            if known is None or known.recency <= receipt.recency:
                newest[receipt.message_id] = receipt
    queue.release(newest.values())
    return len(newest)


def _place(row: pa.RecordBatch) -> dict[str, Any]:
    (told,) = row.select(["messageGroupId", "messageDeduplicationId", "sequenceNumber"]).to_pylist()
    return dict(told)


def _operator() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in a container
        return ""
