"""The epochs that stood in the journal when it was opened, and were not settled.

The first ones are the query's own, as far as its offset log has them; the others are of other queries, which ran on
this journal before, or since this query's checkpoint stood still. Those are released: SQS delivers their messages
again, but for what their tasks may have deleted, which only the journal has. That is carried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.ledger import Ledger
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.offset import EpochPlan, Offset
from sqs_fifo_spark.source.pool import Pool


class Leftovers:
    """What is left of them, by epoch and plan. Lives on the driver; the journal's objects are read in `pool`.

    The objects stay until a later commit drops them: only then is it certain that Spark's log goes on without them.
    """

    def __init__(
        self,
        journal: Journal,
        pool: Pool,
        unsettled: Mapping[int, Sequence[str]],
        ledger: Ledger,
        *,
        release: Callable[[Iterable[Receipt]], None],
    ) -> None:
        """`unsettled` maps epochs to the names of their objects; `ledger` was the newest when they were listed."""
        self._journal = journal
        self._pool = pool
        self._release = release
        self._names: dict[EpochPlan, list[str]] = {}
        for epoch, names in unsettled.items():
            for name in names:
                self._names.setdefault(EpochPlan(epoch, journal.plan_of(name) or 0), []).append(name)
        self._own: set[EpochPlan] = set()
        self._released = {each for each in self._names if each.name in ledger.released}
        self._returned = {each for each in self._names if each.name in ledger.returned}
        self._unseen = {each for each in self._names if not ledger.has_seen(each)}
        """Those that were put after another driver's list: tasks could delete nothing of them, so all comes again."""
        self.highest = max(unsettled, default=0)
        """The highest of these epochs, or 0."""

    def __len__(self) -> int:
        return len(self.others())

    def __repr__(self) -> str:
        left, released = ([each.name for each in some] for some in (self.others(), sorted(self._released)))
        return f"<Leftovers left={left} released={released}>"

    def take(self, offset: Offset, ledger: Ledger) -> Ledger:
        """Take what `offset` names for the query's own: Spark goes on with it.

        Return `ledger` without what it carries of that, for another query may have released it. What another plan has
        under the same number stays: another query may have announced that number, too.
        """
        self._own |= {offset.of} & self._names.keys()
        if offset.of in self._released | self._unseen:
            self._released.discard(offset.of)
            self._returned.add(offset.of)
        return taken_back(ledger, offset) if offset.epoch > ledger.epoch else ledger

    def others(self, above: int = 0, below: int | None = None) -> list[EpochPlan]:
        """Return what is other queries', and not released yet, of the epochs above `above` and below `below`."""
        left = self._names.keys() - self._own - self._released
        return sorted(each for each in left if above < each.epoch and (below is None or each.epoch < below))

    def begun(self, above: int, below: int) -> list[EpochPlan]:
        """Return what is other queries', released or not, and has links, of the epochs between `above` and `below`."""
        return sorted(
            each for each in self._names.keys() - self._own if above < each.epoch < below and self.has_links(each)
        )

    def has_links(self, each: EpochPlan) -> bool:
        """Return whether tasks have put any link of it."""
        return any(map(self._journal.is_link, self._names.get(each, ())))

    def released_above(self, epoch: int) -> frozenset[str]:
        """Return the names of what is released of the epochs above `epoch`, for the ledger that settles `epoch`."""
        return frozenset(each.name for each in self._released if each.epoch > epoch)

    def returned_above(self, epoch: int) -> frozenset[str]:
        """Return the names of what has returned, as `released_above` does."""
        return frozenset(each.name for each in self._returned if each.epoch > epoch)

    def has_returned(self, offset: Offset) -> bool:
        """Return whether another query has settled an epoch before its own one took back what `offset` names.

        That query has released it, or not seen it.
        """
        return offset.of in self._returned

    def following(self, start: Offset) -> Offset | None:
        """Return the offset that followed `start` in Spark's log, if tasks have read it.

        Of several, the log has lost all but the newest plan, and may have lost that. Its driver saw no link of the
        others, so what their tasks put later was never served.
        """
        for each in sorted(self._names, key=lambda each: (each.plan, each.epoch), reverse=True):
            found = self._journal.offset_of(self._names[each], lambda origin: origin.after == start.name)
            if found is not None:
                return found
        return None

    def preceding(self, given: Offset, settled: int) -> Offset | None:
        """Return the offset that `given` follows in Spark's log, if it lies above the epoch `settled`.

        There is none where `given` has links: tasks put them only once what it follows is settled.
        """
        if not given.after or self.has_links(given.of):
            return None
        for each in sorted(self._names, reverse=True):
            # Others' may lie between, and one of the same plan that Spark's log has lost, whose tasks were late.
            is_it = each.plan == given.after and given.after_epoch in (each.epoch, 0)
            if is_it and settled < each.epoch < given.epoch:
                found = self._journal.offset_of(self._names[each], lambda origin: True)
                if found is not None:
                    return found
        return None

    def release(self, plans: Iterable[EpochPlan], ledger: Ledger) -> Ledger:
        """Release the messages of `plans`; none is deleted. Return `ledger` with what is to be carried of them."""
        carried = dict(ledger.carried)
        known = {message_id for message_ids in carried.values() for message_id in message_ids} | {*ledger.unconfirmed}
        left: list[Receipt] = []
        plans = list(plans)
        for each in plans:
            names = self._names[each]
            for name, head in zip(names, self._pool.map(self._journal.head, names), strict=True):
                if head is None:
                    continue
                may_be_deleted = head.origin.deletes and each not in self._unseen
                sealed = [receipt for receipt in head.receipts if may_be_deleted and not receipt.deferred]
                new = tuple(receipt.message_id for receipt in sealed if receipt.message_id not in known)
                if new:
                    carried[name] = new
                    known.update(new)
                left += (receipt for receipt in head.receipts if receipt.deferred or not may_be_deleted)
        self._release(left)  # at once: where SQS does not answer, that is waited for once
        self._released.update(plans)
        return replace(ledger, carried=carried)


def taken_back(ledger: Ledger, offset: Offset) -> Ledger:
    """Return `ledger` without the content of the epoch `offset`, though another query has released it."""
    carried = {
        name: ids
        for name, ids in ledger.carried.items()
        if not name.startswith(f"epochs/{offset.epoch:020d}/") or Journal.link_of(name, offset.plan) is None
    }
    return replace(ledger, carried=carried)
