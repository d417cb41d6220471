"""Receipt handles and the attempts that give them out again: what `conformance` does not show of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.local.model_queue import ModelQueue, redriven, refused

GONE = "Message does not exist or is not available for visibility timeout change."
EXPIRED = "The receipt handle has expired."


def change(queue: ModelQueue, how: str, message: dict[str, Any]) -> None:
    """Delete, hide or release a message."""
    if how == "delete":
        queue.delete(message)
    else:
        queue.hide(message, 60 if how == "hide" else 0)


# Handles that hold no longer


@pytest.mark.parametrize(
    ("fate", "how", "reason"),
    [
        ("deleted", "hide", GONE),
        ("superseded", "hide", GONE),
        ("superseded", "delete", EXPIRED),
        ("lapsed", "delete", EXPIRED),
    ],
)
def test_handle_that_no_longer_holds_a_message_is_refused(queue: ModelQueue, fate: str, how: str, reason: str) -> None:
    """Recorded, in AWS's words. An earlier receive cannot touch what somebody else received since."""
    queue.send()
    old = queue.receive(VisibilityTimeout=1)[0]
    if fate == "deleted":
        queue.delete(old)
    else:
        queue.clock.advance(1)
    held = queue.receive() if fate == "superseded" else []
    error = refused(change, queue, how, old)
    assert (error.status, error.query_code) == (400, "InvalidParameterValue")
    assert error.message == f"Value {old['ReceiptHandle']} for parameter ReceiptHandle is invalid. Reason: {reason}"
    if fate != "deleted":
        [new] = held or queue.receive()
        assert new["ReceiptHandle"] != old["ReceiptHandle"]
        assert new["Attributes"]["ApproximateReceiveCount"] == "2"
        queue.delete(new)


def test_change_that_lapsed_or_passes_twelve_hours_has_awss_words(queue: ModelQueue) -> None:
    """`conformance` takes another code for the first, too, for both were seen."""
    queue.send()
    message = queue.receive(VisibilityTimeout=1)[0]
    queue.clock.advance(0.5)
    assert refused(queue.hide, message, 43_200).message.endswith("is beyond the limit [43200 seconds]")
    queue.clock.advance(0.5)
    assert refused(queue.hide, message, 10).shape == "MessageNotInflight"


def test_delete_with_a_handle_from_before_a_move_is_refused_as_expired() -> None:
    """A message in the dead-letter queue is not deleted, and no old handle says that it is."""
    source, dead = redriven(1)
    source.send_many("g", "1", "2")
    old, kept = source.receive(VisibilityTimeout=1)
    source.delete(kept)
    source.clock.advance(1)
    assert source.receive() == []
    assert refused(source.delete, old).message.endswith(f"Reason: {EXPIRED}")
    response = source.call("DeleteMessageBatch", Entries=[{"Id": "0", "ReceiptHandle": old["ReceiptHandle"]}])
    assert response["Failed"][0]["Message"] == "The receipt handle has expired"
    assert "does not exist" in refused(source.hide, old, 5).message
    source.delete(kept)
    assert dead.bodies() == ["1"]


def test_handles_of_the_last_moved_messages_alone_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: of more moves than are kept, the oldest counts as deleted."""
    monkeypatch.setattr("sqs_fifo_spark.local.fifo._MOVED_KEPT", 2)
    source, _ = redriven(1)
    source.send_in_groups(*"abc")
    old = source.receive(VisibilityTimeout=0)
    assert source.receive() == []
    source.delete(old[0])
    for message in old[1:]:
        assert "expired" in refused(source.delete, message).message


# ReceiveRequestAttemptId


@pytest.mark.parametrize(
    ("how", "is_lost"), [("delete", False), ("hide", False), ("release", False), ("delete", True), ("hide", True)]
)
def test_attempt_is_void_once_one_of_its_messages_was_changed(queue: ModelQueue, how: str, is_lost: bool) -> None:
    """Also where it lapsed, and somebody else received and changed it."""
    queue.send_many("g", "1", "2")
    message = queue.receive(VisibilityTimeout=5, ReceiveRequestAttemptId="try")[0]
    if is_lost:
        queue.clock.advance(5)
        message = queue.receive(ReceiveRequestAttemptId="another")[0]
    change(queue, how, message)
    error = refused(queue.receive, ReceiveRequestAttemptId="try")
    assert error.query_code == "InvalidParameterValue"
    assert "receiveRequestAttemptId is not valid anymore since the receive call is not retryable" in error.message


def test_attempt_whose_visibility_lapsed_is_a_fresh_receive(queue: ModelQueue) -> None:
    """After the timeout the same id receives anew: another handle, another count, and five minutes of its own."""
    queue.send()
    first = queue.receive(VisibilityTimeout=5, ReceiveRequestAttemptId="try")[0]
    queue.clock.advance(5)
    second = queue.receive(VisibilityTimeout=1_000, ReceiveRequestAttemptId="try")[0]
    assert second["ReceiptHandle"] != first["ReceiptHandle"]
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    queue.clock.advance(299)
    assert queue.receive(VisibilityTimeout=1_000, ReceiveRequestAttemptId="try") == [second]


@pytest.mark.parametrize("is_void", [True, False])
def test_attempt_is_forgotten_after_five_minutes(queue: ModelQueue, is_void: bool) -> None:
    """Past them the id finds what is free, a void one too, and nothing of what is still in flight."""
    queue.send_many("g", "1", "2")
    message = queue.receive(1, VisibilityTimeout=1_000, ReceiveRequestAttemptId="try")[0]
    if is_void:
        queue.delete(message)
    queue.clock.advance(300)
    assert queue.bodies(ReceiveRequestAttemptId="try") == (["2"] if is_void else [])


def test_repeat_cannot_hide_messages_past_twelve_hours(queue: ModelQueue) -> None:
    """A repeat hides to twelve hours after the receive at most, like any extension."""
    queue.send()
    for pause in (200, 43_000):
        queue.receive(VisibilityTimeout=43_200, ReceiveRequestAttemptId="try")
        queue.clock.advance(pause)
    assert queue.bodies() == ["1"]
