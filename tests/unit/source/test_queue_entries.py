"""The calls that delete and extend: each entry has its outcome, in whole calls, several of them at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from sqs_fifo_spark.errors import TransientQueueError
from sqs_fifo_spark.local import Faults
from sqs_fifo_spark.options import parse_source_options
from sqs_fifo_spark.retry import PendingCall
from sqs_fifo_spark.source.batches import Outcome, split_into_batches
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.queue import CONCURRENT_CALLS, DRIVER_DELETES, LONGEST_BEGIN_S, Queue
from tests.manual_clock import ManualClock
from tests.unit.source.rig import Rig

pytestmark = pytest.mark.usefixtures("transport")


@pytest.mark.parametrize("faults", [Faults(seed=5, fail_entry=0.5), Faults(seed=7, drop_answer=0.7)])
def test_what_has_no_outcome_is_tried_again_until_each_entry_is_done(rig: Rig, faults: Faults) -> None:
    """Entries in `Failed` by the server's fault, and only they; and a whole call that took effect without an answer."""
    rig.send(*(f"a{index}" for index in range(10)))
    receipts = [message.receipt for message in rig.queue.receive(10)]
    rig.server.faults = faults
    assert rig.queue.extend(receipts, 60) == [Outcome.DONE] * 10
    assert rig.delete(receipts) == [Outcome.DONE] * 10
    sizes = [record.entries for record in rig.server.requests.recent("DeleteMessageBatch")]
    assert sizes[0] == 10
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) > 1
    assert (sizes[-1] < 10) == bool(faults.fail_entry)
    assert rig.depth() == (0, 0)


@pytest.mark.parametrize("faults", [Faults(fail_entry=1.0), Faults(throttle=1.0), Faults(reset=1.0)])
def test_entries_without_an_answer_are_failed_when_the_budget_is_over(rig: Rig, faults: Faults) -> None:
    """Each receipt has an outcome also when nothing is known: FAILED, and no error."""
    rig.send("a1", "a2")
    receipts = [message.receipt for message in rig.queue.receive(10)]
    rig.server.faults = faults
    assert rig.delete(receipts, budget_s=2) == [Outcome.FAILED] * 2
    assert rig.queue.extend(receipts, 30, budget_s=2) == [Outcome.FAILED] * 2


def test_expired_handles_are_gone_and_the_others_done(rig: Rig) -> None:
    """The outcomes stand in the order of the receipts, whatever the order of the answer."""
    rig.send("a1", "b1")
    first, second = (message.receipt for message in rig.queue.receive(10))
    assert rig.queue.extend([second], 1_000) == [Outcome.DONE]
    rig.server_clock.advance(130)
    assert rig.queue.extend([first, second], 60) == [Outcome.LOST, Outcome.DONE]
    assert rig.delete([first, second]) == [Outcome.LOST, Outcome.DONE]
    assert rig.depth() == (1, 0)


def test_extending_past_twelve_hours_is_gone(rig: Rig) -> None:
    """SQS's own limit ends the hold; it is no error of the request."""
    rig.send("a1")
    (receipt,) = (message.receipt for message in rig.queue.receive(10))
    rig.server_clock.advance(60)
    assert rig.queue.extend([receipt], 43_200) == [Outcome.LOST]


def test_a_message_may_stand_twice_in_one_call(rig: Rig) -> None:
    """Entry ids are positions, so two handles are no conflict. What is deleted can be deleted again, as in a commit."""
    rig.send("a1")
    (old,) = (message.receipt for message in rig.queue.receive(10))
    rig.server_clock.advance(130)
    (new,) = (message.receipt for message in rig.queue.receive(10))
    assert old.message_id == new.message_id
    assert rig.delete([old, new]) == [Outcome.LOST, Outcome.DONE]
    assert rig.delete([new, new]) == [Outcome.DONE, Outcome.DONE]


def test_entries_of_one_receive_go_together(rig: Rig) -> None:
    """Batches are built from whole receives, at most ten entries each, and keep the order within each."""
    rig.send(*(f"{group}{index}" for group in "abc" for index in range(4)))
    receipts = [message.receipt for _ in range(4) for message in rig.queue.receive(4)]
    calls = split_into_batches(reversed(receipts))
    assert sum(map(len, calls)) == 12
    assert all(len(call) <= 10 for call in calls)
    whole = Counter(receipt.receive for receipt in receipts)
    assert sorted(whole.values()) == [4, 4, 4], "each receive has a number of its own"
    for call in calls:
        assert all(whole[receive] == count for receive, count in Counter(r.receive for r in call).items())


def test_any_number_of_messages_is_deleted(rig: Rig) -> None:
    """In calls for ten at most; each is told before its turn, so that what is not called for yet is still renewed."""
    rig.send(*(f"{group}{number}" for group in "abcdefghijk" for number in range(10)), "l1", "m1", "n1", "o1", "p1")
    receipts = [message.receipt for message in rig.receive_all()]
    told: list[int] = []

    def note(entries: Sequence[Receipt]) -> None:
        told.append(len(entries))
        answered = len(rig.server.requests.recent("DeleteMessageBatch"))
        assert answered < len(told) <= answered + CONCURRENT_CALLS

    assert set(rig.queue.delete(receipts, before_call=note)) == {(receipt, Outcome.DONE) for receipt in receipts}
    assert (len(told), sum(told), max(told)) == (12, 115, 10)
    assert rig.depth() == (0, 0)


def test_what_is_not_called_for_in_time_is_failed(rig: Rig) -> None:
    """The budget is one for all batches: those behind it cost no call, and are told all the same."""
    rig.send(*(f"{group}1" for group in "abcdefghijkl"))
    receipts = [message.receipt for message in rig.receive_all()]
    told: list[int] = []

    def stand_still(entries: Sequence[Receipt]) -> None:
        told.append(len(entries))
        rig.clock.sleep(6)

    outcomes = rig.queue.delete(receipts, budget_s=10, before_call=stand_still)
    assert [outcome for _, outcome in outcomes] == [Outcome.DONE] * 10 + [Outcome.FAILED] * 2
    assert told == [10, 2]


class Deletes:
    """In place of a queue's calls: how many are under way, who waits for them, and which fail at first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, deletes: int) -> None:
        self.clock = ManualClock()
        self.under_way: set[str] = set()
        self.most = 0
        self.begun = 0
        self.in_pool: list[int] = []
        """Deletes begun before each use of the pool."""
        self.failing: int | None = None
        self.slow_from, self.slow_s = 0, 0.0
        url = "http://127.0.0.1:9/000000000000/q.fifo"
        options = parse_source_options({"queueUrl": url, "journalLocation": "/journal"})
        self.queue = Queue(options, self.clock, self.pool, deletes=deletes)
        monkeypatch.setattr(self.queue, "_begin_delete", self.begin)

    def pool(self, name: str, threads: int) -> Any:
        def use(call: Callable[[int], Any], items: Sequence[int]) -> list[Any]:
            assert name == "call"
            self.in_pool.append(self.begun)
            return list(map(call, items))

        return SimpleNamespace(map=use)

    def begin(self, receipts: Sequence[Receipt], deadline: float) -> PendingCall[list[Outcome]]:
        if self.begun >= self.slow_from:
            self.clock.advance(self.slow_s)
        name, fails = receipts[0].message_id, self.begun == self.failing
        self.begun += 1
        self.under_way.add(name)
        self.most = max(self.most, len(self.under_way))

        def ask() -> list[Outcome]:
            nonlocal fails
            if fails:
                fails = False
                raise TransientQueueError("no answer")
            self.under_way.discard(name)
            return [Outcome.DONE] * len(receipts)

        return PendingCall(ask, clock=self.clock, budget_s=1.0)

    def delete(self) -> None:
        """Delete a thousand messages; each has its outcome."""
        receipts = [
            Receipt(str(each), f"handle {each}", "a", each, 1, sent_at_ms=0, received_at=0.0, receive=each // 10)
            for each in range(1_000)
        ]
        assert self.queue.delete(receipts) == [(receipt, Outcome.DONE) for receipt in receipts]
        assert not self.under_way
        assert self.begun == 100


@pytest.mark.parametrize("most", [1, CONCURRENT_CALLS, DRIVER_DELETES])
def test_one_thread_has_several_deletes_under_way(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """As many as it may, and needs no other while all goes well."""
    deletes = Deletes(monkeypatch, most)
    deletes.delete()
    assert deletes.most == most
    assert deletes.in_pool == []


def test_a_delete_that_fails_leaves_what_follows_to_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """To try it again takes time, and nothing is begun meanwhile by the one thread."""
    deletes = Deletes(monkeypatch, DRIVER_DELETES)
    deletes.failing = 3
    deletes.delete()
    assert deletes.in_pool == [3 + DRIVER_DELETES]


@pytest.mark.parametrize("slow_s", [0.6, 5.0])
def test_where_each_beginning_is_slow_several_threads_make_the_calls(
    monkeypatch: pytest.MonkeyPatch, slow_s: float
) -> None:
    """A name server that does not answer, or an address: one after the other would take for ever."""
    deletes = Deletes(monkeypatch, DRIVER_DELETES)
    deletes.slow_s = slow_s
    deletes.delete()
    assert deletes.in_pool == [-(-LONGEST_BEGIN_S // slow_s)]


def test_answers_to_deletes_are_read_first_where_further_connections_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open connections are soon free for further calls."""
    deletes = Deletes(monkeypatch, DRIVER_DELETES)
    deletes.slow_from, deletes.slow_s = 20, 0.6
    deletes.delete()
    assert deletes.in_pool == []
    assert CONCURRENT_CALLS < deletes.most < DRIVER_DELETES
