"""The place of one case: its folder, and queries over the traced source and sink."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.sink import forget_commit

BUSY = "connect back"
"""In the error of a machine that is too busy: Spark gives a Python worker ten seconds to start."""
_BUILDING = ("schema", "streamReader", "streamWriter", "options", "pickled")
_OUTER = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "PYTHON_EXCEPTION")


@dataclass
class Note:
    """A call, its process, and the last batch ids in the logs of offsets and commits by then."""

    call: str
    pid: int
    logs: list[str]

    @property
    def name(self) -> str:
        return self.call.partition("(")[0].split()[0]


@dataclass
class Bench:
    """One case's folder, and Spark with the traced source and sink."""

    spark: SparkSession
    home: Path

    def say(self, **words: object) -> None:
        """Set what the source and sink look for in files: `end`, `fails` and the like, each at once."""
        for name, word in words.items():
            new = self.home / f"new {name}"
            new.write_text(str(word))
            new.replace(self.home / name)

    def rows(self, **options: str) -> DataFrame:
        return self.spark.readStream.format("traced").options(home=str(self.home), **options).load()

    def start(
        self,
        rows: DataFrame | None = None,
        sink: str | Callable[[DataFrame, int], None] = "noop",
        *,
        mode: str = "append",
        trigger: dict[str, Any] | None = None,
        **options: str,
    ) -> StreamingQuery:
        """Start a query of `rows`, or of the source with `options`, which a traced sink gets, too."""
        writer = (self.rows(**options) if rows is None else rows).writeStream.outputMode(mode)
        writer = writer.foreachBatch(sink) if callable(sink) else writer.format(sink)
        writer = writer.options(home=str(self.home), checkpointLocation=str(self.home / "checkpoint"), **options)
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self, *arguments: Any, **options: Any) -> None:
        """Run a query until there is nothing new."""
        assert (error := self.error(*arguments, **options)) == "no error", error

    def error(self, *arguments: Any, **options: Any) -> str:
        """Do the same, and return the query's error: Spark's conditions, and Python's last line."""
        try:
            query = self.start(*arguments, **options)
            if options.get("trigger"):
                query.awaitTermination()
            else:
                query.processAllAvailable()
        except PySparkException as error:
            return short(error)
        finally:
            self.stop()
        return "no error"

    def run_down(self, *arguments: Any, **options: Any) -> None:
        """Run a query whose sink reads the micro-batch and fails."""
        error = self.error(*arguments, sink=self.down, **options)
        assert "the sink is down" in error, error

    def stop(self) -> None:
        for query in self.spark.streams.active:
            query.stop()

    def batch(self, columns: str, yields: str) -> str:
        """Return the rows of a batch of which `read` yields the elements of a list, or its error."""
        rows = self.spark.read.format("traced").options(home=str(self.home), columns=columns, yields=yields).load()
        try:
            return str([tuple(row) for row in rows.collect()])
        except (PySparkException, Py4JJavaError) as error:
            if BUSY in str(error):
                raise
            return short(error)

    def noted(self) -> list[Note]:
        """Return the calls since the last look."""
        file = self.home / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        file.write_text("")
        return [Note(**json.loads(line)) for line in lines]

    def calls(self, *names: str) -> str:
        """Return the calls since the last look, or those of these names; one that is repeated stands once."""
        return told(self.noted(), *names)

    def note(self, text: str) -> None:
        with (self.home / "calls").open("a") as calls:
            calls.write(json.dumps({"call": text, "pid": os.getpid(), "logs": []}) + "\n")

    def collect(self, rows: DataFrame, batch: int) -> None:
        """Note the rows of a micro-batch, as a function of `foreachBatch`."""
        self.note(f"batch {batch}: {sorted(row.x for row in rows.collect())}")

    def down(self, rows: DataFrame, batch: int) -> None:
        """Read a micro-batch and fail, as a function of `foreachBatch`."""
        self.collect(rows, batch)
        raise OSError("the sink is down")

    def forget_commit(self, batch: int) -> None:
        """Leave the checkpoint as a crash does that comes after the sink and before Spark's own log."""
        forget_commit(self.home / "checkpoint", batch)

    def offsets(self) -> list[str]:
        """Return the last line of each file of the offset log."""
        files = sorted((self.home / "checkpoint" / "offsets").glob("[0-9]"))
        return [file.read_text().splitlines()[-1] for file in files]


def told(notes: Iterable[Note], *names: str) -> str:
    """Return the calls in a line."""
    wanted = [note.call for note in notes if (note.name in names if names else note.name not in _BUILDING)]
    return ", ".join(call for call, _ in itertools.groupby(wanted)).replace("ReadAllAvailable()", "all") or "nothing"


def short(error: Exception) -> str:
    """Return Spark's conditions and Python's last line of an error."""
    conditions = [each for each in re.findall(r"\[([A-Z][A-Z_]{5,})\]", str(error)) if each not in _OUTER]
    python = re.findall(r"^(?:\w+\.)*(\w+(?:Error|Invalid): .*)$", str(error), re.MULTILINE)
    said = [line for line in python if "[" not in line][-1:]
    return ", ".join([*dict.fromkeys(conditions), *said]) or f"{type(error).__name__}: {str(error)[:400]}"
