"""The end of our hold on messages: the driver deletes those that Spark has committed, or releases them.

Both stop renewing before the call, so that a renewal under way does not report a loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.lease import Lease
from sqs_fifo_spark.source.ledger import UnconfirmedMessage
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.worker import without_collection

SETTLE_BUDGET_S = 60.0
"""Seconds for which a commit tries to delete, before it leaves the rest to the ledger and the next commit."""
LONGEST_RETENTION_S = 14 * 86_400
"""SQS keeps a message for at most 14 days."""


@without_collection()
def delete_committed(
    receipts: Iterable[Receipt],
    unconfirmed: Mapping[str, UnconfirmedMessage],
    *,
    queue: Queue,
    lease: Lease,
    clock: Clock,
    budget_s: float,
) -> tuple[dict[str, UnconfirmedMessage], list[str]]:
    """Delete messages that Spark has committed. Return all that are unconfirmed afterwards, old entries included.

    And the URLs of the payloads of those that SQS has confirmed to have deleted. Runs on the driver, for `budget_s`
    at most. Entries whose time is over are left out: SQS has let them expire.
    """
    now = clock.now()
    left = {message_id: entry for message_id, entry in unconfirmed.items() if now < entry.until}
    payloads: list[str] = []
    for receipt, outcome in queue.delete(receipts, budget_s=budget_s, before_call=lease.stop_renewing):
        known = left.pop(receipt.message_id, None)
        payload = receipt.payload or (known.payload if known else "")
        if outcome is Outcome.DONE:
            payloads.append(payload)
        else:
            left[receipt.message_id] = UnconfirmedMessage(
                # Counted from now, not from the send: in a dead-letter queue a message's retention begins anew.
                known.until if known else now + LONGEST_RETENTION_S,
                receipt.message_group_id,
                receipt.sequence_number,
                receipt if outcome is Outcome.FAILED else None,
                payload,
            )
    return left, list(filter(None, payloads))


def release(receipts: Iterable[Receipt], *, queue: Queue, lease: Lease) -> None:
    """Release these messages: SQS can deliver them at once, or, if it does not answer, once they lapse."""
    held = list(receipts)
    lease.stop_renewing(held)
    queue.release(held)
