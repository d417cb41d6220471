"""The record of what was sent: durable, shared, merged, forgotten in time, and never taken for what it is not."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sqs_fifo_spark.errors import BatchForgottenError, JournalCorruptError, JournalUnavailableError
from sqs_fifo_spark.sent_record import (
    FORGET_EVERY,
    KEPT_BATCHES,
    KEPT_MS,
    LOOK_AGAIN_S,
    NoRecord,
    SentRecord,
    forget,
    forget_batch_writes,
)
from tests.helpers import wait_until
from tests.unit.sending import LONG_S, SharedClock, Store

A, B, C, D, E = (hashlib.sha256(letter).digest() for letter in (b"a", b"b", b"c", b"d", b"e"))


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def clock() -> SharedClock:
    return SharedClock()


def record(
    store: Store, clock: SharedClock, *, query: str | None = "q", batch: str = "7", run: str = "r1", partition: int = 3
) -> SentRecord:
    return SentRecord(store, clock, query=query, batch=batch, run=run, partition=partition)


def known(given: SentRecord) -> set[bytes]:
    """Return which of the digests the record knows after a look."""
    given.look()
    return {digest for digest in (A, B, C, D, E) if given.is_sent(digest)}


# What is written, and who sees it


def test_what_is_added_is_one_object_named_by_its_content(store: Store, clock: SharedClock) -> None:
    """Under query and micro-batch, with the digests one behind the other: the format that later versions read."""
    record(store, clock).add([B, A])
    content = b"".join(sorted((A, B)))
    name = f"sent/q/00000000000000000007/r1-00003-{hashlib.sha256(content).hexdigest()}"
    assert store.objects == {name: content}


def test_what_was_added_is_known_to_whoever_looks(store: Store, clock: SharedClock) -> None:
    """To a later attempt in the same run, and in another run to every partition, however it is partitioned then."""
    record(store, clock).add([A, B])
    assert known(record(store, clock)) == {A, B}
    for partition in (0, 3, 100_000):
        assert known(record(store, clock, run="r2", partition=partition)) == {A, B}


def test_nothing_is_known_of_other_micro_batches_and_queries(store: Store, clock: SharedClock) -> None:
    """Spark may send equal rows in another micro-batch, and they are others."""
    record(store, clock).add([A])
    for place in ({"batch": "8"}, {"batch": "70"}, {"query": "p"}, {"query": "q2"}):
        assert known(record(store, clock, **place)) == set()  # type: ignore[arg-type]
    assert known(record(store, clock, query=None, batch="7-r1")) == set()


def test_a_batch_write_has_a_record_of_its_own(store: Store, clock: SharedClock) -> None:
    """By its time and its run; its tasks' later attempts know it, another batch write does not."""
    record(store, clock, query=None, batch="1700-r1").add([A])
    assert all(name.startswith("sent/batch-writes/1700-r1/r1-00003-") for name in store.objects)
    assert known(record(store, clock, query=None, batch="1700-r1")) == {A}
    assert known(record(store, clock, query=None, batch="1700-r2", run="r2")) == set()


def test_objects_of_other_partitions_of_the_same_run_are_not_read(store: Store, clock: SharedClock) -> None:
    """They hold none of this task's rows: a micro-batch of many tasks does not read everything in each."""
    for partition in range(20):
        record(store, clock, partition=partition).add([A])
    record(store, clock, partition=100).look()
    assert not [step for step in store.steps if step.startswith("before get")]


def test_without_a_journal_nothing_is_known(clock: SharedClock) -> None:
    """Not even what was added; and that is the state of things at any time."""
    none = NoRecord(clock)
    none.add([A])
    clock.advance(1_000)
    assert none.look() == clock.monotonic()
    assert not none.is_sent(A)


# Looking


def test_a_look_is_repeated_after_half_a_minute_and_not_before(store: Store, clock: SharedClock) -> None:
    """Another attempt may send too: each look says how old it is, by which its rows are tried or not."""
    mine, other = record(store, clock), record(store, clock, run="r2")
    began = clock.monotonic()
    store.on_step = lambda event: clock.advance(1)
    assert mine.look() == began
    store.on_step = lambda event: None
    other.add([A])
    clock.advance(began + LOOK_AGAIN_S - clock.monotonic())
    steps = len(store.steps)
    assert mine.look() == began
    assert (known(mine), len(store.steps)) == (set(), steps)
    clock.advance(0.001)
    assert mine.look() == clock.monotonic()
    assert known(mine) == {A}


def test_an_object_is_read_once(store: Store, clock: SharedClock) -> None:
    """Later looks only list."""
    record(store, clock, run="r2").add([A])
    mine = record(store, clock)
    mine.look()
    store.steps.clear()
    clock.advance(2 * LOOK_AGAIN_S)
    assert known(mine) == {A}
    assert not [step for step in store.steps if step.startswith("before get")]


def test_threads_that_look_at_once_look_once(store: Store, clock: SharedClock) -> None:
    """Those that come later wait for the look under way, and know what it finds."""
    record(store, clock, run="r2").add([A])
    mine = record(store, clock)
    together = threading.Barrier(8)

    def look() -> set[bytes]:
        together.wait(LONG_S)
        return known(mine)

    with ThreadPoolExecutor(8) as pool:
        assert [each.result(LONG_S) for each in [pool.submit(look) for _ in range(8)]] == [{A}] * 8
    assert sum(step.startswith("before get") for step in store.steps) == 1


def test_an_object_that_vanishes_while_it_is_read_has_been_merged(store: Store, clock: SharedClock) -> None:
    """Its writer put the whole first, which the next list shows: nothing is missed."""
    writer = record(store, clock, run="r2")
    writer.add([A])
    writer.add([B])
    mine = record(store, clock)

    def merge(event: str) -> None:
        if event.startswith("before get"):
            store.on_step = lambda event: None
            writer.close()

    store.on_step = merge
    assert known(mine) == {A, B}
    assert len(store.objects) == 1


def test_a_store_that_fails_ends_the_look(store: Store, clock: SharedClock) -> None:
    """Not knowing is no ground to send; the next look is a whole one."""
    record(store, clock, run="r2").add([A])
    mine = record(store, clock)
    for call in ("list", "get"):
        store.fails = lambda each, call=call: each == call  # type: ignore[misc]
        with pytest.raises(JournalUnavailableError):
            mine.look()
        assert not mine.is_sent(A)
    store.fails = lambda call: False
    assert known(mine) == {A}


@pytest.mark.parametrize(
    "damage",
    [
        lambda name, data: {name: data[:-1]},
        lambda name, data: {name: data[:32]},
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
    store: Store, clock: SharedClock, damage: Callable[[str, bytes], dict[str, bytes]]
) -> None:
    """By its name, in one line: rows that were perhaps sent are not sent again in silence."""
    record(store, clock, run="r2").add([A, B])
    ((name, data),) = store.objects.items()
    store.objects = damage(name, data)
    with pytest.raises(JournalCorruptError) as told:
        record(store, clock).look()
    (damaged,) = store.objects
    assert str(told.value) == (
        f"'{damaged}' in the journal is damaged or not of this format, so nothing is sent. Restore the object."
    )


# Adding


def hold_first_put(store: Store) -> tuple[threading.Event, threading.Event]:
    """Let the first put wait; return the events that say that it does, and that it may go on."""
    putting, go_on = threading.Event(), threading.Event()

    def hold(event: str) -> None:
        if event.startswith("before put") and not putting.is_set():
            putting.set()
            assert go_on.wait(LONG_S)

    store.on_step = hold
    return putting, go_on


def test_what_is_added_during_a_put_is_put_together(store: Store, clock: SharedClock) -> None:
    """Nine adds are two puts, and none returns before its own digests are durable."""
    mine = record(store, clock)
    putting, go_on = hold_first_put(store)
    digests = [hashlib.sha256(bytes([number])).digest() for number in range(9)]

    def add(digest: bytes) -> bool:
        mine.add([digest])
        return any(digest in data for data in store.objects.values())

    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(add, digests[0])
        assert putting.wait(LONG_S)
        others = [pool.submit(add, digest) for digest in digests[1:]]
        wait_until(lambda: len(mine._next.digests) == 8, LONG_S, "the others wait")
        assert not any(each.done() for each in others)
        go_on.set()
        assert all(each.result(LONG_S) for each in [first, *others])
    assert [len(store.objects[name]) for name in store.puts()] == [32, 8 * 32]


@pytest.mark.parametrize("lie", ["refuse", "raise"])
def test_a_put_that_fails_fails_for_all_whose_digests_it_holds(store: Store, clock: SharedClock, lie: str) -> None:
    """Before its effect and after it: none of them may go on. The next is a put of its own."""
    mine = record(store, clock)
    putting, go_on = hold_first_put(store)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(mine.add, [A])
        assert putting.wait(LONG_S)
        others = [pool.submit(mine.add, [digest]) for digest in (B, C)]
        wait_until(lambda: len(mine._next.digests) == 2, LONG_S, "the others wait")
        store.lies_about = lambda name: "" if len(store.puts()) == 0 else lie
        go_on.set()
        first.result(LONG_S)
        for each in others:
            with pytest.raises(JournalUnavailableError):
                each.result(LONG_S)
    store.lies_about = lambda name: ""
    mine.add([D])
    assert known(record(store, clock, run="r2")) == ({A, D} if lie == "refuse" else {A, B, C, D})


def test_an_object_that_is_there_already_says_the_same(store: Store, clock: SharedClock) -> None:
    """Whoever put it: another attempt that sent the same row, or an earlier try of this put."""
    store.lies_about = lambda name: "deny"
    record(store, clock).add([A])
    record(store, clock).add([A])
    assert known(record(store, clock, run="r2")) == {A}
    assert len(store.objects) == 1


# Merging


def test_in_the_end_there_is_one_object(store: Store, clock: SharedClock) -> None:
    """With all digests; it is there before the parts go, so that whoever looks sees each at any time."""
    mine = record(store, clock)
    for digest in (A, B, C):
        mine.add([digest])
    seen: list[set[bytes]] = []

    def look(event: str) -> None:
        if event.split(" ")[1] in ("put", "drop"):
            store.on_step = lambda event: None
            seen.append(known(record(store, clock, run="r2")))
            store.on_step = look

    store.on_step = look
    mine.close()
    assert seen == [{A, B, C}] * len(seen)
    assert len(seen) > 4
    assert list(map(len, store.objects.values())) == [3 * 32]


@pytest.mark.parametrize("puts", [[], [[A]], [[A], [A]], [[A, B], [B, A]]])
def test_merging_few_or_equal_objects_loses_none(store: Store, clock: SharedClock, puts: list[list[bytes]]) -> None:
    """Nothing to merge is nothing to do, and what is merged is never what is deleted."""
    mine = record(store, clock)
    for digests in puts:
        mine.add(digests)
    before = dict(store.objects)
    mine.close()
    assert known(record(store, clock, run="r2")) == {digest for digests in puts for digest in digests}
    assert len(puts) > 1 or store.objects == before


# Forgetting


def sent_for(store: Store, clock: SharedClock, *batches: int, query: str = "q") -> None:
    for batch in batches:
        record(store, clock, query=query, batch=str(batch), run=f"r{batch}").add([A])


def kept(store: Store, query: str = "q") -> list[int]:
    return [int(name.split("/")[2]) for name in store.under(f"sent/{query}/")]


def test_old_micro_batches_are_forgotten_all_at_once(store: Store, clock: SharedClock) -> None:
    """Now and then; the last hundred before the committed one are kept, and so is what other queries have."""
    sent_for(store, clock, *range(150))
    sent_for(store, clock, 0, 1, query="other")
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
    assert store.under("over/") == ["over/q/00000000000000000047"]


def test_a_micro_batch_that_is_forgotten_is_not_sent_again(store: Store, clock: SharedClock) -> None:
    """It runs again under an old checkpoint: the error says what is remembered, and how to send all the same."""
    sent_for(store, clock, *range(130))
    forget(store, "q", 120)
    for batch in (0, 20):
        with pytest.raises(BatchForgottenError) as told:
            record(store, clock, batch=str(batch)).look()
        assert str(told.value) == (
            f"micro-batch {batch} runs again, but what was sent for it is forgotten: the journal at 'memory' "
            "remembers 100 micro-batches, those after 20. The checkpoint is old, or a task has stood still. To send "
            "its rows again, perhaps twice, give the sink another journalLocation."
        )
    assert known(record(store, clock, batch="21")) == {A}


def test_forgetting_that_breaks_off_is_remembered_as_forgotten(store: Store, clock: SharedClock) -> None:
    """The mark is there before the first object goes, and the next time the rest goes."""
    sent_for(store, clock, *range(30))

    def crash(event: str) -> None:
        if event.startswith("before drop") and len(store.objects) == 26:
            raise JournalUnavailableError("cannot drop")

    store.on_step = crash
    with pytest.raises(JournalUnavailableError):
        forget(store, "q", 120)
    store.on_step = lambda event: None
    with pytest.raises(BatchForgottenError):
        record(store, clock, batch="20").look()
    assert 20 in kept(store)
    forget(store, "q", 141)
    assert kept(store) == []


@pytest.mark.parametrize("at", ["before list over/q", "before list sent/q", "after list sent/q", "before get"])
def test_a_task_that_stood_still_while_its_micro_batch_was_forgotten_is_told(
    store: Store, clock: SharedClock, at: str
) -> None:
    """Wherever in its look: it never takes what was dropped for what was never sent."""
    sent_for(store, clock, 5)

    def drop(event: str) -> None:
        if event.startswith(at):
            store.on_step = lambda event: None
            forget(store, "q", 120)

    store.on_step = drop
    with pytest.raises(BatchForgottenError):
        record(store, clock, batch="5").look()


def test_batch_writes_are_forgotten_after_a_week(store: Store, clock: SharedClock) -> None:
    """From their beginning; a stream's record is not touched."""
    now_ms = int(clock.now() * 1000)
    for began_ms in (now_ms, now_ms - KEPT_MS, now_ms - KEPT_MS - 1):
        record(store, clock, query=None, batch=f"{began_ms}-r", run="r").add([A])
    sent_for(store, clock, 1)
    forget_batch_writes(store, clock.now())
    left = {name.split("/")[2] for name in store.under("sent/batch-writes/")}
    assert left == {f"{now_ms}-r", f"{now_ms - KEPT_MS}-r"}
    assert kept(store) == [1]
