"""The flags that say which epoch a command is about: its number, or a micro-batch of a checkpoint."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import click

from sqs_fifo_spark.errors import DataLossError, OptionError
from sqs_fifo_spark.journal.location import open_store
from sqs_fifo_spark.journal.object_store import BY_ENVIRONMENT
from sqs_fifo_spark.option_rules import JOURNAL_SCHEMES
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.offset import Offset

EpochIn: TypeAlias = Callable[[Journal], int]
"""Returns the number of the epoch in a journal; raises DataLossError if the checkpoint does not fit it."""


def epoch_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--epoch`, and `--batch` with `--checkpoint-location`; they come as the argument `epoch_in`, an `EpochIn`."""

    @click.option("--epoch", type=click.IntRange(min=1), help="Number of the epoch.")
    @click.option("--batch", type=click.IntRange(min=0), help="Instead of it: batch id of a micro-batch that has it.")
    @click.option(
        "--checkpoint-location",
        metavar="TEXT",
        help="The query's checkpoint, for --batch: a path, or a bucket that is reached with the environment's "
        "credentials.",
    )
    @functools.wraps(command)
    def with_epoch(*, epoch: int | None, batch: int | None, checkpoint_location: str | None, **others: Any) -> Any:
        if epoch is not None and batch is None and checkpoint_location is None:
            return command(epoch_in=lambda journal: epoch, **others)
        if epoch is not None or batch is None or not checkpoint_location:
            raise click.UsageError("give either --epoch, or --batch and --checkpoint-location.")
        return command(epoch_in=functools.partial(_epoch_of, batch, checkpoint_location), **others)

    return with_epoch


def _epoch_of(batch: int, checkpoint: str, journal: Journal) -> int:
    scheme, is_url, _ = checkpoint.partition("://")
    if is_url and scheme not in JOURNAL_SCHEMES:
        raise OptionError(
            f"a checkpoint at '{checkpoint}' cannot be read from here. Copy its file 'offsets/{batch}' to a directory, "
            "below 'offsets' too, and give that directory as --checkpoint-location."
        )
    store = open_store(checkpoint if is_url else str(Path(checkpoint).absolute()), BY_ENVIRONMENT)
    data, before = (store.get(f"offsets/{number}") for number in (batch, batch - 1))
    if data is None:
        raise DataLossError(
            f"the checkpoint at '{checkpoint}' has no micro-batch {batch}: no 'offsets/{batch}' is there. Give the "
            "query's own checkpointLocation, and a batch id that it still holds."
        )
    epochs = {each.epoch for each in _offsets(data) if each.journal == journal.id}
    if len(epochs) != 1:
        raise DataLossError(
            f"micro-batch {batch} of the checkpoint at '{checkpoint}' does not fit the journal {journal.id} at "
            f"'{journal.location}': it has {len(epochs) or 'no'} epochs of it. Give the checkpoint of the query that "
            "reads with this journal."
        )
    (epoch,) = epochs
    if epoch in {each.epoch for each in _offsets(before or b"") if each.journal == journal.id}:
        raise DataLossError(
            f"micro-batch {batch} of the checkpoint at '{checkpoint}' has nothing of the journal at "
            f"'{journal.location}': epoch {epoch} belongs to an earlier one. Give that, or --epoch."
        )
    return epoch


def _offsets(data: bytes) -> Iterator[Offset]:
    """Yield this source's offsets in a file of Spark's offset log; of version 2, a line begins with a source's name."""
    for line in data.decode(errors="replace").splitlines():
        _, brace, rest = line.partition("{")
        try:
            yield Offset.from_json(json.loads(brace + rest))
        except (ValueError, RecursionError, DataLossError):
            continue  # of another source, or no offset at all
