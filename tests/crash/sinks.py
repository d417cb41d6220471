"""Files and PostgreSQL, as the audit reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import psycopg

from tests.spark.support import Row, committed_rows

_TABLES = """
DROP TABLE IF EXISTS batches, rows, changed;
CREATE TABLE batches (batch_id BIGINT PRIMARY KEY);
CREATE TABLE rows (
    batch_id BIGINT, ordinal INT, message_id TEXT, message_group_id TEXT, sequence_number TEXT, queue_url TEXT,
    partition INT
);
CREATE TABLE changed (batch_id BIGINT);
"""


class Sink(Protocol):
    """The target of a run's messages."""

    name: str

    def rows(self) -> Iterator[Row]:
        """Yield all rows in the order of micro-batches, partitions and positions."""

    def changed(self) -> int:
        """Return how many micro-batches had other rows when they were read again, if the sink can tell."""


class ParquetSink:
    """Spark's file sink in `home`/parquet. Which micro-batch a file belongs to says the sink's own log."""

    name = "parquet"

    def __init__(self, home: Path) -> None:
        self._folder = home / "parquet"

    def rows(self) -> Iterator[Row]:
        return committed_rows(self._folder)

    def changed(self) -> int:
        return 0


class PostgresTables:
    """The tables that `app.PostgresSink` fills."""

    name = "postgres"

    def __init__(self, address: str) -> None:
        self.address = address
        with psycopg.connect(address) as connection:
            connection.execute(_TABLES)

    def rows(self) -> Iterator[Row]:
        with psycopg.connect(self.address) as connection:
            found = connection.execute(
                "SELECT batch_id, partition, message_id, message_group_id, sequence_number, queue_url FROM rows "
                "ORDER BY batch_id, ordinal"
            )
            for batch_id, partition, message_id, group, number, url in found:
                yield Row(batch_id, str(partition), message_id, group, int(number), url)

    def changed(self) -> int:
        with psycopg.connect(self.address) as connection:
            row = connection.execute("SELECT count(*) FROM changed").fetchone()
        assert row is not None
        return int(row[0])
