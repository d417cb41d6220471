"""The numbered laws of `docs/guarantees.md`, and which checks and planted bugs of the simulation belong to each.

`pytest --law source-4` runs the tests that are marked with a law.

python -m tests.guarantees source-4           the checks and planted bugs of a law
python -m tests.guarantees source-4 --hunt    and plays schedules against each of these bugs until it is caught
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable
from typing import NamedTuple

import pytest


class Law(NamedTuple):
    """One law of a side, and what shows in the simulation that it holds."""

    title: str
    checks: tuple[str, ...]
    """The words before the colon of each violation that breaks it, in the modules of its side."""
    planted: tuple[str, ...]
    """The names of planted bugs, each of which breaks it, or would if nothing else noticed it first."""


MODULES = {
    "source": ("laws", "repair_laws", "payloads", "schedule", "tasks", "shared", "union_laws"),
    "sink": ("sink_ends", "sink_history", "sink_keepers", "sink_laws", "sink_payloads", "sink_schedule", "sink_tasks"),
}
"""Modules of `tests.simulation` with the checks of each side."""

LAWS = {
    "source-1": Law(
        "No loss",
        ("no loss", "moved aside"),
        (
            "settle as served what Spark was never given",
            "wrong number of partitions at a replay",
            "work on though another driver has opened the journal",
            "release what only the journal has",
            "release by deleting",
            "skip without looking whether it is marked",
            "say nothing of the other place that a message was moved to",
            "take one path on two machines for one place",
            "move a message to a file without its lock",
            "believe in a row of a file that nobody has synced",
            "add to a line that was cut off",
            "send what is moved under its producer's deduplication id",
            "mark before it is put aside",
            "take an outage of S3 for a payload that is missing",
            "take Spark's place for a queue's start",
            "put what is new beside what Spark's log has lost",
        ),
    ),
    "source-2": Law(
        "Delete after commit",
        # A chain's link says what of those before it is not deleted; the journal holds what is not committed, no more.
        ("delete after commit", "chains", "bounded"),
        (
            "drop what a losing attempt received",
            "delete before commit",
            "drop the segments before the ledger is written",
            "leave the deal of an epoch that is settled",
            "delete what is not sealed yet",
            "delete what the chain defers",
            "put a link while the one before is being deleted",
            "release by deleting",
            "drop more than what is settled when the journal is taken over",
            "delete a payload before its message",
            "delete a payload whose message SQS has not deleted",
            "delete a payload before the commit deletes its message",
            "delete a payload that could not be read",
            "forget the payload of a message that came again",
            "forget the payloads that a chain names",
            "forget the payloads that the ledger names",
            "ask a queue that has left once more",
            "never forget a queue that has left",
            "leave a queue that has left to nobody",
        ),
    ),
    "source-3": Law(
        "One content",
        ("one content", "moved aside"),
        (
            "serve before sealing",
            "serve what lost the race",
            "skip empty segments",
            "receive for an epoch that is settled",
            "serve what a leftover task put",
            "overwrite what is sealed",
            "believe a conflict",
            "take an earlier driver's deal for one's own",
            "let all plans of an epoch share number and name",
            "go on past an epoch that the offset log has lost",
            "announce blindly what the offset log has lost",
            "let tasks receive for an epoch that the offset log has lost",
            "leave the chains open",
            "receive again in a replay",
            "serve what is moved aside",
            "look for what is moved aside before claiming the journal",
            "deal out what is moved aside",
            "carry what is moved aside",
            "say that the query goes on without it, though one began before the mark",
            "take any command for a proof that no query came before it",
            "read a payload each time that its link is served",
        ),
    ),
    "source-4": Law(
        "Order",
        ("order",),
        (
            "serve what follows a deferred message",
            "serve what follows what an earlier link defers",
            "serve what follows carried messages",
            "hand a group to any partition",
            "take the journal's word for where Spark is",
            "let messages follow what is decided and gone",
        ),
    ),
    "source-5": Law(
        "Exactly once",
        ("exactly once", "one owner", "one query", "settle with the newest handle"),
        (
            "serve redelivered messages at once",
            "skip empty segments",
            "work on without the claim",
            "take the claim of one queue for those of all",
            "let a new query forget the ledger",
            "begin a generation that Spark has not logged",
            "forget the ledger",
            "drop the segments before the ledger is written",
            "write the ledger before the deletes",
            "advance without commit",
            "settle with the old handle",
            "ignore Failed",
            "take a refused delete for a success",
            "settle without the newer handle of a deferred copy",
            "take what was carried for a proof that a message is gone",
            "probe without the ledger",
            "do not say what is not confirmed",
            "carry twice what two links have",
            "do not put the ledger that was found under the own claim",
            "judge by the last links alone",
            "take over a chain without its unconfirmed messages",
            "end a chain without a word of what is not deleted",
            "let two operators hold the journal",
            "drop more than what is settled when the journal is taken over",
            "believe a claim by its put alone",
            "ask a driver that is looking for work",
            "forget the places of queues that do not move",
            "take another queue's place",
            "leave to nobody what Spark has committed of a queue without a place",
            "ask a queue that has left for nothing",
            "ask a refused queue for nothing",
        ),
    ),
    "source-6": Law(
        "Progress",
        # A run that ends without a reason, or is stopped without one, goes no further. Nor does a queue if another one
        # may have all of a micro-batch.
        ("progress", "available now", "idle is cheap", "spoken errors", "one owner", "limits"),
        (
            "leave copies of committed messages to the commit",
            "fail for a payload that another attempt has read and deleted",
            "believe a conflict",
            "forget what is carried",
            "advance without commit",
            "serve again what the epoch has served",
            "lose what the probe got and nobody read",
            "poll without waiting",
            "take the journal's word for where Spark is",
            "leave hidden what is not going to be put",
            "wait for a slow answer no longer than for any other",
            "end AvailableNow while something is hidden",
            "end AvailableNow with old messages in hand",
            "end AvailableNow before what dead attempts held is free",
            "let AvailableNow wait for half as long",
            "end AvailableNow while a dead attempt holds something",
            "end AvailableNow without a long poll",
            "take the journal from a query that had little time to answer",
            "take the journal before there is a place for what is moved",
            "begin with the first answer alone",
            "say that there is nothing while a poll is about to bring something",
            "let a refused queue end the query",
            "end with a queue that is gone",
            "keep the driver of a refused queue",
            "never try a refused queue again",
            "give all limits to each queue",
            "poll a queue only while Spark asks",
            "announce a queue's first epoch blindly where Spark has said its place",
            "forget what Spark was told once the list is another one",
            "poll again as soon as Spark asks",
            "wait for each poll before a micro-batch begins",
        ),
    ),
    "source-7": Law(
        "Leases",
        ("leases",),
        (
            "forget which links defer something",
            "no heartbeat on the driver",
            "renew what a replay takes over as if it had just been received",
            "renew in the pool that reads the journal",
            "renew with the time that is left already",
            "let a renewal that failed once be the last",
            "try a renewal again while others wait for its thread",
            "release what another driver holds",
            "release without a word of the query that holds it now",
        ),
    ),
    "sink-1": Law(
        "No row is dropped",
        # A write that fails without a reason has not sent its rows; SQS takes none of a call beyond its limits.
        ("no loss", "content", "one place", "payload", "end", "limits", "spoken errors", "progress", "cost"),
        (
            "record rows before they are sent",
            "record rows without their queue",
            "send each row to the option's queue",
            "put rows of two queues into one call",
            "take a queue that does not answer for a wrong one",
            "end with calls under way",
            "end without waiting for the threads",
            "record rows again and again once the task is over",
            "wait for no thread while one writes to S3",
            "let a thread that has written to S3 stay for ever once its task is over",
            "write to S3 again and again once the task is over",
            "begin to write to S3 though the task has ended",
            "take a thread that looks at the journal for one that writes to S3",
            "take a thread that sends for one that writes to S3",
            "without a journal, give a task as long as a row",
            "calls of any size",
            "count only equal rows of one group",
            "drop entries that failed",
            "take for sent what is not in Failed",
            "skip rows that SQS refuses",
            "try again after the task has failed",
            "do not try again what may pass",
            "blame the first row for what SQS refuses",
            "drop refused rows",
            "judge anew what an earlier attempt has refused",
            "keep a refused row anew each time",
            "take equal rows of a task for one",
            "take the equal row of another task for one's own",
            "leave out a row for an equal one that is refused",
            "do not count refused rows",
            "say that a refused row is in another queue before it is",
            "judge anew what an earlier attempt has sent to another queue",
            "send a refused row to another queue before its mark is put",
            "look again until a look is quick",
            "tell who waits for a put only of ordinary errors",
            "fail a task that cannot tidy up",
            "fail a task that cannot tidy up, in other words",
            "fail a task whose tidying panics",
            "fail a write that cannot tidy up",
            "record rows without their group",
            "skip rows that cannot be sent",
            "number the rows from 1 in each part",
            "do not tell the driver of messages",
            "return before the rows are sent",
            "do not say how many rows were sent",
            "let tasks raise what the driver met",
            "tell the caller only of ordinary errors",
            "send though the task has ended while it connected",
            "count equal rows in the task and in the driver",
            "take a look at the journal for a call that is held up",
            "fail a call that was only throttled",
            "refuse what was sent before",
            "send a row before its body is on S3",
            "take a body that could not be written for one that is there",
            "put the body of each attempt elsewhere",
            "put two bodies of one id in one place",
        ),
    ),
    "sink-2": Law(
        "Order",
        # What is sent by a task that is over, or has failed, may come behind what its successor sends.
        ("order", "end"),
        (
            "two rows of a group in one call",
            "know a queue by its spelling",
            "let a group go on before its row is confirmed",
            "let a group go on before its row is recorded",
            "let a group go on while a row of it is sent again",
            "let the last row of a group come first in a call",
            "judge the rows of each answer by themselves",
            "look for disorder in the answers of first tries only",
            "take all that is late for rows that overtake",
            "forget that rows are out of order",
            "give up what may have been overtaken without a word",
            "go on though rows are out of order",
            "end without waiting for the threads",
            "wait for no thread while one writes to S3",
            "take a thread that looks at the journal for one that writes to S3",
            "take a thread that sends for one that writes to S3",
            "try again after the task has failed",
            "let a group go on before its refused row is kept",
            "forget the rest of a refused row's group",
            "hold only the next row of a group",
            "compare no groups",
            "compare each task with the next one only",
            "take a part of the groups for all",
            "seed the hashes in each task anew",
            "leave out the groups of a task that has sent nothing",
            "let a write end well though its groups are in several partitions",
            "take for none what cannot be compared",
            "send though the task has ended while it connected",
        ),
    ),
    "sink-3": Law(
        "Nothing twice",
        ("once",),
        (
            "start without the record",
            "look at the record only once",
            "read only one's own record",
            "list what was sent only once",
            "take a shard that was read once for read for good",
            "read only the shards of the first row",
            "send an equal row of this attempt again",
            "ask what is forgotten before the record is read",
            "drop the parts of a record before the whole is put",
            "forget before the mark is put",
            "forget the micro-batch of now",
            "forget micro-batches without a mark",
            "forget batch writes without a mark",
            "forget all batch writes at once",
            "record rows by their number",
            "know a row by its pointer",
            "let SQS know a row by its pointer",
            "make each attempt a run of its own",
            "send a refused row to another queue under a new id each time",
            "do not record that a refused row is in another queue",
        ),
    ),
    "sink-4": Law(
        "One window",
        ("once",),
        (
            "let a group go on before its row is recorded",
            "send as many rows of a group as there are, recorded or not",
            "wait for ever for a call that is held up",
            "take more rows though a call is held up",
            "record nothing more once a row has failed",
            "leave what could not be recorded",
            "try only once more to record what could not be recorded",
            "without a journal, begin once the attempt before must be over",
            "begin once the attempt before must be over",
            "try a row for ten minutes",
            "count the time to try from the call, not from the look",
            "count the time to try from no look",
            "let the record take any time",
            "send however long it took to connect",
            "go on though the record was not written",
            "do not wait for a put that others make",
            "try again however long the process stood still",
            "begin anew to try what was throttled and may be sent",
            "try to send a refused row to another queue for ever",
        ),
    ),
    "sink-5": Law(
        "Bounded",
        ("bounded", "limits", "cost"),
        (
            "one row in a call",
            "calls of any size",
            "leave the parts of a record",
            "never forget",
        ),
    ),
}


def numbers(marks: Iterable[pytest.Mark]) -> set[str]:
    """Return the laws that these `law` marks name. Raises ValueError if there is none, or no law of that number."""
    found: set[str] = set()
    for mark in marks:
        unknown = [number for number in mark.args if number not in LAWS]
        if unknown or mark.kwargs or not mark.args:
            said = ", ".join([*map(repr, mark.args), *(f"{name}={value!r}" for name, value in mark.kwargs.items())])
            raise ValueError(f"law({said}) must name laws of docs/guarantees.md: {', '.join(LAWS)}")
        found.update(mark.args)
    return found


def hunt(law: Law) -> int:
    """Play schedules against each planted bug of the law until it is caught; return 1 if one is not, else 0."""
    missed = 0
    for name in law.planted:
        missed += subprocess.run([sys.executable, "-m", "tests.simulation", "--mutation", name], check=False).returncode
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.guarantees", description="Show what belongs to a law.")
    parser.add_argument("law", choices=LAWS, metavar="LAW", help=f"one of {', '.join(LAWS)}")
    parser.add_argument("--hunt", action="store_true", help="play schedules against its planted bugs, too")
    given = parser.parse_args()
    law = LAWS[given.law]
    modules = ", ".join(f"{name}.py" for name in MODULES[given.law.partition("-")[0]])
    print(f"{given.law}: {law.title}")
    print(f"checks of tests/simulation, in {modules}:", *law.checks, sep="\n  ")
    print("planted bugs, each hunted by `python -m tests.simulation --mutation NAME`:", *law.planted, sep="\n  ")
    return hunt(law) if given.hunt else 0


if __name__ == "__main__":
    sys.exit(main())
