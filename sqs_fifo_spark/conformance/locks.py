"""The group lock, and the order in which the messages of a group come."""

from __future__ import annotations

from sqs_fifo_spark.conformance.bench import Bench, Queue, marks_of, marks_text, require
from sqs_fifo_spark.conformance.case import API, DOCUMENTATION, RECORDED, Differs, case


@case(API)
def order(bench: Bench) -> None:
    """The messages of a group come in the order in which they were sent."""
    queue = bench.queue()
    for mark in "123":
        queue.send(mark)
    seen = []
    for message in (found for _ in range(3) for found in queue.collect(1)):
        seen.append(message["Body"])
        queue.delete(message)
    require("1, 2, 3", marks_text(seen))


@case(DOCUMENTATION, RECORDED)
def many_of_a_group(bench: Bench) -> None:
    """A receive takes as many messages of one group as it can, not only the first."""
    queue = bench.queue()
    queue.send_all("1", "2", "3")
    best: list[str] = []
    for _ in range(6):
        got = queue.receive()
        best = max(best, marks_of(got), key=len)
        for message in reversed(got):
            queue.hide(message, 0)
        if len(best) > 1:
            return
    raise Differs("1, 2, 3 in one receive", f"{marks_text(best)}, in each of 6 receives")


@case(API)
def lock(bench: Bench) -> None:
    """While a message of a group is in flight, no later one of the group is handed out."""
    queue = bench.queue()
    queue.send_all("1", "2")
    queue.take("1", most=1)
    queue.expect_nothing("1 is in flight")


@case(API)
def lock_of_later_send(bench: Bench) -> None:
    """A message that is sent while its group is in flight waits until the group is free."""
    queue = bench.queue()
    queue.send("1")
    first = queue.take_one("1")
    queue.send("2")
    queue.expect_nothing("1 is in flight")
    queue.delete(first)
    queue.take("2")


@case(API)
def other_groups(bench: Bench) -> None:
    """While one group is in flight, the others still come."""
    queue = bench.queue()
    queue.send("1", group="a")
    queue.take("1")
    queue.send("2", group="b")
    queue.take("2")


@case(RECORDED)
def partial_delete(bench: Bench) -> None:
    """To delete some of a group's messages in flight does not unlock it."""
    queue = bench.queue()
    queue.send_all("1", "2", "3")
    got = queue.take("1", "2", most=2)
    queue.delete(got[0])
    queue.expect_nothing("2 is in flight")


@case(DOCUMENTATION)
def full_delete(bench: Bench) -> None:
    """To delete all of a group's messages in flight unlocks it at once."""
    queue = bench.queue()
    queue.send_all("1", "2", "3")
    queue.delete_batch(queue.take("1", "2", most=2))
    queue.take("3")


def _held(bench: Bench, held: int) -> Queue:
    """Return a queue of which one of three messages, received together, is in flight; those beside it have lapsed."""
    queue = bench.queue()
    queue.send_all("1", "2", "3")
    got = queue.take("1", "2", "3")
    queue.let_lapse(*(message for at, message in enumerate(got) if at != held))
    return queue


@case(RECORDED, seconds=4)
def held_head(bench: Bench) -> None:
    """Of 1, 2, 3 received together, the first is held and the rest lapse: nothing comes."""
    _held(bench, 0).expect_nothing("the head is held")


@case(RECORDED, seconds=4)
def held_middle(bench: Bench) -> None:
    """Of 1, 2, 3 received together, the second is held and the rest lapse: 1 comes."""
    _held(bench, 1).take("1")


@case(RECORDED, seconds=4)
def held_tail(bench: Bench) -> None:
    """Of 1, 2, 3 received together, the third is held and the rest lapse: 1 and 2 come."""
    _held(bench, 2).take("1", "2")


@case(API, seconds=4)
def lapse(bench: Bench) -> None:
    """When all messages of a group lapse, they come again, whole and in order."""
    queue = bench.queue()
    queue.send_all("1", "2", "3")
    queue.let_lapse(*queue.take("1", "2", "3"))
    queue.take("1", "2", "3")
