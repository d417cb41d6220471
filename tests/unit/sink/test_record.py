"""The record of what was sent: durable, shared, merged, forgotten in time, and never taken for what it is not."""

from __future__ import annotations

import hashlib
import itertools
import math
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from sqs_fifo_spark.errors import BatchForgottenError, JournalCorruptError, JournalUnavailableError
from sqs_fifo_spark.sink.digests import WIDTH, digest_of, shard, spark_hash
from sqs_fifo_spark.sink.marks import (
    FORGET_EVERY,
    FORGET_EVERY_MS,
    KEPT_BATCHES,
    KEPT_MS,
    Writer,
    forget,
    forget_batch_writes,
    forget_writer,
    writers,
)
from sqs_fifo_spark.sink.record import MERGE_AT, SentRecord
from sqs_fifo_spark.sink.window import OLDEST_REFRESH_S, REFRESH_AFTER_S
from tests.helpers import wait_until
from tests.unit.sending import LONG_S, Hang, Panic, SharedClock, Store, failure, raising

pytestmark = pytest.mark.law("sink-3", "sink-4")

BEGAN = "018bcfe56800"
A, B, C, D, E = (digest_of("id", letter, "1") for letter in "abcde")


@pytest.fixture
def clock() -> SharedClock:
    return SharedClock()


class Records:
    """Makes records over one store and one clock."""

    def __init__(self, store: Store, clock: SharedClock) -> None:
        self._store = store
        self._clock = clock

    def __call__(
        self,
        *puts: list[bytes],
        query: str | None = "q",
        batch: str | int = "7",
        run: str = "r1",
        partition: int = 3,
        is_txn: bool = False,
    ) -> SentRecord:
        """Return a record to which these were added, put by put."""
        place: dict[str, Any] = {"query": query, "batch": f"{batch}", "partition": partition, "is_txn": is_txn}
        made = SentRecord(self._store, self._clock, run=BEGAN + run, **place)
        for digests in puts:
            made.add(digests, by=math.inf)
        return made

    def send_for(self, *batches: int, query: str = "q") -> None:
        """Let a row of each of these micro-batches be recorded."""
        for batch in batches:
            self([A], query=query, batch=batch, run=f"r{batch}")

    def batch_write(self, *puts: list[bytes], began_ms: int | None = None) -> SentRecord:
        """Return the record of a batch write that begins now, or began then."""
        began_ms = int(self._clock.now() * 1000) if began_ms is None else began_ms
        return self(*puts, query=None, batch=f"{began_ms}-r", run="r")


@pytest.fixture
def record(store: Store, clock: SharedClock) -> Records:
    return Records(store, clock)


def many(count: int) -> list[bytes]:
    return [digest_of("id", str(number), "") for number in range(count)]


def known(given: SentRecord) -> set[bytes]:
    """Return which of the digests the record knows after a look."""
    given.refresh((A, B, C, D, E))
    return {digest for digest in (A, B, C, D, E) if given.is_sent(digest)}


# What is written, and who sees it


def test_what_is_added_is_one_object_named_by_its_content(store: Store, record: Records) -> None:
    """Under query and micro-batch, with the digests one behind the other: the format that later versions read.

    With the range of their shards, so that who asks for others need not read it, and their number.
    """
    record([B, A])
    content = b"".join(sorted((A, B)))
    shards = f"{shard(min(A, B))}-{shard(max(A, B))}"
    name = f"sent/q/00000000000000000007/{BEGAN}r1-00003-{shards}-2-{hashlib.sha256(content).hexdigest()}"
    assert store.objects == {name: content}


def test_what_is_added_again_takes_no_more_room(store: Store, record: Records) -> None:
    """In one object, and when several become one."""
    given = record([A, B, A], [B, C])
    assert sorted(map(len, store.objects.values())) == [2 * WIDTH, 2 * WIDTH]
    given.close()
    assert list(store.objects.values()) == [b"".join(sorted((A, B, C)))]


def test_what_was_added_is_known_to_whoever_looks(record: Records) -> None:
    """To a later attempt in the same run, and in another run to every partition, however it is partitioned then."""
    record([A, B])
    assert known(record()) == {A, B}
    for partition in (0, 3, 100_000):
        assert known(record(run="r2", partition=partition)) == {A, B}


def test_nothing_is_known_of_other_micro_batches_and_queries(record: Records) -> None:
    """Spark may send equal rows in another micro-batch, and they are others."""
    record([A])
    for place in ({"batch": "8"}, {"batch": "70"}, {"query": "p"}, {"query": "q2"}):
        assert known(record(**place)) == set()  # type: ignore[arg-type]
    assert known(record(query=None, batch="7-r1")) == set()


def test_objects_of_other_partitions_of_the_same_run_are_not_read(store: Store, record: Records) -> None:
    """They hold none of this task's rows: a micro-batch of many tasks does not read everything in each."""
    for partition in range(20):
        record([A], partition=partition)
    record(partition=100).refresh([A])
    assert not store.count("before get")


# Looking


def test_disorder_is_put_before_anything_is_waited_for(store: Store, record: Records) -> None:
    """Its task fails for it by then: if that stood still before the put, it would fail with nothing tried."""
    mine = record()
    put = threading.Thread(target=mine.add, args=([A],), kwargs={"by": math.inf, "at_once": True})
    with mine._changed:
        put.start()
        wait_until(lambda: bool(store.objects), 5, "disorder is not put")
    put.join()


def test_a_look_is_repeated_after_half_a_minute_and_not_before(
    store: Store, clock: SharedClock, record: Records
) -> None:
    """Another attempt may send too: each look says how old it is, by which its rows are tried or not."""
    mine, other = record(), record(run="r2")
    began = clock.monotonic()
    store.on_step = lambda event: clock.advance(1)
    assert mine.refresh([A]) == began
    store.calm()
    other.add([A], by=math.inf)
    clock.advance(began + REFRESH_AFTER_S - clock.monotonic())
    steps = len(store.steps)
    assert mine.refresh([A]) == began
    assert (known(mine), len(store.steps)) == (set(), steps)
    clock.advance(0.001)
    assert mine.refresh([A]) == clock.monotonic()
    assert known(mine) == {A}


@pytest.mark.parametrize("then", ["add", "close"])
def test_a_look_during_a_put_does_not_take_own_rows_for_those_of_another(
    store: Store, clock: SharedClock, record: Records, then: str
) -> None:
    """An equal row that comes later in the same attempt is another one, and is sent."""
    mine = record()
    looks = 0

    def look(event: str) -> None:
        nonlocal looks
        if event.startswith("after put "):
            looks += 1
            mine.refresh([A])

    if then == "close":  # which puts both as one
        mine.add([A], by=math.inf)
        mine.add([B], by=math.inf)
    store.on_step = look
    mine.add([A], by=math.inf) if then == "add" else mine.close()
    assert looks == 1
    clock.advance(REFRESH_AFTER_S + 1)
    assert known(mine) == set()


def test_an_object_that_vanishes_while_it_is_read_has_been_merged(store: Store, record: Records) -> None:
    """Its writer put the whole first, which the next list shows: nothing is missed."""
    writer = record([A], [B], run="r2")
    store.once_at("before get", writer.close)
    assert known(record()) == {A, B}
    assert len(store.objects) == 1


def list_in_pieces(store: Store, meanwhile: Callable[[str], object]) -> None:
    """Let a list show what was there before this and is there after it."""
    shown = store.list

    def in_pieces(prefix: str) -> list[str]:
        before = shown(prefix)
        meanwhile(prefix)
        return [name for name in before if name in store.objects]

    store.list = in_pieces  # type: ignore[method-assign]


def test_two_merges_during_a_look_hide_nothing(store: Store, record: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """A digest moves from its part to a whole, and from there to a piece: each time behind a list that is under way."""
    monkeypatch.setattr("sqs_fifo_spark.sink.record.MERGE_AT", 2)
    writer = record([A], [B], run="r2")

    def end() -> None:
        writer.add([C], by=math.inf)
        writer.close()

    moves = [writer.tidy, end]
    list_in_pieces(store, lambda prefix: moves.pop(0)() if moves and prefix.startswith("sent") else None)
    assert {A, B} <= known(record())
    assert not moves


def test_a_long_look_is_followed_by_a_short_one(store: Store, clock: SharedClock, record: Records) -> None:
    """Each object is read once, so a slow store does not make every look too old to send after it."""
    digests = many(10)
    for number, digest in enumerate(digests):
        record([digest], run=f"{number}")
    store.on_step = lambda event: clock.advance(10 if event.startswith("before get") else 0)
    assert clock.monotonic() - record(run="new").refresh(digests) <= REFRESH_AFTER_S
    assert store.count("before get") == 10


class CountedLock:
    """A lock that counts who has come to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.came = 0

    def __enter__(self) -> None:
        self.came += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_threads_that_waited_for_a_slow_look_take_it(
    store: Store, clock: SharedClock, record: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is old when it ends, and so would be each one's own: a task would send ten rows for every two looks."""
    record([A], run="r2")
    mine, lock = record(), CountedLock()
    monkeypatch.setattr(mine, "_refreshing", lock)

    def slow(event: str) -> None:
        if event.startswith("before list sent/"):
            wait_until(lambda: lock.came == 8, LONG_S, "seven wait for the look of the eighth")
            clock.advance((REFRESH_AFTER_S + 2) / 2)

    store.on_step = slow
    with ThreadPoolExecutor(8) as pool:
        looks = {each.result(LONG_S) for each in [pool.submit(mine.refresh, [A]) for _ in range(8)]}
    assert store.count("before list sent/") == 6
    (looked_at,) = looks
    assert REFRESH_AFTER_S < clock.monotonic() - looked_at <= OLDEST_REFRESH_S
    assert mine.is_sent(A)


def test_a_look_that_is_always_too_old_is_told_once(store: Store, clock: SharedClock, record: Records) -> None:
    """In one line; the task fails, and Spark tries it again."""
    store.on_step = lambda event: clock.advance(OLDEST_REFRESH_S if event.startswith("before list sent/") else 0)
    assert failure(JournalUnavailableError, record().refresh, [A]) == (
        "to list and read what was sent took longer than 70 s in the journal at 'memory', so it is too old to tell "
        "which rows may be sent."
    )
    assert store.count("before list sent/") == 6


def test_a_look_ends_though_what_it_lists_is_always_gone(store: Store, record: Records) -> None:
    """Not for ever, whatever the store shows."""
    store.list = lambda prefix: [  # type: ignore[method-assign]
        f"sent/q/00000000000000000007/{BEGAN}r2-00003-0000-ffff-9-{hashlib.sha256(b'gone').hexdigest()}"
    ]
    with pytest.raises(JournalUnavailableError, match="to list and read what was sent took longer"):
        record().refresh([A])


def test_a_store_that_fails_ends_the_look(store: Store, record: Records) -> None:
    """Not knowing is no ground to send; the next look is a whole one."""
    record([A], run="r2")
    mine = record()
    for call in ("list", "get"):
        store.fails = lambda each, call=call: each == call  # type: ignore[misc]
        with pytest.raises(JournalUnavailableError):
            mine.refresh([A])
        assert not mine.is_sent(A)
    store.fails = lambda call: False
    assert known(mine) == {A}


@pytest.mark.parametrize(
    "damage",
    [
        lambda name, data: {name: data[:-1]},
        lambda name, data: {name: data[:WIDTH]},
        lambda name, data: {name.replace("-2-", "-3-"): data},
        lambda name, data: {name.replace(f"-{shard(data)}-", "-0000-"): data},
        lambda name, data: {name: b""},
        lambda name, data: {name: data[:-1] + b"x"},
        lambda name, data: {name[:-1]: data},
        lambda name, data: {name.rpartition("-")[0]: data},
        lambda name, data: {name.rpartition("/")[0] + "/note.txt": b"hello"},
        lambda name, data: {name.rpartition("/")[0] + "/deeper/" + name.rpartition("/")[2]: data},
        lambda name, data: {name.rpartition("-")[0] + "-" + hashlib.sha256(b"odd").hexdigest(): b"odd"},
    ],
)
def test_what_is_damaged_or_not_ours_is_told(
    store: Store, record: Records, damage: Callable[[str, bytes], dict[str, bytes]]
) -> None:
    """By its name, in one line: rows that were perhaps sent are not sent again in silence."""
    record([A, B], run="r2")
    ((name, data),) = store.objects.items()
    store.objects = damage(name, data)
    (damaged,) = store.objects
    assert failure(JournalCorruptError, record().refresh, [A]) == (
        f"'{damaged}' in the journal is damaged or not of this format, so nothing is sent. Restore the object."
    )


# Shards


def test_a_shard_is_read_when_a_row_of_it_comes(store: Store, clock: SharedClock, record: Records) -> None:
    """From the list of the last look: a task holds of the record what its own groups need."""
    for digest in (A, B, C):
        record(run=f"r{digest.hex()}").add([digest], by=math.inf)
    mine = record()
    mine.refresh([B, D])
    assert (store.count("before get"), mine.is_sent(B), mine.is_sent(A)) == (1, True, False)
    lists = store.count("before list")
    mine.refresh([B])
    mine.refresh([A, B])
    assert (store.count("before get"), mine.is_sent(A)) == (2, True)
    assert store.count("before list") == lists
    clock.advance(REFRESH_AFTER_S + 1)
    record([E, A], run="r9")
    mine.refresh([E])
    assert (store.count("before get"), mine.is_sent(E)) == (3, True)


def test_what_was_merged_since_the_list_is_read_when_a_row_of_it_comes(record: Records) -> None:
    """The list is young, and an object of it is gone: a new one shows where its rows are now."""
    other = record([A], [B], run="r2")
    mine = record()
    mine.refresh([C])
    other.close()
    assert known(mine) == {A, B}


@pytest.mark.parametrize("writers", [1, 8])
def test_a_task_that_has_an_eighth_of_the_groups_reads_at_most_a_sixth(
    store: Store, record: Records, monkeypatch: pytest.MonkeyPatch, writers: int
) -> None:
    """As Spark's shuffle deals them, into as many partitions as in the run before, or into others."""
    monkeypatch.setattr("sqs_fifo_spark.sink.record.PIECE_BYTES", 4_000)
    dealt: dict[int, list[bytes]] = defaultdict(list)
    for number in range(10_000):
        group = f"group-{number % 2_000}"
        dealt[spark_hash(group) % 8].append(digest_of("id", group, str(number)))
    for partition in range(writers):
        given = record(run="r1", partition=partition)
        digests = [digest for at in range(partition, 8, writers) for digest in dealt[at]]
        for at in range(0, len(digests), 100):
            given.add(digests[at : at + 100], by=math.inf)
        given.close()
    mine = record(run="r2")
    mine.refresh(dealt[5])
    assert all(map(mine.is_sent, dealt[5]))
    read = sum(len(store.objects[name]) for name in mine._seen)
    assert read <= 10_000 * WIDTH / 6
    mine.refresh([*itertools.chain.from_iterable(dealt.values())])
    assert all(mine.is_sent(digest) for digests in dealt.values() for digest in digests)


def test_what_is_merged_is_merged_once_more_when_it_is_much(
    store: Store, record: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its parts go only when all of its pieces are there, so that whoever looks meanwhile sees each row."""
    monkeypatch.setattr("sqs_fifo_spark.sink.record.WHOLE_BYTES", 2 * MERGE_AT * WIDTH)
    monkeypatch.setattr("sqs_fifo_spark.sink.record.PIECE_BYTES", MERGE_AT * WIDTH)
    given = record()
    digests = many(3 * MERGE_AT - 2)

    def look(event: str) -> None:
        if event.split(" ")[1] in ("put", "drop"):
            store.calm()
            other = record(run="r2")
            other.refresh(added)
            assert all(map(other.is_sent, added))
            store.on_step = look

    added: list[bytes] = []
    for digest in digests:
        given.add([digest], by=math.inf)
        added.append(digest)
        store.on_step = look if len(added) == len(digests) else store.on_step
        given.tidy()
    assert sorted(map(len, store.objects.values()))[1:] == [MERGE_AT * WIDTH] * 2
    assert len(store.objects) == 3
    ranges = [name.split("-")[2:4] for name in sorted(store.objects)]
    assert all(last < first for (_, last), (first, _) in itertools.pairwise(ranges))
    assert given._seen == store.objects.keys()


# Adding


def test_what_is_added_during_a_put_is_put_together(store: Store, record: Records, hang: Hang) -> None:
    """Nine adds are two puts, and none returns before its own digests are durable."""
    mine = record()
    store.on_step = lambda event: hang() if event.startswith("before put") else None
    digests = many(9)

    def add(digest: bytes) -> bool:
        mine.add([digest], by=math.inf)
        return any(digest in data for data in store.objects.values())

    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(add, digests[0])
        hang.wait()
        others = [pool.submit(add, digest) for digest in digests[1:]]
        wait_until(lambda: len(mine._next.digests) == 8, LONG_S, "the others wait")
        assert not any(each.done() for each in others)
        hang.end()
        assert all(each.result(LONG_S) for each in [first, *others])
    assert [len(store.objects[name]) for name in store.puts()] == [WIDTH, 8 * WIDTH]


@pytest.mark.parametrize("way", ["before its effect", "after it", "panics"])
def test_a_put_that_fails_fails_for_all_whose_digests_it_holds(
    store: Store, record: Records, hang: Hang, way: str
) -> None:
    """None may go on, nor wait for ever: a panic of native code is no Exception. The next is a put of its own."""
    mine = record()
    store.on_step = lambda event: hang() if event.startswith("before put") else None
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(mine.add, [A], by=math.inf)
        hang.wait()
        others = [pool.submit(mine.add, [digest], by=math.inf) for digest in (B, C)]
        wait_until(lambda: len(mine._next.digests) == 2, LONG_S, "the others wait")
        if way == "panics":
            store.on_step = raising(Panic(), lambda event: event.startswith("before put") and len(store.puts()) == 1)
        else:
            lie = "refuse" if way == "before its effect" else "raise"
            store.lies_about = lambda name: lie if store.puts() else ""
        hang.end()
        first.result(LONG_S)
        for each in others:
            assert isinstance(each.exception(LONG_S), Panic if way == "panics" else JournalUnavailableError)
    store.calm()
    store.lies_about = lambda name: ""
    mine.add([D], by=math.inf)
    assert known(record(run="r2")) == ({A, B, C, D} if way == "after it" else {A, D})


def test_an_object_that_is_there_already_says_the_same(store: Store, record: Records) -> None:
    """Whoever put it: another attempt that sent the same row, or an earlier try of this put."""
    store.lies_about = lambda name: "deny"
    record([A])
    record([A])
    assert known(record(run="r2")) == {A}
    assert len(store.objects) == 1


# Merging


def test_in_the_end_there_is_one_object(store: Store, record: Records) -> None:
    """With all digests; it is there before the parts go, so that whoever looks sees each at any time."""
    mine = record()
    for digest in (A, B, C):
        mine.add([digest], by=math.inf)
    seen: list[set[bytes]] = []

    def look(event: str) -> None:
        if event.split(" ")[1] in ("put", "drop"):
            store.calm()
            seen.append(known(record(run="r2")))
            store.on_step = look

    store.on_step = look
    mine.close()
    assert seen == [{A, B, C}] * len(seen)
    assert len(seen) > 4
    assert list(map(len, store.objects.values())) == [3 * WIDTH]


@pytest.mark.parametrize("puts", [[], [[A]], [[A], [A]], [[A, B], [B, A]]])
def test_merging_few_or_equal_objects_loses_none(store: Store, record: Records, puts: list[list[bytes]]) -> None:
    """Nothing to merge is nothing to do, and what is merged is never what is deleted."""
    mine = record()
    for digests in puts:
        mine.add(digests, by=math.inf)
    before = dict(store.objects)
    mine.close()
    assert known(record(run="r2")) == {digest for digests in puts for digest in digests}
    assert len(puts) > 1 or store.objects == before


def test_a_task_leaves_few_objects_also_if_it_dies_and_remembers_few_names(store: Store, record: Records) -> None:
    """One row at a time, as a hot group sends: a replay reads them one by one, so there must not be thousands."""
    given, digests = record(), many(20 * MERGE_AT + 7)
    for digest in digests:
        given.add([digest], by=math.inf)
        given.tidy()
        assert len(store.objects) <= 20 + MERGE_AT
    assert len(given._seen) == len(store.objects) == 20 + 7
    replay = record(run="r2")
    replay.refresh(digests)
    assert all(map(replay.is_sent, digests))
    given.close()
    assert known(given) == set()


@pytest.mark.parametrize("error", [JournalUnavailableError("gone"), Panic("gone")])
@pytest.mark.parametrize("call", ["put", "drop"])
def test_a_merge_that_fails_fails_nothing(
    store: Store, record: Records, caplog: pytest.LogCaptureFixture, call: str, error: BaseException
) -> None:
    """It only tidies up: what is recorded stays so, a line of the log tells, and what is put later is merged."""
    mine = record(*([digest] for digest in many(MERGE_AT)))
    recorded = dict(store.objects)
    store.fail_at(f"before {call}", error)
    mine.tidy()
    (line,) = caplog.messages
    assert line.startswith("64 objects below 'sent/q/00000000000000000007' in the journal could not be made one")
    assert line.endswith(": gone")
    assert recorded.items() <= store.objects.items()
    store.calm()
    mine.add([A], by=math.inf)
    mine.add([B], by=math.inf)
    mine.close()
    assert known(record(run="r9")) >= {A, B}


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_a_merge_does_not_hold_up_who_ends_the_process(store: Store, record: Records, end: type[BaseException]) -> None:
    """It goes on to the caller, and what is recorded stays so."""
    mine = record([A], [B])
    store.fail_at("before put", end())
    with pytest.raises(end):
        mine.close()
    store.calm()
    assert known(record(run="r2")) == {A, B}


# Forgetting


def kept(store: Store, query: str = "q") -> list[int]:
    return [int(name.split("/")[2]) for name in store.under(f"sent/{query}/")]


def test_old_micro_batches_are_forgotten_all_at_once(store: Store, record: Records) -> None:
    """Now and then; the last hundred before the committed one are kept, and so is what other queries have."""
    record.send_for(*range(150))
    record.send_for(0, 1, query="other")
    for batch in range(KEPT_BATCHES + FORGET_EVERY):
        forget(store, "q", batch)
    assert len(store.objects) == 152
    forget(store, "q", KEPT_BATCHES + FORGET_EVERY)
    assert kept(store) == list(range(21, 150))
    for batch in range(KEPT_BATCHES + FORGET_EVERY + 1, KEPT_BATCHES + 2 * FORGET_EVERY + 1):
        forget(store, "q", batch)
    assert kept(store) == list(range(21, 150))
    forget(store, "q", KEPT_BATCHES + 2 * FORGET_EVERY + 7)  # those in between wrote nothing
    assert kept(store) == list(range(48, 150))
    assert kept(store, "other") == [0, 1]
    assert store.under("over/") == ["over/q/00000000000000000020", "over/q/00000000000000000047"]
    forget(store, "q", 2 * KEPT_BATCHES)
    assert store.under("over/") == ["over/q/00000000000000000047", "over/q/00000000000000000100"]


def test_a_micro_batch_that_is_forgotten_is_not_sent_again(store: Store, record: Records) -> None:
    """It runs again under an old checkpoint: the error says what is remembered, and how to send all the same."""
    record.send_for(*range(130))
    forget(store, "q", 120)
    for batch in (0, 20):
        assert failure(BatchForgottenError, record(batch=batch).refresh, [A]) == (
            f"micro-batch {batch} runs again, but what was sent for it is forgotten: the journal at 'memory' "
            "remembers 100 micro-batches, those after 20. The checkpoint is old, a task has stood still, or "
            "'journal forget' has dropped it. To send its rows again, perhaps twice, give the sink another "
            "journalLocation."
        )
    assert known(record(batch="21")) == {A}


def test_a_version_that_is_far_below_the_highest_is_told_by_its_own_name(store: Store, record: Records) -> None:
    """Whoever numbers the writes has no micro-batch and no checkpoint, and may never have written the version."""
    record([A], query="bids", batch="120", is_txn=True)
    forget(store, "bids", 120)
    for version in (0, 20):
        made = record(query="bids", batch=version, is_txn=True)
        assert failure(BatchForgottenError, made.refresh, [A]) == (
            f"txnVersion {version} of txnAppId 'bids' is {KEPT_BATCHES} or more below the highest one written, or "
            "'journal forget' has dropped it, so the journal does not know what was sent for it. Use a new txnAppId."
        )
    assert known(record(query="bids", batch="21", is_txn=True)) == set()


@pytest.mark.parametrize("at", ["before list over/q", "before list sent/q", "after list sent/q", "before get"])
def test_a_task_that_stood_still_while_its_micro_batch_was_forgotten_is_told(
    store: Store, record: Records, at: str
) -> None:
    """Wherever in its look: it never takes what was dropped for what was never sent."""
    record.send_for(5)
    store.once_at(at, lambda: forget(store, "q", 120))
    with pytest.raises(BatchForgottenError):
        record(batch="5").refresh([A])


@pytest.mark.parametrize("at", ["before put over/", "after put over/", "before drop sent/", "after drop sent/", "end"])
def test_forgetting_a_writer_that_breaks_off_anywhere_sends_nothing_twice(
    store: Store, record: Records, at: str
) -> None:
    """The rows are known, or their micro-batch is refused; the next one goes on. A second run drops the rest."""
    record.send_for(5, 6)
    record.send_for(5, query="q2")
    store.fail_at(at)
    with suppress(JournalUnavailableError):
        forget_writer(store, found(store, "q"))
    store.calm()
    for batch in ("5", "6"):
        if at == "before put over/":
            assert known(record(batch=batch)) == {A}
        else:
            with pytest.raises(BatchForgottenError, match=f"micro-batch {batch} runs again"):
                record(batch=batch).refresh([A])
    assert known(record(batch="7")) == set()
    for _ in range(2):
        assert forget_writer(store, found(store, "q"))
        assert (kept(store), kept(store, "q2")) == ([], [5])
        assert store.under("over/") == ["over/q/00000000000000000006"]
    assert not forget_writer(store, found(store, "q3"))


def test_forgetting_a_writer_leaves_what_it_begins_meanwhile(store: Store, record: Records) -> None:
    """It was not given up then: its new micro-batch is known, if it runs again."""
    record.send_for(5)
    seen = found(store, "q")
    record.send_for(6)
    assert forget_writer(store, seen)
    assert known(record(batch="6")) == {A}


def found(store: Store, name: str) -> Writer:
    return next((each for each in writers(store)[0] if each.name == name), Writer(name))


def test_batch_writes_are_forgotten_after_a_week(store: Store, clock: SharedClock, record: Records) -> None:
    """From their beginning; a stream's record is not touched."""
    now_ms = int(clock.now() * 1000)
    for began_ms in (now_ms, now_ms - KEPT_MS, now_ms - KEPT_MS - 1):
        record.batch_write([A], began_ms=began_ms)
    record.send_for(1)
    forget_batch_writes(store, clock.now())
    left = {name.split("/")[2] for name in store.under("sent/batch-writes/")}
    assert left == {f"{now_ms}-r", f"{now_ms - KEPT_MS}-r"}
    assert kept(store) == [1]


def test_a_batch_write_that_is_forgotten_is_not_sent_again(store: Store, clock: SharedClock, record: Records) -> None:
    """By a task that runs on, or again, after the week: what is gone from the record is not taken for never sent."""
    began_ms = int(clock.now() * 1000)
    record.batch_write([A], began_ms=began_ms)
    clock.advance(KEPT_MS / 1000 + 1)
    assert known(record.batch_write(began_ms=began_ms)) == {A}, "nobody has forgotten it"
    forget_batch_writes(store, clock.now())
    assert failure(BatchForgottenError, record.batch_write(began_ms=began_ms).refresh, [A]) == (
        "this batch write began so long ago that what was sent for it is forgotten: the journal at 'memory' remembers "
        "batch writes for 7 days. A task of it has stood still, or the clocks of two drivers differ. Nothing more of "
        "it is sent; to send all its rows again, perhaps twice, start a new one; if that is refused too, the clock of "
        "a driver ran ahead: give the sink another journalLocation, or txnAppId and txnVersion."
    )
    assert known(record.batch_write()) == set()


def test_the_remedy_for_a_clock_that_ran_ahead_works(store: Store, clock: SharedClock, record: Records) -> None:
    """One such commit refuses all batch writes from then on, but none that says who writes what."""
    forget_batch_writes(store, clock.now() + 2 * KEPT_MS / 1000)
    with pytest.raises(BatchForgottenError, match="the clock of a driver ran ahead"):
        record.batch_write().refresh([A])
    record([A], query="bids", batch="0", is_txn=True)
    assert known(record(query="bids", batch="0", run="r2", is_txn=True)) == {A}
    assert known(Records(Store(), clock).batch_write()) == set()


def test_not_every_commit_lists_all_batch_writes(store: Store, clock: SharedClock, record: Records) -> None:
    """A week of them may be many: it is done once an hour, whoever commits."""
    began_ms = int(clock.now() * 1000)
    clock.advance(KEPT_MS / 1000)
    lists: list[int] = []
    for minute in range(180):
        record.batch_write([A], began_ms=began_ms + minute * 60_000)
        steps = len(store.steps)
        forget_batch_writes(store, clock.now())
        lists.append(sum(step.startswith("before list sent/") for step in store.steps[steps:]))
        clock.advance(60)
    assert sum(lists) == 3
    assert lists[0] == 1
    clock.advance(FORGET_EVERY_MS / 1000)
    forget_batch_writes(store, clock.now())
    assert len(store.under("sent/batch-writes/")) < 80
    assert len(store.under("over/")) == 2


def test_marks_that_are_not_listed_in_one_moment_forget_nothing(store: Store, record: Records) -> None:
    """A list may show neither the mark that is put meanwhile nor those that go for it: so the one before it stays."""
    record.send_for(5, 200)
    forget(store, "q", 120)
    is_first = [True]

    def overtake(prefix: str) -> None:
        if prefix == "over/q" and is_first and is_first.pop():
            forget(store, "q", 200)

    list_in_pieces(store, overtake)
    with pytest.raises(BatchForgottenError):
        record(batch="5").refresh([A])


def test_a_mark_that_was_put_late_hides_no_higher_one(store: Store, record: Records) -> None:
    """A driver that stood still between its list and its put excludes nobody: the highest mark counts, and stays."""
    record.send_for(*range(300))
    forget(store, "q", 120)

    def overtake() -> None:
        for batch in (200, 240, 280):
            forget(store, "q", batch)

    store.once_at("before put over/", overtake)
    forget(store, "q", 141)
    for batch in (0, 41, 180):
        with pytest.raises(BatchForgottenError, match="those after 180"):
            record(batch=batch).refresh([A])
    assert known(record(batch="181")) == {A}
    forget(store, "q", 320)
    assert len(store.under("over/")) == 2


@pytest.mark.parametrize("folder", ["over/q", "sent/q", "sent/q/00000000000000000007"])
def test_an_empty_object_that_stands_for_a_folder_is_nothing(store: Store, record: Records, folder: str) -> None:
    """S3's console, and some tools, put one: neither looks nor tidying take it for a mark or a record."""
    store.objects[folder] = b""
    assert known(record()) == set()
    forget(store, "q", 1_000)
    assert store.objects[folder] == b""
