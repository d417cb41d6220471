"""A data source and sink that knows nothing of the product: it does what its options say, and notes each call.

All of it lies in one folder, the option `home`: `calls`, a line for each call; `end`, how far the source can be read;
and `fails`, the name of a call that is to raise.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark.sql.datasource
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)

try:
    from pyspark.sql.streaming.datasource import ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # before 4.2

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands for Spark's class of that name where there is none."""


LOCAL_PROPERTIES = ("sql.streaming.queryId", "streaming.sql.batchId")
EXPRESSIONS: dict[str, Any] = {"pa": pa, "Row": Row}
"""The names in the option `yields`."""


class Traced(DataSource):
    """Named "traced". Its columns are the option `columns`; it yields numbers, or what the option `yields` says."""

    @classmethod
    def name(cls) -> str:
        return "traced"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.trace = Trace(options)

    def schema(self) -> str:
        self.trace.call("schema")
        return self.options.get("columns", "x INT")

    def reader(self, schema: Any) -> DataSourceReader:
        return BatchReader(self.trace)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        kind = self.options.get("reader", "plain")
        if kind == "simple":
            return super().streamReader(schema)
        self.trace.call("streamReader")
        return READERS[kind](self.trace)

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        return SimpleReader(self.trace)

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        self.trace.call("streamWriter", overwrite)
        self.trace.call("options", *sorted(self.trace.options))
        return WRITERS[self.options.get("writer", "plain")](self.trace)


class Trace:
    """The folder of one case."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = dict(options)
        self.home = Path(options["home"])

    def call(self, name: str, *arguments: Any) -> None:
        """Note a call and the process it is in; raise if the case wants that."""
        text = f"{name}({', '.join(str(each) for each in arguments)})"
        note = {"call": text, "pid": os.getpid(), "logs": [self.logged("offsets"), self.logged("commits")]}
        with (self.home / "calls").open("a") as calls:
            calls.write(json.dumps(note) + "\n")
        if self.said("fails") == name:
            raise OSError(f"{name} was told to fail")

    def logged(self, log: str) -> str:
        """Return the last batch id in one of the checkpoint's logs."""
        return max((file.name for file in self.home.glob(f"checkpoint/{log}/[0-9]")), default="-")

    def said(self, name: str) -> str:
        file = self.home / name
        return file.read_text() if file.exists() else ""


@dataclass
class Share(InputPartition):
    """The numbers of one partition: after `start`, to `end`."""

    start: int
    end: int
    seen: Any = None


class BatchReader(DataSourceReader):
    """Reads the option `yields`, once."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter(eval(self.trace.options["yields"], EXPRESSIONS))


class Reader(DataSourceStreamReader):
    """Has the signature of `latestOffset` that serves all versions, and no more of 4.2's interfaces."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.asked = False

    def initialOffset(self) -> dict[str, Any]:
        self.asked = True
        self.trace.call("initialOffset")
        return {"at": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> Any:
        self.trace.call("latestOffset", *([] if limit is None else [_at(start), limit]))
        if self.trace.said("blocks"):
            threading.Event().wait()
        if offset := self.trace.said("offset"):
            return eval(offset)
        return {"at": self.reachable(start, limit)}

    def reachable(self, start: Any, limit: Any) -> int:
        return int(self.trace.said("end"))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self.trace.call("partitions", _at(start), _at(end))
        if shares := self.trace.options.get("shares"):
            return eval(shares, {"Share": Share, "asked": self.asked})  # type: ignore[no-any-return]
        return [Share(start["at"], end["at"], self.asked)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Share)
        self.trace.call("read", partition.start, partition.end)
        if "yields" in self.trace.options:
            return eval(self.trace.options["yields"], {**EXPRESSIONS, **vars(self), **vars(partition), **_task()})  # type: ignore[no-any-return]
        return iter([(number,) for number in range(partition.start + 1, partition.end + 1)])

    def commit(self, end: dict[str, Any]) -> None:
        self.trace.call("commit", _at(end))

    def stop(self) -> None:
        self.trace.call("stop")


class OldReader(Reader):
    """Has the signature of 4.0."""

    def latestOffset(self) -> Any:  # type: ignore[override]
        return super().latestOffset()


class LimitedReader(Reader):
    """Gives and obeys a limit of two rows, and reports how far it could be read."""

    def getDefaultReadLimit(self) -> Any:
        return ReadMaxRows(2)

    def reportLatestOffset(self) -> dict[str, Any]:
        return {"newest": self.trace.said("end")}

    def reachable(self, start: Any, limit: Any) -> int:
        newest = super().reachable(start, limit)
        return min(start["at"] + limit.max_rows, newest) if hasattr(limit, "max_rows") else newest


class AvailableNowReader(LimitedReader, SupportsTriggerAvailableNow):
    """Is asked for the end of an AvailableNow query."""

    def prepareForTriggerAvailableNow(self) -> None:
        self.trace.call("prepare")


class SimpleReader(SimpleDataSourceStreamReader):
    """Reads on the driver."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def initialOffset(self) -> dict[str, Any]:
        self.trace.call("initialOffset")
        return {"at": 0}

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[int]], dict[str, Any]]:
        self.trace.call("read", start["at"])
        end = int(self.trace.said("end"))
        return self.rows(start["at"], end), {"at": end}

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[int]]:
        self.trace.call("readBetweenOffsets", start["at"], end["at"])
        return self.rows(start["at"], end["at"])

    def commit(self, end: dict[str, Any]) -> None:
        self.trace.call("commit", end["at"])

    @staticmethod
    def rows(start: int, end: int) -> Iterator[tuple[int]]:
        return iter([(number,) for number in range(start + 1, end + 1)])


@dataclass
class Done(WriterCommitMessage):
    """A task's message to the driver."""

    partition: int


class Writer(DataSourceStreamWriter):
    """Notes the rows of each task; it takes as many as the option `takes` says, or all."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def __getstate__(self) -> dict[str, Any]:
        self.trace.call("pickled")
        return self.__dict__

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        names = [self.named(row) for row in iterator]
        batch = context.getLocalProperty(LOCAL_PROPERTIES[1])
        self.trace.call("write", f"batch {batch}", *names)
        return eval(self.trace.options.get("message", "done"), {"done": Done(context.partitionId())})  # type: ignore[no-any-return]

    @staticmethod
    def named(row: Any) -> str:
        return f"{type(row).__name__} {row.x}"

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.trace.call("commit", f"batch {batchId}", *[each and each.partition for each in messages])  # type: ignore[attr-defined]

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.trace.call("abort", f"batch {batchId}", *[each and each.partition for each in messages])  # type: ignore[attr-defined]


class ArrowWriter(Writer, getattr(pyspark.sql.datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)):  # type: ignore[misc]
    """Takes batches, from 4.1 on."""

    @staticmethod
    def named(row: Any) -> str:
        return f"{type(row).__name__} {row.to_pydict()}" if isinstance(row, pa.RecordBatch) else Writer.named(row)


READERS: dict[str, type[Reader]] = {
    "plain": Reader,
    "old": OldReader,
    "limited": LimitedReader,
    "available now": AvailableNowReader,
}
WRITERS: dict[str, type[Writer]] = {"plain": Writer, "arrow": ArrowWriter}


def _at(offset: Any) -> Any:
    return offset.get("at", offset) if isinstance(offset, dict) else offset


def _task() -> dict[str, Any]:
    context = TaskContext.get()
    return {"properties": [context and bool(context.getLocalProperty(name)) for name in LOCAL_PROPERTIES]}
