"""Flags made of the options' own table: `queueUrl` is `--queue-url`. The options' parser decides on their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from sqs_fifo_spark import option_rules as rules
from sqs_fifo_spark.aws.named import with_url
from sqs_fifo_spark.option_rules import Option
from sqs_fifo_spark.options import SOURCE, ConnectionOptions, SourceOptions, parse_source_options
from sqs_fifo_spark.options.table import OptionTable, options_of

F = TypeVar("F", bound=Callable[..., Any])
_NOT_OPENED = "/"
"""A journalLocation for a command that has none: the source's options ask for one."""
NOT_CALLED = "http://localhost/0/none.fifo"
"""A queueUrl for a command that looks at a journal alone; it names no region."""


def flag_of(option: Option) -> str:
    return "--" + re.sub("[A-Z]", lambda capital: f"-{capital[0].lower()}", option.name)


def connection_flags(command: F) -> F:
    """Add a flag for each option of the queue and its calls; they come as the field's argument."""
    return _flags(command, lambda name: not name.startswith("journal_"))


def journal_flags(*, required: bool, has_queue: bool = True) -> Callable[[F], F]:
    """Return the decorator that adds `--journal-location`, and flags for the way to it and to the queue.

    Without `has_queue`, the command names its queue in another way.
    """

    def add(command: F) -> F:
        with_flags = _flags(command, lambda name: has_queue or name != "queue_url")
        return _flag("journal_location", SOURCE["journalLocation"], required=required)(with_flags)

    return add


def _flags(command: F, is_wanted: Callable[[str], bool]) -> F:
    for field, option in reversed(options_of(ConnectionOptions).items()):
        # A command line shows in the list of processes: keys come from environment or profile.
        if is_wanted(field) and option.rule is not rules.secret:
            command = _flag(field, option)(command)
    return command


def _flag(field: str, option: Option, *, required: bool = False) -> Callable[[F], F]:
    default = "" if option.is_required else f" Default: {option.shown_default()}."
    text = f"{option.meaning}{default}".replace("`", "")
    return click.option(flag_of(option), field, metavar="TEXT", required=required, help=text)


def given_options(chosen: Mapping[str, str | None], table: OptionTable = SOURCE) -> dict[str, str]:
    """Return the options of the flags that were given, as a user of the format writes them."""
    return {table.by_field[field].name: value for field, value in chosen.items() if value is not None}


def parse_connection(
    chosen: Mapping[str, str | None], journal_location: str | None = None, **more: str
) -> SourceOptions:
    """Return the options of the flags in `chosen`, and `more`; raises as `parse_source_options` does."""
    place = _NOT_OPENED if journal_location is None else journal_location
    given = {"journalLocation": place, **given_options(chosen), **more}
    queue = SOURCE["queueUrl"]
    if queue.name not in given:  # the source's own error names options for several, which no command takes
        raise click.UsageError(f"option '{queue.name}' is missing. Give {flag_of(queue)}, the one that this is about.")
    return with_url(parse_source_options, given)
