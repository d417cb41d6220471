"""A queue's journal as the harness sees it, from outside, while the query writes to it or has ended."""

from __future__ import annotations

from pathlib import Path

from sqs_fifo_spark.journal.file_store import FileStore
from sqs_fifo_spark.journal.location import open_store
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.segment import decode
from tests.helpers import journal_epochs


def holds_messages(folder: Path) -> bool:
    """Return True if the journal holds a message: where tasks delete, perhaps the only copy."""
    objects = [path for path in journal_epochs(folder) if not _is_late(path, folder)]
    return any(decode(path.read_bytes(), path.name).head.receipts for path in objects)


def problems(folder: Path) -> list[str]:
    """Say what stands in the journal and should not: what a commit has left of settled epochs, and any message."""
    ledger = Journal(open_store(str(folder)), "").ledger()
    found = []
    for path in sorted(journal_epochs(folder)):
        name = str(path.relative_to(folder))
        if int(path.parent.name) <= ledger.epoch and name not in ledger.carried and not _is_late(path, folder):
            found.append(f"the journal still holds {name}, and has settled epoch {ledger.epoch}")
    if ledger.carried:
        found.append(f"the ledger of a drained queue carries messages in {sorted(ledger.carried)}")
    return found


def _is_late(path: Path, folder: Path) -> bool:
    """Return True if a task put this into an epoch settled by then. It goes with the next commit or start."""
    newest = max(FileStore(folder).list("ledger"), default=None)
    if newest is None:
        return False
    ledger = folder / newest
    is_settled = int(path.parent.name) <= int(ledger.stem.partition("-")[2])
    # The last that was done to both files was to link them to their names.
    return is_settled and path.stat().st_ctime_ns >= ledger.stat().st_ctime_ns
