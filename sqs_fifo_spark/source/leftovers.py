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
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.pool import Pool


class Leftovers:
    """What is left of them. Lives on the driver; the journal's objects are read in `pool`.

    The objects stay until the next commit drops them: only then is it certain that Spark's log goes on without them.
    """

    def __init__(
        self,
        journal: Journal,
        pool: Pool,
        unsettled: Mapping[int, Sequence[str]],
        released: Iterable[int],
        *,
        release: Callable[[Iterable[Receipt]], None],
    ) -> None:
        """`unsettled` maps epochs to the names of their objects; those that are `released` need nothing any more."""
        self._journal = journal
        self._pool = pool
        self._release = release
        self._released = set(released)
        self._names = {epoch: names for epoch, names in unsettled.items() if epoch not in self._released}
        self.highest = max(unsettled, default=0)
        """The highest of these epochs, or 0."""

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"<Leftovers epochs={sorted(self._names)} released={sorted(self._released)}>"

    def above(self, low: int) -> list[int]:
        """Return the epochs above `low`."""
        return sorted(number for number in self._names if number > low)

    def between(self, low: int, high: int) -> list[int]:
        """Return the epochs above `low` and below `high`."""
        return [number for number in self.above(low) if number < high]

    def names(self, epoch: int) -> Sequence[str]:
        """Return the names of the epoch's objects."""
        return self._names.get(epoch, ())

    def claim(self, offset: Offset) -> None:
        """Take what is of the plan of `offset` for the query's own: Spark goes on with it.

        What another plan has under the same number stays: another query may have announced that number, too.
        """
        others = [name for name in self._names.pop(offset.epoch, ()) if self._journal.plan_of(name) != offset.plan]
        if others:
            self._names[offset.epoch] = others

    def released_above(self, epoch: int) -> tuple[int, ...]:
        """Return the epochs above `epoch` that are released, for the ledger that settles `epoch`."""
        self._released = {number for number in self._released if number > epoch}
        return tuple(sorted(self._released))

    def following(self, start: Offset) -> Offset | None:
        """Return the offset that followed `start` in Spark's log, if tasks have read it."""
        for number in reversed(self.above(0)):
            found = self._journal.offset_of(self._names[number], lambda origin: origin.after == start.name)
            if found is not None:
                return replace(found, after=start.plan if number == start.epoch + 1 else 0)
        return None

    def preceding(self, given: Offset, settled: int) -> Offset | None:
        """Return the offset that `given` follows in Spark's log, if it lies above the epoch `settled`."""
        if not given.after:
            return None
        for number in reversed(self.between(settled, given.epoch)):
            # Of a plan's epochs only the last can be unsettled, and others' may lie between.
            found = self._journal.offset_of(self._names[number], lambda origin: origin.plan == given.after)
            if found is not None:
                return found
        return None

    def release(self, epochs: Iterable[int], ledger: Ledger) -> Ledger:
        """Release the messages of `epochs`; none is deleted. Return `ledger` with what is to be carried of them."""
        carried = dict(ledger.carried)
        known = {message_id for message_ids in carried.values() for message_id in message_ids}
        for number in epochs:
            names = self._names.pop(number)
            self._released.add(number)
            for name, head in zip(names, self._pool.map(self._journal.head, names), strict=True):
                if head is None:
                    continue
                sealed = [each for each in head.receipts if head.origin.deletes and not each.deferred]
                new = tuple(each.message_id for each in sealed if each.message_id not in known)
                if new:
                    carried[name] = new
                    known.update(new)
                self._release(each for each in head.receipts if each.deferred or not head.origin.deletes)
        return replace(ledger, carried=carried)


def taken_back(ledger: Ledger, offset: Offset) -> Ledger:
    """Return `ledger` without the content of the epoch `offset`, though another query has released it."""
    carried = {
        name: ids
        for name, ids in ledger.carried.items()
        if not name.startswith(f"epochs/{offset.epoch:020d}/") or Journal.link_of(name, offset.plan) is None
    }
    return replace(ledger, carried=carried)
