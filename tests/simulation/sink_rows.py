"""Rows for a sink: what a seed makes of groups, ids, bodies and flaws, in which partitions and Arrow batches."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from tests.simulation.sink_queues import Queues, group_alone

Key = tuple[str, str]
"""Sets a message apart from others: its group, with its queue as `in_queue` has it, and its id or its body."""


class SinkRow(NamedTuple):
    """One row. `flaw` is empty, "empty" if we refuse it, for its body or its queue, or "poison" if only SQS does."""

    group: str
    told: str
    body: str
    attribute: str | None = None
    flaw: str = ""

    @property
    def key(self) -> Key:
        return self.group, self.told


Partition = tuple[SinkRow, ...]


class Traffic:
    """The rows of one schedule, up to `most` in a micro-batch.

    `by_column` says that equal is what has the same id, rather than the same body. `scatter` is the share of rows that
    stand in any partition, rather than in that of their group.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        by_column: bool,
        is_calm: bool,
        most: int,
        scatter: float,
        keeps: bool = False,
        queues: Queues | None = None,
    ) -> None:
        self._rng = rng
        self._queues = queues
        self._by_column = by_column
        self._has_attributes = rng.random() < 0.15
        self._groups = [f"g{number}" for number in range(rng.choice((1, 2, 4, 12, 25)))]
        self._heat = rng.choice((0.0, 0.3, 0.8))
        self._most = most
        self._scatter = scatter
        self._equal = rng.choice((0.0, 0.0, 0.3 if keeps else 0.08))
        self._flaws = 0.0 if is_calm or rng.random() < (0.2 if keeps else 0.7) else 0.3
        self._keeps = keeps
        self._made: list[SinkRow] = []
        self._number = 0

    def rows(self) -> list[SinkRow]:
        """Return a micro-batch's rows, perhaps one of them flawed."""
        rng = self._rng
        rows = [self._row() for _ in range(rng.randint(0 if rng.random() < 0.1 else 1, self._most))]
        for _ in range(rng.choice((1, 1, 3)) if self._keeps else 1):
            if rows and rng.random() < self._flaws:
                at = rng.randrange(len(rows))
                rows[at] = self._empty(rows[at]) if rng.random() < 0.5 else self._poison()
                if self._keeps and rng.random() < 0.5:  # one of two equal ones may be sent, and the other one held
                    equal = self._row()._replace(group=rows[at].group)
                    rows.insert(rng.randint(at + 1, len(rows)), equal)
                    rows.insert(rng.randint(0, at), equal)
                    at += 1
                if self._by_column and rows[at].flaw == "poison" and self._equal:  # a good row has its id, too
                    equal = rows[at]._replace(body=f"good-{rows[at].body}", flaw="")
                    rows.insert(rng.randint(0, len(rows)), equal)
                if self._keeps and rng.random() < 0.3:  # equal ones, perhaps in two tasks, are kept side by side
                    rows.insert(rng.randint(0, len(rows)), rows[at])
        return rows

    def calm_down(self) -> None:
        """Make few rows from now on, and none with a flaw."""
        self._flaws, self._most = 0.0, 3

    def others(self, rows: Sequence[SinkRow]) -> list[SinkRow]:
        """Return what the same micro-batch has when its source gives other rows the second time."""
        kept = [row for row in rows if self._rng.random() < 0.8]
        kept += [self._row() for _ in range(self._rng.randint(0, 5))]
        if self._rng.random() < 0.5:
            self._rng.shuffle(kept)
        if self._keeps and kept and self._rng.random() < 0.5:  # before rows of its group that may be sent already
            group = self._rng.choice(kept).group
            kept.insert(0, self._empty(self._row()._replace(group=group)))
        return kept

    def _row(self) -> SinkRow:
        rng = self._rng
        group = self._groups[0] if rng.random() < self._heat else rng.choice(self._groups)
        if self._made and rng.random() < self._equal:
            # Often of the same micro-batch, so that both may be sent at once, perhaps by two tasks.
            equal = rng.choice(self._made[-6:] if rng.random() < 0.5 else self._made)
            if rng.random() < 0.5:
                group = equal.group
            made = SinkRow(group, equal.told, equal.body, equal.attribute)
        else:
            self._number += 1
            body = f"{group}-{self._number}{'x' * rng.randint(0, 60)}"
            attribute = str(self._number) if self._has_attributes and rng.random() < 0.5 else None
            made = SinkRow(group, f"i{self._number}" if self._by_column else body, body, attribute)
        self._made.append(made)
        return made

    def _empty(self, row: SinkRow) -> SinkRow:
        return row._replace(body="", told=row.told if self._by_column else "", flaw="empty")

    def _poison(self) -> SinkRow:
        return self._row()._replace(body=f"poison-{self._number}", told=f"poison-{self._number}", flaw="poison")

    def partitioned(self, rows: Sequence[SinkRow]) -> list[Partition]:
        """Spread rows over partitions, each group in one, but for what is scattered."""
        count, salt = self._rng.randint(1, 3), self._rng.randrange(1 << 16)
        spread: list[list[SinkRow]] = [[] for _ in range(count)]
        for row in rows:
            is_scattered = self._scatter > 0 and self._rng.random() < self._scatter
            own = zlib.crc32(f"{salt}{row.group}".encode()) % count
            spread[self._rng.randrange(count) if is_scattered else own].append(row)
        return [tuple(partition) for partition in spread]

    def arrow(self, rows: Partition) -> Iterator[pa.RecordBatch]:
        """Yield a partition as a task gets it."""
        begin = 0
        while begin < len(rows):
            end = begin + self._rng.choice((1, 5, 20, 100))
            part = rows[begin:end]
            columns: dict[str, pa.Array] = {
                "body": pa.array([row.body for row in part], pa.string()),
                "messageGroupId": pa.array([group_alone(row.group) for row in part], pa.string()),
            }
            if self._queues is not None and self._queues.are_used:
                columns["queueUrl"] = pa.array([self._queues.spelt(row.group, row.told) for row in part], pa.string())
            if self._by_column:
                columns["messageDeduplicationId"] = pa.array([row.told for row in part], pa.string())
            if self._has_attributes:
                maps = [None if row.attribute is None else [("number", row.attribute)] for row in part]
                columns["messageAttributes"] = pa.array(maps, pa.map_(pa.string(), pa.string()))
            yield pa.RecordBatch.from_pydict(columns)
            begin = end
