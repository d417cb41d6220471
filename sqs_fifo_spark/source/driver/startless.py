"""The driver's side for Spark 4.0 and 4.1, which asks for the latest offset without saying where the query is.

Spark is then at the offset that it got last. A restart mostly says where that is: it asks for the partitions between
that offset and itself. With AvailableNow, Spark's wrapper around a Python source asks for the latest offset before
anything else, logs the first answer, and none of the later ones. A new query asks in nearly the same order:

    without the wrapper   latestOffset                              initialOffset   partitions
    under it              latestOffset initialOffset latestOffset   initialOffset   partitions

Nobody may look at the rows of its first batch: then Spark goes on without asking for their partitions. Only a query
that has none before asks for the initial offset, so with that call the journal notes which epoch is its first.
"""

from __future__ import annotations

from typing import Any

from sqs_fifo_spark.source.driver.driver import Driver
from sqs_fifo_spark.source.driver.epochs import Limits
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.plan import PartitionPlan


class StartlessDriver:
    """Calls a `Driver` as Spark 4.2 does. Lives in the reader process beside the driver, as that does."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._is_wrapped = False
        """True if Spark logs only blindly announced offsets, or may do so: all others it only reports."""
        self._has_repeated = False
        """True if Spark has asked again, and was given the same blindly announced offset."""
        self._may_be_plain = False
        """True if this is a new query, which may be none under the wrapper: only its first batch shows that."""

    def initial_offset(self) -> Offset:
        """Do `Driver.initial_offset`, and note the first entry of Spark's log: it has that, or is about to."""
        start = self._driver.initial_offset()
        position = self._driver.position
        is_new = position is not None and not position.plan
        self._note_first(self._driver.announced if is_new else position)
        self._may_be_plain = self._is_wrapped and is_new and not self._has_repeated
        return start

    @property
    def query(self) -> str | None:
        return self._driver.query

    def prepare_available_now(self) -> None:
        self._driver.prepare_available_now()

    def report(self) -> dict[str, Any]:
        return self._driver.report()

    def stop(self) -> None:
        self._driver.stop()

    def latest_offset(self, start: Offset | None = None, max_messages: int | None = None) -> Offset:
        """Do `Driver.latest_offset` from Spark's place, which Spark 4.2 and later give as `start`.

        If that is not known, its log may have epochs that are not settled. Then return an epoch after all of them,
        announced blindly, and the same one until Spark has said its place. Under the wrapper it only reports later
        ones: the same one is returned again, however often it asks. A new query that asks twice in a row is under none,
        and has run its first batch, without a look at the rows.
        """
        if start is not None:
            return self._driver.latest_offset(start, max_messages)
        announced = self._driver.announced
        if announced is not None and self._is_wrapped:
            if not (self._may_be_plain and self._has_repeated):
                self._has_repeated = True
                return announced
            self._is_wrapped = self._may_be_plain = False
        position = announced or self._driver.position
        if position is None:
            self._is_wrapped = True
            return self._driver.announce_blindly()
        return self._driver.latest_offset(position)

    def plan(self, start: Offset, end: Offset, limits: Limits | None = None) -> list[PartitionPlan]:
        """Do `Driver.plan`. From an offset to itself there is nothing: at a restart, Spark says where it is."""
        if start != end:
            has_asked_once = self._may_be_plain and not self._has_repeated
            if end == self._driver.announced and (has_asked_once or not end.is_blind):
                self._is_wrapped = False  # it logs our answers
            self._may_be_plain = False
            return self._driver.plan(start, end, limits)
        announced = self._driver.announced
        log = self._driver.log(start)
        if log.knows(start) and announced is not None and announced.is_blind:
            log.require_none_lost(start)
        self._driver.position = start
        if not start.plan:
            self._note_first(announced)  # all before were another source's alone
        return []

    def _note_first(self, first: Offset | None) -> None:
        if first is not None:
            self._driver.note_first(first)

    def commit(self, end: Offset) -> None:
        if self._may_be_plain and self._has_repeated:
            self._is_wrapped = self._may_be_plain = False  # the next batch is another source's alone
        announced = self._driver.announced
        is_logged = announced is not None and announced.is_blind and announced != end
        self._driver.commit(end, logs_next=not self._is_wrapped or is_logged)
