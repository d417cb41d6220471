"""`peek`: shows messages that the queue has to hand out, and gives them back in their order."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import click

from sqs_fifo_spark.aws.calls import MAX_ENTRIES
from sqs_fifo_spark.cli.export import CONTENT, rows_as_json
from sqs_fifo_spark.cli.flags import connection_flags, parse_connection
from sqs_fifo_spark.cli.output import Status, json_flag, print_error, print_json, print_line, print_table
from sqs_fifo_spark.cli.slow_calls import NoAnswerError, begin, is_over
from sqs_fifo_spark.clock import SYSTEM_CLOCK
from sqs_fifo_spark.errors import QueueRequestError, SqsFifoError, TransientQueueError
from sqs_fifo_spark.source.batches import Outcome
from sqs_fifo_spark.source.driver.startup import FEWEST_RECEIVES
from sqs_fifo_spark.source.message import Message, Receipt, to_arrow
from sqs_fifo_spark.source.queue import RELEASE_BUDGET_S, Queue
from sqs_fifo_spark.stopping import signals

HIDDEN_S = 60
"""Seconds for which a message stays hidden if this process is killed before it has released it."""
ANSWER_S = 1.0
"""Seconds for which an interruption waits, at most, for the receive under way, to release its messages."""
MOST = 1_000
_COLUMNS = ("messageGroupId", "sequenceNumber", "messageId", "sentTimestamp", "receiveCount")


@click.command(short_help="Look at messages of a queue, and give them back.")
@connection_flags
@click.option(
    "-n",
    "--messages",
    "wanted",
    type=click.IntRange(1, MOST),
    default=MAX_ENTRIES,
    show_default=True,
    help="How many messages to look at, at most. SQS gives at most ten of a group.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Also if the queue's maxReceiveCount is so low that messages may move to its dead-letter queue.",
)
@click.option("--bodies", is_flag=True, help="Show bodies and attributes too. They are somebody's data.")
@json_flag
def peek(wanted: int, force: bool, bodies: bool, as_json: bool, **connection: str | None) -> Status:
    """Receive some messages, release them at once in their order, and show them.

    Each message that is shown counts one receive more. If it had been received maxReceiveCount times before, it moves
    to the dead-letter queue instead. While they are held, for a second as a rule, nobody else gets messages of their
    groups. With --json, one line for each message.
    """
    options = parse_connection(connection, visibilityTimeoutSeconds=str(HIDDEN_S))
    queue = Queue(options, SYSTEM_CLOCK)
    most_receives = queue.describe().max_receive_count
    if most_receives is not None and most_receives < FEWEST_RECEIVES and not force:
        raise click.UsageError(
            f"the queue's maxReceiveCount is {most_receives}, so a message may move to the dead-letter queue if it is "
            "received only to be looked at. Give --force to do it all the same."
        )
    held: list[Message] = []
    failure: SqsFifoError | None = None
    with signals(signal.SIGINT, signal.SIGTERM) as interruptions:  # which end no process that holds messages
        try:
            while len(held) < wanted and not interruptions:
                received = _receive(queue, min(MAX_ENTRIES, wanted - len(held)), interruptions)
                held += received
                if not received:
                    break
        except SqsFifoError as error:
            failure = error
        except NoAnswerError:
            print_error(
                "interrupted before SQS has answered; messages that it hands out all the same are hidden for up to "
                f"{HIDDEN_S} s"
            )
        kept = _release(queue, [message.receipt for message in held])
    if held or (failure is None and not interruptions):
        _show(held, bodies=bodies, as_json=as_json, has_dead_letters=most_receives is not None)
    if kept:
        print_error(f"{kept} messages could not be released; they stay hidden for up to {HIDDEN_S} s")
    if isinstance(failure, (QueueRequestError, TransientQueueError)):
        # Its answer was lost, or could not be read, and with it the receipt handles.
        print_error(
            f"messages of the last receive, if it took any, are not released; they stay hidden for up to {HIDDEN_S} s"
        )
    if failure is not None:
        raise failure
    if interruptions:
        return Status(128 + interruptions[-1])
    return Status.PROBLEM if kept else Status.OK


def _receive(queue: Queue, most: int, interruptions: Sequence[int]) -> list[Message]:
    """Receive up to `most` messages. Raises NoAnswerError, and leaves the call behind, if it is interrupted."""
    call = begin(lambda: queue.receive(most))
    while not is_over(call, ANSWER_S):
        if interruptions:
            raise NoAnswerError
    return call.result()


def _release(queue: Queue, receipts: list[Receipt]) -> int:
    """Release all, a group's last message first, so that no later one is free before it; return how many failed."""
    kept = 0
    for end in range(len(receipts), 0, -MAX_ENTRIES):
        part = receipts[max(0, end - MAX_ENTRIES) : end][::-1]
        try:
            kept += sum(outcome is Outcome.FAILED for outcome in queue.extend(part, 0, budget_s=RELEASE_BUDGET_S))
        except SqsFifoError as error:
            print_error(str(error))
            kept += len(part)
    return kept


def _show(messages: list[Message], *, bodies: bool, as_json: bool, has_dead_letters: bool) -> None:
    rows = list(rows_as_json(to_arrow(messages), bodies=bodies))
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_table(_COLUMNS + CONTENT if bodies else _COLUMNS, rows)
    if messages:
        print_line(f"{len(messages)} messages were received; the receive count of each has risen by one.")
    else:
        moved = ", or they have just moved to the dead-letter queue" if has_dead_letters else ""
        print_line(f"SQS gave no message: the queue is empty, or others hold the heads of its groups{moved}.")
