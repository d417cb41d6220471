"""The tables of options, as the pages show them."""

from __future__ import annotations

import re

from sqs_fifo_spark.options.foreign import HINTS
from sqs_fifo_spark.options.table import OptionTable


def table_of(options: OptionTable) -> str:
    """Return the table of `docs/options.md`, or of `docs/options-sink.md`."""
    rows = ["| option | default | meaning |", "|---|---|---|"]
    rows += [f"| `{option.name}` | {option.shown_default()} | {option.meaning} |" for option in options.options]
    return "\n".join(rows)


def table_of_hints() -> str:
    """Return the table of `docs/other-sources.md`."""
    rows = ["| option elsewhere | reading | writing |", "|---|---|---|"]
    for names, *said in HINTS:
        cells = (re.sub(r"'(\w+)'", r"`\1`", text or "") for text in said)
        rows.append(f"| {', '.join(f'`{name}`' for name in names)} | {' | '.join(cells)} |")
    return "\n".join(rows)
