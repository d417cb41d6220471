"""The record of sent rows in the journal: their digests, by micro-batch. By it a replay sends only missing rows.

    journal.json                              format, journal id, queue ARN: as a source's
    sent/<query>/<batch>/<run>-<partition>-<first>-<last>-<rows>-<sha>
                                              sorted digests of rows that SQS has confirmed, of which the shards range
                                              from the first to the last; the SHA-256 is that of the content
    over/<query>/<batch>                      the rows of this micro-batch and earlier ones are forgotten
    sent/batch-writes/<time>-<run>/...        the same for a batch write outside of a stream, by its beginning
    over/batch-writes/<time>                  the rows of batch writes of then and earlier are forgotten

Contract. Objects are put if absent and never changed. The sent rows of a micro-batch are the union of its objects,
whoever wrote them, in this run or an earlier one. A row is recorded before the next row of its group is sent, so at
most one row of each group is sent and not recorded: the one that a replay may double, right behind itself.

A shard holds whole groups (see `digests`). Each put is one object, of whatever shards; when a task makes few of many,
it cuts long ones into objects that share no shard. A look lists all, and reads those with shards that are asked for.

Put-if-absent guards a name only while its object is there, so nothing depends on having put a name. An object is
dropped only after others that say all that it says, or after the mark, below `over/`, that forgets it; a mark is
dropped only after two higher ones are there, so a list made meanwhile shows one of them.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from sqs_fifo_spark.clock import Clock
from sqs_fifo_spark.errors import JournalUnavailableError
from sqs_fifo_spark.journal.store import Store
from sqs_fifo_spark.sink.digests import WIDTH, Digests, pieces, shard, sorted_once
from sqs_fifo_spark.sink.marks import BATCH_WRITES, SentName, damaged, objects, parse_name, require_remembered
from sqs_fifo_spark.sink.window import OLDEST_REFRESH_S, REFRESH_AFTER_S

MERGE_AT = 64
"""Puts after which a task makes one object of theirs: a replay reads objects one by one, so few are better."""
WHOLE_BYTES = 4 << 20
"""Of so many bytes it makes such objects anew, once."""
PIECE_BYTES = 128 << 10
"""Bytes after which it cuts them, at the next shard."""

_log = logging.getLogger(__name__)
_PAUSE_S = 0.1
_MOST_LISTS = 10
"""Lists that are made, at most, until no listed object is gone when it is read."""


class Record:
    """A task's knowledge of sent rows of its micro-batch. All methods may be called by several threads.

    This one knows none, for a sink without a journal, which relies on SQS's memory of 5 minutes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def note(self, digests: Iterable[bytes]) -> None:
        """Note that the attempt has come to these rows, and that they are sent. One thread at a time does so."""

    def is_repeated(self, digest: bytes) -> bool:
        """Return whether the attempt has noted an equal row; then this one is not sent, however long ago that was."""
        return False

    def refresh(self, digests: Collection[bytes]) -> float:
        """Look: read the digests that others have recorded, of these rows' shards at least.

        Return the monotonic time of that look, at most OLDEST_REFRESH_S ago. Raises BatchForgottenError for a forgotten
        write, and JournalUnavailableError.
        """
        return self._clock.monotonic()

    def is_sent(self, digest: bytes) -> bool:
        """Return whether the row of this digest, which the last look was for, was sent at that time."""
        return False

    def add(self, digests: Iterable[bytes], *, by: float, at_once: bool = False) -> None:
        """Record that these rows were sent; return once that is durable. Raises JournalUnavailableError.

        Also if it is later than `by`, a monotonic time: an attempt that looked before may have sent the rows again.
        `at_once`: nothing is waited for before the put begins, neither a put under way, which may hang, nor a lock.
        """

    def tidy(self) -> None:
        """Make few objects of many, if there are many. Raises nothing: recorded rows stay recorded."""

    def close(self) -> None:
        """Tidy up after the last row. Raises nothing."""


@dataclass
class _Put:
    """One object in the making. `error` is the one that its put met."""

    digests: list[bytes] = field(default_factory=list)
    is_done: bool = False
    error: BaseException | None = None


class SentRecord(Record):
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
        super().__init__(clock)
        self._store = store
        self._query = query
        self._batch = batch
        self._is_txn = is_txn
        self._folder = f"sent/{folder_of(query, batch)}"
        self._run = run
        self._place = f"{run}-{partition:05d}"
        # `_refreshing` is held during a look: a thread that comes meanwhile waits for it, and takes its findings.
        self._refreshing = threading.Lock()
        self._looked_at: float | None = None
        self._seen: set[str] = set()  # objects that need not be read, or not again
        self._unread: dict[str, SentName] = {}  # objects that the last look has listed besides
        self._ready: set[str] = set()  # shards of which nothing is unread
        self._sent = Digests()  # added to by the thread that holds `_refreshing`
        self._own = Digests()  # rows that this attempt has come to
        # `_changed` guards all fields below; nothing is written while it is held.
        self._changed = threading.Condition()
        self._next = _Put()
        self._is_putting = False
        # Own objects, and their content: those of one put, and those that were merged once.
        self._parts: list[tuple[str, bytes]] = []
        self._wholes: list[tuple[str, bytes]] = []

    def note(self, digests: Iterable[bytes]) -> None:
        for digest in digests:
            self._own.add(digest)

    def is_repeated(self, digest: bytes) -> bool:
        return bool(digest) and digest in self._own

    def refresh(self, digests: Collection[bytes]) -> float:
        before = self._looked_at
        with self._refreshing:
            # A look that ended while this thread waited will do though it took long: another one would take as long.
            oldest_s = REFRESH_AFTER_S if self._looked_at == before else OLDEST_REFRESH_S
            is_second = False
            for _ in range(_MOST_LISTS):
                if self._is_younger(oldest_s) and self._read_shards_of(digests) and self._is_younger(oldest_s):
                    assert self._looked_at is not None
                    return self._looked_at
                began_at = self._clock.monotonic()
                if not self._read_all(digests):
                    # An object that is listed and then gone has been merged by its writer into one that a new list
                    # shows.
                    self._clock.sleep(_PAUSE_S)
                    continue
                if is_second and self._age(began_at) > OLDEST_REFRESH_S:
                    break
                self._looked_at = began_at
                if is_second:
                    return began_at
                is_second = True  # faster, for it reads only new objects
            raise JournalUnavailableError(
                f"to list and read what was sent took longer than {OLDEST_REFRESH_S:g} s in the journal at "
                f"'{self._store.location}', so it is too old to tell which rows may be sent."
            )

    def _read_all(self, digests: Collection[bytes]) -> bool:
        """List anew, and read new objects of these rows' shards; return False if something was gone in between."""
        self._looked_at = None  # until the next one is over, nobody takes the rest of the last look for one
        self._unread.clear()
        # A list is not of one moment, so it may miss an object, and the one that it went into meanwhile. A digest moves
        # twice, from its part to a whole and from there to a piece, so one of three lists has it.
        for _ in range(3):
            self._ready.clear()
            for name in objects(self._store, self._folder):
                if name not in self._seen and not self._is_of_others(parts := parse_name(name)):
                    self._unread[name] = parts
            if not self._read_shards_of(digests):
                return False
        # Last: the mark is put before objects are dropped, so if the lists missed any, their mark is seen here.
        self._require_remembered()
        return True

    def _is_of_others(self, parts: SentName) -> bool:
        # In one run no two partitions hold the same row, so a task that follows others needs nothing of theirs.
        return parts.run == self._run and parts.place != self._place

    def _read_shards_of(self, digests: Collection[bytes]) -> bool:
        """Read the unread objects of these rows' shards; return False if something is gone."""
        wanted = sorted(set(map(shard, digests)) - self._ready) if self._unread else []
        for name, parts in list(self._unread.items()) if wanted else ():
            at = bisect_left(wanted, parts.first)
            if at < len(wanted) and wanted[at] <= parts.last and not self._read(name):
                return False
        self._ready.update(wanted)
        return True

    def _is_younger(self, oldest_s: float) -> bool:
        return self._looked_at is not None and self._age(self._looked_at) <= oldest_s

    def _age(self, looked_at: float) -> float:
        return self._clock.monotonic() - looked_at

    def is_sent(self, digest: bytes) -> bool:
        return digest in self._sent

    def add(self, digests: Iterable[bytes], *, by: float, at_once: bool = False) -> None:
        """Put them, together with those that others add while a put is under way; or `at_once` and alone."""
        if at_once:
            put = _Put(list(digests))
            self._make(put)
        else:
            with self._changed:
                put = self._next
                put.digests.extend(digests)
                while self._is_putting and not put.is_done:
                    self._changed.wait()
                is_ours = not put.is_done
                if is_ours:
                    self._is_putting, self._next = True, _Put()
            if is_ours:
                self._make(put)
                with self._changed:
                    self._is_putting = False
                    self._changed.notify_all()
        if put.error is not None:
            raise put.error
        if self._clock.monotonic() > by:
            raise JournalUnavailableError(
                "the record of what was sent took so long that another attempt may have sent the same rows anew, so "
                "this one stops before it sends what follows them."
            )

    def _make(self, put: _Put) -> None:
        """Make the object, or note the error: on any error, others wait for this put."""
        part: list[tuple[str, bytes]] = []
        try:
            data = b"".join(sorted(set(put.digests)))
            part.append((self._put(data), data))
        except BaseException as error:
            put.error = error
        with self._changed:
            self._parts += part
            put.is_done = True

    def tidy(self) -> None:
        self._merge(at=MERGE_AT, whole_bytes=WHOLE_BYTES)

    def close(self) -> None:
        self._merge(at=2, whole_bytes=0)

    def _merge(self, *, at: int, whole_bytes: int) -> None:
        """Make few objects of this attempt's, if `at` or more are new; of merged ones, too, from `whole_bytes` on."""
        with self._changed:
            sources, wholes = self._parts, self._wholes
            is_last = sum(len(data) for _, data in wholes) >= whole_bytes
            if is_last:
                sources = sources + wholes
            if len(sources) < at:
                return
            self._parts, self._wholes = [], [] if is_last else wholes
        try:
            digests = sorted_once(b"".join(data for _, data in sources))
            made = [(self._put(data), b"" if is_last else data) for data in pieces(digests, PIECE_BYTES)]
            merged = {name for name, _ in sources} - {name for name, _ in made}
            self._store.delete(sorted(merged))
            self._seen.difference_update(merged)  # a task may put any number of them
            if not is_last:
                with self._changed:
                    self._wholes = self._wholes + made
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the rows are recorded: a panic of the store does not fail the task either
            _log.warning(
                "%d objects below '%s' in the journal could not be made one; they stay, and say the same: %s",
                len(sources),
                self._folder,
                error,
            )

    def _put(self, data: bytes) -> str:
        # Named by its content: one that is there already says the same, whoever put it.
        first, last, rows = shard(data), shard(data[-WIDTH:]), len(data) // WIDTH
        name = f"{self._folder}/{self._place}-{first}-{last}-{rows}-{hashlib.sha256(data).hexdigest()}"
        # This attempt has sent these rows, and does not come to them again. Before the put, for a look of another
        # thread may find the object while its put goes on.
        self._seen.add(name)
        self._store.put_if_absent(name, data)
        return name

    def _read(self, name: str) -> bool:
        """Take in the object called `name`, which is unread; return False if it is gone."""
        parts, data = self._unread[name], self._store.get(name)
        if data is None:
            return False
        content = shard(data), shard(data[-WIDTH:]), len(data) / WIDTH, hashlib.sha256(data).hexdigest()
        if content != (parts.first, parts.last, parts.rows, parts.sha):
            raise damaged(name)
        self._sent.extend(data)
        self._seen.add(name)
        del self._unread[name]
        return True

    def _require_remembered(self) -> None:
        require_remembered(self._store, self._query, self._batch, is_txn=self._is_txn)


def folder_of(query: str | None, batch: str) -> str:
    """Return the folder of a write, below other folders; `query` and `batch` as in SentRecord."""
    return f"{BATCH_WRITES}/{batch}" if query is None else f"{query}/{int(batch):020d}"
