"""An answer that was cut leaves messages hidden: they are not cut off again and again, and the queue is not empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

import pytest

from sqs_fifo_spark.aws.answer import arriving
from sqs_fifo_spark.aws.calls import MAX_ENTRIES
from sqs_fifo_spark.errors import TransientQueueError
from sqs_fifo_spark.source import receive
from sqs_fifo_spark.source.queue import Queue
from sqs_fifo_spark.source.receive import WORTH, Receive, ReceivedMessages
from tests.manual_clock import ManualClock
from tests.simulation.world import LAPSE_S
from tests.unit.aws.answering import sqs_message
from tests.unit.by_hand import Query, World, with_options

pytestmark = pytest.mark.law("source-6")

VISIBILITY_S = 30
SMALL_S, LARGE_S = 0.01, 10.0
"""A message takes so long to arrive: of large ones two come whole in time."""


class Link:
    """Answers receives over a link, as the lean client tells of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()

    def receive(self, message_s: float) -> ReceivedMessages:
        return self.ask(self.new(), message_s)

    def ask(self, asked: Receive, message_s: float, there: int = MAX_ENTRIES) -> ReceivedMessages:
        return asked.ask(lambda **call: self.answer(message_s, there, **call))

    def new(self) -> Receive:
        return Receive("u", self.clock, max_messages=10, wait_time_s=0, visibility_timeout_s=VISIBILITY_S)

    def answer(self, message_s: float, there: int, **call: Any) -> Mapping[str, Any]:
        arrival = arriving.get()
        assert arrival is not None
        arrival.waited_s = 0.0
        count = min(there, call["MaxNumberOfMessages"])
        whole = min(count, int(WORTH * VISIBILITY_S / message_s))
        arrival.is_cut = whole < count
        self.clock.advance(WORTH * VISIBILITY_S if arrival.is_cut else whole * message_s)
        if arrival.is_cut and not whole:
            raise TransientQueueError("a timeout")
        return {"Messages": [sqs_message(number) for number in range(whole)]}


@pytest.fixture(autouse=True)
def _no_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive, "_portions", {})


@pytest.fixture
def link() -> Link:
    return Link()


def test_what_was_cut_off_is_not_cut_off_again_for_others_are_small(link: Link) -> None:
    """Or its receive count grows with each answer, until a redrive policy moves what nobody has processed."""
    cut_at = link.clock.monotonic()
    assert len(link.receive(LARGE_S)) == 2
    while link.clock.monotonic() < cut_at + VISIBILITY_S:
        link.receive(SMALL_S)
        link.clock.advance(1.0)
    assert not link.receive(LARGE_S).is_cut


def test_a_link_that_was_slow_once_is_used_in_full_again(link: Link) -> None:
    link.receive(LARGE_S)
    link.clock.advance(VISIBILITY_S)
    link.receive(SMALL_S)
    assert len(link.receive(SMALL_S)) == MAX_ENTRIES


def test_an_empty_answer_after_one_that_was_cut_is_no_answer(link: Link) -> None:
    """The first try's messages are hidden. Where nothing is found for certain, a run ends."""
    asked = link.new()
    for message_s, there in ((100.0, 10), (SMALL_S, 0)):
        with pytest.raises(TransientQueueError, match="the link is too slow"):
            link.ask(asked, message_s, there)
    assert link.ask(asked, SMALL_S, 1)


def test_a_try_that_was_never_sent_is_none_that_was_cut(link: Link) -> None:
    """Its error is its own, and the attempt id may bring what it has asked for."""
    asked = link.new()
    with pytest.raises(TransientQueueError):
        link.ask(asked, 100.0)
    with pytest.raises(TransientQueueError, match="refused to connect"):
        asked.ask(mock.Mock(side_effect=TransientQueueError("refused to connect")))


@with_options(numPartitions="1")
def test_a_run_over_a_link_that_carries_no_message_does_not_end_as_if_none_were_left(world: World) -> None:
    """With AvailableNow, that would be a success which has served nothing of what waited."""
    world.message_s = 2.0 * VISIBILITY_S
    world.send("a1")
    query = Query(world, available_now=True)
    with pytest.raises(TransientQueueError, match="the link is too slow"):
        query.trigger()


@with_options(numPartitions="1")
def test_a_run_waits_for_what_a_poll_of_copies_left_hidden(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else came whole: once the copies are deleted the next poll finds nothing, and what waited is there."""
    before = world.served("a1")
    world.clock.advance(LAPSE_S)  # the commit deletes nothing
    world.send("b1")
    world.receive_elsewhere(2, LAPSE_S)
    before.trigger()
    world.die()  # with both messages in somebody else's hands, until no dead attempt can have them
    ask = Queue.receive

    def cut(queue: Queue, *given: int, **named: int) -> ReceivedMessages:
        found = ask(queue, *given, **named)
        copies = [each for each in found if each.receipt.message_id == world.sent[0].message_id]
        return ReceivedMessages(copies, since=found.since, is_cut=True) if copies else found

    monkeypatch.setattr(Queue, "receive", cut)
    query = Query(world, available_now=True).resume()
    assert world.journal().ledger().unconfirmed
    query.play_out()
    assert sorted(world.bodies()) == ["a1", "b1"]
