"""One query's journal on a `Store`: received messages, settled epochs, and the driver that owns it.

    journal.json                                           format, journal id, queue ARN
    drivers/00000000000000000003.json                      claims: see `claims`. Questions to the journal's driver stand
                                                           beside them: see `owner`
    epochs/00000000000000000042/0003-000007-000000000...   link 7 of the chain of partition 3, and its plan in 20 digits
    epochs/00000000000000000042/caught-0000000000000...    the driver's catch before the epoch of this plan; an empty
                                                           one if it was announced blindly, as a log's first one
    ledger/00000000000000000003-00000000000000000041.json  by the driver of claim 3: epoch 41 is settled, and all that
                                                           is not finished up to it
    plans/00000000000000000003-00000000000000000042-1f...  by the driver of claim 3: a deal of epoch 42 that is too long
                                                           for its plans, with a checksum: see `plan`
    skipped/<message id>                                   a message that an operator has moved aside: see `repair`
    pointers/<message id>                                  one that stands aside as a pointer: its payload stays

A sink's journal has the same identity; `sink.record` describes its other objects.

Contract. Every object is put if absent and never changed. A partition's content is in its chain: the segments called
link 0, 1, ... up to the one that says it is the last, each of the first attempt that put it, of the plan whose name
Spark has logged. Objects of another plan of the same epoch are no content, and nothing is taken from them. Epochs up to
that of the newest ledger are settled: their objects are dropped, but for those that the ledger carries. The newest is
the one of the highest claim, and of that of the highest epoch.

Put-if-absent guards a name only while its object is there: once it is dropped, a late writer may put it again. So

- a ledger is dropped only after a newer one was seen, so the newest is always there: if one that was listed is not
  found, there is a newer one, and it is never taken for empty. An older ledger that is put again has no effect;
- a driver that opens the journal puts the ledger that it finds once more, under its own claim: so one that a driver of
  a lower claim puts after that has no effect either, whatever its epoch;
- a segment of a settled epoch that is put again goes with the next commit, and nobody takes it for content: a task
  reads the ledger after it has read or put, a driver checks its claim after it has judged.

All numbers have 20 digits, so that they sort as numbers.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sqs_fifo_spark.errors import (
    EpochSettledError,
    FencedError,
    JournalCorruptError,
    JournalUnavailableError,
    OptionError,
)
from sqs_fifo_spark.journal.documents import parse_json, to_json
from sqs_fifo_spark.source.claims import WHERE_IT_IS, ClaimedJournal
from sqs_fifo_spark.source.ledger import Ledger, decode_ledger, encode_ledger
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.segment import Head, Origin, Segment, decode, decode_head, encode

_SEGMENT_NAME = re.compile(r"epochs/(\d{20})/(\d{4,})-(\d{6,})-(\d{20})")
_PLAN = re.compile(r"-(\d{20})$")
_OBJECT_NAME = re.compile(r"epochs/(\d{20})/[^/]+")
_SKIPPED_NAME = re.compile(r"skipped/([0-9A-Za-z_-]{1,100})")
_POINTER_NAME = re.compile(r"pointers/([0-9A-Za-z_-]{1,100})")
_LEDGER_NAME = re.compile(r"ledger/(\d{20})-(\d{20})\.json")
_NO_LEDGER = (0, 0)


class Journal(ClaimedJournal):
    """One query's journal, in one process: its epochs, skip marks and ledgers."""

    def require_current(self, epoch: int, claim: int) -> None:
        """Raise EpochSettledError if `epoch` is settled, FencedError if a driver has opened the journal after `claim`.

        One list shows both: a driver that opens the journal puts a ledger under its own claim, before it looks at the
        tasks' links. So every later driver knows the objects that stood in the journal before a look that finds none;
        and messages received before it, none of a later driver's tasks had unlocked.
        """
        owner, last = max(map(_place, self.store.list("ledger")), default=_NO_LEDGER)
        if epoch <= last:
            raise EpochSettledError(
                f"epoch {epoch} is committed and its messages are deleted (the journal is at {last}), so its rows "
                "cannot be read any more. Persist a micro-batch's DataFrame if it is used after foreachBatch returned."
            )
        if owner > claim:
            raise FencedError(
                f"another query or an operator took over the journal at '{self.location}' (claim {owner}; this task's "
                f"is {claim}), so this task stops. Run one query for each journal: give the other one its own "
                "journalLocation."
            )
        if owner < claim:
            raise self.vanished(_ledger_name(claim, last))

    # Epochs

    @staticmethod
    def segment_name(epoch: int, partition: int, plan: int, link: int = 0) -> str:
        """Return the name of a link of the chain of one partition of an epoch, in the plan that is called `plan`."""
        return f"epochs/{epoch:020d}/{partition:04d}-{link:06d}-{plan:020d}"

    @staticmethod
    def caught_name(epoch: int, plan: int) -> str:
        return f"epochs/{epoch:020d}/caught-{plan:020d}"

    @staticmethod
    def is_link(name: str) -> bool:
        return _SEGMENT_NAME.fullmatch(name) is not None

    @staticmethod
    def plan_of(name: str) -> int | None:
        """Return the plan whose driver or tasks have put the object `name`; None for one that is not ours."""
        match = _PLAN.search(name)
        return int(match[1]) if match else None

    def read(self, name: str) -> Segment | None:
        """Return the segment called `name`, or None. Raises JournalCorruptError if it is damaged."""
        data = self.store.get(name)
        if data is None:
            return None
        segment = decode(data, name)
        self._require_own(segment.head.origin, name)
        return segment

    def head(self, name: str) -> Head | None:
        """Return the segment `name` without its bodies, None if it is gone. Runs on the driver and on executors."""
        found = decode_head(lambda start, length: self.store.get_range(name, start, length), name)
        if found is not None:
            self._require_own(found.origin, name)
        return found

    def receipts(self, name: str) -> tuple[Receipt, ...]:
        """Return the receipts in the segment called `name`; one that is gone has none."""
        found = self.head(name)
        return () if found is None else found.receipts

    def seal(self, segment: Segment, claim: int, *, unserved: Callable[[], None] = lambda: None) -> Segment:
        """Make `segment` its link of its chain for good, and return the segment that is sealed there.

        Runs on an executor; on the driver, to close a chain. One put-if-absent: of several attempts exactly one wins,
        and all return the winner's segment. If the answer to the attempt's own put was lost, it recognises its segment
        by the `writer` in it.

        Raises JournalUnavailableError without a definite answer: the segment may exist, so the task must fail rather
        than receive again. Raises EpochSettledError when the epoch is settled already: this is a late task, and its
        segment counts for nothing and goes with the next commit. Raises FencedError when another driver has opened the
        journal since the one whose claim is `claim`: that one may not know of this link. Calls `unserved` before it
        raises either, if nobody serves the messages of `segment`.
        """
        origin = segment.head.origin
        name = self.segment_name(origin.epoch, origin.partition, origin.plan, origin.link)
        sealed: Segment | None = segment
        if not self.store.put_if_absent(name, encode(segment)):
            sealed = self.read(name)
        # A settled epoch's objects are dropped after its ledger is put, so a leftover that finds its partition empty
        # again finds the ledger too.
        try:
            self.require_current(origin.epoch, claim)
        except (EpochSettledError, FencedError):
            is_others = sealed is not None and sealed.head.origin.writer != origin.writer
            if is_others or not self._may_be_served(origin):
                unserved()
            raise
        if sealed is None:
            raise self.vanished(name)
        return sealed

    def _may_be_served(self, origin: Origin) -> bool:
        """Return whether anybody serves, or may have served, the messages that a writer put as the link `origin`.

        If its epoch is settled, or a later one, those are only the carried messages: all other content is committed,
        and a message of it that SQS still has is a copy.
        """
        ledger = self.ledger()
        name = self.segment_name(origin.epoch, origin.partition, origin.plan, origin.link)
        if ledger.epoch >= origin.epoch:
            return name in ledger.carried
        head = self.head(name)
        return head is not None and head.origin.writer == origin.writer

    def put_caught(self, segment: Segment) -> str:
        """Put the driver's catch, and return its name: an empty one says the same, whoever has put it.

        Raises JournalUnavailableError.
        """
        name = self.caught_name(segment.head.origin.epoch, segment.head.origin.plan)
        if not self._put_own(name, encode(segment), segment.head.origin.writer) and segment.head.receipts:
            raise self.vanished(name)
        return name

    def objects(self) -> dict[int, list[str]]:
        """Return the names of all segments by epoch. Runs on the driver."""
        found: dict[int, list[str]] = {}
        for name in self.store.list("epochs"):
            match = _OBJECT_NAME.fullmatch(name)
            if match:
                found.setdefault(int(match[1]), []).append(name)
        return found

    @staticmethod
    def link_of(name: str, plan: int) -> tuple[int, int] | None:
        """Return partition and link of the segment called `name` in the plan called `plan`, or None."""
        match = _SEGMENT_NAME.fullmatch(name)
        return (int(match[2]), int(match[3])) if match and int(match[4]) == plan else None

    def drop(self, names: Iterable[str]) -> None:
        """Remove objects that nothing refers to any more. Runs on the driver."""
        self.store.delete(names)

    # Messages that an operator has moved aside

    def skipped(self) -> frozenset[str]:
        """Return the ids of the messages that were moved aside. Runs on a driver, whose tasks do not serve them."""
        return frozenset(match[1] for match in map(_SKIPPED_NAME.fullmatch, self.store.list("skipped")) if match)

    def skip_of(self, message_id: str) -> Mapping[str, Any] | None:
        """Return the content of this message's skip mark, or None if it was not moved aside."""
        name = _skipped_name(message_id)
        data = self.store.get(name)
        return None if data is None else parse_json(data, name)

    def put_skip(self, message_id: str, mark: Mapping[str, Any]) -> None:
        """Mark this message: no driver that opens the journal from now on serves it. The mark stays, as a record."""
        self.store.put_if_absent(_skipped_name(message_id), to_json(mark))

    def pointers_aside(self) -> frozenset[str]:
        """Return the ids of the messages that stand aside as pointers. Runs on a driver, and in a task."""
        return frozenset(match[1] for match in map(_POINTER_NAME.fullmatch, self.store.list("pointers")) if match)

    def put_pointer_aside(self, message_id: str) -> None:
        """Note that this message is to stand aside as a pointer: whoever opens the journal later keeps its payload."""
        self.store.put_if_absent(f"pointers/{message_id}", b"{}")

    # Ledgers

    def ledger(self) -> Ledger:
        """Return the newest ledger; an empty one of epoch 0 where there is none."""
        missed = _NO_LEDGER
        while (place := max(map(_place, self.store.list("ledger")), default=_NO_LEDGER)) > missed:
            name = _ledger_name(*place)
            data = self.store.get(name)
            if data is not None:
                return decode_ledger(data, place[1], name)
            missed = place  # dropped since the list, so a newer one is there
        if missed != _NO_LEDGER:
            raise self.vanished(_ledger_name(*missed))
        return Ledger(0)

    def put_ledger(self, ledger: Ledger) -> None:
        """Put the ledger, which settles `ledger.epoch`, under this driver's claim.

        Runs on the driver, after its deletes; and at the start, with the ledger that it has found. It counts once
        `require_claim`, called after it, finds no driver of a higher claim. Raises FencedError if another one has its
        name.
        """
        token = uuid.uuid4().hex
        name = _ledger_name(self.own_claim, ledger.epoch)
        if not self._put_own(name, encode_ledger(ledger, token), token):
            raise self._overtaken(ledger.epoch, self.own_claim)

    def older_ledgers(self, epoch: int) -> list[str]:
        """Return the names of the ledgers that may be dropped, now that this driver has put the one of `epoch`.

        Raises FencedError if a driver of a higher claim has put one: that stands, and it may say something else.
        """
        names = self.store.list("ledger")
        place, last = (self.own_claim, epoch), max(map(_place, names), default=_NO_LEDGER)
        if last > place:
            raise self._overtaken(epoch, last[0])
        if last < place:
            raise self.vanished(_ledger_name(*place))
        return [old for old in names if _place(old) < place]

    def _overtaken(self, epoch: int, claim: int) -> FencedError:
        return FencedError(
            f"another query or an operator took over the journal at '{self.location}' (claim {claim}; this query's is "
            f"{self.own_claim}) while this one was committing epoch {epoch}, so this one stops. Run one query for each "
            "journal, and start it again."
        )

    def vanished(self, name: str) -> JournalUnavailableError:
        return JournalUnavailableError(
            f"'{name}' vanished from the journal at '{self.location}', so the query stops. Restore it. {WHERE_IT_IS}"
        )

    def _require_own(self, origin: Origin, name: str) -> None:
        own_name = self.segment_name(origin.epoch, origin.partition, origin.plan, origin.link)
        if origin.journal != self.id or name not in (own_name, self.caught_name(origin.epoch, origin.plan)):
            raise JournalCorruptError(
                f"'{name}' in the journal at '{self.location}' belongs to another journal, epoch or partition. It was "
                "copied or moved there, so restore the query's own object; or, if a journal was removed from this "
                "place, a task of its query wrote it afterwards and deleted nothing of it, so remove it."
            )


def _skipped_name(message_id: str) -> str:
    name = f"skipped/{message_id}"
    if not _SKIPPED_NAME.fullmatch(name):
        raise OptionError(
            f"'{message_id[:100]}' is no id of a message: it has up to 100 of A-Z, a-z, 0-9, '-' and '_'."
        )
    return name


def _ledger_name(claim: int, epoch: int) -> str:
    return f"ledger/{claim:020d}-{epoch:020d}.json"


def _place(name: str) -> tuple[int, int]:
    """Return the key that orders ledgers, the newest last: claim and epoch."""
    match = _LEDGER_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else _NO_LEDGER
