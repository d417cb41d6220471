"""Bugs planted into what the sink does with rows that are refused."""

from __future__ import annotations

import uuid

from sqs_fifo_spark.sink.keepers import ANY_REFUSED
from tests.simulation.planting import Mutations, but

REFUSAL_MUTATIONS = Mutations()
planted = REFUSAL_MUTATIONS.planted


@planted("let a group go on before its refused row is kept", "sink.sender.Sender._keep")
def _(keep, sender, refused):
    with sender._crew.changed:
        sender.progress.lanes.let_follow(refused)
        sender.progress.lanes.release(refused)
        sender._crew.changed.notify_all()
    for row in refused:
        sender._keep_one(row)
    sender.progress._counts.refused += len(refused)


@planted("drop refused rows", "sink.keepers.PathKeeper.keep")
def _(keep, keeper, row, content, line, stopped):
    return True


@planted("forget the rest of a refused row's group", "sink.bad_records.BadRecords._because_of_group")
def _(because_of_group, records, row):
    return ""


@planted("hold only the next row of a group", "sink.bad_records.BadRecords._because_of_group")
def _(because_of_group, records, row):
    reason = because_of_group(records, row)
    if reason:
        del records._holds[row.group]
        records._holds[None] = 0
        records._group_goes_on = True
    return reason


@planted("judge anew what an earlier attempt has refused", "sink.bad_records.BadRecords._as_before")
def _(as_before, records, row):
    return ""


@planted("keep a refused row anew each time", "sink.bad_records.BadRecords._content")
def _(content, records, row):
    return uuid.uuid4().hex


@planted("take equal rows of a task for one", "sink.bad_records.BadRecords.with_copy")
def _(numbered, records, row):
    return row


@planted("take the equal row of another task for one's own", "sink.keepers.PathKeeper.keep")
def _(keep, keeper, *given):
    keep(keeper, *given)
    return True


@planted("leave out a row for an equal one that is refused", "sink.sender.Sender._keep")
def _(keep, sender, refused):
    with sender._crew.changed:
        for row in refused:
            sender._record.note([row.digest])
    keep(sender, refused)


@planted("do not count refused rows", "sink.sender.Sender._keep")
def _(keep, sender, refused):
    keep(sender, refused)
    sender.progress._counts.refused = 0


@planted("say that a refused row is in another queue before it is", "sink.keepers.QueueKeeper.keep")
def _(keep, keeper, *given):
    return True


@planted("judge anew what an earlier attempt has sent to another queue", "sink.keepers.QueueKeeper.has")
def _(has, keeper, *given):
    return False


REFUSAL_MUTATIONS.rewritten(
    "send a refused row to another queue under a new id each time",
    "sink.keepers.QueueKeeper.keep",
    '"MessageDeduplicationId": own_id}',
    '"MessageDeduplicationId": uuid.uuid4().hex}',
)

REFUSAL_MUTATIONS.rewritten(
    "do not record that a refused row is in another queue",
    "sink.keepers.QueueKeeper.keep",
    "self._record.add([mark_of(own_id)], by=math.inf)",
    "pass",
)

REFUSAL_MUTATIONS.rewritten(
    "try to send a refused row to another queue for ever",
    "sink.keepers.QueueKeeper.keep",
    "deadline = Window(looked_at).last_try",
    "deadline = math.inf",
)


@planted("send a refused row to another queue before its mark is put", "sink.keepers.QueueKeeper.__init__")
def _(make, keeper, queue, url, record, write):
    late = []

    def add(digests, **given):
        if ANY_REFUSED in digests:
            late.extend(digests)
        else:
            marks = late[:]
            late.clear()
            record.add([*digests, *marks], **given)

    make(keeper, queue, url, but(record, add=add), write)
