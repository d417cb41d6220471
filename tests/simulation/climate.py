"""The faults that may come in a schedule, and their probabilities."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

PAUSES_S = (1, 5, 12, 31, 100)
"""Seconds for which something stands still: from next to nothing to several visibility timeouts."""
CALL_FAULTS = ("refused", "throttled", "lost", "entry", "short", "slow")
STORE_FAULTS = ("refuse", "raise", "deny", "conflict", "fails", "slow store")
# What happens around the calls. Those of the first line do no harm to a lease.
CHAOS = {
    "send": 3, "resend": 1, "receive elsewhere": 3, "copy of a task": 4,
    "kill the query": 2, "kill a task": 3, "stall": 2, "jump": 1, "rival": 1, "other checkpoint": 1,
}  # fmt: skip
FAILING_RENEWALS = {"throttled": 0.2, "lost": 0.1, "hangs": 0.2}
"""Shares of renewals that fail, by kind: that costs no hold that SQS would still renew."""
MOST_FAILURES = 2
"""Failures in a row of a message's renewal, at most. And one call in a heartbeat hangs, at most.

For a schedule has a few threads, where a query has as many as it needs.
"""
HARMLESS = frozenset(
    {"send", "resend", "receive elsewhere", "copy of a task", "short", "stalled discovery", "conflict"}
)


@dataclass
class Climate:
    """The probability of each fault in one schedule. Many are 0, so that the others get room."""

    calls: Mapping[str, float]
    chaos: Mapping[str, float]
    steps_between: int

    @classmethod
    def draw(
        cls,
        rng: random.Random,
        *,
        is_calm: bool,
        faults: Sequence[str] = (*CALL_FAULTS, *STORE_FAULTS, "stalled discovery", "still at a name"),
        chaos: Mapping[str, int] = CHAOS,
        harmless: frozenset[str] = HARMLESS,
    ) -> Climate:
        def rate(kind: str) -> float:
            return 0.0 if (is_calm and kind not in harmless) or rng.random() < 0.5 else rng.uniform(0.2, 1.0)

        return cls(
            {kind: 0.06 * rate(kind) for kind in faults},
            {kind: weight * rate(kind) for kind, weight in chaos.items()},
            rng.choice((8, 20, 50)),
        )


CLEAR = Climate({}, {}, 1 << 30)


@dataclass(frozen=True)
class Link:
    """The network between the query and everything else, in a whole schedule: no fault of anybody, and no excuse."""

    message_s: float = 0.0
    """Each message of an answer takes so long to arrive."""
    transfer_s: float = 0.0
    """A segment takes so long to the store, or from it."""
    renewals: Mapping[str, float] = field(default_factory=dict)
    """The share of renewals that fail in each way."""

    @classmethod
    def draw(cls, rng: random.Random, *, is_calm: bool) -> Link:
        """Return a link that is fast in two of three schedules. What a calm one may have costs no hold."""
        if rng.random() < 0.67:
            return cls()
        renewals = {kind: rate for kind, rate in FAILING_RENEWALS.items() if rng.random() < 0.5}
        return cls(rng.choice((0.0, 0.5, 1.5) if is_calm else (0.0, 1.5, 4.0)), rng.choice((0.0, 0.5, 3.0)), renewals)
