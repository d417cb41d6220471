"""The queues that a sink's rows name, in one schedule: the option's, a second one, and one that is not there."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.sink_rows import SinkRow

OTHER, GONE = "r.fifo", "gone.fifo"
_BESIDE = "us-east-1/000000000000"


class Queues:
    """Rows that name their queues, or none: of the same seed, but of dice of its own."""

    def __init__(self, seed: int, *, is_calm: bool) -> None:
        self._rng = rng = random.Random(f"{seed}/queues")
        self.are_used = rng.random() < 0.25
        self._share = rng.choice((0.2, 0.5, 0.9))
        self._twins = rng.choice((0.0, 0.1, 0.3))
        self._wrong = 0.0 if is_calm or rng.random() < 0.6 else 0.05

    def calm_down(self) -> None:
        """Let no row name a queue that is not there any more."""
        self._wrong = 0.0

    def deal(self, rows: Sequence[SinkRow]) -> list[SinkRow]:
        """Return the rows, each with its queue; some stand there twice, for two queues."""
        if not self.are_used:
            return list(rows)
        dealt = []
        for row in rows:
            if "\n" in row.group:  # it has one
                dealt.append(row)
                continue
            other = row._replace(group=in_queue(OTHER, row.group))
            dice = self._rng.random()
            dealt.append(other if dice < self._share else row)
            if self._rng.random() < self._twins:
                dealt.append(row if dice < self._share else other)
            if self._rng.random() < self._wrong:
                dealt.append(row._replace(group=in_queue(GONE, row.group), flaw="empty"))
        return dealt

    def spelt(self, group: str, told: str) -> str | None:
        """Return a row's own name of its queue, always the same."""
        name = group.rpartition("\n")[0]
        arn = f"arn:aws:sqs:{_BESIDE.replace('/', ':')}:{name or 'q.fifo'}"
        ways = [name or None, name or "q.fifo", arn, f"http://127.0.0.1:9324/000000000000/{name or 'q.fifo'}"]
        return ways[zlib.crc32(told.encode()) % len(ways)]


def in_queue(name: str, group: str) -> str:
    """Return the group of a queue that is not the option's."""
    return f"{name}\n{group}"


def group_alone(group: str) -> str:
    return group.rpartition("\n")[2]


def group_of_lane(lane: str) -> str:
    """Return the group, with its queue if that is not the option's, by the package's own name of both."""
    queue, _, group = lane.rpartition("\n")
    return in_queue(queue.rpartition("/")[2], group) if queue else group


def group_of_line(group: str, spelt: str | None) -> str:
    """Return the same of a refused row, by its columns."""
    name = re.split("[/:]", spelt or "q.fifo")[-1]
    return group if name == "q.fifo" else in_queue(name, group)


def shown(group: str) -> str:
    """Return the words by which the driver names a group."""
    name, _, alone = group.rpartition("\n")
    return f"'{alone}' of '{_BESIDE}/{name}'" if name else f"'{alone}'"
