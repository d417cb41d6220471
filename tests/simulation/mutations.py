"""Bugs planted into the source, to show that the simulation would find them.

Without any of them the same schedules break no law: that is what the simulation plays.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

from sqs_fifo_spark.source.ledger import Ledger
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.queue import Outcome
from sqs_fifo_spark.source.segment import Segment
from tests.simulation.planting import Mutations

MUTATIONS = Mutations()
planted = MUTATIONS.planted

# A task


@planted("serve before sealing", "source.journal.Journal.seal")
def _(seal, journal, segment):
    return segment


@planted("serve what lost the race", "source.journal.Journal.seal")
def _(seal, journal, segment):
    seal(journal, segment)
    return segment


@planted("skip empty segments", "source.journal.Journal.seal")
def _(seal, journal, segment):
    return seal(journal, segment) if segment.receipts else segment


@planted("drop what a losing attempt caught", "source.partition._keep_spare")
def _(keep_spare, *given):
    pass


@planted("delete before commit", "source.partition._receive_and_seal")
def _(receive_and_seal, plan, queue, *given):
    sealed = receive_and_seal(plan, queue, *given)
    queue.delete(sealed.receipts[:10])
    return sealed


@planted("serve redelivered messages at once", "source.partition._segment")
def _(make_segment, origin, plan, *given):
    segment = make_segment(origin, plan, *given)
    return _deferring(segment, lambda each: each.message_group_id in plan.reserved_groups)


@planted("serve what follows a deferred message", "source.partition._segment")
def _(make_segment, origin, plan, *given):
    segment = make_segment(origin, plan, *given)
    return _deferring(segment, lambda each: each.receive_count > 1 or each.message_group_id in plan.reserved_groups)


@planted("serve what follows carried messages", "source.partition._segment")
def _(make_segment, origin, plan, *given):
    return make_segment(origin, replace(plan, reserved_groups=frozenset()), *given)


def _deferring(segment: Segment, is_it: Callable[[Receipt], bool]) -> Segment:
    """Return `segment` with none deferred but those of which `is_it` holds, too."""
    receipts = [replace(receipt, deferred=receipt.deferred and is_it(receipt)) for receipt in segment.receipts]
    return replace(segment, receipts=tuple(receipts))


@planted("receive for an epoch that is settled", "source.journal.Journal.require_open")
def _(require_open, journal, epoch):
    pass


@planted("serve what a leftover task put", "source.partition.serve")
def _(serve, plan, queue, journal, *given):
    sealed = journal.read(journal.segment_name(plan.epoch, plan.partition, plan.plan))
    return serve(plan, queue, journal, *given) if sealed is None else sealed.served()


@planted("overwrite what is sealed", "source.journal.Journal.seal")
def _(seal, journal, segment):
    origin = segment.origin
    journal.store.delete([journal.segment_name(origin.epoch, origin.partition, origin.plan)])
    return seal(journal, segment)


@planted("leave copies of committed messages to the commit", "source.partition._Copies.delete_from")
def _(delete_from, copies, answer):
    return answer


# The journal


@planted("work on without the claim", "source.journal.Journal.require_claim")
def _(require_claim, journal, number):
    pass


@planted("believe a conflict", "journal.store.put_until_seen")
def _(put_until_seen, create, is_there, **given):
    return put_until_seen(create, lambda: True, **given)


@planted("let a new query forget the ledger", "source.driver.Driver._release_epochs")
def _(release_epochs, driver, journal, epochs):
    if epochs is driver._unsettled:
        driver._ledger = Ledger(driver._ledger.epoch)
    release_epochs(driver, journal, epochs)


# A commit


@planted("forget the ledger", "source.driver.Ledger")
def _(make_ledger, epoch, unconfirmed=None, *given):
    return make_ledger(epoch, {}, *given)


@planted("forget what is carried", "source.driver.Ledger")
def _(make_ledger, epoch, unconfirmed=None, carried=None, *given):
    return make_ledger(epoch, unconfirmed or {}, {}, *given)


@planted("drop the segments before the ledger is written", "source.journal.Journal.put_ledger")
def _(put_ledger, journal, ledger):
    journal.drop([name for name in journal.objects().get(ledger.epoch, ()) if name not in ledger.carried])
    put_ledger(journal, ledger)


@planted("write the ledger before the deletes", "source.driver.Driver._settle")
def _(settle, driver, journal, end, **given):
    with mock.patch.object(driver, "_delete", return_value={}) as delete:
        settle(driver, journal, end, **given)
    for call in delete.mock_calls:
        driver._delete(*call.args)


@planted("advance without commit", "source.driver.Driver._settle")
def _(settle, driver, journal, end, **given):
    driver._ledger = replace(driver._ledger, epoch=end.epoch)


@planted("settle with the old handle", "source.message.Receipt.recency")
def _(recency, receipt):
    return -receipt.receive_count, -receipt.received_at


@planted("ignore Failed", "source.queue.Queue._call")
def _(call, *given, **named):
    answer = call(*given, **named)
    failed = [each for each in answer.get("Failed", ()) if not each["SenderFault"]]
    refused = [each for each in answer.get("Failed", ()) if each["SenderFault"]]
    return {**answer, "Successful": [*answer.get("Successful", ()), *failed], "Failed": refused}


@planted("take a refused delete for a success", "source.queue.Queue._batch")
def _(batch, *given):
    return [Outcome.DONE if outcome is Outcome.LOST else outcome for outcome in batch(*given)]


@planted("settle as served what Spark was never given", "source.driver.Driver._release_epochs")
def _(release_epochs, driver, journal, epochs):
    for number in sorted(epochs):
        end = journal.offset_of(driver._unsettled.pop(number), lambda origin: True)
        if end is not None:
            driver._settle(journal, end)


# The verdict on an epoch


@planted("settle without the newer handle of a spare", "source.verdict.judge")
def _(judge, offset, objects, ledger):
    others = {name: head for name, head in objects.items() if "/spare-" not in name or name in ledger.carried}
    return replace(judge(offset, objects, ledger), served=judge(offset, others, ledger).served)


@planted("serve again what the epoch has served", "source.verdict.judge")
def _(judge, offset, objects, ledger):
    deferred = {
        name: replace(head, receipts=tuple(receipt for receipt in head.receipts if receipt.deferred))
        for name, head in objects.items()
    }
    return replace(judge(offset, objects, ledger), carried=judge(offset, deferred, ledger).carried)


@planted("take what was carried for a proof that a message is gone", "source.verdict._gone")
def _(gone, objects, received, ledger):
    return gone(objects, received, replace(ledger, carried={}))


# What comes next


@planted("wrong number of partitions at a replay", "source.driver.Driver.plan")
def _(plan, driver, start, end):
    is_first = driver._open is None and driver._next is None
    if is_first and start != end:
        end = replace(end, partitions=max(1, end.partitions - 1))
    return plan(driver, start, end)


@planted("probe without the ledger", "source.driver.Driver._without_copies")
def _(without_copies, driver, received):
    return tuple(received), False


@planted("lose what the probe got and nobody read", "source.epoch.Epoch.unread")
def _(unread, epoch):
    return ()


@planted("poll without waiting", "source.queue.Queue.receive")
def _(receive, queue, most, /, *, wait_time_s=0, **given):
    return receive(queue, most, **given)


@planted("hand a group to any partition", "source.planning._partition_of")
def _(partition_of, receipt, count):
    return zlib.crc32(receipt.message_id.encode()) % count


@planted("let all plans of an epoch share number and name", "source.driver.Driver._new_offset")
def _(make, driver, journal, number, partitions, start):
    number = max(start.epoch, driver._ledger.epoch) + 1
    return replace(make(driver, journal, number, partitions, start), plan=1)


@planted("take the journal's word for where Spark is", "source.driver.Driver._announce_blindly")
def _(announce_blindly, driver, journal):
    driver._number_after_a_gap = lambda: driver._ledger.epoch + 1
    return announce_blindly(driver, journal)


@planted("go on past an epoch that the offset log has lost", "source.driver.Driver._lost_after")
def _(lost_after, driver, journal, start):
    pass


# The lease


@planted("no heartbeat on the driver", "source.lease.Heartbeat.start")
def _(start, heartbeat):
    if heartbeat._discover is None:
        start(heartbeat)


@planted("renew what a replay takes over as if it had just been received", "source.epoch.Epoch._held_since")
def _(held_since, epoch):
    return max(epoch.opened_at, held_since(epoch))


@planted("renew in the pool that reads the journal", "source.driver.Driver.__init__")
def _(make, driver, *given, **named):
    make(driver, *given, **named)
    assert hasattr(driver._queue, "_renewal_pool")
    driver._queue._renewal_pool = driver._discovery_pool


@planted("renew with the time that is left already", "source.lease.Lease.renew")
def _(renew, lease):
    before = {handle: hold.expires_at for handle, hold in lease._holds.items()}
    renew(lease)
    for handle, hold in lease._holds.items():
        if hold.expires_at > before.get(handle, math.inf):
            hold.renew_at = hold.expires_at + lease._visibility_timeout_s


# AvailableNow


@planted("end AvailableNow while something is hidden", "source.available_now.AvailableNow.may_end_empty")
def _(may_end_empty, available_now, asked_at):
    return True


@planted("end AvailableNow with old messages in hand", "source.available_now.AvailableNow.ends_with")
def _(ends_with, available_now, found):
    return not found or available_now._served >= available_now._waited


@planted("end AvailableNow before what dead attempts held is free", "source.available_now.AvailableNow.may_end_with")
def _(may_end_with, available_now, epoch, verdict):
    available_now._old_lapse_at = -math.inf
    return may_end_with(available_now, epoch, verdict)


MUTATIONS.rewritten(
    "let AvailableNow wait for half as long",
    "source.available_now.AvailableNow.may_end_with",
    "self._clock.monotonic() + self._visibility_timeout_s",
    "self._clock.monotonic() + self._visibility_timeout_s / 2",
)


@planted("end AvailableNow while a dead attempt holds something", "source.available_now.AvailableNow.may_end_with")
def _(may_end_with, available_now, epoch, verdict):
    available_now._has_gone_on = True
    return may_end_with(available_now, epoch, verdict)


@planted("end AvailableNow without a long poll", "source.driver.Driver._poll")
def _(poll, driver, journal, most):
    closed = driver._open.verdict if driver._open is not None else None
    has_served = closed is not None and closed.served  # else it is the probe
    return ((), True) if has_served else poll(driver, journal, most)


# In the text of one function: no name stands for what these change

MUTATIONS.rewritten(
    "believe a claim by its put alone",
    "source.journal.Journal.claim",
    "if is_own and max(map(_number, claims), default=0) == number:",
    "if is_own:",
)
