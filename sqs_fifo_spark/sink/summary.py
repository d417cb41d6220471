"""Each task's summary of its groups and messages, by which the driver finds those that two tasks have in common.

A group that stands in two partitions is in order in each, and in no order in the queue. A message id that two tasks got
is that of a row which SQS took for equal to another task's. No task can see either.

Groups and ids travel as hashes of 64 bits, seeded anew in each run of a write: of n different groups, some two have the
same hash, and raise a false alarm, in one of 2**65 / n**2 runs (37 million at a million groups). A task does not know
how many others there are, so the task of partition p gives at most BUDGET / (p + 1) hashes of either kind, and MOST:
all tasks together, if there are 100,000, no more than 330 MiB, a third of Spark's default for
`spark.driver.maxResultSize`. Of more, it gives the smallest, which are the same in all tasks that have them. An overlap
among these is true; if tasks that give a share f of their groups have g of them in common, all are missed with a
probability of (1 - f)**g, so a summary says whether it is complete.
"""

from __future__ import annotations

import bisect
import hashlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from sqs_fifo_spark.errors import DisorderError
from sqs_fifo_spark.options import SinkOptions

HASH_BYTES = 8
MOST = 1 << 17
"""Hashes of either kind that one task gives, at most: 1 MiB."""
BUDGET = 1 << 21
"""Hashes that tasks with equally many give in all. While no task has more of them, all groups are compared."""
NAMES = 32
"""Groups whose names a task gives, too: those of the smallest hashes, of which examples are made."""
NAMES_BUDGET = 1 << 13
_LATELY = 1 << 14
"""Groups that a task has just noted, of which it need not ask whether it has noted them before."""
_SHOWN = 4
"""Partitions that an example names."""
_EVERY_HASH = 1 << 64


@dataclass(frozen=True)
class Hashes:
    """Hashes of a task, each once, in order; `is_complete` says that these are all."""

    packed: bytes = field(default=b"", repr=False)
    is_complete: bool = True


@dataclass(frozen=True)
class Summary:
    """The rows of a task: their groups, and the ids of the messages that SQS has made of them."""

    groups: Hashes = Hashes()
    message_ids: Hashes = Hashes()
    names: dict[int, str] = field(default_factory=dict, repr=False)
    """Some groups, by their hashes."""


class Tally:
    """Gathers the summary of one task, in at most 16 bytes of memory a hash, or about 100 while it sorts them.

    Besides, it remembers the groups that it has just noted, up to _LATELY and those of one more call.

    `add_groups` and `add_message_ids` may each be called by one thread at a time.
    """

    def __init__(self, partition: int, run: str) -> None:
        """`run` is the execution of the write, the same in all its tasks."""
        self._salt = run.encode()[:16]
        self._groups = _Smallest(share(BUDGET, MOST, partition))
        self._message_ids = _Smallest(share(BUDGET, MOST, partition))
        self._names: dict[int, str] = {}
        self._most_names = share(NAMES_BUDGET, NAMES, partition)
        self._named_below = _EVERY_HASH
        self._lately: set[str] = set()

    def add_groups(self, groups: set[str]) -> None:
        """Note groups that rows have, each with its queue, whether those are sent, were sent before, or are refused."""
        news = groups - self._lately
        keys = self._hashes(news)
        self._groups.add(keys)
        for group, key in zip(news, keys, strict=True):
            if key < self._named_below:
                self._names[key] = group
                if len(self._names) > self._most_names:
                    del self._names[max(self._names)]
                    self._named_below = max(self._names)
        if len(self._lately) >= _LATELY:
            self._lately = set()
        self._lately |= groups

    def add_message_ids(self, message_ids: Iterable[str]) -> None:
        """Note the messages of rows that this task does not count as equal."""
        self._message_ids.add(self._hashes(message_ids))

    def summary(self) -> Summary:
        return Summary(self._groups.hashes(), self._message_ids.hashes(), self._names)

    def _hashes(self, texts: Iterable[str]) -> array[int]:
        salt = self._salt
        hashes = (hashlib.blake2b(text.encode(), digest_size=HASH_BYTES, salt=salt).digest() for text in texts)
        return array("Q", b"".join(hashes))


class _Smallest:
    """The `most` smallest of the hashes that were added."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept = array("Q")  # some perhaps several times, or too many, until they are sorted
        self._is_complete = True

    def add(self, hashes: array[int]) -> None:
        self._kept.extend(hashes)
        if len(self._kept) >= 2 * self._most:
            self._sort()

    def hashes(self) -> Hashes:
        self._sort()
        return Hashes(self._kept.tobytes(), self._is_complete)

    def _sort(self) -> None:
        given = pa.UInt64Array.from_buffers(pa.uint64(), len(self._kept), [None, pa.py_buffer(self._kept)])
        once = pc.unique(given)
        in_order = once.take(pc.array_sort_indices(once))
        self._is_complete = self._is_complete and len(once) <= self._most
        self._kept = array("Q", in_order[: self._most].to_pylist())


def share(budget: int, most: int, partition: int) -> int:
    """Return the part of `budget` that the task of this partition may use, at least 1."""
    return max(1, min(most, budget // (partition + 1)))


@dataclass(frozen=True)
class Overlap:
    """Groups and messages that tasks have in common."""

    groups: int
    """Number of groups that stand in several partitions, as far as they were compared."""
    example: str
    """One of them, and its partitions."""
    are_compared: bool
    """True if all groups were."""
    equal: int
    """Rows that SQS took for equal to another task's, at least, besides those that the tasks have counted."""


def compare(summaries: Sequence[tuple[int, Summary]]) -> Overlap:
    """Return the overlap of tasks by partition and summary. Runs on the driver, in some 40 bytes for each hash."""
    groups = _repeats([each.groups.packed for _, each in summaries])
    return Overlap(
        len(pc.unique(groups)),
        _example(groups, summaries) if len(groups) else "",
        all(each.groups.is_complete for _, each in summaries)
        or sum(bool(each.groups.packed) for _, each in summaries) < 2,
        len(_repeats([each.message_ids.packed for _, each in summaries])),
    )


def finding(overlap: Overlap, what: str, options: SinkOptions) -> str:
    """Return the log's line on groups that stand in several partitions of `what`, or none.

    With `onDisorder=fail`, raises DisorderError instead, also where it cannot be excluded.
    """
    if overlap.groups:
        if options.message_group_id is not None:
            seen = f"all rows go to one message group by the option 'messageGroupId', {overlap.example}"
            remedy = "Put all rows in one partition, in order: .coalesce(1).sortWithinPartitions(...) before the write."
        else:
            count = f"{'' if overlap.are_compared else 'at least '}{overlap.groups:,}"
            stand = "message group stands" if overlap.groups == 1 else "message groups stand"
            seen = f"{count} {stand} in several partitions, such as {overlap.example}"
            remedy = (
                'Put each group in one partition, in order: .repartition("messageGroupId").sortWithinPartitions(...) '
                "before the write, or in_group_order."
            )
        why = "The rows of a partition are in order in the queue, those of several are not"
    elif overlap.are_compared:
        return ""
    else:
        seen = "it has more message groups than are compared, so some may stand in several partitions"
        why = f"Up to {BUDGET:,} are compared, evenly spread over the partitions, and {MOST:,} of each"
        remedy = "Write fewer at a time."
    line = f"{what}: {seen}. {why}. {remedy}"
    if options.on_disorder == "fail":
        raise DisorderError(
            f"{line} All its rows are sent, and each repeat fails while that is so, unless onDisorder is set to log."
        )
    return line


def _repeats(parts: Sequence[bytes]) -> pa.Array:
    """Return, in order, each hash that stands in several parts, once less than it stands there."""
    arrays = [pa.Array.from_buffers(pa.uint64(), len(part) // 8, [None, pa.py_buffer(part)]) for part in parts]
    values = pa.concat_arrays([*arrays, pa.array([], pa.uint64())])
    values = values.take(pc.sort_indices(values))
    others = values.slice(1)
    return others.filter(pc.equal(others, values.slice(0, len(others))))


def _example(repeats: pa.Array, summaries: Sequence[tuple[int, Summary]]) -> str:
    """Return one of the groups and its partitions: one that has a name, if there is any."""
    names = {key: name for _, each in summaries for key, name in each.names.items()}
    named = repeats.filter(pc.is_in(repeats, value_set=pa.array(list(names), pa.uint64())))
    key = (named if len(named) else repeats)[0].as_py()
    partitions = [f"{partition}" for partition, each in summaries if _has(each.groups.packed, key)]
    if len(partitions) > _SHOWN + 1:
        partitions[_SHOWN:] = [f"{len(partitions) - _SHOWN:,} others"]
    queue, _, group = names.get(key, "").rpartition("\n")
    name = (f"'{group}'" if group else "one") + (f" of '{queue}'" if queue else "")
    return f"{name} in partitions {', '.join(partitions[:-1])} and {partitions[-1]}"


def _has(packed: bytes, key: int) -> bool:
    values = memoryview(packed).cast("Q")
    at = bisect.bisect_left(values, key)
    return at < len(values) and values[at] == key
