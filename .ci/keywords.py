"""Print `sqs_fifo_spark/options/keywords.py`: `python .ci/keywords.py > sqs_fifo_spark/options/keywords.py`."""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import fields
from typing import Any

from sqs_fifo_spark import option_rules as rules
from sqs_fifo_spark.frames import snake
from sqs_fifo_spark.option_rules import Option
from sqs_fifo_spark.options import SINK, SOURCE, ConnectionOptions, SinkOptions, SourceOptions
from sqs_fifo_spark.options.table import OptionTable, options_of

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


def keywords(head: str, meaning: str, table: OptionTable, declared: type[Any], chosen: Collection[str]) -> str:
    """Return the class of the chosen fields."""
    annotations = {field.name: str(field.type) for field in fields(declared)}
    lines = (keyword(option, annotations[field]) for field, option in table.by_field.items() if field in chosen)
    return f'\n\nclass {head}, total=False):\n    """{meaning}"""\n\n{"".join(lines)}'


def module() -> str:
    """Return the module's text."""
    shared = options_of(ConnectionOptions).keys() - {"queue_url"}  # which a sink requires
    source, sink = (table.by_field.keys() - shared for table in (SOURCE, SINK))
    return "".join(
        [
            HEAD,
            keywords("_CallKeywords(TypedDict", "The options of both sides.", SOURCE, SourceOptions, shared),
            keywords("ReadKeywords(_CallKeywords", "The options of a source.", SOURCE, SourceOptions, source),
            keywords("WriteKeywords(_CallKeywords", "The options of a sink.", SINK, SinkOptions, sink),
        ]
    )


if __name__ == "__main__":
    print(module(), end="")
