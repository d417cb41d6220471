"""Bugs planted into the source, to show that the simulation would find them.

Without any of them the same schedules break no law: that is what the simulation plays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from contextlib import nullcontext, suppress
from dataclasses import replace
from unittest import mock

import pyarrow as pa

from sqs_fifo_spark.errors import EpochSettledError, FencedError, JournalUnavailableError, PayloadError
from sqs_fifo_spark.payloads.pointer import pointer_in
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.ledger import Ledger
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.plan import deal_of
from sqs_fifo_spark.source.segment import Chain, Head, Origin, Segment
from sqs_fifo_spark.source.task.attempt import Attempt
from tests.simulation.planting import Mutations, instead_of, put, rewrite
from tests.simulation.repair_mutations import REPAIR_MUTATIONS
from tests.simulation.union_mutations import UNION_MUTATIONS

MUTATIONS = Mutations()
planted = MUTATIONS.planted

# A task


@planted("serve before sealing", "source.journal_objects.Journal.seal")
def _(seal, journal, segment, claim, **given):
    return segment


@planted("serve what lost the race", "source.journal_objects.Journal.seal")
def _(seal, journal, segment, claim, **given):
    seal(journal, segment, claim, **given)
    return segment


@planted("skip empty segments", "source.journal_objects.Journal.seal")
def _(seal, journal, segment, claim, **given):
    return seal(journal, segment, claim, **given) if segment.head.receipts else segment


@planted("drop what a losing attempt received", "source.task.receiver.Receiver.release")
def _(release, receiver, receipts=None):
    receiver._queue.delete(receiver.unsealed if receipts is None else list(receipts))


@planted("delete before commit", "source.task.attempt.Attempt.append")
def _(append, attempt, decided):
    for segment in append(attempt, decided):
        attempt._queue.delete(segment.head.receipts[:10])
        yield segment


@planted("serve redelivered messages at once", "source.task.attempt.Attempt._segment")
def _(make_segment, attempt, *given, **named):
    segment = make_segment(attempt, *given, **named)
    return _deferring(attempt, segment, lambda each: each.message_group_id in _locked_groups(attempt))


@planted("serve what follows a deferred message", "source.task.attempt.Attempt._segment")
def _(make_segment, attempt, *given, **named):
    segment = make_segment(attempt, *given, **named)
    locked = _locked_groups(attempt)
    return _deferring(attempt, segment, lambda each: each.receive_count > 1 or each.message_group_id in locked)


@planted("serve what follows what an earlier link defers", "source.task.sieve.Sieve.note_link")
def _(note_link, sieve, head):
    """Nothing is noted."""


@planted("serve what follows carried messages", "source.task.attempt.Attempt.__init__")
def _(make, attempt, plan, deal, end, deferred_groups, *given):
    make(attempt, plan, deal, end, deferred_groups, *given)
    attempt._sieve.deferred_groups = deferred_groups


def _locked_groups(attempt: Attempt) -> Set[str]:
    """Return the groups of what the plan has decided, or leaves."""
    deal = deal_of(attempt._plan, attempt._journal)
    return deal.reserved | deal.groups.keys()


def _deferring(attempt: Attempt, segment: Segment, is_it: Callable[[Receipt], bool]) -> Segment:
    """Return `segment` with none deferred but those of which `is_it` holds, too."""
    head, end = segment.head, attempt._end
    receipts = tuple(receipt._replace(deferred=receipt.deferred and is_it(receipt)) for receipt in head.receipts)
    before = Chain() if end is None else end.chain
    chain = before.with_link(head.origin.link, attempt._in_flight, receipts, is_last=head.chain.is_last)
    return replace(segment, head=replace(head, receipts=receipts, chain=chain))


@planted("receive for an epoch that is settled", "source.journal_objects.Journal.require_current")
def _(require_current, journal, *given):
    with suppress(EpochSettledError):
        require_current(journal, *given)


@planted("serve what a leftover task put", "source.task.partition.serve")
def _(serve, plan, queue, journal, *given):
    sealed = journal.read(journal.segment_name(plan.epoch, plan.partition, plan.plan))
    is_whole = sealed is not None and sealed.head.chain.is_last
    yield from [sealed.served()] if is_whole else serve(plan, queue, journal, *given)


@planted("overwrite what is sealed", "source.journal_objects.Journal.seal")
def _(seal, journal, segment, claim, **given):
    origin = segment.head.origin
    journal.store.delete([journal.segment_name(origin.epoch, origin.partition, origin.plan, origin.link)])
    return seal(journal, segment, claim, **given)


@planted("leave copies of committed messages to the commit", "source.task.receiver._Copies.delete_from")
def _(delete_from, copies, answer):
    return answer


# The journal


@planted("work on without the claim", "source.journal_objects.Journal.require_claim")
def _(require_claim, journal, *given):
    return ()


@planted("believe a conflict", "journal.store.put_until_seen")
def _(put_until_seen, create, is_there, **given):
    return put_until_seen(create, lambda: True, **given)


@planted("let a new query forget the ledger", "source.driver.ownership.Ownership.begin")
def _(begin, owned, *given):
    owned._ledger = Ledger(owned._ledger.epoch, generation=owned._ledger.generation)
    begin(owned, *given)


@planted("begin a generation that Spark has not logged", "source.driver.continuity.Continuity.next_offset")
def _(next_offset, log, start, partitions):
    offset = next_offset(log, start, partitions)
    if log.begins_after(start):
        log._owned.begin(offset, start)
    return offset


# A commit


@planted("forget the ledger", "source.driver.ownership.Ledger")
def _(make_ledger, epoch, unconfirmed=None, *given):
    return make_ledger(epoch, {}, *given)


@planted("forget what is carried", "source.driver.ownership.Ledger")
def _(make_ledger, epoch, unconfirmed=None, carried=None, *given):
    return make_ledger(epoch, unconfirmed or {}, {}, *given)


@planted("drop the segments before the ledger is written", "source.journal_objects.Journal.put_ledger")
def _(put_ledger, journal, ledger):
    journal.drop([name for name in journal.objects().get(ledger.epoch, ()) if name not in ledger.carried])
    put_ledger(journal, ledger)


@planted("write the ledger before the deletes", "source.driver.ownership.Ownership.settle")
def _(settle, owned, epoch, **given):
    with mock.patch.object(owned, "_delete", return_value={}) as delete:
        settle(owned, epoch, **given)
    for call in delete.mock_calls:
        owned._delete(*call.args)


@planted("advance without commit", "source.driver.ownership.Ownership.settle")
def _(settle, owned, epoch, **given):
    owned._ledger = replace(owned._ledger, epoch=epoch.offset.epoch)


@planted("settle with the old handle", "source.message.Receipt.recency")
def _(recency, receipt):
    return -receipt.receive_count, -receipt.received_at


@planted("ignore Failed", "source.queue.Queue._call")
def _(call, *given, **named):
    answer = call(*given, **named)
    failed = [each for each in answer.get("Failed", ()) if not each["SenderFault"]]
    refused = [each for each in answer.get("Failed", ()) if each["SenderFault"]]
    return {**answer, "Successful": [*answer.get("Successful", ()), *failed], "Failed": refused}


@planted("take a refused delete for a success", "source.queue.Queue._begin_batch")
def _(begin_batch, *given, **named):
    begun = begin_batch(*given, **named)
    ask = begun._ask
    begun._ask = lambda: [Outcome.DONE if outcome is Outcome.LOST else outcome for outcome in ask()]
    return begun


@planted("settle as served what Spark was never given")
def _():
    def known(owned_of, driver, offset):
        owned = owned_of(driver, offset)
        owned.driver = driver
        return owned

    def settling(release_others, owned):
        for each in owned._others():
            owned._released.add(each)
            end = owned._unsettled[each].offset
            if end is not None:
                owned.driver._settle(owned, end, followed_by=None)

    instead_of("source.driver.driver.Driver._owned", known)
    instead_of("source.driver.ownership.Ownership.release_others", settling)


# The verdict on an epoch


@planted("settle without the newer handle of a deferred copy", "source.driver.verdict.judge")
def _(judge, offset, objects, ledger, *given):
    served = {
        name: head if name in ledger.carried else replace(head, receipts=_not_deferred(head))
        for name, head in objects.items()
    }
    return replace(judge(offset, objects, ledger, *given), served=judge(offset, served, ledger, *given).served)


@planted("serve again what the epoch has served", "source.driver.verdict.judge")
def _(judge, offset, objects, ledger, *given):
    deferred = {
        name: replace(
            head,
            receipts=tuple(receipt for receipt in head.receipts if receipt.deferred),
            chain=replace(head.chain, unconfirmed=()),
        )
        for name, head in objects.items()
    }
    return replace(judge(offset, objects, ledger, *given), carried=judge(offset, deferred, ledger, *given).carried)


def _not_deferred(head: Head) -> tuple[Receipt, ...]:
    return tuple(receipt for receipt in head.receipts if not receipt.deferred)


@planted("take what was carried for a proof that a message is gone", "source.driver.verdict._gone")
def _(gone, objects, received, ledger):
    return gone(objects, received, replace(ledger, carried={}))


# What comes next


@planted("wrong number of partitions at a replay", "source.driver.driver.Driver.plan")
def _(plan, driver, start, end):
    is_first = driver._epochs.open is None and driver._epochs.next is None
    if is_first and start != end:
        end = replace(end, partitions=max(1, end.partitions - 1))
    return plan(driver, start, end)


@planted("probe without the ledger", "source.driver.prober.Prober._without_copies")
def _(without_copies, work, owned, received, left_s):
    return tuple(received), False


@planted("lose what the probe got and nobody read", "source.driver.epoch.Epoch.with_caught")
def _(with_caught, epoch, ledger):
    return ledger if epoch._chains.is_closed else with_caught(epoch, ledger)


@planted("poll without waiting", "source.queue.Queue.receive")
def _(receive, queue, most, /, *, wait_time_s=0, **given):
    return receive(queue, most, **given)


MUTATIONS.rewritten(
    "hand a group to any partition",
    "source.driver.planning.deal_out",
    "        for number, place in by_group[group]:\n",
    "        for number, place in by_group[group]:\n            partition = (partition + 1) % count\n",
)
MUTATIONS.rewritten(
    "leave the deal of an epoch that is settled", "source.driver.ownership.Ownership._put", "[*older, *deals]", "older"
)


@planted("take an earlier driver's deal for one's own")
def _():
    rewrite("source.plan.publish", "{journal.own_claim:020d}", "{10**19:020d}")
    put("source.plan._checksum", lambda data: "")
    put("source.plan.older_deals", lambda journal, claim: [])


@planted("let all plans of an epoch share number and name", "source.driver.continuity.Continuity.next_offset")
def _(next_offset, log, start, partitions):
    number = max(start.epoch, log._owned.ledger.epoch) + 1
    return replace(next_offset(log, start, partitions), epoch=number, plan=1)


@planted("take the journal's word for where Spark is", "source.driver.ownership.Ownership.first_number")
def _(first_number, owned):
    return owned.ledger.epoch + 2


@planted("go on past an epoch that the offset log has lost", "source.driver.checkpoint.lost_after")
def _(lost_after, start, state):
    pass


@planted("announce blindly what the offset log has lost", "source.driver.continuity.Continuity.require_none_lost")
def _(require_none_lost, log, start):
    pass


@planted("let tasks receive for an epoch that the offset log has lost")
def _():
    rewrite("source.driver.epochs.Epochs.announce_again", "self.next.replay(after)", "pass")


# Chains


@planted("delete what is not sealed yet", "source.task.receiver.Receiver._keep")
def _(keep, receiver, *given):
    kept = keep(receiver, *given)
    if receiver._demand.in_links:
        receiver._queue.delete([message.receipt for message in kept])
    return kept


@planted("work on though another driver has opened the journal", "source.journal_objects.Journal.require_current")
def _(require_current, journal, *given):
    with suppress(FencedError):
        require_current(journal, *given)


@planted("delete what the chain defers", "source.segment.Head.in_flight")
def _(in_flight, head):
    return (*head.receipts, *head.chain.unconfirmed)


@planted("do not say what is not confirmed", "source.segment.Chain.with_link")
def _(with_link, chain, number, before, receipts, **given):
    return with_link(chain, number, () if number else before, receipts, **given)


@planted("forget which links defer something", "source.segment.Chain.with_link")
def _(with_link, chain, *given, **named):
    return with_link(replace(chain, deferring=()), *given, **named)


@planted("leave the chains open", "source.driver.chains.Chains._close")
def _(close, chains, partition, end, *given):
    closed = Head(Origin("", 1, 1, 0, "driver-", 0, "", 0 if end is None else end.origin.link), ())
    return replace(end or closed, chain=replace((end or closed).chain, is_last=True))


@planted("receive again in a replay", "source.driver.epoch.Epoch.replay")
def _(replay, epoch, after):
    epoch.is_replay = True
    epoch.discover()


@planted("release what only the journal has")
def _():
    rewrite("source.driver.ownership.Ownership.release_others", "may_be_deleted and not receipt.deferred", "False")


@planted("carry twice what two links have", "source.driver.ownership.Ownership.release_others")
def _(release_others, owned):
    before = owned._ledger.carried
    owned._ledger = replace(owned._ledger, carried={})
    try:
        release_others(owned)
    finally:
        owned._ledger = replace(owned._ledger, carried={**before, **owned._ledger.carried})


@planted("do not put the ledger that was found under the own claim")
def _():
    def put_what_is_new(put_ledger, journal, ledger):
        if ledger != journal.ledger():
            put_ledger(journal, ledger)

    def find_older(older_ledgers, journal, epoch):
        try:
            return older_ledgers(journal, epoch)
        except JournalUnavailableError:
            return []

    instead_of("source.journal_objects.Journal.put_ledger", put_what_is_new)
    instead_of("source.journal_objects.Journal.older_ledgers", find_older)


@planted("judge by the last links alone", "source.driver.chains.Chains._heads")
def _(heads, chains, links, known, pool):
    last = {partition: end.origin.link for partition, end in chains.ends().items()}
    return heads(chains, [each for each in links if each[1] >= last.get(each[0], 0)], known, pool)


@planted("let messages follow what is decided and gone", "source.task.attempt.Attempt._without_overtaking")
def _(without, attempt, received, receiver):
    return received


@planted("put a link while the one before is being deleted", "source.task.attempt.Attempt._receive")
def _(receive, attempt, receiver, *, may_end):
    with mock.patch.object(attempt, "_wait_for_deletes"):
        return receive(attempt, receiver, may_end=may_end)


@planted("leave hidden what is not going to be put", "source.task.attempt._released_on_error")
def _(released, receiver):
    return nullcontext()


@planted("take over a chain without its unconfirmed messages", "source.task.attempt.Attempt.__init__")
def _(make, attempt, plan, end, *given):
    make(attempt, plan, end, *given)
    attempt._in_flight = ()


@planted("end a chain without a word of what is not deleted", "source.task.attempt.Attempt._note")
def _(note, attempt, outcomes, asked_at):
    note(attempt, [(receipt, Outcome.DONE) for receipt, _ in outcomes], asked_at)


# The lease


@planted("no heartbeat on the driver", "source.lease.Heartbeat.start")
def _(start, heartbeat):
    if heartbeat._discover is None:
        start(heartbeat)


@planted("renew what a replay takes over as if it had just been received", "source.driver.epoch.Epoch._held_since")
def _(held_since, epoch):
    return max(epoch.opened_at, held_since(epoch))


@planted("renew in the pool that reads the journal", "source.driver.driver.Driver.__init__")
def _(make, driver, *given, **named):
    make(driver, *given, **named)
    assert hasattr(driver._queue, "_renewal_pool")
    driver._queue._renewal_pool = driver._discovery_pool


@planted("renew with the time that is left already", "source.lease.Lease.renew")
def _(renew, lease, **given):
    before = {handle: hold.expires_at for handle, hold in lease._holds.items()}
    renew(lease, **given)
    for handle, hold in lease._holds.items():
        if hold.expires_at > before.get(handle, math.inf):
            hold.renew_at = hold.expires_at + lease._visibility_timeout_s


@planted("let a renewal that failed once be the last", "source.lease.Lease.renew")
def _(renew, lease, **given):
    renew(lease, **given)
    for hold in lease._holds.values():
        if hold.failures:
            hold.renew_at = hold.expires_at


# AvailableNow


@planted("wait for a slow answer no longer than for any other", "source.receive.arriving")
def _(arriving, arrival):
    return nullcontext()


@planted("try a renewal again while others wait for its thread", "source.queue.Queue.extend")
def _(extend, queue, receipts, timeout_s, *, budget_s=30.0, answer_s=None):
    return extend(queue, receipts, timeout_s, budget_s=30.0 if answer_s else budget_s)


@planted("end AvailableNow while something is hidden", "source.driver.available_now.AvailableNow.may_end_empty")
def _(may_end_empty, available_now, asked_at):
    return True


@planted("end AvailableNow with old messages in hand", "source.driver.available_now.AvailableNow.ends_with")
def _(ends_with, available_now, found):
    return not found or available_now._served >= available_now._waited


@planted(
    "end AvailableNow before what dead attempts held is free", "source.driver.available_now.AvailableNow.may_end_with"
)
def _(may_end_with, available_now, epoch, verdict):
    available_now._old_lapse_at = -math.inf
    return may_end_with(available_now, epoch, verdict)


MUTATIONS.rewritten(
    "let AvailableNow wait for half as long",
    "source.driver.available_now.AvailableNow.may_end_with",
    "self._clock.monotonic() + self._visibility_timeout_s",
    "self._clock.monotonic() + self._visibility_timeout_s / 2",
)


@planted(
    "end AvailableNow while a dead attempt holds something", "source.driver.available_now.AvailableNow.may_end_with"
)
def _(may_end_with, available_now, epoch, verdict):
    available_now._has_gone_on = True
    return may_end_with(available_now, epoch, verdict)


@planted("end AvailableNow without a long poll", "source.driver.prober.Prober._look_further")
def _(look_further, work, claimed, verdict, most):
    with mock.patch.object(work, "_poll", return_value=((), True)) if verdict.served else nullcontext():
        return look_further(work, claimed, verdict, most)


# Payloads on S3


@planted("delete a payload before its message", "source.task.attempt.Attempt._delete")
def _(delete, attempt, **given):
    attempt._payloads.deletes.add(receipt.payload for receipt in attempt._in_flight if receipt.payload)
    attempt._payloads.deletes.begin()
    delete(attempt, **given)


@planted("delete a payload whose message SQS has not deleted", "source.task.attempt.Attempt._note")
def _(note, attempt, outcomes, asked_at):
    attempt._payloads.deletes.add(receipt.payload for receipt, _ in outcomes if receipt.payload)
    note(attempt, outcomes, asked_at)


@planted("delete a payload before the commit deletes its message", "source.driver.ownership.Ownership._delete")
def _(delete, owned, receipts, *given):
    doomed = list(receipts)
    owned._payload_deletes.add(receipt.payload for receipt in doomed if receipt.payload)
    owned._payload_deletes.begin()
    return delete(owned, doomed, *given)


@planted("delete a payload that could not be read", "source.task.payloads.Payloads._load")
def _(load, payloads, message, pointer, early):
    loaded = load(payloads, message, pointer, early)
    return loaded._replace(receipt=loaded.receipt._replace(payload=pointer.url))


@planted("read a payload each time that its link is served", "source.task.partition.serve")
def _(serve, plan, queue, journal, options, clock, pool, payloads):
    buckets, payloads._buckets = payloads._buckets, None
    for batch in serve(plan, queue, journal, options, clock, pool, payloads):
        rows = batch.to_pylist()
        for row in rows:
            values = {name: value["stringValue"] for name, value in row["messageAttributes"]}
            pointer = pointer_in(row["body"], values)
            if pointer is not None:
                row["body"] = buckets.read(pointer, 1 << 20).decode()
        yield pa.RecordBatch.from_pylist(rows, batch.schema)


@planted("take an outage of S3 for a payload that is missing", "source.task.payloads.Payloads._body")
def _(body, payloads, pointer, early):
    try:
        return body(payloads, pointer, early)
    except PayloadError as error:
        raise PayloadError(str(error), is_final=True) from None


@planted("forget the payload of a message that came again", "source.task.sieve.Sieve.newest")
def _(newest, sieve, receipt):
    found = newest(sieve, receipt)
    return found if found is receipt else found._replace(payload="")


@planted("forget the payloads that a chain names", "source.driver.verdict.judge")
def _(judge, *given):
    return replace(judge(*given), payloads=())


@planted("forget the payloads that the ledger names", "source.driver.ownership.Ownership.__init__")
def _(make, owned, opened_journal, **given):
    make(owned, replace(opened_journal, ledger=replace(opened_journal.ledger, payloads=())), **given)


MUTATIONS.rewritten(
    "fail for a payload that another attempt has read and deleted",
    "source.task.partition.serve",
    "        if read(0) is None:\n",
    "        if True:\n",
)


# In the text of one function: no name stands for what these change

MUTATIONS.rewritten(
    "believe a claim by its put alone",
    "source.journal_objects.Journal.claim",
    "if is_own and max(map(_number, claims), default=0) == number:",
    "if is_own:",
)


# An operator's repair, and several queues

MUTATIONS.extend(REPAIR_MUTATIONS)
MUTATIONS.extend(UNION_MUTATIONS)
