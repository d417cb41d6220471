"""The order in which the strict queue hands messages out, the group lock, and its limits."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from tests.manual_clock import ManualClock
from tests.unit.local.model_queue import ModelQueue, model_queue, refused


@pytest.mark.parametrize(("lapses_at", "order"), [(8, ["early", "late"]), (10, ["late", "early"])])
def test_delayed_group_stands_in_line_from_when_it_shows(queue: ModelQueue, lapses_at: int, order: list[str]) -> None:
    """A message that waits for its delay takes no place in line before that is over."""
    queue.set(DelaySeconds="5")
    queue.send_in_groups("early")
    queue.clock.advance(4)
    queue.send_in_groups("late")
    queue.clock.advance(1)
    assert queue.bodies(VisibilityTimeout=lapses_at - 5) == ["early"]
    queue.clock.advance(5)
    assert queue.bodies() == order


def test_order_between_groups_may_be_drawn() -> None:
    """With any_order each seed serves the groups in an order of its own, the same every time."""

    def history(seed: int) -> tuple[str, ...]:
        queue = model_queue(seed, any_order=True)
        queue.send_in_groups("a1", "b1", "c1", "a2", "b2", "c2")
        return tuple(queue.bodies())

    orders = [history(seed) for seed in range(30)]
    assert orders == [history(seed) for seed in range(30)]
    assert {"".join(body[0] for body in order[::2]) for order in orders} == {
        "abc", "acb", "bac", "bca", "cab", "cba",
    }  # fmt: skip
    assert all(list(order) == sorted(order, key=lambda body: order.index(f"{body[0]}1")) for order in orders)


def test_sequence_numbers_are_long_rise_and_leave_gaps(queue: ModelQueue) -> None:
    """They have 20 digits, rise over the whole queue, and are not consecutive."""
    texts = [queue.send(group)["SequenceNumber"] for group in "abab"]
    numbers = [int(text) for text in texts]
    assert {len(text) for text in texts} == {20}
    assert numbers == sorted(numbers)
    assert any(b - a > 1 for a, b in itertools.pairwise(numbers))


class Literal:
    """The laws of delivery read literally over a plain list: slow, and obviously right.

    Recorded: of a group that is free again, its last message deleted, released or lapsed, those come that stand before
    the first in-flight one; and the group goes behind the free ones, so that it does not starve them.
    """

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
def test_any_history_delivers_what_the_laws_read_literally_deliver(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over random sends, receives, deletes, changes and lapses, exactly the lawful messages come."""
    # Every other history has its heap rebuilt all the time, as otherwise only much longer ones have.
    monkeypatch.setattr("sqs_fifo_spark.local.message_store._HEAP_SLACK", 1_000 * (seed % 2))
    dice = random.Random(seed)
    queue = model_queue(in_flight_cap=20, scan_limit=30)
    law = Literal(queue.clock, cap=20, scan_limit=30)
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
            queue.clock.advance(dice.random() * 3)
        else:
            for body in dice.sample(sorted(held), min(len(held), 2)):
                lapsed = not law.is_hidden(body)
                message = held.pop(body)
                timeout_s = dice.choice([0, 0, 5, 40])
                change = queue.delete if die < 0.9 else lambda m, t=timeout_s: queue.hide(m, t)
                if lapsed:
                    refused(change, message)
                elif die < 0.9:
                    change(message)
                    law.delete(body)
                else:
                    change(message)
                    law.hide(body, timeout_s)
                    held[body] = message
