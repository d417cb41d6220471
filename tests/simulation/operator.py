"""An operator who repairs a journal while all else goes on around it: with force, or only where no query answers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa

from sqs_fifo_spark.errors import JournalUnavailableError
from sqs_fifo_spark.source import repair
from sqs_fifo_spark.source.journal import Journal
from sqs_fifo_spark.source.queue import Queue
from tests.simulation.world import Row

if TYPE_CHECKING:
    from tests.simulation.laws import Laws
    from tests.simulation.world import World


def operate(world: World, laws: Laws, dice: random.Random) -> None:
    """Take the journal over, and move a few messages aside, or release what is held."""
    journal = Journal.look(world.store)
    if journal is None:
        return
    after = None if dice.random() < 0.5 else repair.require_no_owner(journal, world.clock)
    world.step("takes the journal over" if after is None else "has no answer, and takes the journal over")
    taken = repair.take_over(journal, world.clock, after=after)
    for _ in range(dice.randint(1, 3)):
        if dice.random() < 0.25:
            outcomes = repair.release(taken, Queue(world.options, world.clock, world.pool))
            world.note(f"released {dict(outcomes)}")
        else:
            _skip(world, laws, taken, dice)


def _skip(world: World, laws: Laws, taken: repair.Taken, dice: random.Random) -> None:
    """Move one of the messages aside that are not settled, or that are marked already; or one that is nowhere."""
    held = [
        (epoch, receipt.message_id)
        for epoch, names in taken.unsettled.items()
        for name in names
        if (head := taken.journal.head(name)) is not None
        for receipt in head.receipts
    ]
    if not held:
        return
    epoch, message_id = dice.choice(held)
    fails = dice.random() < 0.05

    def put_aside(row: pa.RecordBatch) -> None:
        (found,) = row.to_pylist()
        aside = Row(found["messageId"], found["messageGroupId"], int(found["sequenceNumber"]), found["body"])
        world.step(f"before {aside.body} is put aside")
        if fails:
            raise JournalUnavailableError("there is no room for it")
        laws.put_aside(aside)
        world.step(f"after {aside.body} is put aside")

    repair.skip(taken, epoch, message_id, world.clock, to="a list", put_aside=put_aside)
