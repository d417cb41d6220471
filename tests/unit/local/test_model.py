"""The strict local queue's model: the laws of SQS FIFO, on a clock turned by hand."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from sqs_fifo_spark.clock import ManualClock
from sqs_fifo_spark.local import Event, FifoModel, SqsError
from sqs_fifo_spark.local.model import ACTIONS


class Bench:
    """One queue of a model, and a clock to turn."""

    def __init__(self, model: FifoModel, clock: ManualClock, name: str = "orders.fifo", **attributes: str) -> None:
        self.model = model
        self.clock = clock
        self.name = name
        given = {"FifoQueue": "true", **attributes} if name.endswith(".fifo") else attributes
        self.url = model.call("CreateQueue", {"QueueName": name, "Attributes": given})["QueueUrl"]
        self._sent = 0

    def call(self, action: str, **request: Any) -> dict[str, Any]:
        return self.model.call(action, {"QueueUrl": self.url, **request})

    def send(self, group: str = "g", body: str = "", **request: Any) -> dict[str, Any]:
        self._sent += 1
        defaults = {
            "MessageBody": body or str(self._sent),
            "MessageGroupId": group,
            "MessageDeduplicationId": f"d{self._sent}",
        }
        return self.call("SendMessage", **{k: v for k, v in {**defaults, **request}.items() if v is not None})

    def send_many(self, group: str, *bodies: str) -> None:
        for body in bodies:
            self.send(group, body)

    def receive(self, limit: int = 10, **request: Any) -> list[dict[str, Any]]:
        response = self.call(
            "ReceiveMessage", MaxNumberOfMessages=limit, MessageSystemAttributeNames=["All"], **request
        )
        found: list[dict[str, Any]] = response.get("Messages", [])
        return found

    def bodies(self, limit: int = 10, **request: Any) -> list[str]:
        return [message["Body"] for message in self.receive(limit, **request)]

    def hide(self, message: dict[str, Any], timeout_s: int) -> None:
        self.call("ChangeMessageVisibility", ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=timeout_s)

    def delete(self, message: dict[str, Any]) -> None:
        self.call("DeleteMessage", ReceiptHandle=message["ReceiptHandle"])

    def attributes(self) -> dict[str, str]:
        shown: dict[str, str] = self.call("GetQueueAttributes", AttributeNames=["All"])["Attributes"]
        return shown


def refused(call: Callable[[], object]) -> SqsError:
    with pytest.raises(SqsError) as caught:
        call()
    return caught.value


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def model(clock: ManualClock) -> FifoModel:
    return FifoModel(clock, random.Random(7))


@pytest.fixture
def queue(model: FifoModel, clock: ManualClock) -> Bench:
    return Bench(model, clock)


# Delivery and the group lock


def test_receive_returns_one_message_unless_asked_for_more(queue: Bench) -> None:
    """Without MaxNumberOfMessages, a receive returns one message."""
    queue.send_many("g", "1", "2")
    assert len(queue.call("ReceiveMessage")["Messages"]) == 1


def test_receive_returns_at_most_ten_messages(queue: Bench) -> None:
    """However many there are, one receive returns ten."""
    queue.send_many("g", *map(str, range(15)))
    assert queue.bodies() == [str(i) for i in range(10)]


def test_receive_takes_all_it_can_of_the_group_free_longest_then_goes_on(queue: Bench) -> None:
    """A receive empties the group that has been free the longest before it takes from the next."""
    for body in ("a1", "b1", "c1", "b2", "a2"):
        queue.send(body[0], body)
    assert queue.bodies() == ["a1", "a2", "b1", "b2", "c1"]


def test_group_whose_messages_in_flight_were_deleted_goes_behind_the_free_ones(queue: Bench) -> None:
    """A group that the last delete unlocks stands behind groups that were free before."""
    for body in ("a1", "b1", "a2"):
        queue.send(body[0], body)
    queue.delete(queue.receive(1)[0])
    assert queue.bodies() == ["b1", "a2"]


def test_released_group_goes_behind_the_free_ones(queue: Bench) -> None:
    """Recorded: receive one and release it, over and over, and two groups alternate."""
    queue.send("a", "a1")
    queue.send("b", "b1")
    seen = []
    for _ in range(4):
        message = queue.receive(1)[0]
        seen.append(message["Body"])
        queue.hide(message, 0)
    assert seen == ["a1", "b1", "a1", "b1"]


def test_lapsed_group_goes_behind_the_free_ones(queue: Bench) -> None:
    """A group whose consumer lets every message lapse does not starve the others."""
    for body in ("a1", "b1", "a2", "c1"):
        queue.send(body[0], body)
    queue.receive(1, VisibilityTimeout=1)
    queue.clock.advance(1)
    assert queue.bodies() == ["b1", "c1", "a1", "a2"]


def test_groups_lapse_into_line_one_after_another(queue: Bench) -> None:
    """Lapses that nobody looked at in between still line their groups up by the time of each."""
    for group in "ab":
        queue.send(group, group)
    queue.receive(1, VisibilityTimeout=9)
    queue.receive(1, VisibilityTimeout=2)
    queue.clock.advance(20)
    assert queue.bodies() == ["b", "a"]


def test_group_that_stays_free_keeps_its_place(queue: Bench) -> None:
    """Later messages, and lapses behind a head that is free already, move no group back."""
    for body in ("a1", "a2", "b1"):
        queue.send(body[0], body)
    first, second, other = queue.receive()
    queue.hide(first, 0)
    queue.hide(other, 0)
    queue.hide(second, 0)
    queue.send("a", "a3")
    assert queue.bodies() == ["a1", "a2", "a3", "b1"]


@pytest.mark.parametrize(("lapses_at", "order"), [(8, ["early", "late"]), (10, ["late", "early"])])
def test_delayed_group_stands_in_line_from_when_it_shows(queue: Bench, lapses_at: int, order: list[str]) -> None:
    """A message that waits for its delay takes no place in line before that is over."""
    queue.call("SetQueueAttributes", Attributes={"DelaySeconds": "5"})
    queue.send("early", "early")
    queue.clock.advance(4)
    queue.send("late", "late")
    queue.clock.advance(1)
    assert queue.bodies(VisibilityTimeout=lapses_at - 5) == ["early"]
    queue.clock.advance(5)
    assert queue.bodies() == order


def test_group_past_the_scan_limit_blocks_nobody_and_comes_once_it_is_within(clock: ManualClock) -> None:
    """A group past the limit is not handed out, and takes its place in line when the limit reaches it."""
    queue = Bench(FifoModel(clock, scan_limit=2), clock)
    for body in ("a1", "b1", "far1", "far2"):
        queue.send(body.rstrip("12"), body)
    first, second = queue.receive()
    assert queue.bodies() == []
    queue.hide(second, 0)
    assert queue.bodies(1) == ["b1"]
    queue.delete(first)
    assert queue.bodies() == ["far1"]


def test_order_between_groups_may_be_drawn(clock: ManualClock) -> None:
    """With any_order each seed serves the groups in an order of its own, the same every time."""

    def history(seed: int) -> tuple[str, ...]:
        queue = Bench(FifoModel(clock, random.Random(seed), any_order=True), clock)
        for body in ("a1", "b1", "c1", "a2", "b2", "c2"):
            queue.send(body[0], body)
        return tuple(queue.bodies())

    orders = [history(seed) for seed in range(30)]
    assert orders == [history(seed) for seed in range(30)]
    assert {"".join(body[0] for body in order[::2]) for order in orders} == {
        "abc", "acb", "bac", "bca", "cab", "cba",
    }  # fmt: skip
    assert all(list(order) == sorted(order, key=lambda body: order.index(f"{body[0]}1")) for order in orders)


def test_chance_is_not_asked_for_the_order_unless_it_may_be_any(clock: ManualClock) -> None:
    """Without any_order, receives leave the generator as it was."""
    rng = random.Random(3)
    queue = Bench(FifoModel(clock, rng), clock)
    queue.send_many("a", "1")
    queue.send_many("b", "2")
    before = rng.getstate()
    assert len(queue.receive()) == 2
    assert rng.getstate() == before


def test_group_with_messages_in_flight_gives_no_later_ones(queue: Bench) -> None:
    """While any message of a group is in flight, later ones of that group wait."""
    queue.send_many("g", "1", "2")
    queue.receive(1)
    queue.send("h", "other")
    assert queue.bodies() == ["other"]


@pytest.mark.parametrize(("held", "comes"), [(0, []), (1, ["1"]), (2, ["1", "2"])])
def test_lapsed_messages_come_back_up_to_the_first_in_flight_one(queue: Bench, held: int, comes: list[str]) -> None:
    """Recorded: of [1, 2, 3], holding 1 nothing comes, holding 2 [1] comes, holding 3 [1, 2] come."""
    queue.send_many("g", "1", "2", "3", "4")
    received = queue.receive(3, VisibilityTimeout=10)
    queue.hide(received[held], 60)
    queue.clock.advance(10)
    assert queue.bodies() == comes


def test_deleting_part_of_what_is_in_flight_unlocks_nothing(queue: Bench) -> None:
    """A group stays locked until the last of its in-flight messages is deleted."""
    queue.send_many("g", "1", "2", "3")
    received = queue.receive(2)
    queue.delete(received[0])
    assert queue.bodies() == []
    queue.delete(received[1])
    assert queue.bodies() == ["3"]


def test_without_deletes_a_group_gives_ten_messages(queue: Bench) -> None:
    """A consumer that deletes nothing gets at most ten messages of one group."""
    queue.send_many("g", *map(str, range(12)))
    assert len(queue.receive()) == 10
    assert queue.receive() == []


def test_receives_come_back_empty_at_the_in_flight_cap(clock: ManualClock) -> None:
    """At the cap a receive is empty without an error, and a delete makes room for one more."""
    queue = Bench(FifoModel(clock, in_flight_cap=3), clock)
    for group in "abcde":
        queue.send(group)
    received = queue.receive()
    assert len(received) == 3
    assert queue.receive() == []
    queue.delete(received[0])
    assert len(queue.receive()) == 1


def test_only_the_first_messages_are_scanned_for_free_groups(clock: ManualClock) -> None:
    """A backlog of one locked group past the scan limit hides all groups behind it, until it shrinks."""
    queue = Bench(FifoModel(clock, scan_limit=3), clock)
    queue.send_many("hot", "1", "2", "3")
    queue.send("cold", "c")
    received = queue.receive(1)
    assert queue.bodies() == []
    queue.delete(received[0])
    assert queue.bodies(1) == ["2"]
    assert queue.bodies() == ["c"]


def test_a_receive_does_not_reach_past_the_scan_limit_in_a_group(clock: ManualClock) -> None:
    """Messages past the scan limit are not handed out with their group's first ones."""
    queue = Bench(FifoModel(clock, scan_limit=2), clock)
    queue.send_many("g", "1", "2", "3")
    assert queue.bodies() == ["1", "2"]


def test_sequence_numbers_are_long_rise_and_leave_gaps(queue: Bench) -> None:
    """Sequence numbers have 20 digits, rise over the whole queue, and are not consecutive."""
    texts = [queue.send(group)["SequenceNumber"] for group in "abab"]
    numbers = [int(text) for text in texts]
    assert {len(text) for text in texts} == {20}
    assert numbers == sorted(numbers)
    assert any(b - a > 1 for a, b in itertools.pairwise(numbers))


class Literal:
    """The laws of delivery read literally over a plain list: slow, and obviously right."""

    def __init__(self, clock: ManualClock, cap: int, scan_limit: int) -> None:
        self.clock = clock
        self.cap = cap
        self.scan_limit = scan_limit
        self.stored: list[tuple[str, str]] = []
        self.hidden: dict[str, float] = {}
        # The free groups, in the order in which they became free, as of `lined_up_at`.
        self.line: list[str] = []
        self.lined_up_at = clock.now()

    def is_hidden(self, body: str) -> bool:
        return self.hidden.get(body, 0.0) > self.clock.now()

    def available(self, group: str, at: float) -> list[str]:
        own = [body for g, body in self.stored[: self.scan_limit] if g == group]
        return list(itertools.takewhile(lambda body: self.hidden.get(body, 0.0) <= at, own))

    def line_up(self) -> None:
        """Bring the line up to date: at every lapse since it was last, and now."""
        lapses = {until for until in self.hidden.values() if self.lined_up_at < until < self.clock.now()}
        for at in [*sorted(lapses), self.clock.now()]:
            free = [g for g in dict.fromkeys(g for g, _ in self.stored) if self.available(g, at)]
            self.line = [g for g in self.line if g in free] + [g for g in free if g not in self.line]
        self.lined_up_at = self.clock.now()

    def send(self, group: str, body: str) -> None:
        self.line_up()
        self.stored.append((group, body))
        self.line_up()

    def receive(self, limit: int, timeout_s: int) -> list[str]:
        self.line_up()
        room = self.cap - sum(self.is_hidden(body) for _, body in self.stored)
        free = [body for group in self.line for body in self.available(group, self.clock.now())]
        taken = free[: max(0, min(limit, room))]
        self.hidden |= {body: self.clock.now() + timeout_s for body in taken}
        self.line_up()
        return taken

    def delete(self, body: str) -> None:
        self.line_up()
        self.stored = [pair for pair in self.stored if pair[1] != body]
        self.line_up()

    def hide(self, body: str, timeout_s: int) -> None:
        self.line_up()
        self.hidden[body] = self.clock.now() + timeout_s
        self.line_up()


@pytest.mark.parametrize("seed", range(20))
def test_any_history_delivers_what_the_laws_read_literally_deliver(
    clock: ManualClock, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over random sends, receives, deletes, changes and lapses, exactly the lawful messages come."""
    # Every other history has its heap rebuilt all the time, as otherwise only much longer ones have.
    monkeypatch.setattr("sqs_fifo_spark.local.store._HEAP_SLACK", 1_000 * (seed % 2))
    dice = random.Random(seed)
    queue = Bench(FifoModel(clock, in_flight_cap=20, scan_limit=30), clock)
    law = Literal(clock, cap=20, scan_limit=30)
    held: dict[str, dict[str, Any]] = {}
    for number in range(1_500):
        die = dice.random()
        if die < 0.3:
            group = f"g{dice.randrange(8)}"
            queue.send(group, str(number))
            law.send(group, str(number))
        elif die < 0.6:
            limit, timeout_s = dice.randint(1, 10), dice.randint(1, 20)
            received = queue.receive(limit, VisibilityTimeout=timeout_s)
            assert [message["Body"] for message in received] == law.receive(limit, timeout_s)
            held |= {message["Body"]: message for message in received}
        elif die < 0.7:
            clock.advance(dice.random() * 3)
        else:
            for body in dice.sample(sorted(held), min(len(held), 2)):
                lapsed = not law.is_hidden(body)
                message = held.pop(body)
                timeout_s = dice.choice([0, 0, 5, 40])
                change = queue.delete if die < 0.9 else lambda m, t=timeout_s: queue.hide(m, t)
                if lapsed:
                    refused(lambda c=change, m=message: c(m))  # type: ignore[misc]
                elif die < 0.9:
                    change(message)
                    law.delete(body)
                else:
                    change(message)
                    law.hide(body, timeout_s)
                    held[body] = message


# Visibility


def test_message_comes_back_when_its_visibility_timeout_lapses(queue: Bench) -> None:
    """A received message is hidden for exactly the timeout of its receive."""
    queue.send()
    queue.receive(VisibilityTimeout=5)
    queue.clock.advance(4.999)
    assert queue.bodies() == []
    queue.clock.advance(0.001)
    assert queue.bodies() == ["1"]


def test_receive_without_timeout_uses_the_queue_default_of_thirty_seconds(queue: Bench) -> None:
    """The queue's VisibilityTimeout is 30 s unless set, and serves receives that name none."""
    queue.send()
    queue.receive()
    queue.clock.advance(29)
    assert queue.bodies() == []
    queue.clock.advance(1)
    assert queue.bodies() == ["1"]


def test_change_visibility_sets_the_timeout_from_now(queue: Bench) -> None:
    """A new timeout counts from the change and is not added to the old one."""
    queue.send()
    message = queue.receive(VisibilityTimeout=100)[0]
    queue.clock.advance(50)
    queue.hide(message, 10)
    queue.clock.advance(10)
    assert queue.bodies() == ["1"]


def test_visibility_zero_releases_at_once_and_the_receive_still_counts(queue: Bench) -> None:
    """A release makes the message available again, with its receive counted."""
    queue.send()
    queue.hide(queue.receive()[0], 0)
    assert queue.receive()[0]["Attributes"]["ApproximateReceiveCount"] == "2"


def test_visibility_is_capped_at_twelve_hours_from_the_receive(queue: Bench) -> None:
    """Extensions past 43,200 s since the receive are refused in AWS's words, up to it they pass."""
    queue.send()
    message = queue.receive(VisibilityTimeout=43_200)[0]
    queue.clock.advance(1)
    queue.hide(message, 43_199)
    error = refused(lambda: queue.hide(message, 43_200))
    assert error.query_code == "InvalidParameterValue"
    assert error.message.endswith("Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds]")


def test_change_visibility_of_a_deleted_message_is_refused(queue: Bench) -> None:
    """What is gone cannot be hidden: InvalidParameterValue in AWS's words."""
    queue.send()
    message = queue.receive()[0]
    queue.delete(message)
    error = refused(lambda: queue.hide(message, 10))
    assert (error.query_code, error.status) == ("InvalidParameterValue", 400)
    assert error.message == (
        f"Value {message['ReceiptHandle']} for parameter ReceiptHandle is invalid. Reason: Message does not "
        "exist or is not available for visibility timeout change."
    )


def test_change_visibility_with_a_superseded_handle_is_refused(queue: Bench) -> None:
    """The handle of an earlier receive cannot touch what somebody else received since."""
    queue.send()
    old = queue.receive(VisibilityTimeout=1)[0]
    queue.clock.advance(1)
    queue.receive()
    assert refused(lambda: queue.hide(old, 10)).query_code == "InvalidParameterValue"


def test_change_visibility_of_a_lapsed_message_is_not_in_flight(queue: Bench) -> None:
    """A message that lapsed and waits to be received is MessageNotInflight."""
    queue.send()
    message = queue.receive(VisibilityTimeout=1)[0]
    queue.clock.advance(1)
    error = refused(lambda: queue.hide(message, 10))
    assert (error.shape, error.query_code) == (
        "MessageNotInflight",
        "AWS.SimpleQueueService.MessageNotInflight",
    )


def test_change_visibility_batch_answers_entry_by_entry(queue: Bench) -> None:
    """One bad entry fails alone; the others take effect."""
    queue.send_many("g", "1", "2")
    first, second = queue.receive()
    queue.delete(first)
    response = queue.call(
        "ChangeMessageVisibilityBatch",
        Entries=[
            {"Id": "a", "ReceiptHandle": first["ReceiptHandle"], "VisibilityTimeout": 5},
            {"Id": "b", "ReceiptHandle": second["ReceiptHandle"], "VisibilityTimeout": 0},
        ],
    )
    assert [entry["Id"] for entry in response["Successful"]] == ["b"]
    assert [(e["Id"], e["Code"], e["SenderFault"]) for e in response["Failed"]] == [
        ("a", "InvalidParameterValue", True)
    ]
    assert queue.bodies() == ["2"]


@pytest.mark.parametrize("action", ["DeleteMessage", "ChangeMessageVisibility"])
def test_handle_that_was_never_given_out_is_invalid(queue: Bench, action: str) -> None:
    """A made-up handle, and another queue's, are ReceiptHandleIsInvalid."""
    other = Bench(queue.model, queue.clock, "other.fifo")
    other.send()
    for handle in ("made-up", "é", other.receive()[0]["ReceiptHandle"]):
        error = refused(lambda h=handle: queue.call(action, ReceiptHandle=h, VisibilityTimeout=1))  # type: ignore[misc]
        assert error.query_code == "ReceiptHandleIsInvalid"


# Deleting


def test_delete_with_a_lapsed_handle_is_refused_and_the_message_comes_back(queue: Bench) -> None:
    """Recorded: InvalidParameterValue, "The receipt handle has expired."; the message stays."""
    queue.send()
    old = queue.receive(VisibilityTimeout=1)[0]
    queue.clock.advance(1)
    error = refused(lambda: queue.delete(old))
    assert (error.status, error.query_code) == (400, "InvalidParameterValue")
    assert error.message == (
        f"Value {old['ReceiptHandle']} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
    )
    new = queue.receive()[0]
    assert new["ReceiptHandle"] != old["ReceiptHandle"]
    assert new["Attributes"]["ApproximateReceiveCount"] == "2"


def test_delete_with_a_superseded_handle_is_refused(queue: Bench) -> None:
    """The handle of an earlier receive counts as expired while a later one is in flight."""
    queue.send()
    old = queue.receive(VisibilityTimeout=1)[0]
    queue.clock.advance(1)
    new = queue.receive()[0]
    assert "expired" in refused(lambda: queue.delete(old)).message
    queue.delete(new)


def test_delete_batch_words_an_expired_handle_otherwise(queue: Bench) -> None:
    """In a batch an expired handle is ReceiptHandleIsInvalid, "The receipt handle has expired"."""
    queue.send()
    old = queue.receive(VisibilityTimeout=1)[0]
    queue.clock.advance(1)
    response = queue.call("DeleteMessageBatch", Entries=[{"Id": "0", "ReceiptHandle": old["ReceiptHandle"]}])
    assert response == {
        "Successful": [],
        "Failed": [
            {
                "Id": "0",
                "Code": "ReceiptHandleIsInvalid",
                "Message": "The receipt handle has expired",
                "SenderFault": True,
            }
        ],
    }


def test_deleting_what_is_deleted_succeeds(queue: Bench) -> None:
    """A second delete with the same handle is no error, alone or in a batch."""
    queue.send()
    message = queue.receive()[0]
    queue.delete(message)
    queue.delete(message)
    response = queue.call("DeleteMessageBatch", Entries=[{"Id": "0", "ReceiptHandle": message["ReceiptHandle"]}])
    assert response == {"Successful": [{"Id": "0"}]}


def test_delete_with_a_handle_from_before_a_move_is_refused_as_expired(dead_letters: Bench) -> None:
    """What went to the dead-letter queue was not deleted, and no old handle says that it was."""
    source = redriven(dead_letters, 1)
    source.send_many("g", "1", "2")
    old, kept = source.receive(VisibilityTimeout=1)
    source.delete(kept)
    source.clock.advance(1)
    assert source.receive() == []
    assert refused(lambda: source.delete(old)).message.endswith("Reason: The receipt handle has expired.")
    response = source.call("DeleteMessageBatch", Entries=[{"Id": "0", "ReceiptHandle": old["ReceiptHandle"]}])
    assert response["Failed"][0]["Message"] == "The receipt handle has expired"
    assert "does not exist" in refused(lambda: source.hide(old, 5)).message
    source.delete(kept)
    assert dead_letters.bodies() == ["1"]


def test_handles_of_the_last_moved_messages_alone_are_known(
    dead_letters: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded: of more moves than are kept, the oldest counts as deleted."""
    monkeypatch.setattr("sqs_fifo_spark.local.fifo._MOVED_KEPT", 2)
    source = redriven(dead_letters, 1)
    for group in "abc":
        source.send(group)
    old = source.receive(VisibilityTimeout=0)
    assert source.receive() == []
    source.delete(old[0])
    for message in old[1:]:
        assert "expired" in refused(lambda m=message: source.delete(m)).message  # type: ignore[misc]


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        ([], "AWS.SimpleQueueService.EmptyBatchRequest"),
        (["a", "a"], "AWS.SimpleQueueService.BatchEntryIdsNotDistinct"),
        ([str(i) for i in range(11)], "AWS.SimpleQueueService.TooManyEntriesInBatchRequest"),
        (["a:b"], "AWS.SimpleQueueService.InvalidBatchEntryId"),
        (["x" * 81], "AWS.SimpleQueueService.InvalidBatchEntryId"),
    ],
)
@pytest.mark.parametrize("action", ["SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"])
def test_batch_of_the_wrong_form_is_refused_as_a_whole(queue: Bench, action: str, ids: list[str], code: str) -> None:
    """Empty batches, more than ten entries, repeated and malformed ids are errors of the call."""
    entries = [{"Id": i, "MessageBody": "b", "MessageGroupId": "g", "MessageDeduplicationId": "d"} for i in ids]
    assert refused(lambda: queue.call(action, Entries=entries)).query_code == code


# ReceiveRequestAttemptId


def test_repeated_attempt_returns_the_same_messages_and_handles_and_counts_no_receive(queue: Bench) -> None:
    """A repeat rescues what a lost answer held: same handles, same receive count."""
    queue.send_many("g", "1", "2")
    first = queue.receive(ReceiveRequestAttemptId="try")
    assert queue.receive(ReceiveRequestAttemptId="try") == first
    assert queue.receive(ReceiveRequestAttemptId="another") == []


def test_repeated_attempt_resets_the_visibility(queue: Bench) -> None:
    """The timeout counts from the last repeat."""
    queue.send()
    queue.receive(VisibilityTimeout=30, ReceiveRequestAttemptId="try")
    queue.clock.advance(20)
    queue.receive(VisibilityTimeout=30, ReceiveRequestAttemptId="try")
    queue.clock.advance(20)
    assert queue.bodies() == []
    queue.clock.advance(10)
    assert queue.bodies() == ["1"]


@pytest.mark.parametrize("change", ["delete", "hide", "release"])
def test_attempt_is_void_once_one_of_its_messages_was_changed(queue: Bench, change: str) -> None:
    """After a delete or a change of visibility, the id raises an error in AWS's words."""
    queue.send_many("g", "1", "2")
    message = queue.receive(ReceiveRequestAttemptId="try")[0]
    if change == "delete":
        queue.delete(message)
    else:
        queue.hide(message, 60 if change == "hide" else 0)
    error = refused(lambda: queue.receive(ReceiveRequestAttemptId="try"))
    assert error.query_code == "InvalidParameterValue"
    assert "receiveRequestAttemptId is not valid anymore since the receive call is not retryable" in error.message


def test_void_attempt_id_may_be_used_again_after_five_minutes(queue: Bench) -> None:
    """Attempt ids are remembered for five minutes, void ones too."""
    queue.send_many("g", "1", "2")
    queue.delete(queue.receive(1, ReceiveRequestAttemptId="try")[0])
    queue.clock.advance(300)
    assert queue.bodies(ReceiveRequestAttemptId="try") == ["2"]


def test_attempt_whose_visibility_lapsed_is_a_fresh_receive(queue: Bench) -> None:
    """After the timeout the same id receives anew: another handle, another count."""
    queue.send()
    first = queue.receive(VisibilityTimeout=5, ReceiveRequestAttemptId="try")[0]
    queue.clock.advance(5)
    second = queue.receive(VisibilityTimeout=5, ReceiveRequestAttemptId="try")[0]
    assert second["ReceiptHandle"] != first["ReceiptHandle"]
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"


@pytest.mark.parametrize("change", ["delete", "hide"])
def test_attempt_is_void_when_somebody_else_changed_what_it_lost(queue: Bench, change: str) -> None:
    """Lapsed, received by another and deleted or extended: the id is void all the same."""
    queue.send()
    queue.receive(VisibilityTimeout=5, ReceiveRequestAttemptId="try")
    queue.clock.advance(5)
    message = queue.receive(ReceiveRequestAttemptId="another")[0]
    if change == "delete":
        queue.delete(message)
    else:
        queue.hide(message, 60)
    assert "not retryable" in refused(lambda: queue.receive(ReceiveRequestAttemptId="try")).message


def test_attempt_made_anew_is_remembered_for_its_own_five_minutes(queue: Bench) -> None:
    """Using an id again after its messages lapsed starts its five minutes again."""
    queue.send()
    queue.receive(VisibilityTimeout=5, ReceiveRequestAttemptId="try")
    queue.clock.advance(100)
    again = queue.receive(VisibilityTimeout=1_000, ReceiveRequestAttemptId="try")
    queue.clock.advance(299)
    assert queue.receive(VisibilityTimeout=1_000, ReceiveRequestAttemptId="try") == again


def test_attempt_is_forgotten_after_five_minutes(queue: Bench) -> None:
    """Past five minutes the id finds nothing of what is still in flight."""
    queue.send()
    queue.receive(VisibilityTimeout=1_000, ReceiveRequestAttemptId="try")
    queue.clock.advance(300)
    assert queue.receive(ReceiveRequestAttemptId="try") == []


def test_repeat_cannot_hide_messages_past_twelve_hours(queue: Bench) -> None:
    """A repeat hides to twelve hours after the receive at most, like any extension."""
    queue.send()
    queue.receive(VisibilityTimeout=43_200, ReceiveRequestAttemptId="try")
    queue.clock.advance(200)
    queue.receive(VisibilityTimeout=43_200, ReceiveRequestAttemptId="try")
    queue.clock.advance(43_000)
    assert queue.bodies() == ["1"]


# Sending


@pytest.mark.parametrize("value", ["", "a b", "x" * 129, "é", "a\n"])
@pytest.mark.parametrize("parameter", ["MessageGroupId", "MessageDeduplicationId"])
def test_ids_outside_printable_ascii_or_128_characters_are_refused(queue: Bench, parameter: str, value: str) -> None:
    """Group and deduplication ids are 1 to 128 of letters, digits and punctuation; an empty one is not absent."""
    error = refused(lambda: queue.send(**{parameter: value}))
    assert error.query_code == "InvalidParameterValue"
    assert error.message.startswith(f"Value {value} for parameter {parameter} is invalid.")


def test_empty_ids_are_invalid_where_none_are_needed_too(model: FifoModel, clock: ManualClock) -> None:
    """Neither the body's digest nor a standard queue's indifference stands in for an empty id."""
    content = Bench(model, clock, "content.fifo", ContentBasedDeduplication="true")
    plain = Bench(model, clock, "plain")
    for send in (
        lambda: content.send(MessageDeduplicationId=""),
        lambda: plain.send("", MessageDeduplicationId=None),
    ):
        assert refused(send).query_code == "InvalidParameterValue"
    assert content.receive() + plain.receive() == []


def test_ids_of_128_characters_of_all_punctuation_are_taken(queue: Bench) -> None:
    """Every printable ASCII character but the space may stand in an id."""
    value = "".join(map(chr, range(33, 127))) + "x" * 34
    queue.send(value, MessageDeduplicationId=value)
    assert queue.receive()[0]["Attributes"]["MessageGroupId"] == value


def test_send_without_group_is_missing_parameter(queue: Bench) -> None:
    """A FIFO queue wants a MessageGroupId."""
    error = refused(lambda: queue.send(MessageGroupId=None))
    assert error.query_code == "MissingParameter"
    assert error.message == "The request must contain the parameter MessageGroupId."


def test_send_without_deduplication_id_is_refused_unless_content_based(queue: Bench) -> None:
    """Without ContentBasedDeduplication each message needs its MessageDeduplicationId."""
    error = refused(lambda: queue.send(MessageDeduplicationId=None))
    assert error.query_code == "InvalidParameterValue"
    assert error.message == (
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
    )


def test_empty_body_is_missing_parameter(queue: Bench) -> None:
    """A body has at least one character."""
    assert refused(lambda: queue.send(MessageBody="")).query_code == "MissingParameter"


@pytest.mark.parametrize("character", ["\x00", "\x0b", "\x1f", "\ud800", "\ufffe", "\uffff"])
def test_characters_outside_xml_are_invalid_contents(queue: Bench, character: str) -> None:
    """Control characters, surrogates and non-characters are refused, in bodies and attributes."""
    value = {"DataType": "String", "StringValue": character}
    for request in ({"MessageBody": character}, {"MessageAttributes": {"a": value}}):
        assert refused(lambda r=request: queue.send(**r)).query_code == "InvalidMessageContents"  # type: ignore[misc]


def test_all_xml_characters_are_taken(queue: Bench) -> None:
    """Tab, line ends, and both ends of the other ranges arrive as they were sent."""
    body = "\t\n\r \ud7ff\ue000\ufffd\U00010000\U0010ffff"
    queue.send(body=body)
    assert queue.bodies() == [body]


def test_message_size_counts_bytes_of_body_and_attributes(queue: Bench) -> None:
    """Body, names, types and values count, in UTF-8 bytes, up to 1,048,576 in all."""
    attributes = {
        "ne": {"DataType": "String", "StringValue": "é"},
        "b": {"DataType": "Binary", "BinaryValue": "AAEC"},
    }
    attribute_bytes = (2 + 6 + 2) + (1 + 6 + 3)
    room = 1_048_576 - attribute_bytes
    queue.send(body="é" * (room // 2), MessageAttributes=attributes)
    error = refused(lambda: queue.send(body="é" * (room // 2) + "x", MessageAttributes=attributes))
    assert error.query_code == "InvalidParameterValue"
    assert "Message must be shorter than 1048576 bytes" in error.message


def test_batch_size_counts_all_entries_together(queue: Bench) -> None:
    """Entries that are small enough alone are refused together past 1,048,576 bytes."""

    def entries(size: int) -> list[dict[str, Any]]:
        return [
            {
                "Id": i,
                "MessageBody": "x" * size,
                "MessageGroupId": "g",
                "MessageDeduplicationId": f"{size}{i}",
            }
            for i in "ab"
        ]

    assert len(queue.call("SendMessageBatch", Entries=entries(524_288))["Successful"]) == 2
    error = refused(lambda: queue.call("SendMessageBatch", Entries=entries(524_289)))
    assert error.query_code == "AWS.SimpleQueueService.BatchRequestTooLong"
    assert error.message == "Batch requests cannot be longer than 1048576 bytes. You have sent 1048578 bytes."


def test_more_than_ten_attributes_are_refused(queue: Bench) -> None:
    """A message has at most ten attributes."""
    value = {"DataType": "String", "StringValue": "v"}
    queue.send(MessageAttributes={f"a{i}": value for i in range(10)})
    error = refused(lambda: queue.send(MessageAttributes={f"a{i}": value for i in range(11)}))
    assert error.query_code == "InvalidParameterValue"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a", {"DataType": "Text", "StringValue": "v"}),
        ("a", {"DataType": "", "StringValue": "v"}),
        ("a", {"DataType": "String", "StringValue": ""}),
        ("a", {"DataType": "Number", "StringValue": "ten"}),
        ("a", {"DataType": "Number", "StringValue": "\u0663"}),
        ("a", {"DataType": "Number", "StringValue": "-1.1e126"}),
        ("a", {"DataType": "Number.int", "StringValue": "1e-129"}),
        ("a", {"DataType": "Number", "StringValue": "1e" + "9" * 30}),
        ("a", {"DataType": "Number", "StringValue": "1" * 39}),
        ("a", {"DataType": "Binary"}),
        ("a b", {"DataType": "String", "StringValue": "v"}),
        (".a", {"DataType": "String", "StringValue": "v"}),
        ("AWS.a", {"DataType": "String", "StringValue": "v"}),
    ],
)
def test_malformed_attributes_are_refused(queue: Bench, name: str, value: dict[str, str]) -> None:
    """Attributes have an allowed name, one of three types, and a value of it."""
    error = refused(lambda: queue.send(MessageAttributes={name: value}))
    assert error.query_code == "InvalidParameterValue"


@pytest.mark.parametrize("number", ["-1e126", "1E-128", "0e300", "0.0", "1" * 38, "1" + "0" * 126, "+.5"])
def test_numbers_up_to_the_documented_bounds_are_taken(queue: Bench, number: str) -> None:
    """As they are: 38 digits, from 10**-128 to 10**126."""
    value = {"DataType": "Number", "StringValue": number}
    queue.send(MessageAttributes={"a": value})
    (message,) = queue.receive(MessageAttributeNames=["All"])
    assert message["MessageAttributes"]["a"] == value


def test_duplicate_within_five_minutes_returns_the_first_ids_and_delivers_nothing(queue: Bench) -> None:
    """A second send with the same id succeeds with the first one's ids; after five minutes it is new."""
    first = queue.send(MessageDeduplicationId="d")
    queue.clock.advance(299)
    again = queue.send(MessageDeduplicationId="d")
    assert (again["MessageId"], again["SequenceNumber"]) == (first["MessageId"], first["SequenceNumber"])
    assert len(queue.receive()) == 1
    queue.clock.advance(1)
    assert queue.send(MessageDeduplicationId="d")["MessageId"] != first["MessageId"]


def test_duplicate_is_recognised_after_receive_and_delete(queue: Bench) -> None:
    """Deleting a message does not forget its deduplication id."""
    queue.send(MessageDeduplicationId="d")
    queue.delete(queue.receive()[0])
    queue.send(MessageDeduplicationId="d")
    assert queue.receive() == []


def test_deduplication_by_content_looks_at_the_body_alone(model: FifoModel, clock: ManualClock) -> None:
    """SHA-256 of the body is the id, whatever the attributes; an explicit id overrides it."""
    queue = Bench(model, clock, "content.fifo", ContentBasedDeduplication="true")
    value = {"DataType": "String", "StringValue": "v"}
    queue.send(body="same", MessageDeduplicationId=None)
    queue.send(body="same", MessageDeduplicationId=None, MessageAttributes={"a": value})
    queue.send(body="same", MessageDeduplicationId="explicit")
    queue.send(body="other", MessageDeduplicationId=hashlib.sha256(b"same").hexdigest())
    ids = [message["Attributes"]["MessageDeduplicationId"] for message in queue.receive()]
    assert ids == [hashlib.sha256(b"same").hexdigest(), "explicit"]


def test_deduplication_scope_is_the_queue_by_default(queue: Bench) -> None:
    """The same id in another group is a duplicate too."""
    queue.send("g", MessageDeduplicationId="d")
    queue.send("h", MessageDeduplicationId="d")
    assert len(queue.receive()) == 1


def test_deduplication_scope_may_be_the_group(model: FifoModel, clock: ManualClock) -> None:
    """With DeduplicationScope=messageGroup the same id serves once in each group."""
    queue = Bench(model, clock, "scoped.fifo", DeduplicationScope="messageGroup")
    for group in ("g", "h", "g"):
        queue.send(group, MessageDeduplicationId="d")
    assert len(queue.receive()) == 2


def test_ids_stay_recognised_under_the_scope_at_which_they_were_sent(queue: Bench) -> None:
    """After a change of DeduplicationScope, old ids hold where they held before, new ones in the new scope."""
    queue.send("g", MessageDeduplicationId="wide")
    queue.call("SetQueueAttributes", Attributes={"DeduplicationScope": "messageGroup"})
    queue.send("h", "duplicate", MessageDeduplicationId="wide")
    queue.send("g", "narrow", MessageDeduplicationId="narrow")
    queue.send("h", "other narrow", MessageDeduplicationId="narrow")
    queue.call("SetQueueAttributes", Attributes={"DeduplicationScope": "queue"})
    queue.send("h", "duplicate", MessageDeduplicationId="narrow")
    queue.send("i", "new", MessageDeduplicationId="narrow")
    queue.send("j", "duplicate", MessageDeduplicationId="narrow")
    assert queue.bodies() == ["1", "narrow", "other narrow", "new"]
    queue.clock.advance(300)
    assert queue.send("j", MessageDeduplicationId="narrow")["MessageId"] == queue.receive()[-1]["MessageId"]


def test_high_throughput_needs_deduplication_per_group(model: FifoModel, clock: ManualClock) -> None:
    """FifoThroughputLimit=perMessageGroupId goes only with DeduplicationScope=messageGroup."""
    limit = "perMessageGroupId"
    error = refused(lambda: Bench(model, clock, "a.fifo", FifoThroughputLimit=limit))
    assert error.query_code == "InvalidAttributeValue"
    Bench(model, clock, "b.fifo", FifoThroughputLimit=limit, DeduplicationScope="messageGroup")


def test_send_batch_can_accept_an_entry_after_a_failed_one(queue: Bench) -> None:
    """Entry 3 is stored though entry 2 failed: sent again, 2 stands behind 3."""
    entries = [
        {"Id": str(i), "MessageBody": body, "MessageGroupId": "g", "MessageDeduplicationId": str(i)}
        for i, body in enumerate(["1", "\x00", "3"])
    ]
    response = queue.call("SendMessageBatch", Entries=entries)
    assert [entry["Id"] for entry in response["Successful"]] == ["0", "2"]
    assert [(e["Id"], e["Code"], e["SenderFault"]) for e in response["Failed"]] == [
        ("1", "InvalidMessageContents", True)
    ]
    assert queue.bodies() == ["1", "3"]


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("MessageGroupId", "The request must contain the parameter MessageGroupId."),
        ("MessageDeduplicationId", "The queue should either have ContentBasedDeduplication enabled or"),
    ],
)
def test_send_batch_fails_as_a_whole_when_an_entry_lacks_an_id(queue: Bench, missing: str, message: str) -> None:
    """Recorded: an id that is needed and absent is an error of the call, and nothing was sent."""
    entries = [
        {"Id": str(i), "MessageBody": "b", "MessageGroupId": "g", "MessageDeduplicationId": str(i)} for i in range(3)
    ]
    del entries[1][missing]
    error = refused(lambda: queue.call("SendMessageBatch", Entries=entries))
    assert (error.query_code, error.message[: len(message)]) == ("InvalidParameterValue", message)
    assert queue.receive() == []


def test_entry_with_an_empty_id_fails_alone(queue: Bench) -> None:
    """An empty id is there, and invalid: the other entries are sent."""
    entries = [
        {"Id": str(i), "MessageBody": body, "MessageGroupId": body, "MessageDeduplicationId": f"{i}"}
        for i, body in enumerate("ab")
    ]
    entries[0]["MessageGroupId"] = ""
    response = queue.call("SendMessageBatch", Entries=entries)
    assert [(entry["Id"], entry["Code"]) for entry in response["Failed"]] == [("0", "InvalidParameterValue")]
    assert queue.bodies() == ["b"]


def test_batch_on_a_content_based_queue_needs_no_deduplication_ids(model: FifoModel, clock: ManualClock) -> None:
    """Where the body gives the id, an entry without one lacks nothing."""
    queue = Bench(model, clock, "content.fifo", ContentBasedDeduplication="true")
    entries = [{"Id": str(i), "MessageBody": str(i), "MessageGroupId": "g"} for i in range(2)]
    assert len(queue.call("SendMessageBatch", Entries=entries)["Successful"]) == 2


def test_delay_of_a_single_message_is_refused_on_fifo(queue: Bench) -> None:
    """DelaySeconds belongs to the queue on FIFO."""
    error = refused(lambda: queue.send(DelaySeconds=2))
    assert error.message == (
        "Value 2 for parameter DelaySeconds is invalid. Reason: The request include parameter that is not "
        "valid for this queue type."
    )


def test_queue_delay_hides_new_messages(model: FifoModel, clock: ManualClock) -> None:
    """With DelaySeconds on the queue, a message is counted as delayed and comes after it."""
    queue = Bench(model, clock, "slow.fifo", DelaySeconds="5")
    queue.send()
    assert queue.attributes()["ApproximateNumberOfMessagesDelayed"] == "1"
    assert queue.bodies() == []
    clock.advance(5)
    assert queue.bodies() == ["1"]


def test_delay_of_zero_leaves_the_delay_of_a_fifo_queue_in_force(model: FifoModel, clock: ManualClock) -> None:
    """DelaySeconds=0 overrides the queue's delay on a standard queue, and says nothing on a FIFO one."""
    fifo, standard = (Bench(model, clock, name, DelaySeconds="5") for name in ("slow.fifo", "slow"))
    fifo.send(DelaySeconds=0)
    standard.send(DelaySeconds=0, MessageDeduplicationId=None)
    assert fifo.bodies() == []
    assert standard.bodies() == ["1"]


def test_change_of_the_delay_holds_for_messages_that_are_there(queue: Bench) -> None:
    """On FIFO what was never received shows the new delay after it was sent; what was received is left alone."""
    queue.send("received", "received")
    queue.hide(queue.receive()[0], 0)
    queue.send("waits", "waits")
    queue.clock.advance(4)
    queue.call("SetQueueAttributes", Attributes={"DelaySeconds": "10"})
    assert queue.attributes()["ApproximateNumberOfMessagesDelayed"] == "1"
    assert queue.bodies(VisibilityTimeout=600) == ["received"]
    queue.clock.advance(6)
    assert queue.bodies(VisibilityTimeout=600) == ["waits"]
    queue.send("late", "late")
    queue.call("SetQueueAttributes", Attributes={"DelaySeconds": "1"})
    queue.clock.advance(1)
    assert queue.bodies(VisibilityTimeout=600) == ["late"]
    queue.call("SetQueueAttributes", Attributes={"DelaySeconds": "900"})
    queue.send("last", "last")
    queue.call("SetQueueAttributes", Attributes={"DelaySeconds": "0"})
    assert queue.bodies() == ["last"]


def test_change_of_a_standard_queues_delay_holds_for_new_messages_alone(model: FifoModel, clock: ManualClock) -> None:
    """Only FIFO queues apply a new delay to what they hold."""
    queue = Bench(model, clock, "plain")
    queue.send(MessageDeduplicationId=None)
    queue.call("SetQueueAttributes", Attributes={"DelaySeconds": "10"})
    queue.send(MessageDeduplicationId=None)
    assert queue.bodies() == ["1"]


def test_messages_expire_after_the_retention_period_in_flight_or_not(model: FifoModel, clock: ManualClock) -> None:
    """Retention counts from the send; it takes in-flight messages too, and frees their group."""
    queue = Bench(model, clock, "short.fifo", MessageRetentionPeriod="60")
    queue.send_many("g", "1", "2")
    message = queue.receive(1, VisibilityTimeout=600)[0]
    clock.advance(30)
    queue.send_many("g", "3")
    clock.advance(30)
    assert queue.bodies() == ["3"]
    queue.delete(message)


# What a received message shows


def test_system_attributes_tell_the_message_story(queue: Bench) -> None:
    """Times are in milliseconds, the first receive stays, the count grows."""
    sent = queue.send("g", MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}})
    queue.clock.advance(2.5)
    queue.receive(VisibilityTimeout=1)
    queue.clock.advance(1)
    start = 1_700_000_000_000
    shown = dict(queue.receive()[0]["Attributes"])
    assert shown.pop("SenderId")
    assert shown == {
        "SentTimestamp": str(start),
        "ApproximateReceiveCount": "2",
        "ApproximateFirstReceiveTimestamp": str(start + 2_500),
        "SequenceNumber": sent["SequenceNumber"],
        "MessageGroupId": "g",
        "MessageDeduplicationId": "d1",
        "AWSTraceHeader": "Root=1",
    }


@pytest.mark.parametrize("parameter", ["MessageSystemAttributeNames", "AttributeNames"])
def test_system_attributes_are_returned_as_asked(queue: Bench, parameter: str) -> None:
    """The new and the old parameter both select, and nothing comes unasked."""
    queue.send()
    shown = queue.call("ReceiveMessage", VisibilityTimeout=0, **{parameter: ["MessageGroupId"]})
    assert shown["Messages"][0]["Attributes"] == {"MessageGroupId": "g"}
    assert "Attributes" not in queue.call("ReceiveMessage")["Messages"][0]


@pytest.mark.parametrize(
    ("wanted", "names", "md5"),
    [
        (["All"], {"General", "Hello", "Help.Me"}, "4c360f3fdafd970e05fae2f149d997f5"),
        ([".*"], {"General", "Hello", "Help.Me"}, "4c360f3fdafd970e05fae2f149d997f5"),
        (["*"], {"General", "Hello", "Help.Me"}, "4c360f3fdafd970e05fae2f149d997f5"),
        (["Hello", "General"], {"General", "Hello"}, "fca026605781cb4126a1e9044df24232"),
        (["Hello", "Missing"], {"Hello"}, "a311262e065454b75da111d535b8dacd"),
        (["Hel.*"], {"Hello", "Help.Me"}, "83fee93c1bcd8b9a5a923ffacdc636c7"),
        (["Missing", "Help"], set(), None),
        (["AWS."], set(), None),
        (["..foo"], set(), None),
        ([], set(), None),
    ],
)
def test_message_attributes_are_returned_as_asked(
    queue: Bench, wanted: list[str], names: set[str], md5: str | None
) -> None:
    """Names, prefixes, All, .* and * select; the MD5, recorded from AWS, is that of what is returned."""
    values = {"General": "Kenobi", "Hello": "There", "Help.Me": "Me"}
    queue.send(MessageAttributes={k: {"DataType": "String", "StringValue": v} for k, v in values.items()})
    message = queue.receive(MessageAttributeNames=wanted)[0]
    assert set(message.get("MessageAttributes", {})) == names
    assert message.get("MD5OfMessageAttributes") == md5


def test_md5s_are_computed_as_aws_does(queue: Bench) -> None:
    """Recorded digests of a body and of a binary attribute; system attributes have their own."""
    value = "dHJhY2VwYXJlbnQeMDAtNzc0MDYyZDZjMzcwODFhNWEwYjliNWI4OGUzMDYyN2MtMmQyNDgyMjExZjY0ODlkYS0wMQ=="
    sent = queue.send(
        body="test",
        MessageAttributes={"attr1": {"DataType": "Binary", "BinaryValue": value}},
        MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}},
    )
    assert sent["MD5OfMessageBody"] == "098f6bcd4621d373cade4e832627b4f6"
    assert sent["MD5OfMessageAttributes"] == "8cbe4db156db8a94db8b801b7addb984"
    assert re.fullmatch("[0-9a-f]{32}", sent["MD5OfMessageSystemAttributes"])


def test_no_repr_shows_a_body(queue: Bench) -> None:
    """Bodies are somebody's data: events and errors never hold them."""
    told: list[Event] = []
    queue.model.on_event(told.append)
    queue.send(body="secret-body")
    queue.receive()
    error = refused(lambda: queue.send(body="secret-body" + "\x00"))
    assert "secret-body" not in f"{told!r}{error!r}{error}"


# Dead-letter queues


@pytest.fixture
def dead_letters(model: FifoModel, clock: ManualClock) -> Bench:
    return Bench(model, clock, "dead.fifo")


def redriven(dead_letters: Bench, count: int) -> Bench:
    policy = {"deadLetterTargetArn": dead_letters.attributes()["QueueArn"], "maxReceiveCount": count}
    return Bench(dead_letters.model, dead_letters.clock, "source.fifo", RedrivePolicy=json.dumps(policy))


def test_message_past_its_receive_count_moves_to_the_dead_letter_queue_on_the_next_receive(
    dead_letters: Bench,
) -> None:
    """After maxReceiveCount receives it moves, not earlier, and what follows in its group is freed."""
    source = redriven(dead_letters, 2)
    source.send_many("g", "1", "2")
    for _ in range(2):
        assert source.bodies(1, VisibilityTimeout=1) == ["1"]
        source.clock.advance(1)
    assert dead_letters.receive() == []
    assert source.bodies() == ["2"]
    assert dead_letters.bodies() == ["1"]


def test_moved_message_has_new_time_sequence_and_deduplication_id(dead_letters: Bench) -> None:
    """The move sets enqueue time, sequence number, dedup id = message id, and the source's ARN."""
    source = redriven(dead_letters, 1)
    sent = source.send("g")
    source.receive(VisibilityTimeout=1)
    source.clock.advance(5)
    assert source.receive() == []
    moved = dead_letters.receive()[0]
    shown = moved["Attributes"]
    assert moved["MessageId"] == sent["MessageId"]
    assert shown["MessageDeduplicationId"] == sent["MessageId"]
    assert shown["MessageGroupId"] == "g"
    assert shown["SequenceNumber"] != sent["SequenceNumber"]
    assert shown["SentTimestamp"] == "1700000005000"
    assert shown["DeadLetterQueueSourceArn"] == source.attributes()["QueueArn"]


def test_receives_before_the_move_do_not_count_against_the_next_policy(dead_letters: Bench) -> None:
    """A dead-letter queue with a policy of its own delivers what was moved to it as often as it says."""
    last = Bench(dead_letters.model, dead_letters.clock, "last.fifo")
    policy = {"deadLetterTargetArn": last.attributes()["QueueArn"], "maxReceiveCount": 1}
    dead_letters.call("SetQueueAttributes", Attributes={"RedrivePolicy": json.dumps(policy)})
    source = redriven(dead_letters, 2)
    source.send()
    for _ in range(3):
        source.receive(VisibilityTimeout=1)
        source.clock.advance(1)
    message = dead_letters.receive(VisibilityTimeout=1)[0]
    assert message["Attributes"]["ApproximateReceiveCount"] == "3"
    source.clock.advance(1)
    assert dead_letters.receive() == []
    assert len(last.receive()) == 1


def test_release_counts_towards_the_dead_letter_queue(dead_letters: Bench) -> None:
    """A message that was received and released has been received."""
    source = redriven(dead_letters, 1)
    source.send()
    source.hide(source.receive()[0], 0)
    assert source.receive() == []
    assert len(dead_letters.receive()) == 1


@pytest.mark.parametrize(
    "policy",
    [
        "no json",
        "[]",
        '{"maxReceiveCount": 1}',
        '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead.fifo"}',
        '{"deadLetterTargetArn": "dummy", "maxReceiveCount": 42}',
        '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:none.fifo", "maxReceiveCount": 1}',
        '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:plain", "maxReceiveCount": 1}',
        '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead.fifo", "maxReceiveCount": 0}',
    ],
)
def test_redrive_policy_must_name_a_fifo_queue_and_a_count(dead_letters: Bench, policy: str) -> None:
    """A dead-letter queue must exist and be FIFO, and the count be from 1 to 1000."""
    Bench(dead_letters.model, dead_letters.clock, "plain")
    for set_it in (
        lambda: dead_letters.call("SetQueueAttributes", Attributes={"RedrivePolicy": policy}),
        lambda: Bench(dead_letters.model, dead_letters.clock, "new.fifo", RedrivePolicy=policy),
    ):
        assert refused(set_it).query_code == "InvalidParameterValue"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VisibilityTimeout", "9" * 5_000),
        ("DelaySeconds", "1" * 5_000),
        ("RedrivePolicy", "[" * 200_000),
        (
            "RedrivePolicy",
            '{"deadLetterTargetArn": "arn:aws:sqs:r:0:q", "maxReceiveCount": "' + "9" * 5_000 + '"}',
        ),
        ("RedrivePolicy", '{"deadLetterTargetArn": "arn:aws:sqs:r:0:q", "maxReceiveCount": ' + "9" * 5_000 + "}"),
    ],
)
def test_an_attribute_beyond_all_measure_is_refused(queue: Bench, name: str, value: str) -> None:
    """As any wrong one, by the rules, and not by what Python cannot read."""
    assert refused(lambda: queue.call("SetQueueAttributes", Attributes={name: value})).status == 400


def test_other_attributes_may_be_set_after_the_dead_letter_queue_is_gone(dead_letters: Bench) -> None:
    """A redrive policy is checked when it is given, not whenever something else is."""
    source = redriven(dead_letters, 1)
    policy = source.attributes()["RedrivePolicy"]
    dead_letters.call("DeleteQueue")
    source.call("SetQueueAttributes", Attributes={"VisibilityTimeout": "7"})
    assert source.attributes()["VisibilityTimeout"] == "7"
    error = refused(lambda: source.call("SetQueueAttributes", Attributes={"RedrivePolicy": policy}))
    assert "Dead letter target does not exist." in error.message


# Queues


@pytest.mark.parametrize("written", ["true", "True", "TRUE"])
def test_booleans_are_taken_in_any_case_and_shown_in_lower_case(
    model: FifoModel, clock: ManualClock, written: str
) -> None:
    """What was created with True is found again with true."""
    names = ("FifoQueue", "ContentBasedDeduplication", "SqsManagedSseEnabled")
    queue = Bench(model, clock, "a.fifo", **dict.fromkeys(names, written))
    assert {queue.attributes()[name] for name in names} == {"true"}
    assert Bench(model, clock, "a.fifo", **dict.fromkeys(names, "true")).url == queue.url
    queue.send(MessageDeduplicationId=None)
    queue.call("SetQueueAttributes", Attributes={"ContentBasedDeduplication": "False", "SqsManagedSseEnabled": "FALSE"})
    assert {queue.attributes()[name] for name in names[1:]} == {"false"}
    assert refused(lambda: queue.send(MessageDeduplicationId=None)).query_code == "InvalidParameterValue"
    for name in names:
        error = refused(lambda n=name: queue.call("SetQueueAttributes", Attributes={n: "yes"}))  # type: ignore[misc]
        assert error.query_code == "InvalidAttributeValue"


@pytest.mark.parametrize("written", ["false", "False"])
def test_type_of_a_queue_cannot_be_modified(queue: Bench, written: str) -> None:
    """Taking FifoQueue away is InvalidAttributeValue; a standard queue does not know the attribute."""
    for call in (
        lambda: queue.call("SetQueueAttributes", Attributes={"FifoQueue": written}),
        lambda: Bench(queue.model, queue.clock, queue.name, FifoQueue=written),
    ):
        error = refused(call)
        assert str(error) == (
            "InvalidAttributeValue: Invalid value for the parameter FifoQueue. "
            "Reason: Modifying queue type is not supported."
        )
    queue.call("SetQueueAttributes", Attributes={"FifoQueue": "true"})
    plain = Bench(queue.model, queue.clock, "plain")
    for value in (written, "true"):
        error = refused(lambda v=value: plain.call("SetQueueAttributes", Attributes={"FifoQueue": v}))  # type: ignore[misc]
        assert str(error) == "InvalidAttributeName: Unknown Attribute FifoQueue."


def test_create_queue_is_idempotent_with_the_same_attributes(queue: Bench) -> None:
    """Creating again with the same or fewer attributes finds the queue; other values are refused."""
    again = Bench(queue.model, queue.clock, queue.name, VisibilityTimeout="30")
    assert again.url == queue.url
    error = refused(lambda: Bench(queue.model, queue.clock, queue.name, VisibilityTimeout="31"))
    assert (error.shape, error.query_code) == ("QueueNameExists", "QueueAlreadyExists")


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("plain", {"FifoQueue": "true"}),
        ("a.fifo", {}),
        ("a b.fifo", {"FifoQueue": "true"}),
        ("x" * 76 + ".fifo", {"FifoQueue": "true"}),
        ("a", {"FifoQueue": "false"}),
        ("a", {"ContentBasedDeduplication": "true"}),
        ("a.fifo", {"FifoQueue": "true", "VisibilityTimeout": "43201"}),
        ("a.fifo", {"FifoQueue": "true", "Colour": "red"}),
    ],
)
def test_create_queue_refuses_bad_names_and_attributes(model: FifoModel, name: str, attributes: dict[str, str]) -> None:
    """FIFO names end in .fifo with FifoQueue=true, and attributes are known and in range."""
    error = refused(lambda: model.call("CreateQueue", {"QueueName": name, "Attributes": attributes}))
    assert error.query_code in ("InvalidParameterValue", "InvalidAttributeName", "InvalidAttributeValue")


def test_queue_attributes_show_counts_times_and_settings(queue: Bench) -> None:
    """Counts of visible and in-flight messages are exact here, times in whole seconds."""
    queue.send_many("g", "1", "2", "3")
    queue.receive(1)
    shown = queue.attributes()
    assert shown["ApproximateNumberOfMessages"] == "2"
    assert shown["ApproximateNumberOfMessagesNotVisible"] == "1"
    assert shown["QueueArn"] == "arn:aws:sqs:us-east-1:000000000000:orders.fifo"
    assert shown["CreatedTimestamp"] == "1700000000"
    assert shown["FifoQueue"] == "true"
    assert shown["VisibilityTimeout"] == "30"
    assert queue.call("GetQueueAttributes", AttributeNames=["FifoQueue"]) == {"Attributes": {"FifoQueue": "true"}}
    error = refused(lambda: queue.call("GetQueueAttributes", AttributeNames=["Colour"]))
    assert error.query_code == "InvalidAttributeName"


def test_set_queue_attributes_changes_only_what_it_names(queue: Bench) -> None:
    """Set attributes take effect, the others stay."""
    queue.call("SetQueueAttributes", Attributes={"VisibilityTimeout": "7"})
    queue.clock.advance(3)
    queue.call("SetQueueAttributes", Attributes={"DelaySeconds": "1"})
    shown = queue.attributes()
    assert (shown["VisibilityTimeout"], shown["DelaySeconds"]) == ("7", "1")
    assert shown["LastModifiedTimestamp"] == "1700000003"


def test_purge_empties_the_queue_and_waits_a_minute_before_the_next(queue: Bench) -> None:
    """A purge takes messages in flight too; a second one within 60 s is refused."""
    queue.send_many("g", "1", "2")
    queue.receive(1)
    queue.call("PurgeQueue")
    assert queue.attributes()["ApproximateNumberOfMessagesNotVisible"] == "0"
    assert refused(lambda: queue.call("PurgeQueue")).shape == "PurgeQueueInProgress"
    queue.clock.advance(60)
    queue.call("PurgeQueue")


def test_purge_forgets_deduplication_ids(queue: Bench) -> None:
    """Recorded: what was sent before a purge may be sent again at once, and is remembered anew."""
    queue.send("g", "old", MessageDeduplicationId="d")
    queue.clock.advance(200)
    queue.call("PurgeQueue")
    queue.send("g", "new", MessageDeduplicationId="d")
    queue.clock.advance(200)
    queue.send("g", "duplicate", MessageDeduplicationId="d")
    assert queue.bodies() == ["new"]


def test_deleted_queue_does_not_exist(queue: Bench) -> None:
    """After DeleteQueue, every call on it is QueueDoesNotExist with the old code."""
    queue.call("DeleteQueue")
    error = refused(queue.receive)
    assert (error.shape, error.query_code) == (
        "QueueDoesNotExist",
        "AWS.SimpleQueueService.NonExistentQueue",
    )
    assert refused(lambda: queue.model.call("GetQueueUrl", {"QueueName": queue.name})).shape == error.shape


def test_list_queues_pages_by_name(model: FifoModel, clock: ManualClock) -> None:
    """Queues are listed by prefix, and in pages when asked for."""
    urls = [Bench(model, clock, f"{name}.fifo").url for name in ("ab", "aa", "b")]
    assert model.call("ListQueues", {"QueueNamePrefix": "a"})["QueueUrls"] == [urls[1], urls[0]]
    page = model.call("ListQueues", {"MaxResults": 2})
    rest = model.call("ListQueues", {"MaxResults": 2, "NextToken": page["NextToken"]})
    assert page["QueueUrls"] + rest["QueueUrls"] == [urls[1], urls[0], urls[2]]


def test_queue_is_found_by_the_path_of_its_url_alone(queue: Bench) -> None:
    """Under another host name the same queue answers."""
    queue.send()
    assert queue.model.call("ReceiveMessage", {"QueueUrl": "http://elsewhere:1/000000000000/orders.fifo"})


def test_tags_are_those_of_the_creation(model: FifoModel) -> None:
    """ListQueueTags returns what CreateQueue was given."""
    request = {"QueueName": "t.fifo", "Attributes": {"FifoQueue": "true"}, "tags": {"team": "orders"}}
    url = model.call("CreateQueue", request)["QueueUrl"]
    assert model.call("ListQueueTags", {"QueueUrl": url}) == {"Tags": {"team": "orders"}}


def test_every_listed_action_is_there(model: FifoModel) -> None:
    """Each action that faults can name is one that the model has."""
    for action in ACTIONS:
        if action != "ListQueues":
            assert refused(lambda a=action: model.call(a, {})).shape != "UnsupportedOperation"  # type: ignore[misc]


_JUNK: tuple[Any, ...] = (
    None, True, -1, 0, 10**30, 1.5, "", "a", "\ud800", "orders.fifo", [], ["All"], [1], [{}], [{"Id": "a"}],
    {}, {"FifoQueue": "true"}, {"a": {}}, {"a": {"DataType": "String", "StringValue": "\ud800"}},
    {"a": {"DataType": "Binary", "BinaryValue": "é"}}, {"RedrivePolicy": "[]"}, {"RedrivePolicy": "{}"},
)  # fmt: skip
_FIELDS = (
    "QueueUrl", "QueueName", "Entries", "Attributes", "AttributeNames", "MessageBody", "MessageGroupId",
    "MessageDeduplicationId", "MessageAttributes", "MessageSystemAttributes", "DelaySeconds", "ReceiptHandle",
    "VisibilityTimeout", "MaxNumberOfMessages", "WaitTimeSeconds", "ReceiveRequestAttemptId", "NextToken",
    "MessageSystemAttributeNames", "MessageAttributeNames", "MaxResults", "QueueNamePrefix", "tags", "Tags",
    "TagKeys", "SourceArn", "DestinationArn", "TaskHandle", "MaxNumberOfMessagesPerSecond",
)  # fmt: skip


def test_any_request_is_answered_or_refused_in_aws_terms(queue: Bench) -> None:
    """Whatever stands in a request, there is no error but SqsError."""
    dice = random.Random(11)
    good = {"QueueUrl": queue.url, "MessageBody": "b", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    outcomes = Counter[str]()
    for _ in range(20_000):
        entry = {field: dice.choice(_JUNK) for field in dice.sample(_FIELDS, 4)}
        request = {**good, **{field: dice.choice(_JUNK) for field in dice.sample(_FIELDS, 2)}}
        if dice.random() < 0.3:
            request["Entries"] = [{"Id": "a", **good, **entry}, {"Id": "b", **entry}]
        try:
            queue.model.call(dice.choice(sorted(ACTIONS - {"DeleteQueue"})), request)
            outcomes["ok"] += 1
        except SqsError as error:
            outcomes[error.shape] += 1
    assert outcomes["ok"] > 1_000
    assert len(outcomes) >= 10


def test_other_actions_are_unsupported(model: FifoModel) -> None:
    """What the model does not have, it says."""
    error = refused(lambda: model.call("AddPermission", {}))
    assert error.shape == "UnsupportedOperation"
    assert "AddPermission" in error.message


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"MaxNumberOfMessages": 11}, "InvalidParameterValue"),
        ({"MaxNumberOfMessages": 0}, "InvalidParameterValue"),
        ({"VisibilityTimeout": 43_201}, "InvalidParameterValue"),
        ({"VisibilityTimeout": -1}, "InvalidParameterValue"),
        ({"WaitTimeSeconds": 21}, "InvalidParameterValue"),
        ({"ReceiveRequestAttemptId": "a b"}, "InvalidParameterValue"),
        ({"MaxNumberOfMessages": "1"}, "SerializationException"),
    ],
)
def test_receive_parameters_out_of_range_are_refused(queue: Bench, request_: dict[str, Any], code: str) -> None:
    """Bounds are those of the API text."""
    assert refused(lambda: queue.call("ReceiveMessage", **request_)).query_code == code


def test_standard_queue_has_no_lock_no_sequence_and_deletes_with_old_handles(
    model: FifoModel, clock: ManualClock
) -> None:
    """A standard queue exists for clients to recognise: nothing of FIFO holds on it."""
    queue = Bench(model, clock, "plain")
    sent = [queue.send(MessageDeduplicationId=None, MessageBody="same") for _ in range(2)]
    assert all("SequenceNumber" not in response for response in sent)
    assert "FifoQueue" not in queue.attributes()
    error = refused(lambda: queue.call("GetQueueAttributes", AttributeNames=["FifoQueue"]))
    assert str(error) == "InvalidAttributeName: Unknown Attribute FifoQueue."
    first = queue.receive(1, VisibilityTimeout=1)[0]
    assert len(queue.receive(1)) == 1
    clock.advance(1)
    queue.delete(first)
    assert refused(lambda: queue.send(MessageDeduplicationId="d")).query_code == "InvalidParameterValue"


# Events


def test_events_tell_every_change_of_a_message(dead_letters: Bench) -> None:
    """Sent, received, changed, lapsed, moved, deleted: a listener could replay the history."""
    source = redriven(dead_letters, 2)
    told: list[Event] = []
    source.model.on_event(told.append)
    source.send(MessageDeduplicationId="d")
    source.send(MessageDeduplicationId="d")
    source.hide(source.receive(VisibilityTimeout=5, ReceiveRequestAttemptId="t")[0], 9)
    source.clock.advance(9)
    source.receive(VisibilityTimeout=5, ReceiveRequestAttemptId="u")
    source.receive(VisibilityTimeout=5, ReceiveRequestAttemptId="u")
    source.clock.advance(5)
    source.receive()
    dead_letters.delete(dead_letters.receive()[0])
    assert [event.kind for event in told] == [
        "sent",
        "duplicate",
        "received",
        "visibility_changed",
        "lapsed",
        "received",
        "replayed",
        "lapsed",
        "moved_to_dlq",
        "received",
        "deleted",
    ]
    assert {event.queue for event in told[-2:]} == {"dead.fifo"}
    assert told[2].visible_at == told[2].at + 5


def test_same_seed_and_calls_give_the_same_answers(clock: ManualClock) -> None:
    """Chance comes from the generator handed in, and nowhere else."""

    def history() -> list[Any]:
        queue = Bench(FifoModel(ManualClock(), random.Random(5)), clock)
        return [queue.send(), queue.receive()]

    assert history() == history()
