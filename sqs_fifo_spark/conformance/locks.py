"""The group lock, and the order in which the messages of a group come."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from sqs_fifo_spark.conformance.bench import Bench, Queue, marks_of, marks_text, system
from sqs_fifo_spark.conformance.case import API, DOCUMENTATION, RECORDED, Differs, NotDecided, case
from sqs_fifo_spark.conformance.refusals import require, require_refusal


@case(API)
def order(bench: Bench) -> None:
    """The messages of a group come in the order in which they were sent."""
    queue = bench.queue()
    for mark in "123":
        queue.send(mark)
    require("1, 2, 3", queue.drain(3))


@case(DOCUMENTATION, RECORDED)
def many_of_a_group(bench: Bench) -> None:
    """A receive takes as many messages of one group as it can, not only the first."""
    queue = bench.queue("1", "2", "3")
    best: list[str] = []
    for _ in range(6):
        got = queue.receive()
        best = max(best, marks_of(got), key=len)
        queue.release(*got)
        if len(best) > 1:
            return
    raise Differs("1, 2, 3 in one receive", f"{marks_text(best)}, in each of 6 receives")


@case(API)
def lock(bench: Bench) -> None:
    """While a message of a group is in flight, no later one of the group is handed out."""
    queue = bench.queue("1", "2")
    queue.take("1", most=1)
    queue.expect_nothing("1 is in flight")


@case(API)
def lock_of_later_send(bench: Bench) -> None:
    """A message that is sent while its group is in flight waits until the group is free."""
    queue, first = bench.received()
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
    queue = bench.queue("1", "2", "3")
    got = queue.take("1", "2", most=2)
    queue.delete(got[0])
    queue.expect_nothing("2 is in flight")


@case(DOCUMENTATION)
def full_delete(bench: Bench) -> None:
    """To delete all of a group's messages in flight unlocks it at once."""
    queue = bench.queue("1", "2", "3")
    queue.delete_batch(queue.take("1", "2", most=2))
    queue.take("3")


def _held(bench: Bench, held: int) -> Queue:
    """Return a queue of which one of three messages, received together, is in flight; those beside it have lapsed."""
    queue = bench.queue("1", "2", "3")
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
    """A group of which all messages have lapsed comes again, whole and in order."""
    queue = bench.queue("1", "2", "3")
    queue.let_lapse(*queue.collect(1))
    require("1, 2, 3", queue.drain(3))


@case(API)
def release(bench: Bench) -> None:
    """A group of which all messages are released comes again, whole and in order."""
    queue = bench.queue("1", "2", "3")
    queue.release(*queue.collect(1))
    require("1, 2, 3", queue.drain(3))


@case(RECORDED)
def released_tail(bench: Bench) -> None:
    """To release later messages of a group frees nothing while its head is in flight."""
    queue = bench.queue("1", "2", "3")
    queue.release(*queue.take("1", "2", "3")[1:])
    queue.expect_nothing("1 is in flight")


@case(API)
def deleted_middle(bench: Bench) -> None:
    """Of 1, 2, 3 in flight, 2 is deleted and the rest released: 1 and 3 come, in order."""
    queue = bench.queue("1", "2", "3")
    first, second, third = queue.take("1", "2", "3")
    queue.delete(second)
    queue.release(first, third)
    queue.take("1", "3")


@case(API, seconds=17)
def deleted(bench: Bench) -> None:
    """A deleted message does not come again, nor after its visibility timeout."""
    queue = bench.queue("1")
    queue.delete(queue.take_one("1", timeout_s=15))
    bench.sleep(15.5)
    queue.expect_nothing("it was deleted")


@case(API)
def ten(bench: Bench) -> None:
    """A receive returns at most 10 messages; more of the group come only when those are deleted."""
    queue = bench.queue()
    marks = [str(number) for number in range(1, 13)]
    queue.send_all(*marks[:10])
    queue.send_all(*marks[10:])
    got = queue.take(*marks[:10])
    queue.expect_nothing("ten are in flight")
    queue.delete_batch(got)
    queue.take("11", "12")


@case(API)
def one_by_default(bench: Bench) -> None:
    """A receive that names no number returns one message."""
    queue = bench.queue("1", "2")
    queue.take("1", most=None)


@case(API, RECORDED)
def eleven(bench: Bench) -> None:
    """A receive of 11 messages is refused, and so is one of none."""
    queue = bench.queue()
    for most in (0, 11):
        require_refusal("InvalidParameterValue", queue.receive, most)


@case(API)
def several_groups(bench: Bench) -> None:
    """A receive may return messages of several groups, those of each in order; the order of groups is not defined."""
    queue = bench.queue()
    queue.send_batch(*(queue.draft(f"{group}{number}", group) for number in (1, 2) for group in "ab"))
    for _ in range(5):
        got = queue.receive()
        marks = marks_of(got)
        for group in "ab":
            one = [mark for mark in marks if mark[0] == group]
            require(sorted(one), one, f"of group {group}")
        if len({mark[0] for mark in marks}) == 2:
            return
        queue.release(*got)
    raise NotDecided("each of 5 receives returned messages of one group")


@case(RECORDED, "that groups have an order is documented nowhere", calls=30)
def no_starvation(bench: Bench) -> None:
    """A group whose message is received and released again and again does not keep others from coming."""
    queue = bench.queue()
    queue.send("1", group="a")
    queue.send("2", group="b")
    seen = set()
    for _ in range(8):
        got = queue.receive(most=1)
        seen.update(marks_of(got))
        queue.release(*got)
    require("1, 2", marks_text(sorted(seen)), "in 8 receives")


@case(API, calls=40, seconds=4)
def side_by_side(bench: Bench) -> None:
    """Of receives that run at once, no two get messages of the same group."""
    queue = bench.queue()
    groups = [f"g{number}" for number in range(8)]
    for number in (1, 2):
        queue.send_batch(*(queue.draft(f"{group}-{number}", group) for group in groups))
    with ThreadPoolExecutor(4) as pool:
        answers = [*pool.map(lambda _: queue.receive(most=2), range(16))]
    if not any(answers):
        raise Differs("messages", "nothing")
    owners: dict[str, int] = {}
    for number, answer in enumerate(answers):
        for message in answer:
            group = system(message, "MessageGroupId")
            if owners.setdefault(group, number) != number:
                raise Differs("each group in one receive", f"{group} in two receives")
