"""A sink's two sides without Spark: what is checked before, what a task sends, what a replay sends, what errors say."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import NoCredentialsError

from sqs_fifo_spark.errors import (
    AccessDeniedError,
    BatchForgottenError,
    JournalMismatchError,
    JournalUnavailableError,
    OptionError,
    QueueNotFoundError,
    QueueRequestError,
    RowError,
    SqsFifoError,
    TransientQueueError,
)
from sqs_fifo_spark.sink.outgoing import outgoing
from sqs_fifo_spark.sink.record import SentRecord
from sqs_fifo_spark.sink.sender import Sender
from sqs_fifo_spark.sink.sink_queue import SinkQueue
from sqs_fifo_spark.sink.summary import compare
from sqs_fifo_spark.sink.write import (
    MAX_PART_ROWS,
    Draft,
    Place,
    Sent,
    SinkPlan,
    draft,
    finish_write,
    plan_for_tasks,
    prepare,
    send_partition,
)
from tests.helpers import wait_until
from tests.unit.sending import (
    LONG_S,
    LOST,
    THROTTLED,
    Panic,
    Sqs,
    Store,
    batch,
    digests_of,
    failure,
    make,
    numbered,
    patched,
    raising,
    refusal,
    rows,
    threads,
)

pytestmark = pytest.mark.law("sink-1", "sink-3")

TEN_MINUTES_S = 600


def planned(
    sqs: Sqs,
    store: Store | None = None,
    *,
    by_column: bool = True,
    refused: Store | SinkQueue | None = None,
    **options: Any,
) -> SinkPlan:
    made = sqs.options(**options)
    given = draft(made, by_column=by_column, clock=sqs.clock)
    queue = SinkQueue(made, sqs.clock)
    plan = prepare(given, queue=queue, store=store, may_create=True, bad_records=refused)
    copy: SinkPlan = pickle.loads(pickle.dumps(plan))
    assert copy == plan
    return copy


def run(
    sqs: Sqs,
    store: Store | None,
    *batches: pa.RecordBatch,
    plan: SinkPlan | Draft | SqsFifoError | None = None,
    place: Place | None = None,
    refused: Store | SinkQueue | None = None,
) -> Sent:
    """Run one task, of a micro-batch of its own unless there is a `plan`; refused rows are kept in `refused`."""
    plan = plan or planned(sqs, store)
    given = plan.draft if isinstance(plan, SinkPlan) else plan
    queue = SinkQueue(given.options if isinstance(given, Draft) else sqs.options(), sqs.clock)
    where = place or Place(0, "q", 1)
    sent = send_partition(
        plan, batches, where, queue=queue, open_journal=lambda: store, open_bad_records=lambda: refused, clock=sqs.clock
    )
    return pickle.loads(pickle.dumps(sent))  # type: ignore[no-any-return]


def error(kind: type[SqsFifoError], *arguments: Any, **named: Any) -> str:
    """Run a task that fails, and return what it says."""
    said = failure(kind, run, *arguments, **named)
    assert threads() == []
    return said


def change_identity(store: Store, **changes: str) -> None:
    """Let the journal be another one."""
    identity = json.loads(store.objects["journal.json"])
    store.objects["journal.json"] = json.dumps({**identity, **changes}).encode()


# Before the first row


def test_the_plan_says_what_the_tasks_need(sqs: Sqs, store: Store) -> None:
    """The journal is made, and checked, once; each write is a run of its own; the limit is the queue's."""
    first, second = planned(sqs, store, messageGroupId="all"), planned(sqs, store)
    identity = json.loads(store.objects["journal.json"])
    assert identity["queueArn"].endswith(":q.fifo")
    assert first.draft.journal == second.draft.journal == identity["journal"]
    assert planned(sqs).draft.journal is None, "without a location there is none"
    assert first.draft.run != second.draft.run
    assert first.form.message_group_id == "all"
    assert first.form.max_message_bytes == 1_048_576
    assert first.draft.began_ms == int(sqs.clock.now() * 1000)
    assert set(store.objects) == {"journal.json"}
    assert sqs.calls == []


def test_content_needs_a_queue_that_deduplicates_by_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else SQS would refuse every row: it is told before the first, with both remedies."""
    with pytest.raises(
        OptionError, match=r"has no ContentBasedDeduplication, so SQS would refuse every row. Turn it on"
    ):
        planned(patched(monkeypatch), by_column=False)
    sqs = patched(monkeypatch, ContentBasedDeduplication="true")
    run(sqs, None, batch("a1", "a2", "a1"), plan=planned(sqs, by_column=False))
    assert sqs.bodies() == ["a1", "a2"]


@pytest.mark.parametrize(
    ("scope", "by_column", "options", "told"),
    [
        ("queue", False, {}, "rows with the same body within 5 minutes SQS keeps only the first"),
        (None, False, {}, "rows with the same body within 5 minutes SQS keeps only the first"),
        ("queue", True, {}, "rows with the same messageDeduplicationId within 5 minutes SQS keeps only the first"),
        ("queue", False, {"messageGroupId": "all"}, ""),
        ("queue", True, {"messageGroupId": "all"}, ""),
        ("messageGroup", False, {}, ""),
        ("messageGroup", True, {}, ""),
    ],
)
def test_that_equal_rows_of_different_groups_become_one_message_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    scope: str | None,
    by_column: bool,
    options: dict[str, Any],
    told: str,
) -> None:
    """Where it can happen, in one line, before the first row; not again for each micro-batch."""
    monkeypatch.setattr("sqs_fifo_spark.sink.write._warned", set())
    attributes = {} if scope is None else {"DeduplicationScope": scope, "FifoThroughputLimit": "perQueue"}
    sqs = patched(monkeypatch, ContentBasedDeduplication="true", **attributes)
    for _ in range(3):
        planned(sqs, None, by_column=by_column, **options)
    assert len(caplog.messages) == bool(told)
    for line in caplog.messages:
        assert line.startswith(f"the DeduplicationScope of the queue '{sqs.url}' is 'queue': of {told}")
        assert "\n" not in line


def test_a_store_that_overwrites_is_refused(sqs: Sqs, store: Store) -> None:
    """Before it is relied on."""
    store.put_if_absent = lambda name, data: store.objects.update({name: data}) or True  # type: ignore[method-assign]
    with pytest.raises(JournalUnavailableError, match="does not put objects only if they are absent"):
        planned(sqs, store)


def drafted(
    sqs: Sqs, store: Store | None = None, *, refused: Store | None = None, **options: Any
) -> SinkPlan | Draft | SqsFifoError:
    """Return what the driver pickles to the tasks, as it reaches them."""
    made = sqs.options(**options)
    given, queue = draft(made, by_column=True, clock=sqs.clock), SinkQueue(made, sqs.clock)
    plan = plan_for_tasks(given, queue=queue, open_journal=lambda: store, open_bad_records=lambda: refused)
    return pickle.loads(pickle.dumps(plan))  # type: ignore[no-any-return]


@pytest.mark.parametrize("out", ["queue", "journal"])
def test_an_outage_while_a_write_is_planned_is_over_when_its_tasks_try(sqs: Sqs, store: Store, out: str) -> None:
    """Each looks for itself; all attempts of one execution are one run, of one beginning, as with a plan."""
    planned(sqs, store)
    if out == "queue":
        sqs.not_described = THROTTLED
    else:
        store.fails = lambda call: True
    plan = drafted(sqs, store)
    assert isinstance(plan, Draft)
    kind: type[SqsFifoError] = TransientQueueError if out == "queue" else JournalUnavailableError
    error(kind, sqs, store, batch("a1"), plan=plan)
    error(kind, sqs, store, batch("a1"), plan=plan)
    assert sqs.calls == []

    sqs.not_described = None
    store.fails = lambda call: False
    assert run(sqs, store, batch("a1", "a2"), plan=plan, place=Place(0, None, None)).counts.known == 0
    assert run(sqs, store, batch("a1", "a2"), plan=plan, place=Place(0, None, None)).counts.known == 2
    (name,) = store.under("sent/")
    assert name.startswith(f"sent/batch-writes/{plan.began_ms}-{plan.run}/{plan.run}-00000-")


def test_what_is_wrong_for_good_is_raised_by_the_tasks_without_a_call(sqs: Sqs, store: Store) -> None:
    """As the driver found it, and by tasks without rows too: it does not pass."""
    planned(sqs, store)
    change_identity(store, queueArn="arn:other")
    plan = drafted(sqs, store)
    store.steps.clear()
    for batches in ([batch("a1")], []):
        assert "belongs to the queue" in error(JournalMismatchError, sqs, store, *batches, plan=plan)
    assert store.steps == []


@pytest.mark.parametrize("error_met", [NoCredentialsError(), Panic(), RuntimeError("expired")])
def test_what_passes_while_a_write_is_planned_is_left_to_its_tasks(
    sqs: Sqs, store: Store, error_met: BaseException
) -> None:
    """Credentials that a service of the machine does not give at once, and defects, may be over when a task tries."""
    planned(sqs, store)
    sqs.not_described = error_met
    plan = drafted(sqs, store)
    assert isinstance(plan, Draft)
    sqs.not_described = None
    assert run(sqs, store, batch("a1"), plan=plan).rows == 1


@pytest.mark.parametrize("by_itself", [False, True])
def test_a_task_takes_only_the_drivers_journal(sqs: Sqs, store: Store, by_itself: bool) -> None:
    """On a path of its own it would find what an earlier query left, and record where no replay looks; so with none.

    Be it that it looks for itself, because the driver was throttled.
    """
    plan: Any = planned(sqs, store)
    if by_itself:
        sqs.not_described = THROTTLED
        plan = drafted(sqs, store)
        sqs.not_described = None
        change_identity(store, journal="another")
    other = Store()
    planned(sqs, other)
    for elsewhere in [store] if by_itself else [other, Store()]:
        said = error(JournalUnavailableError, sqs, elsewhere, batch("a1"), plan=plan)
        assert "does not find the driver's journal" in said
    assert sqs.calls == []


def test_a_task_that_looks_for_itself_makes_no_journal(sqs: Sqs, store: Store) -> None:
    """On a path of its own it would record what nobody else finds."""
    store.fails = lambda call: True
    plan = drafted(sqs, store)
    store.fails = lambda call: False
    assert error(JournalUnavailableError, sqs, store, batch("a1"), plan=plan) == (
        "cannot get 'journal.json' So the driver, which makes the journal at 'memory', could not, and this task does "
        "not."
    )
    assert (store.objects, sqs.calls) == ({}, [])


# A task


def test_rows_of_all_batches_are_sent_in_order(sqs: Sqs) -> None:
    """Empty batches too may come; what is returned says how many there were and where."""
    sent = run(sqs, None, batch("a1", "b1"), batch(), batch("a2"), batch("b2", "a3"), place=Place(4, "q", 9))
    assert sqs.bodies("a") == ["a1", "a2", "a3"]
    assert sqs.bodies("b") == ["b1", "b2"]
    assert (sent.place, sent.rows, sent.counts.known) == (Place(4, "q", 9), 5, 0)
    assert run(sqs, None).rows == 0


@pytest.mark.parametrize(("rows", "size", "most"), [(2_500, 1, MAX_PART_ROWS), (100, 1 << 18, 16), (3, 1_048_000, 4)])
def test_a_batch_is_taken_in_parts(sqs: Sqs, monkeypatch: pytest.MonkeyPatch, rows: int, size: int, most: int) -> None:
    """Each row is a dozen objects in Python: no more of them than a part has, in number and in bytes, at once."""
    parts: list[int] = []

    def watched(columns: Any, form: Any, *, first_row: int) -> Any:
        assert first_row == 1 + sum(parts)
        parts.append(len(columns[0]))
        return outgoing(columns, form, first_row=first_row)

    monkeypatch.setattr("sqs_fifo_spark.sink.write.outgoing", watched)
    columns = [pa.array(["x" * size] * rows), pa.array([f"g{number}" for number in range(rows)])]
    given = pa.RecordBatch.from_arrays([*columns, columns[1]], ["body", "messageGroupId", "messageDeduplicationId"])
    assert run(sqs, None, given).rows == len(sqs.bodies()) == rows
    assert sum(parts) == rows
    assert max(parts) <= most


def test_a_bad_row_is_told_with_partition_row_reason_and_count(sqs: Sqs, store: Store) -> None:
    """Its number goes through all batches; nothing of its group after it is sent, in whichever batch."""
    said = error(RowError, sqs, store, batch("a1", "x1"), batch("a2", None, "x2"), batch("x3"), place=Place(3, "q", 1))
    sent = len(sqs.bodies())
    assert said == (
        f"row 4 of partition 3 cannot be sent: its body is null. {sent} rows of the partition were sent, none of its "
        "group after it. Correct such rows, filter them out before the sink, which never skips any, or give "
        "badRecordsPath, where they are kept."
    )
    assert sqs.bodies("x") in ([], ["x1"])
    assert sent <= 2


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (refusal("AccessDenied", 403), AccessDeniedError),
        (refusal("AWS.SimpleQueueService.NonExistentQueue"), QueueNotFoundError),
        (refusal("ServiceUnavailable", 503), TransientQueueError),
        (LOST, TransientQueueError),
    ],
    ids=str,
)
def test_what_the_queue_meets_keeps_its_class_and_says_how_many_were_sent(
    sqs: Sqs, raised: Exception, kind: type[SqsFifoError]
) -> None:
    """And nothing of the group follows."""
    sqs.before = raising(raised, lambda bodies: bodies == ["a3"])
    assert error(kind, sqs, None, batch("a1", "a2", "a3", "a4")).endswith(" 2 rows of partition 0 were sent.")
    assert sqs.bodies() == ["a1", "a2"]


def test_a_queue_that_refuses_to_say_its_settings_ends_the_task_in_one_line(sqs: Sqs) -> None:
    """Where all rows of a call are refused it is asked for them; its refusal is no message's."""
    plan = planned(sqs)
    sqs.not_described = refusal("InvalidParameterValue", message="no")
    sqs.refuse("a1")
    said = error(QueueRequestError, sqs, None, batch("a1"), plan=plan)
    assert said.startswith("SQS refused get_queue_attributes on ")
    assert said.endswith(" 0 rows of partition 0 were sent.")


def test_an_upstream_that_fails_ends_the_sending(sqs: Sqs) -> None:
    """Its own error is raised; nothing is sent afterwards, and no thread is left."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch("a1")
        raise ZeroDivisionError("upstream")

    queue = SinkQueue(sqs.options(), sqs.clock)
    with pytest.raises(ZeroDivisionError, match=r"^upstream$"):
        send_partition(
            planned(sqs), batches(), Place(0, "q", 1), queue=queue, open_journal=lambda: None, clock=sqs.clock
        )
    assert threads() == []


# A replay

ROWS = [f"{group}{number}" for number in range(1, 5) for group in "abcdef"]


def fail_at(sqs: Sqs, store: Store, wanted: str, *, is_sent: bool) -> None:
    """Let a first run of ROWS die at the row `wanted`: before it is sent, or when it is sent and not recorded."""
    plan = planned(sqs, store)
    if is_sent:
        gone, is_at = JournalUnavailableError("the disk is gone"), "before put sent/"
        store.on_step = raising(gone, lambda event: event.startswith(is_at) and wanted in sqs.bodies())
    else:
        sqs.before = raising(refusal("AccessDenied", 403), lambda bodies: wanted in bodies)
    error(JournalUnavailableError if is_sent else AccessDeniedError, sqs, store, batch(*ROWS), plan=plan)
    store.calm()
    sqs.before = lambda bodies: None
    (digest,) = digests_of(wanted)
    assert not any(digest in data for data in store.objects.values())


def in_groups(sqs: Sqs) -> dict[str, list[str]]:
    return {group: sqs.bodies(group) for group in "abcdef"}


ONCE_AND_IN_ORDER = {group: numbered(group, 4) for group in "abcdef"}


def replay(sqs: Sqs, store: Store | None, partitions: int) -> list[Sent]:
    """Run the micro-batch again, its groups dealt to so many partitions."""
    plan = planned(sqs, store)
    split: list[list[str]] = [[body for body in ROWS if ord(body[0]) % partitions == at] for at in range(partitions)]
    return [run(sqs, store, batch(*part), plan=plan, place=Place(at, "q", 1)) for at, part in enumerate(split)]


@pytest.mark.parametrize("partitions", [1, 2, 5])
@pytest.mark.parametrize("wanted", ["a1", "c2", "f4"])
def test_a_replay_sends_what_is_missing_however_late_and_however_partitioned(
    sqs: Sqs, store: Store, wanted: str, partitions: int
) -> None:
    """Each row once and each group in order, when SQS has long forgotten what was sent."""
    fail_at(sqs, store, wanted, is_sent=False)
    before = len(sqs.bodies())
    sqs.clock.advance(TEN_MINUTES_S)
    sent = replay(sqs, store, partitions)
    assert in_groups(sqs) == ONCE_AND_IN_ORDER
    assert sum(each.rows for each in sent) == len(ROWS)
    assert sum(each.counts.known for each in sent) == before
    assert sum(each.counts.known for each in replay(sqs, store, 3)) == len(ROWS)


def test_what_was_sent_and_not_recorded_is_doubled_right_behind_itself(sqs: Sqs, store: Store) -> None:
    """The window that remains: at most the last row of each group, and only when SQS has forgotten it."""
    fail_at(sqs, store, "c2", is_sent=True)
    sqs.clock.advance(TEN_MINUTES_S)
    replay(sqs, store, 2)
    assert "c2" in sqs.bodies("c")
    for group in "abcdef":
        bodies = sqs.bodies(group)
        assert list(dict.fromkeys(bodies)) == numbered(group, 4)
        doubled = [body for at, body in enumerate(bodies) if bodies[at + 1 : at + 2] == [body]]
        assert len(bodies) == 4 + len(doubled) <= 5
    assert sqs.bodies("c") == ["c1", "c2", "c2", "c3", "c4"]


@pytest.mark.parametrize("dies_at", [None, 1, 2, 3, 4])
@pytest.mark.parametrize("pause_s", [1, 200])
def test_equal_rows_of_a_micro_batch_are_one_message_whenever_a_task_dies(
    sqs: Sqs, store: Store, dies_at: int | None, pause_s: int
) -> None:
    """However far apart they come: SQS's five minutes decide nothing that a second attempt would decide otherwise."""
    bodies = ["p1", "x1", "p1", "p2", "p1"]

    def attempt(until: int | None) -> Sender:
        sender = make(sqs, SentRecord(store, sqs.clock, query="q", batch="1", run="018bcfe56800r", partition=0))
        for body in bodies[:until]:
            sender.add(rows(body))
            wait_until(lambda: not sender.progress.lanes, LONG_S, "the row is recorded")
            sqs.clock.advance(pause_s)
        sender.stop() if until is not None else sender.finish()
        return sender

    if dies_at is not None:
        attempt(dies_at)
    before = len(sqs.bodies())
    second = attempt(None)
    assert {group: sqs.bodies(group) for group in "px"} == {"p": ["p1", "p2"], "x": ["x1"]}
    assert (second.counts.sent, second.counts.known, second.counts.equal) == (3 - before, before, 2)


def test_groups_of_rows_that_were_sent_before_are_compared_again(sqs: Sqs, store: Store) -> None:
    """A write that has failed for them fails when it is repeated, until each group stands in one partition."""
    rows = {0: ("a1", "b1", "a3"), 1: ("a2", "c1", "b2")}
    for known in (0, 3):
        plan = planned(sqs, store)
        sent = [run(sqs, store, batch(*rows[at]), plan=plan, place=Place(at, "q", 1)) for at in rows]
        assert [each.counts.known for each in sent] == [known, known]
        overlap = compare([(each.place.partition, each.summary) for each in sent])
        assert (overlap.groups, overlap.are_compared, overlap.equal) == (2, True, 0)
    assert compare([(each.place.partition, each.summary) for each in replay(sqs, store, 3)]).groups == 0


def test_a_run_and_its_zombie_send_each_row_once(sqs: Sqs, store: Store) -> None:
    """Two runs of one micro-batch at once, partitioned alike or not: an earlier driver's tasks may live on."""
    both = threading.Barrier(2)

    def start(partitions: int) -> list[Sent]:
        both.wait(LONG_S)
        return replay(sqs, store, partitions)

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(start, 1), pool.submit(start, 3)]:
            each.result(LONG_S)
    assert in_groups(sqs) == ONCE_AND_IN_ORDER


# After the commit


def test_a_commit_forgets_what_is_old(sqs: Sqs, store: Store) -> None:
    """Of its own query and of batch writes; without a journal nothing is looked for."""
    for number in (0, 21, 120):
        run(sqs, store, batch("a1"), place=Place(0, "q", number))
    finish_write(lambda: store, [Sent(Place(0, "q", 120), 1), Sent(Place(1, "q", 120), 0)], sqs.clock)
    assert len(store.under("sent/q/")) == 2
    assert "is forgotten" in error(BatchForgottenError, sqs, store, batch("a1"), place=Place(0, "q", 0))

    once = Sent(Place(0, None, None), 1)
    run(sqs, store, batch("b1"), place=once.place)
    sqs.clock.advance(7 * 86_400 + 1)
    assert len(store.under("sent/batch-writes/")) == 1
    finish_write(lambda: store, [once], sqs.clock)
    assert store.under("sent/batch-writes/") == []
    finish_write(lambda: None, [once], sqs.clock)


@pytest.mark.parametrize("error", [JournalUnavailableError("gone"), Panic("gone")])
@pytest.mark.parametrize("call", ["list", "put", "drop"])
@pytest.mark.parametrize("query", ["q", None])
def test_tidying_that_fails_does_not_fail_a_finished_write(
    sqs: Sqs, store: Store, caplog: pytest.LogCaptureFixture, query: str | None, call: str, error: BaseException
) -> None:
    """All rows are sent: Spark, or its user, would send them all again. A line of the log tells, also of a panic."""
    first = run(sqs, store, batch("a1"), place=Place(0, query, 0 if query else None))
    sqs.clock.advance(8 * 86_400)
    sent = run(sqs, store, batch("b1"), place=Place(0, query, 200 if query else None))
    store.fail_at(f"before {call}", error)
    finish_write(lambda: store, [sent], sqs.clock)
    assert caplog.messages == ["all rows are sent; what the journal need not know any more stays for now: gone"]
    store.calm()
    finish_write(lambda: store, [first, sent], sqs.clock)


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_tidying_does_not_hold_up_who_ends_the_process(sqs: Sqs, store: Store, end: type[BaseException]) -> None:
    """An interrupt or an exit is not caught."""
    sent = run(sqs, store, batch("a1"))
    with pytest.raises(end):
        finish_write(raising(end()), [sent], sqs.clock)


def test_a_forgotten_version_is_told_to_who_gave_it(sqs: Sqs, store: Store) -> None:
    """The options say that the number is a user's, not a micro-batch's."""
    finish_write(lambda: store, [Sent(Place(0, "bids", 120), 1)], sqs.clock)
    plan = planned(sqs, store, journalLocation="/journal", txnAppId="bids", txnVersion="7")
    said = error(BatchForgottenError, sqs, store, batch("a1"), plan=plan, place=Place(0, "bids", 7))
    assert said.startswith("txnVersion 7 of txnAppId 'bids' is 100 or more below the highest one written")
    assert sqs.bodies() == []


@pytest.mark.parametrize("call", ["put", "drop"])
def test_a_task_whose_rows_are_recorded_ends_well_though_it_cannot_tidy_up(sqs: Sqs, store: Store, call: str) -> None:
    """The rows are recorded: a task that failed now would run again for nothing."""
    plan = planned(sqs, store)
    before = len(store.puts())

    def is_tidying(event: str) -> bool:
        return event.startswith(f"before {call}") and (call == "drop" or len(store.puts()) - before == 3)

    store.on_step = raising(JournalUnavailableError("503"), is_tidying)
    assert run(sqs, store, batch("a1", "a2", "a3"), plan=plan).rows == 3
    store.calm()
    assert run(sqs, store, batch("a1", "a2", "a3"), plan=planned(sqs, store)).counts.known == 3
