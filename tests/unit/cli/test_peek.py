"""`peek` shows what the queue has to hand out, and leaves it there, in order."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import boto3
import pytest

from sqs_fifo_spark.cli.output import Status
from sqs_fifo_spark.cli.peek import HIDDEN_S
from sqs_fifo_spark.local import Faults
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.message import Receipt
from sqs_fifo_spark.source.queue import Queue
from tests.helpers import moto_server
from tests.unit.cli.conftest import QueueRig, Rig, error_of, lines, output_of


def test_what_was_shown_is_still_there_in_its_order(rig: Rig) -> None:
    """Each has been received once more; so says the command."""
    rig.send("1", "2", "3", group="a")
    rig.send("4", "5", group="b")
    for _ in range(2):
        assert "receive count of each has risen by one" in output_of(rig.on_queue("peek", "-n", "20"))
    left = rig.receive()
    assert sorted(left) == [("1", "a", 3), ("2", "a", 3), ("3", "a", 3), ("4", "b", 3), ("5", "b", 3)]
    assert [body for body, group, _ in left if group == "a"] == ["1", "2", "3"]
    assert [body for body, group, _ in left if group == "b"] == ["4", "5"]


def test_the_last_of_a_group_is_released_first(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else somebody else could get a later one while an earlier one is held."""
    released: list[int] = []
    extend = Queue.extend

    def note(self: Queue, receipts: list[Receipt], timeout_s: int, **named: Any) -> list[Outcome]:
        released.extend(receipt.sequence_number for receipt in receipts)
        return extend(self, receipts, timeout_s, **named)

    monkeypatch.setattr(Queue, "extend", note)
    for group in "abcdefghijkl":
        rig.send("1", "2", group=group)
    shown = lines(rig.on_queue("peek", "-n", "24", "--json"))
    assert len(shown) == 24
    assert released == [int(each["sequenceNumber"]) for each in reversed(shown)]


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_bodies_are_shown_only_where_that_is_asked_for(rig: Rig, form: tuple[str, ...]) -> None:
    """They are somebody's data, and so are attributes. No receipt handle is shown at all."""
    rig.send("secret", MessageAttributes={"key": {"DataType": "String", "StringValue": "hidden"}})
    without = rig.on_queue("peek", *form).stdout
    assert "secret" not in without
    assert "hidden" not in without
    shown = rig.on_queue("peek", "--bodies", *form).stdout
    assert "secret" in shown
    assert "hidden" in shown
    assert "andle" not in shown


def test_no_more_is_taken_than_asked_for(rig: Rig) -> None:
    rig.send(*"123")
    assert [each["receiveCount"] for each in lines(rig.on_queue("peek", "-n", "2", "--json"))] == [1, 1]
    assert rig.receive() == [("1", "g", 2), ("2", "g", 2), ("3", "g", 1)]


def test_an_empty_queue_is_no_problem(rig: Rig) -> None:
    assert "SQS gave no message" in output_of(rig.on_queue("peek"))
    assert rig.on_queue("peek", "--json").stdout == ""


def after_each_receive(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    receive = Queue.receive

    def receive_and_act(self: Queue, *given: Any, **named: Any) -> Any:
        found = receive(self, *given, **named)
        act()
        return found

    monkeypatch.setattr(Queue, "receive", receive_and_act)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_taken_is_released_when_it_is_interrupted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Whenever the signal comes; and afterwards signals are what they were."""
    rig.send("1", group="a")
    rig.send("2", group="b")
    after_each_receive(monkeypatch, lambda: os.kill(os.getpid(), number))
    before = signal.getsignal(number)
    assert rig.on_queue("peek").exit_code == 128 + number
    assert signal.getsignal(number) is before
    assert sorted(rig.receive()) == [("1", "a", 2), ("2", "b", 2)]


def test_a_queue_that_does_not_answer_keeps_nobody_from_interrupting(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier messages are released; the receive under way is given up, and the error says what it may hide."""
    rig.send("1", group="a")
    receive, is_over = Queue.receive, threading.Event()
    calls: list[int] = []

    def and_then_hang(self: Queue, *given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            return receive(self, *given, **named)
        os.kill(os.getpid(), signal.SIGINT)
        is_over.wait(60)
        return []

    monkeypatch.setattr(Queue, "receive", and_then_hang)
    monkeypatch.setattr("sqs_fifo_spark.cli.peek.ANSWER_S", 0.05)
    result = rig.on_queue("peek", "--json")
    is_over.set()
    assert f"are hidden for up to {HIDDEN_S} s" in error_of(result, Status.INTERRUPTED)
    assert len(lines(result)) == 1
    assert rig.receive() == [("1", "a", 2)]


def test_what_was_taken_before_a_failure_is_released_and_shown(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.send("1", group="a")
    rig.send("2", group="b")
    denied = Faults(deny=frozenset({"ReceiveMessage"}))
    after_each_receive(monkeypatch, lambda: setattr(rig.server, "faults", denied))
    result = rig.on_queue("peek", "--json", "-n", "20")
    assert "AWS denied receive_message" in error_of(result, Status.REFUSED)
    assert len(lines(result)) == 2
    rig.server.faults = Faults()
    assert [count for _, _, count in rig.receive()] == [2, 2]


def test_what_cannot_be_released_is_told(rig: Rig) -> None:
    """With how long it stays hidden."""
    rig.send("1")
    rig.server.faults = Faults(deny=frozenset({"ChangeMessageVisibilityBatch"}))
    result = rig.on_queue("peek", "--json")
    assert result.exit_code == Status.PROBLEM
    assert len(lines(result)) == 1
    assert f"1 messages could not be released; they stay hidden for up to {HIDDEN_S} s" in result.stderr
    assert rig.receive() == []


def test_a_low_maximum_of_receives_is_not_used_up_unasked(rig: Rig) -> None:
    """A look would move a message to the dead-letter queue: only with --force."""
    policy = {"deadLetterTargetArn": rig.arn(rig.create("dead")), "maxReceiveCount": "2"}
    rig.set(RedrivePolicy=json.dumps(policy))
    rig.send("1")
    assert "maxReceiveCount is 2" in error_of(rig.on_queue("peek"), Status.USAGE)
    assert "1 messages were received" in rig.on_queue("peek", "--force").stdout
    assert rig.receive() == [("1", "g", 2)]


def test_what_has_no_sequence_number_is_sent_and_not_shown() -> None:
    """moto numbers no message that it recognises by its content: neither `peek` nor a source can read it."""
    with moto_server() as url:
        sqs = boto3.client("sqs", endpoint_url=url)
        rig = QueueRig(sqs, "/journal")
        rig.set(ContentBasedDeduplication="true")
        for _ in range(2):
            told = rig.on_queue("send", "--group", "g", "--body", "x", "--json")
            assert (told.exit_code, [each["sequenceNumber"] for each in lines(told)]) == (Status.OK, [None])
        told = rig.on_queue("peek")
        assert (told.exit_code, told.stdout) == (Status.REFUSED, "")
        hidden, why = told.stderr.splitlines()
        assert hidden.endswith(f"are not released; they stay hidden for up to {HIDDEN_S} s")
        assert "has left SequenceNumber out of its answer to receive_message" in why
        assert "others hold the heads of its groups" in output_of(rig.on_queue("peek"))
        sqs.close()
