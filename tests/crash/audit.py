"""The audit of a run, from data alone: what was sent, what stands in the sink, and when each message was deleted.

It trusts nothing that the source says of itself, and forgives nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.spark.support import Row, Sent


@dataclass(frozen=True)
class Fate:
    """The words of a queue on its messages: each that was sent, and when each was deleted, in wall-clock seconds."""

    sent: Mapping[str, Sent]
    deleted_at: Mapping[str, float]


@dataclass(frozen=True)
class Audit:
    """The fate of the messages. All but `sent` and `delivered` should be 0."""

    sent: int
    delivered: int
    lost: int
    doubled: int
    out_of_order: int
    unknown: int
    """Rows of messages that nobody sent, or of another group or number than the queue gave them."""
    deleted_early: int
    """Messages that were deleted before Spark had committed their micro-batch, or without having come at all."""
    never_deleted: int

    @property
    def is_clean(self) -> bool:
        wrong = self.lost + self.doubled + self.out_of_order + self.unknown + self.deleted_early + self.never_deleted
        return self.sent > 0 and wrong == 0

    def __str__(self) -> str:
        text = (
            f"sent {self.sent:,}  delivered {self.delivered:,}  lost {self.lost:,}  doubled {self.doubled:,}  "
            f"out of order {self.out_of_order:,}  deleted early {self.deleted_early:,}"
        )
        extra = {"unknown": self.unknown, "never deleted": self.never_deleted}
        return text + "".join(f"  {name} {count:,}" for name, count in extra.items() if count)


def audit_each(
    queues: Mapping[str, Fate],
    rows: Iterable[Row],
    committed_at: Mapping[int, float],
    *,
    tasks_delete: bool = False,
) -> dict[str, Audit]:
    """Judge each queue of a source by itself: see `audit`. A row counts for the queue that it names.

    So one that names the wrong queue is unknown there, and lost here; one that names none of `queues` has an audit of
    its own, which is not clean.
    """
    of_queue: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        of_queue[row.queue_url].append(row)
    nothing = Fate({}, {})
    fates = {url: queues.get(url, nothing) for url in dict.fromkeys([*queues, *of_queue])}
    return {
        url: audit(fate.sent, of_queue[url], fate.deleted_at, committed_at, tasks_delete=tasks_delete)
        for url, fate in fates.items()
    }


def audit(
    sent: Mapping[str, Sent],
    rows: Iterable[Row],
    deleted_at: Mapping[str, float],
    committed_at: Mapping[int, float],
    *,
    tasks_delete: bool = False,
) -> Audit:
    """Judge the rows, which stand in the order of micro-batches, places, and positions. Nothing is sorted.

    `deleted_at` says when each message was deleted from the queue, `committed_at` when Spark wrote each micro-batch
    into its commit log: wall-clock seconds of one machine. A row is out of order if its sequence number is not above
    all before it in its group, or if its micro-batch has put the group into another place before. A row that came
    before is doubled, and not judged again.

    `tasks_delete`: messages may be deleted before the commit, if they come at all; and a group may stand in several
    places of a micro-batch, in order in each, and above all of the micro-batches before.
    """
    seen: dict[str, int] = {}
    highest: dict[tuple[str, str], int] = {}
    newest: dict[str, tuple[int, int]] = {}
    before: dict[str, int] = {}
    places: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    delivered = doubled = out_of_order = unknown = 0
    for row in rows:
        delivered += 1
        if sent.get(row.message_id) != Sent(row.message_group_id, row.sequence_number):
            unknown += 1
            continue
        if row.message_id in seen:
            doubled += 1
            continue
        seen[row.message_id] = row.batch_id
        places[row.batch_id, row.message_group_id].add(row.place)
        group, number = row.message_group_id, row.sequence_number
        # By group: the last micro-batch before, and the highest number up to it; and the highest in a place, or in all.
        place = (group, f"{row.batch_id}/{row.place}" if tasks_delete else "")
        if newest.get(group, (-1, -1))[0] < row.batch_id:
            before[group] = newest.get(group, (-1, -1))[1]
        newest[group] = row.batch_id, max(number, newest.get(group, (-1, -1))[1])
        is_split = len(places[row.batch_id, group]) > 1 and not tasks_delete
        if number <= max(highest.get(place, -1), before[group]) or is_split:
            out_of_order += 1
        highest[place] = max(number, highest.get(place, -1))
    early = [
        message_id
        for message_id, at in deleted_at.items()
        if message_id not in seen or (not tasks_delete and at < committed_at.get(seen[message_id], float("inf")))
    ]
    return Audit(
        sent=len(sent),
        delivered=delivered,
        lost=len(sent.keys() - seen.keys()),
        doubled=doubled,
        out_of_order=out_of_order,
        unknown=unknown,
        deleted_early=len(early),
        never_deleted=len(sent.keys() - deleted_at.keys()),
    )
