"""Helpers for the sink's tests: rows to send, files to stream them from, and an audit of what a queue holds."""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from sqs_fifo_spark.local import LocalQueueServer
from tests.spark.support import LONG_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DEADLINE_S = 4 * LONG_S
"""For what takes a Spark of its own, or a minute on a quiet machine."""
SCHEMA = "number LONG, body STRING, messageGroupId STRING, messageDeduplicationId STRING"
COLUMNS = ["body", "messageGroupId", "messageDeduplicationId"]


def group_of(number: int, groups: int) -> str:
    return f"group-{number % groups}"


def expected(count: int, groups: int) -> dict[str, list[str]]:
    """Return the bodies of `count` rows that take `groups` groups in turn, by group and in order."""
    return {f"group-{first}": [f"row {n}" for n in range(first, count, groups)] for first in range(min(groups, count))}


# What the queue holds


@dataclass(frozen=True)
class Held:
    """A message in a queue."""

    message_group_id: str
    deduplication_id: str
    body: str
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def held_in(server: LocalQueueServer, url: str) -> list[Held]:
    """Return all messages of a queue, oldest first."""
    names = ("messageGroupId", "messageDeduplicationId", "body", "messageAttributes")
    return [Held(*(message[name] for name in names)) for message in server.messages(url)]


@dataclass(frozen=True)
class Audit:
    """Differences between a queue's messages and the rows to be sent to it."""

    lost: list[str]
    """Bodies that did not come."""
    unknown: list[str]
    """Bodies that nobody sent."""
    repeats: dict[str, int]
    """Extra copies of each row, by body."""
    misplaced: list[str]
    """Groups whose rows do not stand in order when a repeat right behind its original is overlooked."""

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.unknown or self.repeats or self.misplaced)

    def __str__(self) -> str:
        return (
            f"{len(self.lost)} lost {self.lost[:5]}, {len(self.unknown)} unknown {self.unknown[:5]}, "
            f"{sum(self.repeats.values())} repeats {list(self.repeats)[:5]}, "
            f"{len(self.misplaced)} groups out of order {self.misplaced[:5]}"
        )


def audit(held: Iterable[Held], rows: Mapping[str, Sequence[str]]) -> Audit:
    """Compare what a queue held, in its order, with the bodies that should be there, by group and in order."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for each in held:
        found[each.message_group_id].append(each.body)
    lost: list[str] = []
    unknown: list[str] = []
    repeats: dict[str, int] = {}
    misplaced: list[str] = []
    for group in rows.keys() | found.keys():
        wanted = rows.get(group, [])
        known = set(wanted)
        came = [body for body in found[group] if body in known]
        unknown += [body for body in found[group] if body not in known]
        counts = dict.fromkeys(wanted, 0)
        for body in came:
            counts[body] += 1
        lost += [body for body, count in counts.items() if not count]
        repeats |= {body: count - 1 for body, count in counts.items() if count > 1}
        if [body for body, _ in itertools.groupby(came)] != [body for body in wanted if counts[body]]:
            misplaced.append(group)
    return Audit(sorted(lost), sorted(unknown), repeats, sorted(misplaced))


def assert_each_once_in_order(held: Iterable[Held], rows: Mapping[str, Sequence[str]]) -> None:
    """Each row came once, in its group and at its place, and nothing else came."""
    outcome = audit(held, rows)
    assert outcome.is_clean, str(outcome)


# What is to be sent


def rows(spark: SparkSession, count: int, groups: int, partitions: int = 8) -> DataFrame:
    """Return the rows of `expected`, with a column `number`; each group stands in all partitions."""
    return spark.range(0, count, 1, partitions).selectExpr(
        "id AS number",
        "concat('row ', id) AS body",
        f"concat('group-', id % {groups}) AS messageGroupId",
        "concat('message-', id) AS messageDeduplicationId",
    )


def write_files(home: Path, count: int, groups: int, *, files: int = 8, waves: int = 1) -> None:
    """Write the rows of `expected` as Parquet files, in `waves` of `files` each.

    Each wave is for one micro-batch, and each file for one partition: a group stands in one file of a wave, in order.
    """
    home.mkdir()
    share = -(-count // waves)
    for wave in range(waves):
        for number in range(files):
            chosen = [n for n in range(wave * share, min((wave + 1) * share, count)) if n % groups % files == number]
            columns = {
                "number": pa.array(chosen, pa.int64()),
                "body": [f"row {n}" for n in chosen],
                "messageGroupId": [group_of(n, groups) for n in chosen],
                "messageDeduplicationId": [f"message-{n}" for n in chosen],
            }
            path = home / f"wave-{wave}-{number}.parquet"
            pq.write_table(pa.table(columns), path)
            # Spark takes the oldest files first.
            os.utime(path, (1_700_000_000 + wave, 1_700_000_000 + wave))


def file_stream(spark: SparkSession, home: Path, *, files: int = 8) -> DataFrame:
    """Return a stream of what `write_files` wrote, a wave in each micro-batch; within `file_partitions`, see there."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files).parquet(str(home))


@contextmanager
def file_partitions(spark: SparkSession, count: int = 8) -> Iterator[None]:
    """Let Spark make `count` partitions of as many small files, or of more, where it would make fewer."""
    name = "spark.sql.files.minPartitionNum"
    spark.conf.set(name, str(count))
    try:
        yield
    finally:
        spark.conf.unset(name)


# The sink


def sink_options(url: str, **options: object) -> dict[str, str]:
    return {name: str(value) for name, value in {"queueUrl": url, **options}.items()}


def write(frame: DataFrame, url: str, **options: object) -> None:
    """Write `frame` into the queue, as a batch."""
    frame.write.format("sqsfifo").options(**sink_options(url, **options)).mode("append").save()


def write_all(frame: DataFrame, url: str, checkpoint: Path, **options: object) -> StreamingQuery:
    """Write what the stream `frame` has at present into the queue, and return the query, which has ended well."""
    writer = frame.writeStream.format("sqsfifo").options(**sink_options(url, **options))
    return to_the_end(writer.option("checkpointLocation", str(checkpoint)))


def to_the_end(writer: Any) -> StreamingQuery:
    """Start `writer` with what there is at present, wait for its end, and raise what it failed with."""
    query: StreamingQuery = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(int(DEADLINE_S)), f"the query has not ended: {query.status}"
    finally:
        query.stop()
    return query


def forget_commit(checkpoint: Path, batch_id: int) -> None:
    """Make Spark run a micro-batch that is over once more, as after a crash before its commit was logged."""
    for name in (f"{batch_id}", f".{batch_id}.crc"):
        (checkpoint / "commits" / name).unlink()
