"""The README says what source and sink do."""

from __future__ import annotations

from pathlib import Path

import pytest

from sqs_fifo_spark.option_rules import OptionTable
from sqs_fifo_spark.options import SINK, SOURCE

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.mark.parametrize(("name", "table"), [("options", SOURCE), ("sink-options", SINK)])
def test_options_tables_in_the_readme_are_current(name: str, table: OptionTable) -> None:
    """Between the markers stands the table itself, and nothing else."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = README.read_text(encoding="utf-8")
    assert text.count(begin) == text.count(end) == 1
    between = text.partition(begin)[2].partition(end)[0]
    assert between.strip() == table.markdown()
