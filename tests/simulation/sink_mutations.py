"""Bugs planted into the sink, to show that the simulation would find them."""

from __future__ import annotations

import itertools
import math
import sys
import uuid
from collections import defaultdict
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace

from sqs_fifo_spark.errors import JournalUnavailableError, PayloadError, TransientQueueError
from sqs_fifo_spark.sink import digests, marks
from sqs_fifo_spark.sink.lanes import Stride
from sqs_fifo_spark.sink.outgoing import RefusedRowError
from sqs_fifo_spark.sink.record import Record
from sqs_fifo_spark.sink.recorder import DISORDER
from tests.simulation.planting import Mutations, but, instead_of, put
from tests.simulation.refusal_mutations import REFUSAL_MUTATIONS

SINK_MUTATIONS = Mutations()
planted = SINK_MUTATIONS.planted

# Groups and calls


@planted("two rows of a group in one call", "sink.lanes.Lanes.take")
def _(take, lanes):
    rows = take(lanes)
    for lane in [lanes[row.group] for row in rows]:
        if lane.waiting:
            rows.append(lane.waiting.popleft())
            lane.under_way += 1
    return rows


@planted("let a group go on before its row is confirmed", "sink.sender.Sender.__init__")
def _(make, sender, queue, record, *given, **named):
    def note(confirmed, unconfirmed):
        sender.progress._counts.sent += len(confirmed)
        record.add([each.row.digest for each in confirmed], by=math.inf)

    def release_and_send(rows, confirm, **given):
        with sender._crew.changed:
            sender.progress.lanes.let_follow(rows)
            sender.progress.lanes.release(rows)
            sender._crew.changed.notify_all()
        return queue.send(rows, note, **given)

    make(sender, but(queue, send=release_and_send), record, *given, **named)


@planted("let a group go on before its row is recorded", "sink.recorder.Recorder.confirm")
def _(confirm, recorder, sending, confirmed, unconfirmed):
    rows = [each.row for each in confirmed]
    with recorder._crew.changed:
        recorder._progress.judge(confirmed)
        recorder._progress.lanes.let_follow(rows)
        recorder._progress.lanes.release(rows)
        recorder._crew.changed.notify_all()
    recorder._record.add([each.row.digest for each in confirmed], by=sending.limit)


@planted("let a group go on while a row of it is sent again", "sink.lanes.Lanes.let_follow")
def _(let_follow, lanes, rows):
    let_follow(lanes, rows)
    for lane in {row.group: lanes[row.group] for row in rows}.values():
        lane.under_way = 0
        lanes._offer(lane)


@planted("send as many rows of a group as there are, recorded or not", "sink.lanes.Stride.of")
def _(of, options):
    return replace(of.__func__(Stride, options), max_unrecorded=1_000)


@planted("let the last row of a group come first in a call", "sink.lanes.Lanes.take")
def _(take, lanes):
    return take(lanes)[::-1]


@planted("judge the rows of each answer by themselves", "sink.progress.Progress.judge")
def _(judge, progress, confirmed):
    for each in confirmed:
        progress.lanes[each.row.group].numbers.of_call.clear()
    return judge(progress, confirmed)


@planted("look for disorder in the answers of first tries only", "sink.outcome.classify")
def _(classify, *given, may_be_older):
    return classify(*given, may_be_older=False)


@planted("take all that is late for rows that overtake", "sink.outcome.classify")
def _(classify, *given, may_be_older):
    return classify(*given, may_be_older=True)


@planted("forget that rows are out of order", "sink.record.SentRecord.add")
def _(add, record, digests, **given):
    add(record, [each for each in digests if each != DISORDER], **given)


@planted("give up what may have been overtaken without a word", "sink.judge.Numbers.rows_after")
def _(rows_after, numbers, row):
    return set()


@planted("go on though rows are out of order", "sink.lanes.Stride.of")
def _(of, options):
    return replace(of.__func__(Stride, options), fails_on_disorder=False)


@planted("record rows before they are sent", "sink.record.SentRecord.is_sent")
def _(is_sent, record, digest):
    is_known = is_sent(record, digest)
    if not is_known:
        record.add([digest], by=math.inf)
    return is_known


@planted("end with calls under way", "sink.sender.Sender.finish")
def _(finish, sender):
    sender._wait_until(lambda: not any(lane.waiting for lane in sender.progress.lanes._lanes.values()))
    sender.stop()
    sender._record.close()


@planted("end without waiting for the threads", "sink.crew.Crew.stop")
def _(stop, crew):
    assert hasattr(crew, "_is_abandoned")
    with crew.changed:
        crew.stopped.set()
        crew.changed.notify_all()
        crew._is_abandoned = True


@planted("wait for ever for a call that is held up", "sink.deadlines.Deadlines.limit")
def _(limit, deadlines):
    return math.inf


@planted("take more rows though a call is held up", "sink.crew.Crew.is_late_locked")
def _(is_late, crew):
    return False


@planted("record nothing more once a row has failed", "sink.recorder.Recorder.confirm")
def _(confirm, recorder, sending, confirmed, unconfirmed):
    if recorder._crew.failure is None:
        confirm(recorder, sending, confirmed, unconfirmed)
        return
    with recorder._crew.changed:
        recorder._progress.judge(confirmed)


@planted("leave what could not be recorded", "sink.recorder.Recorder._add")
def _(add, recorder, digests, *, by, at_once):
    recorder._record.add(digests, by=by, at_once=at_once)


@planted("try only once more to record what could not be recorded", "sink.crew.Crew.pause_until_over")
def _(pause_until_over, crew, seconds):
    pause_until_over(crew, seconds)
    return True


@planted("without a journal, give a task as long as a row", "sink.record.Record.refresh")
def _(refresh, record, digests):
    return vars(record).setdefault("_began_at", refresh(record, digests))


@planted("without a journal, begin once the attempt before must be over", "sink.record.Record.__init__")
def _(make, record, clock):
    if type(record) is Record:
        clock.sleep(180)
    make(record, clock)


@planted("begin once the attempt before must be over", "sink.record.SentRecord.refresh")
def _(refresh, record, digests):
    if record._looked_at is None:
        record._clock.sleep(180)
    return refresh(record, digests)


SINK_MUTATIONS.changed("one row in a call", "sink.lanes.MAX_ENTRIES", 1)


@planted("calls of any size", "sink.outgoing.outgoing")
def _(outgoing, *given, **named):
    return [row._replace(size=0) for row in outgoing(*given, **named)]


@planted("count only equal rows of one group", "sink.judge.Judge._is_equal")
def _(is_equal, judge, confirmed, *, is_late):
    return is_equal(judge, confirmed._replace(message_id=None), is_late=is_late)


# The time to try

SINK_MUTATIONS.changed("try a row for ten minutes", "sink.window.SEND_BUDGET_S", 600.0)


@planted("count the time to try from the call, not from the look", "sink.record.SentRecord.refresh")
def _(refresh, record, digests):
    refresh(record, digests)
    return record._clock.monotonic()


@planted("count the time to try from no look", "sink.record.SentRecord.refresh")
def _(refresh, record, digests):
    asked_at = record._clock.monotonic()
    looked_at = refresh(record, digests)
    return looked_at if looked_at >= asked_at else record._clock.monotonic()


@planted("let the record take any time", "sink.record.SentRecord.add")
def _(add, record, digests, **given):
    add(record, digests, **{**given, "by": math.inf})


SINK_MUTATIONS.changed("send however long it took to connect", "sink.sink_queue.CONNECT_TIMEOUT_S", 1_000.0)


# What SQS answers


@planted("drop entries that failed", "sink.sink_queue.SinkQueue._call_once")
def _(call_once, queue, latest, entries, *given):
    return {**call_once(queue, latest, entries, *given), "Successful": [{"Id": entry["Id"]} for entry in entries]}


@planted("take for sent what is not in Failed", "sink.sink_queue.SinkQueue._call_once")
def _(call_once, queue, latest, entries, *given):
    answer = call_once(queue, latest, entries, *given)
    failed = {each["Id"] for each in answer["Failed"]}
    return {**answer, "Successful": [{"Id": entry["Id"]} for entry in entries if entry["Id"] not in failed]}


@planted("skip rows that SQS refuses", "sink.sink_queue.SinkQueue._call_once")
def _(call_once, queue, latest, entries, *given):
    answer = call_once(queue, latest, entries, *given)
    refused = [each for each in answer["Failed"] if each["SenderFault"]]
    failed = [each for each in answer["Failed"] if not each["SenderFault"]]
    return {"Successful": [*answer["Successful"], *refused], "Failed": failed}


@planted("try again after the task has failed", "sink.sink_queue.SinkQueue.send")
def _(send, *given, stopped, **named):
    return send(*given, stopped=but(stopped, is_set=lambda: False), **named)


@planted("do not try again what may pass", "sink.sink_queue.retry_transient")
def _(retry_transient, call, *, clock, budget_s, stopped):
    retry_transient(call, clock=clock, budget_s=0.0, stopped=stopped)


@planted("blame the first row for what SQS refuses", "sink.sink_queue.SinkQueue.send")
def _(send, queue, rows, *given, **named):
    try:
        return send(queue, rows, *given, **named)
    except RefusedRowError as refused:
        raise RefusedRowError(rows[0].row, refused.reason) from None


# What the record knows


@planted("start without the record", "sink.record.SentRecord._read")
def _(read, record, name):
    return True


@planted("look at the record only once", "sink.record.SentRecord.refresh")
def _(refresh, record, digests):
    return refresh(record, digests) if record._looked_at is None else record._looked_at


@planted("look again until a look is quick", "sink.record.SentRecord.refresh")
def _(refresh, record, digests):
    while True:
        with suppress(JournalUnavailableError):
            return refresh(record, digests)


@planted("read only one's own record", "sink.record.SentRecord._read")
def _(read, record, name):
    return read(record, name) if f"/{record._place}-" in name else True


SINK_MUTATIONS.rewritten(
    "list what was sent only once", "sink.record.SentRecord._read_all", "for _ in range(3):", "for _ in range(1):"
)

SINK_MUTATIONS.rewritten(
    "take a shard that was read once for read for good",
    "sink.record.SentRecord._read_all",
    "self._ready.clear()",
    "pass",
)


@planted("read only the shards of the first row", "sink.record.SentRecord.refresh")
def _(refresh, record, digests):
    return refresh(record, [each for each in digests if each != DISORDER][:1])


@planted("send an equal row of this attempt again", "sink.record.SentRecord.is_repeated")
def _(is_repeated, record, digest):
    return False


@planted("ask what is forgotten before the record is read", "sink.record.SentRecord._read_all")
def _(read_all, record, shards):
    record._require_remembered()
    record._require_remembered = lambda: None
    return read_all(record, shards)


@planted("go on though the record was not written")
def _():
    put("sink.record._Put.error", property(lambda made: None, lambda made, error: None))


@planted("tell who waits for a put only of ordinary errors")
def _():
    def set_error(made, error):
        if error is not None and not isinstance(error, Exception):
            raise error
        vars(made)["error"] = error

    put("sink.record._Put.error", property(lambda made: vars(made)["error"], set_error))


@planted("do not wait for a put that others make", "sink.record.SentRecord.add")
def _(add, record, digests, **given):
    if record._is_putting:
        record._next.digests.extend(digests)
    else:
        add(record, digests, **given)


# Tidying up


@planted("leave the parts of a record", "sink.record.SentRecord._merge")
def _(merge, record, **given):
    record._store = but(record._store, delete=lambda names: None)
    merge(record, **given)


@planted("drop the parts of a record before the whole is put", "sink.record.SentRecord._merge")
def _(merge, record, *, at, **given):
    with suppress(BaseException):
        record._store.delete([name for name, _ in record._parts if len(record._parts) >= at])
    merge(record, at=at, **given)


@planted("fail a task that cannot tidy up", "sink.record._log.warning")
def _(warning, *given):
    raise


@planted("fail a task that cannot tidy up, in other words", "sink.record._log.warning")
def _(warning, text, count, *given):
    raise JournalUnavailableError(f"{count} objects could not be made one")


@planted("fail a task whose tidying panics", "sink.record._log.warning")
def _(warning, *given):
    if not isinstance(sys.exc_info()[1], Exception):
        raise


@planted("fail a write that cannot tidy up", "sink.write._log.warning")
def _(warning, *given):
    if sys.exc_info()[1] is not None:
        raise


# Forgetting


@planted("forget before the mark is put", "sink.marks._forget")
def _(forget, store, query, over, **given):
    def put_mark(name, data):
        store.delete([name for name in marks.objects(store, f"sent/{query}") if marks.number_of(name) <= over])
        return store.put_if_absent(name, data)

    forget(but(store, put_if_absent=put_mark), query, over, **given)


@planted("forget the micro-batch of now", "sink.marks.forget")
def _(forget, store, query, batch):
    forget(store, query, batch + marks.KEPT_BATCHES)


@planted("forget micro-batches without a mark", "sink.record.SentRecord._require_remembered")
def _(require_remembered, record):
    if record._query is None:
        require_remembered(record)


@planted("forget batch writes without a mark", "sink.record.SentRecord._require_remembered")
def _(require_remembered, record):
    if record._query is not None:
        require_remembered(record)


@planted("never forget", "sink.marks._forget")
def _(forget, store, *given, **named):
    forget(but(store, delete=lambda names: None), *given, **named)


@planted("forget all batch writes at once", "sink.marks.forget_batch_writes")
def _(forget, store, now):
    forget(store, now + 2 * marks.KEPT_MS / 1_000)


# Rows


@planted("record rows by their number", "sink.outgoing.outgoing")
def _(outgoing, *given, **named):
    rows = outgoing(*given, **named)
    return [row._replace(digest=digests.digest_of("id", row.group, str(row.row))) for row in rows]


@planted("record rows without their group", "sink.digests.digest_of")
def _(digest, kind, group, key):
    return digest("", "", key)


@planted("skip rows that cannot be sent", "sink.outgoing._body")
def _(check_body, row, body):
    return check_body(row, body or "-")


@planted("number the rows from 1 in each part", "sink.outgoing.outgoing")
def _(outgoing, columns, form, *, first_row):
    return outgoing(columns, form, first_row=1)


# Queues that rows name


@planted("record rows without their queue", "sink.digests.digest_of")
def _(digest, kind, group, key):
    return digest(kind.partition(" in ")[0], group, key)


@planted("send each row to the option's queue", "sink.sender.Sender.__init__")
def _(make, sender, queue, *given, others, **named):
    make(sender, queue, *given, others=defaultdict(lambda: queue), **named)


@planted("put rows of two queues into one call", "sink.lanes.Lane.__init__")
def _(make, lane, queue=""):
    make(lane)


@planted("know a queue by its spelling", "sink.row_queues.RowQueues._key")
def _(key, queues, options):
    return options.queue_url


@planted("take a queue that does not answer for a wrong one", "sink.row_queues.RowQueues._looked_at")
def _(look, queues, key, options):
    try:
        return look(queues, key, options)
    except TransientQueueError:
        return queues._refused(key, "its queue does not answer")


# What tasks have in common


@planted("compare no groups", "sink.summary.compare")
def _(compare, told):
    return replace(compare(told), groups=0, example="", are_compared=True)


@planted("compare each task with the next one only", "sink.summary.compare")
def _(compare, told):
    pairs = [compare(pair) for pair in itertools.pairwise(told)]
    return max(pairs, key=lambda each: each.groups, default=compare(told))


@planted("take a part of the groups for all", "sink.summary.Hashes.__init__")
def _(make, hashes, packed=b"", is_complete=True):
    make(hashes, packed)


@planted("seed the hashes in each task anew", "sink.summary.Tally.__init__")
def _(make, tally, partition, run):
    make(tally, partition, f"{partition}{run}")


@planted("leave out the groups of a task that has sent nothing", "sink.summary.Tally.summary")
def _(summarise, tally):
    made = summarise(tally)
    return made if made.message_ids.packed else replace(made, groups=type(made.groups)())


@planted("let a write end well though its groups are in several partitions", "sink.summary.finding")
def _(find, overlap, what, options):
    return find(overlap, what, replace(options, on_disorder="log"))


@planted("take for none what cannot be compared", "sink.summary.finding")
def _(find, overlap, *given):
    return find(overlap, *given) if overlap.groups else ""


@planted("do not tell the driver of messages", "sink.summary.Tally.add_message_ids")
def _(add, tally, message_ids):
    pass


# A write


@planted("return before the rows are sent", "sink.sender.Sender.finish")
def _(finish, sender):
    pass


@planted("do not say how many rows were sent", "sink.recorder.Recorder.confirm")
def _(confirm, recorder, *given):
    try:
        confirm(recorder, *given)
    finally:
        recorder._progress._counts.sent = 0


@planted("let tasks raise what the driver met", "sink.write._may_pass")
def _(may_pass, error):
    return False


@planted("make each attempt a run of its own", "sink.write._record")
def _(make_record, plan, *given):
    return make_record(replace(plan, draft=replace(plan.draft, run=marks.new_run(0))), *given)


# Large bodies


@planted("send a row before its body is on S3", "sink.sender.Sender._write")
def _(write, sender, row):
    with sender._crew.changed:
        sender.progress.lanes.note_written(row)
        sender._crew.wake()
    write(sender, row)


@planted("take a body that could not be written for one that is there", "sink.sender.Sender._write")
def _(write, sender, row):
    with suppress(PayloadError):
        write(sender, row)


@planted("put the body of each attempt elsewhere", "sink.offload._name")
def _(name, parts):
    return name([*parts, str(uuid.uuid4())])


@planted("put two bodies of one id in one place", "sink.offload._name")
def _(name, parts):
    *others, _ = parts
    return name(others)


@planted("know a row by its pointer", "sink.outgoing._row")
def _(make_row, number, form, *given):
    row = make_row(number, form, *given)
    if row.payload is None or form.by_column:
        return row
    return row._replace(digest=digests.digest_of("body", row.group, row.entry["MessageBody"]))


@planted("let SQS know a row by its pointer", "sink.offload.PayloadForm.offload")
def _(offload, form, data, entry, *, by_column):
    payload = offload(form, data, entry, by_column=by_column)
    if not by_column:
        del entry["MessageDeduplicationId"]
    return payload


@planted("let a thread that has written to S3 stay for ever once its task is over")
def _():
    instead_of("sink.crew.Crew.stop", _stop_and_say_so)
    instead_of("sink.sender.Sender._write", _write_and_stay)


@planted("write to S3 again and again once the task is over")
def _():
    instead_of("sink.crew.Crew.stop", _stop_and_say_so)
    instead_of("sink.sender.Sender._write", _write_again)


def _stop_and_say_so(stop, crew):
    stop(crew)
    crew.is_left = True


def _write_and_stay(write, sender, row):
    write(sender, row)
    if hasattr(sender._crew, "is_left"):
        sender._clock.sleep(1e9)


def _write_again(write, sender, row):
    write(sender, row)
    for _ in range(20):
        if hasattr(sender._crew, "is_left"):
            sender._write_payload(row.payload.pointer, row.payload.data)


@planted("begin to write to S3 though the task has ended", "sink.crew.Crew.away")
@contextmanager
def _(away, crew):
    with crew.changed:
        crew._away += 1
    try:
        yield
    finally:
        with crew.changed:
            crew._away -= 1


@planted("take a thread that looks at the journal for one that writes to S3", "sink.sender.Sender._look")
def _(look, sender, rows):
    with sender._crew.away():
        return look(sender, rows)


@planted("take a thread that sends for one that writes to S3", "sink.sender.Sender._send")
def _(send, sender, rows, window):
    with sender._crew.away() if type(sender._record) is Record else nullcontext():
        return send(sender, rows, window)


# In the text of one function: no name stands for what these change

SINK_MUTATIONS.rewritten(
    "record rows again and again once the task is over",
    "sink.recorder.Recorder._add",
    "is_over = self._crew.pause_until_over",
    "self._crew.pause_until_over",
)

SINK_MUTATIONS.rewritten(
    "tell the caller only of ordinary errors",
    "sink.crew.Crew._run",
    "except BaseException as error:",
    "except Exception as error:",
)

SINK_MUTATIONS.rewritten(
    "wait for no thread while one writes to S3",
    "sink.crew.Crew.stop",
    "len(self._ended) + self._away == len(self._threads)",
    "self._away or len(self._ended) == len(self._threads)",
)

SINK_MUTATIONS.rewritten(
    "try again however long the process stood still",
    "sink.sink_queue.SinkQueue.send",
    "if self._clock.monotonic() > deadline:",
    "if False:",
)

SINK_MUTATIONS.rewritten(
    "send though the task has ended while it connected",
    "aws.calls.QueueCalls._call",
    "if stopped is not None and stopped.is_set():",
    "if False:",
)

SINK_MUTATIONS.rewritten(
    "count equal rows in the task and in the driver",
    "sink.progress.Progress.judge",
    "if each.message_id is not None and not is_equal:",
    "if each.message_id is not None:",
)

SINK_MUTATIONS.rewritten(
    "take a look at the journal for a call that is held up",
    "sink.sender.Sender._look",
    "window = Window(self._record.refresh(digests))",
    "looking = RowsUnderWay(Window(self._clock.monotonic()).limit); self._crew.deadlines.add(looking); "
    "window = Window(self._record.refresh(digests)); self._crew.deadlines.discard(looking)",
)

SINK_MUTATIONS.rewritten(
    "fail a call that was only throttled",
    "sink.sink_queue.SinkQueue.send",
    "if is_throttled and in_doubt.isdisjoint(map(id, pending)):",
    "if False:",
)

SINK_MUTATIONS.rewritten(
    "begin anew to try what was throttled and may be sent",
    "sink.sink_queue.SinkQueue.send",
    "if is_throttled and in_doubt.isdisjoint(map(id, pending)):",
    "if is_throttled:",
)

SINK_MUTATIONS.rewritten(
    "refuse what was sent before",
    "sink.sender.Sender._without_refused",
    "if not (row.digest and self._record.is_sent(row.digest))",
    "if True",
)


# Rows that are refused

SINK_MUTATIONS.extend(REFUSAL_MUTATIONS)
