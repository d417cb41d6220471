"""`read_fifo` and `write_fifo`: each option is a keyword with its type, and a wrong one is the format's own error."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sqs_fifo_spark
from sqs_fifo_spark.errors import NotFifoQueueError, OptionError
from sqs_fifo_spark.frames import read_fifo, write_fifo
from sqs_fifo_spark.options import SINK, SOURCE
from sqs_fifo_spark.options.table import OptionTable
from tests.helpers import raises_one_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ROOT = Path(__file__).resolve().parents[2]
NOBODY: Any = None
"""In place of a session, and of a frame: neither is asked for anything."""


def test_the_keywords_are_the_declared_options() -> None:
    """With their types; `python .ci/keywords.py > sqs_fifo_spark/options/keywords.py` makes them so."""
    made = runpy.run_path(str(ROOT / ".ci" / "keywords.py"))["module"]()
    assert (ROOT / "sqs_fifo_spark" / "options" / "keywords.py").read_text(encoding="utf-8") == made


@pytest.mark.parametrize(("function", "table"), [(read_fifo, SOURCE), (write_fifo, SINK)])
def test_notebooks_complete_every_keyword(function: Any, table: OptionTable) -> None:
    """By the signature, in which required ones have no default."""
    _, *keywords = inspect.signature(function).parameters.values()
    assert [each.name.replace("_", "") for each in keywords] == [option.name.lower() for option in table.options]
    required = [option.is_in_every_query for option in table.options]
    assert [each.default is inspect.Parameter.empty for each in keywords] == required


@pytest.mark.parametrize("function", [read_fifo, write_fifo])
def test_a_wrong_keyword_is_the_error_of_a_wrong_option(function: Any) -> None:
    """Before Spark is asked: it would show a sink's options to nobody until the first micro-batch."""
    given = {"queue_url": "bids.fifo", "journal_location": "/journal"}
    for wrong, said in (
        ({"max_files_per_trigger": 7}, r"unknown option 'maxFilesPerTrigger'\. .+"),
        ({"max_calls_per_second": 0}, r"option 'maxCallsPerSecond' is '0'; .+"),
        ({"queue_url": None}, r"option 'queueUrl' is empty; .+"),
    ):
        with raises_one_line(OptionError, match=said):
            function(NOBODY, **{**given, **wrong})
    with raises_one_line(OptionError, match="option 'queueUrl' is missing"):
        function(NOBODY, journal_location="/journal")


def test_several_queues_may_be_a_list() -> None:
    """As well as a text with commas."""
    for queues in (["a.fifo", "b"], ("a.fifo", "b"), "a.fifo, b"):
        with raises_one_line(NotFifoQueueError, match="option 'queueUrls' is 'b', a standard queue"):
            read_fifo(NOBODY, queue_urls=queues, journal_location="/journal")


def test_the_package_shows_its_public_names_alone() -> None:
    """To `dir`, and so to completion; each is there."""
    assert dir(sqs_fifo_spark) == sorted(sqs_fifo_spark.__all__)
    assert all(getattr(sqs_fifo_spark, name) for name in dir(sqs_fifo_spark))


def judged_by_mypy(spark: SparkSession, df: DataFrame) -> None:
    """Never called. Where mypy no longer refuses a wrong use, it says that the comment there is of no use."""
    rows: DataFrame = read_fifo(
        spark,
        queue_url="bids.fifo",
        journal_location="/journal",
        visibility_timeout_seconds=60,
        max_bytes_per_trigger="64m",
        max_fetch_seconds=2,
        delete_after="journal",
        fail_on_data_loss=False,
    )
    writer: DataStreamWriter = sqs_fifo_spark.write_fifo(rows, queue_url="bids.fifo", order="batch", txn_version=1)
    writer.trigger(availableNow=True).queryName("bids").start()
    read_fifo(spark, queue_urls=["bids.fifo", "lots.fifo"], journal_location="/journal")
    read_fifo(spark, queue_name_prefix="bids-", queue_discovery_seconds=5, journal_location="/journal")
    read_fifo(spark, queue_url="bids.fifo")  # type: ignore[call-arg]
    write_fifo(df)  # type: ignore[call-arg]
    write_fifo(df, queue_url="bids.fifo", num_partitions=1)  # type: ignore[call-arg]
    write_fifo(df, queue_url="bids.fifo", queueUrl="bids.fifo")  # type: ignore[call-arg]
    write_fifo(df, queue_url="bids.fifo", order="loose")  # type: ignore[arg-type]
    write_fifo(df, queue_url="bids.fifo", max_calls_per_second="7")  # type: ignore[arg-type]
