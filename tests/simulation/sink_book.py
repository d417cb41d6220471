"""The rows of one micro-batch that queue and journal have, as the sink's laws see them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from tests.simulation.sink_queues import group_of_line
from tests.simulation.sink_rows import Key
from tests.simulation.sink_tasks import SinkAttempt
from tests.simulation.sink_world import Entry


class Book:
    """The sent rows of one micro-batch, or one batch write: those of the queue, and those of the journal."""

    def __init__(self) -> None:
        self.accepted: dict[Key, list[SinkAttempt]] = {}
        self.messages: dict[Key, float] = {}
        """Time at which the queue last took it for a new message."""
        self.doubled_at: dict[Key, float] = {}
        """Time at which it was doubled by a call that was made in time."""
        self.numbers: dict[Key, int] = {}
        """Number of the history at which it was first taken."""
        self.accepted_at: dict[tuple[Key, int], float] = {}
        """Time at which an attempt's row was first taken, by the attempt's number."""
        self.recorded: dict[bytes, int] = {}
        """Number of the history at which it was first durable."""
        self.recorded_in: defaultdict[bytes, dict[str, int]] = defaultdict(dict)
        """The same in each partition of each run."""
        self.recorded_at: dict[bytes, float] = {}
        self.versions: set[int] = set()
        self.kept: dict[Key, int] = {}
        """Number of the history at which a refused row was first kept elsewhere."""
        self.kept_alone: dict[Key, int] = {}
        """The same for the first one of equal rows of a task: if it gives only one of them later, that is this one."""
        self.kept_names: dict[str, tuple[Key, str]] = {}
        """The content of each object: a row, and its body."""
        self.out_of_order: dict[str, int] = {}
        """Partitions of runs that are recorded to be out of order, and the number of the history of that."""
        self.partitions: dict[tuple[str, str | Key], int] = {}
        """The first one in which a group, or a row, has stood in a run."""
        self.scattered: set[str] = set()
        """The groups that have stood in several partitions of a run: then only each of these is in order."""
        self.bodies: dict[Key, str] = {}
        self.twins: set[Key] = set()
        """The rows that have, or that have had several bodies: they are several, which are equal."""

    def add_kept(self, name: str, line: Mapping[str, Any]) -> None:
        """An object for a refused row is there."""
        self.kept_names[name] = kept_key(line)

    def place(self, attempt: SinkAttempt) -> None:
        run, partition = attempt.draft.run, attempt.place.partition
        groups = {row.group for row in attempt.rows}
        self.scattered |= {each for each in groups if self.partitions.setdefault((run, each), partition) != partition}
        for row in attempt.rows:
            is_there = self.partitions.setdefault((run, row.key), partition) == partition
            if not is_there or self.bodies.setdefault(row.key, row.body) != row.body:
                self.twins.add(row.key)

    def known(self, attempt: SinkAttempt, digest: bytes) -> int | None:
        """Return since when an attempt may know that a row is recorded: it does not read other partitions of its run.

        A row that stands there as well is another one, which is equal.
        """
        own, run = place_of(attempt), attempt.draft.run
        recorded = self.recorded_in.get(digest, {})
        return min((recorded[each] for each in recorded if each == own or not each.startswith(run)), default=None)


def place_of(attempt: SinkAttempt) -> str:
    """Return how the names of objects begin in which it records what it has sent."""
    return f"{attempt.draft.run}-{attempt.place.partition:05d}"


def key_of(entry: Entry) -> Key:
    return entry["MessageGroupId"], entry.get("MessageDeduplicationId", entry["MessageBody"])


def kept_key(line: Mapping[str, Any]) -> tuple[Key, str]:
    """Return what row a line is of, and its body."""
    row = line["row"]
    group = group_of_line(row["messageGroupId"], row.get("queueUrl"))
    body, told = row["body"], row["messageDeduplicationId"]
    return (group, body if told is None else told), body


def size_of(entry: Entry) -> int:
    attributes = entry.get("MessageAttributes", {})
    size = len(entry["MessageBody"].encode())
    return size + sum(len(name) + len("".join(value.values())) for name, value in attributes.items())


def rows_before(attempt: SinkAttempt, key: Key) -> tuple[list[Key], Key | None]:
    """Return the rows of the group before the first one of this key, and the first of them that is flawed, if any."""
    found: dict[Key, None] = {}
    flawed: Key | None = None
    for row in attempt.rows:
        if row.group == key[0]:
            if row.key == key:
                break
            if row.flaw and not attempt.leaves_out(row, found):
                flawed = flawed or row.key
            found[row.key] = None
    return list(found), flawed


def places_before(attempt: SinkAttempt, key: Key) -> Iterator[set[Key]]:
    """Yield what may stand before a row of this key, for each place in its group where the attempt may send one.

    With a journal the first row that is good stands for all that are equal; without one each stands for itself.
    """
    found: set[Key] = set()
    for row in attempt.rows:
        if row.group == key[0]:
            if row.key == key and row.flaw != "empty":
                yield set(found)
                if not row.flaw and attempt.options.journal_location is not None:
                    return
            found.add(row.key)
