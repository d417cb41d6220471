"""The epochs that live, at most two: the open one, whose tasks may run, and the next one, which is announced."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import OptionError
from sqs_fifo_spark.options import SourceOptions
from sqs_fifo_spark.source.driver.epoch import Epoch
from sqs_fifo_spark.source.driver.ownership import Ownership
from sqs_fifo_spark.source.lease import Lease
from sqs_fifo_spark.source.message import Message
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.plan import PartitionPlan
from sqs_fifo_spark.source.pool import Pool


class Limits(NamedTuple):
    """The most that one epoch may take."""

    messages: int
    size: int
    """Bytes of bodies and attributes."""


class Epochs:
    """Used on the driver's own thread; the heartbeat's threads look at `open`."""

    def __init__(
        self, options: SourceOptions, lease: Lease, clock: Clock, *, read_pool: Pool, discovery_pool: Pool
    ) -> None:
        self.open: Epoch | None = None
        """The epoch whose tasks may be running, or that is closed and waits for its commit."""
        self.next: Epoch | None = None
        """The epoch that was announced and not planned."""
        self.deletes = options.delete_after == "journal"
        """True if tasks delete."""
        self._options = options
        self._make: Callable[..., Epoch] = functools.partial(
            Epoch,
            lease=lease,
            clock=clock,
            heartbeat_s=options.heartbeat_s,
            read_pool=read_pool,
            discovery_pool=discovery_pool,
            deletes=self.deletes,
        )

    def make(self, owned: Ownership, offset: Offset, *, max_messages: int = 0, expected: int = 0) -> Epoch:
        return self._make(
            offset, journal=owned.journal, skipped=owned.skipped, max_messages=max_messages, expected=expected
        )

    def is_open(self, offset: Offset) -> bool:
        return self.open is not None and self.open.offset == offset

    def is_next(self, offset: Offset) -> bool:
        return self.next is not None and self.next.offset == offset

    def open_at(self, owned: Ownership, offset: Offset) -> Epoch:
        """Return the open epoch, the one named by `offset`, be it of an earlier driver."""
        if self.open is None or self.open.offset != offset:
            self.open = self.make(owned, offset)
        return self.open

    def announce(
        self,
        owned: Ownership,
        offset: Offset,
        max_messages: int,
        *,
        expected: int = 0,
        caught: Sequence[Message] = (),
        after: str = "",
    ) -> Offset:
        """Make it the next one, with what the driver has caught for it: that is durable then."""
        announced = self.make(owned, offset, max_messages=max_messages, expected=expected)
        if caught:
            announced.catch(caught, after)
            # A newer driver knows only of objects put before its claim.
            owned.require_claim_of(announced.caught)
        self.next = announced
        return offset

    def announce_again(self, owned: Ownership, lost: Offset, *, after: str, max_messages: int) -> None:
        """Make it the next one, which Spark's log has lost: see `Driver.latest_offset`."""
        owned.take(lost)
        self.next = self.make(owned, lost, max_messages=max_messages)
        with owned.claim_checked_on_error():
            self.next.replay(after)

    def expected(self, offset: Offset) -> int:
        """Return about how many messages the announced epoch `offset` can get; as many as may be for any other one."""
        if self.next is not None and self.next.offset == offset:
            return self.next.expected
        return self._options.max_messages_per_trigger

    def plan(self, owned: Ownership, offset: Offset, *, after: str, limits: Limits) -> list[PartitionPlan]:
        """Open the announced epoch, and return its plans; one of an earlier driver is a replay."""
        most = limits.messages
        announced = self.next if self.is_next(offset) else None
        epoch = announced or self.make(owned, offset, max_messages=most, expected=most)
        epoch.max_messages = min(epoch.max_messages, most)
        with owned.claim_checked_on_error():
            if announced is None:
                epoch.replay(after)
            plans = epoch.plan(
                owned.ledger,
                after=after,
                claim=owned.claim,
                max_bytes=limits.size,
                carried_bytes=limits.size if self._options.payloads == "s3" else None,
            )
        self.open = epoch
        if self.next is not None and self.next.offset.epoch <= offset.epoch:
            if announced is None:
                owned.release(self.next.caught)
            self.next = None
        return plans

    def open_unread(self, owned: Ownership, given: Offset) -> bool:
        """Open the epoch `given` if its batch ran without a look at its rows, so that its plan was never asked for."""
        if not self.is_next(given):
            return False
        self.require_committed(owned, given)
        self.open, self.next = self.next, None
        return True

    def require_committed(self, owned: Ownership, later: Offset) -> None:
        """Raise OptionError if Spark has read the open epoch, and goes on with a `later` one without a commit."""
        if self.open is None or self.open.plans is None:
            return
        owned.require_claim()
        raise OptionError(
            f"Spark plans epoch {later.epoch} and has not committed epoch {self.open.offset.epoch}, as it does with "
            "the option 'asyncProgressTrackingEnabled'. Leave that out: a message is deleted, and its group goes on, "
            "only when its micro-batch is committed."
        )
