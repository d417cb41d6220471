"""The journal: what was received, what is committed, and who owns it, on a `Store`.

    journal.json                                 format, journal id, queue ARN
    drivers/00000000000000000003.json            claims; the highest number owns the journal
    epochs/00000000000000000042/0003-000000      the segment of partition 3 of epoch 42
    epochs/00000000000000000042/spare-<writer>   what an attempt received that did not become a segment
    ledger/00000000000000000041.json             epoch 41 is committed; what of it is not finished

A sink's journal has the same identity; what else stands there, `sent_record` says.

Contract. Every object is put if absent and never changed. A partition's content is its segment: the first
writer's. Epochs up to the highest ledger are committed: their objects are dropped, but for those that the ledger still
refers to. A leftover of a task may put one there again, which goes with the next commit; nobody takes it for content,
because a task looks at the ledger after it has read, and a driver at its claim. All names have 20 digits, so that they
sort as numbers.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable

from sqs_fifo_spark.errors import (
    EpochSettledError,
    FencedError,
    JournalCorruptError,
    JournalMismatchError,
    JournalUnavailableError,
)
from sqs_fifo_spark.ledger import Ledger, damaged, decode_ledger, encode_ledger, parse_json, to_json
from sqs_fifo_spark.message import Receipt
from sqs_fifo_spark.segment import Origin, Segment, decode, decode_receipts, encode
from sqs_fifo_spark.store import Store

FORMAT = 1
_IDENTITY = "journal.json"
_SEGMENT_NAME = re.compile(r"epochs/(\d{20})/(\d{4,})-000000")
_OBJECT_NAME = re.compile(r"epochs/(\d{20})/[^/]+")
_NUMBERED = re.compile(r"[a-z]+/(\d{20})\.json")
_IDENTIFIER = re.compile(r"[0-9A-Za-z_-]{1,64}")


class Journal:
    """One query's journal, in one process. Built without any I/O but its identity's."""

    def __init__(self, store: Store, journal_id: str) -> None:
        self._store = store
        self.id = journal_id
        self.location = store.location

    # Identity and owner

    @classmethod
    def find(cls, store: Store, queue_arn: str) -> Journal | None:
        """Return the journal in `store`, or None if there is none.

        Runs on the driver. Raises JournalMismatchError if it belongs to another queue or is of a later format.
        """
        data = store.get(_IDENTITY)
        if data is None:
            return None
        identity = parse_json(data, _IDENTITY)
        if identity.get("format") != FORMAT:
            raise JournalMismatchError(
                f"the journal at '{store.location}' has format {identity.get('format')!r}; this version reads "
                f"{FORMAT}. Use the version that wrote it, or another journalLocation."
            )
        if identity.get("queueArn") != queue_arn:
            raise JournalMismatchError(
                f"the journal at '{store.location}' belongs to the queue {identity.get('queueArn')!r}, not to "
                f"'{queue_arn}'. Give each its own journalLocation."
            )
        journal_id = identity.get("journal")
        if not isinstance(journal_id, str) or not _IDENTIFIER.fullmatch(journal_id):
            raise damaged(_IDENTITY)
        return cls(store, journal_id)

    @classmethod
    def join(cls, store: Store, journal_id: str) -> Journal:
        """Return the journal that the driver has opened, as an executor sees it.

        Raises JournalUnavailableError unless it stands in `store`: on a path of its own, an executor would keep what
        it receives where the driver never finds it.
        """
        data = store.get(_IDENTITY)
        if data is None or parse_json(data, _IDENTITY).get("journal") != journal_id:
            raise JournalUnavailableError(
                f"this executor does not find the driver's journal at '{store.location}', so it does nothing. "
                "journalLocation must be one place that driver and all executors share."
            )
        return cls(store, journal_id)

    @classmethod
    def create(cls, store: Store, queue_arn: str) -> Journal:
        """Return the journal in `store`, made now if there is none. Runs on the driver."""
        identity = {"format": FORMAT, "journal": uuid.uuid4().hex, "queueArn": queue_arn}
        store.put_if_absent(_IDENTITY, to_json(identity))
        journal = cls.find(store, queue_arn)
        if journal is None:
            raise JournalUnavailableError(f"the journal at '{store.location}' vanished while it was made.")
        return journal

    @staticmethod
    def check_store(store: Store) -> None:
        """Raise JournalUnavailableError unless `store` can be written and truly puts only what is absent."""
        token = uuid.uuid4().hex
        name, first = f"check/{token}/probe", token.encode()
        store.put_if_absent(name, first)  # its answer may be lost, so what counts is what stands there
        was_put_again = store.put_if_absent(name, b"second")
        kept = store.get(name)
        store.delete([name])
        if was_put_again or kept != first:
            raise JournalUnavailableError(
                f"the store at '{store.location}' does not put objects only if they are absent, which two attempts "
                "at one partition depend on. Use a local path with hard links, S3, Google Cloud Storage or Azure."
            )

    def claim(self) -> int:
        """Make this driver the journal's owner and return the number of its claim, higher than any before."""
        while True:
            claims = self._store.list("drivers")
            number = 1 + max((_number(name) for name in claims), default=0)
            writer = uuid.uuid4().hex
            if self._put_own(_claim_name(number), to_json({"driver": writer}), writer):
                for claim in claims:
                    self._store.delete([claim])  # lowest first, so that none that is left seems to be the last
                return number

    def require_claim(self, number: int) -> None:
        """Raise FencedError if a newer driver has claimed the journal since claim `number`."""
        # Claims are consecutive, so two reads tell what a list would, and cost less on S3.
        if self._store.get(_claim_name(number + 1)) is None and self._store.get(_claim_name(number)) is not None:
            return
        owner = max((_number(name) for name in self._store.list("drivers")), default=0)
        if owner < number:
            raise JournalUnavailableError(
                f"the journal at '{self.location}' was removed while the query ran, so this query stops. What it had "
                "received and not committed comes again from the queue."
            )
        if owner > number:
            raise FencedError(
                f"another query took over the journal at '{self.location}' (claim {owner}; this query's is {number}), "
                "so this one stops. Run one query for each journal: give the other one its own journalLocation."
            )

    # Epochs

    def segment_name(self, epoch: int, partition: int) -> str:
        """Return the name under which the content of one partition of one epoch stands."""
        return f"epochs/{epoch:020d}/{partition:04d}-000000"

    def read(self, name: str) -> Segment | None:
        """Return the segment or spare called `name`, or None. Raises JournalCorruptError if it is damaged."""
        data = self._store.get(name)
        if data is None:
            return None
        segment = decode(data, name)
        self._require_own(segment.origin, name)
        return segment

    def receipts(self, name: str) -> tuple[Receipt, ...]:
        """Return the receipts in the segment or spare called `name`, without downloading bodies.

        Runs on the driver. An object that is gone has none.
        """
        found = self._head(name)
        return () if found is None else found[1]

    def partitions_of(self, names: Iterable[str]) -> int:
        """Return how many partitions the epoch has whose objects are called `names`; the objects say it themselves.

        Runs on the driver, for an epoch that Spark does not tell the offset of.
        """
        found = [head[0].partitions for head in map(self._head, names) if head is not None]
        # They agree, unless a leftover of another plan for this epoch has written too: then fewer are served.
        return min(found, default=0)

    def _head(self, name: str) -> tuple[Origin, tuple[Receipt, ...]] | None:
        found = decode_receipts(lambda start, length: self._store.get_range(name, start, length), name)
        if found is not None:
            self._require_own(found[0], name)
        return found

    def seal(self, segment: Segment) -> Segment:
        """Make `segment` the content of its partition for good, and return what is sealed.

        Runs on an executor. One put-if-absent: of several attempts exactly one wins, and all return the winner's
        segment. A lost answer to one's own write is recognised by the writer's name.

        Raises JournalUnavailableError without a definite answer: the segment may exist, so the task must fail
        rather than receive again. Raises EpochSettledError when the epoch is committed already: this task is a
        leftover, and what it sealed counts for nothing and goes with the next commit.
        """
        origin = segment.origin
        name = self.segment_name(origin.epoch, origin.partition)
        sealed: Segment | None = segment
        if not self._store.put_if_absent(name, encode(segment)):
            sealed = self.read(name)
        # A committed epoch's objects are dropped after its ledger is written, so a leftover that finds its
        # partition empty again finds the ledger too.
        self.require_open(origin.epoch)
        if sealed is None:
            raise JournalUnavailableError(f"'{name}' vanished from the journal at '{self.location}'.")
        return sealed

    def put_spare(self, segment: Segment) -> None:
        """Keep what an attempt received though another attempt's segment won: the next epoch takes it.

        Runs on an executor. Raises EpochSettledError when it is too late for that.
        """
        origin = segment.origin
        self._store.put_if_absent(_spare_name(origin), encode(segment))
        # What is written too late stays until the next commit: the driver may have seen it in time.
        self.require_open(origin.epoch)

    def require_open(self, epoch: int) -> None:
        """Raise EpochSettledError if `epoch` is committed."""
        last = self.last_committed()
        if epoch <= last:
            raise EpochSettledError(
                f"epoch {epoch} is committed and its messages are deleted (the journal is at {last}), so its rows "
                "cannot be read any more. Persist a micro-batch's DataFrame if it is used after foreachBatch returned."
            )

    def objects(self) -> dict[int, list[str]]:
        """Return the names of all segments and spares by epoch. Runs on the driver."""
        found: dict[int, list[str]] = {}
        for name in self._store.list("epochs"):
            match = _OBJECT_NAME.fullmatch(name)
            if match:
                found.setdefault(int(match[1]), []).append(name)
        return found

    @staticmethod
    def partition_of(name: str) -> int | None:
        """Return the partition whose segment is called `name`, or None for a spare."""
        match = _SEGMENT_NAME.fullmatch(name)
        return int(match[2]) if match else None

    def drop(self, names: Iterable[str]) -> None:
        """Remove segments and spares that nothing refers to any more. Runs on the driver."""
        self._store.delete(names)

    # Commits

    def last_committed(self) -> int:
        """Return the highest committed epoch, or 0."""
        return max((_number(name) for name in self._store.list("ledger")), default=0)

    def ledger(self) -> Ledger:
        """Return the newest ledger; that of epoch 0 is empty. Runs on the driver."""
        epoch = self.last_committed()
        name = f"ledger/{epoch:020d}.json"
        data = self._store.get(name) if epoch else None
        if data is None:
            return Ledger(epoch)
        return decode_ledger(data, epoch, name)

    def commit(self, ledger: Ledger) -> Ledger:
        """Record that `ledger.epoch` is committed, drop the ledgers before it, and return what stands now.

        Runs on the driver, after its deletes. A driver that has lost its claim since may have recorded the epoch
        first: then its record stands.
        """
        writer = uuid.uuid4().hex
        name = f"ledger/{ledger.epoch:020d}.json"
        is_ours = self._put_own(name, encode_ledger(ledger, writer), writer)
        self._store.delete([old for old in self._store.list("ledger") if _number(old) < ledger.epoch])
        return ledger if is_ours else self.ledger()

    def _put_own(self, name: str, data: bytes, writer: str) -> bool:
        """Put if absent; True also if the object is there because our own put's answer was lost."""
        if self._store.put_if_absent(name, data):
            return True
        found = self._store.get(name)
        return found is not None and writer.encode() in found

    def _require_own(self, origin: Origin, name: str) -> None:
        own_names = (self.segment_name(origin.epoch, origin.partition), _spare_name(origin))
        if origin.journal != self.id or name not in own_names:
            raise JournalCorruptError(
                f"'{name}' in the journal at '{self.location}' belongs to another journal, epoch or partition. It was "
                "copied or moved there: restore what the query wrote."
            )


def _claim_name(number: int) -> str:
    return f"drivers/{number:020d}.json"


def _spare_name(origin: Origin) -> str:
    return f"epochs/{origin.epoch:020d}/spare-{origin.writer}"


def _number(name: str) -> int:
    match = _NUMBERED.fullmatch(name)
    return int(match[1]) if match else 0
