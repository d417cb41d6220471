"""Every error this package raises on purpose, and its remedy.

A message is one line: the value seen, the rule, the reason, the remedy. No message ever holds a body, a receipt handle
or a credential. All arguments go to `Exception.__init__`, so that an error survives the pickling between Spark's
processes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class SqsFifoError(Exception):
    """The base of all errors of this package."""


class MissingPackageError(SqsFifoError, ImportError):
    """A package is missing in a Python that Spark uses, or does not fit: install it there, or let Spark use another."""


class OptionError(SqsFifoError):
    """An option is missing, unknown, malformed, out of range, or in conflict: correct the query."""


class SchemaError(SqsFifoError):
    """A schema has a column or a type that does not fit: the one given to a source, or that of rows for a sink."""


class UnsupportedReadError(SqsFifoError):
    """The queue was read as a table; it can only be read as a stream."""


class UnsupportedWriteError(SqsFifoError):
    """The write would replace rows; messages can only be added to a queue."""


class RowError(SqsFifoError):
    """A row cannot be sent: correct it, or filter it out before the sink. Nothing of its group after it was sent."""


class AccessDeniedError(SqsFifoError):
    """AWS refused the credentials or the permission: correct the policy, then restart the query."""

    has_no_credentials = False
    """True if the AWS chain gave no credentials. It may give some later, if it asks a service of the machine."""
    is_of_queue = False
    """True if AWS takes the credentials, and they lack a permission on this queue, or its key cannot be used."""


class QueueNotFoundError(SqsFifoError):
    """The queue does not exist, or does not any more: correct `queueUrl`."""


class NotFifoQueueError(SqsFifoError):
    """The queue is a standard queue, which has no message groups: use a FIFO queue."""


class QueueRequestError(SqsFifoError):
    """SQS refused a request for good, for a reason that a retry does not change."""


class TransientQueueError(SqsFifoError):
    """SQS throttled, failed or did not answer: worth another try while there is time."""

    is_throttling = False
    """True if SQS has said that there are too many calls."""


class PayloadError(SqsFifoError):
    """A payload on S3 cannot be read or written. Its message is still where it was: correct that, then restart."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final
        """True if the object itself is the reason; else S3 gave no answer, and may give one later."""


class JournalUnavailableError(SqsFifoError):
    """The journal's store gave no definite answer: the write may have happened. Restart the query."""


class JournalCorruptError(SqsFifoError):
    """An object of the journal is damaged or was not written by this package: nothing of it was served."""


class JournalMismatchError(SqsFifoError):
    """The journal belongs to another queue: give each queue a `journalLocation` of its own."""


class DataLossError(SqsFifoError):
    """Checkpoint and journal, or `once` and its table, do not fit: to go on could lose rows, or write them twice."""


class FencedError(SqsFifoError):
    """A newer query owns the journal: this one must stop."""


class EpochSettledError(SqsFifoError):
    """A task asked for an epoch that is settled, or whose objects are not there: its rows cannot be read any more."""


class BatchForgottenError(SqsFifoError):
    """An old micro-batch runs again, and the record of its sent rows is already forgotten."""


class DisorderError(SqsFifoError):
    """Rows of a group stand in the queue in another order than they were given in; see `onDisorder`."""


@contextmanager
def needs_spark() -> Iterator[None]:
    """Let imports of PySpark raise MissingPackageError where there is none, or an older one than 4.0."""
    try:
        yield
    except ImportError as error:
        if isinstance(error, SqsFifoError) or not (error.name or "").startswith("pyspark"):
            raise
        raise MissingPackageError(
            f"{sys.executable} has no PySpark 4.0 or later ({error}). Use the Python of your Spark platform, or "
            "install it: pip install 'pyspark>=4.0'"
        ) from None
