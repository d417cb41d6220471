"""The entries of SQS's batch calls, pure: which go together, what is asked, and how each entry ends."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqs_fifo_spark.aws.calls import MAX_ENTRIES, named_apart
from sqs_fifo_spark.aws.codes import LostHoldError, error_from_aws
from sqs_fifo_spark.errors import AccessDeniedError, QueueNotFoundError, SqsFifoError, TransientQueueError
from sqs_fifo_spark.source.message import Receipt


class Outcome(enum.Enum):
    """The end of one entry of a batch call."""

    DONE = "done"
    LOST = "lost"
    """SQS refused the handle, so the hold is lost: it expired, or the message is not in flight any more."""
    FAILED = "failed"
    """No answer for this entry within the budget: nothing is known, and it may be tried again."""


class Entries:
    """The entries of one batch call, up to ten, which is made again for those that have no outcome yet."""

    def __init__(self, operation: str, url: str, entries: Sequence[Mapping[str, Any]]) -> None:
        self._operation = operation
        self._url = url
        self._entries = entries
        self._left = set(range(len(entries)))
        """The places of entries that have no outcome yet."""
        self._places: Mapping[str, int] = {}
        """The places of those in the last call, by their ids there."""
        self.outcomes = [Outcome.FAILED] * len(entries)
        """Those still pending in the end stand as FAILED."""

    def request(self) -> list[Mapping[str, Any]]:
        """Return the entries of the next call, by ids that no other call has."""
        self._places = named_apart(sorted(self._left))
        return [{"Id": key, **self._entries[place]} for key, place in self._places.items()]

    def note(self, answer: Mapping[str, Any]) -> list[str]:
        """Note the outcomes in the answer to the last request. Return the codes of entries that are given up.

        Raises the error of an answer that concerns more than single messages.
        """
        refused = {failed.get("Id"): failed for failed in (answer.get("Failed") or ())}
        done = {each.get("Id") for each in (answer.get("Successful") or ())}
        for key in done & self._places.keys() - refused.keys():
            self._end(self._places[key], Outcome.DONE)
        unknown: list[tuple[str, SqsFifoError]] = []
        for key, failed in refused.items():
            place = self._places.get(key)
            if place is None:
                continue
            code, message = str(failed.get("Code", "")), str(failed.get("Message", ""))
            error = error_from_aws(self._operation, self._url, code, message, sender_fault=failed)
            if isinstance(error, LostHoldError):
                self._end(place, Outcome.LOST)
            elif isinstance(error, (AccessDeniedError, QueueNotFoundError)):
                raise error
            elif not isinstance(error, TransientQueueError):
                # It concerns this message alone, and its fate is not known.
                self._end(place, Outcome.FAILED)
                unknown.append((code, error))
        if len(unknown) == len(self._places) > 1:
            raise unknown[0][1]  # nor would any other call succeed
        return [code for code, _ in unknown]

    def require_all(self) -> None:
        """Raise TransientQueueError while an entry is left that may be tried again."""
        if self._left:
            raise TransientQueueError(f"{self._operation}: {len(self._left)} of {len(self._entries)} entries failed")

    def _end(self, place: int, outcome: Outcome) -> None:
        self.outcomes[place] = outcome
        self._left.discard(place)


def split_into_batches(receipts: Iterable[Receipt]) -> list[list[Receipt]]:
    """Return the receipts in lists for one batch call each: whole receives, together while they fit in ten.

    AWS advises to build batches from handles of one receive. A receive holds the heads of its groups in front.
    """
    calls: list[list[Receipt]] = []
    by_receive: dict[int, list[Receipt]] = {}
    for receive, together in itertools.groupby(receipts, lambda receipt: receipt.receive):
        by_receive.setdefault(receive, []).extend(together)
    for received in by_receive.values():
        for start in range(0, len(received), MAX_ENTRIES):
            part = received[start : start + MAX_ENTRIES]
            if calls and len(calls[-1]) + len(part) <= MAX_ENTRIES:
                calls[-1].extend(part)
            else:
                calls.append(part)
    return calls
