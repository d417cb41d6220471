"""Spark's writers without Spark: what is pickled to the tasks, whose record a task's is, and what the log says."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import TypeVar

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from sqs_fifo_spark import logs
from sqs_fifo_spark.errors import AccessDeniedError, DisorderError, JournalUnavailableError, OptionError
from sqs_fifo_spark.sink import writer
from sqs_fifo_spark.sink.progress import RowCounts
from sqs_fifo_spark.sink.write import Draft, Place, Sent
from sqs_fifo_spark.sink.writer import SentMessage, SqsFifoStreamWriter, SqsFifoWriter
from tests.unit.sending import THROTTLED, Sqs, Store, batch, patched, raising, refusal

SCHEMA = StructType([StructField(name, StringType()) for name in ("body", "messageGroupId", "messageDeduplicationId")])
Writing = TypeVar("Writing")
IDS = {"txnAppId": "bids", "txnVersion": "7"}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store()
    monkeypatch.setattr(writer, "open_store", lambda location, access: made)
    monkeypatch.setattr(writer, "SYSTEM_CLOCK", patched(monkeypatch).clock)
    monkeypatch.setattr("sqs_fifo_spark.sink.write._warned", set())
    return made


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch, store: Store) -> Sqs:
    made = patched(monkeypatch)
    monkeypatch.setattr(writer, "SYSTEM_CLOCK", made.clock)
    return made


def batch_writer(sqs: Sqs, **options: str) -> SqsFifoWriter:
    return SqsFifoWriter(sqs.options(journalLocation="/journal", **options), SCHEMA)


def pickled(given: Writing) -> Writing:
    """Return what reaches the tasks."""
    copy: Writing = pickle.loads(pickle.dumps(given))
    return copy


def in_task(monkeypatch: pytest.MonkeyPatch, partition: int = 3, /, **properties: str) -> None:
    """Let what runs be a task whose local properties are these."""
    names = {"query": "sql.streaming.queryId", "batch": "streaming.sql.batchId"}
    given = {names[name]: value for name, value in properties.items()}
    context = SimpleNamespace(partitionId=lambda: partition, attemptNumber=lambda: 0, getLocalProperty=given.get)
    monkeypatch.setattr(writer, "TaskContext", SimpleNamespace(get=lambda: context))


@pytest.mark.parametrize("at", ["queue", "journal", "store"])
def test_what_passes_is_not_pickled_into_the_plan(
    sqs: Sqs, store: Store, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The tasks look for themselves, as parts of the one execution that the driver began."""

    if at == "store":
        monkeypatch.setattr(writer, "open_store", raising(JournalUnavailableError("503")))
    elif at == "queue":
        sqs.not_described = THROTTLED
    else:
        store.fail_at("")
    given = batch_writer(sqs)
    first, second = (pickled(given)._plan for _ in range(2))
    assert isinstance(first, Draft)
    assert first == second


@pytest.fixture
def unopened(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what lets the journal not be opened from then on."""

    fail = raising(JournalUnavailableError("no credentials"))
    return lambda: monkeypatch.setattr(writer, "open_store", fail)


def test_what_the_driver_found_wrong_is_told_where_no_journal_opens(
    sqs: Sqs, monkeypatch: pytest.MonkeyPatch, unopened: Callable[[], None]
) -> None:
    """By every task: it is the cause, known without a call; what this executor lacks may be its consequence."""
    sqs.not_described = refusal("AccessDenied", 403)
    given = pickled(batch_writer(sqs))
    assert isinstance(given._plan, AccessDeniedError)
    unopened()
    in_task(monkeypatch)
    with pytest.raises(AccessDeniedError):
        given.write(iter([batch("a1")]))


def test_only_a_partition_with_rows_opens_the_journal(
    sqs: Sqs, monkeypatch: pytest.MonkeyPatch, unopened: Callable[[], None]
) -> None:
    """Most partitions of a small shuffle are empty, and cost nothing."""
    given = pickled(batch_writer(sqs))
    unopened()
    in_task(monkeypatch)
    assert given.write(iter([batch()])).sent.rows == 0
    with pytest.raises(JournalUnavailableError, match="no credentials"):
        given.write(iter([batch("a1")]))
    assert sqs.calls == []


@pytest.mark.parametrize(
    ("options", "properties", "place"),
    [
        ({}, {}, Place(3, None, None)),
        ({}, {"query": "q", "batch": "12"}, Place(3, "q", 12)),
        (IDS, {}, Place(3, "bids", 7)),
        (IDS, {"query": "q", "batch": "12"}, Place(3, "bids", 7)),
    ],
)
def test_whose_record_it_is_says_the_writer_or_else_spark(
    sqs: Sqs, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], properties: dict[str, str], place: Place
) -> None:
    """The writer's names come before Spark's; a write without any is one of its own."""
    in_task(monkeypatch, **properties)
    given = pickled(batch_writer(sqs, **options))
    assert given.write(iter(())).sent == Sent(place, rows=0)


def test_a_batch_write_that_does_not_say_who_writes_what_is_told_once(
    sqs: Sqs, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """It looks as if repeated writes were recognised; inside foreachBatch, in a thread, they should be."""
    named = SentMessage(Sent(Place(0, "bids", 7), rows=1))
    batch_writer(sqs, **IDS).commit([named])
    batch_writer(sqs).commit([SentMessage(Sent(Place(0, "q", 7), rows=1))])
    SqsFifoWriter(sqs.options(), SCHEMA).commit([SentMessage(Sent(Place(0, None, None), rows=1))])
    assert caplog.messages == []
    for _ in range(3):
        batch_writer(sqs).commit([SentMessage(Sent(Place(0, None, None), rows=1))])
    (line,) = caplog.messages
    assert line.startswith("a batch write with a journal does not say who writes what")
    assert "'txnAppId' and 'txnVersion'" in line


def test_each_write_has_a_line_with_its_figures(sqs: Sqs, caplog: pytest.LogCaptureFixture) -> None:
    """Those of all tasks, also where there is nothing to warn of: Spark has no place for them in its reports."""
    sent = [
        SentMessage(Sent(Place(0, "q", 7), 3, RowCounts(known=1))),
        SentMessage(Sent(Place(1, "q", 7), 4, RowCounts(equal=2, overtaking=1, refused=1))),
    ]
    with caplog.at_level(logging.INFO, "sqs_fifo_spark"):
        SqsFifoStreamWriter(sqs.options(), SCHEMA).commit(sent, 7)
        SqsFifoStreamWriter(sqs.options(), SCHEMA).commit([], 8)
    assert [each.getMessage() for each in caplog.records if each.levelno == logging.INFO] == [
        "micro-batch 7: partitions=2 rows=7 known=1 equal=2 overtaking=1 refused=1",
        "micro-batch 8: partitions=0 rows=0 known=0 equal=0 overtaking=0 refused=0",
    ]


def test_why_rows_were_sent_before_is_told_as_far_as_it_is_known(sqs: Sqs, caplog: pytest.LogCaptureFixture) -> None:
    """A stream's micro-batch is written once in each run; a batch write may find the rows of another one."""
    sent = [
        SentMessage(Sent(Place(0, "q", 7), 5, RowCounts(known=2))),
        SentMessage(Sent(Place(1, "q", 7), 3, RowCounts(known=1))),
    ]
    SqsFifoStreamWriter(sqs.options(), SCHEMA).commit(sent, 7)
    SqsFifoWriter(sqs.options(), SCHEMA).commit(sent)
    assert caplog.messages == [
        "micro-batch 7: 3 of its 8 rows had been sent before, and were not sent twice: it, or a task of it, ran again.",
        "the batch write: 3 of its 8 rows had been sent before, and were not sent twice: it, or a task of it, ran "
        "again, or another write of the same micro-batch, or of the same 'txnAppId' and 'txnVersion', had equal rows.",
    ]


def test_the_driver_tells_how_many_rows_are_refused(sqs: Sqs, caplog: pytest.LogCaptureFixture) -> None:
    """And where they are; of an aborted write they do not count as sent."""
    sent = [SentMessage(Sent(Place(number, "q", 7), 5, RowCounts(refused=number))) for number in (0, 1, 2)]
    given = SqsFifoStreamWriter(sqs.options(badRecordsPath="/kept"), SCHEMA)
    given.commit(sent, 7)
    given.abort(sent, 7)
    refused, aborted = caplog.messages
    assert refused == (
        "micro-batch 7: 3 of its 15 rows are refused, and kept in '/kept', each with its reason. They are not in the "
        "queue."
    )
    assert "Its finished partitions, 3 of 3, have sent 12 rows, which stay sent." in aborted


def test_refused_rows_are_kept_where_the_options_say(sqs: Sqs, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Driver and task open the same place, with the journal's access."""
    in_task(monkeypatch, query="q", batch="12")
    opened: list[str] = []

    def open_store(location: str, access: object) -> Store:
        opened.append(location)
        return store

    monkeypatch.setattr(writer, "open_store", open_store)
    given = pickled(SqsFifoWriter(sqs.options(badRecordsPath="/kept"), SCHEMA))
    assert given.write(iter([batch("a1", None)])).sent.counts.refused == 1
    assert opened == ["/kept", "/kept"]
    assert len(store.under("q/00000000000000000012/")) == 1


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_lines_of_the_driver_tell_of_the_query_that_its_tasks_have_told(
    sqs: Sqs, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Spark does not tell it to the driver. Where no task has ended, the queue alone is known."""
    monkeypatch.setattr(logs, "_where", "-")
    given = SqsFifoStreamWriter(sqs.options(), SCHEMA)
    getattr(given, end)([None, SentMessage(Sent(Place(1, "q1", 7), rows=5))], 7)
    assert logs._where == "q.fifo query q1 batch 7"
    getattr(given, end)([None], 8)
    assert logs._where == "q.fifo"


def test_a_journal_that_cannot_be_opened_does_not_fail_a_finished_write(
    sqs: Sqs, unopened: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    """All rows are sent: what failed now would be repeated."""
    given = SqsFifoStreamWriter(sqs.options(journalLocation="/journal"), SCHEMA)
    unopened()
    given.commit([SentMessage(Sent(Place(0, "q", 7), rows=1))], 7)
    assert caplog.messages == [
        "all rows are sent; what the journal need not know any more stays for now: no credentials"
    ]


def test_the_driver_tells_how_many_rows_have_overtaken_others(
    sqs: Sqs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When the write is committed."""
    sqs.may_batch = True
    in_task(monkeypatch)
    given = pickled(batch_writer(sqs, order="batch"))
    sqs.failing = lambda body: ("InternalError", False) if body == "a1" and sqs.tries(body) == 1 else None
    message = given.write(iter([batch("a1", "a2", "a3")]))
    assert message.sent.counts.overtaking == 2
    caplog.clear()
    given.commit([message])
    said = next(each for each in caplog.messages if "before an earlier row" in each)
    assert said.startswith("the batch write: 2 of its 3 rows stand in the queue before an earlier row of their group")


@pytest.mark.parametrize("order", ["strict", "batch"])
def test_the_driver_tells_of_groups_in_several_partitions_and_of_equal_rows(
    sqs: Sqs, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, order: str
) -> None:
    """In a line each; with `onDisorder=fail` the write does not succeed, and forgets nothing, however often it runs."""
    for on_disorder in ("log", "fail", "fail"):
        given = pickled(batch_writer(sqs, order=order, onDisorder=on_disorder, **IDS))
        messages: list[SentMessage] = []
        for partition, bodies in enumerate((("a1", "b1"), ("a2", "c1"))):
            in_task(monkeypatch, partition)
            rows = batch(*bodies)
            ids = pa.array([body.replace("c1", "b1") for body in bodies])
            messages.append(given.write(iter([rows.set_column(2, "messageDeduplicationId", ids)])))
        caplog.clear()
        if on_disorder == "log":
            given.commit(messages)
            equal, scattered = caplog.messages
            assert equal.startswith("the batch write: at least 1 of its 4 rows are equal to rows before them")
            assert scattered.startswith(
                "the batch write: 1 message group stands in several partitions, such as 'a' in partitions 0 and 1. "
            )
            continue
        steps = len(store.steps)
        with pytest.raises(DisorderError, match="such as 'a' in partitions 0 and 1"):
            given.commit(messages)
        assert not any("drop sent/" in step for step in store.steps[steps:])
    assert sqs.bodies() == ["a1", "b1", "a2"]


def test_a_write_that_cannot_know_of_earlier_disorder_does_not_promise_to_fail(
    sqs: Sqs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless somebody says who writes what; in a micro-batch Spark does."""
    given = {"order": "batch", "onDisorder": "fail"}
    in_task(monkeypatch)
    with pytest.raises(OptionError, match="Give txnAppId and txnVersion"):
        pickled(batch_writer(sqs, **given)).write(iter([batch("a1")]))
    assert sqs.calls == []
    for more, properties in (({"txnAppId": "x", "txnVersion": "1"}, {}), ({}, {"query": "q", "batch": "7"})):
        in_task(monkeypatch, **properties)
        assert pickled(batch_writer(sqs, **given, **more)).write(iter([batch("a1")])).sent.rows == 1
