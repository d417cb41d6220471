"""The start of a query on the driver: check queue and store, claim the journal, drop settled objects.

Every fault that can be known before the first receive is raised here, as one line.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqs_fifo_spark.aws.calls import QueueFacts
from sqs_fifo_spark.errors import (
    AccessDeniedError,
    DataLossError,
    JournalUnavailableError,
    QueueNotFoundError,
    TransientQueueError,
)
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.source.bandwidth import bytes_at_once, most_held, visibility_needed_s
from sqs_fifo_spark.source.driver.checkpoint import Refuse, fits
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.ledger import Ledger
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.owner import LONGEST_LOOK_S, this_process
from sqs_fifo_spark.source.plan import older_deals
from sqs_fifo_spark.source.pool import IN_CALLING_THREAD, Pool
from sqs_fifo_spark.source.queue import Queue, is_about_queue

_log = logging.getLogger(__name__)
FEWEST_RECEIVES = 3
SHORT_RETENTION_S = 86_400


@dataclass(frozen=True)
class OpenedJournal:
    """A journal that this driver owns, and its unsettled objects."""

    journal: Journal
    claim: int
    ledger: Ledger
    unsettled: Mapping[int, list[str]]
    """Names of the objects of epochs that were not settled."""
    skipped: frozenset[str]
    """Ids of messages that an operator has moved aside."""
    is_refused: bool
    """True if the checkpoint does not fit, and the user chose to go on without it."""


class Preflight:
    """Queue and store of one driver, each checked once: their faults show before the first receive."""

    def __init__(self, queue: Queue, store: Store, options: SourceOptions) -> None:
        """Check the queue. Raises NotFifoQueueError, QueueNotFoundError, AccessDeniedError.

        One of several queues may be gone, or silent, while its last micro-batch is to run again, or to be settled: that
        needs the journal alone. So it is refused only if it has none.
        """
        self.store = store
        self._arn: str | None = None
        self._is_store_checked = False
        try:
            facts = queue.describe()
            queue.require_permissions()
        except (AccessDeniedError, QueueNotFoundError, TransientQueueError) as error:
            if not queue.may_go or not is_about_queue(error) or Journal.look(store) is None:
                raise
            queue.gone = error
        else:
            self._arn = facts.arn
            _warn(facts, options)

    def find(self) -> Journal | None:
        """Return the journal that stands in the store. Raises JournalMismatchError, and the errors of the store."""
        return Journal.look(self.store) if self._arn is None else Journal.find(self.store, self._arn)

    def find_or_make(self, now: float, found: Journal | None = None) -> Journal:
        """Return the journal in the store, perhaps `found` before; it is made at `now` if need be, without a claim."""
        found = found or self.find()
        if not self._is_store_checked:
            Journal.check_store(self.store)
            self._is_store_checked = True
        if found is None and self._arn is None:
            raise JournalUnavailableError(f"the journal at '{self.store.location}' is gone, and so is its queue.")
        return found or Journal.create(self.store, str(self._arn), first_claim(now))


def open_journal(
    preflight: Preflight, known: Offset | None, options: SourceOptions, now: float, pool: Pool
) -> OpenedJournal:
    """Return the journal of `preflight`, claimed for this driver; a new query (`known` is None) makes it if needed.

    Runs on the driver. `known` is an offset that Spark has in its checkpoint, `now` the wall-clock time in seconds.
    Raises JournalMismatchError, JournalUnavailableError, JournalCorruptError, and DataLossError when the checkpoint
    does not fit: before the claim, which would stop a query that it fits, and after it, for one may have begun
    meanwhile.
    """
    store = preflight.store
    found = preflight.find()
    found_id, ledger = (None, Ledger(0)) if found is None else (found.id, found.ledger())
    is_refused = _refuses(known, found_id, ledger, store.location, options)
    journal = preflight.find_or_make(now, found)
    claim = journal.claim(this_process(looks_every_s=min(options.heartbeat_s, LONGEST_LOOK_S), now=now))
    skipping = pool.submit(journal.skipped)
    ledger = journal.ledger()
    is_refused = is_refused or _refuses(known, journal.id, ledger, store.location, options)
    if claim == journal.first_claim:
        ledger = replace(ledger, generation=claim)  # nobody was here before
    objects = settle_claim(journal, claim, ledger, pool)
    skipped = skipping.result()
    if skipped:
        _log.info("%d messages of the journal at '%s' were moved aside: none is served.", len(skipped), store.location)
    return OpenedJournal(journal, claim, ledger, objects, skipped, is_refused)


def _refuses(known: Offset | None, found: str | None, ledger: Ledger, location: str, options: SourceOptions) -> bool:
    """Return whether `known` does not fit the journal, but the user chose to go on. Raises DataLossError."""
    refusal = known and fits(known, found, ledger, location)
    if refusal:
        report_data_loss(refusal, fail_on_data_loss=options.fail_on_data_loss)
    return refusal is not None


def settle_claim(journal: Journal, claim: int, ledger: Ledger, pool: Pool = IN_CALLING_THREAD) -> dict[int, list[str]]:
    """Make the `claim` known to all that work on the journal, and drop settled objects; return the rest, by epoch.

    Runs on the driver that has made the claim, with the newest ledger. Raises FencedError if another one has claimed
    the journal since.
    """
    journal.put_ledger(ledger)
    # From now on, tasks of earlier drivers that put something find this ledger, and stop: so these lists have it all.
    finding_ledgers = pool.submit(lambda: journal.older_ledgers(ledger.epoch))
    finding_objects = pool.submit(journal.objects)
    finding_deals = pool.submit(lambda: older_deals(journal, claim))
    older = finding_ledgers.result()
    # A newer driver may have found an older ledger, and be about to put that once more: it needs the objects that are
    # not settled there. A driver that claims the journal after this look finds the ledger that was put above.
    journal.require_claim(claim, pool)
    objects = finding_objects.result()
    settled = [
        name
        for epoch, names in objects.items()
        if epoch <= ledger.epoch
        for name in names
        if name not in ledger.carried
    ]
    journal.drop([*older, *settled, *finding_deals.result()])
    return {epoch: names for epoch, names in objects.items() if epoch > ledger.epoch}


def first_claim(now: float) -> int:
    """Return the number of the first claim of a journal that is made at `now`, in seconds since the Unix epoch."""
    return int(now)


def report_data_loss(refusal: Refuse, *, fail_on_data_loss: bool) -> None:
    """Raise DataLossError, or only warn if the user chose `failOnDataLoss=false`."""
    if fail_on_data_loss:
        raise DataLossError(
            f"{refusal.reason}. {refusal.remedy} To go on with the messages still in the queue, set "
            "failOnDataLoss to false; messages may then be missing from the sink, or stand in it twice."
        )
    _log.warning("%s. Going on, because failOnDataLoss is false.", refusal.reason)


def _warn(facts: QueueFacts, options: SourceOptions) -> None:
    if facts.max_receive_count is not None and facts.max_receive_count < FEWEST_RECEIVES:
        _log.warning(
            "the queue's redrive policy moves a message to the dead-letter queue after %d receives; a crash of a task "
            "or a driver counts as one, so set maxReceiveCount to %d or more.",
            facts.max_receive_count,
            FEWEST_RECEIVES,
        )
    if facts.retention_s < SHORT_RETENTION_S:
        _log.warning(
            "the queue keeps messages for only %d s: SQS drops messages that wait longer, also while this query is "
            "down.",
            facts.retention_s,
        )
    link = options.link_bytes_per_s
    most = most_held(options.heartbeat_s, link)
    if options.max_messages_per_trigger > most:
        _log.warning(
            "maxMessagesPerTrigger is %d, but about %d messages can be renewed in time (heartbeatSeconds: %g%s), so a "
            "full micro-batch that takes longer may lose its hold on some. Lower it, or raise "
            "visibilityTimeoutSeconds.",
            options.max_messages_per_trigger,
            most,
            options.heartbeat_s,
            f", linkBytesPerSecond: {link}" if link else "",
        )
    size = bytes_at_once(options.num_partitions, options.max_bytes_per_trigger, facts.max_message_bytes)
    if link and (needed_s := visibility_needed_s(size, link)) > options.visibility_timeout_s:
        _log.warning(
            "visibilityTimeoutSeconds is %d, but the %d bytes that %d partitions may receive at once take %.0f s to "
            "arrive (linkBytesPerSecond: %d). They must do so within four fifths of it, or SQS hands large messages "
            "out again. Raise it to %d, or lower %s.",
            options.visibility_timeout_s,
            size,
            options.num_partitions,
            size / link,
            link,
            needed_s,
            "numPartitions" if size > options.max_bytes_per_trigger else "maxBytesPerTrigger",
        )
