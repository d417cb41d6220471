"""Flags made of the options' own table: `queueUrl` is `--queue-url`. What they mean, the options' parser decides."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import click

from sqs_fifo_spark import option_rules as rules
from sqs_fifo_spark.journal.object_store import S3Access, journal_access
from sqs_fifo_spark.option_rules import Option, OptionTable
from sqs_fifo_spark.options import SOURCE, ConnectionOptions, SourceOptions, parse_source_options

F = TypeVar("F", bound=Callable[..., Any])
_NOT_OPENED = "/"
"""A journalLocation for a command that has none: the source's options ask for one."""
_NOT_CALLED = "http://localhost/0/none.fifo"
"""A queueUrl for a command that looks at a journal alone; it tells of no region."""


def flag_of(option: Option) -> str:
    """Return the flag of an option."""
    return "--" + re.sub("[A-Z]", lambda capital: f"-{capital[0].lower()}", option.name)


def connection_flags(command: F) -> F:
    """Add a flag for each option of `ConnectionOptions`; they come as the argument of the field's name."""
    return _queue_flag(connection_flags_but_queue(command))


def connection_flags_but_queue(command: F) -> F:
    """Do as `connection_flags`, for a command that names its queue in another way."""
    for each in reversed(fields(ConnectionOptions)):
        option: Option = each.metadata["option"]
        # What stands on a command line shows in the list of processes: keys come from environment or profile.
        if each.name != "queue_url" and option.rule is not rules.secret:
            command = _flag(each.name, option)(command)
    return command


def journal_flag(*, required: bool) -> Callable[[F], F]:
    """Return what adds `--journal-location`."""
    return _flag("journal_location", SOURCE["journalLocation"], required=required)


def _flag(field: str, option: Option, *, required: bool = False) -> Callable[[F], F]:
    default = "" if option.is_required else f" Default: {option.shown_default()}."
    text = f"{option.meaning}{default}".replace("`", "")
    return click.option(flag_of(option), field, metavar="TEXT", required=required, help=text)


_queue_flag = _flag("queue_url", SOURCE["queueUrl"])


def given(chosen: Mapping[str, str | None], table: OptionTable = SOURCE) -> dict[str, str]:
    """Return the options of the flags that were given, as a user of the format writes them."""
    return {table.by_field[field].name: value for field, value in chosen.items() if value is not None}


def parse_connection(chosen: Mapping[str, str | None], **more: str) -> SourceOptions:
    """Return the options of the flags in `chosen`, and `more`, as a source has them.

    Raises what `parse_source_options` raises.
    """
    return parse_source_options({"journalLocation": _NOT_OPENED, **given(chosen), **more})


def access_of(chosen: Mapping[str, str | None]) -> S3Access:
    """Return how a journal on S3 is reached with the flags in `chosen`. Raises as `parse_connection`."""
    return journal_access(parse_connection({**chosen, "queue_url": chosen.get("queue_url") or _NOT_CALLED}))


def checked_location(value: str) -> str:
    """Return a `journalLocation` that source and sink take. Raises OptionError."""
    option = SOURCE["journalLocation"]
    location: str = option.rule(option, value.strip())
    return location
