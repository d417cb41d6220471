"""All cases, of every ground."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from sqs_fifo_spark.conformance import (  # noqa: F401  # each declares its cases
    attempts,
    batches,
    deduplication,
    delays,
    locks,
    polls,
    queues,
    receipts,
    redrive,
    sequence,
    sizes,
    wire,
)
from sqs_fifo_spark.conformance.case import Case, declared


def find_cases(only: Sequence[str] = ()) -> list[Case]:
    """Return the cases whose ids, or grounds, match one of the patterns in `only`; all cases without any."""
    return [
        each
        for each in declared
        if not only or any(fnmatchcase(each.id, text) or each.id.startswith(f"{text}.") for text in only)
    ]
