"""How a command must have ended."""

from __future__ import annotations

from click.testing import Result

from sqs_fifo_spark.cli.output import Status
from tests.unit.cli.conftest import one_error


def error_of(result: Result, status: Status) -> str:
    """Return the one line to which a command that ended with `status` has come."""
    assert result.exit_code == status, result.output
    return one_error(result)


def output_of(result: Result, status: Status = Status.OK) -> str:
    """Return the text of a command that ended with `status`."""
    assert result.exit_code == status, result.output
    return result.stdout
