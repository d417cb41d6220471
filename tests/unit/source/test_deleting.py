"""Where tasks delete, they delete what is sealed, once, and each link names what is not confirmed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from sqs_fifo_spark.errors import FencedError
from tests.helpers import raises_one_line
from tests.simulation.world import LAPSE_S, VISIBILITY_S
from tests.unit.by_hand import Query, World, in_both_modes
from tests.unit.source.attempts import FIRST_LINK, SECOND_LINK, begin, links, told

pytestmark = pytest.mark.law("source-2")

OPTIONS = {"numPartitions": "1", "deleteAfter": "journal"}


@pytest.mark.parametrize("link", [FIRST_LINK, SECOND_LINK])
def test_a_task_whose_driver_owns_the_journal_no_more_deletes_nothing(world: World, link: str) -> None:
    """The newer driver knows of what was put before its claim; of this link it may know nothing."""
    _, plan = begin(world, *(f"a{number}" for number in range(25)))
    deleted: list[str] = []

    def rival() -> None:
        deleted.extend(world.deleted())
        Query(world).claim()

    world.do_at(f"after put {link}", rival)
    with raises_one_line(FencedError):
        world.read(plan)
    assert world.deleted() == deleted
    assert len(deleted) == (0 if link is FIRST_LINK else 11)
    with pytest.raises(FencedError):
        world.read(plan)  # Spark tries again
    assert world.deleted() == deleted


def test_a_link_names_what_of_those_before_it_is_not_confirmed(world: World) -> None:
    """As its deletes had no answer in time; they are tried again with the next link's."""
    world.options = replace(world.options, max_fetch_s=60)
    query, plan = begin(world, *(f"{'ab'[number % 2]}{number}" for number in range(30)))
    passes_at, is_first = world.clock.now() + world.options.heartbeat_s, True

    def failing(action: str) -> frozenset[int]:
        nonlocal is_first
        if "Delete" not in action or world.clock.now() >= passes_at:
            return frozenset()
        was_first, is_first = is_first, False
        return frozenset({0, 1}) if was_first or len(world.deleted()) > 10 else frozenset()

    world.failing_entries = failing
    rows = world.read(plan)
    heads = links(world)
    named = [heads[0].in_flight(), *(head.chain.unconfirmed for head in heads[1:])]
    assert 0 < len(named[1]) < len(named[0])
    assert set(named[1]) < set(named[0])
    assert not named[-1], "the second try"
    assert len(heads) > 2
    assert len(world.deleted()) == len(rows)
    query.finish(rows)


@pytest.mark.parametrize("limits", [{"max_messages": 15}, {"max_bytes": 70}, {}])
def test_each_message_is_deleted_once_and_the_end_of_the_chain_is_empty(world: World, limits: dict[str, int]) -> None:
    """Whatever ends the chain: what the last link served, a task could delete, and tell nobody."""
    query, plan = begin(world, *(f"a{1000 + number}" for number in range(25)))
    calls, call = Counter[str](), world._call_model

    def counted(action: str, request: dict[str, Any]) -> dict[str, Any]:
        if action == "DeleteMessageBatch":
            calls.update(entry["ReceiptHandle"] for entry in request["Entries"])
        return call(action, request)

    world._call_model = counted  # type: ignore[method-assign]
    rows = world.read(replace(plan, **limits))  # type: ignore[arg-type]
    *others, end = links(world)
    assert end.chain.is_last
    assert not end.in_flight()
    assert all(head.receipts for head in others)
    assert len(world.deleted()) == len(rows)
    query.finish(rows)
    assert set(calls.values()) == {1}


@in_both_modes
def test_a_later_message_of_its_group_shows_that_a_refused_one_is_gone(world: World) -> None:
    """Somebody else has taken it away; the ledger forgets it once what follows it was received, in whatever link."""
    query, plan = begin(world, "a1")
    taken: list[dict[str, Any]] = []

    def take() -> None:
        world.clock.advance(LAPSE_S)
        taken.extend(world.receive_elsewhere(10, 10 * VISIBILITY_S))

    world.do_at(f"after put {FIRST_LINK}", take)
    rows = world.read(plan)
    query.into_sink({0: rows})
    query.play_out()
    assert taken
    for each in taken:
        world.model.call("DeleteMessage", {"QueueUrl": world.url, "ReceiptHandle": each["ReceiptHandle"]})
    left = world.journal().ledger().unconfirmed.values()
    assert "a" in {entry.message_group_id for entry in left if entry.receipt is None}
    world.send(*(f"{group}{number}" for number in range(2, 30) for group in "az"))
    query.drain_and_audit()


def test_what_somebody_else_has_got_hold_of_is_named_by_each_later_link(world: World) -> None:
    """SQS refuses its handle, and what follows it in its group stays locked; nothing else waits for that."""
    query, plan = begin(world, "c1", "c2", *(f"a{number}" for number in range(25)))

    def stolen() -> None:
        (first,) = links(world)
        (c1,) = (each for each in first.receipts if each.message_id == message_id)
        request = {"QueueUrl": world.url, "ReceiptHandle": c1.receipt_handle, "VisibilityTimeout": 0}
        world.model.call("ChangeMessageVisibility", request)
        assert [each["Body"] for each in world.receive_elsewhere(1)] == ["c1"]

    (message_id,) = (row.message_id for row in world.sent if row.body == "c1")
    world.do_at(f"after put {FIRST_LINK}", stolen)
    rows = world.read(plan)
    _, *later = links(world)
    assert len(later) >= 2
    assert [[each.message_id for each in head.chain.unconfirmed] for head in later] == [[message_id]] * len(later)
    assert sorted(world.deleted()) == sorted(set(told(rows)) - {"c1"})
    query.finish(rows)


@pytest.mark.parametrize("is_found_first", [True, False])
def test_a_driver_renews_nothing_that_a_task_has_deleted_and_calls_it_no_loss(
    world: World, caplog: pytest.LogCaptureFixture, is_found_first: bool
) -> None:
    """It has held what its probe caught; it finds the link before the delete, or after, and learns of that."""
    query, plan = begin(world, "a1", "b1")
    if is_found_first:
        world.do_at(f"after put {FIRST_LINK}", lambda: world.pass_time(1))
    rows = world.read(plan)
    assert sorted(world.deleted()) == ["a1", "b1", "z1"]
    world.pass_time(3 * VISIBILITY_S)
    renewed = world.calls("ChangeMessageVisibilityBatch")
    world.pass_time(3 * VISIBILITY_S)
    assert world.calls("ChangeMessageVisibilityBatch") == renewed
    assert query.driver.report()["lostLeases"] == 0
    assert "lost the lease" not in caplog.text
    query.finish(rows)


def test_a_delete_whose_answer_was_lost_is_no_lost_lease(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The messages to renew are gone because the task has deleted them."""
    _, plan = begin(world, *(f"a{number}" for number in range(25)))
    world.fault = lambda action: "lost" if action == "DeleteMessageBatch" else ""

    def renew() -> None:
        world.fault = lambda action: ""
        world.pass_time(1)

    world.do_at(f"after put {SECOND_LINK}", renew)
    world.read(plan)
    assert world.deleted()
    assert "lost the lease" not in caplog.text
