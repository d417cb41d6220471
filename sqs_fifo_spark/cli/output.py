"""The output of commands: for people with rich, for machines as JSON; and their exit statuses."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, TypeAlias

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from sqs_fifo_spark.errors import (
    AccessDeniedError,
    JournalUnavailableError,
    MissingPackageError,
    NotFifoQueueError,
    OptionError,
    QueueNotFoundError,
    QueueRequestError,
    SqsFifoError,
    TransientQueueError,
)

_USAGE = (OptionError, NotFifoQueueError)
_REFUSED = (
    AccessDeniedError,
    JournalUnavailableError,
    MissingPackageError,
    QueueNotFoundError,
    QueueRequestError,
    TransientQueueError,
)
_WIDEST = 10_000
"""Columns; lines for a file or a pipe are not wrapped."""


class Status(enum.IntEnum):
    """The exit status of a command."""

    OK = 0
    PROBLEM = 1
    USAGE = 2
    REFUSED = 3
    INTERRUPTED = 130
    TERMINATED = 143


def status_of(error: SqsFifoError) -> Status:
    """Return the status of a command that ends with `error`."""
    if isinstance(error, _USAGE):
        return Status.USAGE
    return Status.REFUSED if isinstance(error, _REFUSED) else Status.PROBLEM


json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def print_json(value: Any) -> None:
    click.echo(json.dumps(value))


def time_text(at: datetime | float) -> str:
    """Return a time as ISO 8601 in UTC; a number is of seconds since the Unix epoch."""
    if not isinstance(at, datetime):
        at = datetime.fromtimestamp(at, timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def printable(text: str) -> str:
    """Return `text` with escapes for characters that could move a terminal's cursor, or break a line."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def print_error(text: str) -> None:
    click.echo(f"error: {printable(' '.join(text.split()))}", err=True)


def print_line(text: str, style: str = "") -> None:
    """Print one line; a terminal shows it in `style`."""
    _console().print(Text(printable(text), style), soft_wrap=True)


def print_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print these columns of the rows, below their names."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        values = [row[column] for column in columns]
        table.add_row(*(Text("" if value is None else printable(str(value))) for value in values))
    _console().print(table)


Track: TypeAlias = Callable[[Iterable[Any], str], Iterable[Any]]
"""Goes through items; a terminal's line about it begins with the text."""


@contextmanager
def progress(*, is_shown: bool) -> Iterator[Track]:
    """While the block runs, show the share of tracked items on the standard error, if that is a terminal.

    It has one line to move its cursor in, so only one sequence is to be tracked.
    """
    console = Console(stderr=True)
    if not (is_shown and sys.stderr.isatty() and console.is_interactive):  # by FORCE_COLOR rich may err
        yield lambda items, what: items
        return
    with Progress(console=console, transient=True) as shown:
        yield lambda items, what: shown.track(items, description=what)


def _console() -> Console:
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=_WIDEST)
