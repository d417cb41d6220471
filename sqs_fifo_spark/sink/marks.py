"""Marks, by which the sink's record forgets old writes; and the names of its objects, with owner, age and size.

A mark, `over/<writer>/<number>`, says that the rows of this micro-batch, or batch write, and of all before it are
forgotten. It is put before anything is dropped, and the highest one stays: a writer that runs a forgotten one again is
refused.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from sqs_fifo_spark.errors import BatchForgottenError, JournalCorruptError
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.sink.digests import WIDTH

KEPT_BATCHES = 100
"""Micro-batches that are remembered. Spark's checkpoint remembers as many, unless set otherwise."""
FORGET_EVERY = 20
"""Further ones that are remembered until the oldest are forgotten, all at once."""
KEPT_MS = 7 * 86_400_000
"""Time for which a batch write is remembered at least, from its beginning; another one's commit forgets it."""
FORGET_EVERY_MS = 3_600_000
"""Time for which it is remembered longer, at most, while others commit, so that not each of them lists them all."""
BATCH_WRITES = "batch-writes"
"""Stands for the query of batch writes outside of a stream."""

_FOLDER_NAME = re.compile(r"sent/[^/]+(?:/[^/]+)?/?|over/[^/]+/?")
_OVER_NAME = re.compile(r"over/[^/]+/(\d+)")
_SENT_NAME = re.compile(
    r"sent/[^/]+/(?P<number>\d+)[^/]*/(?P<place>(?P<run>(?P<began>0[0-9a-f]{11})[^/-]*)-\d+)"
    r"-(?P<first>[0-9a-f]{4})-(?P<last>[0-9a-f]{4})-(?P<rows>\d+)-(?P<sha>[0-9a-f]{64})"
)


@dataclass(frozen=True)
class SentName:
    number: int
    """Of the micro-batch; of a batch write the time of its beginning, in milliseconds."""
    place: str
    """Run and partition of the task that has put it."""
    run: str
    began_at: float
    """Beginning of the run, in seconds since 1970."""
    first: str
    """The first shard of which it has rows."""
    last: str
    rows: int
    sha: str


@dataclass
class Writer:
    """The objects of one writer in the journal: a query's id, a txnAppId, or BATCH_WRITES."""

    name: str
    objects: int = 0
    rows: int = 0
    """Number of digests; one that stands in two objects counts twice."""
    size: int = 0
    """Bytes."""
    newest: int = -1
    """Its last micro-batch, or the time of its last batch write, that has an object."""
    last_used_at: float = 0
    """Beginning of the last write that has an object, in seconds since 1970."""


def new_run(began_ms: int) -> str:
    """Return the unique id of a write, which begins with the time, as that of a UUID of version 7 does."""
    return f"{began_ms:012x}7{uuid.uuid4().hex[13:]}"


def parse_name(name: str) -> SentName:
    """Return the parts of the name of an object below `sent/`. Raises JournalCorruptError if it is none of ours."""
    found = _SENT_NAME.fullmatch(name)
    if found is None:
        raise damaged(name)
    number, place, run, began, first, last, rows, sha = found.groups()
    return SentName(int(number), place, run, int(began, 16) / 1_000, first, last, int(rows), sha)


def objects(store: Store, folder: str) -> list[str]:
    """Return the names of the objects below `folder`, without the empty ones that some tools make for folders."""
    return [name for name in store.list(folder) if not _FOLDER_NAME.fullmatch(name)]


def number_of(name: str) -> int:
    """Return the micro-batch, or the time in milliseconds, in an object's name."""
    over = _OVER_NAME.fullmatch(name)
    return parse_name(name).number if over is None else int(over[1])


def damaged(name: str) -> JournalCorruptError:
    return JournalCorruptError(
        f"'{name}' in the journal is damaged or not of this format, so nothing is sent. Restore the object."
    )


def require_remembered(store: Store, query: str | None, batch: str, *, is_txn: bool) -> None:
    """Raise BatchForgottenError if the rows of this write are forgotten. Arguments are those of `SentRecord`."""
    over = max(map(number_of, objects(store, f"over/{BATCH_WRITES if query is None else query}")), default=-1)
    if int(batch.partition("-")[0]) > over:
        return
    where = f"the journal at '{store.location}' remembers"
    if query is None:
        raise BatchForgottenError(
            f"this batch write began so long ago that what was sent for it is forgotten: {where} batch writes for "
            f"{KEPT_MS // 86_400_000} days. A task of it has stood still, or the clocks of two drivers differ. "
            "Nothing more of it is sent; to send all its rows again, perhaps twice, start a new one; if that is "
            "refused too, the clock of a driver ran ahead: give the sink another journalLocation, or txnAppId and "
            "txnVersion."
        )
    if is_txn:
        raise BatchForgottenError(
            f"txnVersion {batch} of txnAppId '{query}' is {KEPT_BATCHES} or more below the highest one "
            "written, or 'journal forget' has dropped it, so the journal does not know what was sent for it. Use a new "
            "txnAppId."
        )
    raise BatchForgottenError(
        f"micro-batch {batch} runs again, but what was sent for it is forgotten: {where} {KEPT_BATCHES} "
        f"micro-batches, those after {over}. The checkpoint is old, a task has stood still, or 'journal forget' "
        "has dropped it. To send its rows again, perhaps twice, give the sink another journalLocation."
    )


def forget(store: Store, query: str, batch: int) -> None:
    """Drop all but the last KEPT_BATCHES up to `batch`, whose rows are sent; now and then. Runs on the driver."""
    _forget(store, query, batch - KEPT_BATCHES, every=FORGET_EVERY)


def forget_batch_writes(store: Store, now: float) -> None:
    """Drop the objects of batch writes outside of a stream that began long ago; now and then. Runs on the driver."""
    _forget(store, BATCH_WRITES, int(now * 1000) - KEPT_MS - 1, every=FORGET_EVERY_MS)


def forget_writer(store: Store, writer: Writer) -> bool:
    """Drop the objects of a writer that is given up, as `writers` found it; return False if there never were any.

    Objects put since, for a later micro-batch, stay: the writer was not given up. A mark stays. So if the writer is not
    given up after all, it goes on with its next micro-batch; one that runs again is refused, as it would send the
    dropped rows twice. Safe to repeat.
    """
    marks = [name for name in objects(store, "over") if _writer(name) == writer.name]
    if writer.objects:
        _forget(store, writer.name, max([writer.newest, *map(number_of, marks)]), every=-1)
    return bool(marks or writer.objects)


def _forget(store: Store, query: str, over: int, *, every: int) -> None:
    """Drop objects numbered `over` or lower, unless less than `every` more than the last time."""
    marks = objects(store, f"over/{query}")
    last = max(map(number_of, marks), default=-1)
    if over - last <= every:
        return
    # First the mark, so that nobody takes dropped rows for unsent ones.
    store.put_if_absent(f"over/{query}/{over:020d}", b"")
    store.delete([name for name in objects(store, f"sent/{query}") if number_of(name) <= over])
    store.delete([name for name in marks if number_of(name) < last])


def writers(store: Store) -> tuple[list[Writer], list[str]]:
    """Return the writers of recorded rows, and the faults in names of objects, a line for each. Reads no object."""
    found: dict[str, Writer] = {}
    wrong = []
    for name in objects(store, "sent"):
        try:
            parts = parse_name(name)
        except JournalCorruptError as error:
            wrong.append(str(error))
            continue
        writer = found.setdefault(_writer(name), Writer(_writer(name)))
        writer.objects += 1
        writer.newest = max(writer.newest, parts.number)
        writer.size += parts.rows * WIDTH
        writer.rows += parts.rows
        writer.last_used_at = max(writer.last_used_at, parts.began_at)
    return list(found.values()), wrong


def _writer(name: str) -> str:
    return name.split("/")[1]
