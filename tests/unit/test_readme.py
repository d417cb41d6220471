"""The README says what the source does."""

from __future__ import annotations

from pathlib import Path

from sqs_fifo_spark.options import SOURCE

README = Path(__file__).resolve().parents[2] / "README.md"
BEGIN, END = "<!-- options:begin -->", "<!-- options:end -->"


def test_options_table_in_the_readme_is_current() -> None:
    """Between the markers stands what `SOURCE.markdown()` returns, and nothing else."""
    text = README.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    between = text.partition(BEGIN)[2].partition(END)[0]
    assert between.strip() == SOURCE.markdown()
