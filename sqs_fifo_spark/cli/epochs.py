"""The flags that say which epoch a command is about: its number, or a micro-batch of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from sqs_fifo_spark.errors import DataLossError, OptionError
from sqs_fifo_spark.journal.location import BY_ENVIRONMENT, open_store
from sqs_fifo_spark.option_rules import JOURNAL_SCHEMES
from sqs_fifo_spark.source.journal_objects import Journal
from sqs_fifo_spark.source.offset import Offset

F = TypeVar("F", bound=Callable[..., Any])
_MOST_BYTES = 16 << 20
"""More than any file of an offset log has."""


def epoch_flags(command: F) -> F:
    """Add `--epoch`, and `--batch` with `--checkpoint-location`: the arguments of `epoch_of`."""
    for flag in (
        click.option(
            "--checkpoint-location",
            metavar="TEXT",
            help="The query's checkpoint, for --batch: a path, or a bucket that is reached with the environment's "
            "credentials.",
        ),
        click.option("--batch", type=click.IntRange(min=0), help="Instead of it: a micro-batch that has it."),
        click.option("--epoch", type=click.IntRange(min=1), help="Number of the epoch."),
    ):
        command = flag(command)
    return command


def epoch_of(journal: Journal, epoch: int | None, batch: int | None, checkpoint: str | None) -> int:
    """Return the number of the epoch that the flags name. Raises DataLossError if the checkpoint does not fit."""
    if epoch is not None and batch is None and checkpoint is None:
        return epoch
    if epoch is not None or batch is None or not checkpoint:
        raise click.UsageError("give either --epoch, or --batch and --checkpoint-location.")
    scheme, is_url, _ = checkpoint.partition("://")
    if is_url and scheme not in JOURNAL_SCHEMES:
        raise OptionError(
            f"a checkpoint at '{checkpoint}' cannot be read from here. Copy its file 'offsets/{batch}' to a directory, "
            "below 'offsets' too, and give that directory as --checkpoint-location."
        )
    store = open_store(checkpoint if is_url else str(Path(checkpoint).absolute()), BY_ENVIRONMENT)
    # Not `get`, which makes a folder's names durable: this one is Spark's, and perhaps on a mount that cannot do it.
    data, before = (store.get_range(f"offsets/{number}", 0, _MOST_BYTES) for number in (batch, batch - 1))
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
    (found,) = epochs
    if found in {each.epoch for each in _offsets(before or b"") if each.journal == journal.id}:
        raise DataLossError(
            f"micro-batch {batch} of the checkpoint at '{checkpoint}' has nothing of the journal at "
            f"'{journal.location}': epoch {found} belongs to an earlier one. Give that, or --epoch."
        )
    return found


def _offsets(data: bytes) -> Iterator[Offset]:
    """Yield this source's offsets in a file of Spark's offset log; of version 2, a line begins with a source's name."""
    for line in data.decode(errors="replace").splitlines():
        _, brace, rest = line.partition("{")
        try:
            yield Offset.from_json(json.loads(brace + rest))
        except (ValueError, RecursionError, DataLossError):
            continue  # of another source, or no offset at all
