"""The commands by their names, each imported when it is asked for, and the end of a failure: one line and a status."""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn

import click

import sqs_fifo_spark
from sqs_fifo_spark.cli.output import Status, print_error, status_of
from sqs_fifo_spark.errors import SqsFifoError

_STATUSES = """\b
Exit status:
  0  all is well
  1  a problem was found, or some of what was asked for is not there, or could not be done
  2  wrong usage: a flag, an option or a value
  3  a service, a queue, a journal or a file could not be reached, or refused
  130  interrupted
  143  ended by SIGTERM
"""


class _Sigterm(KeyboardInterrupt):
    """SIGTERM came: the command ends as after Ctrl-C, but for its status."""


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _Sigterm


class Commands(click.Group):
    """A group whose commands are attributes of this package's modules: `module:attribute`."""

    def __init__(self, name: str, places: Mapping[str, str], **named: Any) -> None:
        super().__init__(name, **named)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self._places.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        command: click.Command = getattr(importlib.import_module(f"sqs_fifo_spark.{module}"), attribute)
        return command

    def main(  # type: ignore[override]  # of click's two, one returns the status: this one exits
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run the command line, and exit with the status that the command has returned."""
        extra["standalone_mode"] = False
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _terminate)
        try:
            status = super().main(args, prog_name or "sqs-fifo-spark", **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            status = Status.USAGE
        except click.UsageError as error:
            hint = f" See '{error.ctx.command_path} --help'." if error.ctx else ""
            status = _fail(f"{error.format_message()}{hint}", Status.USAGE)
        except click.ClickException as error:
            status = _fail(error.format_message(), Status.REFUSED)
        except SqsFifoError as error:
            status = _fail(str(error), status_of(error))
        except click.Abort as error:
            is_terminated = isinstance(error.__cause__, _Sigterm)
            status = _fail("interrupted", Status.TERMINATED if is_terminated else Status.INTERRUPTED)
        except OSError as error:  # of the output, for all others are reported where they are met
            status = _fail(f"the output cannot be written: {error.strerror or error}.", Status.REFUSED)
        sys.exit(int(status or 0))


def _fail(text: str, status: Status) -> Status:
    print_error(text)
    return status


journal = Commands(
    "journal",
    help="Inspect a journal, also while a query uses it; or repair it while none does.",
    short_help="Inspect a journal, or repair it.",
    places={
        "show": "cli.journal_commands:show",
        "cat": "cli.journal_commands:cat",
        "export": "cli.journal_commands:export",
        "skip": "cli.repair_commands:skip",
        "release": "cli.repair_commands:release",
        "forget": "cli.repair_commands:forget",
    },
)
commands = click.version_option(
    sqs_fifo_spark.__version__, prog_name="sqs-fifo-spark", help="Print the version and exit."
)(
    Commands(
        "sqs-fifo-spark",
        help="Commands for the people who run queries on Amazon SQS FIFO queues.",
        epilog=_STATUSES,
        places={
            "doctor": "cli.doctor:doctor",
            "journal": "cli.commands:journal",
            "send": "cli.send:send",
            "peek": "cli.peek:peek",
            "init": "cli.init:init",
            "conformance": "cli.conformance:conformance",
            "local-queue": "local.cli:local_queue",
            "demo": "demo.cli:demo",
        },
    )
)
