"""Large bodies go to S3: there before their message, never changed, and their rows are what they would be without."""

from __future__ import annotations

import gc
import hashlib
import json
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from sqs_fifo_spark.errors import PayloadError, RowError
from sqs_fifo_spark.payloads.pointer import Pointer, body_of, pointer_in
from sqs_fifo_spark.sink import offload
from sqs_fifo_spark.sink.lanes import Lanes, Stride
from sqs_fifo_spark.sink.offload import PayloadForm
from sqs_fifo_spark.sink.outgoing import COLUMNS, OutgoingRow, RefusedRowError, RowForm, outgoing
from sqs_fifo_spark.sink.sender import Sender
from sqs_fifo_spark.sink.sink_queue import SinkQueue
from sqs_fifo_spark.sink.write import Place, Sent, SinkPlan, draft, prepare, send_partition
from tests.helpers import wait_until
from tests.unit.sending import (
    LONG_S,
    STRICT,
    Hang,
    Noted,
    Sqs,
    Store,
    Task,
    failure,
    patched,
    raising,
    rows_of,
    threads,
    wait_for_threads,
)

pytestmark = pytest.mark.law("sink-1", "sink-2")

PAYLOADS = PayloadForm("s3://big/orders", 100, "queue\nq/1")
FORM = RowForm(None, True, 1_048_576, payloads=PAYLOADS)
BY_CONTENT = replace(FORM, by_column=False)
LARGE = "zq7" * 50
"""A body that goes to S3."""


class Bucket:
    """S3, which no object may change in."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.writes: list[str] = []
        self.before: Callable[[bytes], object] = lambda data: None
        """Told each body before it is written; may raise, or wait."""

    def write(self, pointer: Pointer, data: bytes) -> None:
        self.before(data)
        self.writes.append(pointer.url)
        assert self.objects.setdefault(pointer.url, data) == data, "another body takes its place"

    def body(self, message: str) -> str:
        """Return the body that a reader gets; it fails for an object that is not there."""
        pointer = pointer_in(message, {"ExtendedPayloadSize": "1"})
        return message if pointer is None else self.objects[pointer.url].decode()


def one(form: RowForm = FORM, **values: Any) -> OutgoingRow:
    row = {"body": LARGE, "messageGroupId": "g", "messageDeduplicationId": "d", **values}
    (sent,) = outgoing([[row.get(name)] for name in COLUMNS], form, first_row=1)
    return sent


def pointer_of(row: OutgoingRow) -> Pointer:
    found = pointer_in(row.entry["MessageBody"], {"ExtendedPayloadSize": "1"})
    assert found is not None
    return found


def reason(form: RowForm = FORM, **values: Any) -> str:
    """Return why the row is refused, in one line without anything of its body; its digest is that without S3."""
    with pytest.raises(RefusedRowError) as told:
        one(form, **values)
    assert LARGE[:10] not in told.value.reason
    assert told.value.digest == one(replace(form, payloads=None, max_message_bytes=2**31), **values).digest
    return told.value.reason


def attributes(count: int) -> list[tuple[str, str]]:
    return [(f"a{number}", "1") for number in range(count)]


# A row's form


def test_a_large_row_points_to_its_body_as_the_clients_of_aws_have_it() -> None:
    """Its own attributes stay; one more has the body's bytes."""
    row = one(body="é" * 100, messageAttributes=[("a", "1")])
    assert row.payload is not None
    assert row.payload.data == ("é" * 100).encode()
    pointer = row.payload.pointer
    assert (pointer.bucket, pointer.key.rpartition("/")[0]) == ("big", "orders")
    assert set(pointer.key.rpartition("/")[2]) <= set("0123456789abcdef")
    assert row.entry["MessageBody"] == body_of(pointer)
    assert row.entry["MessageAttributes"] == {
        "a": {"DataType": "String", "StringValue": "1"},
        "ExtendedPayloadSize": {"DataType": "Number", "StringValue": "200"},
    }
    assert row.size == len(row.entry["MessageBody"]) + len("aString1") + len("ExtendedPayloadSizeNumber200")


@pytest.mark.parametrize("form", [FORM, BY_CONTENT])
def test_a_row_is_the_same_message_with_s3_and_without(form: RowForm) -> None:
    """The record knows it by its id, or its real body."""
    plain = one(replace(form, payloads=None))
    assert (one(form).digest, one(form).group) == (plain.digest, plain.group)


def test_only_what_is_above_the_threshold_goes_to_s3() -> None:
    """Attributes count, too; what is more than the queue takes goes there whatever the threshold."""
    assert one(body="x" * 100).payload is None
    assert one(body="x" * 101).payload is not None
    assert one(body="x" * 92, messageAttributes=[("a", "1")]).payload is None
    assert one(body="x" * 93, messageAttributes=[("a", "1")]).payload is not None
    high = replace(FORM, max_message_bytes=1_024, payloads=replace(PAYLOADS, threshold_bytes=1 << 20))
    assert one(high, body="x" * 1_024).payload is None
    assert one(high, body="x" * 1_025).payload is not None


@pytest.mark.parametrize(
    ("location", "start"),
    [("s3://b", ""), ("s3a://b/", ""), ("s3://b/p", "p/"), ("s3://b/p/q//", "p/q/"), ("s3://b/a%20b", "a%20b/")],
)
def test_a_key_is_the_prefix_and_one_name(location: str, start: str) -> None:
    """The prefix as it is written."""
    pointer = pointer_of(one(replace(FORM, payloads=replace(PAYLOADS, location=location))))
    assert (pointer.bucket, pointer.key[: len(start)]) == ("b", start)
    assert "/" not in pointer.key[len(start) :]
    assert len(pointer.key) == len(start) + 64


def test_a_replay_has_the_same_key_and_no_other_row_has_it() -> None:
    """Another body, another id, another group, another micro-batch or queue: else one could take another's payload."""
    others: list[dict[str, Any]] = [
        {},
        {"body": f"{LARGE}x"},
        {"messageGroupId": "h"},
        {"messageDeduplicationId": "e"},
        {"form": replace(FORM, payloads=replace(PAYLOADS, write="queue\nq/2"))},
        {"form": replace(FORM, payloads=replace(PAYLOADS, write="other\nq/1"))},
        {"form": BY_CONTENT},
    ]
    keys = [pointer_of(one(**given)) for given in others]
    assert keys == [pointer_of(one(**given)) for given in others]
    assert len(set(keys)) == len(keys)
    assert pointer_of(one(messageAttributes=[("a", "1")])) == keys[0]


def test_a_row_of_ten_attributes_has_no_room_for_the_one_that_points() -> None:
    """Nine are sent."""
    assert len(one(messageAttributes=attributes(9)).entry["MessageAttributes"]) == 10
    assert reason(messageAttributes=attributes(10)) == (
        "it has 10 attributes and a body that goes to S3; ExtendedPayloadSize is one more, and SQS takes at most 10"
    )
    assert one(body="small", messageAttributes=attributes(10)).payload is None


@pytest.mark.parametrize("name", ["ExtendedPayloadSize", "SQSLargePayloadSize"])
@pytest.mark.parametrize("body", ["small", LARGE])
def test_a_row_that_a_reader_would_take_for_a_pointer_is_refused(name: str, body: str) -> None:
    """Whatever its body; without payloadLocation it is sent as it is."""
    given: dict[str, Any] = {"body": body, "messageAttributes": [(name, "1")]}
    assert reason(**given) == (
        f"it has an attribute called {name!r}, by which readers know a message that points to S3"
    )
    assert one(replace(FORM, payloads=None), **given).refusal == ""


def test_a_row_whose_attributes_alone_are_too_large_is_refused() -> None:
    """No body on S3 makes it smaller."""
    form = replace(FORM, max_message_bytes=1_024)
    told = reason(form, messageAttributes=[("a", "x" * 1_000)])
    assert told.endswith("bytes though its body is on S3, and the queue takes at most 1,024 (MaximumMessageSize)")


def test_a_body_that_no_reader_could_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strings end at 2 GiB."""
    assert offload.MAX_PAYLOAD_BYTES == 2**31 - 1
    monkeypatch.setattr("sqs_fifo_spark.sink.outgoing.MAX_PAYLOAD_BYTES", 149)
    assert reason() == "its body has 150 bytes, and a body on S3 may have at most 149"


def test_no_body_shows_where_a_row_is_shown() -> None:
    """In logs and debuggers."""
    row = one()
    assert LARGE[:10] not in repr(row)
    assert LARGE[:10] not in repr(row.payload)


def test_memory_of_a_body_counts_until_its_row_is_sent() -> None:
    """Else waiting rows would take more than they may."""
    assert one(body="x" * 1_000_000).held_bytes > 1_000_000


# Sending


def make(sqs: Sqs, bucket: Bucket, record: Noted | None = None, stride: Stride = STRICT) -> Sender:
    queue = SinkQueue(sqs.options(), sqs.clock)
    return Sender(queue, record or Noted(), sqs.clock, stride, write_payload=bucket.write)


def large(*names: str) -> list[OutgoingRow]:
    """Return rows of large bodies, each in the group that its name begins with; a lower-case name is a small one."""
    return rows_of(((name[0].lower(), name if name[0].islower() else name * 60) for name in names), form=FORM)


def send(sqs: Sqs, sender: Sender, *names: str) -> None:
    try:
        sender.add(large(*names))
        sender.finish()
    finally:
        sender.stop()


def found(sqs: Sqs, bucket: Bucket, group: str) -> list[str]:
    return [bucket.body(body)[:2] for body in sqs.bodies(group)]


def test_each_group_is_in_order_and_each_body_there_before_its_message(sqs: Sqs) -> None:
    """Large rows and small ones side by side."""
    bucket = Bucket()
    sqs.before = lambda bodies: [bucket.body(body) for body in bodies]
    names = [f"{letter}{number}" for number in range(6) for letter in "AbCdEf"]
    names += [f"{letter.swapcase()}{number}" for number in range(6, 9) for letter in "AbCdEf"]
    sender = make(sqs, bucket)
    send(sqs, sender, *names)
    for group in "abcdef":
        expected = [name for name in names if name[0].lower() == group]
        assert found(sqs, bucket, group) == expected
    assert sender.counts.sent == len(names) == len(sqs.bodies())
    assert len(bucket.writes) == sum(name[0].isupper() for name in names)
    assert threads() == []


def test_a_group_waits_for_its_own_body_and_no_other_group_does(sqs: Sqs, hang: Hang) -> None:
    """Rows behind the one that is being written wait with it."""
    bucket = Bucket()
    bucket.before = lambda data: hang() if data.startswith(b"A1") else None
    sender = make(sqs, bucket)
    task = Task(lambda: send(sqs, sender, "a0", "A1", "a2", "B1", "b2", "c1"))
    hang.wait()
    wait_until(lambda: len(sqs.bodies()) == 4, LONG_S, "the others are sent")
    assert (found(sqs, bucket, "a"), found(sqs, bucket, "b"), found(sqs, bucket, "c")) == (["a0"], ["B1", "b2"], ["c1"])
    hang.end()
    assert task.end() is None
    assert found(sqs, bucket, "a") == ["a0", "A1", "a2"]


def test_a_call_of_several_rows_of_a_group_ends_before_a_body_that_is_not_there(sqs: Sqs, hang: Hang) -> None:
    """With `order=batch`, too: what is behind it waits."""
    bucket, sqs.may_batch = Bucket(), True
    bucket.before = lambda data: hang() if data.startswith(b"A3") else None
    sender = make(sqs, bucket, stride=Stride(10, 80, False))
    task = Task(lambda: send(sqs, sender, "a0", "a1", "A2", "A3", "a4", "A5"))
    hang.wait()
    wait_until(lambda: len(sqs.bodies()) == 3, LONG_S, "those before it are sent")
    hang.end()
    assert task.end() is None
    assert found(sqs, bucket, "a") == ["a0", "a1", "A2", "A3", "a4", "A5"]


def test_bodies_are_written_ahead_of_their_turn_and_eight_at_once(sqs: Sqs) -> None:
    """Else a single group would wait for S3 before each row."""
    bucket, together = Bucket(), threading.Barrier(8)
    bucket.before = lambda data: together.wait(LONG_S)
    send(sqs, make(sqs, bucket), *(f"A{number}" for number in range(8)))
    assert found(sqs, bucket, "a") == [f"A{number}" for number in range(8)]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            PayloadError("S3 refuses s3:PutObject with AccessDenied", is_final=True),
            "S3 refuses s3:PutObject with AccessDenied. It is not sent. Grant the permission 's3:PutObject' on the "
            "prefix, correct payloadLocation (bucket 'big'), or the credentials.",
        ),
        (
            PayloadError("S3 gives no answer (ReadTimeoutError)"),
            "S3 gives no answer (ReadTimeoutError). It is not sent. Check the network, and the endpoint and the region "
            "of S3; then run it again.",
        ),
    ],
)
def test_a_body_that_cannot_be_written_fails_the_task_and_none_behind_it_is_sent(
    sqs: Sqs, error: PayloadError, text: str
) -> None:
    """Nobody takes the row for a refused one."""
    bucket = Bucket()
    bucket.before = raising(error, lambda data: data.startswith(b"A1"))
    told = failure(PayloadError, send, sqs, make(sqs, bucket), "a0", "A1", "a2")
    pointer = pointer_of(large("a0", "A1")[1])
    assert told == f"cannot write the body of row 2 to '{pointer.url}': {text}"
    assert found(sqs, bucket, "a") in (["a0"], [])
    assert threads() == []


def test_a_task_that_fails_does_not_wait_for_a_body_under_way(sqs: Sqs, hang: Hang) -> None:
    """Its next attempt must come before SQS forgets what is sent; the write harms nobody when it ends."""
    bucket, record = Bucket(), Noted()
    bucket.before = lambda data: hang() if data.startswith(b"A1") else None
    sqs.refuse("b1")
    sender = make(sqs, bucket, record)
    sender.add(large("A1"))
    hang.wait()

    def go_on() -> None:
        try:
            sender.add(row._replace(row=2) for row in large("b1"))
            sender.finish()
        finally:
            sender.stop()

    with pytest.raises(RefusedRowError):
        go_on()
    assert (sqs.bodies(), bucket.writes) == ([], [])
    calls = len(sqs.calls)
    hang.end()
    wait_for_threads()
    assert bucket.writes == [pointer_of(large("A1")[0]).url]
    assert (sqs.bodies(), len(sqs.calls), record.digests) == ([], calls, set())


def test_the_time_to_send_a_row_begins_when_its_body_is_written(sqs: Sqs) -> None:
    """However long that took: the record is looked at after that."""
    bucket, record = Bucket(), Noted()
    looks: list[int] = []
    record.on_look = lambda: looks.append(len(bucket.writes))
    bucket.before = lambda data: sqs.clock.advance(1_000)
    send(sqs, make(sqs, bucket, record), "A1")
    assert looks == [0, 1]
    assert found(sqs, bucket, "a") == ["A1"]


def test_a_row_that_the_record_knows_is_not_written_again(sqs: Sqs) -> None:
    """A reader may be done with it, and nobody would drop the object."""
    bucket, record = Bucket(), Noted()
    send(sqs, make(sqs, bucket, record), "A1")
    bucket.writes.clear()
    sender = make(sqs, bucket, record)
    send(sqs, sender, "A1", "A2")
    assert bucket.writes == [pointer_of(large("A1", "A2")[1]).url]
    assert (sender.counts.known, sender.counts.sent) == (1, 1)


def test_an_equal_row_behind_a_sent_one_is_left_out_with_its_body(sqs: Sqs, store: Store) -> None:
    """With a journal; the task ends all the same."""
    bucket = Bucket()
    plan = planned(sqs, store, journalLocation="/journal")
    sent = run(sqs, bucket, plan, store, messages("A1", "A1", "A2", "A1"))
    assert (sent.rows, sent.counts.equal) == (4, 2)
    assert found(sqs, bucket, "a") == ["A1", "A2"]


# A whole task


def messages(*names: str) -> pa.RecordBatch:
    """Return Spark's rows, as `large` has them."""
    columns = {
        "body": [name if name[0].islower() else name * 60 for name in names],
        "messageGroupId": [name[0].lower() for name in names],
        "messageDeduplicationId": names,
    }
    return pa.RecordBatch.from_pydict({name: pa.array(values, pa.string()) for name, values in columns.items()})


def planned(sqs: Sqs, store: Store | None = None, *, by_column: bool = True, **options: str) -> SinkPlan:
    made = sqs.options(payloadLocation="s3://big/orders", **{"payloadThresholdBytes": "100", **options})
    given = draft(made, by_column=by_column, clock=sqs.clock)
    refused = store if "badRecordsPath" in options else None
    journal = store if "journalLocation" in options else None
    return prepare(given, queue=SinkQueue(made, sqs.clock), store=journal, may_create=True, bad_records=refused)


def run(
    sqs: Sqs, bucket: Bucket, plan: SinkPlan, store: Store | None, *batches: pa.RecordBatch, batch: int = 1
) -> Sent:
    options = plan.draft.options
    return send_partition(
        plan,
        batches,
        Place(0, "q", batch),
        queue=SinkQueue(options, sqs.clock),
        open_journal=lambda: store if options.journal_location else None,
        open_bad_records=lambda: store if options.bad_records_path else None,
        write_payload=bucket.write,
        clock=sqs.clock,
    )


def test_a_micro_batch_that_runs_again_writes_over_its_own_objects(sqs: Sqs) -> None:
    """In another run, too; SQS takes the rows for equal. Another micro-batch has objects of its own."""
    bucket = Bucket()
    for _ in range(2):
        run(sqs, bucket, planned(sqs), None, messages("A1", "B1"))
    assert (len(bucket.writes), len(bucket.objects), len(sqs.bodies())) == (4, 2, 2)
    assert sqs.duplicates == 2
    sqs.clock.advance(301)
    run(sqs, bucket, planned(sqs), None, messages("A1"), batch=2)
    assert (len(bucket.objects), len(sqs.bodies())) == (3, 3)


@pytest.mark.parametrize("scope", ["queue", "messageGroup"])
def test_equal_bodies_are_equal_to_sqs_on_s3_or_not(monkeypatch: pytest.MonkeyPatch, scope: str) -> None:
    """By the SHA-256 of the body itself, in whatever object and micro-batch, as far as the queue's scope goes."""
    throughput = "perQueue" if scope == "queue" else "perMessageGroupId"
    sqs = patched(
        monkeypatch, ContentBasedDeduplication="true", DeduplicationScope=scope, FifoThroughputLimit=throughput
    )
    bucket = Bucket()
    plan = planned(sqs, by_column=False)
    inline = planned(sqs, by_column=False, payloadThresholdBytes="1m")
    body = "x" * 120
    groups = ["g", "g", "h"]
    columns = {"body": pa.array([body] * 3), "messageGroupId": pa.array(groups)}
    for number, each in enumerate((plan, inline, plan)):
        run(sqs, bucket, each, None, pa.RecordBatch.from_pydict(columns), batch=number)
    assert len(sqs.bodies()) == (1 if scope == "queue" else 2)
    ids = [message.draft.deduplication_id for message in sqs.model.messages("q.fifo")]
    assert set(ids) == {hashlib.sha256(body.encode()).hexdigest()}
    assert {bucket.body(each) for each in sqs.bodies()} == {body}
    assert len(bucket.objects) == 4, "of two groups and two micro-batches"


def test_two_bodies_with_one_id_leave_the_message_its_own_body(sqs: Sqs) -> None:
    """SQS keeps the first; the second's object is another one."""
    bucket = Bucket()
    bodies, names = ["1" * 200, "2" * 200], ["body", "messageGroupId", "messageDeduplicationId"]
    rows = pa.RecordBatch.from_arrays([pa.array(each) for each in (bodies, ["g", "g"], ["d", "d"])], names)
    sent = run(sqs, bucket, planned(sqs), None, rows)
    assert (sent.rows, sent.counts.equal, len(bucket.objects)) == (2, 1, 2)
    assert [bucket.body(each) for each in sqs.bodies()] == bodies[:1]


def test_a_refused_row_is_kept_with_its_own_body(sqs: Sqs, store: Store) -> None:
    """Not with the pointer; the object that SQS refuses a message for stays behind."""
    bucket = Bucket()
    sqs.failing = lambda body: ("InvalidMessageContents", True) if bucket.body(body)[:2] == "A2" else None
    plan = planned(sqs, store, badRecordsPath="/kept", badRecordsGroup="continue")
    sent = run(sqs, bucket, plan, store, messages("A1", "A2", "A3"))
    assert (sent.rows, sent.counts.refused) == (3, 1)
    (line,) = [json.loads(data) for name, data in store.objects.items() if name.endswith(".json")]
    assert line["row"]["body"] == "A2" * 60
    assert line["row"]["messageAttributes"] is None
    assert found(sqs, bucket, "a") == ["A1", "A3"]


def test_the_error_of_a_task_says_how_many_rows_were_sent(sqs: Sqs) -> None:
    """And is of its class on the driver."""
    bucket = Bucket()
    bucket.before = raising(PayloadError("S3 fails with 503"))
    told = failure(PayloadError, run, sqs, bucket, planned(sqs), None, messages("A1"))
    assert told.endswith("run it again. 0 rows of partition 0 were sent.")


def test_a_row_that_is_refused_fails_its_task_before_anything_is_written(sqs: Sqs) -> None:
    """Where refused rows are not kept."""
    bucket = Bucket()
    names = ["body", "messageGroupId", "messageDeduplicationId", "messageAttributes"]
    kept = pa.array([[("ExtendedPayloadSize", "1")]], pa.map_(pa.string(), pa.string()))
    rows = pa.RecordBatch.from_arrays([pa.array([LARGE]), pa.array(["g"]), pa.array(["d"]), kept], names)
    told = failure(RowError, run, sqs, bucket, planned(sqs), None, rows)
    assert "it has an attribute called 'ExtendedPayloadSize'" in told
    assert bucket.writes == []


def test_a_row_that_is_dropped_as_equal_is_not_held_for_the_sake_of_its_body() -> None:
    """However slow S3 is: its bytes count no more."""
    form = RowForm(None, True, 1 << 20, payloads=PayloadForm("s3://bucket/p", 10, "w"))

    def row(number: int) -> OutgoingRow:
        (made,) = outgoing([["x" * 100], ["g"], ["d"], [None], [None]], form, first_row=number)
        return made

    sent: set[bytes] = set()
    lanes = Lanes(Stride(), sent.__contains__)
    first = row(1)
    lanes.add([first])
    lanes.note_written(first)
    assert lanes.take() == [first]
    sent.add(first.digest)
    lanes.confirm([first], [])
    lanes.release([first])
    equal = row(2)
    assert equal.payload is not None
    payload = weakref.ref(equal.payload)
    lanes.add([equal])
    assert (lanes.equal, lanes.bytes) == (1, 0)
    del equal
    gc.collect()
    assert payload() is None
