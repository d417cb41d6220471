"""Judging a closed epoch from its receipts."""

from __future__ import annotations

from dataclasses import replace

from sqs_fifo_spark.ledger import Ledger, Unconfirmed
from sqs_fifo_spark.message import Receipt
from sqs_fifo_spark.offset import Offset
from sqs_fifo_spark.verdict import judge

OFFSET = Offset("j", 2, 2)
FIRST, SECOND, STRAY = (f"epochs/{2:020d}/{partition:04d}-000000" for partition in (0, 1, 2))
SPARE = f"epochs/{2:020d}/spare-w"
EARLIER = f"epochs/{1:020d}/0000-000000"
RECEIPT = Receipt("a1", "first-handle", "a", 1, 1, 0, 0.0, 0)
AGAIN = replace(RECEIPT, receipt_handle="second-handle", receive_count=2, deferred=True)


def test_a_served_message_is_deleted_with_its_newest_handle() -> None:
    """SQS refuses the older one; whoever holds the newer one, it is the same message."""
    for contents in ({FIRST: [RECEIPT], SECOND: [AGAIN]}, {FIRST: [AGAIN], SECOND: [RECEIPT]}):
        verdict = judge(OFFSET, contents, Ledger(1))
        assert verdict.served == {"a1": AGAIN}
        assert not verdict.carried
        assert not verdict.served_before


def test_a_deferred_message_that_nobody_served_is_carried_by_its_newest_holder() -> None:
    """Two partitions may have received it, one after the other."""
    newer = replace(AGAIN, receipt_handle="third-handle", receive_count=3)
    verdict = judge(OFFSET, {FIRST: [AGAIN], SECOND: [newer]}, Ledger(1))
    assert verdict.carried == {SECOND: {"a1": newer}}
    assert not verdict.served


def test_a_deferred_message_of_a_committed_epoch_was_served_before() -> None:
    """The ledger knows it: it is deleted and never served again."""
    ledger = Ledger(1, {"a1": Unconfirmed(0.0, None)})
    verdict = judge(OFFSET, {FIRST: [AGAIN]}, ledger)
    assert verdict.served_before == {"a1": AGAIN}
    assert not verdict.carried


def test_what_is_not_a_segment_of_the_offset_serves_nothing() -> None:
    """A spare, and a leftover's segment of a partition that the offset does not have: the next epoch takes both."""
    other = replace(RECEIPT, message_id="b1", message_group_id="b")
    verdict = judge(OFFSET, {STRAY: [RECEIPT], SPARE: [other]}, Ledger(1))
    assert not verdict.served
    assert verdict.carried == {STRAY: {"a1": RECEIPT}, SPARE: {"b1": other}}


def test_carried_messages_that_the_epoch_did_not_serve_are_carried_on() -> None:
    """Whatever else stands in the object that they come from was served by its own epoch."""
    done = replace(RECEIPT, message_id="a0", sequence_number=0)
    verdict = judge(OFFSET, {EARLIER: [done, AGAIN], FIRST: []}, Ledger(1, carried={EARLIER: ("a1",)}))
    assert verdict.carried == {EARLIER: {"a1": AGAIN}}
    assert not verdict.served


def test_an_epoch_that_received_nothing_is_empty() -> None:
    """So a probe follows it, and no other epoch."""
    assert judge(OFFSET, {FIRST: [], SECOND: []}, Ledger(1)).is_empty
    assert not judge(OFFSET, {FIRST: [AGAIN]}, Ledger(1)).is_empty
