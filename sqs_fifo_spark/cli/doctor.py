"""`doctor`: checks credentials, permissions, queue, journal and Spark's Python before a query meets them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import asdict

import click

from sqs_fifo_spark.cli.finding import FAILURE, STYLES, Finding
from sqs_fifo_spark.cli.flags import journal_flags, parse_connection
from sqs_fifo_spark.cli.journal_checks import check_journal
from sqs_fifo_spark.cli.output import Status, json_flag, print_json, print_line
from sqs_fifo_spark.cli.python_checks import check_python
from sqs_fifo_spark.cli.queue_checks import check_queue
from sqs_fifo_spark.cli.slow_calls import begin
from sqs_fifo_spark.journal.location import journal_access
from sqs_fifo_spark.options import SourceOptions

HOST_S = 4.0
"""Seconds to wait for a silent host: the queue's, then STS, and beside them the journal's. All take under 10 s."""
_ROLES = {"source": ("source",), "sink": ("sink",), "both": ("source", "sink")}


@click.command(short_help="Check what a query needs, and say what is missing.")
@journal_flags(required=False)
@click.option(
    "--role",
    type=click.Choice(list(_ROLES)),
    default="source",
    show_default=True,
    help="What the queue is used as: this decides which permissions and settings are looked at.",
)
@click.option(
    "--start-spark",
    is_flag=True,
    help="Also start Spark in local mode, with this Python, and let it look the format up. Takes some seconds.",
)
@json_flag
def doctor(
    journal_location: str | None, role: str, start_spark: bool, as_json: bool, **connection: str | None
) -> Status:
    """Check all that a query needs, and say what to do about what is missing. Exits with 1 if a check failed.

    No message is received, hidden, deleted or sent. Into the journal's place one object is written below check/, and
    deleted again. A warning is what may be wrong, or cannot be told; it does not change the exit status.
    """
    options = parse_connection(connection, journal_location)
    location = None if journal_location is None else options.journal_location
    is_well = True
    for finding in _findings(options, location, _ROLES[role], start_spark=start_spark):
        is_well = is_well and finding.level != FAILURE
        if as_json:
            print_json(asdict(finding))
        else:
            _print(finding)
    return Status.OK if is_well else Status.PROBLEM


def _findings(
    options: SourceOptions, location: str | None, roles: tuple[str, ...], *, start_spark: bool
) -> Iterator[Finding]:
    yield from check_python(start_spark=start_spark)
    queue_arn = Future[str | None]()
    journal = begin(lambda: list(check_journal(location, journal_access(options), queue_arn.result, HOST_S)))
    queue_arn.set_result((yield from check_queue(options, roles, HOST_S)))
    yield from journal.result()


def _print(finding: Finding) -> None:
    remedy = f". {finding.remedy}." if finding.remedy else ""
    print_line(f"{finding.level:<8} {finding.check}: {finding.says.rstrip('.')}{remedy}", STYLES[finding.level])
