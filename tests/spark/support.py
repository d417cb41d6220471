"""Helpers for tests with real queries: a queue to send to, a query to read it, and an audit of what came."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pyspark
import pytest

from sqs_fifo_spark.demo.auction import SinkLog
from sqs_fifo_spark.local import LocalQueueServer
from sqs_fifo_spark.source.segment import decode
from tests.crash.processes import begin, end_group
from tests.helpers import depth, journal_epochs, wait_until

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import Row as SparkRow
    from pyspark.sql.streaming.query import StreamingQuery

ROOT = Path(__file__).resolve().parents[2]
APPS = Path(__file__).parent / "apps"
SPARK_VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
LONG_S = 180.0
"""A deadline for what takes seconds on a quiet machine."""
MODES = ("commit", "journal")
"""The values of `deleteAfter`."""
in_both_modes = pytest.mark.parametrize("rig", MODES, indirect=True)
"""For a law that holds whenever messages are deleted."""


@dataclass(frozen=True)
class Sent:
    """Where the queue put a message that was sent."""

    message_group_id: str
    sequence_number: int


@dataclass(frozen=True)
class Row:
    """A row in a sink, and the micro-batch that committed it. `place` is its file, or the micro-batch's partition."""

    batch_id: int
    place: str
    message_id: str
    message_group_id: str
    sequence_number: int
    queue_url: str = ""
    """Empty where the source reads one queue."""


def committed_rows(parquet: Path) -> Iterator[Row]:
    """Yield what a file sink committed, in the order of micro-batches, files, and positions in a file."""
    columns = ["messageId", "messageGroupId", "sequenceNumber", "queueUrl"]
    for file in SinkLog(parquet).new_files():
        for row in pq.ParquetFile(file.path).read(columns=columns).to_pylist():
            message_id, group, number, url = (row.get(name, "") for name in columns)
            yield Row(file.batch_id, file.path, message_id, group, int(number), url)


@dataclass
class Rig:
    """One queue on a server of its own, and Spark."""

    spark: SparkSession
    server: LocalQueueServer
    home: Path
    sent: dict[str, Sent] = field(default_factory=dict)
    """All that was sent through `send`, by message id."""
    url: str = ""
    delete_after: str = "commit"
    """The source's option `deleteAfter`, where a test gives none."""

    def __post_init__(self) -> None:
        self.url = self.url or self.create_queue("test.fifo")

    # The queue. These calls go round HTTP, so that they do not stand among the server's requests.

    def call(self, action: str, **request: Any) -> dict[str, Any]:
        return self.server.run(lambda model: model.call(action, request))

    def create_queue(self, name: str) -> str:
        url: str = self.call("CreateQueue", QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"]
        return url

    def send(self, count: int, groups: int = 1, *, url: str | None = None, body: str = "body") -> dict[str, Sent]:
        """Send messages to `groups` groups in turn, and return what this call sent."""
        first = len(self.sent)
        new: dict[str, Sent] = {}
        for start in range(first, first + count, 10):
            numbers = range(start, min(start + 10, first + count))
            entries = [
                {
                    "Id": str(number),
                    "MessageBody": f"{body} {number}",
                    "MessageGroupId": f"group-{number % groups}",
                    "MessageDeduplicationId": f"message-{number}",
                }
                for number in numbers
            ]
            answer = self.call("SendMessageBatch", QueueUrl=url or self.url, Entries=entries)
            for number, done in zip(numbers, answer["Successful"], strict=True):
                new[done["MessageId"]] = Sent(f"group-{number % groups}", int(done["SequenceNumber"]))
        self.sent.update(new)
        return new

    def depth(self) -> tuple[int, int]:
        """Return how many messages are visible, and how many are in flight."""
        return depth(functools.partial(self.call, "GetQueueAttributes"), self.url)

    # The query

    @property
    def may_split(self) -> bool:
        """True if a group may stand in several partitions of a micro-batch."""
        return self.delete_after == "journal"

    @property
    def journal(self) -> Path:
        return self.home / "journal"

    def options(self, **options: object) -> dict[str, str]:
        given = {"queueUrl": self.url, "journalLocation": self.journal, "waitTimeSeconds": 1}
        if self.delete_after != "commit":
            given["deleteAfter"] = self.delete_after
        given.update(options)
        return {name: str(value) for name, value in given.items()}

    def source(self, **options: object) -> DataFrame:
        return self.spark.readStream.format("sqsfifo").options(**self.options(**options)).load()

    def to_parquet(self, frame: DataFrame, **trigger: Any) -> AbstractContextManager[StreamingQuery]:
        """Start a query into the rig's Parquet directory, with the rig's checkpoint."""
        writer = (
            frame.writeStream.format("parquet")
            .option("path", str(self.home / "parquet"))
            .option("checkpointLocation", str(self.home / "checkpoint"))
        )
        return running((writer.trigger(**trigger) if trigger else writer).start())

    def to_function(
        self,
        frame: DataFrame,
        function: Callable[[DataFrame, int], None],
        *,
        checkpoint: str = "checkpoint",
        **trigger: Any,
    ) -> AbstractContextManager[StreamingQuery]:
        """Start a query whose micro-batches are handed to `function`."""
        writer = frame.writeStream.foreachBatch(function).option("checkpointLocation", str(self.home / checkpoint))
        return running((writer.trigger(**trigger) if trigger else writer).start())

    def drain(self, query: StreamingQuery, timeout_s: float = LONG_S) -> None:
        """Wait until the queue is empty, and so is the journal of what may not be in the sink.

        A message is deleted after its commit; or, where tasks delete, as soon as the journal has it, which drops it
        after the commit.
        """

        def is_empty() -> bool:
            require_alive(query)
            return self.depth() == (0, 0) and (self.delete_after == "commit" or not self.journal_messages())

        try:
            wait_until(is_empty, timeout_s, "the queue is empty")
        except AssertionError as error:
            raise AssertionError(f"{error}; visible and in flight: {self.depth()}; {query.status}") from None

    def drain_into_files(self, frame: DataFrame) -> None:
        """Drain the queue by a query of `frame` into the rig's Parquet directory."""
        with self.to_parquet(frame) as query:
            self.drain(query)

    def drain_into_queue(self, frame: DataFrame, url: str, **options: str) -> None:
        """Drain the queue by a query of `frame` into the queue at `url`."""
        options = {"queueUrl": url, "checkpointLocation": str(self.home / "checkpoint"), **options}
        with running(frame.writeStream.format("sqsfifo").options(**options).start()) as query:
            self.drain(query)

    def drained(self, frame: DataFrame) -> list[SparkRow]:
        """Drain the queue by a query of `frame`, and return its rows."""
        rows: list[SparkRow] = []
        with self.to_function(frame, lambda batch, _: rows.extend(batch.collect())) as query:
            self.drain(query)
        return rows

    # The sink

    def require_each_once_in_order(self) -> list[Row]:
        """Return what the sink committed: each message that was sent, once, and in its group's order."""
        rows = self.rows()
        assert_each_once((row.message_id for row in rows), self.sent)
        assert_in_order(rows, may_split=self.may_split)
        return rows

    def rows(self) -> list[Row]:
        return list(committed_rows(self.home / "parquet"))

    def journal_epochs(self) -> list[Path]:
        """Return the files of epochs that the journal still holds."""
        return journal_epochs(self.journal)

    def journal_messages(self) -> set[str]:
        """Return the ids of the messages that the journal still holds."""
        found: set[str] = set()
        for path in self.journal_epochs():
            with contextlib.suppress(FileNotFoundError):  # it is dropped meanwhile
                found.update(each.message_id for each in decode(path.read_bytes(), path.name).head.receipts)
        return found


@contextmanager
def running(query: StreamingQuery) -> Iterator[StreamingQuery]:
    """Stop `query` at the end of a `with` block."""
    try:
        yield query
    finally:
        query.stop()


def require_alive(query: StreamingQuery) -> None:
    if not query.isActive:
        raise AssertionError(f"the query ended: {query.exception()}")


def failure(query: StreamingQuery) -> str:
    """Wait until the query has failed, and return what it says."""
    wait_until(lambda: not query.isActive, LONG_S, "the query stops")
    return str(query.exception())


def assert_each_once(message_ids: Iterable[str], sent: Mapping[str, Sent]) -> None:
    """Each message that was sent came once, and nothing else."""
    counts = Counter(message_ids)
    lost = sorted(sent.keys() - counts.keys())
    doubled = sorted(each for each, count in counts.items() if count > 1)
    unknown = sorted(counts.keys() - sent.keys())
    wrong = len(lost) + len(doubled) + len(unknown)
    assert wrong == 0, (
        f"of {len(sent)} sent: {len(lost)} lost {[sent[each] for each in lost[:5]]}, {len(doubled)} doubled "
        f"{[(sent[each], counts[each]) for each in doubled[:5]]}, {len(unknown)} unknown {unknown[:5]}"
    )


def assert_in_order(rows: Iterable[Row], *, may_split: bool = False) -> None:
    """A group's sequence numbers rise in every file and from micro-batch to micro-batch, one file in each.

    If it `may_split`, a group may stand in several files of a micro-batch, as it does where tasks delete.
    """
    groups: defaultdict[tuple[str, str], dict[int, dict[str, list[int]]]] = defaultdict(dict)
    for row in rows:
        files = groups[row.queue_url, row.message_group_id].setdefault(row.batch_id, {})
        files.setdefault(row.place, []).append(row.sequence_number)
    for group, batches in groups.items():
        last = -1
        for batch_id, files in batches.items():
            assert may_split or len(files) == 1, f"{group} stands in several files of batch {batch_id}: {set(files)}"
            for path, numbers in files.items():
                assert all(one < other for one, other in itertools.pairwise([last, *numbers])), (
                    f"{group} is not in order in batch {batch_id}, in {path}, after {last}: {numbers}"
                )
            last = max(numbers[-1] for numbers in files.values())


def micro_batches(query: StreamingQuery) -> list[Mapping[str, Any]]:
    """Return the progress of the micro-batches that ran, without the reports of idle triggers."""
    return [dict(each) for each in query.recentProgress if "addBatch" in each["durationMs"]]


def gaps_s(progress: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the seconds between micro-batches: from one trigger's end until the next found its work.

    The time in `latestOffset` counts as gap: a wait that only time ends would be there, or in idle triggers.
    """
    gaps = []
    for one, other in itertools.pairwise(progress):
        ended_at = _began_at(one) + one["durationMs"]["triggerExecution"] / 1000
        found_at = _began_at(other) + other["durationMs"].get("latestOffset", 0) / 1000
        gaps.append(found_at - ended_at)
    return gaps


def _began_at(progress: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()


class Gate:
    """Where tasks wait in mid-batch until they are let through. A directory, because they run in other processes."""

    def __init__(self, home: Path) -> None:
        self._home = home
        home.mkdir(exist_ok=True)

    def column(self, value: Column) -> Column:
        """Return `value`, for which a task waits at the closed gate."""
        from pyspark.sql.functions import udf

        home = str(self._home)

        def passed(text: str) -> str:
            # By value, for the workers: they have no clock of ours in this function's module.
            import os
            import pathlib

            from tests.helpers import wait_until

            gate = pathlib.Path(home)
            if not (gate / "open").exists():
                (gate / f"waiting-{os.getpid()}").touch()
                wait_until((gate / "open").exists, 120, "the gate opens")
            return text

        return udf(passed, "string", useArrow=False)(value)

    @property
    def waiting(self) -> int:
        """Number of workers that have come to the closed gate."""
        return sum(path.name.startswith("waiting-") for path in self._home.iterdir())

    def open(self) -> None:
        (self._home / "open").touch()

    def close(self) -> None:
        for path in self._home.iterdir():
            path.unlink()


def start_app(name: str, *arguments: object, log: Path, **environment: str) -> subprocess.Popen[bytes]:
    """Start the script `name` of `apps` in a process group of its own, with all its output in `log`."""
    command = [sys.executable, str(APPS / name), *map(str, arguments)]
    return begin(command, log, env={**os.environ, **environment}, cwd=log.parent)


def run_app(name: str, *arguments: object, log: Path, timeout_s: float = 2 * LONG_S, **environment: str) -> str:
    """Run the script `name` of `apps` to its end and return its output. It must succeed."""
    return output_of(start_app(name, *arguments, log=log, **environment), log, timeout_s)


def output_of(process: subprocess.Popen[bytes], log: Path, timeout_s: float) -> str:
    """Wait for the end of a process, which must succeed, and return its output. Nothing of its group is left."""
    try:
        status = process.wait(timeout_s)
    finally:
        end_group(process)
    output = log.read_text(errors="replace")
    assert status == 0, f"{process.args!r} ended with status {status}: {output[-6000:]}"
    return output


def kill_in_mid_batch(home: Path, options: Mapping[str, str]) -> None:
    """Run a query of the source into Parquet in `home`, and kill it with its JVM in a micro-batch after the second.

    Its tasks are let through, so that whoever goes on with it can do the same.
    """
    committed, log = home / "parquet" / "_spark_metadata", home / "log.txt"
    gate = Gate(home / "gate")
    gate.open()
    killed = start_app("to_parquet.py", home, *(f"{name}={value}" for name, value in options.items()), log=log)
    try:

        def is_under_way() -> bool:
            assert killed.poll() is None, log.read_text(errors="replace")[-4000:]
            return committed.exists() and len(list(committed.glob("[0-9]*"))) >= 2

        wait_until(is_under_way, LONG_S, "two micro-batches are committed")
        gate.close()
        wait_until(lambda: gate.waiting, LONG_S, "tasks are in mid-batch")
    finally:
        end_group(killed)
    gate.open()


def own_line(text: str) -> str:
    """Return what our error says, of all that Spark puts around it."""
    lines = re.findall(r"sqs_fifo_spark\.errors\.(\w+: .+)", text)
    assert lines, f"none of our errors stands in: {text}"
    return str(lines[-1])


def recipe(page: str, heading: str) -> str:
    """Return the one example in Python that a page has below this heading."""
    text = (ROOT / "sqs_fifo_spark" / "docs" / page).read_text(encoding="utf-8")
    section = text.partition(f"\n{heading}\n")[2]
    (code,) = re.findall(r"```python\n(.+?)```", re.split(r"\n##+ ", section)[0], re.DOTALL)
    return str(code)
