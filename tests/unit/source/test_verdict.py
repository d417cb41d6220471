"""Judging a closed epoch from its receipts."""

from __future__ import annotations

from dataclasses import replace

from sqs_fifo_spark.source.ledger import Ledger, Unconfirmed
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.segment import Head, Origin
from sqs_fifo_spark.source.verdict import judge

OFFSET = Offset("j", 2, 2)
FIRST, SECOND, STRAY = (f"epochs/{2:020d}/{partition:04d}-000000-{0:020d}" for partition in (0, 1, 2))
SPARE = f"epochs/{2:020d}/spare-w"
EARLIER = f"epochs/{1:020d}/0000-000000-{0:020d}"
RECEIPT = Receipt("a1", "first-handle", "a", 1, 1, 0, 0.0, 0)
AGAIN = replace(RECEIPT, receipt_handle="second-handle", receive_count=2, deferred=True)


def head(*receipts: Receipt, deleted: frozenset[str] = frozenset()) -> Head:
    return Head(Origin("j", 2, 2, 0, "w"), receipts, deleted)


def test_a_served_message_is_deleted_with_its_newest_handle() -> None:
    """SQS refuses the older one; whoever holds the newer one, it is the same message."""
    for contents in ({FIRST: head(RECEIPT), SECOND: head(AGAIN)}, {FIRST: head(AGAIN), SECOND: head(RECEIPT)}):
        verdict = judge(OFFSET, contents, Ledger(1))
        assert verdict.served == {"a1": AGAIN}
        assert not verdict.carried
        assert not verdict.copies


def test_a_deferred_message_that_nobody_served_is_carried_by_its_newest_holder() -> None:
    """Two partitions may have received it, one after the other."""
    newer = replace(AGAIN, receipt_handle="third-handle", receive_count=3)
    verdict = judge(OFFSET, {FIRST: head(AGAIN), SECOND: head(newer)}, Ledger(1))
    assert verdict.carried == {SECOND: {"a1": newer}}
    assert not verdict.served


def test_a_deferred_message_of_a_committed_epoch_is_a_copy() -> None:
    """The ledger knows it: it is deleted and never served again."""
    ledger = Ledger(1, {"a1": Unconfirmed(0.0, "a", 1, None)})
    verdict = judge(OFFSET, {FIRST: head(AGAIN)}, ledger)
    assert verdict.copies == {"a1": AGAIN}
    assert not verdict.carried


def test_what_is_not_a_segment_of_the_offset_serves_nothing() -> None:
    """A spare, and a leftover's segment of a partition that the offset does not have: the next epoch takes both."""
    other = replace(RECEIPT, message_id="b1", message_group_id="b")
    verdict = judge(OFFSET, {STRAY: head(RECEIPT), SPARE: head(other)}, Ledger(1))
    assert not verdict.served
    assert verdict.carried == {STRAY: {"a1": RECEIPT}, SPARE: {"b1": other}}


def test_carried_messages_that_the_epoch_did_not_serve_are_carried_on() -> None:
    """Whatever else stands in the object that they come from was served by its own epoch."""
    done = replace(RECEIPT, message_id="a0", sequence_number=0)
    verdict = judge(OFFSET, {EARLIER: head(done, AGAIN), FIRST: head()}, Ledger(1, carried={EARLIER: ("a1",)}))
    assert verdict.carried == {EARLIER: {"a1": AGAIN}}
    assert not verdict.served


def test_an_epoch_that_received_nothing_is_empty() -> None:
    """So a probe follows it, and no other epoch."""
    assert judge(OFFSET, {FIRST: head(), SECOND: head()}, Ledger(1)).is_empty
    assert not judge(OFFSET, {FIRST: head(AGAIN)}, Ledger(1)).is_empty


def test_what_another_plan_wrote_is_no_content() -> None:
    """A leftover of a plan that Spark has not logged: its messages are deferred, whatever it thought of them."""
    other = f"epochs/{2:020d}/0000-000000-{7:020d}"
    verdict = judge(OFFSET, {other: head(RECEIPT), FIRST: head()}, Ledger(1))
    assert not verdict.served
    assert verdict.carried == {other: {"a1": RECEIPT}}
    assert judge(replace(OFFSET, plan=7), {other: head(RECEIPT)}, Ledger(1)).served == {"a1": RECEIPT}


def test_a_copy_that_a_task_deleted_leaves_the_ledger() -> None:
    """SQS has confirmed it to the task, which says so in its segment."""
    ledger = Ledger(1, {"a1": Unconfirmed(0.0, "a", 1, None), "b1": Unconfirmed(0.0, "b", 1, None)})
    assert judge(OFFSET, {FIRST: head(deleted=frozenset({"a1"}))}, ledger).gone == {"a1"}


def test_what_follows_in_its_group_proves_that_a_message_is_gone() -> None:
    """SQS hands a group out in order. What was carried over was received earlier and proves nothing, nor does a
    copy."""
    ledger = Ledger(1, {"a0": Unconfirmed(0.0, "a", 0, None)})
    copy = replace(AGAIN, message_id="a0", sequence_number=0)
    assert judge(OFFSET, {FIRST: head(RECEIPT)}, ledger).gone == {"a0"}
    assert not judge(OFFSET, {FIRST: head(RECEIPT), SECOND: head(copy)}, ledger).gone
    assert not judge(OFFSET, {FIRST: head(replace(RECEIPT, message_group_id="b"))}, ledger).gone
    carrying = replace(ledger, carried={EARLIER: ("a1",)})
    assert not judge(OFFSET, {EARLIER: head(AGAIN), FIRST: head(RECEIPT)}, carrying).gone
