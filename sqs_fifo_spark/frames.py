"""`read_fifo` and `write_fifo`: the format's options as keywords, which editors complete and type checkers know.

Each option has its own name in snake_case. `options.keywords` has their types, and is only for those who check them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from sqs_fifo_spark.options import SINK, SOURCE, parse_sink_options, parse_source_options
from sqs_fifo_spark.registration import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from typing_extensions import Unpack

    from sqs_fifo_spark.options.keywords import ReadKeywords, WriteKeywords
    from sqs_fifo_spark.options.table import OptionTable

F = TypeVar("F", bound=Callable[..., Any])


def snake(name: str) -> str:
    """Return an option's name as the keyword for it."""
    return re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name)


def _takes_options_of(table: OptionTable) -> Callable[[F], F]:
    """Let `help` and notebooks show a function's keywords: they do not look into the type of `**options`."""

    def show(function: F) -> F:
        first, _ = inspect.signature(function).parameters.values()
        keywords = (
            inspect.Parameter(
                snake(option.name),
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if option.is_in_every_query else option.default,
            )
            for option in table.options
        )
        function.__signature__ = inspect.Signature([first, *keywords])  # type: ignore[attr-defined]
        return function

    return show


@_takes_options_of(SOURCE)
def read_fifo(spark: SparkSession, **options: Unpack[ReadKeywords]) -> DataFrame:
    """Return the queue as a streaming frame: `spark.readStream.format("sqsfifo")` with these options, loaded.

    Runs on the driver; `register` is called first. Raises OptionError, or NotFifoQueueError, before Spark is asked, and
    AnalysisException with the line of an error of ours, as `load` does.
    """
    given = _named(options)
    parse_source_options(given)
    register(spark)
    return spark.readStream.format("sqsfifo").options(**given).load()


@_takes_options_of(SINK)
def write_fifo(df: DataFrame, **options: Unpack[WriteKeywords]) -> DataStreamWriter:
    """Return `df.writeStream.format("sqsfifo")` with these options: checkpoint, trigger, name and start are yours.

    Runs on the driver; `register` is called first. Raises OptionError, or NotFifoQueueError, at once: Spark itself
    shows a sink's options to nobody before the first micro-batch.
    """
    given = _named(options)
    parse_sink_options(given)
    register(df.sparkSession)
    return df.writeStream.format("sqsfifo").options(**given)


def _named(options: Mapping[str, object]) -> dict[str, str]:
    """Return keywords as options of the format; None becomes an empty value, which is refused as such."""
    return {re.sub("_(.)", lambda found: found[1].upper(), key): _text(value) for key, value in options.items()}


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return "" if value is None else str(value)
