"""The claims on a journal: each driver or command that works on it makes one, and the highest number owns it.

Put-if-absent guards a name only while its object is there: once it is dropped, a late writer may put it again. So

- a claim counts once a list *after* its put shows that it is the highest; it is dropped only by a higher one's driver;
- a driver recognises its claim by the content, not by the name alone;
- a journal's first claim is the time at which it was made, so it is above all those of a journal that was removed from
  the same place: a driver that still runs with one of those stops, as one that was overtaken.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sqs_fifo_spark.errors import FencedError, JournalUnavailableError
from sqs_fifo_spark.journal.documents import to_json
from sqs_fifo_spark.journal.identity import JournalIdentity
from sqs_fifo_spark.source.owner import Owner
from sqs_fifo_spark.source.pool import IN_CALLING_THREAD, Pool

_CLAIM_NAME = re.compile(r"drivers/(\d{20})\.json")
WHERE_IT_IS = (
    "With deleteAfter=commit, messages that are not committed are still in the queue. With deleteAfter=journal, the "
    "journal had the only copy of them."
)


class ClaimedJournal(JournalIdentity):
    """A journal that drivers claim, in one process. Built without any I/O but its identity's."""

    _token = ""
    """A random token that only this driver's claim holds."""
    own_claim = 0
    """The number of this driver's claim."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} at '{self.location}' is_claimed={bool(self._token)}>"

    def claim(self, about: Mapping[str, Any], *, after: int | None = None) -> int:
        """Make this driver the journal's owner and return the number of its claim, higher than any before.

        `about` describes the driver for an operator: see `Owner`. With `after`, FencedError is raised if another claim
        than that is the highest, and then none is made that counts.
        """
        claims = self.store.list("drivers")
        while True:
            highest = max([self.first_claim - 1, *map(_number, claims)])
            if after is not None and highest != after:
                owner = self.owner()
                who, remedy = ("a query", "Stop it, and try again")
                if owner is not None and owner.is_command:
                    who, remedy = ("another command", "Try again")
                raise FencedError(
                    f"{who} took over the journal at '{self.location}' (claim {highest}) meanwhile, so nothing was "
                    f"changed. {remedy}."
                )
            number = highest + 1
            self._token = uuid.uuid4().hex
            content = to_json({**about, "driver": self._token})
            is_own = self._put_own(_claim_name(number), content, self._token)
            claims = self.store.list("drivers")
            if is_own and max(map(_number, claims), default=0) == number:
                self.own_claim = number
                for claim in claims:
                    if _number(claim) < number:
                        self.store.delete([claim])  # lowest first, so that none that is left seems to be the last
                return number

    def require_claim(self, number: int, pool: Pool = IN_CALLING_THREAD) -> Sequence[str]:
        """Raise FencedError if another driver has claimed the journal since this one's claim `number`.

        One round trip, if `pool` makes calls at once. Return the names of claims and of the objects beside them.
        """
        # All claims may have been removed, and a leftover may have put one of our number since: so its content counts.
        own = pool.submit(lambda: self.store.get(_claim_name(number)))
        claims = self.store.list("drivers")
        owner = max(map(_number, claims), default=0)
        if owner == number:
            if self._token.encode() in (own.result() or b""):
                return claims
            owner = self._highest_claim()  # a newer driver may have dropped ours after that list
        if owner <= number:
            raise JournalUnavailableError(
                f"the journal at '{self.location}' was removed while the query ran, so this query stops. {WHERE_IT_IS}"
            )
        raise FencedError(
            f"another query or an operator took over the journal at '{self.location}' (claim {owner}; this query's is "
            f"{number}), so this one stops. Run one query for each journal: give the other one its own journalLocation."
        )

    def owner(self) -> Owner | None:
        """Return the owner by the highest claim, or None. Raises JournalUnavailableError, JournalCorruptError."""
        while number := self._highest_claim():
            name = _claim_name(number)
            data = self.store.get(name)
            if data is not None:  # else another driver has claimed the journal since, and has dropped this one
                return Owner.of_claim(number, data, name)
        return None

    def _highest_claim(self) -> int:
        return max(self.claims(), default=0)

    def claims(self) -> list[int]:
        """Return the numbers of all claims that stand, that of the journal's owner last."""
        return sorted(filter(None, map(_number, self.store.list("drivers"))))

    def _put_own(self, name: str, data: bytes, token: str) -> bool:
        """Put if absent; True also if the object, with its `token`, is there because our own put's answer was lost."""
        if self.store.put_if_absent(name, data):
            return True
        found = self.store.get(name)
        return found is not None and token.encode() in found


def _claim_name(number: int) -> str:
    return f"drivers/{number:020d}.json"


def _number(name: str) -> int:
    match = _CLAIM_NAME.fullmatch(name)
    return int(match[1]) if match else 0
