"""The kills of a run: process, point and order, from a seed and nothing else."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.links.proxy import Trouble

DRIVER, READER, EXECUTOR, WORKER = KINDS = ("driver", "reader", "executor", "worker")
SINKS = ("parquet", "postgres", "delta", "iceberg")
ANY_TIME = "any time"
"""Not a point: the process is killed some seconds after the last kill's effects are over, or in the midst of them."""

# Which processes die while another one, or they themselves, are held at a point.
TARGETS = {
    "announced": (DRIVER, READER),
    "offset-logged": (DRIVER, READER),
    "received": KINDS,
    "sealed": KINDS,
    "task-deleted": KINDS,
    "writing": (DRIVER, READER, EXECUTOR),
    "sink-committed": (DRIVER,),
    "deleting": (DRIVER, READER),
    "deleted": (DRIVER, READER),
    "recorded": (DRIVER, READER),
}
# Every kind, and every law's own point, in the first kills of any run.
_FIRST = (
    (DRIVER, "sink-committed"),
    (READER, "deleting"),
    (WORKER, "received"),
    (EXECUTOR, "sealed"),
    (READER, "offset-logged"),
    (DRIVER, "deleting"),
    (READER, "announced"),
    (READER, "deleted"),
    (WORKER, "sealed"),
    (EXECUTOR, "received"),
    (READER, "recorded"),
    (DRIVER, "sealed"),
)
# Where tasks delete. A driver has nothing left to delete then, but for what got no answer.
_FIRST_OF_TASKS = (
    (WORKER, "task-deleted"),
    (READER, "task-deleted"),
    (EXECUTOR, "task-deleted"),
    *((kind, point) for kind, point in _FIRST if point != "deleting"),
)
_HASTY = 0.2
_LONGEST_WAIT_S = 3.0
_DROPPING = 0.4
_DROPPED = 0.2
# On a link, before each kill: how much of its bandwidth is left, and what befalls requests.
_SHARES = (1.0, 1.0, 0.5, 0.2)
_GRIEFS: tuple[dict[str, float], ...] = (
    {},
    {},
    {"lose": 0.1},
    {"reset": 0.1},
    {"cut": 0.1},
    {"lose": 0.05, "reset": 0.05, "cut": 0.05, "hang": 0.01},
)


@dataclass(frozen=True)
class Kill:
    """One SIGKILL. `after_s` is how long to wait before, for `ANY_TIME` only."""

    kind: str
    point: str
    after_s: float
    is_hasty: bool
    """True if it does not wait until the query has got over the kill before."""
    dropped: float
    """The share of the queue's answers that are dropped after their effect, from the kill before until this one."""


def kills(count: int, sink: str, delete_after: str, seed: int) -> Iterator[Kill]:
    """Yield `count` kills for a query into `sink`: every kind in turn, half of them at named points."""
    dice = random.Random(f"{seed}/{sink}/{delete_after}")
    kinds: list[str] = []
    first = list((_FIRST if delete_after == "commit" else _FIRST_OF_TASKS)[:count])
    for number in range(count):
        if number < len(first):
            kind, point = first[number]
        else:
            if not kinds:
                kinds = dice.sample(KINDS, len(KINDS))
            kind = kinds.pop()
            named = [
                each
                for each, targets in TARGETS.items()
                if kind in targets and not _is_foreign(each, sink, delete_after)
            ]
            point = dice.choice(named) if dice.random() < 0.5 else ANY_TIME
        yield Kill(
            kind=kind,
            point=point,
            after_s=round(dice.uniform(0, _LONGEST_WAIT_S), 2) if point == ANY_TIME else 0.0,
            is_hasty=point == ANY_TIME and dice.random() < _HASTY,
            dropped=_DROPPED if dice.random() < _DROPPING else 0.0,
        )


def _is_foreign(point: str, sink: str, delete_after: str) -> bool:
    """Return True if no process comes to the point, or none can be held there: the file sink commits inside the JVM."""
    of_the_other_mode = "task-deleted" if delete_after == "commit" else "deleting"
    return point == of_the_other_mode or (point == "writing" and sink == "parquet")


@dataclass(frozen=True)
class Road:
    """The link between query and queue, and how it changes from kill to kill."""

    bytes_per_s: float
    delay_s: float

    @classmethod
    def parse(cls, text: str) -> Road:
        """Return the link that is written as bytes per second and delay of a request, such as `2m,50ms`."""
        found = re.fullmatch(r"(\d+)([km]?),(\d+)ms", text)
        if not found:
            raise ValueError(f"{text!r} is no link; write one as 2m,50ms")
        return cls(int(found[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[found[2]], int(found[3]) / 1_000)

    def before_kill(self, number: int, seed: int) -> tuple[float, Trouble]:
        """Return bytes per second and trouble from the kill before until this one."""
        dice = random.Random(f"{seed}/{number}/link")
        return self.bytes_per_s * dice.choice(_SHARES), Trouble(delay_s=self.delay_s, **dice.choice(_GRIEFS))
