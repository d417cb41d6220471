"""The figures in Spark's progress report: those of the queue itself, and of all calls, driver's and tasks' alike."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from sqs_fifo_spark.source.driver.prober import COUNTED_EVERY_S
from sqs_fifo_spark.source.plan import PartitionPlan
from tests.simulation.world import LAPSE_S, VISIBILITY_S, Row
from tests.unit.by_hand import Query, World, in_both_modes, in_both_modes_with
from tests.unit.sending import refusal


def count_calls(world: World) -> Counter[str]:
    """Return how often each action is asked for from now on."""
    calls = Counter[str]()

    def count(action: str) -> str:
        calls[action] += 1
        return ""

    world.fault = count
    return calls


def queue_figures(query: Query) -> tuple[int, int, int]:
    report = query.driver.report()
    return report["waitingMessages"], report["inFlightMessages"], report["delayedMessages"]


def test_all_figures_have_names_and_are_numbers(world: World) -> None:
    """They go to Spark as JSON, also before anything was called; an age is not known then."""
    report = Query(world).driver.report()
    assert report["queue"] == "q.fifo"
    assert report["oldestMessageAgeSeconds"] is None
    assert {value for name, value in report.items() if name not in ("queue", "oldestMessageAgeSeconds")} == {0}
    assert list(report) == [
        "queue",
        "epoch",
        "waitingMessages",
        "inFlightMessages",
        "delayedMessages",
        "oldestMessageAgeSeconds",
        "receives",
        "retries",
        "unconfirmedDeletes",
        "lostLeases",
    ]


@in_both_modes
def test_the_driver_learns_its_query_from_the_first_epoch_on(world: World) -> None:
    """Spark tells tasks which query they work for, and not the driver, whose log lines then name it."""

    class NamedQuery(Query):
        def read(self, plan: PartitionPlan) -> list[Row]:
            return self.world.read(replace(plan, query="6e0"))

    world.send("a1", "a2")
    query = NamedQuery(world).resume()
    assert query.trigger()
    assert query.driver.query is None
    query.trigger()
    assert query.driver.query == "6e0"


def test_an_idle_query_counts_when_it_begins_to_be_idle_and_then_once_a_minute(world: World) -> None:
    """Where Spark asks for figures: each time costs a request."""
    world.send("a1")
    query = Query(world).resume()
    query.drain()
    calls = count_calls(world)
    began_at = world.clock.now()
    while world.clock.now() < began_at + 5 * COUNTED_EVERY_S:
        assert not query.trigger()
        assert queue_figures(query) == (0, 0, 0)
    assert calls["ReceiveMessage"] > 10
    assert 4 <= calls["GetQueueAttributes"] <= 6


@in_both_modes_with(maxMessagesPerTrigger="2")
def test_the_first_report_after_a_restart_has_the_counts(world: World) -> None:
    """Spark first asks for the micro-batch again that was not committed: nothing has counted by then."""
    world.send(*(f"{group}1" for group in "abcdef"))
    world.kill("-- batch 0 is in the sink", lambda: Query(world).resume().trigger(), down_s=LAPSE_S)
    query = Query(world)
    query.plans(0)
    assert sum(queue_figures(query)) == sum(world.depth()) > 0


def test_a_figure_that_cannot_be_had_stops_no_query(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The permission is taken away while it is idle: the last figures are reported, and it is asked once a minute."""
    query = Query(world).resume()
    query.drain()
    assert queue_figures(query) == (0, 0, 0)
    asked = 0

    def refuse(action: str) -> str:
        nonlocal asked
        if action == "GetQueueAttributes":
            asked += 1
            raise refusal("AccessDenied")
        return ""

    world.fault = refuse
    world.clock.advance(COUNTED_EVERY_S)
    for _ in range(3):
        assert not query.trigger()
        assert queue_figures(query) == (0, 0, 0)
    assert asked == 1
    assert caplog.text.count("so the last one is reported: AWS denied get_queue_attributes") == 1


def test_a_queue_that_does_not_tell_of_delayed_messages_is_read_all_the_same(world: World) -> None:
    """A stand-in for SQS may leave that number out."""
    call = world._call_model

    def without(action: str, request: dict[str, Any]) -> dict[str, Any]:
        answer = call(action, request)
        answer.get("Attributes", {}).pop("ApproximateNumberOfMessagesDelayed", None)
        return answer

    world._call_model = without  # type: ignore[method-assign]
    world.send("a1", "b1")
    query = Query(world).resume()
    query.drain()
    assert queue_figures(query)[2] == 0
    world.audit()


@in_both_modes
def test_receives_are_those_that_reached_the_queue(world: World) -> None:
    """Those of the driver's polls, and of each task."""
    calls = count_calls(world)
    world.send(*(f"{group}{number}" for group in "abcdefgh" for number in range(1, 30)))
    query = Query(world).resume()
    query.drain()
    assert not query.trigger()  # the last epoch is over, too
    assert query.driver.report()["receives"] == calls["ReceiveMessage"] > 20
    assert query.driver.report()["retries"] == 0


@in_both_modes
def test_retries_are_the_calls_that_had_no_answer(world: World) -> None:
    """In tasks and in the driver; all but the last of each are made again."""
    world.send(*(f"{group}{number}" for group in "abc" for number in range(1, 30)))
    query = Query(world).resume()
    failed = 0

    def fail(action: str) -> str:
        nonlocal failed
        has_failed = action in ("ReceiveMessage", "DeleteMessageBatch") and failed % 3 < 2
        failed += 1
        return "refused" if has_failed else ""

    world.fault = fail
    query.trigger()
    world.fault = lambda action: ""
    query.drain()
    assert 0 < query.driver.report()["retries"] <= failed


def test_the_age_is_that_of_the_oldest_message_when_its_micro_batch_was_over(world: World) -> None:
    """And not how long the query has been idle since."""
    world.send("a1")
    world.clock.advance(40)
    world.send("b1")
    query = Query(world).resume()
    query.trigger()
    query.drain()
    age_s = query.driver.report()["oldestMessageAgeSeconds"]
    assert age_s == 0, "the last epoch only made Spark commit, and the queue is empty"
    world.send("a2")
    world.clock.advance(7)
    query.trigger()
    while not query.driver.report()["oldestMessageAgeSeconds"]:
        assert query.trigger()
    assert 7 <= query.driver.report()["oldestMessageAgeSeconds"] < 40


def test_the_age_is_not_told_while_messages_wait_and_none_was_read(world: World) -> None:
    """Neither before the first micro-batch is over, nor after one without messages: 0 would say that all is well."""
    world.send(*(f"a{number}" for number in range(30)))
    query = Query(world).resume()
    query.log(query.latest_offset(query.start_of(0)))
    report = query.driver.report()
    assert (report["waitingMessages"], report["oldestMessageAgeSeconds"]) == (20, None)
    query.run(0)
    query.drain()
    world.send("b1", "b2")
    world.receive_elsewhere(1, 100 * VISIBILITY_S)
    world.clock.advance(COUNTED_EVERY_S)
    assert not query.trigger(), "the query finds nothing, and is idle"
    assert query.driver.report()["oldestMessageAgeSeconds"] is None
    assert queue_figures(query) == (1, 1, 0)
