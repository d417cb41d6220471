"""Print `sqs_fifo_spark/options/keywords.py`: `python .ci/keywords.py > sqs_fifo_spark/options/keywords.py`."""

from __future__ import annotations

import functools
from dataclasses import fields

from sqs_fifo_spark import option_rules as rules
from sqs_fifo_spark.frames import snake
from sqs_fifo_spark.option_rules import Option
from sqs_fifo_spark.options import SINK, SOURCE, SinkOptions, SourceOptions

HEAD = '''\
"""The keywords of `read_fifo` and `write_fifo`, with their types. Made by .ci/keywords.py from the declared options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Required
'''


def keyword(option: Option, annotation: str) -> str:
    """Return the line of an option, whose field has this annotation."""
    kind = annotation.removesuffix(" | None")
    if isinstance(option.rule, functools.partial):
        values = ", ".join(f'"{value}"' for value in option.rule.args[0])
        kind = f"Literal[{values}]"
    elif option.rule is rules.size:
        kind = "int | str"
    elif kind.startswith("tuple["):
        kind = "str | Sequence[str]"
    return f"    {snake(option.name)}: {f'Required[{kind}]' if option.is_in_every_query else kind}\n"


def module() -> str:
    """Return the module's text."""
    text = HEAD
    for name, table, declared in (("Read", SOURCE, SourceOptions), ("Write", SINK, SinkOptions)):
        annotations = {field.name: str(field.type) for field in fields(declared)}
        text += f'\n\nclass {name}Keywords(TypedDict, total=False):\n    """The options of a {table.side}."""\n\n'
        text += "".join(keyword(option, annotations[field]) for field, option in table.by_field.items())
    return text


if __name__ == "__main__":
    print(module(), end="")
