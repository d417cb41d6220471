"""The options of one side, by their names and by their fields, and one way to read what a user has given."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from sqs_fifo_spark.errors import OptionError
from sqs_fifo_spark.option_rules import Option
from sqs_fifo_spark.options.foreign import hints_of, plain


@functools.cache
def options_of(declared: Callable[..., object]) -> dict[str, Option]:
    """Return the options that a dataclass declares, by field."""
    found: dict[str, Option] = {each.name: each.metadata["option"] for each in fields(declared)}  # type: ignore[arg-type]
    return {field: replace(option, name=option.name or _name_of(field)) for field, option in found.items()}


def _name_of(field: str) -> str:
    words = re.sub("_s$", "_second" if "_per_" in field else "_seconds", field)
    return re.sub("_(.)", lambda found: found[1].upper(), words)


class OptionTable:
    """All options of one side, source or sink: the required ones first, then as they are declared."""

    def __init__(self, side: str, declared: Callable[..., Any], *, added_by_spark: Sequence[str] = ()):
        """`declared` is a dataclass whose fields are `option`s; `added_by_spark` are Spark's own keys."""
        self.side = side
        self.by_field = dict(sorted(options_of(declared).items(), key=lambda each: not each[1].is_required))
        self.options = tuple(self.by_field.values())
        self._declared = declared
        self._added_by_spark = {key.lower() for key in added_by_spark}
        self._fields = {option.name.lower(): name for name, option in self.by_field.items()}
        self._hints = hints_of(side)

    def __contains__(self, key: str) -> bool:
        return key.lower() in self._fields

    def __getitem__(self, key: str) -> Option:
        """Return the option that users call so, without regard to case."""
        return self.by_field[self._fields[key.lower()]]

    def parse(self, given: Mapping[str, str], other: OptionTable, *, beside_missing: str = "") -> Any:
        """Return the dataclass, complete with defaults; keys are compared without regard to case.

        Raises OptionError, or NotFifoQueueError for the URL of a standard queue, with one line that says the remedy.
        `other` is the other side's table: an option of that side is reported as such. `beside_missing` is the text to
        add where a required option is missing.
        """
        written = {key: value for key, value in given.items() if key.lower() not in self._added_by_spark}
        unknown = [key for key in written if key not in self]
        if unknown:
            raise OptionError(self._unknown(unknown, other))
        values = {self._fields[key.lower()]: _value(self[key], value) for key, value in written.items()}

        def has_one(names: Sequence[str]) -> bool:
            return any(self._fields[name.lower()] in values for name in names)

        for name, option in self.by_field.items():
            if option.is_required and name not in values and not has_one(option.unless):
                meaning = option.meaning[0].lower() + option.meaning[1:]
                instead = f" Or give {' or '.join(option.unless)} for several." if option.unless else ""
                raise OptionError(
                    f"option '{option.name}' is missing. Give {option.name}, {meaning}{instead}{beside_missing}"
                )
            if option.needs and name in values and not has_one(option.needs):
                needed = " or ".join(map(repr, option.needs))
                raise OptionError(
                    f"option '{option.name}' is given without {needed}, so it would have no effect. Give "
                    f"{option.needs[0] if len(option.needs) == 1 else 'one of these'}, or leave {option.name} out."
                )
        for name, option in self.by_field.items():
            if name not in values:
                values[name] = option.default_from(values) if option.default_from else option.default
        return self._declared(**values)

    def _unknown(self, keys: Sequence[str], other: OptionTable) -> str:
        """Return a sentence or two on each of these keys; those that are like nothing come last, with all that is."""
        said, strange = [], []
        for key in keys:
            name, hint = self._hints.get(plain(key), (key, ""))
            shown = name if name.lower() == key.lower() else key  # Spark lowers the case
            near = difflib.get_close_matches(key.lower(), self._fields, n=1, cutoff=0.6)
            guess = f"Did you mean '{self[near[0]].name}'?" if near else ""
            if key in other:
                said.append(
                    f"option '{other[key].name}' is one of the {other.side}, not of the {self.side}. Leave it out."
                )
            elif hint or guess:
                said.append(f"unknown option {shown!r}. {hint or guess}")
            else:
                strange.append(repr(key))
        if strange:
            names = ", ".join(option.name for option in self.options)
            said.append(f"unknown option{'s' * (len(strange) > 1)} {', '.join(strange)}. The options are {names}.")
        return " Also ".join(said)


def _value(option: Option, written: str | None) -> Any:
    value = "" if written is None else str(written).strip()
    if not value:
        raise OptionError(f"option '{option.name}' is empty; give it a value or leave it out.")
    if not value.isprintable():  # no path, URL or header takes it, and it would break the lines of logs
        # Not shown: it may be a URL with a password or a signature in it.
        raise OptionError(f"option '{option.name}' holds line breaks or other characters that do not print.")
    return option.rule(option, value)
