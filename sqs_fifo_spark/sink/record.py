"""Where the sink records what it has sent: digests of rows, by micro-batch. A replay sends what is missing.

    journal.json                                      format, journal id, queue ARN: as a source's
    sent/<query>/<batch>/<run>-<partition>-<digest>   SHA-256 of rows that SQS has confirmed; named by its own SHA-256
    over/<query>/<batch>                              what was sent for this micro-batch and earlier ones is forgotten
    sent/batch-writes/<time>-<run>/...                the same for a batch write outside of a stream, by its beginning
    over/batch-writes/<time>                          what was sent for batch writes of then and earlier is forgotten

Contract. Objects are put if absent and never changed. What was sent for a micro-batch is the union of its objects,
whoever wrote them, in this run or an earlier one. A row is recorded before the next row of its group is sent, so at
most one row of each group is sent and not recorded: the one that a replay may double, right behind itself.

Put-if-absent guards a name only while its object is there, so nothing depends on having put a name. An object is
dropped only after another that says all that it says, or after the mark, below `over/`, that forgets it; a mark is
dropped only after two higher ones are there, so whoever lists meanwhile sees one of them.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import BatchForgottenError, JournalCorruptError, JournalUnavailableError
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.sink.window import OLDEST_REFRESH_S, REFRESH_AFTER_S

KEPT_BATCHES = 100
"""How many micro-batches are remembered. Spark's checkpoint remembers as many, unless told otherwise."""
FORGET_EVERY = 20
"""How many more are remembered until the oldest are forgotten, all at once."""
MERGE_AT = 64
"""After how many objects a task merges them into one, once: a replay reads objects one by one, so few are better."""
KEPT_MS = 7 * 86_400_000
"""How long a batch write is remembered at least, from its beginning; another one's commit forgets it."""
FORGET_EVERY_MS = 3_600_000
"""How much longer it is remembered at most while others commit, so that not each of them lists them all."""
BATCH_WRITES = "batch-writes"
"""Stands for the query of batch writes outside of a stream."""

_log = logging.getLogger(__name__)
_DIGEST_LENGTH = hashlib.sha256().digest_size
_PAUSE_S = 0.1
_MOST_LISTS = 10
"""How often it is listed until nothing of what is listed is gone when it is read."""
_FOLDER_NAME = re.compile(r"sent/[^/]+(?:/[^/]+)?/?|over/[^/]+/?")
_OVER_NAME = re.compile(r"over/[^/]+/(\d+)")
_SENT_NAME = re.compile(r"sent/[^/]+/(\d+)[^/]*/([^/-]+-\d+)-([0-9a-f]{64})")


class Record(Protocol):
    """What a task knows of rows that were sent for its micro-batch. All methods may be called by several threads."""

    def refresh(self) -> float:
        """Look: read what others have sent. Return the monotonic time of that look, at most OLDEST_REFRESH_S ago.

        Raises BatchForgottenError for what is forgotten, and JournalUnavailableError.
        """

    def is_sent(self, digest: bytes) -> bool:
        """Return whether the row of this digest was sent, at the time of the last look."""

    def add(self, digests: Iterable[bytes], *, by: float) -> None:
        """Record that these rows were sent; return once that is durable. Raises JournalUnavailableError.

        Also if it is later than `by`, a monotonic time: an attempt that looked before may have sent the rows again.
        """

    def tidy(self) -> None:
        """Make few objects of many, if there are many. Raises nothing: what is recorded stays recorded."""

    def close(self) -> None:
        """Tidy up after the last row. Raises nothing."""


class NoRecord:
    """Stands for the record of a sink without a journal, which relies on SQS's memory of 5 minutes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def refresh(self) -> float:
        return self._clock.monotonic()

    def is_sent(self, digest: bytes) -> bool:
        return False

    def add(self, digests: Iterable[bytes], *, by: float) -> None:
        return

    def tidy(self) -> None:
        return

    def close(self) -> None:
        return


@dataclass
class _Put:
    """One object in the making. `error` is what its put met."""

    digests: list[bytes] = field(default_factory=list)
    is_done: bool = False
    error: BaseException | None = None


class SentRecord:
    """The record of one micro-batch, as one attempt of a task sees it and adds to it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        query: str | None,
        batch: str,
        run: str,
        partition: int,
        is_txn: bool = False,
    ) -> None:
        """`query` is None for a batch write outside of a stream, which then has its beginning in ms in `batch`.

        `run` is one execution of the micro-batch. `is_txn`: `query` and `batch` are a user's txnAppId and txnVersion.
        """
        self._store = store
        self._clock = clock
        self._query = query
        self._batch = batch
        self._is_txn = is_txn
        self._folder = f"sent/{folder_of(query, batch)}"
        self._run = run
        self._place = f"{run}-{partition:05d}"
        # `_refreshing` is held during a look: who comes meanwhile waits for it, and takes what it finds.
        self._refreshing = threading.Lock()
        self._looked_at: float | None = None
        self._seen: set[str] = set()  # objects that need not be read, or not again
        self._sent: set[bytes] = set()  # only ever added to, by whoever holds `_refreshing`
        # `_changed` guards all that follows; nothing is written while it is held.
        self._changed = threading.Condition()
        self._next = _Put()
        self._is_putting = False
        self._parts: list[tuple[str, bytes]] = []  # own objects, and their content, that are not merged

    def refresh(self) -> float:
        before = self._looked_at
        with self._refreshing:
            # A look that ended while this thread waited will do though it took long: another one would take as long.
            oldest_s = REFRESH_AFTER_S if self._looked_at == before else OLDEST_REFRESH_S
            is_second = False
            for _ in range(_MOST_LISTS):
                if self._looked_at is not None and self._age(self._looked_at) <= oldest_s:
                    return self._looked_at
                began_at = self._clock.monotonic()
                if not self._read_all():
                    # What is listed and then gone has been merged by its writer into what a new list shows.
                    self._clock.sleep(_PAUSE_S)
                    continue
                if is_second and self._age(began_at) > OLDEST_REFRESH_S:
                    break
                self._looked_at = began_at
                if is_second:
                    return began_at
                is_second = True  # which is faster, for it reads only what is new
            raise JournalUnavailableError(
                f"to list and read what was sent took longer than {OLDEST_REFRESH_S:g} s in the journal at "
                f"'{self._store.location}', so it is too old to tell which rows may be sent."
            )

    def _read_all(self) -> bool:
        """Read what is new; return False if something was gone in between."""
        # Twice: a list is not of one moment, so it may miss a whole that was put and its parts that went meanwhile.
        for _ in range(2):
            are_there = [self._read(name) for name in _objects(self._store, self._folder)]
            if not all(are_there):
                return False
        # Last: the mark is put before objects are dropped, so if the lists missed any, their mark is seen here.
        self._require_remembered()
        return True

    def _age(self, looked_at: float) -> float:
        return self._clock.monotonic() - looked_at

    def is_sent(self, digest: bytes) -> bool:
        return digest in self._sent

    def add(self, digests: Iterable[bytes], *, by: float) -> None:
        """Put them, together with what others add while a put is under way."""
        with self._changed:
            put = self._next
            put.digests.extend(digests)
            while self._is_putting and not put.is_done:
                self._changed.wait()
            is_ours = not put.is_done
            if is_ours:
                self._is_putting, self._next = True, _Put()
        if is_ours:
            part: list[tuple[str, bytes]] = []
            try:
                data = b"".join(sorted(set(put.digests)))
                part.append((self._put(data), data))
            except BaseException as error:  # whatever it is, others wait for this put
                put.error = error
            with self._changed:
                self._parts += part
                self._is_putting, put.is_done = False, True
                self._changed.notify_all()
        if put.error is not None:
            raise put.error
        if self._clock.monotonic() > by:
            raise JournalUnavailableError(
                "the record of what was sent took so long that another attempt may have sent the same rows anew, so "
                "this one stops before it sends what follows them."
            )

    def tidy(self) -> None:
        self._merge(at=MERGE_AT)

    def close(self) -> None:
        self._merge(at=2)

    def _merge(self, *, at: int) -> None:
        """Merge this attempt's objects into one, if `at` or more are not merged yet."""
        with self._changed:
            if len(self._parts) < at:
                return
            parts, self._parts = self._parts, []
        try:
            whole = self._put(b"".join(sorted({digest for _, data in parts for digest in _digests(data)})))
            merged = [name for name, _ in parts if name != whole]
            self._store.delete(merged)
            self._seen.difference_update(merged)  # a task may put any number of them
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the rows are recorded: a panic of the store does not fail the task either
            _log.warning(
                "%d objects below '%s' in the journal could not be made one; they stay, and say the same: %s",
                len(parts),
                self._folder,
                error,
            )

    def _put(self, data: bytes) -> str:
        # Named by its content: one that is there already says the same, whoever put it.
        name = f"{self._folder}/{self._place}-{hashlib.sha256(data).hexdigest()}"
        # This attempt has sent these rows, and does not come to them again: an equal row is another one. Before the
        # put, for a look of another thread may find the object while its put goes on.
        self._seen.add(name)
        self._store.put_if_absent(name, data)
        return name

    def _read(self, name: str) -> bool:
        """Take in the object called `name`; return False if it is gone."""
        match = _SENT_NAME.fullmatch(name)
        if match is None:
            raise _damaged(name)
        run_and_partition, digest = match[2], match[3]
        # In one run no two partitions hold the same row, so a task that follows others needs nothing of theirs.
        is_of_others = run_and_partition.startswith(f"{self._run}-") and run_and_partition != self._place
        if name in self._seen or is_of_others:
            return True
        data = self._store.get(name)
        if data is None:
            return False
        if hashlib.sha256(data).hexdigest() != digest or len(data) % _DIGEST_LENGTH:
            raise _damaged(name)
        self._sent.update(_digests(data))
        self._seen.add(name)
        return True

    def _require_remembered(self) -> None:
        query = BATCH_WRITES if self._query is None else self._query
        over = max(map(_number, _objects(self._store, f"over/{query}")), default=-1)
        if int(self._batch.partition("-")[0]) > over:
            return
        where = f"the journal at '{self._store.location}' remembers"
        if self._query is None:
            raise BatchForgottenError(
                f"this batch write began so long ago that what was sent for it is forgotten: {where} batch writes for "
                f"{KEPT_MS // 86_400_000} days. A task of it has stood still, or the clocks of two drivers differ. "
                "Nothing more of it is sent; to send all its rows again, perhaps twice, start a new one; if that is "
                "refused too, the clock of a driver ran ahead: give the sink another journalLocation, or txnAppId and "
                "txnVersion."
            )
        if self._is_txn:
            raise BatchForgottenError(
                f"txnVersion {self._batch} of txnAppId '{self._query}' is {KEPT_BATCHES} or more below the highest one "
                "written, so the journal does not know what was sent for it. Use a new txnAppId."
            )
        raise BatchForgottenError(
            f"micro-batch {self._batch} runs again, but what was sent for it is forgotten: {where} {KEPT_BATCHES} "
            f"micro-batches, those after {over}. The checkpoint is old, or a task has stood still. To send its rows "
            "again, perhaps twice, give the sink another journalLocation."
        )


def folder_of(query: str | None, batch: str) -> str:
    """Return where what belongs to a write stands, below other folders; `query` and `batch` as in SentRecord."""
    return f"{BATCH_WRITES}/{batch}" if query is None else f"{query}/{int(batch):020d}"


def forget(store: Store, query: str, batch: int) -> None:
    """Drop all but the last KEPT_BATCHES up to `batch`, whose rows are sent; now and then. Runs on the driver."""
    _forget(store, query, batch - KEPT_BATCHES, every=FORGET_EVERY)


def forget_batch_writes(store: Store, now: float) -> None:
    """Drop what batch writes outside of a stream have left that began long ago; now and then. Runs on the driver."""
    _forget(store, BATCH_WRITES, int(now * 1000) - KEPT_MS - 1, every=FORGET_EVERY_MS)


def _forget(store: Store, query: str, over: int, *, every: int) -> None:
    """Drop what is numbered `over` or lower, unless less than `every` more than the last time."""
    marks = _objects(store, f"over/{query}")
    last = max(map(_number, marks), default=-1)
    if over - last <= every:
        return
    # First the mark, so that nobody takes what is dropped for what was never sent.
    store.put_if_absent(f"over/{query}/{over:020d}", b"")
    store.delete([name for name in _objects(store, f"sent/{query}") if _number(name) <= over])
    store.delete([name for name in marks if _number(name) < last])


def _digests(data: bytes) -> Iterator[bytes]:
    return (data[at : at + _DIGEST_LENGTH] for at in range(0, len(data), _DIGEST_LENGTH))


def _objects(store: Store, folder: str) -> list[str]:
    """Return the names of the objects below `folder`, without the empty ones that some tools make for folders."""
    return [name for name in store.list(folder) if not _FOLDER_NAME.fullmatch(name)]


def _number(name: str) -> int:
    """Return the micro-batch, or the time in milliseconds, that an object's name tells."""
    match = _SENT_NAME.fullmatch(name) or _OVER_NAME.fullmatch(name)
    if match is None:
        raise _damaged(name)
    return int(match[1])


def _damaged(name: str) -> JournalCorruptError:
    return JournalCorruptError(
        f"'{name}' in the journal is damaged or not of this format, so nothing is sent. Restore the object."
    )
