"""Judging a closed epoch from its receipts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from sqs_fifo_spark.source.driver.verdict import judge
from sqs_fifo_spark.source.ledger import Ledger, UnconfirmedMessage
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.offset import Offset
from sqs_fifo_spark.source.segment import Chain, Head, Origin

pytestmark = pytest.mark.law("source-4", "source-5")

OFFSET = Offset("j", 2, 2)
FIRST, SECOND, STRAY = (f"epochs/{2:020d}/{partition:04d}-000000-{0:020d}" for partition in (0, 1, 2))
CAUGHT = f"epochs/{2:020d}/caught-{0:020d}"
EARLIER = f"epochs/{1:020d}/0000-000000-{0:020d}"
RECEIPT = Receipt("a1", "first-handle", "a", 1, 1, 0, 0.0, 0)
AGAIN = RECEIPT._replace(receipt_handle="second-handle", receive_count=2, deferred=True)


def head(*receipts: Receipt, deleted: frozenset[str] = frozenset()) -> Head:
    """A chain's only link."""
    return Head(Origin("j", 2, 2, 0, "w", 0, ""), receipts, deleted, Chain().with_link(0, (), receipts, is_last=True))


def receipt(number: int, group: str = "a", *, deferred: bool = False) -> Receipt:
    """A receipt of a message that was sent at `number` milliseconds."""
    return Receipt(f"{group}{number}", f"handle-{group}{number}", group, number, 1, number, 0.0, 0, deferred)


def link(number: int, partition: int = 0) -> str:
    return f"epochs/{2:020d}/{partition:04d}-{number:06d}-{0:020d}"


def chain(
    *links: tuple[Receipt, ...], unconfirmed: dict[int, tuple[Receipt, ...]], partition: int = 0
) -> dict[str, Head]:
    """A closed chain by its names; `unconfirmed` by the number of the link that says so."""
    found, before = {}, Chain()
    for number, receipts in enumerate(links):
        is_last = number == len(links) - 1
        before = before.with_link(number, unconfirmed.get(number, ()), receipts, is_last=is_last)
        found[link(number, partition)] = Head(
            Origin("j", 2, 2, partition, "w", 0, "", number, deletes=True), receipts, chain=before
        )
    return found


def test_a_deferred_message_that_nobody_served_is_carried_by_its_newest_holder() -> None:
    """Two partitions may have received it, one after the other."""
    newer = AGAIN._replace(receipt_handle="third-handle", receive_count=3)
    verdict = judge(OFFSET, {FIRST: head(AGAIN), SECOND: head(newer)}, Ledger(1))
    assert verdict.carried == {SECOND: {"a1": newer}}
    assert not verdict.served


def test_a_deferred_message_of_a_committed_epoch_is_a_copy() -> None:
    """The ledger knows it: it is deleted and never served again."""
    ledger = Ledger(1, {"a1": UnconfirmedMessage(0.0, "a", 1, None)})
    verdict = judge(OFFSET, {FIRST: head(AGAIN)}, ledger)
    assert verdict.copies == {"a1": AGAIN}
    assert not verdict.carried


def test_what_is_not_a_chain_of_the_offset_serves_nothing() -> None:
    """A leftover's link of a partition that the offset does not have, and what the driver caught for the epoch."""
    other = RECEIPT._replace(message_id="b1", message_group_id="b")
    verdict = judge(OFFSET, {STRAY: head(RECEIPT), CAUGHT: head(other)}, Ledger(1, carried={CAUGHT: ("b1",)}))
    assert not verdict.served
    assert verdict.count == 0
    assert verdict.carried == {CAUGHT: {"b1": other}}


def test_carried_messages_that_the_epoch_did_not_serve_are_carried_on() -> None:
    """Whatever else stands in the object that they come from was served by its own epoch."""
    done = RECEIPT._replace(message_id="a0", sequence_number=0)
    verdict = judge(OFFSET, {EARLIER: head(done, AGAIN), FIRST: head()}, Ledger(1, carried={EARLIER: ("a1",)}))
    assert verdict.carried == {EARLIER: {"a1": AGAIN}}
    assert not verdict.served


def test_an_epoch_that_received_nothing_is_empty() -> None:
    """So a probe follows it, and no other epoch. One whose tasks have deleted all has given rows to Spark."""
    assert judge(OFFSET, {FIRST: head(), SECOND: head()}, Ledger(1)).is_empty
    assert not judge(OFFSET, {FIRST: head(AGAIN)}, Ledger(1)).is_empty
    verdict = judge(OFFSET, chain((receipt(1),), (), unconfirmed={}), Ledger(1))
    assert not verdict.served
    assert (verdict.held, verdict.count, verdict.oldest_ms, verdict.is_empty) == (0, 1, 1, False)


def test_what_another_plan_wrote_is_no_content() -> None:
    """A leftover of a plan that Spark has not logged: nothing of it counts, or is deleted, as served."""
    other = f"epochs/{2:020d}/0000-000000-{7:020d}"
    verdict = judge(OFFSET, {other: head(RECEIPT), FIRST: head()}, Ledger(1))
    assert verdict.is_empty
    assert verdict.oldest_ms is None
    assert judge(replace(OFFSET, plan=7), {other: head(RECEIPT)}, Ledger(1)).served == {"a1": RECEIPT}


def test_a_copy_that_a_task_deleted_leaves_the_ledger() -> None:
    """SQS has confirmed it to the task, which says so in its segment."""
    ledger = Ledger(1, {"a1": UnconfirmedMessage(0.0, "a", 1, None), "b1": UnconfirmedMessage(0.0, "b", 1, None)})
    assert judge(OFFSET, {FIRST: head(deleted=frozenset({"a1"}))}, ledger).gone == {"a1"}


def test_what_follows_in_its_group_proves_that_a_message_is_gone() -> None:
    """SQS hands a group out in order. What was carried over was received earlier and proves nothing, nor does a
    copy."""
    ledger = Ledger(1, {"a0": UnconfirmedMessage(0.0, "a", 0, None)})
    copy = AGAIN._replace(message_id="a0", sequence_number=0)
    assert judge(OFFSET, {FIRST: head(RECEIPT)}, ledger).gone == {"a0"}
    assert not judge(OFFSET, {FIRST: head(RECEIPT), SECOND: head(copy)}, ledger).gone
    assert not judge(OFFSET, {FIRST: head(RECEIPT._replace(message_group_id="b"))}, ledger).gone
    carrying = replace(ledger, carried={EARLIER: ("a1",)})
    assert not judge(OFFSET, {EARLIER: head(AGAIN), FIRST: head(RECEIPT)}, carrying).gone


# Chains of several links


def test_of_a_chain_the_tail_tells_what_it_served() -> None:
    """All of it counts; only what the tail has or names is still to be deleted, with the rest SQS is done."""
    links = chain(
        (receipt(1), receipt(2)),
        (receipt(3),),
        (receipt(4), receipt(5)),
        unconfirmed={1: (receipt(1),), 2: (receipt(3),)},
    )
    every = judge(OFFSET, links, Ledger(1))
    assert every == judge(OFFSET, {link(2): links[link(2)]}, Ledger(1)), "the tail alone says it"
    assert sorted(every.served) == ["a3", "a4", "a5"]
    assert (every.count, every.oldest_ms) == (5, 1)
    assert not every.is_empty


def test_chains_of_several_partitions_add_up() -> None:
    """Each tells its own; the oldest of all counts, whichever is looked at first, and partitions without any do not."""
    first = chain((receipt(7),), (receipt(8),), unconfirmed={1: (receipt(7),)})
    second = chain((receipt(5, "b"), receipt(6, "b")), unconfirmed={}, partition=1)
    for contents in ({**first, **second}, {**second, **first}):
        verdict = judge(OFFSET, contents, Ledger(1))
        assert sorted(verdict.served) == ["a7", "a8", "b5", "b6"]
        assert (verdict.count, verdict.oldest_ms, verdict.groups) == (4, 5, 2)
    verdict = judge(OFFSET, {**first, **chain((), unconfirmed={}, partition=1)}, Ledger(1))
    assert (verdict.count, verdict.oldest_ms, verdict.groups) == (2, 7, 1)


def test_an_unconfirmed_message_that_came_again_is_deleted_with_its_newest_handle() -> None:
    """To the same partition, or to another, which deferred it: it was served, and is not served again."""
    old = receipt(1)
    again = old._replace(receipt_handle="newer", receive_count=2, deferred=True)
    elsewhere = chain((again,), unconfirmed={}, partition=1)
    for links in (
        chain((old,), (again,), unconfirmed={1: (old,)}),
        {**chain((old,), (receipt(2),), unconfirmed={1: (old,)}), **elsewhere},
        {**elsewhere, **chain((old,), (), unconfirmed={1: (old,)})},
    ):
        verdict = judge(OFFSET, links, Ledger(1))
        assert verdict.served["a1"] == again
        assert not verdict.carried
        assert not verdict.copies


@pytest.mark.parametrize(("unconfirmed", "left"), [((), ["a3"]), ((AGAIN._replace(deferred=False),), ["a1", "a3"])])
def test_what_was_carried_and_served_in_the_first_link_is_not_carried_on(
    unconfirmed: tuple[Receipt, ...], left: list[str]
) -> None:
    """It need not stand in the tail: where tasks delete, it is deleted by then, or the tail names it."""
    links = chain((AGAIN._replace(deferred=False), receipt(2)), (receipt(3),), unconfirmed={1: unconfirmed})
    verdict = judge(OFFSET, {EARLIER: head(AGAIN), **links}, Ledger(1, carried={EARLIER: ("a1",)}))
    assert not verdict.carried
    assert sorted(verdict.served) == left
    assert verdict.count == 3


def test_what_a_link_before_the_tail_deferred_is_carried_by_it() -> None:
    """It is still in flight, though the link is not the last; what others then received of the group follows it."""
    deferred = receipt(1, deferred=True)
    links = chain((deferred, receipt(9, "b")), (receipt(2, deferred=True),), unconfirmed={})
    verdict = judge(OFFSET, links, Ledger(1))
    assert verdict.carried == {link(0): {"a1": deferred}, link(1): {"a2": receipt(2, deferred=True)}}
    assert (verdict.count, verdict.held) == (1, 2)


def test_the_order_of_the_objects_changes_no_verdict() -> None:
    """A list, a heartbeat or a restart finds them in any."""
    again = AGAIN._replace(receipt_handle="newest", receive_count=3)
    objects = {
        EARLIER: head(AGAIN),
        **chain(
            (receipt(1), receipt(2)), (receipt(3),), (), unconfirmed={1: (receipt(1),), 2: (receipt(1), receipt(3))}
        ),
        **chain((again, receipt(4, "b")), unconfirmed={}, partition=1),
    }
    ledger = Ledger(1, {"b3": UnconfirmedMessage(0.0, "b", 3, None)}, {EARLIER: ("a1",)})
    verdicts = [judge(OFFSET, dict(order), ledger) for order in itertools.permutations(objects.items())]
    assert all(each == verdicts[0] for each in verdicts)
    assert verdicts[0].gone == {"b3"}
    assert sorted(verdicts[0].served) == ["a1", "a3", "b4"]
